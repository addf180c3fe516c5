/* Each thread's default stream is a blocking stream of its own.
 *
 * CUDA Driver API, "Stream synchronization behavior", "Default stream": per-thread default
 * stream. */
#include "litmus.h"

#include <pthread.h>

static void own_then_legacy(litmus_t *t) {
    litmus_old(t, CU_STREAM_PER_THREAD);
    litmus_hand_over(t);
    litmus_new(t, CU_STREAM_LEGACY);
}

static void legacy_then_own(litmus_t *t) {
    litmus_old(t, CU_STREAM_LEGACY);
    litmus_hand_over(t);
    litmus_new(t, CU_STREAM_PER_THREAD);
}

static void own_and_blocking(litmus_t *t) {
    litmus_old(t, CU_STREAM_PER_THREAD);
    litmus_hand_over(t);
    litmus_new(t, t->blocking[0]);
}

static void own_twice(litmus_t *t) {
    litmus_old(t, CU_STREAM_PER_THREAD);
    litmus_hand_over(t);
    litmus_new(t, CU_STREAM_PER_THREAD);
}

static void *old_use(void *argument) {
    litmus_t *t = argument;
    MUST(cuCtxSetCurrent(t->ctx[0]));
    litmus_old(t, CU_STREAM_PER_THREAD);
    return NULL;
}

static void *synchronised_use(void *argument) {
    old_use(argument);
    MUST(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    return NULL;
}

static void other_thread(litmus_t *t, void *(*body)(void *)) {
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, body, t));
    pthread_join(thread, NULL);
    litmus_hand_over(t);
    litmus_new(t, CU_STREAM_PER_THREAD);
}

static void two_threads(litmus_t *t) {
    other_thread(t, old_use);
}

static void two_threads_synchronised(litmus_t *t) {
    other_thread(t, synchronised_use);
}

LITMUS_CASES({"own, then legacy", own_then_legacy, ORDERED},
             {"legacy, then own", legacy_then_own, ORDERED}, {"own twice", own_twice, ORDERED},
             {"own, then a blocking stream", own_and_blocking, RACY},
             {"of two threads", two_threads, RACY},
             {"of two threads, synchronised", two_threads_synchronised, ORDERED})
