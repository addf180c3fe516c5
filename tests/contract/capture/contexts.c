/* Captures and contexts. A capture holds no memory of contexts that take no part in it. The library makes no
 * call in a context that takes part if the call would spoil the capture.
 *
 * usage: contexts [CASE]
 *
 * Each case runs in a child process, with the second context on another device, and with two contexts on one.
 * It runs on the simulated device, bare and under the library. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)
enum { LATE_NS = 2000000, BYTES = 4096, VALUE = 9 };

/* A stream of `theirs` captures; the work is in `ours`. */
static CUcontext theirs, ours;
static bool one_device;
static CUstream captured, stream;
static CUdeviceptr their_word, word;
static CUfunction store;
static volatile unsigned *result;

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

static void start(void) {
    static const unsigned short sizes[] = {8, 4};
    void *host;
    theirs = test_device(0);
    captured = test_stream();
    their_word = take(BYTES);
    if (one_device)
        MUST(cuCtxCreate_v2(&ours, 0, 0));
    else
        ours = test_device(1);
    stream = test_stream();
    word = take(BYTES);
    store = test_kernel(&(simcuda_kernel_t){.name = "store",
                                            .fn = test_store,
                                            .duration_ns = LATE_NS,
                                            .param_count = 2,
                                            .param_bytes = sizes});
    MUST(cuMemHostAlloc(&host, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    result = memset(host, 0, BYTES);
}

/* --- captures --- */

static void begin(CUstreamCaptureMode mode) {
    MUST(cuCtxSetCurrent(theirs));
    MUST(cuStreamBeginCapture_v2(captured, mode));
    MUST(cuMemsetD8Async(their_word, 1, BYTES, captured));
    MUST(cuCtxSetCurrent(ours));
}

/* Lets `to` join the capture of `from`. */
static void join(CUcontext owner, CUstream from, CUstream to) {
    CUevent event;
    MUST(cuCtxSetCurrent(owner));
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventRecord(event, from));
    MUST(cuStreamWaitEvent(to, event, 0));
    MUST(cuEventDestroy_v2(event));
}

/* Ends the capture, which must be valid, and launches its graph, which must find its memory. */
static void expect_whole(bool joined) {
    CUgraph graph = NULL;
    CUgraphExec exec;
    MUST(cuCtxSetCurrent(theirs));
    GIVES(cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, captured));
    MUST(cuStreamSynchronize(captured));
    EXPECT(*(const unsigned char *)simcuda_host(their_word) == 1);
    EXPECT(!joined || *(const unsigned char *)simcuda_host(word) == 2);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuCtxSetCurrent(ours));
}

/* --- effects of a free --- */

static void write_late(unsigned value) {
    void *params[] = {&word, &value};
    MUST(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, word, 4, stream));
}

static void expect_awaited(void) {
    CUdeviceptr other = take(MIB / 4);
    write_late(VALUE);
    MUST(cuMemFree_v2(other));
    if (*result != VALUE)
        test_stop(TEST_WRONG, "%u after the free, not %d", *result, VALUE);
}

/* The program takes a free for a barrier. */
static void barrier(void) {
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    expect_awaited();
    expect_whole(false);
}

/* The context took part in captures that are over. */
static void barrier_afterwards(void) {
    CUgraph graph;
    CUstream second = test_stream();
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(word, 2, BYTES, stream));
    join(ours, stream, second);
    MUST(cuMemsetD8Async(word + 1, 2, 1, second));
    join(ours, second, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    join(ours, second, stream); /* an event of no capture */
    expect_awaited();
    expect_whole(false);
}

