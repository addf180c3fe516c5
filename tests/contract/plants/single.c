/* Faults in the rule that one stream's order protects what is freed while it does all the work.
 */
#include <pthread.h>
#include <semaphore.h>

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
        test_stop(TEST_WRONG, "no thread");
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
        test_stop(TEST_WRONG, "a second stream waits for work behind the free");
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

static sem_t ready, wanted, given;

static void *give_when_wanted(void *argument) {
    plants_t *t = argument;
    MUST(cuCtxSetCurrent(t->ctx[0]));
    sem_post(&ready);
    sem_wait(&wanted);
    plants_give(t);
    sem_post(&given);
    return NULL;
}

static void another_thread_gives(plants_t *t) {
    (void)t;
    sem_post(&wanted);
    sem_wait(&given);
}

/* The free comes between a launch's looks and its call. */
void plants_lane_clock_late(plants_t *t) {
    pthread_t thread;
    plants_take(t, MIB);
    for (int i = 0; i < 3; i++)
        plants_old(t, t->stream[0]);
    sem_init(&ready, 0, 0);
    sem_init(&wanted, 0, 0);
    sem_init(&given, 0, 0);
    if (pthread_create(&thread, NULL, give_when_wanted, t))
        test_stop(TEST_WRONG, "no thread");
    sem_wait(&ready);
    CUdeviceptr other;
    MUST(cuMemAlloc_v2(&other, t->bytes)); /* ends the epoch: the launch looks */
    plants_at_window("lane_passes", another_thread_gives, t);
    MUST(plants_elsewhere(t, t->stream[0]));
    sem_post(&wanted); /* where there is no window */
    pthread_join(thread, NULL);
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
