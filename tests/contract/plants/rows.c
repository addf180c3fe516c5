/* Faults in what a call that gives work to a stream has to leave behind. */
#include "plants.h"

enum { MIB = 1 << 20 };

void plants_long_way_unseen(plants_t *t) {
    plants_take(t, MIB);
    plants_old(t, t->stream[0]);
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

/* The stream is known from the launch before. */
void plants_short_way_unseen(plants_t *t) {
    plants_take(t, MIB);
    MUST(plants_elsewhere(t, t->stream[0]));
    MUST(cuMemFree_v2(t->memory));
    plants_take(t, MIB);
    plants_old(t, t->stream[0]);
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

void plants_body_unseen(plants_t *t) {
    CUevent begun;
    MUST(cuEventCreate(&begun, CU_EVENT_DISABLE_TIMING));
    plants_take(t, MIB);
    plants_old_event(t, t->stream[0], begun);
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

/* What was found out of a stream is not true of one of another device that got its handle. */
void plants_lane_generation_ignored(plants_t *t) {
    CUstream gone, again;
    plants_take(t, MIB);
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    MUST(plants_elsewhere(t, gone));
    MUST(plants_elsewhere(t, gone));
    MUST(cuCtxSynchronize());
    MUST(cuMemFree_v2(t->memory));
    plants_second_device(t);
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != gone)
        test_stop(TEST_WRONG, "the handle did not come back");
    plants_take(t, MIB);
    plants_old(t, again);
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

/* The event lies behind the free, until a launch on another stream records it. */
void plants_launch_event_trusted(plants_t *t) {
    CUdeviceptr freed;
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    plants_take(t, MIB);
    MUST(cuMemAllocAsync(&freed, MIB, t->stream[0]));
    CUdeviceptr other = t->memory;
    t->memory = freed;
    plants_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(freed, t->stream[0]));
    MUST(cuEventRecord(event, t->stream[0]));
    t->memory = other;
    plants_old_event(t, t->stream[2], event);
    MUST(cuStreamWaitEvent(t->stream[1], event, 0));
    MUST(cuMemAllocAsync(&t->memory, MIB, t->stream[1]));
    plants_new(t, t->stream[1]);
}
