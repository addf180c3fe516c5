/* The work of a thread of stream_stress.
 *
 * A batch is a few buffers that are allocated together.  One kernel fills them on one stream, and
 * another kernel checks them on the same or another stream, with an event in between.  Plain
 * buffers are freed while the check is pending, because cuMemFree allows that.  Stream-ordered
 * buffers are freed in the order of the checking stream.  Threads exchange batches, so that other
 * threads free their memory.  The program is correct without the library: a bare driver runs it
 * without a mismatch. */
#include "stress.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    MAILBOXES = 64,
    LANES_EXTRA = 4,      /* legacy and per-thread streams, by handle and by function */
    SMALLEST_WORDS = 1,   /* the logarithms of sizes are evenly distributed */
    DELAY_CLOCKS = 20000, /* longest wait of most kernels; others wait for a multiple of it */
    SLOW_FACTOR = 20,
    STUCK_FACTOR = 100,
    EXTRA = 4,       /* batches made while a thread captures */
    SOLO_LANES = 6,  /* streams that take turns while one thread works alone */
    SOLO_ROUNDS = 8, /* least and greatest number of rounds of one size on each of them */
    SOLO_MOST = 128,
};

typedef struct {
    stress_buffers_t buffers;
    bool async;
    CUevent filled;
} batch_t;

struct stress_worker {
    uint64_t random;
    unsigned streams;
    CUstream *stream;
    CUstream capture; /* never a lane: nothing else may happen on it during a capture */
    CUevent order;
    batch_t **live;
    unsigned count;
};

stress_options_t stress_options;
_Atomic uint64_t stress_taken, stress_checks;

static batch_t *_Atomic mailbox[MAILBOXES];
static _Atomic uint32_t owners; /* number of the next owner */

/* Allows programmatic launches.  A cache that relies on the order of the only stream must
 * permanently stop this at the first programmatic launch. */
static _Atomic bool early_wanted;

/* Each step holds `solo` shared, and work_alone holds it exclusively.  `turn` delays new steps
 * while work_alone waits for `solo`. */
static pthread_rwlock_t solo = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
/* Each capture holds this shared.  A synchronisation of the context would break captures, so it
 * holds this exclusively. */
static pthread_rwlock_t captures = PTHREAD_RWLOCK_INITIALIZER;

/* ---------------------------------------------------------------- chance */

static unsigned below(stress_worker_t *w, unsigned n) {
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(w->random >> 33) % n;
}

static bool one_in(stress_worker_t *w, unsigned n) {
    return below(w, n) == 0;
}

/* Returns a random number of words; small and large buffers are equally likely. */
static unsigned any_words(stress_worker_t *w) {
    unsigned most = stress_options.max_bytes / (unsigned)sizeof(uint32_t);
    unsigned bits = 32 - (unsigned)__builtin_clz(most);
    unsigned limit = 1u << below(w, bits);
    return SMALLEST_WORDS + below(w, limit < most ? limit : most);
}

static stress_lane_t default_lane(stress_worker_t *w) {
    static const stress_lane_t lanes[LANES_EXTRA] = {
        {NULL, false}, {NULL, true}, {CU_STREAM_PER_THREAD, false}, {CU_STREAM_LEGACY, true}};
    return lanes[below(w, LANES_EXTRA)];
}

static stress_lane_t any_lane(stress_worker_t *w) {
    unsigned i = below(w, 8 * w->streams + LANES_EXTRA);
    if (i < 8 * w->streams)
        return (stress_lane_t){w->stream[i / 8], one_in(w, 2)};
    return default_lane(w);
}

static unsigned any_delay(stress_worker_t *w, stress_kernel_t kernel) {
    if (kernel == CHECK_SLOW || kernel == CHECK_STUCK)
        return (kernel == CHECK_SLOW ? SLOW_FACTOR : STUCK_FACTOR) * DELAY_CLOCKS;
    return one_in(w, 2) ? below(w, DELAY_CLOCKS) : 0;
}

