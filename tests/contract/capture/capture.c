/* Memory that a program frees while a stream captures. Each launch of the graph finds its memory as it left
 * it. No other request gets that memory before the last graph has gone; then it comes back.
 *
 * usage: capture [CASE]
 *
 * Runs under the library on the simulated device. A `fill` kernel writes one value to a whole buffer;
 * another owner of the graph's memory would overwrite these values. The program tells the race detector the
 * lifetimes as the library should see them: a graph owns its memory until the graph has gone. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { BYTES = 300 << 10, OTHERS = 40, MOST = 1000, LAUNCHES = 5 };

static CUcontext primary;
static CUstream stream, beside; /* non-blocking; `stream` captures, `beside` has other owners' work */
static CUfunction fill;

static void on_fill(const simcuda_launch_t *launch) {
    CUdeviceptr address;
    unsigned value;
    memcpy(&address, launch->params[0], sizeof address);
    memcpy(&value, launch->params[1], sizeof value);
    unsigned char *memory = simcuda_host(address);
    if (memory)
        memset(memory, (int)value, BYTES);
}

static CUdeviceptr alloc(void) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc_v2(&pointer, BYTES));
    simcuda_owner_begin(pointer, BYTES);
    return pointer;
}

static void give(CUdeviceptr pointer) {
    simcuda_owner_end(pointer);
    MUST(cuMemFree_v2(pointer));
}

/* Frees memory that captured work uses: it is the graph's until graph_gone. */
static void leave_to_graph(CUdeviceptr pointer) {
    MUST(cuMemFree_v2(pointer));
}

/* Tells the race detector the end of the graph's ownership. Called before the last graph is destroyed. */
static void graph_gone(CUdeviceptr pointer) {
    simcuda_owner_end(pointer);
}

static void launch(CUstream on, CUdeviceptr buffer, unsigned value) {
    void *params[] = {&buffer, &value};
    MUST(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, on, params, NULL));
}

static bool all_are(CUdeviceptr buffer, unsigned value) {
    const unsigned char *memory = simcuda_host(buffer);
    for (size_t i = 0; i < BYTES; i++)
        if (memory[i] != value)
            return false;
    return true;
}

/* --- other owners of the memory --- */

/* Returns true if the blocks overlap: a segment that went back to the driver comes again with other places
 * for blocks. */
static bool overlap(CUdeviceptr a, CUdeviceptr b) {
    return a < b + BYTES && b < a + BYTES;
}

/* Returns true if the memory is among the next `most` blocks of requests, or among all available memory. */
static bool given_out(CUdeviceptr memory, int most) {
    static CUdeviceptr others[MOST];
    int count = 0;
    bool got = false;
    while (count < most && !got && !cuMemAlloc_v2(&others[count], BYTES)) {
        simcuda_owner_begin(others[count], BYTES);
        got = overlap(others[count++], memory);
    }
    while (count)
        give(others[--count]);
    return got;
}

/* Allocates blocks for others, writes to them, and checks that no one else wrote to them while `exec` (if
 * any) ran. Returns true if one of the blocks was `memory`. */
static bool others_get(CUdeviceptr memory, CUgraphExec exec) {
    CUdeviceptr others[OTHERS];
    bool got = false;
    for (int i = 0; i < OTHERS; i++) {
        others[i] = alloc();
        got = got || overlap(others[i], memory);
        launch(beside, others[i], (unsigned)i + 1);
    }
    MUST(cuStreamSynchronize(beside));
    for (int i = 0; exec && i < LAUNCHES; i++) {
        MUST(cuGraphLaunch(exec, stream));
        MUST(cuStreamSynchronize(stream));
    }
    for (int i = 0; i < OTHERS; i++)
        EXPECT(all_are(others[i], (unsigned)i + 1));
    for (int i = 0; i < OTHERS; i++)
        give(others[i]);
    return got || given_out(memory, MOST);
}

/* Checks that frees are fenced or awaited before memory runs out: the library must not believe that a
 * capture goes on. */
