/* Faults in knowing which context a call is about. */
#include "failpoints.h"

enum { MIB = 1 << 20 };

typedef struct {
    CUfunction old_owner, new_owner;
    CUstream stream[3];
} side_t;

static side_t side_of(const failpoint_run_t *t) {
    return (side_t){t->old_owner, t->new_owner, {t->stream[0], t->stream[1], t->stream[2]}};
}

/* Makes the context of a device current, with its functions and streams. */
static void turn_to(failpoint_run_t *t, int device, const side_t *side) {
    MUST(cuCtxSetCurrent(t->ctx[device]));
    t->old_owner = side->old_owner;
    t->new_owner = side->new_owner;
    for (int i = 0; i < 3; i++)
        t->stream[i] = side->stream[i];
}

/* The program uses the default stream on one device, and then on the other. */
void failpoint_path_context_ignored(failpoint_run_t *t) {
    side_t here = side_of(t);
    CUdeviceptr near;
    failpoint_take(t, MIB);
    near = t->memory;
    failpoint_second_device(t);
    side_t there = side_of(t);
    failpoint_take(t, MIB);
    CUdeviceptr far = t->memory;
    turn_to(t, 0, &here);
    t->memory = near;
    failpoint_new(t, CU_STREAM_LEGACY);
    failpoint_new(t, CU_STREAM_LEGACY);
    turn_to(t, 1, &there);
    MUST(cuMemFree_v2(far));
    failpoint_take(t, MIB);
    failpoint_old(t, CU_STREAM_LEGACY);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* The clock moved when the second device's memory was handed out, and the next launch is on the
 * first device. The launch of the old owner has to look at the clock, too. Two streams may share one
 * fast path, so the new owner uses another stream. */
void failpoint_looked_in_another_context(failpoint_run_t *t) {
    side_t here = side_of(t);
    CUdeviceptr near, far;
    failpoint_take(t, MIB);
    near = t->memory;
    failpoint_second_device(t);
    side_t there = side_of(t);
    failpoint_take(t, MIB);
    far = t->memory;
    turn_to(t, 0, &here);
    t->memory = near;
    for (int i = 0; i < 6; i++)
        failpoint_new(t, t->stream[i % 2]);
    turn_to(t, 1, &there);
    t->memory = far;
    for (int i = 0; i < 6; i++)
        failpoint_new(t, t->stream[i % 3]);
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSynchronize());
        failpoint_hand_over(t);
        far = t->memory;
        turn_to(t, 0, &here);
        t->memory = near;
        failpoint_new(t, t->stream[i]);
        turn_to(t, 1, &there);
        t->memory = far;
        failpoint_old(t, t->stream[i]);
        failpoint_hand_over(t);
        failpoint_new(t, t->stream[2]);
    }
}

/* A copy of the first device reads memory that the second device's context frees. */
void failpoint_second_address_ignored(failpoint_run_t *t) {
    side_t here = side_of(t);
    CUdeviceptr to;
    CUevent copied;
    MUST(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    failpoint_take(t, 2 * MIB);
    to = t->memory;
    failpoint_second_device(t);
    side_t there = side_of(t);
    failpoint_take(t, 2 * MIB);
    turn_to(t, 0, &here);
    MUST(cuMemcpyDtoDAsync_v2(to, t->memory, 2 * MIB, t->stream[0]));
    MUST(cuEventRecord(copied, t->stream[0]));
    turn_to(t, 1, &there);
    MUST(cuStreamWaitEvent(t->stream[0], copied, 0)); /* so that a free of the driver waits, too */
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* A free of the driver waits for the device. Another context of the device waits for the copy, so
 * the free waits for it, too. */
void failpoint_context_ends_at_once(failpoint_run_t *t) {
    side_t here = side_of(t);
    CUcontext gone;
    CUdeviceptr to, from;
    CUevent copied;
    MUST(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    failpoint_take(t, 2 * MIB);
    to = t->memory;
    failpoint_second_device(t);
    CUstream beside = t->stream[0];
    MUST(cuCtxCreate_v2(&gone, 0, 1));
    MUST(cuMemAlloc_v2(&from, 2 * MIB));
    turn_to(t, 0, &here);
    MUST(cuMemcpyPeerAsync(to, t->ctx[0], from, gone, 2 * MIB, t->stream[0]));
    MUST(cuEventRecord(copied, t->stream[0]));
    MUST(cuStreamWaitEvent(beside, copied, 0));
    MUST(cuCtxSetCurrent(gone));
    MUST(cuMemFree_v2(from));
    MUST(cuCtxDestroy_v2(gone));
    turn_to(t, 0, &here);
    t->memory = to;
    failpoint_new(t, t->stream[0]);
}

void failpoint_current_context_kept(failpoint_run_t *t) {
    int device = 0;
    failpoint_take(t, MIB);
    failpoint_second_device(t);
    failpoint_take(t, MIB);
    MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, t->memory));
    if (device != 1)
        test_stop(TEST_WRONG, "memory of another context than the current one");
    failpoint_new(t, t->stream[1]);
}
