/* Hooks with bodies of their own, each variant of a function by its name: contents of graphs, begin
 * and end of captures, order between streams, the current context.
 *
 *   bodies                runs every case
 *   bodies --failpoints   with each body spoilt (failpoint.h: unseen), which its case must notice
 *
 * Each case tests one function, with the checks of rows.c. */
#include <stdio.h>
#include <string.h>

#include "checks.h"

/* A case: the function, and its check, which gets the function's name. */
typedef struct {
    const char *symbol;
    void (*check)(const char *symbol);
} case_t;

static bool is(const char *symbol, const char *name) {
    return !strcmp(symbol, name);
}

static bool per_thread(const char *symbol) {
    return strstr(symbol, "_ptsz");
}

static void work(CUstream stream, CUdeviceptr memory) {
    MUST(cuMemsetD8Async(memory, 1, 1, stream));
}

/* --- graphs: memory that was freed during a capture stays while something has it --- */

static CUdeviceptr held;

/* Captures a graph of one node. With `holding` its memory, `held`, is freed during the capture. */
static CUgraph capture(bool holding) {
    CUgraph graph;
    CUstream stream = test_stream();
    CUdeviceptr memory = take_first();
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    work(stream, memory);
    if (holding) {
        held = memory;
        MUST(cuMemFree_v2(memory));
    }
    MUST(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* Destroys the graph, and checks that `keeper` keeps the memory until it is destroyed, too. */
static void kept_by_exec(CUgraph graph, CUgraphExec keeper) {
    MUST(cuGraphDestroy(graph));
    expect(!comes_back(held), "memory was handed out that an executable graph is to use");
    MUST(cuGraphExecDestroy(keeper));
    expect(comes_back(held), "memory stayed away when the last graph was gone");
}

static void kept_by_graph(CUgraph graph, CUgraph keeper) {
    MUST(cuGraphDestroy(graph));
    expect(!comes_back(held), "memory was handed out that a graph is to use");
    MUST(cuGraphDestroy(keeper));
    expect(comes_back(held), "memory stayed away when the last graph was gone");
}

static void check_instantiate(const char *symbol) {
    CUgraphExec exec = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    set_up();
    CUgraph graph = capture(true);
    if (is(symbol, "cuGraphInstantiate"))
        MUST(cuGraphInstantiate(&exec, graph, NULL, NULL, 0));
    else if (is(symbol, "cuGraphInstantiate_v2"))
        MUST(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0));
    else if (is(symbol, "cuGraphInstantiateWithFlags"))
        MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    else if (is(symbol, "cuGraphInstantiateWithParams"))
        MUST(cuGraphInstantiateWithParams(&exec, graph, &params));
    else
        MUST(cuGraphInstantiateWithParams_ptsz(&exec, graph, &params));
    kept_by_exec(graph, exec);
}

static void check_update(const char *symbol) {
    CUgraphExec exec = NULL;
    CUgraphExecUpdateResultInfo info;
    CUgraphExecUpdateResult why;
    CUgraphNode node;
    set_up();
    CUgraph graph = capture(true);
    MUST(cuGraphInstantiateWithFlags(&exec, capture(false), 0));
    if (is(symbol, "cuGraphExecUpdate"))
        MUST(cuGraphExecUpdate(exec, graph, &node, &why));
    else
        MUST(cuGraphExecUpdate_v2(exec, graph, &info));
    kept_by_exec(graph, exec);
}

static void check_taken_in(const char *symbol) {
    CUgraph graph, keeper = NULL;
    CUgraphNode node;
    set_up();
    graph = capture(true);
    if (is(symbol, "cuGraphClone")) {
        MUST(cuGraphClone(&keeper, graph));
    } else {
        MUST(cuGraphCreate(&keeper, 0));
        MUST(cuGraphAddChildGraphNode(&node, keeper, NULL, 0, graph));
    }
    kept_by_graph(graph, keeper);
}

/* --- captures --- */

static CUstream captured_on;

static void begin(const char *symbol, CUgraph into) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    captured_on = per_thread(symbol) ? NULL : test_stream();
    if (is(symbol, "cuStreamBeginCapture"))
        MUST(cuStreamBeginCapture(captured_on));
    else if (is(symbol, "cuStreamBeginCapture_ptsz"))
        MUST(cuStreamBeginCapture_ptsz(captured_on));
    else if (is(symbol, "cuStreamBeginCapture_v2_ptsz"))
        MUST(cuStreamBeginCapture_v2_ptsz(captured_on, mode));
    else if (is(symbol, "cuStreamBeginCaptureToGraph"))
        MUST(cuStreamBeginCaptureToGraph(captured_on, into, NULL, NULL, 0, mode));
    else if (is(symbol, "cuStreamBeginCaptureToGraph_ptsz"))
        MUST(cuStreamBeginCaptureToGraph_ptsz(captured_on, into, NULL, NULL, 0, mode));
    else if (per_thread(symbol))
        MUST(cuStreamBeginCapture_v2_ptsz(captured_on, mode));
    else
        MUST(cuStreamBeginCapture_v2(captured_on, mode));
}