/* ---------------------------------------------------------------- lanes */

static void wait_for(stress_lane_t lane, CUevent event) {
    MUST(ON_LANE(lane, cuStreamWaitEvent, lane.handle, event, 0));
}

static void record(stress_lane_t lane, CUevent event) {
    MUST(ON_LANE(lane, cuEventRecord, event, lane.handle));
}

static void finish_lane(stress_lane_t lane) {
    MUST(ON_LANE(lane, cuStreamSynchronize, lane.handle));
}

static void open_stream(stress_worker_t *w, unsigned i) {
    unsigned flags = one_in(w, 2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    MUST(cu.cuStreamCreate(&w->stream[i], flags));
}

/* Replaces a stream. The old stream's work continues, and a later stream may get its handle. */
static void renew_stream(stress_worker_t *w, unsigned i) {
    MUST(cu.cuStreamDestroy_v2(w->stream[i]));
    open_stream(w, i);
}

static void check(stress_worker_t *w, const stress_buffers_t *buffers, stress_lane_t lane) {
    stress_kernel_t kernel = one_in(w, 4) ? CHECK_SLOW : CHECK;
    stress_launch(kernel, buffers, any_delay(w, kernel), lane);
    atomic_fetch_add(&stress_checks, buffers->count);
}

/* ---------------------------------------------------------------- the end of a batch */

/* Frees one buffer. `ordered`: `lane` is ordered behind all work on the memory. */
static void free_buffer(stress_worker_t *w, CUdeviceptr memory, bool async, stress_lane_t lane,
                        bool ordered) {
    bool mixed = ordered && stress_async && stress_options.async;
    if (async ? !one_in(w, 64) : mixed && one_in(w, 8)) {
        MUST(ON_LANE(lane, cuMemFreeAsync, memory, lane.handle));
        return;
    }
    if (async)
        finish_lane(lane); /* cuMemFree does not wait if the memory came from a pool */
    MUST(cu.cuMemFree_v2(memory));
}

/* Checks and frees a batch.  The check often runs on two streams at once.  Plain memory may then be
 * freed without any order between the two. */
static void retire(stress_worker_t *w, batch_t *batch) {
    stress_lane_t last = any_lane(w);
    bool ordered = true;
    wait_for(last, batch->filled);
    if (one_in(w, 4)) {
        stress_lane_t other = any_lane(w);
        wait_for(other, batch->filled);
        check(w, &batch->buffers, other);
        ordered = batch->async || one_in(w, 2);
        if (ordered) {
            record(other, w->order);
            wait_for(last, w->order);
        }
    }
    check(w, &batch->buffers, last);
    for (unsigned k = 0; k < batch->buffers.count; k++)
        free_buffer(w, batch->buffers.at[k], batch->async, last, ordered);
    MUST(cu.cuEventDestroy_v2(batch->filled));
    free(batch);
}

/* ---------------------------------------------------------------- the begin of one */

static void retire_all(stress_worker_t *w) {
    for (unsigned i = 0; i < w->count; i++)
        retire(w, w->live[i]);
    w->count = 0;
}

static CUresult take_once(CUdeviceptr *memory, unsigned words, bool async, stress_lane_t lane) {
    size_t bytes = words * sizeof(uint32_t);
    if (async)
        return ON_LANE(lane, cuMemAllocAsync, memory, bytes, lane.handle);
    return cu.cuMemAlloc_v2(memory, bytes);
}

/* Allocates one buffer.  If memory is short, frees all batches of the thread and tries again. */
static void take(stress_worker_t *w, stress_buffers_t *buffers, bool async, stress_lane_t lane) {
    unsigned k = buffers->count++, words = any_words(w);
    CUresult result = take_once(&buffers->at[k], words, async, lane);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        retire_all(w);
        for (unsigned i = 0; i < w->streams; i++)
            MUST(cu.cuStreamSynchronize(w->stream[i]));
        result = take_once(&buffers->at[k], words, async, lane);
    }
    MUST(result);
    buffers->words[k] = words;
    buffers->owner[k] = atomic_fetch_add(&owners, 1);
}

