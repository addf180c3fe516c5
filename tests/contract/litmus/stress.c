/* Random programs that are in good order by themselves, under the race detector. Each report is a
 * fault of the allocator.
 *
 * stress [SEED [OPERATIONS [THREADS]]]
 *
 * The program uses plain memory in any stream and frees it while its work is pending, which
 * cuMemFree allows. It uses stream-ordered memory in the memory's own stream only. Each use of a
 * buffer stays within its lifetime, so two lifetimes meet only by reuse. The program prints its
 * seed. Exit status: 1 after a report or a wrong answer, 77 without the simulated device. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { BUFFERS = 48, STREAMS = 6, EVENTS = 4 };

typedef struct {
    CUdeviceptr memory;
    CUstream stream; /* stream-ordered: its only one; else NULL */
    bool async;
} buffer_t;

typedef struct {
    unsigned long long state;
    CUcontext ctx;
    CUfunction store;
    CUstream stream[STREAMS];
    CUevent event[EVENTS];
    buffer_t buffer[BUFFERS];
    unsigned long operations;
} worker_t;

static unsigned random_below(worker_t *w, unsigned n) {
    w->state = w->state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(w->state >> 33) % n;
}

static CUstream any_stream(worker_t *w) {
    unsigned i = random_below(w, STREAMS + 2);
    return i < STREAMS ? w->stream[i] : i == STREAMS ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

static void use(worker_t *w, buffer_t *b) {
    unsigned value = 1;
    void *params[] = {&b->memory, &value};
    CUstream stream = b->async ? b->stream : any_stream(w);
    if (random_below(w, 4))
        MUST(cuLaunchKernel(w->store, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    else
        MUST(cuMemsetD8Async(b->memory, 1, 256, stream));
}

static void take(worker_t *w, buffer_t *b) {
    static const size_t sizes[] = {512, 4096, 60000, 1 << 20, 3 << 20, 17 << 20};
    size_t bytes = sizes[random_below(w, 6)] + random_below(w, 4) * 512;
    *b = (buffer_t){.async = random_below(w, 3) == 0};
    if (b->async) {
        b->stream = w->stream[random_below(w, STREAMS - 1)];
        MUST(cuMemAllocAsync(&b->memory, bytes, b->stream));
    } else {
        MUST(cuMemAlloc_v2(&b->memory, bytes));
    }
}

static void give(buffer_t *b) {
    if (b->async)
        MUST(cuMemFreeAsync(b->memory, b->stream));
    else
        MUST(cuMemFree_v2(b->memory));
    b->memory = 0;
}

/* The last stream comes and goes, with its work. */
static void renew(worker_t *w) {
    MUST(cuStreamDestroy_v2(w->stream[STREAMS - 1]));
    MUST(
        cuStreamCreate(&w->stream[STREAMS - 1], random_below(w, 2) ? CU_STREAM_NON_BLOCKING : 0));
}

static void synchronise(worker_t *w) {
    CUstream stream = any_stream(w);
    CUevent event = w->event[random_below(w, EVENTS)];
    switch (random_below(w, 6)) {
    case 0:
        MUST(cuStreamSynchronize(stream));
        break;
    case 1:
        (void)cuStreamQuery(stream);
        break;
    case 2:
        (void)cuEventQuery(event);
        break;
    case 3:
        if (random_below(w, 4) == 0)
            MUST(cuCtxSynchronize());
        break;
    case 4:
        MUST(cuEventRecord(event, stream));
        break;
    default:
        MUST(cuStreamWaitEvent(stream, event, 0));
    }
}

static void *work(void *argument) {
    worker_t *w = argument;
    MUST(cuCtxSetCurrent(w->ctx));
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate(&w->stream[i], i & 1 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    for (int i = 0; i < EVENTS; i++)
        MUST(cuEventCreate(&w->event[i], CU_EVENT_DISABLE_TIMING));
    for (unsigned long i = 0; i < w->operations; i++) {
        buffer_t *b = &w->buffer[random_below(w, BUFFERS)];
        unsigned what = random_below(w, 100);
        if (what < 3)
            renew(w);
        else if (what < 15)
            synchronise(w);
        else if (!b->memory)
            take(w, b);
        else if (what < 60)
            use(w, b);
        else
            give(b);
    }
    for (int i = 0; i < BUFFERS; i++)
        if (w->buffer[i].memory)
            give(&w->buffer[i]);
    MUST(cuCtxSynchronize());
    return NULL;
}

static unsigned long argument(int count, char **list, int i, unsigned long usual) {
    return i < count ? strtoul(list[i], NULL, 0) : usual;
}

int main(int count, char **list) {
    enum { MOST = 16 };
    static worker_t workers[MOST];
    pthread_t thread[MOST];
    unsigned long seed = argument(count, list, 1, 1),
                  operations = argument(count, list, 2, 20000);
    unsigned long threads = argument(count, list, 3, 1);
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_access_t access = {0, -1, 64, 1};
    simcuda_kernel_t kernel = {"store", NULL, 20000, 2, sizes, 1, &access};
    unsigned long long (*reports)(void);
    if (!test_find("simcuda_race_reports", &reports))
        return TEST_SKIPPED;
    workers[0].ctx = test_device(0);
    workers[0].store = test_kernel(&kernel);
    printf("seed %lu, %lu operations, %lu threads\n", seed, operations, threads);
    for (unsigned long i = 0; i < threads && i < MOST; i++) {
        workers[i].ctx = workers[0].ctx;
        workers[i].store = workers[0].store;
        workers[i].state = seed * 977 + i;
        workers[i].operations = operations;
        if (pthread_create(&thread[i], NULL, work, &workers[i]))
            return 1;
    }
    for (unsigned long i = 0; i < threads && i < MOST; i++)
        pthread_join(thread[i], NULL);
    printf("reports: %llu\n", reports());
    return reports() ? 1 : 0;
}
