/* A wait takes the event's newest record at the time of the call; a new record replaces the old.
 *
 * CUDA Driver API, "Event Management", cuEventRecord: cuEventRecord can be called again and
 * overwrites the captured state; "Stream Management", cuStreamWaitEvent; "Event Management",
 * cuEventDestroy: an event may be destroyed before its work is complete. */
#include "litmus.h"

static void later_record_does_not_count(litmus_t *t) {
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void newest_record_counts(litmus_t *t) {
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void replaced_elsewhere(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuEventRecord(t->event[0], t->free_stream[2]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void replaced_after_the_wait(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    MUST(cuEventRecord(t->event[0], t->free_stream[2]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void destroyed_after_the_wait(litmus_t *t) {
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(event, t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], event, 0));
    MUST(cuEventDestroy_v2(event));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void never_recorded(litmus_t *t) {
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamWaitEvent(t->free_stream[1], event, 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    MUST(cuEventDestroy_v2(event));
}

LITMUS_CASES({"a record after the wait", later_record_does_not_count, RACY},
             {"the newest record", newest_record_counts, ORDERED},
             {"replaced in another stream", replaced_elsewhere, RACY},
             {"replaced after the wait", replaced_after_the_wait, ORDERED},
             {"destroyed after the wait", destroyed_after_the_wait, ORDERED},
             {"never recorded", never_recorded, RACY})
