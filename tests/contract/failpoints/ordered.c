/* Faults with memory that a program allocates and frees in the order of a stream. */
#include "failpoints.h"

enum { MIB = 1 << 20 };

static void take_on(failpoint_run_t *t, CUstream stream) {
    MUST(cuMemAllocAsync(&t->memory, t->bytes, stream));
}

/* The event recorded behind the free was destroyed. A new event with its handle was never
 * recorded, so it orders nothing. */
void failpoint_ordered_event(failpoint_run_t *t) {
    CUevent recorded, never;
    t->bytes = MIB;
    take_on(t, t->stream[0]);
    failpoint_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(t->memory, t->stream[0]));
    MUST(cuEventCreate(&recorded, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(recorded, t->stream[0]));
    MUST(cuEventDestroy_v2(recorded));
    MUST(cuEventCreate(&never, CU_EVENT_DISABLE_TIMING));
    if (never != recorded)
        test_stop(TEST_WRONG, "the event's handle did not come back");
    MUST(cuStreamWaitEvent(t->stream[1], never, 0));
    take_on(t, t->stream[1]);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
}

/* Memory is freed in the order of a destroyed stream, and requested on a new one with its
 * handle. */
void failpoint_ordered_handle(failpoint_run_t *t) {
    CUstream gone, again;
    t->bytes = MIB;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    take_on(t, gone);
    failpoint_old(t, gone);
    MUST(cuMemFreeAsync(t->memory, gone));
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != gone)
        test_stop(TEST_WRONG, "the handle did not come back");
    take_on(t, again);
    failpoint_new(t, again);
    MUST(cuCtxSynchronize());
}

/* No other memory is left, so the stream that gets it has to wait for the stream that freed
 * it. */
void failpoint_ordered_wait(failpoint_run_t *t) {
    t->bytes = 3 * MIB;
    take_on(t, t->stream[0]);
    failpoint_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(t->memory, t->stream[0]));
    take_on(t, t->stream[1]);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
}

/* Memory is handed on in the order of a stream. It is then freed on another stream, which does
 * not follow the former owner's work. */
void failpoint_former_owner_forgotten(failpoint_run_t *t) {
    t->bytes = MIB;
    take_on(t, t->stream[0]);
    failpoint_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(t->memory, t->stream[0]));
    take_on(t, t->stream[0]);
    MUST(cuMemFreeAsync(t->memory, t->stream[1]));
    take_on(t, t->stream[1]);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
}

/* --- what the thread keeps for a stream --- */

static void give_on(failpoint_run_t *t, CUstream stream) {
    MUST(cuMemFreeAsync(t->memory, stream));
}

/* Requests and frees the size several times on the stream, so that the thread keeps the last
 * block. */
static void habit(failpoint_run_t *t, CUstream stream) {
    t->bytes = MIB;
    for (int i = 0; i < 4; i++) {
        take_on(t, stream);
        give_on(t, stream);
    }
}

void failpoint_lane_outlives_stream(failpoint_run_t *t) {
    CUstream gone, again;
    CUdeviceptr little;
    MUST(cuMemAlloc_v2(&little, 512)); /* the segment exists, so the next request does not grow */
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    habit(t, gone);
    take_on(t, gone);
    failpoint_old(t, gone);
    give_on(t, gone);
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != gone)
        test_stop(TEST_WRONG, "the handle did not come back");
    MUST(cuMemAllocAsync(&little, 512, again));
    MUST(cuMemFreeAsync(little, again));
    take_on(t, again);
    failpoint_new(t, again);
    MUST(cuCtxSynchronize());
}

/* A thread keeps memory that was handed on in the order of a stream. That stream is destroyed,
 * and a new one gets its handle. */
void failpoint_lane_former_stream(failpoint_run_t *t) {
    CUstream gone, again;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    habit(t, gone);
    take_on(t, gone);
    failpoint_old(t, gone);
    give_on(t, gone);
    take_on(t, gone);
    CUdeviceptr held = t->memory;
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != gone)
        test_stop(TEST_WRONG, "the handle did not come back");
    habit(t, again);
    t->memory = held;
    give_on(t, again);
    take_on(t, again);
    failpoint_new(t, again);
    MUST(cuCtxSynchronize());
}

/* Memory that relied on the order of the only stream is freed on a stream without work. */
void failpoint_lane_overlooked(failpoint_run_t *t) {
    MUST(cuMemAlloc_v2(&t->beside, MIB));
    habit(t, t->stream[1]);
    take_on(t, t->stream[1]);
    MUST(cuCtxSynchronize());
    failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    take_on(t, t->stream[1]);
    give_on(t, t->stream[1]);
    MUST(failpoint_elsewhere(t, t->stream[2]));
    take_on(t, t->stream[1]);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
}

/* The legacy stream's work comes before the free. A synchronisation of the blocking stream, which
 * has no work, does not cover it. */
void failpoint_lane_hidden_ignored(failpoint_run_t *t) {
    CUstream blocking;
    MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    habit(t, blocking);
    take_on(t, blocking);
    failpoint_old(t, CU_STREAM_LEGACY);
    give_on(t, blocking);
    take_on(t, blocking);
    MUST(cuStreamSynchronize(blocking));
    failpoint_new(t, t->stream[0]);
    MUST(cuCtxSynchronize());
}

/* Memory is handed on in the order of a stream, and freed by a call that names no stream. */
void failpoint_lane_handed_out_new(failpoint_run_t *t) {
    habit(t, t->stream[0]);
    take_on(t, t->stream[0]);
    failpoint_old(t, t->stream[0]);
    give_on(t, t->stream[0]);
    take_on(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
}

void failpoint_lane_takes_any(failpoint_run_t *t) {
    habit(t, t->stream[1]);
    habit(t, t->stream[0]);
    take_on(t, t->stream[0]);
    failpoint_old(t, t->stream[0]);
    give_on(t, t->stream[0]);
    take_on(t, t->stream[0]);
    give_on(t, t->stream[1]);
    take_on(t, t->stream[1]);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
}

void failpoint_stream_gone_with_tickets(failpoint_run_t *t) {
    failpoint_ordered_handle(t);
}
