/* Pairs by several threads: CPU time per pair, the slowest calls, and blocks that one thread
 * takes and another gives back. */
#include "work.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include PEER_HEADER

enum { MAX_THREADS = 1024, WARMING = 64 };

typedef struct {
    const work_t *w;
    long at, pairs;
    double cpu;   /* ns that this thread spent in its pairs */
    float *call;  /* tail: ns of every call, two per pair */
    void **batch; /* cross */
} worker_t;

static pthread_barrier_t step;
static work_device_t *device; /* tail: NULL if nothing is launched */

/* Runs the threads of one pass at the same time; returns the ns of CPU time of all of them. */
static double run_threads(const work_t *w, long count, void *(*body)(void *), worker_t *worker) {
    pthread_t thread[MAX_THREADS];
    double cpu = 0;
    if (pthread_barrier_init(&step, NULL, (unsigned)count))
        work_fail("no barrier", 0);
    for (long i = 0; i < count; i++) {
        worker[i].w = w;
        worker[i].at = i;
        if (pthread_create(&thread[i], NULL, body, &worker[i]))
            work_fail("no thread", 0);
    }
    for (long i = 0; i < count; i++) {
        pthread_join(thread[i], NULL);
        cpu += worker[i].cpu;
    }
    pthread_barrier_destroy(&step);
    return cpu;
}

/* Returns the time of reading the clock twice, which is part of every measured time. */
static double clock_cost(double clock(void)) {
    double least = 1e9;
    for (int i = 0; i < 1000; i++) {
        double begin = clock(), took = clock() - begin;
        if (took < least)
            least = took;
    }
    return least;
}

/* ---------------------------------------------------------------- pairs */

static void warm_up(size_t bytes) {
    for (int i = 0; i < WARMING; i++)
        peer_give(peer_take(bytes, NULL), bytes, NULL);
}

static void *pair_body(void *argument) {
    worker_t *self = argument;
    size_t bytes = (size_t)self->w->bytes;
    peer_thread();
    warm_up(bytes); /* the first use in a thread is no part of a hit */
    pthread_barrier_wait(&step);
    warm_up(bytes); /* nor is the reaction to the other threads */
    double begin = work_thread();
    for (long i = 0; i < self->pairs; i++) {
        void *pointer = peer_take(bytes, NULL);
        WORK_USED(pointer);
        peer_give(pointer, bytes, NULL);
    }
    self->cpu = work_thread() - begin;
    return NULL;
}

static double pair_pass(const work_t *w, long pairs) {
    worker_t worker[MAX_THREADS] = {{0}};
    long each = pairs / w->threads + 1;
    for (long i = 0; i < w->threads; i++)
        worker[i].pairs = each;
    double cpu = run_threads(w, w->threads, pair_body, worker);
    return cpu / (double)(each * w->threads) * (double)pairs;
}

void work_threads(const work_t *w) {
    printf("\"threads\": %ld, ", w->threads);
    work_measure(w, pair_pass);
}

/* Body of a short thread.  A "pair" is one thread with all its costs. */
static void *brief_body(void *argument) {
    worker_t *self = argument;
    peer_thread();
    for (int i = 0; i < 10; i++)
        peer_give(peer_take((size_t)self->w->bytes, NULL), (size_t)self->w->bytes, NULL);
    return NULL;
}

static double brief_pass(const work_t *w, long pairs) {
    double begin = work_now();
    for (long i = 0; i < pairs; i++) {
        worker_t worker = {0};
        run_threads(w, 1, brief_body, &worker);
    }
    return work_now() - begin;
}

void work_brief(const work_t *w) {
    work_measure(w, brief_pass);
}

/* ---------------------------------------------------------------- across threads */

/* Two threads pass a batch of blocks from one to the other.  They meet at barriers, so that waiting
 * is not counted.  The cost of the clock is subtracted: it is a system call for a few pairs. */
