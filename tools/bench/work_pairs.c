/* Pairs by one thread: the same block again and again, and a random one of many. */
#include "work.h"

#include <stdio.h>
#include <stdlib.h>

#include PEER_HEADER

/* The compiler knows malloc: without this it takes pairs out altogether. */
#define USED(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

static void repeat(size_t bytes, long pairs) {
    for (long i = 0; i < pairs; i++) {
        void *pointer = peer_take(bytes);
        USED(pointer);
        peer_give(pointer);
    }
}

/* ---------------------------------------------------------------- live blocks */

static struct {
    void **slot;
    const size_t *sizes;
    uint64_t random;
    long next; /* size to draw */
} held = {.random = 2463534242u};

static void hold(const work_t *w) {
    held.sizes = work_sizes(w);
    held.slot = work_alloc((size_t)(w->live + 1) * sizeof *held.slot);
    for (long i = 0; i < w->live; i++)
        held.slot[i] = peer_take(held.sizes[held.next++ % WORK_SIZES]);
}

static void release(const work_t *w) {
    for (long i = 0; i < w->live; i++)
        peer_give(held.slot[i]);
    free(held.slot);
}

static double hot_pass(const work_t *w, long pairs) {
    double begin = work_clock(w);
    repeat((size_t)w->bytes, pairs);
    return work_clock(w) - begin;
}

void work_hot(const work_t *w) {
    hold(w);
    work_measure(w, hot_pass);
    release(w);
}

/* The draw of slot and size, some two ns, is part of every peer's figure. */
static double replace_pass(const work_t *w, long pairs) {
    void **slot = held.slot;
    const size_t *sizes = held.sizes;
    uint64_t random = held.random, live = (uint64_t)w->live;
    long next = held.next;
    double begin = work_clock(w);
    for (long i = 0; i < pairs; i++) {
        /* The upper half times `live`: a division by a variable would cost as much as a hit. */
        void **at = &slot[((work_random(&random) >> 32) * live) >> 32];
        peer_give(*at);
        *at = peer_take(sizes[next++ % WORK_SIZES]);
        USED(*at);
    }
    double took = work_clock(w) - begin;
    held.random = random;
    held.next = next;
    return took;
}

void work_replace(const work_t *w) {
    if (!w->live)
        work_fail("replace: live=0 leaves nothing to replace", 0);
    hold(w);
    /* The first ones still make the cache grow: they are another matter than a steady state.  A
     * peer without one would take many seconds for as many. */
    enum { STEP = 500 };
    double end = work_now() + 100e3 * (double)w->us;
    for (long left = w->pairs ? w->pairs : 20000 + 2 * w->live; left > 0; left -= STEP)
        if (w->pairs || work_now() < end)
            replace_pass(w, left < STEP ? left : STEP);
    work_measure(w, replace_pass);
    release(w);
}

/* ---------------------------------------------------------------- counting instructions */

/* Never inlined, and visible, so that it is there by name. */
__attribute__((noinline, visibility("default"))) void bench_mark(void) {
    __asm__ volatile("" : : : "memory");
}

/* Parts between marks: for each size warming up, then `pairs`, then five times as many. */
void work_count(const work_t *w) {
    static const size_t sizes[] = {512, 64 << 10, 1 << 20, 64 << 20};
    long pairs = w->pairs ? w->pairs : 2048;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        repeat(sizes[i], pairs);
        bench_mark();
        repeat(sizes[i], pairs);
        bench_mark();
        repeat(sizes[i], 5 * pairs);
        bench_mark();
    }
    printf("\"pairs\": %ld", pairs);
}
