/* Faults in the rule that a single working stream protects freed memory by its order. */
#include <pthread.h>
#include <semaphore.h>

#include "failpoints.h"

enum { MIB = 1 << 20, SLOT = 4096 };

static void *old_use(void *argument) {
    failpoint_run_t *t = argument;
    MUST(cuCtxSetCurrent(t->ctx[0]));
    failpoint_old(t, CU_STREAM_PER_THREAD);
    return NULL;
}

/* The default streams of two threads are two streams. */
void failpoint_per_thread_for_one(failpoint_run_t *t) {
    pthread_t thread;
    failpoint_take(t, MIB);
    if (pthread_create(&thread, NULL, old_use, t))
        test_stop(TEST_WRONG, "no thread");
    pthread_join(thread, NULL);
    failpoint_hand_over(t);
    failpoint_new(t, CU_STREAM_PER_THREAD);
}

void failpoint_second_stream_let_in(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* Checks that a second stream does not wait for work that the first stream got after the free. */
static void overtake(failpoint_run_t *t) {
    CUdeviceptr early;
    failpoint_long(t, t->stream[0]);
    MUST(cuMemAlloc_v2(&early, t->bytes)); /* or the second stream would not wait at all */
    failpoint_new(t, t->stream[1]);
    MUST(cuStreamSynchronize(t->stream[1]));
    if (cuStreamQuery(t->stream[0]) == CUDA_SUCCESS)
        test_stop(TEST_WRONG, "a second stream waits for work behind the free");
}

void failpoint_join_after_work(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    overtake(t);
}

/* The program makes no request after the free. */
void failpoint_join_not_announced(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    for (int i = 0; i < 3; i++) /* so that the clock is all that the next launch looks at */
        failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    t->memory = t->beside;
    overtake(t);
}

static sem_t ready, wanted, given;

static void *give_when_wanted(void *argument) {
    failpoint_run_t *t = argument;
    MUST(cuCtxSetCurrent(t->ctx[0]));
    sem_post(&ready);
    sem_wait(&wanted);
    failpoint_give(t);
    sem_post(&given);
    return NULL;
}

static void another_thread_gives(failpoint_run_t *t) {
    (void)t;
    sem_post(&wanted);
    sem_wait(&given);
}

/* The free comes between a launch's checks and its call. */
void failpoint_path_clock_late(failpoint_run_t *t) {
    pthread_t thread;
    failpoint_take(t, MIB);
    for (int i = 0; i < 3; i++)
        failpoint_old(t, t->stream[0]);
    sem_init(&ready, 0, 0);
    sem_init(&wanted, 0, 0);
    sem_init(&given, 0, 0);
    if (pthread_create(&thread, NULL, give_when_wanted, t))
        test_stop(TEST_WRONG, "no thread");
    sem_wait(&ready);
    CUdeviceptr other;
    MUST(cuMemAlloc_v2(&other, t->bytes)); /* ends the epoch, so the launch checks again */
    failpoint_at_window("lane_passes", another_thread_gives, t);
    MUST(failpoint_elsewhere(t, t->stream[0]));
    sem_post(&wanted); /* if the library has no window */
    pthread_join(thread, NULL);
    t->memory = other; /* the launch wrote to `beside`; a free that waits must not add any order
                          with it */
    overtake(t);
}

/* Ends the rule by the first work on a second stream, which uses other memory. Then requests the
 * memory on which the first stream still works. */
static void free_at_the_end(failpoint_run_t *t) {
    failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    MUST(failpoint_elsewhere(t, t->stream[1]));
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[1]);
}

void failpoint_caches_not_in_quarantine(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    free_at_the_end(t);
}

void failpoint_pools_not_in_quarantine(failpoint_run_t *t) {
    failpoint_caches_not_in_quarantine(t);
}

/* Takes a slot of a slab that has another slot in use. */
static void take_slot(failpoint_run_t *t) {
    CUdeviceptr stays;
    failpoint_take(t, SLOT);
    MUST(cuMemAlloc_v2(&stays, SLOT));
}

void failpoint_slabs_not_in_quarantine(failpoint_run_t *t) {
    take_slot(t);
    free_at_the_end(t);
}

/* The block is handed out again before the rule ends. */
void failpoint_early_block_overlooked(failpoint_run_t *t) {
    failpoint_second_stream_let_in(t);
}

void failpoint_early_slot_overlooked(failpoint_run_t *t) {
    take_slot(t);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    failpoint_new(t, t->stream[1]);
}

/* Hands memory on, and frees it in the order of a stream without work. */
static void give_in_order(failpoint_run_t *t) {
    failpoint_take(t, MIB);
    failpoint_old(t, t->stream[0]);
    failpoint_hand_over(t);
    MUST(cuMemFreeAsync(t->memory, t->stream[1]));
}

void failpoint_handed_on_overlooked(failpoint_run_t *t) {
    give_in_order(t);
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[1]));
    failpoint_new(t, t->stream[1]);
}

void failpoint_freed_in_order_overlooked(failpoint_run_t *t) {
    give_in_order(t);
    MUST(failpoint_elsewhere(t, t->stream[2]));
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[1]));
    failpoint_new(t, t->stream[1]);
}

/* The launch may begin before what is ahead of it in its stream is done.  In the order of the
 * stream: what a free relies on ends before the event behind that free. */
void failpoint_programmatic_for_ordered(failpoint_run_t *t) {
    t->bytes = MIB;
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[0]));
    failpoint_old(t, t->stream[0]);
    MUST(cuMemFreeAsync(t->memory, t->stream[0]));
    MUST(cuMemAllocAsync(&t->memory, t->bytes, t->stream[0]));
    failpoint_new_programmatic(t, t->stream[0]);
}
