/* Faults in tracking the streams, contexts and devices that may touch the memory. */
#include "failpoints.h"

enum { MIB = 1 << 20, PROCESSORS = 1, DEFAULT_STREAM = 1 };

/* A peer copy is work of the other device's context. The memory's own context has only a wait
 * for it. */
void failpoint_peer_copy_elsewhere(failpoint_run_t *t) {
    CUfunction here[2] = {t->old_owner, t->new_owner};
    CUstream stream = t->stream[1];
    CUstream waiting = t->stream[0];
    CUdeviceptr there;
    CUevent copied;
    failpoint_take(t, MIB);
    failpoint_second_device(t);
    MUST(cuMemAlloc_v2(&there, MIB));
    MUST(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemcpyPeerAsync(there, t->ctx[1], t->memory, t->ctx[0], MIB, t->stream[0]));
    MUST(cuEventRecord(copied, t->stream[0]));
    MUST(cuCtxSetCurrent(t->ctx[0]));
    MUST(cuStreamWaitEvent(waiting, copied, 0)); /* a free of the driver's own comes after it */
    t->old_owner = here[0];
    t->new_owner = here[1];
    failpoint_hand_over(t);
    failpoint_new(t, stream);
}

void failpoint_green_context_synchronised(failpoint_run_t *t) {
    static struct { _Alignas(16) unsigned char room[256]; } processors;
    CUdevResource *all = (CUdevResource *)(void *)&processors;
    CUdevResourceDesc share;
    CUgreenCtx green;
    CUcontext view;
    MUST(cuDeviceGetDevResource(0, all, PROCESSORS));
    MUST(cuDevResourceGenerateDesc(&share, all, 1));
    MUST(cuGreenCtxCreate(&green, share, 0, DEFAULT_STREAM));
    MUST(cuCtxFromGreenCtx(&view, green));
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    MUST(cuCtxSetCurrent(view));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(t->ctx[0]));
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

void failpoint_destroyed_stream_running(failpoint_run_t *t) {
    CUstream gone;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    failpoint_take(t, MIB);
    failpoint_old(t, gone);
    MUST(cuStreamDestroy_v2(gone));
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* Destroys the only stream, which protected freed memory, and makes a new one with its
 * handle. */
static CUstream again_for(CUstream gone) {
    CUstream again;
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != gone)
        test_stop(TEST_WRONG, "the handle did not come back");
    return again;
}

/* The handle first names two streams of one device, then one of the other. */
void failpoint_stream_handle_reused(failpoint_run_t *t) {
    CUstream gone;
    failpoint_take(t, MIB);
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    failpoint_old(t, gone);
    failpoint_hand_over(t);
    gone = again_for(gone);
    failpoint_new(t, gone);
    MUST(cuCtxSynchronize());
    failpoint_ordered_handle(t);

    failpoint_second_device(t);
    failpoint_take(t, MIB);
    gone = again_for(gone);
    failpoint_old(t, gone);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}
