/* Faults in keeping memory for graphs. */
#include "failpoints.h"

enum { MIB = 1 << 20 };

static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* Captures work on memory, and frees the memory during the capture. A later launch is correct
 * only if the allocator keeps the memory for the graph. */
static CUgraph captured(failpoint_run_t *t) {
    CUgraph graph;
    failpoint_take(t, MIB);
    MUST(cuStreamBeginCapture_v2(t->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    failpoint_old(t, t->stream[0]);
    failpoint_give(t);
    MUST(cuStreamEndCapture(t->stream[0], &graph));
    return graph;
}

/* Gives the memory to another owner, if a request gets it, and then launches the graph. */
static void run_late(failpoint_run_t *t, CUgraphExec exec) {
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[1]);
    MUST(cuGraphLaunch(exec, t->stream[0]));
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
}

void failpoint_graph_memory_released(failpoint_run_t *t) {
    CUgraph graph = captured(t);
    CUgraphExec exec = instantiate(graph);
    MUST(cuGraphDestroy(graph));
    run_late(t, exec);
}

/* Updates the executable graph from a graph without nodes, which fails. */
void failpoint_failed_update_released(failpoint_run_t *t) {
    CUgraph graph = captured(t), other;
    CUgraphExec exec = instantiate(graph);
    CUgraphExecUpdateResultInfo info;
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphCreate(&other, 0));
    if (cuGraphExecUpdate_v2(exec, other, &info) != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
        test_stop(TEST_WRONG, "the update did not fail");
    run_late(t, exec);
}

/* The program itself adds the work to the graph of the capture. */
void failpoint_joined_nodes_unseen(failpoint_run_t *t) {
    CUstreamCaptureStatus status;
    CUgraph graph;
    CUgraphNode node;
    unsigned value = 1;
    MUST(cuStreamBeginCapture_v2(t->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    failpoint_take(t, MIB);
    void *params[] = {&t->memory, &value};
    CUDA_KERNEL_NODE_PARAMS kernel = test_kernel_node(t->old_owner, params);
    MUST(cuStreamGetCaptureInfo_v2(t->stream[0], &status, NULL, &graph, NULL, NULL));
    MUST(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    MUST(cuStreamUpdateCaptureDependencies(t->stream[0], &node, 1,
                                           CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    failpoint_give(t);
    MUST(cuStreamEndCapture(t->stream[0], &graph));
    run_late(t, instantiate(graph));
}

void failpoint_captured_launch_forgotten(failpoint_run_t *t) {
    CUgraph graph = captured(t), around;
    CUgraphExec exec = instantiate(graph);
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamBeginCapture_v2(t->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuGraphLaunch(exec, t->stream[0]));
    MUST(cuStreamEndCapture(t->stream[0], &around));
    MUST(cuGraphExecDestroy(exec));
    run_late(t, instantiate(around));
}

void failpoint_child_graph_forgotten(failpoint_run_t *t) {
    CUgraph graph = captured(t), around;
    CUgraphNode node;
    MUST(cuGraphCreate(&around, 0));
    MUST(cuGraphAddChildGraphNode(&node, around, NULL, 0, graph));
    MUST(cuGraphDestroy(graph));
    run_late(t, instantiate(around));
}

void failpoint_graph_clone_forgotten(failpoint_run_t *t) {
    CUgraph graph = captured(t), clone;
    MUST(cuGraphClone(&clone, graph));
    MUST(cuGraphDestroy(graph));
    run_late(t, instantiate(clone));
}

/* The program launches the executable graph, and destroys it while it runs. */
void failpoint_graph_gone_with_launches(failpoint_run_t *t) {
    CUgraph graph = captured(t);
    CUgraphExec exec = instantiate(graph);
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphLaunch(exec, t->stream[0]));
    MUST(cuGraphExecDestroy(exec));
    failpoint_seek(t, FAILPOINT_SOME);
    failpoint_new(t, t->stream[1]);
    MUST(cuCtxSynchronize());
}