/* A stream outside the capture waits. */
static void barrier_after_wait(void) {
    CUstream second = test_stream();
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    MUST(cuMemsetD8Async(word, 2, BYTES, second));
    join(ours, second, stream);
    GIVES(cuStreamWaitEvent(stream, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
    expect_awaited();
    expect_whole(false);
}

/* --- memory --- */

/* Requests together more than the device has: freed memory serves again during a capture. With two contexts
 * on one device either context may use the other's memory. */
static void reuse(void) {
    enum { ROUNDS = 40 };
    if (one_device)
        return;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr address = take(20 * MIB);
        MUST(cuMemsetD8Async(address, 3, 20 * MIB, stream));
        MUST(cuMemFree_v2(address));
    }
    EXPECT(test_figure("capture_deferred_blocks") == 0);
    if (test_library_is_here())
        EXPECT(test_figure("capture_deferred_frees") == 0);
    expect_whole(false);
}

/* The memory for a request lies idle in pieces, which go back to the device. */
static void pieces(void) {
    enum { PIECES = 10 };
    CUdeviceptr piece[PIECES];
    if (one_device)
        return;
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < PIECES; i++) {
        piece[i] = take(20 * MIB);
        MUST(cuMemsetD8Async(piece[i], 3, 20 * MIB, stream));
    }
    for (int i = 0; i < PIECES; i += 2)
        MUST(cuMemFree_v2(piece[i]));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemFree_v2(take(90 * MIB)));
    expect_whole(false);
}

/* --- a context that joined --- */

static void *churn(void *arg) {
    enum { ROUNDS = 60 };
    int (*empty_cache)(void);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream own;
    (void)arg;
    MUST(cuCtxSetCurrent(ours));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    own = test_stream();
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr address = take(MIB / 64 << i % 4);
        MUST(cuMemsetD8Async(address, 4, MIB / 64 << i % 4, own));
        MUST(cuMemcpyDtoHAsync_v2((void *)(result + 1), address, 4, own));
        MUST(cuMemFree_v2(address));
        if (i % 8 == 0 && test_find("accel_empty_cache", &empty_cache))
            empty_cache();
    }
    return NULL;
}

static void by_another_thread(void) {
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, churn, NULL) && !pthread_join(thread, NULL));
}

/* Fences in it would spoil the capture, and so would a wait. */
static void joined(CUstreamCaptureMode mode) {
    begin(mode);
    join(theirs, captured, stream);
    MUST(cuCtxSetCurrent(ours));
    MUST(cuMemsetD8Async(word, 2, BYTES, stream));
    by_another_thread();
    join(ours, stream, captured);
    by_another_thread();
    expect_whole(true);
    MUST(cuCtxSetCurrent(ours));
    expect_awaited(); /* the capture is over */
}

