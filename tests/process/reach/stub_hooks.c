/* Stands for the bodies of the hooks where the resolver is tested alone: a function for every
 * driver symbol but those that lookup.c defines. */
#include "intercept/process.h"
#include "intercept/resolve.h"
#include "intercept/thread.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define cuGetProcAddress    unused_cuGetProcAddress
#define cuGetProcAddress_v2 unused_cuGetProcAddress_v2
#define cuGetExportTable    unused_cuGetExportTable
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    CUresult symbol params;                                                                      \
    CUresult symbol params {                                                                     \
        return CUDA_ERROR_UNKNOWN;                                                               \
    }
#include "device/cuda_functions.def"
#undef CU_FN

extern unsigned stub_forgotten;
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaSetDevice(int device);
int cudaMallocAsync(void **pointer, size_t bytes, void *stream);
int cudaMallocAsync_ptsz(void **pointer, size_t bytes, void *stream);
int cudaFreeAsync(void *pointer, void *stream);
int cudaFreeAsync_ptsz(void *pointer, void *stream);

int cudaMalloc(void **pointer, size_t bytes) {
    return !pointer + !bytes;
}
int cudaFree(void *pointer) {
    return !pointer;
}
int cudaMallocAsync(void **pointer, size_t bytes, void *stream) {
    return !pointer + !bytes + !stream;
}
int cudaMallocAsync_ptsz(void **pointer, size_t bytes, void *stream) {
    return !pointer + !bytes + !stream;
}
int cudaFreeAsync(void *pointer, void *stream) {
    return !pointer + !stream;
}
int cudaFreeAsync_ptsz(void *pointer, void *stream) {
    return !pointer + !stream;
}
int cudaSetDevice(int device) {
    return device;
}

bool ac_deepbind_strip(void) {
    return true;
}

unsigned stub_forgotten; /* how often a thread was told to forget its context */

void ac_thread_forget(void) {
    stub_forgotten++;
}