/* Frees and requests more memory than waits for one fence. The library must record no fence
 * during the capture. */
static void check_capture(const char *symbol) {
    enum { MANY = 200 };
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* new memory is requested, too */
    CUdeviceptr memory[MANY];
    CUgraph graph;
    set_up();
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuGraphCreate(&graph, 0));
    for (int i = 0; i < MANY; i++)
        memory[i] = take();
    held = memory[0];
    begin(symbol, graph);
    if (per_thread(symbol))
        MUST(cuMemsetD8Async_ptsz(held, 1, 1, captured_on));
    else
        work(captured_on, held);
    for (int i = 0; i < MANY; i++)
        MUST(cuMemFree_v2(memory[i]));
    expect(!comes_back(held), "memory was handed out during the capture");
    CUresult result = per_thread(symbol) ? cuStreamEndCapture_ptsz(captured_on, &graph)
                                         : cuStreamEndCapture(captured_on, &graph);
    expect(result == CUDA_SUCCESS, "the capture did not end well");
    expect(!comes_back(held), "memory was handed out that a graph is to use");
    MUST(cuGraphDestroy(graph));
    bool back = false;
    for (int i = 0; i < MANY && !back; i += SOME)
        back = comes_back(held);
    expect(back, "memory stayed away when the graph was gone");
}

/* The program itself adds a node to the capture. No other work uses the new memory. */
static void check_joined(const char *symbol) {
    CUgraph graph;
    CUgraphNode node;
    CUstreamCaptureStatus status;
    unsigned flags = CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    set_up();
    begin(per_thread(symbol) ? "_ptsz" : "", NULL);
    CUstream stream = per_thread(symbol) ? CU_STREAM_PER_THREAD : captured_on;
    held = take_first();
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = held, .elementSize = 1, .width = 1, .height = 1};
    MUST(cuStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, NULL, NULL));
    MUST(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, here));
    if (is(symbol, "cuStreamUpdateCaptureDependencies"))
        MUST(cuStreamUpdateCaptureDependencies(captured_on, &node, 1, flags));
    else if (is(symbol, "cuStreamUpdateCaptureDependencies_ptsz"))
        MUST(cuStreamUpdateCaptureDependencies_ptsz(captured_on, &node, 1, flags));
    else if (is(symbol, "cuStreamUpdateCaptureDependencies_v2"))
        MUST(cuStreamUpdateCaptureDependencies_v2(captured_on, &node, NULL, 1, flags));
    else
        MUST(cuStreamUpdateCaptureDependencies_v2_ptsz(captured_on, &node, NULL, 1, flags));
    MUST(cuMemFree_v2(held));
    expect(!comes_back(held), "memory was handed out during the capture");
    MUST(cuStreamEndCapture(stream, &graph));
    expect(!comes_back(held), "memory was handed out that a graph is to use");
}

/* --- order between streams: records and waits --- */

/* A stream frees memory in its order, and another stream waits for it and gets the memory. The
 * library must add no wait of its own. */
static void check_edge(const char *symbol) {
    CUdeviceptr memory, again;
    CUevent event;
    set_up();
    CUstream from = test_stream(), to = test_stream();
    bool records = strstr(symbol, "Record"), own = per_thread(symbol);
    if (own && records)
        from = CU_STREAM_PER_THREAD;
    else if (own)
        to = CU_STREAM_PER_THREAD;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAllocAsync(&memory, MIB, from));
    work(from, memory);
    MUST(cuMemFreeAsync(memory, from));
    if (is(symbol, "cuEventRecord_ptsz"))
        MUST(cuEventRecord_ptsz(event, NULL));
    else if (is(symbol, "cuEventRecordWithFlags"))
        MUST(cuEventRecordWithFlags(event, from, 0));
    else if (is(symbol, "cuEventRecordWithFlags_ptsz"))
        MUST(cuEventRecordWithFlags_ptsz(event, NULL, 0));
    else
        MUST(cuEventRecord(event, from));
    if (is(symbol, "cuStreamWaitEvent_ptsz"))
        MUST(cuStreamWaitEvent_ptsz(NULL, event, 0));
    else
        MUST(cuStreamWaitEvent(to, event, 0));
    unsigned long long proven = figure("async_event_ordered");
    MUST(cuMemAllocAsync(&again, MIB, to));
    expect(again == memory && figure("async_event_ordered") == proven + 1,
           "the order of the two streams was not seen");
}

