/* A stream that waits for an event continues after the work before the event's record.
 *
 * CUDA Driver API, "Event Management", cuEventRecord; "Stream Management", cuStreamWaitEvent. */
#include "litmus.h"

static void waits(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

/* The record is complete when the wait is submitted: an edge all the same. */
static void waits_late(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    for (int i = 0; i < 30; i++)
        litmus_pause(t);
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void by_a_third(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[2], t->event[0], 0));
    MUST(cuEventRecord(t->event[1], t->free_stream[2]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[1], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void recorded_early(litmus_t *t) {
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void recorded_elsewhere(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[2]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void not_waited_for(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[2], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"record and wait", waits, ORDERED},
             {"wait for a completed record", waits_late, ORDERED},
             {"through a third stream", by_a_third, ORDERED},
             {"recorded before the work", recorded_early, RACY},
             {"recorded in another stream", recorded_elsewhere, RACY},
             {"waited for by another stream", not_waited_for, RACY})
