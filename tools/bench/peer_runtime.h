/* A peer of work.h: cudaMalloc and cudaFree of the CUDA runtime.  PEER_NAME tells whether it is
 * linked as a shared library or into the program. */
#ifndef BENCH_PEER_RUNTIME_H
#define BENCH_PEER_RUNTIME_H

#include "cuda_runtime_min.h"

static inline void peer_open(void) {
    cudaError_t error = cudaSetDevice(0);
    if (error != cudaSuccess)
        work_fail("cudaSetDevice", error);
}

static inline void peer_thread(void) {
}

static inline void *peer_take(size_t bytes, void *stream) {
    (void)stream;
    void *pointer;
    cudaError_t error = cudaMalloc(&pointer, bytes);
    if (error != cudaSuccess)
        work_fail("cudaMalloc", error);
    return pointer;
}

static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    (void)bytes;
    (void)stream;
    cudaError_t error = cudaFree(pointer);
    if (error != cudaSuccess)
        work_fail("cudaFree", error);
}

#endif
