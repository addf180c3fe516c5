/* Pairs by one thread: the same block again and again, and a random one of many. */
#include "work.h"

#include <stdio.h>
#include <stdlib.h>

#include PEER_HEADER

static void repeat(size_t bytes, long pairs) {
    for (long i = 0; i < pairs; i++) {
        void *pointer = peer_take(bytes, NULL);
        WORK_USED(pointer);
        peer_give(pointer, bytes, NULL);
    }
}

/* ---------------------------------------------------------------- live blocks */

/* A block, and the arguments that allocated it. */
typedef struct {
    void *pointer;
    size_t bytes;
    void *stream;
} block_t;

static struct {
    block_t *slot;
    const size_t *sizes;
    work_device_t *device; /* NULL: nothing is launched */
    uint64_t random;
    long next; /* size to draw */
} held = {.random = 2463534242u};

static void take(block_t *block, void *stream) {
    block->bytes = held.sizes[held.next++ % WORK_SIZES];
    block->stream = stream;
    block->pointer = peer_take(block->bytes, stream);
}

void work_hold(const work_t *w) {
    held.sizes = work_sizes(w);
    held.slot = work_alloc((size_t)(w->live + 1) * sizeof *held.slot);
    for (long i = 0; i < w->live; i++)
        take(&held.slot[i], NULL);
}

void work_release(const work_t *w) {
    for (long i = 0; i < w->live; i++)
        peer_give(held.slot[i].pointer, held.slot[i].bytes, held.slot[i].stream);
    free(held.slot);
}

static double hot_pass(const work_t *w, long pairs) {
    double begin = work_clock(w);
    repeat((size_t)w->bytes, pairs);
    return work_clock(w) - begin;
}

void work_hot(const work_t *w) {
    work_hold(w);
    work_measure(w, hot_pass);
    work_release(w);
}

/* Replaces blocks.  The draw of slot and size, about 2 ns, is part of every peer's figure. */
static inline __attribute__((always_inline)) double replace(const work_t *w, long pairs,
                                                            work_device_t *device,
                                                            bool launch) {
    block_t *slot = held.slot;
    uint64_t random = held.random, live = (uint64_t)w->live;
    double begin = work_clock(w);
    for (long i = 0; i < pairs; i++) {
        /* The upper half times `live`: a division by a variable would cost as much as a hit. */
        block_t *block = &slot[((work_random(&random) >> 32) * live) >> 32];
        peer_give(block->pointer, block->bytes, block->stream);
        take(block, device ? work_device_stream(device, i % w->streams) : NULL);
        WORK_USED(block->pointer);
        if (launch)
            work_device_launch(device, i % w->streams);
    }
    double took = work_clock(w) - begin;
    if (device)
        work_device_wait(device);
    held.random = random;
    return took;
}

static double replace_pass(const work_t *w, long pairs) {
    return WORK_BY_KEYS(replace, w, pairs, held.device);
}

void work_replace(const work_t *w) {
    if (!w->live)
        work_fail("replace: live=0 leaves nothing to replace", 0);
    held.device = work_launches(w);
    work_hold(w);
    /* The first replacements still make the cache grow, and are not part of the steady state.  A
     * peer without a cache would take many seconds for that number. */
    enum { STEP = 500 };
    double end = work_now() + 100e3 * (double)w->us;
    for (long left = w->pairs ? w->pairs : 20000 + 2 * w->live; left > 0; left -= STEP)
        if (w->pairs || work_now() < end)
            replace_pass(w, left < STEP ? left : STEP);
    work_measure(w, replace_pass);
    work_release(w);
}

/* Allocates the new block before the old one is freed, as a buffer that grows and is copied. */
static double ring_pass(const work_t *w, long pairs) {
    long at = 0;
    double begin = work_clock(w);
    for (long i = 0; i < pairs; i++, at = at + 1 < w->live ? at + 1 : 0) {
        block_t old = held.slot[at];
        take(&held.slot[at], NULL);
        WORK_USED(held.slot[at].pointer);
        peer_give(old.pointer, old.bytes, NULL);
    }
    return work_clock(w) - begin;
}

void work_ring(const work_t *w) {
    if (!w->live)
        work_fail("ring: live=0 leaves nothing to replace", 0);
    work_hold(w);
    work_measure(w, ring_pass);
    work_release(w);
}