static void joined_relaxed(void) {
    joined(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void joined_thread_local(void) {
    joined(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

/* Memory that captured work of a stream that joined names stays the graph's. */
static void joined_memory(void) {
    enum { BLOCKS = 8 };
    CUdeviceptr named[BLOCKS], other[BLOCKS];
    CUgraph graph;
    CUgraphExec exec;
    for (int i = 0; i < BLOCKS; i++)
        named[i] = take(MIB);
    begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    join(theirs, captured, stream);
    MUST(cuCtxSetCurrent(ours));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemsetD8Async(named[i], 5, MIB, stream));
        MUST(cuMemFree_v2(named[i])); /* while its context captures */
    }
    join(ours, stream, captured);
    MUST(cuCtxSetCurrent(theirs));
    MUST(cuStreamEndCapture(captured, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuCtxSetCurrent(ours));
    for (int i = 0; i < BLOCKS; i++) {
        other[i] = take(MIB);
        for (int k = 0; k < BLOCKS && test_library_is_here(); k++)
            EXPECT(other[i] != named[k]);
    }
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

/* --- many threads --- */

static _Atomic bool over;

static unsigned next(unsigned *seed) {
    return *seed = *seed * 1103515245u + 12345u, *seed >> 16;
}

/* Runs captures in one of two contexts, without a defined end. Every second one includes the other context's
 * stream. */
static void *captures(void *arg) {
    enum { ROUNDS = 60 };
    unsigned seed = *(unsigned *)arg;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CUcontext home = seed % 2 ? ours : theirs, away = seed % 2 ? theirs : ours;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuCtxSetCurrent(away));
    CUstream far = test_stream();
    CUdeviceptr far_memory = take(BYTES);
    MUST(cuCtxSetCurrent(home));
    CUstream near = test_stream();
    CUdeviceptr near_memory = take(BYTES);
    for (int i = 0; i < ROUNDS; i++) {
        CUgraph graph = NULL;
        bool joins = next(&seed) % 2;
        MUST(cuStreamBeginCapture_v2(near, next(&seed) % 2 ? CU_STREAM_CAPTURE_MODE_RELAXED
                                                           : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        MUST(cuMemsetD8Async(near_memory, 1, BYTES, near));
        if (joins) {
            join(home, near, far);
            MUST(cuCtxSetCurrent(away));
            MUST(cuMemsetD8Async(far_memory, 1, BYTES, far));
            usleep(next(&seed) % 300);
            join(away, far, near);
            MUST(cuCtxSetCurrent(home));
        }
        usleep(next(&seed) % 300);
        GIVES(cuStreamEndCapture(near, &graph), CUDA_SUCCESS);
        MUST(cuGraphDestroy(graph));
    }
    return NULL;
}

static void *frees(void *arg) {
    unsigned seed = *(unsigned *)arg;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuCtxSetCurrent(seed % 2 ? ours : theirs));
    CUstream own = test_stream();
    void *host;
    MUST(cuMemHostAlloc(&host, BYTES, CU_MEMHOSTALLOC_PORTABLE));
    while (!atomic_load(&over)) {
        size_t bytes = (size_t)1 << (9 + next(&seed) % 12);
        CUdeviceptr address = take(bytes);
        MUST(cuMemsetD8Async(address, 6, bytes, own));
        if (next(&seed) % 4 == 0)
            MUST(cuMemcpyDtoHAsync_v2(host, address, 4, own));
        MUST(cuMemFree_v2(address));
        if (next(&seed) % 16 == 0)
            MUST(cuStreamSynchronize(own));
    }
    return NULL;
}

static void many(void) {
    enum { KIND = 3 };
    pthread_t capturing[KIND], freeing[KIND];
    unsigned seed[2 * KIND];
    for (unsigned i = 0; i < KIND; i++) {
        seed[i] = i + 1;
        seed[KIND + i] = i + 1;
        NEED(!pthread_create(&freeing[i], NULL, frees, &seed[KIND + i]));
        NEED(!pthread_create(&capturing[i], NULL, captures, &seed[i]));
    }
    for (int i = 0; i < KIND; i++)
        NEED(!pthread_join(capturing[i], NULL));
    atomic_store(&over, true);
    for (int i = 0; i < KIND; i++)
        NEED(!pthread_join(freeing[i], NULL));
    test_library_agrees();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"barrier", barrier},
             {"barrier_afterwards", barrier_afterwards},
             {"barrier_after_wait", barrier_after_wait},
             {"reuse", reuse},
             {"pieces", pieces},
             {"joined_relaxed", joined_relaxed},
             {"joined_thread_local", joined_thread_local},
             {"joined_memory", joined_memory},
             {"many", many}};

static int run(size_t i) {
    test_title = cases[i].name;
    start();
    cases[i].run();
    MUST(cuCtxSynchronize());
    EXPECT(simcuda_race_reports() == 0);
    printf("ok %s, %s\n", test_title, one_device ? "one device" : "two devices");
    return TEST_GOOD;
}

int main(int argc, char **argv) {
    int worst = argc > 1 ? TEST_USAGE : TEST_GOOD, status;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i / 2].name))
            continue;
        one_device = i % 2;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            exit(run(i / 2));
        NEED(child > 0 && waitpid(child, &status, 0) == child);
        worst = WIFEXITED(status) ? WEXITSTATUS(status) : TEST_BROKEN;
        if (worst)
            break;
    }
    return worst;
}
