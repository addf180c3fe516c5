/* Soak test: sixteen threads use both APIs of the library for minutes, in real time. They create
 * and destroy streams with pending work, capture, free blocks of other threads, change settings
 * and dump on a signal. Threads end and are replaced.
 *
 *   soak_program [SECONDS [THREADS]]
 *
 * The test checks that
 *
 * - every block holds the last value written to it, at each wait for its work;
 * - a call fails only for lack of memory, and only under a limit that the test set;
 * - the statistics and the race detector, if it runs, report nothing at the end;
 * - host memory does not grow: its minimum in the last third is not much above its maximum in
 *   the first third. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "accelcache.h"
#include "harness.h"

enum { DEVICES = 2, MOST_THREADS = 64, BLOCKS = 24, STREAMS = 4, BOARD = 64, WORDS = 16 };
enum { LIFE_SECONDS = 5, SLACK_KIB = 16 << 10 };

typedef struct {
    CUdeviceptr address;
    unsigned value;  /* in the first WORDS words, once `stream` is done; 0: nothing written */
    CUstream stream; /* of the last work; NULL: all work on it has completed */
    bool ordered;    /* allocated in the order of `stream`, and used there only */
} block_t;

typedef struct {
    unsigned long long random;
    int device;
    CUstream stream[STREAMS];
    block_t block[BLOCKS];
    time_t until;
} worker_t;

static CUcontext context[DEVICES];
static struct {
    pthread_mutex_t lock;
    block_t block[BOARD];
} board[DEVICES];
static _Atomic unsigned long operations, refused, checked, captured, wrong_values, threads_ended;
static _Atomic bool limited; /* a limit was set: requests may fail */
static _Atomic bool over;

/* Keeps the program's own synchronisations away from captures, which they would end. The library
 * must do this for its own. */
static pthread_rwlock_t captures = PTHREAD_RWLOCK_INITIALIZER;

static struct {
    accel_status_t (*configure)(const char *, char *, size_t);
    accel_status_t (*stats)(int, accel_device_stats_t *);
    accel_status_t (*empty_cache)(void);
} accel;

static unsigned draw(worker_t *w, unsigned below) {
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(w->random >> 33) % below;
}

static CUstream any_stream(worker_t *w) {
    return w->stream[draw(w, STREAMS)];
}

/* Returns false if the allocation failed under a limit. Any other failure ends the test. */
static bool got(CUresult result, int line) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY && atomic_load(&limited)) {
        atomic_fetch_add(&refused, 1);
        return false;
    }
    test_must(result, "an allocation", __FILE__, line);
    return true;
}

static void take(worker_t *w, block_t *b) {
    size_t bytes = ((size_t)256 << draw(w, 15)) + draw(w, 100);
    CUstream stream = any_stream(w);
    block_t made = {.ordered = draw(w, 3) == 0};
    if (made.ordered) {
        made.stream = stream;
        if (got(cuMemAllocAsync(&made.address, bytes, stream), __LINE__))
            *b = made;
    } else if (got(cuMemAlloc_v2(&made.address, bytes), __LINE__)) {
        *b = made;
    }
}

/* Waits for the block's work, which is in one stream, before another stream uses it. */
static void settle(block_t *b) {
    if (b->stream)
        MUST(cuStreamSynchronize(b->stream));
    if (!b->ordered)
        b->stream = NULL;
}

static void use(worker_t *w, block_t *b) {
    CUstream stream = b->ordered ? b->stream : any_stream(w);
    if (b->stream && b->stream != stream)
        settle(b);
    b->value = 1 + draw(w, 1u << 30);
    MUST(cuMemsetD32Async(b->address, b->value, WORDS, stream));
    b->stream = stream;
}

static void check(worker_t *w, block_t *b) {
    unsigned found[WORDS];
    CUstream stream = b->stream ? b->stream : any_stream(w);
    if (!b->value)
        return;
    MUST(cuMemcpyDtoHAsync_v2(found, b->address, sizeof found, stream));
    MUST(cuStreamSynchronize(stream));
    for (int i = 0; i < WORDS; i++)
        if (found[i] != b->value && atomic_fetch_add(&wrong_values, 1) < 10)
            fprintf(stderr, "soak: %#llx holds %#x, %#x was written\n",
                    (unsigned long long)b->address, found[i], b->value);
    atomic_fetch_add(&checked, 1);
}

static void give(worker_t *w, block_t *b) {
    if (!b->ordered) {
        /* Frees the block with its work pending, by the plain call or in the order of its
         * stream. */
        if (b->stream && draw(w, 4) == 0)
            MUST(cuMemFreeAsync(b->address, b->stream));
        else
            MUST(cuMemFree_v2(b->address));
    } else if (draw(w, 4)) {
        MUST(cuMemFreeAsync(b->address, b->stream));
    } else {
        settle(b);
        MUST(cuMemFree_v2(b->address));
    }
    b->address = 0;
}

