/* A host function runs after the work before it, and the work behind it after the function.
 *
 * CUDA C++ Programming Guide, "Host Functions (Callbacks)"; CUDA Driver API, "Execution
 * Control", cuLaunchHostFunc. */
#include "litmus.h"

#include <stdatomic.h>

static atomic_int reached;

static void reach(void *argument) {
    (void)argument;
    atomic_store(&reached, 1);
}

static void signalled(litmus_t *t) {
    atomic_store(&reached, 0);
    litmus_old(t, t->free_stream[0]);
    MUST(cuLaunchHostFunc(t->free_stream[0], reach, NULL));
    while (!atomic_load(&reached))
        litmus_pause(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void not_awaited(litmus_t *t) {
    do {
        litmus_old(t, t->free_stream[0]);
        MUST(cuEventRecord(t->event[0], t->free_stream[0]));
        MUST(cuLaunchHostFunc(t->free_stream[0], reach, NULL));
        litmus_hand_over(t);
        litmus_new(t, t->free_stream[1]);
    } while (litmus_was_late(t, t->event[0]));
}

static void in_the_stream(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuLaunchHostFunc(t->free_stream[0], reach, NULL));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

/* The function runs, but before the work. */
static void before_the_work(litmus_t *t) {
    atomic_store(&reached, 0);
    MUST(cuLaunchHostFunc(t->free_stream[0], reach, NULL));
    litmus_old(t, t->free_stream[0]);
    while (!atomic_load(&reached))
        litmus_pause(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"awaited", signalled, ORDERED}, {"not awaited", not_awaited, RACY},
             {"between work of the stream", in_the_stream, ORDERED},
             {"before the work", before_the_work, RACY})