static void expect_no_capture(void) {
    CUdeviceptr buffer = alloc(), other = alloc();
    launch(beside, other, 1);
    launch(stream, buffer, 1);
    give(buffer);
    launch(beside, other, 1);
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamSynchronize(beside));
    EXPECT(given_out(buffer, MOST));
    give(other);
}

/* Returns true if a request gets the memory again. Pre: no graph and no capture names it. */
static bool comes_back(CUdeviceptr memory) {
    MUST(cuCtxSynchronize());
    return others_get(memory, NULL);
}

/* --- captures --- */

static void begin(void) {
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static CUgraph end(void) {
    CUgraph graph;
    MUST(cuStreamEndCapture(stream, &graph));
    return graph;
}

static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* A graph that writes to memory which was freed while it was captured. */
static CUgraph freed_inside(CUdeviceptr *memory) {
    *memory = alloc();
    begin();
    launch(stream, *memory, 99);
    leave_to_graph(*memory);
    return end();
}

static void inside(void) {
    CUdeviceptr memory;
    CUgraph graph = freed_inside(&memory);
    CUgraphExec exec = instantiate(graph);
    EXPECT(!others_get(memory, exec));
    EXPECT(all_are(memory, 99));
    MUST(cuGraphExecDestroy(exec));
    EXPECT(!others_get(memory, NULL)); /* it may be instantiated again */
    graph_gone(memory);
    MUST(cuGraphDestroy(graph));
    EXPECT(comes_back(memory));
}

static void allocated_inside(void) {
    begin();
    CUdeviceptr memory = alloc();
    launch(stream, memory, 99);
    leave_to_graph(memory);
    EXPECT(alloc() != memory);
    CUgraph graph = end();
    CUgraphExec exec = instantiate(graph);
    EXPECT(!others_get(memory, exec));
    MUST(cuGraphExecDestroy(exec));
    graph_gone(memory);
    MUST(cuGraphDestroy(graph));
    EXPECT(comes_back(memory));
}

/* Memory freed after the capture is an ordinary free: the program may not launch the graph any more. */
static void freed_after(void) {
    CUdeviceptr memory = alloc();
    begin();
    launch(stream, memory, 99);
    CUgraph graph = end();
    give(memory);
    EXPECT(comes_back(memory));
    MUST(cuGraphDestroy(graph));
}

static void exec_outlives(void) {
    CUdeviceptr memory;
    CUgraph graph = freed_inside(&memory);
    CUgraphExec exec = instantiate(graph), second = instantiate(graph);
    MUST(cuGraphDestroy(graph));
    EXPECT(!others_get(memory, exec));
    MUST(cuGraphExecDestroy(exec));
    EXPECT(!others_get(memory, second));
    graph_gone(memory);
    MUST(cuGraphExecDestroy(second));
    EXPECT(comes_back(memory));
}

/* The last launch may still run when the program destroys its graph. */
static void destroyed_while_running(void) {
    CUdeviceptr memory;
    CUgraph graph = freed_inside(&memory);
    CUgraphExec exec = instantiate(graph);
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphLaunch(exec, stream));
    graph_gone(memory);
    MUST(cuGraphExecDestroy(exec));
    others_get(memory, NULL);
    EXPECT(comes_back(memory));
}

static void cloned(void) {
    CUdeviceptr memory;
    CUgraph graph = freed_inside(&memory), clone;
    MUST(cuGraphClone(&clone, graph));
    MUST(cuGraphDestroy(graph));
    CUgraphExec exec = instantiate(clone);
    EXPECT(!others_get(memory, exec));
    MUST(cuGraphDestroy(clone));
    EXPECT(!others_get(memory, exec));
    graph_gone(memory);
    MUST(cuGraphExecDestroy(exec));
    EXPECT(comes_back(memory));
}

