/* Streams owe each other nothing, blocking ones neither, and completing early is no order.
 *
 * CUDA C++ Programming Guide, "Asynchronous Concurrent Execution", "Streams": different
 * streams may execute their commands out of order with respect to one another. */
#include "litmus.h"

static void two_blocking(litmus_t *t) {
    litmus_old(t, t->blocking[0]);
    litmus_hand_over(t);
    litmus_new(t, t->blocking[1]);
}

/* The first kernel is over long before the second is launched, but the host did not look. */
static void merely_later(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    for (int i = 0; i < 30; i++)
        litmus_pause(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

static void looked(litmus_t *t) {
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamSynchronize(t->free_stream[0]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

LITMUS_CASES({"two blocking streams", two_blocking, RACY}, {"late by chance", merely_later, RACY},
             {"late by synchronisation", looked, ORDERED})
