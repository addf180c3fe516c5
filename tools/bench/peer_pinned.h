/* A peer of work.h: cuMemHostAlloc and cuMemFreeHost of the driver, pinned host memory. */
#ifndef BENCH_PEER_PINNED_H
#define BENCH_PEER_PINNED_H

#define peer_take driver_take
#define peer_give driver_give
#include "peer_driver.h"
#undef peer_take
#undef peer_give

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags);
CUresult cuMemFreeHost(void *pointer);

static inline void *peer_take(size_t bytes, void *stream) {
    (void)stream;
    void *pointer;
    CUresult error = cuMemHostAlloc(&pointer, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (error)
        work_fail("cuMemHostAlloc", error);
    return pointer;
}

static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    (void)bytes;
    (void)stream;
    CUresult error = cuMemFreeHost(pointer);
    if (error)
        work_fail("cuMemFreeHost", error);
}

#endif
