/* right_threads: host threads allocate, compute and free at the same time.  Each uses its own
 * stream or its per-thread default stream and, in turns, the legacy stream.  Threads pass buffers
 * to each other.  Memory is freed right after the launch that uses it.
 *
 *   right_threads [own|perthread [ROUNDS]]
 *                                      own: streams of their own, half of the buffers handed on;
 *                                      perthread: the functions for per-thread streams */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "right.h"

enum { THREADS = 8, USUAL_ROUNDS = 60, SIMULATED_ROUNDS = 8, KEPT = 6, MOST_WORDS = 1 << 15 };

typedef struct {
    CUdeviceptr at;
    unsigned words;
    CUevent ready; /* recorded after the last kernel */
} buffer_t;

typedef struct {
    unsigned index;
    unsigned long long seed, sum;
    right_lane_t lane;
    buffer_t handed; /* from the previous thread, once per round */
} worker_t;

static bool per_thread;
static unsigned rounds;
static worker_t workers[THREADS];
static pthread_barrier_t barrier;

static void record(CUevent event, right_lane_t lane) {
    MUST(lane.ptsz ? cu.cuEventRecord_ptsz(event, lane.handle)
                   : cu.cuEventRecord(event, lane.handle));
}

static void wait_for(CUevent event, right_lane_t lane) {
    MUST(lane.ptsz ? cu.cuStreamWaitEvent_ptsz(lane.handle, event, 0)
                   : cu.cuStreamWaitEvent(lane.handle, event, 0));
}

/* Makes a buffer with a random value, mixed a few times. */
static buffer_t make(worker_t *w) {
    buffer_t made = {0, 1 + right_below(&w->seed, MOST_WORDS), NULL};
    made.at = right_alloc(made.words * sizeof(uint32_t));
    unsigned value = right_below(&w->seed, 1u << 30);
    MUST(w->lane.ptsz ? cu.cuMemsetD32Async_ptsz(made.at, value, made.words, w->lane.handle)
                      : cu.cuMemsetD32Async(made.at, value, made.words, w->lane.handle));
    for (unsigned i = 1 + right_below(&w->seed, 3); i > 0; i--)
        right_mix(made.at, made.words, i, w->lane);
    MUST(cu.cuEventCreate(&made.ready, CU_EVENT_DISABLE_TIMING));
    record(made.ready, w->lane);
    return made;
}

static void end(worker_t *w, buffer_t *buffer) {
    wait_for(buffer->ready, w->lane);
    right_mix(buffer->at, buffer->words, w->index, w->lane);
    w->sum = w->sum * 31 + right_sum(buffer->at, buffer->words, w->lane);
    right_last_work(buffer->at, buffer->words, w->lane);
    MUST(cu.cuMemFree_v2(buffer->at));
    MUST(cu.cuEventDestroy_v2(buffer->ready));
}

static void round_of(worker_t *w, unsigned round) {
    buffer_t kept[KEPT];
    for (int i = 0; i < KEPT; i++)
        kept[i] = make(w);
    pthread_barrier_wait(&barrier);
    workers[(w->index + 1 + round) % THREADS].handed = kept[0];
    pthread_barrier_wait(&barrier);
    kept[0] = w->handed;
    for (int i = 0; i < KEPT; i++)
        end(w, &kept[i]);
}

static void *work(void *argument) {
    worker_t *w = argument;
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    CUstream own = right_stream();
    for (unsigned round = 0; round < rounds; round++) {
        w->lane = per_thread       ? (right_lane_t){NULL, true}
                  : round % 5 == 4 ? RIGHT_LANE(CU_STREAM_LEGACY)
                  : round % 5 == 3 ? RIGHT_LANE(CU_STREAM_PER_THREAD)
                                   : RIGHT_LANE(own);
        round_of(w, round);
    }
    MUST(cu.cuStreamDestroy_v2(own));
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    per_thread = argc > 1 && !strcmp(argv[1], "perthread");
    right_open();
    rounds = gpu.simulated ? SIMULATED_ROUNDS : USUAL_ROUNDS;
    if (argc > 2)
        rounds = (unsigned)strtoul(argv[2], NULL, 10);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].index = i;
        workers[i].seed = i + 1;
        if (pthread_create(&threads[i], NULL, work, &workers[i]))
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        printf("thread %u: %016llx\n", i, workers[i].sum);
    }
    return 0;
}
