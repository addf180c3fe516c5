/* The legacy default stream and non-blocking streams do not wait for each other.
 *
 * CUDA Driver API, "Stream synchronization behavior", "Default stream": a stream is non-blocking
 * if it was made with CU_STREAM_NON_BLOCKING. */
#include "litmus.h"

static void stream_then_legacy(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, CU_STREAM_LEGACY);
}

static void legacy_then_stream(litmus_t *t) {
    litmus_old(t, CU_STREAM_LEGACY);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void legacy_synchronised(litmus_t *t) {
    litmus_old(t, CU_STREAM_LEGACY);
    MUST(cuStreamSynchronize(CU_STREAM_LEGACY));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* Synchronising the legacy stream says nothing about a non-blocking one. */
static void wrong_synchronised(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamSynchronize(CU_STREAM_LEGACY));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"stream, then legacy", stream_then_legacy, RACY},
             {"legacy, then stream", legacy_then_stream, RACY},
             {"legacy, synchronised", legacy_synchronised, ORDERED},
             {"the other one synchronised", wrong_synchronised, RACY})