static void child(void) {
    CUdeviceptr memory;
    CUgraph graph = freed_inside(&memory), parent;
    CUgraphNode node;
    MUST(cuGraphCreate(&parent, 0));
    MUST(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
    MUST(cuGraphDestroy(graph));
    CUgraphExec exec = instantiate(parent);
    MUST(cuGraphDestroy(parent));
    EXPECT(!others_get(memory, exec));
    graph_gone(memory);
    MUST(cuGraphExecDestroy(exec));
    EXPECT(comes_back(memory));
}

/* A launch into a capture makes the graph a child of what is captured. */
static void captured_launch(void) {
    CUdeviceptr memory;
    CUgraph graph = freed_inside(&memory);
    CUgraphExec exec = instantiate(graph);
    begin();
    MUST(cuGraphLaunch(exec, stream));
    CUgraph outer = end();
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphExecDestroy(exec));
    exec = instantiate(outer);
    MUST(cuGraphDestroy(outer));
    EXPECT(!others_get(memory, exec));
    graph_gone(memory);
    MUST(cuGraphExecDestroy(exec));
    EXPECT(comes_back(memory));
}

static void updated(void) {
    CUdeviceptr memory[2];
    CUgraph graph[2] = {freed_inside(&memory[0]), freed_inside(&memory[1])};
    CUgraphExec exec = instantiate(graph[0]);
    CUgraphExecUpdateResultInfo info;
    MUST(cuGraphDestroy(graph[0]));
    EXPECT(!others_get(memory[0], exec));
    graph_gone(memory[0]);
    MUST(cuGraphExecUpdate_v2(exec, graph[1], &info));
    MUST(cuCtxSynchronize());
    EXPECT(others_get(memory[0], exec));
    MUST(cuGraphDestroy(graph[1]));
    EXPECT(!others_get(memory[1], exec));
    graph_gone(memory[1]);
    MUST(cuGraphExecDestroy(exec));
    EXPECT(comes_back(memory[1]));
}

static void into_a_graph(void) {
    CUgraph graph, same;
    CUdeviceptr memory[2];
    MUST(cuGraphCreate(&graph, 0));
    for (int i = 0; i < 2; i++) {
        memory[i] = alloc();
        MUST(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0,
                                         CU_STREAM_CAPTURE_MODE_RELAXED));
        launch(stream, memory[i], 99);
        leave_to_graph(memory[i]);
        MUST(cuStreamEndCapture(stream, &same));
        EXPECT(same == graph);
    }
    CUgraphExec exec = instantiate(graph);
    MUST(cuGraphDestroy(graph));
    for (int i = 0; i < 2; i++)
        EXPECT(!others_get(memory[i], exec));
    for (int i = 0; i < 2; i++)
        graph_gone(memory[i]);
    MUST(cuGraphExecDestroy(exec));
    for (int i = 0; i < 2; i++)
        EXPECT(comes_back(memory[i]));
}

static void *free_it(void *arg) {
    MUST(cuCtxSetCurrent(primary));
    leave_to_graph(*(CUdeviceptr *)arg);
    return NULL;
}

static void in_a_thread(void *(*run)(void *), void *arg) {
    pthread_t thread;
    EXPECT(!pthread_create(&thread, NULL, run, arg));
    pthread_join(thread, NULL);
}

static void freed_by_a_thread(void) {
    CUdeviceptr memory = alloc();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(stream, memory, 99);
    in_a_thread(free_it, &memory);
    CUgraph graph = end();
    CUgraphExec exec = instantiate(graph);
    EXPECT(!others_get(memory, exec));
    MUST(cuGraphDestroy(graph));
    graph_gone(memory);
    MUST(cuGraphExecDestroy(exec));
    EXPECT(comes_back(memory));
}

/* --- captures that yield no graph, and captures that end elsewhere --- */

static void spoilt(void) {
    CUdeviceptr memory = alloc();
    CUgraph graph = NULL;
    begin();
    launch(stream, memory, 99);
    leave_to_graph(memory);
    EXPECT(!others_get(memory, NULL));
    EXPECT(cuStreamSynchronize(stream)); /* forbidden: invalidates */
    graph_gone(memory);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(comes_back(memory));
    expect_no_capture();
}

/* The library cannot follow copies of a graph inside a node. From then on memory held by a capture never
 * comes back, except if no graph came of the capture. */