/* Exchanges the block with another thread. That thread knows none of this thread's streams, so it
 * only frees a block with pending work. */
static void hand_over(worker_t *w, block_t *b) {
    unsigned at = draw(w, BOARD);
    bool pending = !b->ordered && draw(w, 2);
    if (pending)
        b->value = 0;
    else
        settle(b);
    b->stream = NULL;
    b->ordered = false; /* an ordered block's work has completed: any free will do */
    pthread_mutex_lock(&board[w->device].lock);
    block_t other = board[w->device].block[at];
    board[w->device].block[at] = *b;
    pthread_mutex_unlock(&board[w->device].lock);
    b->address = 0;
    if (!other.address)
        return;
    check(w, &other);
    MUST(cuMemFree_v2(other.address));
}

/* Destroys a stream with pending work. Waits first for the blocks of the stream that stay. */
static void renew(worker_t *w) {
    CUstream *stream = &w->stream[draw(w, STREAMS)];
    for (int i = 0; i < BLOCKS; i++) {
        block_t *b = &w->block[i];
        if (!b->address || b->stream != *stream)
            continue;
        if (b->ordered || draw(w, 2))
            give(w, b);
        else
            settle(b);
    }
    MUST(cuStreamDestroy_v2(*stream));
    MUST(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
}

/* Launches a graph that writes to a block twice, while other blocks are allocated and freed. */
static void capture(worker_t *w) {
    CUdeviceptr memory, meanwhile;
    CUgraph graph;
    CUgraphExec exec;
    CUstream stream = any_stream(w);
    unsigned found, value = 1 + draw(w, 1u << 30);
    if (!got(cuMemAlloc_v2(&memory, 70000), __LINE__))
        return;
    pthread_rwlock_rdlock(&captures);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD32Async(memory, value, 1, stream));
    if (got(cuMemAlloc_v2(&meanwhile, 70000), __LINE__))
        MUST(cuMemFree_v2(meanwhile));
    MUST(cuStreamEndCapture(stream, &graph));
    pthread_rwlock_unlock(&captures);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 2; i++)
        MUST(cuGraphLaunch(exec, stream));
    MUST(cuMemcpyDtoHAsync_v2(&found, memory, sizeof found, stream));
    MUST(cuStreamSynchronize(stream));
    if (found != value)
        atomic_fetch_add(&wrong_values, 1);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree_v2(memory));
    atomic_fetch_add(&captured, 1);
}

static void synchronize(void) {
    pthread_rwlock_wrlock(&captures);
    MUST(cuCtxSynchronize());
    pthread_rwlock_unlock(&captures);
}

static void step(worker_t *w) {
    block_t *b = &w->block[draw(w, BLOCKS)];
    unsigned what = draw(w, 1000);
    if (what < 5)
        renew(w);
    else if (what < 10)
        capture(w);
    else if (what < 13)
        synchronize();
    else if (!b->address)
        take(w, b);
    else if (what < 400)
        use(w, b);
    else if (what < 600)
        check(w, b);
    else if (what < 700)
        hand_over(w, b);
    else
        give(w, b);
    atomic_fetch_add(&operations, 1);
}

static void *work(void *argument) {
    worker_t *w = argument;
    MUST(cuCtxSetCurrent(context[w->device]));
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamCreate(&w->stream[i], CU_STREAM_NON_BLOCKING));
    while (!atomic_load(&over) && time(NULL) < w->until)
        step(w);
    for (int i = 0; i < BLOCKS; i++)
        if (w->block[i].address) {
            check(w, &w->block[i]);
            give(w, &w->block[i]);
        }
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamDestroy_v2(w->stream[i]));
    atomic_fetch_add(&threads_ended, 1);
    return NULL;
}

/* Returns the host memory of the process in KiB, without the file that holds the simulated
 * device's memory. */
static unsigned long host_kib(void) {
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && !kib && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %lu", &kib) != 1)
            kib = 0;
    if (file)
        fclose(file);
    NEED(kib > 0);
    return kib;
}

/* Extremes of host memory, sampled once a second. The load varies, so two samples may differ much.
 * A leak raises all of them. */
static unsigned long host_most, host_least = -1ul;

static unsigned long note_host(unsigned second, unsigned seconds) {
    unsigned long kib = host_kib();
    if (second <= seconds / 3 && host_most < kib)
        host_most = kib;
    if (second > seconds - seconds / 3 && host_least > kib)
        host_least = kib;
    return kib;
}

static void find(const char *name, void *slot, bool needed) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
    if (!found && needed) {
        fprintf(stderr, "soak: no %s: the library is not preloaded (soak/run does it)\n", name);
        exit(2);
    }
}