static bool any_async(stress_worker_t *w) {
    if (!stress_async || !stress_options.async)
        return false;
    return !stress_options.plain || one_in(w, 2);
}

static unsigned any_count(stress_worker_t *w) {
    unsigned count = 1 + below(w, BATCH);
    atomic_fetch_add(&stress_taken, count);
    return count;
}

static batch_t *make(stress_worker_t *w) {
    batch_t *batch = calloc(1, sizeof *batch);
    if (!batch)
        abort();
    MUST(cu.cuEventCreate(&batch->filled, CU_EVENT_DISABLE_TIMING));
    stress_lane_t lane = any_lane(w);
    batch->async = any_async(w);
    for (unsigned left = any_count(w); left; left--)
        take(w, &batch->buffers, batch->async, lane);
    stress_launch(FILL, &batch->buffers, any_delay(w, FILL), lane);
    record(lane, batch->filled);
    return batch;
}

/* ---------------------------------------------------------------- graphs */

/* The origin of a graph's memory.  GRAPH_NODES needs the stream-ordered API. */
typedef enum { BEFORE_CAPTURE, INSIDE_CAPTURE, GRAPH_NODES, SOURCES } source_t;

/* Captures a fill and a check, and launches the graph a few times on random streams.  The graph may
 * still run while it is destroyed and its memory is freed. */
