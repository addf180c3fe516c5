/* What a program of every kind of call costs the driver: prints each function of the driver that was
 * called, and how often.  disabled.py compares. */
#include "program.h"

static void count_all(void) {
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    if (simcuda_calls(#symbol))                                                                  \
        printf(#symbol " %llu\n", simcuda_calls(#symbol));
#include "device/cuda_functions.def"
#undef CU_FN
}

static void run_nothing(const simcuda_launch_t *launch) {
    (void)launch;
}

/* Streams that go while they have work, frees behind work on several streams, events, a capture, a
 * second context. */
static int all(void) {
    static const simcuda_kernel_t kernel = {"nothing", run_nothing, 100000, 0, NULL, 0, NULL};
    CUstream stream[3];
    CUevent event;
    CUgraph graph;
    CUgraphExec exec;
    CUcontext other;
    CUdeviceptr block[3], on_stream;
    program_device();
    CUfunction nothing = test_kernel(&kernel);
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3; i++) {
            stream[i] = test_stream();
            block[i] = program_alloc();
            MUST(cuMemsetD8Async(block[i], 1, 100, stream[i]));
            MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream[i], NULL, NULL));
        }
        MUST(cuEventRecord(event, stream[0]));
        MUST(cuStreamWaitEvent(stream[1], event, 0));
        for (int i = 0; i < 3; i++)
            program_free(block[i]);
        MUST(cuMemAllocAsync(&on_stream, 1 << 20, stream[2]));
        MUST(cuMemFreeAsync(on_stream, stream[2]));
        MUST(cuStreamBeginCapture_v2(stream[1], CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream[1], NULL, NULL));
        MUST(cuStreamEndCapture(stream[1], &graph));
        MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
        MUST(cuGraphLaunch(exec, stream[1]));
        for (int i = 0; i < 3; i++)
            MUST(cuStreamDestroy_v2(stream[i]));
        MUST(cuGraphExecDestroy(exec));
        MUST(cuGraphDestroy(graph));
    }
    MUST(cuCtxSynchronize());
    MUST(cuEventDestroy_v2(event));
    MUST(cuCtxCreate_v2(&other, 0, 0));
    program_use(3);
    MUST(cuCtxDestroy_v2(other));
    count_all();
    return 0;
}

int main(int argc, char **argv) {
    static const program_case_t cases[] = {{"all", all}};
    return program_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
