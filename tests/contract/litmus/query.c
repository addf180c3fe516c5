/* A query that answers success is as good as waiting; one that does not orders nothing.
 *
 * CUDA Driver API, "Stream Management", cuStreamQuery; "Event Management", cuEventQuery. */
#include "litmus.h"

static void stream(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    while (cuStreamQuery(t->free_stream[0]) == CUDA_ERROR_NOT_READY)
        litmus_pause(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void event(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    while (cuEventQuery(t->event[0]) == CUDA_ERROR_NOT_READY)
        litmus_pause(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void not_ready(litmus_t *t) {
    do /* again, if the host was so slow that the work was over */
        litmus_old(t, t->free_stream[0]);
    while (cuStreamQuery(t->free_stream[0]) == CUDA_SUCCESS && !t->allocator);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void other_stream(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    for (int i = 0; i < 30; i++)
        litmus_pause(t);
    MUST(cuStreamQuery(t->free_stream[2]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"stream", stream, ORDERED}, {"event", event, ORDERED},
             {"not ready", not_ready, RACY}, {"another stream", other_stream, RACY})