static void run_graph(stress_worker_t *w) {
    stress_lane_t lane = {w->capture, false};
    source_t source = below(w, stress_async && stress_options.async ? SOURCES : GRAPH_NODES);
    stress_buffers_t buffers = {0};
    batch_t *extra[EXTRA];
    CUgraph graph;
    CUgraphExec exec;
    unsigned count = any_count(w), launches = 1 + below(w, 3);
    if (source == BEFORE_CAPTURE)
        while (buffers.count < count)
            take(w, &buffers, false, lane);
    /* Only relaxed mode allows the thread to make calls that are not captured. */
    pthread_rwlock_rdlock(&captures);
    MUST(cu.cuStreamBeginCapture_v2(w->capture, source == INSIDE_CAPTURE
                                                    ? CU_STREAM_CAPTURE_MODE_RELAXED
                                                    : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (unsigned k = buffers.count; k < count; k++) {
        unsigned words = any_words(w);
        MUST(take_once(&buffers.at[k], words, source == GRAPH_NODES, lane));
        buffers.words[k] = words;
        buffers.owner[k] = atomic_fetch_add(&owners, 1);
        buffers.count++;
    }
    for (unsigned i = 0; source == INSIDE_CAPTURE && i < EXTRA; i++)
        extra[i] = make(w);
    stress_launch(FILL, &buffers, any_delay(w, FILL), lane);
    stress_launch(CHECK, &buffers, any_delay(w, CHECK), lane);
    for (unsigned k = 0; source == GRAPH_NODES && k < count; k++)
        MUST(cu.cuMemFreeAsync(buffers.at[k], w->capture));
    MUST(cu.cuStreamEndCapture(w->capture, &graph));
    pthread_rwlock_unlock(&captures);
    for (unsigned i = 0; source == INSIDE_CAPTURE && i < EXTRA; i++)
        retire(w, extra[i]);
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cu.cuGraphDestroy(graph));
    for (unsigned i = 0; i < launches; i++) {
        stress_lane_t on = any_lane(w);
        MUST(ON_LANE(on, cuGraphLaunch, exec, on.handle));
    }
    atomic_fetch_add(&stress_checks, launches * count);
    bool early = one_in(w, 2);
    if (early)
        MUST(cu.cuGraphExecDestroy(exec));
    for (unsigned k = 0; source != GRAPH_NODES && k < count; k++)
        MUST(cu.cuMemFree_v2(buffers.at[k]));
    if (!early)
        MUST(cu.cuGraphExecDestroy(exec));
}

/* ---------------------------------------------------------------- what a thread holds */

static stress_worker_t *open_worker(uint64_t number) {
    stress_worker_t *w = calloc(1, sizeof *w);
    w->random = (stress_options.seed + 1) * 1000003 + number;
    w->streams = stress_options.streams / stress_options.threads;
    w->streams += number < stress_options.streams % stress_options.threads;
    w->streams += !w->streams;
    w->stream = calloc(w->streams, sizeof(CUstream));
    w->live = calloc(stress_options.live, sizeof(batch_t *));
    MUST(cu.cuCtxSetCurrent(stress_context));
    for (unsigned i = 0; i < w->streams; i++)
        open_stream(w, i);
    MUST(cu.cuStreamCreate(&w->capture, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuEventCreate(&w->order, CU_EVENT_DISABLE_TIMING));
    return w;
}

static void close_worker(stress_worker_t *w) {
    retire_all(w);
    for (unsigned i = 0; i < w->streams; i++)
        MUST(cu.cuStreamDestroy_v2(w->stream[i]));
    MUST(cu.cuStreamDestroy_v2(w->capture));
    MUST(cu.cuEventDestroy_v2(w->order));
    free(w->stream);
    free(w->live);
    free(w);
}

/* ---------------------------------------------------------------- one stream at a time */

/* Allocates one or two plain buffers, fills and checks them on one stream, and frees them. */
static void use_once(stress_worker_t *w, unsigned words, stress_lane_t lane,
                     stress_kernel_t kernel) {
    stress_buffers_t buffers = {.count = 1 + below(w, 2)};
    atomic_fetch_add(&stress_taken, buffers.count);
    atomic_fetch_add(&stress_checks, buffers.count);
    for (unsigned k = 0; k < buffers.count; k++) {
        MUST(take_once(&buffers.at[k], words, false, lane));
        buffers.words[k] = words;
        buffers.owner[k] = atomic_fetch_add(&owners, 1);
    }
    bool early = atomic_load(&early_wanted) && one_in(w, 4);
    stress_launch(early ? FILL_EARLY : FILL, &buffers, 0, lane);
    stress_launch(kernel, &buffers, any_delay(w, kernel), lane);
    for (unsigned k = 0; k < buffers.count; k++)
        MUST(cu.cuMemFree_v2(buffers.at[k]));
}

/* Destroys a stream while the longest kernel still uses freed memory on it. */
static void doom_stream(stress_worker_t *w) {
    unsigned i = below(w, w->streams);
    use_once(w, any_words(w), (stress_lane_t){w->stream[i], one_in(w, 2)}, CHECK_STUCK);
    renew_stream(w, i);
}

/* Rounds of one size on one stream.  Each round can reuse the memory of the previous one. */
typedef struct {
    stress_worker_t *w;
    unsigned words, count;
    stress_lane_t lane;
} rounds_t;

static void *do_rounds(void *argument) {
    rounds_t *rounds = argument;
    MUST(cu.cuCtxSetCurrent(stress_context));
    for (unsigned i = 0; i < rounds->count; i++)
        use_once(rounds->w, rounds->words, rounds->lane,
                 one_in(rounds->w, 2) ? CHECK_SLOW : CHECK);
    return NULL;
}

/* Runs the rounds on another thread's default stream, which is independent of this thread's. */
static void do_rounds_elsewhere(rounds_t *rounds) {
    pthread_t thread;
    rounds->lane = (stress_lane_t){one_in(rounds->w, 2) ? NULL : CU_STREAM_PER_THREAD, true};
    if (pthread_create(&thread, NULL, do_rounds, rounds))
        abort();
    pthread_join(thread, NULL);
}

/* Works alone on an idle device, with one stream after the other.  Memory may be reused in the
 * order of the current stream.  The next stream is not part of that order. */
static void work_alone(stress_worker_t *w, unsigned count) {
    rounds_t rounds = {.w = w, .count = count};
    unsigned own = below(w, w->streams);
    bool again = false; /* the next stream is the one made in place of the last */
    pthread_mutex_lock(&turn);
    pthread_rwlock_wrlock(&solo);
    pthread_mutex_unlock(&turn);
    MUST(cu.cuCtxSynchronize());
    rounds.words = any_words(w);
    for (unsigned i = 0; i < SOLO_LANES; i++) {
        unsigned kind = again ? 0 : below(w, 3);
        again = false;
        if (kind == 1) {
            do_rounds_elsewhere(&rounds);
            continue;
        }
        rounds.lane = kind ? default_lane(w) : (stress_lane_t){w->stream[own], one_in(w, 2)};
        do_rounds(&rounds);
        if (!kind && one_in(w, 2)) {
            renew_stream(w, own);
            again = one_in(w, 2);
        } else {
            own = below(w, w->streams);
        }
    }
    pthread_rwlock_unlock(&solo);
}

/* Each try has more rounds than the previous one.  A cache that wrongly relied on one stream's
 * order may need a longer series of calls on one stream before it does so again. */
void stress_begin(void) {
    stress_worker_t *w = open_worker(stress_options.threads + 1);
    atomic_store(&early_wanted, one_in(w, 2));
    for (unsigned count = SOLO_ROUNDS; count <= SOLO_MOST && stress_options.plain; count *= 4)
        work_alone(w, count);
    atomic_store(&early_wanted, true);
    for (unsigned i = 0; i < SOLO_LANES && stress_options.plain; i++)
        work_alone(w, SOLO_MOST);
    close_worker(w);
}

/* Synchronises the context, unless a thread captures at this moment. */
static void synchronise(void) {
    if (pthread_rwlock_trywrlock(&captures))
        return;
    MUST(cu.cuCtxSynchronize());
    pthread_rwlock_unlock(&captures);
}

/* ---------------------------------------------------------------- a thread */

/* Makes a batch.  If the thread has enough batches, first retires one: a random one of its own, or
 * one from a mailbox, in exchange. */
static void step(stress_worker_t *w) {
    if (w->count == stress_options.live) {
        unsigned i = below(w, w->count);
        batch_t *batch = w->live[i];
        w->live[i] = w->live[--w->count];
        if (one_in(w, 4))
            batch = atomic_exchange(&mailbox[below(w, MAILBOXES)], batch);
        if (batch)
            retire(w, batch);
    }
    batch_t *made = make(w); /* before the next line, because it may empty the list */
    w->live[w->count++] = made;
    if (stress_graphs && one_in(w, 64))
        run_graph(w);
    if (one_in(w, 64))
        finish_lane(any_lane(w));
    if (one_in(w, 128))
        renew_stream(w, below(w, w->streams));
    if (stress_options.plain && one_in(w, 128))
        doom_stream(w);
    if (one_in(w, 128))
        synchronise();
}

void *stress_work(void *number) {
    stress_worker_t *w = open_worker((uint64_t)(uintptr_t)number);
    double end = stress_clock() + stress_options.seconds;
    while (atomic_load(&stress_taken) < stress_options.ops &&
           (!stress_options.seconds || stress_clock() < end)) {
        pthread_mutex_lock(&turn);
        pthread_rwlock_rdlock(&solo);
        pthread_mutex_unlock(&turn);
        step(w);
        pthread_rwlock_unlock(&solo);
        if (stress_options.plain && one_in(w, 512))
            work_alone(w, SOLO_ROUNDS);
    }
    close_worker(w);
    return NULL;
}

void stress_finish(void) {
    stress_worker_t *w = open_worker(stress_options.threads);
    for (unsigned i = 0; i < MAILBOXES; i++) {
        batch_t *batch = atomic_exchange(&mailbox[i], NULL);
        if (batch)
            retire(w, batch);
    }
    close_worker(w);
}
