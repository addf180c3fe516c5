/* An event of a context stands for all its streams; a context that waits, for all later work.
 *
 * CUDA Driver API, "Context Management", cuCtxRecordEvent and cuCtxWaitEvent. */
#include "litmus.h"

static void record(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuCtxRecordEvent(t->ctx[0], t->event[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void record_early(litmus_t *t) {
    MUST(cuCtxRecordEvent(t->ctx[0], t->event[0]));
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void wait(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuCtxWaitEvent(t->ctx[0], t->event[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

/* Work of a stream that is destroyed is still work of the context. */
static void record_destroyed(litmus_t *t) {
    CUstream gone;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    litmus_old(t, gone);
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuCtxRecordEvent(t->ctx[0], t->event[0]));
    MUST(cuEventSynchronize(t->event[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"record", record, ORDERED}, {"recorded before the work", record_early, RACY},
             {"wait", wait, ORDERED}, {"with a destroyed stream", record_destroyed, ORDERED})