/* Changes the settings while the threads work. */
static void change_settings(unsigned turn) {
    static const char *const conf[] = {
        "memory_limit:512M",       "roundup_power2_divisions:4",
        "max_split_size_mb:64",    "memory_limit:256M,garbage_collection_threshold:0.6",
        "large_segment_size_mb:8", ""};
    char message[256] = "";
    char text[512];
    const char *base = getenv("SOAK_CONF");
    const char *chosen = conf[turn % (sizeof conf / sizeof *conf)];
    if (strstr(chosen, "memory_limit"))
        atomic_store(&limited, true);
    snprintf(text, sizeof text, "%s%s%s", base ? base : "", base && *chosen ? "," : "", chosen);
    if (accel.configure(text, message, sizeof message) != ACCEL_OK) {
        fprintf(stderr, "soak: settings \"%s\": %s\n", text, message);
        exit(1);
    }
}

static void start_devices(void) {
    MUST(cuInit(0));
    for (int d = 0; d < DEVICES; d++) {
        pthread_mutex_init(&board[d].lock, NULL);
        MUST(cuDevicePrimaryCtxRetain(&context[d], d));
    }
}

static void start_worker(pthread_t *thread, worker_t *w, unsigned i) {
    static unsigned long long seed = 1;
    memset(w, 0, sizeof *w);
    w->random = seed++ * 0x9e3779b97f4a7c15ull;
    w->device = (int)(i % DEVICES);
    w->until = time(NULL) + 1 + (time_t)(i % LIFE_SECONDS);
    if (pthread_create(thread, NULL, work, w) != 0) {
        perror("soak: thread");
        exit(2);
    }
}

/* Checks that no statistic counts memory after everything was freed. */
static int judge_end(void) {
    int errors = 0;
    for (int d = 0; d < DEVICES; d++) {
        MUST(cuCtxSetCurrent(context[d]));
        MUST(cuCtxSynchronize());
        for (int i = 0; i < BOARD; i++)
            if (board[d].block[i].address)
                MUST(cuMemFree_v2(board[d].block[i].address));
    }
    accel.empty_cache();
    for (int d = 0; d < DEVICES; d++) {
        accel_device_stats_t s = {.size = sizeof s};
        accel.stats(d, &s);
        if (s.allocation.all.current || s.active.all.current || s.reserved_bytes.all.current ||
            s.requested_bytes.all.current || s.segment.all.current) {
            fprintf(stderr, "soak: device %d: %lld blocks, %lld bytes reserved are left\n", d,
                    (long long)s.allocation.all.current, (long long)s.reserved_bytes.all.current);
            errors++;
        }
    }
    if (host_least > host_most + host_most / 4 + SLACK_KIB) {
        fprintf(stderr, "soak: host memory grew from %lu to %lu KiB at least\n", host_most,
                host_least);
        errors++;
    }
    unsigned long long (*reports)(void);
    find("simcuda_race_reports", &reports, false);
    if (reports && reports()) {
        fprintf(stderr, "soak: %llu reports of the race detector\n", reports());
        errors++;
    }
    return errors + (atomic_load(&wrong_values) != 0) + (atomic_load(&operations) == 0);
}

int main(int argc, char **argv) {
    static pthread_t thread[MOST_THREADS];
    static worker_t worker[MOST_THREADS];
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 600;
    unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 16;
    if (threads == 0 || threads > MOST_THREADS || seconds < 4)
        return 2;
    find("accel_set_allocator_settings", &accel.configure, true);
    find("accel_get_device_stats", &accel.stats, true);
    find("accel_empty_cache", &accel.empty_cache, true);
    start_devices();
    for (unsigned i = 0; i < threads; i++)
        start_worker(&thread[i], &worker[i], i);
    for (unsigned second = 1; second <= seconds; second++) {
        sleep(1);
        kill(getpid(), SIGUSR2); /* the library writes its dump */
        if (second % 2 == 0)
            change_settings(second / 2);
        if (second % 7 == 0)
            accel.empty_cache();
        for (unsigned i = 0; i < threads; i++)
            if (time(NULL) >= worker[i].until) {
                pthread_join(thread[i], NULL);
                start_worker(&thread[i], &worker[i], i);
            }
        unsigned long host = note_host(second, seconds);
        if (second % 10 == 0 || second == seconds)
            printf("%4u s: %lu operations, %lu KiB of host memory\n", second,
                   atomic_load(&operations), host);
        fflush(stdout);
    }
    atomic_store(&over, true);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    int errors = judge_end();
    printf("soak: %u s, %u threads (%lu ended): %lu operations, %lu values checked, %lu wrong, "
           "%lu captures, %lu requests refused under a limit; %d errors\n",
           seconds, threads, atomic_load(&threads_ended), atomic_load(&operations),
           atomic_load(&checked), atomic_load(&wrong_values), atomic_load(&captured),
           atomic_load(&refused), errors);
    return errors != 0;
}
