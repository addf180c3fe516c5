/* Peers of work.h: host allocators, for comparison.  Nothing touches the blocks. */
#ifndef BENCH_PEER_HOST_H
#define BENCH_PEER_HOST_H

#include <stdlib.h>

#ifdef PEER_MIMALLOC
#include <mimalloc.h>
#define PEER_MALLOC mi_malloc
#define PEER_FREE   mi_free
#else
#define PEER_MALLOC malloc
#define PEER_FREE   free
#endif

static inline void peer_open(void) {
}

static inline void peer_thread(void) {
}

static inline void *peer_take(size_t bytes, void *stream) {
    (void)stream;
    void *pointer = PEER_MALLOC(bytes);
    if (!pointer)
        work_fail("host memory is short", 0);
    return pointer;
}

static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    (void)bytes;
    (void)stream;
    PEER_FREE(pointer);
}

#endif
