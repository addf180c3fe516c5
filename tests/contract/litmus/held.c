/* A stream that waits for a value does not hold the work of other streams. The host may release
 * it after other streams have finished.
 *
 * CUDA Driver API, "Stream Memory Operations", cuStreamWaitValue32: work that is submitted to the
 * stream after the wait does not begin before the condition holds. Other streams are not
 * mentioned. */
#include "litmus.h"

static void not_released_yet(litmus_t *t) {
    unsigned zero = 0;
    MUST(cuMemcpyHtoD_v2(t->other, &zero, sizeof zero));
    MUST(cuCtxSynchronize());
}

static void hold(litmus_t *t, CUstream stream) {
    MUST(cuStreamWaitValue32_v2(stream, t->other, 1, 0 /* compares with >= */));
}

static void release(litmus_t *t, CUstream stream) {
    MUST(cuStreamWriteValue32_v2(stream, t->other, 1, 0));
}

/* Memory is freed before the stream is held. */
static void after(litmus_t *t) {
    not_released_yet(t);
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    hold(t, t->free_stream[0]);
    litmus_new(t, t->free_stream[0]);
    release(t, t->free_stream[1]);
    MUST(cuStreamSynchronize(t->free_stream[0]));
}

/* Memory is handed over while the stream is held. The case has no real free, because a free may
 * wait for all work, as the driver's own does. */
static void during(litmus_t *t) {
    not_released_yet(t);
    litmus_old(t, t->free_stream[0]);
    hold(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
    release(t, t->free_stream[1]);
    MUST(cuStreamSynchronize(t->free_stream[0]));
}

LITMUS_CASES({"freed before", after, ORDERED}, {"freed while held", during, ORDERED | DIRECT})
