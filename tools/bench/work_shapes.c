/* Shapes of requests by one thread: many sizes in turn, and steps that take many blocks and give
 * them back.  They are counted (bench_mark), so that a figure is the same in every run. */
#include "work.h"

#include <stdio.h>

#include PEER_HEADER

static void *taken[WORK_SIZES];
static work_device_t *device; /* NULL: nothing is launched */
static long launches;

static void *take(const work_t *w, size_t bytes) {
    void *pointer = peer_take(bytes);
    if (device)
        work_device_launch(device, launches++ % w->streams);
    return pointer;
}

/* One pair of each size in turn. */
static void cycle(const work_t *w, const size_t *sizes, long rounds) {
    for (long round = 0; round < rounds; round++)
        for (long i = 0; i < w->live; i++)
            peer_give(take(w, sizes[i]));
}

/* One block of each size, then all of them back, the last one first. */
static void step(const work_t *w, const size_t *sizes, long rounds) {
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < w->live; i++)
            taken[i] = take(w, sizes[i]);
        for (long i = w->live; i-- > 0;)
            peer_give(taken[i]);
    }
}

/* Parts between marks, as work_count has them. */
static void count(const work_t *w, void shape(const work_t *, const size_t *, long)) {
    const size_t *sizes = work_sizes(w);
    if (w->live < 1 || w->live > WORK_SIZES)
        work_fail("`live` is the number of sizes", 0);
    long rounds = (w->pairs ? w->pairs : 2048) / w->live + 1;
    shape(w, sizes, 2 * rounds);
    bench_mark();
    shape(w, sizes, rounds);
    bench_mark();
    shape(w, sizes, 5 * rounds);
    bench_mark();
    printf("\"pairs\": %ld", rounds * w->live);
}

void work_cycle(const work_t *w) {
    count(w, cycle);
}

void work_step(const work_t *w) {
    count(w, step);
}

#if PEER_DEVICE
void work_cycle_launch(const work_t *w) {
    device = work_device_open(w->streams);
    count(w, cycle);
}

void work_step_launch(const work_t *w) {
    device = work_device_open(w->streams);
    count(w, step);
}
#endif
