/* Green contexts share the memory of the primary one, but have streams of their own.
 *
 * CUDA Driver API, "Context Management", cuCtxSynchronize: a synchronisation of the primary
 * context covers the green ones, one of a green context its own work; cuCtxRecordEvent;
 * "Green Contexts", cuGreenCtxRecordEvent (all activities of the green context),
 * cuGreenCtxWaitEvent (all its future work), cuGreenCtxStreamCreate (streams are non-blocking).
 */
#include "litmus.h"

typedef struct {
    CUgreenCtx green;
    CUcontext view;
    CUstream stream;
} green_t;

static green_t *made(litmus_t *t) {
    static green_t made;
    CUdevResourceDesc desc;
    unsigned long long processors[64]; /* larger than in the ABI */
    if (made.green)
        return &made;
    MUST(cuDeviceGetDevResource(t->device[0], (CUdevResource *)(void *)processors, 1));
    MUST(cuDevResourceGenerateDesc(&desc, (CUdevResource *)(void *)processors, 1));
    MUST(cuGreenCtxCreate(&made.green, desc, t->device[0], 1));
    MUST(cuCtxFromGreenCtx(&made.view, made.green));
    MUST(cuGreenCtxStreamCreate(&made.stream, made.green, CU_STREAM_NON_BLOCKING, 0));
    return &made;
}

static void synchronise(litmus_t *t, CUcontext ctx) {
    MUST(cuCtxSetCurrent(ctx));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(t->ctx[0]));
}

static void one_stream(litmus_t *t) {
    const green_t *g = made(t);
    litmus_old(t, g->stream);
    litmus_hand_over(t);
    litmus_new(t, g->stream);
}

static void beside(litmus_t *t) {
    litmus_old(t, made(t)->stream);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void then_legacy(litmus_t *t) {
    litmus_old(t, made(t)->stream);
    litmus_hand_over(t);
    litmus_new(t, CU_STREAM_LEGACY);
}

static void primary_synchronised(litmus_t *t) {
    litmus_old(t, made(t)->stream);
    synchronise(t, t->ctx[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void green_synchronised(litmus_t *t) {
    const green_t *g = made(t);
    litmus_old(t, g->stream);
    synchronise(t, g->view);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void green_synchronised_primary_not(litmus_t *t) {
    const green_t *g = made(t);
    litmus_old(t, t->free_stream[0]);
    synchronise(t, g->view);
    litmus_hand_over(t);
    litmus_new(t, g->stream);
}

static void recorded(litmus_t *t, CUstream old) {
    const green_t *g = made(t);
    litmus_old(t, old ? old : g->stream);
    MUST(cuGreenCtxRecordEvent(g->green, t->event[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void green_recorded(litmus_t *t) {
    recorded(t, NULL);
}

static void green_recorded_primary_not(litmus_t *t) {
    recorded(t, t->free_stream[0]);
}

static void primary_recorded(litmus_t *t) {
    litmus_old(t, made(t)->stream);
    MUST(cuCtxRecordEvent(t->ctx[0], t->event[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void recorded_after_the_stream(litmus_t *t, int pauses) {
    const green_t *g = made(t);
    CUstream gone;
    MUST(cuGreenCtxStreamCreate(&gone, g->green, CU_STREAM_NON_BLOCKING, 0));
    litmus_old(t, gone);
    MUST(cuStreamDestroy_v2(gone));
    for (int i = 0; i < pauses; i++)
        litmus_pause(t);
    MUST(cuGreenCtxRecordEvent(g->green, t->event[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void stream_destroyed(litmus_t *t) {
    recorded_after_the_stream(t, 0);
}

/* The stream's work is over, although the host has not looked. */
static void stream_destroyed_and_done(litmus_t *t) {
    recorded_after_the_stream(t, 20);
}

static void wait(litmus_t *t, CUstream then) {
    const green_t *g = made(t);
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuGreenCtxWaitEvent(g->green, t->event[0]));
    litmus_hand_over(t);
    litmus_new(t, then ? then : g->stream);
}

static void green_waits(litmus_t *t) {
    wait(t, NULL);
}

static void green_waits_primary_not(litmus_t *t) {
    wait(t, t->free_stream[1]);
}

static void new_stream_waits(litmus_t *t) {
    const green_t *g = made(t);
    CUstream later;
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuGreenCtxWaitEvent(g->green, t->event[0]));
    MUST(cuGreenCtxStreamCreate(&later, g->green, CU_STREAM_NON_BLOCKING, 0));
    litmus_hand_over(t);
    litmus_new(t, later);
    MUST(cuStreamDestroy_v2(later));
}

LITMUS_CASES({"one green stream", one_stream, ORDERED}, {"beside a stream", beside, RACY},
             {"then the legacy stream", then_legacy, RACY},
             {"primary synchronised", primary_synchronised, ORDERED},
             {"green synchronised", green_synchronised, ORDERED},
             {"green synchronised, primary not", green_synchronised_primary_not, RACY},
             {"green recorded", green_recorded, ORDERED},
             {"green recorded, primary not", green_recorded_primary_not, RACY},
             {"primary recorded", primary_recorded, ORDERED},
             {"recorded after its stream was destroyed", stream_destroyed, ORDERED},
             {"recorded after that and its work", stream_destroyed_and_done, ORDERED},
             {"green waits", green_waits, ORDERED},
             {"green waits, primary not", green_waits_primary_not, RACY},
             {"a new stream waits", new_stream_waits, ORDERED})
