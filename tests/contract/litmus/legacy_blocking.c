/* The legacy default stream waits for blocking streams and they for it.
 *
 * CUDA Driver API, "Stream synchronization behavior", "Default stream": legacy default stream. */
#include "litmus.h"

static void stream_then_legacy(litmus_t *t) {
    litmus_old(t, t->blocking[0]);
    litmus_hand_over(t);
    litmus_new(t, CU_STREAM_LEGACY);
}

static void legacy_then_stream(litmus_t *t) {
    litmus_old(t, CU_STREAM_LEGACY);
    litmus_hand_over(t);
    litmus_new(t, t->blocking[0]);
}

static void legacy_between(litmus_t *t) {
    litmus_old(t, t->blocking[0]);
    MUST(cuMemsetD32Async(t->other, 0, 16, NULL));
    litmus_hand_over(t);
    litmus_new(t, t->blocking[1]);
}

static void legacy_before_both(litmus_t *t) {
    MUST(cuMemsetD32Async(t->other, 0, 16, NULL));
    litmus_old(t, t->blocking[0]);
    litmus_hand_over(t);
    litmus_new(t, t->blocking[1]);
}

LITMUS_CASES({"stream, then legacy", stream_then_legacy, ORDERED},
             {"legacy, then stream", legacy_then_stream, ORDERED},
             {"legacy work in between", legacy_between, ORDERED},
             {"legacy work before both", legacy_before_both, RACY})
