/* Many sizes, one thread: a block of each in turn, and steps that allocate all blocks before they
 * free them. */
#include "work.h"

#include <stdlib.h>

#include PEER_HEADER

static struct {
    const size_t *sizes;
    void **slot;           /* of a step */
    work_device_t *device; /* NULL: no streams */
} all;

#define INLINE static inline __attribute__((always_inline))

INLINE void *stream_of(const work_t *w, work_device_t *device, long i) {
    return device ? work_device_stream(device, i % w->streams) : NULL;
}

INLINE void *take(const work_t *w, work_device_t *device, bool launch, size_t bytes, long i) {
    void *pointer = peer_take(bytes, stream_of(w, device, i));
    WORK_USED(pointer);
    if (launch)
        work_device_launch(device, i % w->streams);
    return pointer;
}

INLINE double cycle(const work_t *w, long pairs, work_device_t *device, bool launch) {
    double begin = work_clock(w);
    for (long i = 0, at = 0; i < pairs; i++, at = at + 1 < w->count ? at + 1 : 0) {
        void *pointer = take(w, device, launch, all.sizes[at], i);
        peer_give(pointer, all.sizes[at], stream_of(w, device, i));
    }
    return work_clock(w) - begin;
}

/* Runs whole steps, and returns the time of `pairs` by proportion. */
INLINE double step(const work_t *w, long pairs, work_device_t *device, bool launch) {
    long steps = (pairs + w->count - 1) / w->count;
    double begin = work_clock(w);
    for (long s = 0; s < steps; s++) {
        for (long i = 0; i < w->count; i++)
            all.slot[i] = take(w, device, launch, all.sizes[i], i);
        for (long i = w->count - 1; i >= 0; i--)
            peer_give(all.slot[i], all.sizes[i], stream_of(w, device, i));
    }
    double took = work_clock(w) - begin;
    return took / (double)(steps * w->count) * (double)pairs;
}

/* The final wait is not timed: on a GPU it is the time of the kernels. */
static double cycle_pass(const work_t *w, long pairs) {
    double took = WORK_BY_KEYS(cycle, w, pairs, all.device);
    if (all.device)
        work_device_wait(all.device);
    return took;
}

static double step_pass(const work_t *w, long pairs) {
    double took = WORK_BY_KEYS(step, w, pairs, all.device);
    if (all.device)
        work_device_wait(all.device);
    return took;
}

/* Runs ten times through all sizes before any timing, so that the memory is there. */
static void run(const work_t *w, work_pass_fn *pass) {
    all.device = work_launches(w);
    all.sizes = work_sizes(w);
    all.slot = work_alloc((size_t)w->count * sizeof *all.slot);
    pass(w, 10 * w->count);
    work_measure(w, pass);
    free(all.slot);
}

void work_cycle(const work_t *w) {
    run(w, cycle_pass);
}

void work_step(const work_t *w) {
    run(w, step_pass);
}