static void inner_graph_seen(void) {
    CUdeviceptr memory;
    CUgraph graph = freed_inside(&memory), parent, inner, copy;
    CUgraphNode node;
    MUST(cuGraphCreate(&parent, 0));
    MUST(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
    MUST(cuGraphChildGraphNodeGetGraph(node, &inner));
    MUST(cuGraphClone(&copy, inner));
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphDestroy(parent));
    CUgraphExec exec = instantiate(copy);
    EXPECT(!others_get(memory, exec));
    MUST(cuGraphExecDestroy(exec));
    graph_gone(memory);
    MUST(cuGraphDestroy(copy));
    EXPECT(!comes_back(memory));
    spoilt();
}

static void stream_destroyed(void) {
    CUdeviceptr memory = alloc();
    CUstream other;
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(other, memory, 99);
    leave_to_graph(memory);
    graph_gone(memory);
    MUST(cuStreamDestroy_v2(other));
    EXPECT(comes_back(memory));
    expect_no_capture();
}

static void many_streams_destroyed(void) {
    enum { MANY = 200 };
    CUstream many[MANY];
    for (int i = 0; i < MANY; i++) {
        MUST(cuStreamCreate(&many[i], CU_STREAM_NON_BLOCKING));
        MUST(cuStreamBeginCapture_v2(many[i], CU_STREAM_CAPTURE_MODE_RELAXED));
    }
    for (int i = 0; i < MANY; i++)
        MUST(cuStreamDestroy_v2(many[i]));
    expect_no_capture();
}

static void *end_it(void *arg) {
    MUST(cuCtxSetCurrent(primary));
    *(CUgraph *)arg = end();
    return NULL;
}

static void ended_by_a_thread(void) {
    CUdeviceptr memory = alloc();
    CUgraph graph;
    begin();
    launch(stream, memory, 99);
    leave_to_graph(memory);
    in_a_thread(end_it, &graph);
    CUgraphExec exec = instantiate(graph);
    EXPECT(!others_get(memory, exec));
    MUST(cuGraphDestroy(graph));
    graph_gone(memory);
    MUST(cuGraphExecDestroy(exec));
    EXPECT(comes_back(memory));
    expect_no_capture();
}

static void *end_elsewhere(void *arg) {
    CUgraph graph = NULL;
    (void)arg;
    MUST(cuCtxSetCurrent(primary));
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    return NULL;
}

/* If the driver refuses the end of a capture, the capture goes on. */
static void refused_end(void) {
    CUdeviceptr memory = alloc();
    CUgraph graph = NULL;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch(stream, memory, 99);
    in_a_thread(end_elsewhere, NULL);
    EXPECT(cuStreamEndCapture(beside, &graph) == CUDA_ERROR_ILLEGAL_STATE);
    EXPECT(cuStreamEndCapture(stream, NULL) == CUDA_ERROR_INVALID_VALUE);
    leave_to_graph(memory);
    EXPECT(!given_out(memory, OTHERS)); /* and the library records no event, which would spoil the
                                           capture */
    CUgraphExec exec = instantiate(graph = end());
    EXPECT(!others_get(memory, exec));
    MUST(cuGraphExecDestroy(exec));
    graph_gone(memory);
    MUST(cuGraphDestroy(graph));
    EXPECT(comes_back(memory));
}

