/* Work of one stream happens in the order of its submission.
 *
 * CUDA C++ Programming Guide, "Asynchronous Concurrent Execution", "Streams": a stream is a
 * sequence of commands that execute in order. */
#include "litmus.h"

static void same_stream(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void mixed_work(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuMemsetD32Async(t->memory, 1, 16, t->free_stream[0]));
    litmus_hand_over(t);
    MUST(cuMemcpyDtoDAsync_v2(t->memory, t->other, 64, t->free_stream[0]));
    litmus_new(t, t->free_stream[0]);
}

static void two_streams(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"one stream", same_stream, ORDERED},
             {"copies and fills in one stream", mixed_work, ORDERED},
             {"two streams", two_streams, RACY})
