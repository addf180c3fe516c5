/* The host waits, then submits: that orders, for what it waited for.
 *
 * CUDA Driver API, "Stream Management", cuStreamSynchronize; "Event Management",
 * cuEventSynchronize; "Context Management", cuCtxSynchronize. */
#include "litmus.h"

static void stream(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamSynchronize(t->free_stream[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void event(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuEventSynchronize(t->event[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void context(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuCtxSynchronize());
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void other_stream(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    litmus_launch(t, 0, t->free_stream[2], t->other, 0, true, false);
    MUST(cuStreamSynchronize(t->free_stream[2]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void early_event(litmus_t *t) {
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventSynchronize(t->event[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void before_the_work(litmus_t *t) {
    MUST(cuCtxSynchronize());
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"stream", stream, ORDERED}, {"event", event, ORDERED},
             {"context", context, ORDERED}, {"another stream", other_stream, RACY},
             {"an event recorded before the work", early_event, RACY},
             {"context, before the work", before_the_work, RACY})
