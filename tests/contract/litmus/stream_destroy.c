/* A stream may be destroyed while its work goes on: work that the host has not waited for.
 *
 * CUDA Driver API, "Stream Management", cuStreamDestroy: it returns at once, the stream's
 * resources go when its work is complete. */
#include "litmus.h"

static CUstream use_and_destroy(litmus_t *t) {
    CUstream gone;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    litmus_old(t, gone);
    MUST(cuEventRecord(t->event[0], gone));
    MUST(cuStreamDestroy_v2(gone));
    return gone;
}

static void destroyed(litmus_t *t) {
    use_and_destroy(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void context_synchronised(litmus_t *t) {
    use_and_destroy(t);
    MUST(cuCtxSynchronize());
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void event_recorded(litmus_t *t) {
    use_and_destroy(t);
    MUST(cuStreamWaitEvent(t->free_stream[0], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* A new stream, though it may get the old one's handle, is not the old stream. */
static void handle_again(litmus_t *t) {
    CUstream again;
    use_and_destroy(t);
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    litmus_hand_over(t);
    litmus_new(t, again);
    MUST(cuStreamDestroy_v2(again));
}

static void synchronised_first(litmus_t *t) {
    CUstream gone;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    litmus_old(t, gone);
    MUST(cuStreamSynchronize(gone));
    MUST(cuStreamDestroy_v2(gone));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

LITMUS_CASES({"destroyed", destroyed, RACY},
             {"context synchronised", context_synchronised, ORDERED},
             {"its event waited for", event_recorded, ORDERED},
             {"handle used again", handle_again, RACY},
             {"synchronised before", synchronised_first, ORDERED})
