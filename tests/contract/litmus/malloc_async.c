/* Stream-ordered memory lives from the stream's allocation to its free; reuse is the driver's
 * affair, order with other streams the program's.
 *
 * CUDA C++ Programming Guide, "Stream Ordered Memory Allocator": accesses must happen between
 * the allocation's and the free's places in stream order. */
#include "litmus.h"

static CUdeviceptr take(CUstream stream) {
    CUdeviceptr memory;
    MUST(cuMemAllocAsync(&memory, 64 << 10, stream));
    return memory;
}

/* A round of allocation, use and free in one stream. */
static void round_(litmus_t *t, CUstream stream, bool slow) {
    CUdeviceptr memory = take(stream);
    litmus_launch(t, 0, stream, memory, 1, slow, false);
    MUST(cuMemFreeAsync(memory, stream));
}

static void one_stream(litmus_t *t) {
    for (int i = 0; i < 4; i++)
        round_(t, t->free_stream[0], i == 0);
    litmus_new(t, t->free_stream[0]);
}

static void several_streams(litmus_t *t) {
    for (int i = 0; i < 12; i++)
        round_(t, t->free_stream[i % 3], i % 4 == 0);
    litmus_new(t, t->free_stream[0]);
}

/* The stream-ordered free waits, by an event, for the stream that used the memory.
 *
 * In the racy case the use has to come first in fact, too: work on memory that the driver took
 * back faults, which ends the context. So the free comes behind work that is as long and begins
 * no earlier. A program may not rely on this order, but a slow host does not change it. */
static void used_elsewhere(litmus_t *t, bool wait) {
    CUdeviceptr memory = take(t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_launch(t, 0, t->free_stream[1], memory, 1, true, false);
    MUST(cuEventRecord(t->event[1], t->free_stream[1]));
    if (wait)
        MUST(cuStreamWaitEvent(t->free_stream[0], t->event[1], 0));
    litmus_launch(t, 0, t->free_stream[0], t->other, 1, true, false);
    MUST(cuMemFreeAsync(memory, t->free_stream[0]));
    memory = take(t->free_stream[0]);
    litmus_launch(t, 0, t->free_stream[0], memory, 1, false, false);
    MUST(cuMemFreeAsync(memory, t->free_stream[0]));
    litmus_new(t, t->free_stream[0]);
}

static void waited_for(litmus_t *t) {
    used_elsewhere(t, true);
}

static void not_waited_for(litmus_t *t) {
    used_elsewhere(t, false);
}

/* Mixed: plain memory given back in stream order. */
static void plain_freed_async(litmus_t *t) {
    CUdeviceptr memory;
    MUST(cuMemAlloc_v2(&memory, 64 << 10));
    litmus_launch(t, 0, t->free_stream[0], memory, 1, true, false);
    MUST(cuMemFreeAsync(memory, t->free_stream[0]));
    round_(t, t->free_stream[1], false);
    litmus_new(t, t->free_stream[0]);
}

LITMUS_CASES({"in one stream", one_stream, ORDERED},
             {"in several streams", several_streams, ORDERED},
             {"used elsewhere, waited for", waited_for, ORDERED},
             {"used elsewhere, not waited for", not_waited_for, RACY | DIRECT},
             {"plain memory freed in stream order", plain_freed_async, ORDERED})
