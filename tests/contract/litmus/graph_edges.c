/* Nodes of a graph are ordered by its edges, a launch by its stream and the launch before it.
 *
 * CUDA C++ Programming Guide, "CUDA Graphs", "Graph Structure"; CUDA Driver API, "Graph
 * Management", cuGraphLaunch: a launch is ordered behind work of the stream and behind earlier
 * launches of the executable graph. */
#include "litmus.h"

typedef struct {
    CUgraph graph;
    CUgraphExec exec;
} made_t;

static CUgraphNode add(litmus_t *t, made_t *made, CUgraphNode before, CUdeviceptr to,
                       unsigned value, int slow) {
    unsigned spins = slow ? 2000000 : 0;
    void *params[] = {&to, &value, &spins};
    CUDA_KERNEL_NODE_PARAMS node = test_kernel_node(t->store[0][slow], params);
    CUgraphNode out;
    MUST(cuGraphAddKernelNode_v2(&out, made->graph, &before, before ? 1 : 0, &node));
    return out;
}

static void two_nodes(litmus_t *t, int edge) {
    made_t made;
    MUST(cuGraphCreate(&made.graph, 0));
    CUgraphNode first = add(t, &made, NULL, t->memory, 1, 1);
    litmus_hand_over(t);
    add(t, &made, edge ? first : NULL, t->memory, 2, 0);
    MUST(cuGraphInstantiateWithFlags(&made.exec, made.graph, 0));
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    MUST(cuGraphExecDestroy(made.exec));
    MUST(cuGraphDestroy(made.graph));
}

static void edge(litmus_t *t) {
    two_nodes(t, 1);
}

static void no_edge(litmus_t *t) {
    two_nodes(t, 0);
}

static made_t one_node(litmus_t *t) {
    made_t made;
    MUST(cuGraphCreate(&made.graph, 0));
    add(t, &made, NULL, t->memory, 1, 1);
    MUST(cuGraphInstantiateWithFlags(&made.exec, made.graph, 0));
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    return made;
}

static void end(made_t made) {
    MUST(cuGraphExecDestroy(made.exec));
    MUST(cuGraphDestroy(made.graph));
}

static void behind_in_the_stream(litmus_t *t) {
    made_t made = one_node(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
    end(made);
}

static void in_another_stream(litmus_t *t) {
    made_t made = one_node(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    end(made);
}

/* One executable graph, two streams: its launches do not overlap. */
static void launched_twice(litmus_t *t, int same) {
    made_t made, other;
    MUST(cuGraphCreate(&made.graph, 0));
    add(t, &made, NULL, t->other, 0, 0);
    MUST(cuGraphInstantiateWithFlags(&made.exec, made.graph, 0));
    MUST(cuGraphCreate(&other.graph, 0));
    add(t, &other, NULL, t->other, 0, 0);
    MUST(cuGraphInstantiateWithFlags(&other.exec, other.graph, 0));
    litmus_old(t, t->free_stream[0]);
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    MUST(cuGraphLaunch(same ? made.exec : other.exec, t->free_stream[1]));
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    end(made);
    end(other);
}

static void same_executable(litmus_t *t) {
    launched_twice(t, 1);
}

static void two_executables(litmus_t *t) {
    launched_twice(t, 0);
}

LITMUS_CASES({"an edge", edge, ORDERED | DIRECT}, {"no edge", no_edge, RACY | DIRECT},
             {"behind a launch", behind_in_the_stream, ORDERED},
             {"beside a launch", in_another_stream, RACY},
             {"launches of one executable graph", same_executable, ORDERED},
             {"launches of two", two_executables, RACY})
