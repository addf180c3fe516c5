/* A peer of work.h: cudaMallocAsync and cudaFreeAsync; PEER_POOL: from a pool of the program. */
#ifndef BENCH_PEER_ASYNC_H
#define BENCH_PEER_ASYNC_H

#include "cuda_runtime_min.h"

#ifdef PEER_POOL
static cudaMemPool_t peer_pool;
#define PEER_TAKE(pointer, bytes, stream) cudaMallocFromPoolAsync(pointer, bytes, peer_pool, stream)
#else
#define PEER_TAKE(pointer, bytes, stream) cudaMallocAsync(pointer, bytes, stream)
#endif

static inline void peer_open(void) {
    cudaError_t error = cudaSetDevice(0);
#ifdef PEER_POOL
    const struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    if (error == cudaSuccess)
        error = cudaMemPoolCreate(&peer_pool, &properties);
#endif
    if (error != cudaSuccess)
        work_fail("cudaSetDevice", error);
}

/* Also gives the thread memory of cudaMalloc: the cost of a thread's cache to other calls counts. */
static inline void peer_thread(void) {
    void *pointer;
    cudaError_t error = cudaMalloc(&pointer, 512);
    if (error == cudaSuccess)
        error = cudaFree(pointer);
    if (error != cudaSuccess)
        work_fail("cudaMalloc", error);
}

static inline void *peer_take(size_t bytes, void *stream) {
    void *pointer;
    cudaError_t error = PEER_TAKE(&pointer, bytes, stream);
    if (error != cudaSuccess)
        work_fail("an allocation in the order of a stream", error);
    return pointer;
}

static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    (void)bytes;
    cudaError_t error = cudaFreeAsync(pointer, stream);
    if (error != cudaSuccess)
        work_fail("cudaFreeAsync", error);
}

#endif
