/* Requests for memory during a capture, while the library holds the device's memory idle in pieces. The
 * request succeeds as with the driver, and the capture stays valid.
 *
 * usage: beside [CASE]
 *
 * Runs on the simulated device, bare and under the library: `rules` must give the same answers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { PIECES = 12, BUFFER = 4096 };

static CUcontext primary;
static CUstream captured, beside;
static CUdeviceptr piece[PIECES], buffer;
static size_t part; /* bytes of a piece */

/* Allocates all memory of the device, in pieces. */
static void take_all(void) {
    int (*empty_cache)(void);
    size_t total;
    if (test_find("accel_empty_cache", &empty_cache)) /* the rest would hold several pieces */
        MUST(empty_cache());
    MUST(cuMemAlloc_v2(&buffer, BUFFER));
    MUST(cuMemGetInfo_v2(&part, &total));
    part = part / (PIECES + 1) & ~(size_t)0x1fffff;
    for (int i = 0; i < PIECES; i++)
        MUST(cuMemAlloc_v2(&piece[i], part));
}

static void give(int first, int end) {
    for (int i = first; i < end; i++)
        MUST(cuMemFree_v2(piece[i]));
}

/* Frees every second piece, so no two free pieces are adjacent. */
static void give_half(void) {
    for (int i = 0; i < PIECES; i += 2)
        MUST(cuMemFree_v2(piece[i]));
}

/* --- requests --- */

typedef enum { PLAIN, ORDERED, PHYSICAL, ARRAY, REQUESTS } request_t;

typedef struct {
    request_t what;
    CUstreamCaptureMode mode; /* capture mode of the requesting thread */
    CUdeviceptr address;
    CUmemGenericAllocationHandle page;
    CUarray array;
} ask_t;

/* Requests more than any piece, and less than the free memory. */
static CUresult request(ask_t *ask) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUDA_ARRAY_DESCRIPTOR rows = {part * 5 / 1024, 1024, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    switch (ask->what) {
    case PLAIN:
        return cuMemAlloc_v2(&ask->address, part * 5);
    case ORDERED:
        return cuMemAllocAsync(&ask->address, part * 5, beside);
    case PHYSICAL:
        return cuMemCreate(&ask->page, part * 5, &prop, 0);
    default:
        return cuArrayCreate_v2(&ask->array, &rows);
    }
}

static void give_up(const ask_t *ask) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    if (ask->what == PLAIN)
        MUST(cuMemFree_v2(ask->address));
    if (ask->what == ORDERED)
        MUST(cuMemFreeAsync(ask->address, beside));
    if (ask->what == PHYSICAL)
        MUST(cuMemRelease(ask->page));
    if (ask->what == ARRAY)
        MUST(cuArrayDestroy(ask->array));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
}

static void *asks(void *arg) {
    ask_t *ask = arg;
    CUstreamCaptureMode mode = ask->mode;
    MUST(cuCtxSetCurrent(primary));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    CUresult result = request(ask);
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    return (void *)(uintptr_t)result;
}

static CUresult of_another_thread(ask_t *ask) {
    pthread_t thread;
    void *result;
    NEED(!pthread_create(&thread, NULL, asks, ask) && !pthread_join(thread, &result));
    return (CUresult)(uintptr_t)result;
}

/* --- captures --- */

static void begin(CUstreamCaptureMode mode) {
    MUST(cuStreamBeginCapture_v2(captured, mode));
    MUST(cuMemsetD8Async(buffer, 1, BUFFER, captured));
}