static void *cross_body(void *argument) {
    worker_t *self = argument, *first = self - self->at;
    size_t bytes = (size_t)self->w->bytes;
    long batch = first->w->batch;
    double cost = clock_cost(work_thread);
    peer_thread();
    for (long left = first->pairs; left > 0; left -= batch) {
        long filled = left < batch ? left : batch;
        if (self->at == 0) {
            double begin = work_thread();
            for (long i = 0; i < filled; i++)
                first->batch[i] = peer_take(bytes, NULL);
            self->cpu += work_thread() - begin - cost;
        }
        pthread_barrier_wait(&step);
        if (self->at == 1) {
            double begin = work_thread();
            for (long i = 0; i < filled; i++)
                peer_give(first->batch[i], bytes, NULL);
            self->cpu += work_thread() - begin - cost;
        }
        pthread_barrier_wait(&step);
    }
    return NULL;
}

static double cross_pass(const work_t *w, long pairs) {
    worker_t worker[2] = {
        {.pairs = pairs, .batch = work_alloc((size_t)w->batch * sizeof(void *))}, {0}};
    double took = run_threads(w, 2, cross_body, worker);
    free(worker[0].batch);
    return took;
}

void work_cross(const work_t *w) {
    work_measure(w, cross_pass);
}

/* ---------------------------------------------------------------- the slowest calls */

static void *tail_body(void *argument) {
    worker_t *self = argument;
    long own = self->w->streams / self->w->threads; /* streams of this thread alone */
    size_t bytes = (size_t)self->w->bytes;
    peer_thread();
    if (device)
        work_device_thread(device);
    peer_give(peer_take(bytes, NULL), bytes, NULL);
    pthread_barrier_wait(&step);
    for (long i = 0; i < self->pairs; i++) {
        double begin = work_now();
        void *pointer = peer_take(bytes, NULL);
        WORK_USED(pointer);
        self->call[2 * i] = (float)(work_now() - begin);
        if (device)
            work_device_launch(device, self->at * own + i % own);
        begin = work_now();
        peer_give(pointer, bytes, NULL);
        self->call[2 * i + 1] = (float)(work_now() - begin);
    }
    return NULL;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_tail(const work_t *w, const char *prefix, long each) {
    long calls = 2 * each * w->threads;
    float *call = work_alloc((size_t)calls * sizeof *call);
    worker_t worker[MAX_THREADS] = {{0}};
    for (long i = 0; i < w->threads; i++) {
        worker[i].pairs = each;
        worker[i].call = call + 2 * each * i;
    }
    run_threads(w, w->threads, tail_body, worker);
    qsort(call, (size_t)calls, sizeof *call, by_value);
    printf("\"%sclock_ns\": %.1f, \"%sp50_ns\": %.1f, \"%sp99_ns\": %.1f, \"%sp999_ns\": %.1f, ",
           prefix, clock_cost(work_now), prefix, (double)call[calls / 2], prefix,
           (double)call[(long)((double)calls * 0.99)], prefix,
           (double)call[(long)((double)calls * 0.999)]);
    free(call);
}

/* Measures calls without launches, and with launches in between.  With launches, the time that a
 * call waits for a lock of the driver counts. */
void work_tail(const work_t *w) {
    long each = (w->pairs ? w->pairs : 160000) / w->threads + 1;
    if (w->streams < w->threads)
        work_fail("tail: fewer streams than threads", 0);
    device = work_device_open(w->streams);
    print_tail(w, "", each);
    device = NULL;
    print_tail(w, "quiet_", each);
    printf("\"calls\": %ld", 2 * each * w->threads);
}

/* ---------------------------------------------------------------- threads beside */

static sem_t idle_ready;

static void *idle_body(void *unused) {
    work_peer_thread();
    work_peer_give(work_peer_take(64 << 10), 64 << 10);
    sem_post(&idle_ready);
    for (;;)
        pause();
    return unused;
}

void work_idle(const work_t *w) {
    if (sem_init(&idle_ready, 0, 0))
        work_fail("no semaphore", 0);
    for (long i = 0; i < w->idle; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, idle_body, NULL))
            work_fail("no thread", 0);
        pthread_detach(thread);
        while (sem_wait(&idle_ready)) /* EINTR */
            continue;
    }
}
