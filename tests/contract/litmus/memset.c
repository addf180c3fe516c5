/* A fill does not hold up the host, in its synchronous form neither.
 *
 * CUDA Driver API, "API synchronization behavior", "Memset": synchronous except when the target
 * is device memory. */
#include "litmus.h"

static void default_stream(litmus_t *t) {
    MUST(cuMemsetD32_v2(t->memory, 1, 4096));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void default_stream_blocking(litmus_t *t) {
    MUST(cuMemsetD32_v2(t->memory, 1, 4096));
    litmus_hand_over(t);
    litmus_new(t, t->blocking[0]);
}

static void asynchronous(litmus_t *t) {
    MUST(cuMemsetD32Async(t->memory, 1, 4096, t->free_stream[1]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void in_the_stream(litmus_t *t) {
    MUST(cuMemsetD32Async(t->memory, 1, 4096, t->free_stream[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

LITMUS_CASES({"synchronous, then a non-blocking stream", default_stream, RACY},
             {"synchronous, then a blocking stream", default_stream_blocking, ORDERED},
             {"asynchronous, in another stream", asynchronous, RACY},
             {"asynchronous, in the stream", in_the_stream, ORDERED})
