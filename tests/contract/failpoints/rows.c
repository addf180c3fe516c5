/* Faults in what a call that gives work to a stream has to leave behind. */
#include "failpoints.h"

enum { MIB = 1 << 20 };

void failpoint_long_way_unseen(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* The stream is known from the launch before. */
void failpoint_short_way_unseen(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    MUST(failpoint_elsewhere(t, t->stream[0]));
    MUST(cuMemFree_v2(t->memory));
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

void failpoint_body_unseen(failpoint_run_t *t) {
    CUevent begun;
    MUST(cuEventCreate(&begun, CU_EVENT_DISABLE_TIMING));
    failpoint_take(t, MIB);
    failpoint_old_event(t, t->stream[0], begun);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* Cached facts about a stream are wrong for a stream of another device with the same
 * handle. */
void failpoint_path_generation_ignored(failpoint_run_t *t) {
    CUstream gone, again;
    failpoint_take(t, MIB);
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    MUST(failpoint_elsewhere(t, gone));
    MUST(failpoint_elsewhere(t, gone));
    MUST(cuCtxSynchronize());
    MUST(cuMemFree_v2(t->memory));
    failpoint_second_device(t);
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != gone)
        test_stop(TEST_WRONG, "the handle did not come back");
    failpoint_take(t, MIB);
    failpoint_old(t, again);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* The event comes after the free, until a launch on another stream records it again. */
void failpoint_launch_event_trusted(failpoint_run_t *t) {
    CUdeviceptr freed;
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    failpoint_take(t, MIB);
    MUST(cuMemAllocAsync(&freed, MIB, t->stream[0]));
    CUdeviceptr other = t->memory;
    t->memory = freed;
    failpoint_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(freed, t->stream[0]));
    MUST(cuEventRecord(event, t->stream[0]));
    t->memory = other;
    failpoint_old_event(t, t->stream[2], event);
    MUST(cuStreamWaitEvent(t->stream[1], event, 0));
    MUST(cuMemAllocAsync(&t->memory, MIB, t->stream[1]));
    failpoint_new(t, t->stream[1]);
}
