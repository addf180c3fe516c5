/* Probes of launches, captures and host functions. */
#include "guesses.h"

#include <pthread.h>

void guess_launch_elsewhere(void) {
    CUdeviceptr word = gpu_word(0);
    if (!gpu_beside())
        say("not here");
    else
        say("%s", gpu_error(gpu_try(gpu_beside()->quick, a_stream(0), word, word)));
}

static CUresult launch_with_event(CUstream stream, CUevent event) {
    CUdeviceptr word = gpu_word(0);
    CUfunction function = gpu.quick.function;
    void *params[] = {&word, &word, &gpu.quick.clocks};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};
    attribute.value.programmaticEvent.event = event;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    return cu.cuLaunchKernelEx(&config, function, params, NULL);
}

void guess_completion_event_timed(void) {
    CUevent event;
    MUST(cu.cuEventCreate(&event, 0));
    if (!GPU_HAS(cuLaunchKernelEx))
        say("not here");
    else
        say("%s", gpu_error(launch_with_event(a_stream(CU_STREAM_NON_BLOCKING), event)));
}

void guess_completion_event_captured(void) {
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    CUevent event = an_event();
    if (!GPU_HAS(cuLaunchKernelEx) || !GPU_HAS(cuStreamBeginCapture_v2)) {
        say("not here");
        return;
    }
    MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUresult result = launch_with_event(stream, event);
    CUresult end = cu.cuStreamEndCapture(stream, &graph);
    say("%s, end of the capture %s", gpu_error(result), gpu_error(end));
}

void guess_programmatic_captured(void) {
    enum { MOST = 8 };
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    CUgraphNode from[MOST], to[MOST];
    CUgraphEdgeData data[MOST];
    size_t count = MOST;
    if (!GPU_HAS(cuLaunchKernelEx) || !GPU_HAS(cuStreamBeginCapture_v2) ||
        !GPU_HAS(cuGraphGetEdges_v2)) {
        say("not here");
        return;
    }
    MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    gpu_launch(gpu.slow, stream, gpu_word(0), gpu_word(1));
    CUresult result = gpu_launch_early(gpu.quick, stream, gpu_word(0), gpu_word(1));
    CUresult end = cu.cuStreamEndCapture(stream, &graph);
    if (result || end || cu.cuGraphGetEdges_v2(graph, from, to, data, &count) || count != 1)
        say("%s, end of the capture %s, %zu edges", gpu_error(result), gpu_error(end), count);
    else
        say("an edge of type %u, ports %u to %u", data[0].type, data[0].from_port,
            data[0].to_port);
}

static CUresult inside[3];

static void call_inside(void *arg) {
    size_t available, total;
    CUdeviceptr memory;
    inside[0] = cu.cuMemAlloc_v2(&memory, KIB);
    inside[1] = cu.cuMemGetInfo_v2(&available, &total);
    inside[2] = cu.cuStreamQuery(arg);
}

void guess_host_function_calls(void) {
    CUstream stream = a_stream(CU_STREAM_NON_BLOCKING);
    MUST(cu.cuLaunchHostFunc(stream, call_inside, stream));
    MUST(cu.cuStreamSynchronize(stream));
    say("cuMemAlloc %s, ", gpu_error(inside[0]));
    say("cuMemGetInfo %s, ", gpu_error(inside[1]));
    say("cuStreamQuery %s", gpu_error(inside[2]));
}

enum { FUNCTIONS = 8 };
static pthread_t threads[FUNCTIONS];
static int running, most_running;

static void note_thread(void *arg) {
    int now = __atomic_add_fetch(&running, 1, __ATOMIC_SEQ_CST);
    if (now > most_running)
        most_running = now;
    *(pthread_t *)arg = pthread_self();
    gpu_rest();
    __atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST);
}

void guess_host_function_threads(void) {
    bool same = true;
    for (int i = 0; i < FUNCTIONS; i++)
        MUST(cu.cuLaunchHostFunc(a_stream(CU_STREAM_NON_BLOCKING), note_thread, &threads[i]));
    MUST(cu.cuCtxSynchronize());
    for (int i = 1; i < FUNCTIONS; i++)
        same &= pthread_equal(threads[i], threads[0]) != 0;
    say("%s, %s", same ? "one thread runs all of them" : "several threads",
        most_running == 1 ? "one after the other" : "several at a time");
}
