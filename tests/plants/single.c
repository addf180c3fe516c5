/* Faults in the rule that one stream's order protects what is freed while it does all the work.
 */
#include <pthread.h>

#include "plants.h"

enum { MIB = 1 << 20 };

static void *old_use(void *argument) {
    plants_t *t = argument;
    MUST(cuCtxSetCurrent(t->ctx[0]));
    plants_old(t, CU_STREAM_PER_THREAD);
    return NULL;
}

/* The default streams of two threads are two streams. */
void plants_per_thread_for_one(plants_t *t) {
    pthread_t thread;
    plants_take(t, MIB);
    if (pthread_create(&thread, NULL, old_use, t))
        plants_failed("no thread");
    pthread_join(thread, NULL);
    plants_hand_over(t);
    plants_new(t, CU_STREAM_PER_THREAD);
}

void plants_second_stream_let_in(plants_t *t) {
    plants_take(t, MIB);
    plants_old(t, t->stream[0]);
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

/* Work behind the free, which may wait for that of the second stream, is not waited for by it. */
static void overtake(plants_t *t) {
    plants_long(t, t->stream[0]);
    plants_new(t, t->stream[1]);
    MUST(cuStreamSynchronize(t->stream[1]));
    if (cuStreamQuery(t->stream[0]) == CUDA_SUCCESS)
        plants_failed("a second stream waits for work behind the free");
}

void plants_turn_after_work(plants_t *t) {
    plants_take(t, MIB);
    plants_old(t, t->stream[0]);
    plants_hand_over(t);
    overtake(t);
}

/* Nothing is asked for after the free. */
void plants_turn_not_announced(plants_t *t) {
    plants_take(t, MIB);
    for (int i = 0; i < 3; i++) /* so that the clock is all that the next launch looks at */
        plants_old(t, t->stream[0]);
    plants_give(t);
    t->memory = t->beside;
    overtake(t);
}

/* The launch may begin before what is ahead of it in its stream is done.  In the order of the
 * stream: what a free leans on ends before the event behind that free. */
void plants_programmatic_for_ordered(plants_t *t) {
    t->bytes = MIB;
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[0]));
    plants_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(t->memory, t->stream[0]));
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[0]));
    plants_new_programmatic(t, t->stream[0]);
}
