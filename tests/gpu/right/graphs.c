/* right_graphs: captures and replays.
 *
 * Graphs use memory from before the capture, from inside it (relaxed mode), and of their own
 * nodes.  They are launched while the next graph is captured, and destroyed while they run.
 * Memory is freed behind them. */
#include <stdio.h>
#include <stdlib.h>

#include "right.h"

enum { GRAPHS = 24, REPLAYS = 5, WORDS = 40000, SCRATCH = 3 };

/* Captures a graph.  `other` is a stream with pending work on memory that the capture frees. */
static CUgraphExec captured(CUstream stream, CUstream other, CUdeviceptr data, unsigned number,
                            CUdeviceptr scratch[SCRATCH]) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr own = 0;
    right_lane_t lane = RIGHT_LANE(stream);
    CUdeviceptr busy = right_alloc(WORDS * sizeof(uint32_t));
    right_last_work(busy, WORDS, RIGHT_LANE(other));
    MUST(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    right_mix(data, WORDS, number, lane);
    MUST(cu.cuMemFree_v2(busy));
    for (int i = 0; i < SCRATCH; i++) {
        scratch[i] = right_alloc((WORDS + 100 * (size_t)i) * sizeof(uint32_t));
        MUST(cu.cuMemcpyDtoDAsync_v2(scratch[i], data, WORDS * sizeof(uint32_t), stream));
        right_mix(scratch[i], WORDS, 7 + (unsigned)i, lane);
    }
    MUST(cu.cuMemAllocAsync(&own, WORDS * sizeof(uint32_t), stream));
    MUST(cu.cuMemcpyDtoDAsync_v2(own, scratch[number % SCRATCH], WORDS * sizeof(uint32_t),
                                 stream));
    right_mix(own, WORDS, 3, lane);
    MUST(cu.cuMemcpyDtoDAsync_v2(data, own, WORDS * sizeof(uint32_t), stream));
    MUST(cu.cuMemFreeAsync(own, stream));
    MUST(cu.cuStreamEndCapture(stream, &graph));
    MUST(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cu.cuGraphDestroy(graph));
    return exec;
}

int main(void) {
    right_open();
    if (!GPU_HAS(cuStreamBeginCapture_v2) || !GPU_HAS(cuGraphInstantiateWithFlags) ||
        !GPU_HAS(cuMemAllocAsync))
        right_skip("the driver is older than graphs with memory");
    CUstream streams[2] = {right_stream(), right_stream()};
    for (unsigned number = 0; number < GRAPHS; number++) {
        CUstream stream = streams[number % 2];
        CUdeviceptr scratch[SCRATCH], data = right_alloc(WORDS * sizeof(uint32_t));
        MUST(cu.cuMemsetD32Async(data, number, WORDS, stream));
        CUgraphExec exec = captured(stream, streams[(number + 1) % 2], data, number, scratch);
        for (int i = 0; i < REPLAYS; i++) {
            MUST(cu.cuGraphLaunch(exec, stream));
            right_mix(data, WORDS, 1, RIGHT_LANE(stream));
        }
        MUST(cu.cuGraphExecDestroy(exec));
        printf("graph %u: %016llx", number, right_sum(data, WORDS, RIGHT_LANE(stream)));
        for (int i = 0; i < SCRATCH; i++) {
            printf(" %016llx", right_sum(scratch[i], WORDS, RIGHT_LANE(stream)));
            right_last_work(scratch[i], WORDS, RIGHT_LANE(stream));
            MUST(cu.cuMemFree_v2(scratch[i]));
        }
        printf("\n");
        right_last_work(data, WORDS, RIGHT_LANE(stream));
        MUST(cu.cuMemFree_v2(data));
    }
    return 0;
}