/* Lets something record the event that the library does not see, or uses it for something else.
 * The library must then derive no order from its last record. The driver may refuse some of these
 * calls. */
static void disturb(const char *symbol, CUevent event) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    CUlaunchAttributeValue value = {.programmaticEvent = {.event = event}};
    CUipcEventHandle handle;
    memcpy(params.payload, &event, sizeof event);
    MUST(cuGraphCreate(&graph, 0));
    if (is(symbol, "cuGraphAddEventRecordNode"))
        cuGraphAddEventRecordNode(&node, graph, NULL, 0, event);
    else if (is(symbol, "cuGraphEventRecordNodeSetEvent"))
        cuGraphEventRecordNodeSetEvent(NULL, event);
    else if (is(symbol, "cuGraphExecEventRecordNodeSetEvent"))
        cuGraphExecEventRecordNodeSetEvent(NULL, NULL, event);
    else if (is(symbol, "cuGraphNodeSetParams"))
        cuGraphNodeSetParams(NULL, &params);
    else if (is(symbol, "cuGraphExecNodeSetParams"))
        cuGraphExecNodeSetParams(NULL, NULL, &params);
    else if (is(symbol, "cuGraphAddNode"))
        cuGraphAddNode(&node, graph, NULL, 0, &params);
    else if (is(symbol, "cuGraphAddNode_v2"))
        cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params);
    else if (is(symbol, "cuGraphKernelNodeSetAttribute"))
        cuGraphKernelNodeSetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, &value);
    else if (is(symbol, "cuIpcGetEventHandle"))
        cuIpcGetEventHandle(&handle, event);
    else if (is(symbol, "cuCtxRecordEvent"))
        MUST(cuCtxRecordEvent(here, event));
    else if (is(symbol, "cuEventDestroy"))
        MUST(cuEventDestroy(event));
    else
        MUST(cuEventDestroy_v2(event));
}

static void check_distrusted(const char *symbol) {
    CUdeviceptr memory, again;
    CUevent event, second;
    set_up();
    CUstream from = test_stream(), to = test_stream();
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAllocAsync(&memory, MIB, from));
    work(from, memory);
    MUST(cuMemFreeAsync(memory, from));
    MUST(cuEventRecord(event, from));
    disturb(symbol, event);
    if (strstr(symbol, "Destroy")) {
        MUST(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
        if (second != event)
            test_stop(TEST_BROKEN, "the event's handle did not come back");
    }
    MUST(cuStreamWaitEvent(to, event, 0));
    unsigned long long proven = figure("async_event_ordered");
    MUST(cuMemAllocAsync(&again, MIB, to));
    expect(figure("async_event_ordered") == proven, "an event was trusted that may be another's");
}

/* --- contexts --- */

/* The next request gets memory of the context that is current then. */
static void check_current(const char *symbol) {
    CUcontext there, popped;
    int device = 0, expected = 1;
    set_up();
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    take();
    if (strstr(symbol, "Pop")) {
        MUST(cuCtxPushCurrent_v2(there));
        take();
        expected = 0;
    }
    if (is(symbol, "cuCtxSetCurrent"))
        MUST(cuCtxSetCurrent(there));
    else if (is(symbol, "cuCtxPushCurrent"))
        MUST(cuCtxPushCurrent(there));
    else if (is(symbol, "cuCtxPushCurrent_v2"))
        MUST(cuCtxPushCurrent_v2(there));
    else if (is(symbol, "cuCtxPopCurrent"))
        MUST(cuCtxPopCurrent(&popped));
    else
        MUST(cuCtxPopCurrent_v2(&popped));
    MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, take()));
    expect(device == expected, "memory of another context than the current one");
}