/* Ends the capture, which must be valid, and launches its graph, which must find its memory. */
static void expect_whole(void) {
    CUgraph graph = NULL;
    CUgraphExec exec;
    MUST(cuMemsetD8Async(buffer + BUFFER / 2, 2, BUFFER / 2, captured));
    GIVES(cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, captured));
    MUST(cuStreamSynchronize(captured));
    const unsigned char *memory = simcuda_host(buffer);
    EXPECT(memory[0] == 1 && memory[BUFFER - 1] == 2);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static bool forbids(CUstreamCaptureMode capture, CUstreamCaptureMode thread, bool same) {
    if (thread == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return same ? capture != CU_STREAM_CAPTURE_MODE_RELAXED
                : thread == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      capture == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/* Checks the rules of cuda.h for CUstreamCaptureMode, for a mode of the capture and a mode of the
 * requesting thread. */
static void rule(CUstreamCaptureMode capture, CUstreamCaptureMode thread, bool same,
                 request_t what) {
    ask_t ask = {.what = what, .mode = thread};
    CUgraph graph;
    bool refused = forbids(capture, thread, same) && (what == PLAIN || what == ARRAY);
    take_all();
    give_half();
    begin(capture);
    simcuda_reset_calls();
    CUresult result =
        same ? (CUresult)(uintptr_t)asks(&ask) : of_another_thread(&ask);
    if (result != (refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS))
        test_stop(TEST_WRONG, "capture %d, thread %d, %s thread, request %d: %d", capture, thread,
                  same ? "same" : "other", what, result);
    if (refused) {
        EXPECT(!simcuda_calls("cuMemFree_v2") && !simcuda_calls("cuMemUnmap"));
        GIVES(cuStreamEndCapture(captured, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    } else {
        expect_whole();
        give_up(&ask);
    }
    for (int i = 1; i < PIECES; i += 2)
        give(i, i + 1);
    MUST(cuMemFree_v2(buffer));
    MUST(cuCtxSynchronize());
}

static void rules(void) {
    for (int capture = 0; capture < 3; capture++)
        for (int thread = 0; thread < 3; thread++)
            for (int same = 0; same < 2; same++)
                for (int what = 0; what < REQUESTS; what++)
                    rule((CUstreamCaptureMode)capture, (CUstreamCaptureMode)thread, same,
                         (request_t)what);
}

/* Work from before the capture still uses the freed memory, so the request waits for it. */
static void pending(void) {
    ask_t ask = {.what = PLAIN};
    take_all();
    for (int i = 0; i < PIECES; i++)
        MUST(cuMemsetD8Async(piece[i], 7, part, beside));
    MUST(cuMemsetD8Async(buffer, 7, BUFFER, captured));
    give_half();
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    GIVES(of_another_thread(&ask), CUDA_SUCCESS);
    expect_whole();
}

/* Memory that the capture names stays the graph's. */
static void named(void) {
    ask_t ask = {.what = PLAIN};
    CUgraph graph;
    CUgraphExec exec;
    take_all();
    give(0, 6);
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 6; i < PIECES; i++)
        MUST(cuMemsetD8Async(piece[i], (unsigned char)i, part, captured));
    give(6, PIECES);
    GIVES(of_another_thread(&ask), CUDA_SUCCESS);
    ask_t more = ask;
    GIVES(of_another_thread(&more), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuStreamEndCapture(captured, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuMemsetD8Async(ask.address, 99, part * 5, beside));
    MUST(cuGraphLaunch(exec, captured));
    MUST(cuCtxSynchronize());
    const unsigned char *memory = simcuda_host(ask.address);
    EXPECT(memory[0] == 99 && memory[part * 5 - 1] == 99);
    for (int i = 6; i < PIECES; i++)
        EXPECT(*(const unsigned char *)simcuda_host(piece[i]) == i);
}

/* Work that came after the capture began never ends by itself: the driver's free would wait for it, and
 * the request does not. */
static void held(void) {
    ask_t ask = {.what = PLAIN};
    uint32_t *flag;
    CUdeviceptr word;
    MUST(cuMemHostAlloc((void **)&flag, sizeof *flag, CU_MEMHOSTALLOC_DEVICEMAP));
    MUST(cuMemHostGetDevicePointer_v2(&word, flag, 0));
    *flag = 0;
    take_all();
    give_half();
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    MUST(cuStreamWaitValue32_v2(beside, word, 1, 1));
    CUresult result = of_another_thread(&ask);
    EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    *flag = 1;
    expect_whole();
    MUST(cuStreamSynchronize(beside));
}

/* Two captures overlap. Memory freed before the first one is idle, and so is memory that the second one
 * left. */
static void overlapping(void) {
    ask_t ask = {.what = PLAIN};
    CUstream second = test_stream();
    CUgraph graph;
    take_all();
    give_half();
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    MUST(cuStreamBeginCapture_v2(second, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(buffer, 5, BUFFER, second));
    GIVES(of_another_thread(&ask), CUDA_SUCCESS);
    MUST(cuStreamEndCapture(second, &graph));
    MUST(cuGraphDestroy(graph));
    give_up(&ask);
    ask.what = ORDERED;
    GIVES(of_another_thread(&ask), CUDA_SUCCESS);
    expect_whole();
}

/* Requests follow one another, each larger than the last. Freed memory without submitted work goes
 * back. */
static void growing(void) {
    take_all();
    give_half();
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (size_t parts = 3; parts <= PIECES / 2; parts++) {
        CUdeviceptr address;
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        MUST(cuThreadExchangeStreamCaptureMode(&mode));
        GIVES(cuMemAlloc_v2(&address, part * parts), CUDA_SUCCESS);
        MUST(cuMemFree_v2(address));
        MUST(cuThreadExchangeStreamCaptureMode(&mode));
    }
    expect_whole();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"rules", rules},
             {"pending", pending},
             {"named", named},
             {"held", held},
             {"overlapping", overlapping},
             {"growing", growing}};

static int run(size_t i) {
    test_title = cases[i].name;
    primary = test_device(0);
    captured = test_stream();
    beside = test_stream();
    cases[i].run();
    MUST(cuCtxSynchronize());
    EXPECT(simcuda_race_reports() == 0);
    printf("ok %s\n", test_title);
    return TEST_GOOD;
}

int main(int argc, char **argv) {
    int worst = argc > 1 ? TEST_USAGE : TEST_GOOD, status;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name))
            continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            exit(run(i));
        NEED(child > 0 && waitpid(child, &status, 0) == child);
        worst = WIFEXITED(status) ? WEXITSTATUS(status) : TEST_BROKEN;
        if (worst)
            break;
    }
    return worst;
}
