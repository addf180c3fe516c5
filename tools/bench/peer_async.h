/* A peer of work.h: cudaMallocAsync and cudaFreeAsync on the default stream. */
#ifndef BENCH_PEER_ASYNC_H
#define BENCH_PEER_ASYNC_H

#include "cuda_runtime_min.h"

static inline void peer_open(void) {
    cudaError_t error = cudaSetDevice(0);
    if (error != cudaSuccess)
        work_fail("cudaSetDevice", error);
}

static inline void peer_thread(void) {
}

static inline void *peer_take(size_t bytes) {
    void *pointer;
    cudaError_t error = cudaMallocAsync(&pointer, bytes, NULL);
    if (error != cudaSuccess)
        work_fail("cudaMallocAsync", error);
    return pointer;
}

static inline void peer_give(void *pointer) {
    cudaError_t error = cudaFreeAsync(pointer, NULL);
    if (error != cudaSuccess)
        work_fail("cudaFreeAsync", error);
}

#endif