/* A synchronisation makes memory that was freed earlier ready. */
static void check_synchronised(const char *symbol) {
    set_up();
    CUdeviceptr memory = take_first();
    work(test_stream(), memory);
    MUST(cuMemFree_v2(memory));
    unsigned long long queries = figure("fence_queries"), syncs = figure("full_syncs");
    if (is(symbol, "cuCtxSynchronize"))
        MUST(cuCtxSynchronize());
    else
        MUST(cuCtxSynchronize_v2(here));
    expect(comes_back(memory) && figure("fence_queries") == queries &&
               figure("full_syncs") == syncs + 1,
           "the synchronisation was not seen");
}

static const case_t cases[] = {
    {"cuCtxSetCurrent", check_current},
    {"cuCtxPushCurrent", check_current},
    {"cuCtxPushCurrent_v2", check_current},
    {"cuCtxPopCurrent", check_current},
    {"cuCtxPopCurrent_v2", check_current},
    {"cuCtxSynchronize", check_synchronised},
    {"cuCtxSynchronize_v2", check_synchronised},
    {"cuGraphInstantiate", check_instantiate},
    {"cuGraphInstantiate_v2", check_instantiate},
    {"cuGraphInstantiateWithFlags", check_instantiate},
    {"cuGraphInstantiateWithParams", check_instantiate},
    {"cuGraphInstantiateWithParams_ptsz", check_instantiate},
    {"cuGraphExecUpdate", check_update},
    {"cuGraphExecUpdate_v2", check_update},
    {"cuGraphClone", check_taken_in},
    {"cuGraphAddChildGraphNode", check_taken_in},
    {"cuStreamBeginCapture", check_capture},
    {"cuStreamBeginCapture_ptsz", check_capture},
    {"cuStreamBeginCapture_v2", check_capture},
    {"cuStreamBeginCapture_v2_ptsz", check_capture},
    {"cuStreamBeginCaptureToGraph", check_capture},
    {"cuStreamBeginCaptureToGraph_ptsz", check_capture},
    {"cuStreamEndCapture", check_capture},
    {"cuStreamEndCapture_ptsz", check_capture},
    {"cuStreamUpdateCaptureDependencies", check_joined},
    {"cuStreamUpdateCaptureDependencies_ptsz", check_joined},
    {"cuStreamUpdateCaptureDependencies_v2", check_joined},
    {"cuStreamUpdateCaptureDependencies_v2_ptsz", check_joined},
    {"cuEventRecord", check_edge},
    {"cuEventRecord_ptsz", check_edge},
    {"cuEventRecordWithFlags", check_edge},
    {"cuEventRecordWithFlags_ptsz", check_edge},
    {"cuStreamWaitEvent", check_edge},
    {"cuStreamWaitEvent_ptsz", check_edge},
    {"cuGraphAddEventRecordNode", check_distrusted},
    {"cuGraphEventRecordNodeSetEvent", check_distrusted},
    {"cuGraphExecEventRecordNodeSetEvent", check_distrusted},
    {"cuGraphNodeSetParams", check_distrusted},
    {"cuGraphExecNodeSetParams", check_distrusted},
    {"cuGraphAddNode", check_distrusted},
    {"cuGraphAddNode_v2", check_distrusted},
    {"cuGraphKernelNodeSetAttribute", check_distrusted},
    {"cuIpcGetEventHandle", check_distrusted},
    {"cuCtxRecordEvent", check_distrusted},
    {"cuEventDestroy", check_distrusted},
    {"cuEventDestroy_v2", check_distrusted},
};
enum { CASES = sizeof cases / sizeof *cases };

static void do_case(const void *argument) {
    const case_t *it = argument;
    it->check(it->symbol);
}

int main(int argc, char **argv) {
    bool failpoint = argc == 2 && !strcmp(argv[1], "--failpoints");
    unsigned wrong = 0;
    if (argc > 1 && !failpoint) {
        fprintf(stderr, "usage: bodies [--failpoints]\n");
        return 64;
    }
    for (const case_t *it = cases; it < cases + CASES; it++) {
        int status =
            checks_run(it->symbol, "its own body", failpoint ? "unseen" : NULL, do_case, it);
        wrong += status != (failpoint ? TEST_WRONG : TEST_GOOD);
        if (failpoint && status == TEST_GOOD)
            fprintf(stderr, "%s: passed though spoilt: unseen\n", it->symbol);
    }
    printf("%u cases, %u wrong\n", (unsigned)CASES, wrong);
    return wrong != 0;
}
