/* Faults in knowing who may touch the memory: streams, contexts, devices. */
#include "plants.h"

enum { MIB = 1 << 20, PROCESSORS = 1, DEFAULT_STREAM = 1 };

/* The copy is work of the other device's context; the memory's own has only a wait for it. */
void plants_peer_copy_elsewhere(plants_t *t) {
    CUfunction here[2] = {t->old_owner, t->new_owner};
    CUstream stream = t->stream[1];
    CUstream waiting = t->stream[0];
    CUdeviceptr there;
    CUevent copied;
    plants_take(t, MIB);
    plants_second_device(t);
    MUST(cuMemAlloc_v2(&there, MIB));
    MUST(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemcpyPeerAsync(there, t->ctx[1], t->memory, t->ctx[0], MIB, t->stream[0]));
    MUST(cuEventRecord(copied, t->stream[0]));
    MUST(cuCtxSetCurrent(t->ctx[0]));
    MUST(cuStreamWaitEvent(waiting, copied, 0)); /* a free of the driver's own comes after it */
    t->old_owner = here[0];
    t->new_owner = here[1];
    plants_hand_over(t);
    plants_new(t, stream);
}

void plants_green_context_synchronised(plants_t *t) {
    static struct { _Alignas(16) unsigned char room[256]; } processors;
    CUdevResource *all = (CUdevResource *)(void *)&processors;
    CUdevResourceDesc share;
    CUgreenCtx green;
    CUcontext view;
    MUST(cuDeviceGetDevResource(0, all, PROCESSORS));
    MUST(cuDevResourceGenerateDesc(&share, all, 1));
    MUST(cuGreenCtxCreate(&green, share, 0, DEFAULT_STREAM));
    MUST(cuCtxFromGreenCtx(&view, green));
    plants_take(t, MIB);
    plants_old(t, t->stream[0]);
    MUST(cuCtxSetCurrent(view));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(t->ctx[0]));
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

void plants_destroyed_stream_running(plants_t *t) {
    CUstream gone;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    plants_take(t, MIB);
    plants_old(t, gone);
    MUST(cuStreamDestroy_v2(gone));
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

/* A handle that came back; `gone` was the only stream, and its order protects what was freed. */
static CUstream again_for(CUstream gone) {
    CUstream again;
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    if (again != gone)
        test_stop(TEST_WRONG, "the handle did not come back");
    return again;
}

/* The handle first names two streams of one device, then one of the other. */
void plants_stream_handle_reused(plants_t *t) {
    CUstream gone;
    plants_take(t, MIB);
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    plants_old(t, gone);
    plants_hand_over(t);
    gone = again_for(gone);
    plants_new(t, gone);
    MUST(cuCtxSynchronize());
    plants_ordered_handle(t);

    plants_second_device(t);
    plants_take(t, MIB);
    gone = again_for(gone);
    plants_old(t, gone);
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}
