/* Captured work becomes nodes of a graph. Streams fork and join through events, and nothing
 * else orders the nodes.
 *
 * CUDA C++ Programming Guide, "CUDA Graphs", "Creating a Graph Using Stream Capture",
 * "Cross-stream Dependencies and Events". */
#include "litmus.h"

static CUgraphExec launch(litmus_t *t, CUgraph graph) {
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, t->free_stream[0]));
    MUST(cuGraphDestroy(graph));
    return exec;
}

static void fork_(litmus_t *t) {
    MUST(cuStreamBeginCapture_v2(t->free_stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
}

static void join_(litmus_t *t) {
    MUST(cuEventRecord(t->event[1], t->free_stream[1]));
    MUST(cuStreamWaitEvent(t->free_stream[0], t->event[1], 0));
}

static void after_the_join(litmus_t *t) {
    CUgraph graph;
    fork_(t);
    litmus_old(t, t->free_stream[1]);
    join_(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    MUST(cuGraphExecDestroy(launch(t, graph)));
}

static void beside_the_fork(litmus_t *t) {
    CUgraph graph;
    fork_(t);
    litmus_old(t, t->free_stream[1]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
    join_(t);
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    MUST(cuGraphExecDestroy(launch(t, graph)));
}

static CUgraphExec captured_old(litmus_t *t) {
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(t->free_stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    litmus_old(t, t->free_stream[0]);
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    return launch(t, graph);
}

static void behind_the_launch(litmus_t *t) {
    CUgraphExec exec = captured_old(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
    MUST(cuGraphExecDestroy(exec));
}

static void beside_the_launch(litmus_t *t) {
    CUgraphExec exec = captured_old(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    MUST(cuGraphExecDestroy(exec));
}

/* Recording and waiting in a capture orders nothing outside. */
static void captured_event(litmus_t *t) {
    CUgraph graph;
    litmus_old(t, t->free_stream[2]);
    fork_(t);
    join_(t);
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    CUgraphExec exec = launch(t, graph);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    MUST(cuGraphExecDestroy(exec));
}

LITMUS_CASES({"after the join", after_the_join, ORDERED | DIRECT},
             {"beside the fork", beside_the_fork, RACY | DIRECT},
             {"behind the launch", behind_the_launch, ORDERED},
             {"beside the launch", beside_the_launch, RACY},
             {"an event that was captured", captured_event, RACY})
