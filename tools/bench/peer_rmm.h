/* A peer of work.h: RMM's pool, behind functions since it is C++ (peer_rmm.cpp). The extra calls
 * are one or two ns of its figures. */
#ifndef BENCH_PEER_RMM_H
#define BENCH_PEER_RMM_H

#include <stddef.h>

/* 0: success. */
int bench_rmm_open(void);
void *bench_rmm_take(size_t bytes, void *stream); /* NULL: no memory */
int bench_rmm_give(void *pointer, size_t bytes, void *stream);

static inline void peer_open(void) {
    if (bench_rmm_open())
        work_fail("RMM: no device or no memory", 0);
}

static inline void peer_thread(void) {
}

static inline void *peer_take(size_t bytes, void *stream) {
    void *pointer = bench_rmm_take(bytes, stream);
    if (!pointer)
        work_fail("RMM: allocate", 0);
    return pointer;
}

static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    if (bench_rmm_give(pointer, bytes, stream))
        work_fail("RMM: deallocate", 0);
}

#endif
