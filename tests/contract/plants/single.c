/* Faults in the rule that one stream's order protects what is freed while it does all the work.
 */
#include <pthread.h>
#include <semaphore.h>

#include "plants.h"

enum { MIB = 1 << 20, SLOT = 4096 };

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
    CUdeviceptr early;
    plants_long(t, t->stream[0]);
    MUST(cuMemAlloc_v2(&early, t->bytes)); /* or the second stream would not wait at all */
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

/* The rule ends with the first work on a second stream, which is not on that memory; what the
 * first one is at work on is asked for again. */
static void free_at_the_end(plants_t *t) {
    plants_old(t, t->stream[0]);
    plants_give(t);
    MUST(plants_elsewhere(t, t->stream[1]));
    plants_seek(t, PLANTS_SOME);
    plants_new(t, t->stream[1]);
}

void plants_caches_not_in_quarantine(plants_t *t) {
    plants_take(t, MIB);
    free_at_the_end(t);
}

void plants_pools_not_in_quarantine(plants_t *t) {
    plants_caches_not_in_quarantine(t);
}

/* In a slab that something else is in. */
static void take_slot(plants_t *t) {
    CUdeviceptr stays;
    plants_take(t, SLOT);
    MUST(cuMemAlloc_v2(&stays, SLOT));
}

void plants_slabs_not_in_quarantine(plants_t *t) {
    take_slot(t);
    free_at_the_end(t);
}

/* It is handed out again before that. */
void plants_early_block_overlooked(plants_t *t) {
    plants_second_stream_let_in(t);
}

void plants_early_slot_overlooked(plants_t *t) {
    take_slot(t);
    plants_old(t, t->stream[0]);
    plants_hand_over(t);
    plants_new(t, t->stream[1]);
}

/* And freed in the order of a stream that did no work yet. */
static void give_in_order(plants_t *t) {
    plants_take(t, MIB);
    plants_old(t, t->stream[0]);
    plants_hand_over(t);
    MUST(cuMemFreeAsync(t->memory, t->stream[1]));
}

void plants_handed_on_overlooked(plants_t *t) {
    give_in_order(t);
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[1]));
    plants_new(t, t->stream[1]);
}

void plants_freed_in_order_overlooked(plants_t *t) {
    give_in_order(t);
    MUST(plants_elsewhere(t, t->stream[2]));
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[1]));
    plants_new(t, t->stream[1]);
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
