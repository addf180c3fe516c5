/* The ends of a synchronous copy decide which work is over when it returns.
 *
 * CUDA Driver API, "API synchronization behavior", "Memcpy": synchronous and asynchronous
 * forms, for pageable, pinned and device memory. */
#include "litmus.h"

static unsigned word = 1;

/* The copy is complete when it returns, and with it the blocking stream's work before it. */
static void to_pageable(litmus_t *t) {
    litmus_old(t, t->blocking[0]);
    MUST(cuMemcpyDtoH_v2(&word, t->other, sizeof word));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* The host is not held up by copies within a device. */
static void on_the_device(litmus_t *t) {
    litmus_old(t, t->blocking[0]);
    MUST(cuMemcpyDtoD_v2(t->other, t->other + 1024, 64));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* Staged: it may return before the memory on the device is written. */
static void from_pageable(litmus_t *t) {
    MUST(cuMemcpyHtoD_v2(t->memory, &word, sizeof word));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* Work before a copy from pageable memory is complete: the driver synchronises the stream
 * before staging. */
static void before_from_pageable(litmus_t *t) {
    litmus_old(t, t->blocking[0]);
    MUST(cuMemcpyHtoD_v2(t->other, &word, sizeof word));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void from_pinned(litmus_t *t) {
    MUST(cuMemcpyHtoD_v2(t->memory, t->pinned, sizeof word));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void async_pinned(litmus_t *t) {
    MUST(cuMemcpyDtoHAsync_v2(t->pinned, t->memory, sizeof word, t->free_stream[1]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* To pageable memory the asynchronous form is synchronous. */
static void async_to_pageable(litmus_t *t) {
    litmus_old(t, t->free_stream[1]);
    MUST(cuMemcpyDtoHAsync_v2(&word, t->memory, sizeof word, t->free_stream[1]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* A copy in the default stream does not complete the work of a non-blocking stream. */
static void other_stream(litmus_t *t) {
    litmus_old(t, t->free_stream[1]);
    MUST(cuMemcpyDtoH_v2(&word, t->other, sizeof word));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

LITMUS_CASES({"to pageable memory", to_pageable, ORDERED},
             {"within the device", on_the_device, RACY},
             {"from pageable memory", from_pageable, RACY},
             {"work before one from pageable memory", before_from_pageable, ORDERED},
             {"from pinned memory", from_pinned, ORDERED},
             {"asynchronous, to pinned memory", async_pinned, RACY},
             {"asynchronous, to pageable memory", async_to_pageable, ORDERED},
             {"work of a non-blocking stream", other_stream, RACY})
