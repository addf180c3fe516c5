/* Faults in recording a fence, and in believing it. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "failpoints.h"

enum { MIB = 1 << 20 };

void failpoint_fence_after_publishing(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

void failpoint_legacy_stream_only(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

void failpoint_event_on_wrong_stream(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
    failpoint_ordered_wait(t);
}

/* Idle memory goes back to the device during a capture. This needs a fence for the work outside the
 * capture. */
void failpoint_record_during_capture(failpoint_run_t *t) {
    CUgraph graph = NULL;
    CUgraphExec exec;
    int (*empty_cache)(void);
    failpoint_take(t, 64 * MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    MUST(cuStreamBeginCapture_v2(t->stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    bool good = !failpoint_elsewhere(t, t->stream[1]);
    MUST(failpoint_elsewhere(t, t->stream[0]));
    if (test_find("accel_empty_cache", &empty_cache))
        MUST(empty_cache());
    if (cuStreamEndCapture(t->stream[1], &graph) || !good)
        test_stop(TEST_WRONG, "capture invalidated");
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, t->stream[1]));
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[2]);
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

/* First the driver refuses an event for a fence. Then it gives one, and the limit leaves no memory
 * except blocks that wait for it. */
void failpoint_fence_dropped_at_oom(failpoint_run_t *t) {
    CUdeviceptr held;
    failpoint_take(t, 3 * MIB);
    for (int i = 0; i < 8; i++) /* next to `memory`, too: otherwise its segment would go back, which
                                   waits */
        cuMemAlloc_v2(&held, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    simcuda_fail("cuEventCreate@1");
    failpoint_seek(t, FAILPOINT_SOME);
    simcuda_clear_faults();
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* The library records the event of a pending fence again, for a stream without work. */
void failpoint_event_reused_early(failpoint_run_t *t) {
    CUstream idle;
    failpoint_take(t, MIB);
    MUST(cuStreamCreate(&idle, CU_STREAM_NON_BLOCKING));
    MUST(failpoint_elsewhere(t, idle));
    MUST(cuStreamSynchronize(idle));
    failpoint_old(t, t->stream[0]);
    CUdeviceptr before = t->memory;
    failpoint_hand_over(t); /* records the fence */
    MUST(cuStreamDestroy_v2(idle));
    if (t->memory != before) {
        MUST(cuMemFree_v2(t->memory));
        t->memory = before;
        failpoint_seek(t, FAILPOINT_MANY); /* more than lie free: asks for the fence */
    }
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
    failpoint_ordered_event(t);
}

/* ---- a synchronisation under way ---- */

typedef struct {
    failpoint_run_t *t;
    unsigned long long frees; /* calls of the driver's free before this one */
    _Atomic bool inside, freed;
} meeting_t;

/* A host function that holds up the other thread's synchronisation until this thread's free has
 * returned. A free of the driver waits for this function, too, so a free that has begun is
 * enough. */
static void hold_up(void *argument) {
    meeting_t *meeting = argument;
    atomic_store(&meeting->inside, true);
    while (!atomic_load(&meeting->freed) && simcuda_calls("cuMemFree_v2") == meeting->frees)
        sched_yield();
}

static void *synchronise(void *argument) {
    const meeting_t *meeting = argument;
    MUST(cuCtxSetCurrent(meeting->t->ctx[0]));
    MUST(cuCtxSynchronize());
    return NULL;
}

void failpoint_free_during_synchronisation(failpoint_run_t *t) {
    meeting_t meeting = {.t = t, .frees = simcuda_calls("cuMemFree_v2")};
    pthread_t thread;
    failpoint_take(t, MIB);
    CUdeviceptr memory = t->memory;
    t->memory = t->beside;
    failpoint_old(t, t->stream[2]); /* or the host function would run before the host waits */
    t->memory = memory;
    MUST(cuLaunchHostFunc(t->stream[2], hold_up, &meeting));
    if (pthread_create(&thread, NULL, synchronise, &meeting))
        test_stop(TEST_WRONG, "no thread");
    while (!atomic_load(&meeting.inside))
        sched_yield();
    failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    atomic_store(&meeting.freed, true);
    pthread_join(thread, NULL);
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[1]);
}

/* The size comes again, so the thread keeps freed blocks of it. */
void failpoint_waiting_served(failpoint_run_t *t) {
    for (int i = 0; i < 3; i++) {
        failpoint_take(t, MIB);
        failpoint_give(t);
    }
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* The size comes again, so the thread keeps freed blocks of it. A request that finds no free memory
 * then takes those. */
void failpoint_waiting_flushed(failpoint_run_t *t) {
    for (int i = 0; i < 3; i++) {
        failpoint_take(t, MIB);
        failpoint_give(t);
    }
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    t->bytes = MIB - 512;
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[1]);
}

/* Memory of a size that the thread does not keep: the next request finds it under the lock. */
void failpoint_loose_not_awaited(failpoint_run_t *t) {
    failpoint_take(t, 3 * MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

static void *give_in_thread(void *argument) {
    failpoint_run_t *t = argument;
    MUST(cuCtxSetCurrent(t->ctx[0]));
    failpoint_give(t);
    return NULL;
}

/* Another thread frees a block of a size that this thread keeps. Such a large block is posted at
 * once. This thread's next request takes it from the inbox. */
void failpoint_posted_not_awaited(failpoint_run_t *t) {
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        failpoint_take(t, 5 * MIB);
        failpoint_give(t);
    }
    failpoint_take(t, 5 * MIB);
    failpoint_old(t, t->stream[0]);
    if (pthread_create(&thread, NULL, give_in_thread, t))
        test_stop(TEST_WRONG, "no thread");
    pthread_join(thread, NULL);
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[1]);
}
