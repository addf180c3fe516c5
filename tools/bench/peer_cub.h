/* A peer of work.h: CUB's caching allocator, behind functions since it is C++ (peer_cub.cpp). The
 * extra calls are one or two ns of its figures. */
#ifndef BENCH_PEER_CUB_H
#define BENCH_PEER_CUB_H

#include <stddef.h>

unsigned bench_cub_open(void);
unsigned bench_cub_take(void **pointer, size_t bytes, void *stream);
unsigned bench_cub_give(void *pointer);

static inline void peer_open(void) {
    unsigned error = bench_cub_open();
    if (error)
        work_fail("CUB: no device", error);
}

static inline void peer_thread(void) {
}

static inline void *peer_take(size_t bytes, void *stream) {
    void *pointer;
    unsigned error = bench_cub_take(&pointer, bytes, stream);
    if (error)
        work_fail("CUB: DeviceAllocate", error);
    return pointer;
}

/* CUB remembers size and stream. */
static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    (void)bytes;
    (void)stream;
    unsigned error = bench_cub_give(pointer);
    if (error)
        work_fail("CUB: DeviceFree", error);
}

#endif
