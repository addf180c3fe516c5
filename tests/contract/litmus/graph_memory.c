/* A graph names memory. At each launch that memory has to exist and must have no other use.
 *
 * CUDA C++ Programming Guide, "CUDA Graphs", "Graph Structure" and "Updating Instantiated
 * Graphs": the parameters of a node are fixed when it is made, or replaced, and used by every
 * launch. */
#include "litmus.h"

typedef struct {
    CUgraphExec exec;
    CUgraphNode node;
    CUgraph graph;
} made_t;

static made_t make(litmus_t *t, CUdeviceptr memory) {
    unsigned value = 2, spins = 0;
    void *params[] = {&memory, &value, &spins};
    CUDA_KERNEL_NODE_PARAMS node = test_kernel_node(t->store[0][0], params);
    made_t made;
    MUST(cuGraphCreate(&made.graph, 0));
    MUST(cuGraphAddKernelNode_v2(&made.node, made.graph, NULL, 0, &node));
    MUST(cuGraphInstantiateWithFlags(&made.exec, made.graph, 0));
    return made;
}

static void end(made_t *made) {
    MUST(cuGraphExecDestroy(made->exec));
    MUST(cuGraphDestroy(made->graph));
}

static void kept(litmus_t *t) {
    made_t made = make(t, t->memory);
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    MUST(cuGraphLaunch(made.exec, t->free_stream[1]));
    MUST(cuStreamSynchronize(t->free_stream[1]));
    end(&made);
}

static void handed_over(litmus_t *t) {
    made_t made = make(t, t->memory);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    end(&made);
}

/* Order does not help: the new owner's bytes are overwritten. */
static void handed_over_in_order(litmus_t *t) {
    made_t made = make(t, t->memory);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
    MUST(cuCtxSynchronize());
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    end(&made);
}

static void given_back(litmus_t *t) {
    made_t made = make(t, t->memory);
    litmus_disown(t, t->memory);
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    MUST(cuCtxSynchronize());
    litmus_own(t, t->memory, t->bytes);
    end(&made);
}

static void replaced(litmus_t *t) {
    unsigned value = 2, spins = 0;
    void *params[] = {&t->other, &value, &spins};
    CUDA_KERNEL_NODE_PARAMS node = test_kernel_node(t->store[0][0], params);
    made_t made = make(t, t->memory);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
    MUST(cuGraphExecKernelNodeSetParams_v2(made.exec, made.node, &node));
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    end(&made);
}

static void not_launched_again(litmus_t *t) {
    made_t made = make(t, t->memory);
    MUST(cuGraphLaunch(made.exec, t->free_stream[0]));
    MUST(cuStreamSynchronize(t->free_stream[0]));
    end(&made);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[1]);
}

/* Memory given back and given out again while a stream captures: the graph itself uses it for
 * both, in order, at each launch. */
static void within_the_graph(litmus_t *t) {
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamBeginCapture_v2(t->free_stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    MUST(cuGraphLaunch(exec, t->free_stream[0]));
    MUST(cuGraphLaunch(exec, t->free_stream[0]));
    MUST(cuGraphExecDestroy(exec));
}

/* A graph may use memory that it allocates and frees itself. */
static void its_own(litmus_t *t) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    MUST(cuStreamBeginCapture_v2(t->free_stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemAllocAsync(&memory, 4096, t->free_stream[0]));
    litmus_own(t, memory, 4096);
    litmus_launch(t, 0, t->free_stream[0], memory, 1, true, false);
    litmus_disown(t, memory);
    MUST(cuMemFreeAsync(memory, t->free_stream[0]));
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, t->free_stream[0]));
    MUST(cuGraphLaunch(exec, t->free_stream[0]));
    litmus_new(t, t->free_stream[0]);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

LITMUS_CASES({"kept", kept, ORDERED}, {"handed over", handed_over, RACY | DIRECT},
             {"handed over in order", handed_over_in_order, RACY | DIRECT},
             {"given back", given_back, RACY | DIRECT},
             {"parameters replaced", replaced, ORDERED | DIRECT},
             {"not launched again", not_launched_again, ORDERED},
             {"again within the graph", within_the_graph, ORDERED | DIRECT},
             {"allocated by the graph", its_own, ORDERED})