static void *capture_per_thread(void *arg) {
    CUgraph *graph = arg;
    MUST(cuCtxSetCurrent(primary));
    MUST(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (graph)
        MUST(cuStreamEndCapture(CU_STREAM_PER_THREAD, graph));
    return NULL;
}

/* Every thread's stream has the same name. */
static void per_thread_streams(void) {
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
    in_a_thread(capture_per_thread, &graph);
    CUdeviceptr memory = alloc();
    launch(CU_STREAM_PER_THREAD, memory, 99);
    leave_to_graph(memory); /* the thread's capture ended, this one did not */
    CUgraph own;
    MUST(cuStreamEndCapture_ptsz(NULL, &own));
    MUST(cuGraphDestroy(graph));
    EXPECT(!others_get(memory, NULL));
    graph_gone(memory);
    MUST(cuGraphDestroy(own));
    EXPECT(comes_back(memory));
    expect_no_capture();
}

static void thread_ends(void) {
    in_a_thread(capture_per_thread, NULL);
    expect_no_capture();
}

static void context_destroyed(void) {
    CUcontext other;
    CUstream theirs;
    MUST(cuCtxCreate_v2(&other, 0, 0));
    MUST(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    CUdeviceptr memory = alloc();
    MUST(cuStreamBeginCapture_v2(theirs, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(memory, 99, BYTES, theirs));
    give(memory); /* held, and freed with its context */
    MUST(cuCtxDestroy_v2(other));
    MUST(cuCtxSetCurrent(primary));
    expect_no_capture();
}

/* A stream of another context joins the capture: its context's memory is held, too. */
static void joined_by_another_context(void) {
    CUcontext other;
    CUstream theirs;
    CUevent forked, joined;
    MUST(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    MUST(cuCtxCreate_v2(&other, 0, 0));
    MUST(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr memory = alloc();
    begin();
    MUST(cuEventRecord(forked, stream));
    MUST(cuStreamWaitEvent(theirs, forked, 0));
    MUST(cuMemsetD8Async(memory, 99, BYTES, theirs));
    MUST(cuEventRecord(joined, theirs));
    MUST(cuStreamWaitEvent(stream, joined, 0));
    leave_to_graph(memory);
    CUgraph graph = end();
    EXPECT(!given_out(memory, MOST));
    graph_gone(memory);
    MUST(cuGraphDestroy(graph));
    MUST(cuCtxSynchronize());
    EXPECT(given_out(memory, MOST));
    MUST(cuCtxDestroy_v2(other));
    MUST(cuCtxSetCurrent(primary));
    expect_no_capture();
}

/* --- requests inside a capture --- */

/* If the driver would serve the request, the cache takes a segment for it. */
static void request_while_relaxed(void) {
    CUdeviceptr warm = alloc(), large[2];
    give(warm);
    begin();
    simcuda_reset_calls();
    for (int i = 0; i < 2; i++)
        MUST(cuMemAlloc_v2(&large[i], (size_t)30 << 20));
    EXPECT(simcuda_calls("cuMemAlloc_v2") == 2);
    for (int i = 0; i < 2; i++)
        MUST(cuMemFree_v2(large[i])); /* nothing captured can name them */
    for (int i = 0; i < 2; i++)
        MUST(cuMemAlloc_v2(&large[i], (size_t)30 << 20));
    EXPECT(simcuda_calls("cuMemAlloc_v2") == 2);
    EXPECT(simcuda_calls("cuMemFree_v2") == 0);
    MUST(cuGraphDestroy(end()));
    for (int i = 0; i < 2; i++)
        MUST(cuMemFree_v2(large[i]));
}

/* If the driver would refuse the request, the library refuses it and the capture is invalid, as with the
 * driver. */
static void request_while_global(void) {
    CUdeviceptr pointer = 0, cached = alloc();
    CUgraph graph;
    give(cached);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(alloc() == cached);
    EXPECT(cuMemAlloc_v2(&pointer, (size_t)128 << 20) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(pointer == 0);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_no_capture();
}

static void *request_beside(void *arg) {
    MUST(cuCtxSetCurrent(primary));
    return (void *)(uintptr_t)cuMemAlloc_v2(arg, (size_t)50 << 20);
}

/* Another thread's capture objects or not, by its mode. */
static void request_of_another_thread(void) {
    CUdeviceptr pointer;
    CUgraph graph;
    pthread_t thread;
    void *result;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    simcuda_reset_calls();
    EXPECT(!pthread_create(&thread, NULL, request_beside, &pointer));
    EXPECT(!pthread_join(thread, &result) && !result);
    EXPECT(simcuda_calls("cuMemAlloc_v2") == 1);
    MUST(cuGraphDestroy(end()));
    MUST(cuMemFree_v2(pointer));
    MUST(cuMemAlloc_v2(&pointer, (size_t)50 << 20)); /* served from the cache, not by the driver */
    EXPECT(simcuda_calls("cuMemAlloc_v2") == 1);
    EXPECT(simcuda_calls("cuMemFree_v2") == 0);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(!pthread_create(&thread, NULL, request_beside, &pointer));
    EXPECT(!pthread_join(thread, &result));
    EXPECT((uintptr_t)result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* A capture closes the lanes of threads.  The stream's next request finds the memory that its lane kept. */
static void kept_in_order(void) {
    CUdeviceptr before = 0, pointer;
    for (int i = 0; i < 5; i++) { /* the thread begins to keep this size */
        MUST(cuMemAllocAsync(&before, BYTES, beside));
        MUST(cuMemFreeAsync(before, beside));
    }
    begin();
    MUST(cuMemAllocAsync(&pointer, BYTES, beside));
    EXPECT(pointer == before);
    MUST(cuMemFreeAsync(pointer, beside));
    MUST(cuGraphDestroy(end()));
}

/* --- two threads: one captures, the other makes the library want fences --- */

static _Atomic bool stop;

static void *churn(void *arg) {
    CUstream own;
    (void)arg;
    MUST(cuCtxSetCurrent(primary));
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    while (!atomic_load(&stop)) {
        CUdeviceptr buffer;
        if (cuMemAlloc_v2(&buffer, BYTES)) {
            sched_yield(); /* no memory becomes ready while the other thread captures */
            continue;
        }
        simcuda_owner_begin(buffer, BYTES);
        launch(own, buffer, 7);
        give(buffer);
    }
    MUST(cuStreamSynchronize(own));
    MUST(cuStreamDestroy_v2(own));
    return NULL;
}

static void beside_churn(void) {
    enum { CAPTURES = 3000 };
    CUdeviceptr buffer = alloc();
    pthread_t thread;
    EXPECT(!pthread_create(&thread, NULL, churn, NULL));
    for (int i = 0; i < CAPTURES; i++) {
        MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        launch(stream, buffer, 1);
        CUgraph graph = end(); /* fails if another thread recorded an event meanwhile */
        MUST(cuGraphDestroy(graph));
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    expect_no_capture();
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"request_while_relaxed", request_while_relaxed},
    {"request_of_another_thread", request_of_another_thread},
    {"request_while_global", request_while_global},
    {"kept_in_order", kept_in_order},
    {"inside", inside},
    {"allocated_inside", allocated_inside},
    {"freed_after", freed_after},
    {"exec_outlives", exec_outlives},
    {"destroyed_while_running", destroyed_while_running},
    {"cloned", cloned},
    {"child", child},
    {"captured_launch", captured_launch},
    {"updated", updated},
    {"into_a_graph", into_a_graph},
    {"freed_by_a_thread", freed_by_a_thread},
    {"spoilt", spoilt},
    {"stream_destroyed", stream_destroyed},
    {"many_streams_destroyed", many_streams_destroyed},
    {"ended_by_a_thread", ended_by_a_thread},
    {"refused_end", refused_end},
    {"per_thread_streams", per_thread_streams},
    {"thread_ends", thread_ends},
    {"beside_churn", beside_churn},
    /* From here on there are two contexts: every fence covers both. */
    {"context_destroyed", context_destroyed},
    {"joined_by_another_context", joined_by_another_context},
    {"inside", inside},
    {"inner_graph_seen", inner_graph_seen}, /* the last: it changes what the others rely on */
};

int main(int argc, char **argv) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_access_t access = {0, -1, BYTES, 1};
    static const simcuda_kernel_t kernel = {"fill", on_fill, 20000, 2, sizes, 1, &access};
    primary = test_device(0);
    fill = test_kernel(&kernel);
    stream = test_stream();
    beside = test_stream();
    unsigned ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name))
            continue;
        test_title = cases[i].name;
        cases[i].run();
        MUST(cuCtxSynchronize());
        EXPECT(simcuda_race_reports() == 0);
        printf("ok %s\n", test_title);
        ran++;
    }
    return ran ? TEST_GOOD : TEST_USAGE;
}
