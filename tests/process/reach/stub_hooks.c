/* Stands for the bodies of the hooks where the resolver is tested alone: a function for every
 * symbol of the driver and of the runtime but those that lookup.c defines. */
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

#define cudaGetDriverEntryPoint               unused_cudaGetDriverEntryPoint
#define cudaGetDriverEntryPoint_ptsz          unused_cudaGetDriverEntryPoint_ptsz
#define cudaGetDriverEntryPointByVersion      unused_cudaGetDriverEntryPointByVersion
#define cudaGetDriverEntryPointByVersion_ptsz unused_cudaGetDriverEntryPointByVersion_ptsz
#define HOOK_RUNTIME(symbol, params)                                                             \
    ac_runtime_error_t symbol params;                                                            \
    ac_runtime_error_t symbol params {                                                           \
        return 0;                                                                                \
    }
#include "intercept/hooks.def"

extern unsigned stub_forgotten;

bool ac_deepbind_strip(void) {
    return true;
}

unsigned stub_forgotten; /* how often a thread was told to forget its context */

void ac_thread_forget(void) {
    stub_forgotten++;
}
