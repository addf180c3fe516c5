/* A programmatic edge between kernels of a graph holds the second until the first was begun, no
 * longer.
 *
 * CUDA C++ Programming Guide, "CUDA Graphs", "Edge Data", and "Programmatic Dependent Launch and
 * Synchronization", "Use in CUDA Graphs"; CUDA Driver API, "Data types used by CUDA driver",
 * CUgraphEdgeData. */
#include "litmus.h"

enum { PLAIN, PROGRAMMATIC };

static CUgraph graph;

static CUgraphNode add(litmus_t *t, CUdeviceptr to, unsigned value, int slow) {
    unsigned spins = slow ? 2000000 : 0;
    void *params[] = {&to, &value, &spins};
    CUDA_KERNEL_NODE_PARAMS node = test_kernel_node(t->store[0][slow], params);
    CUgraphNode out;
    MUST(cuGraphAddKernelNode_v2(&out, graph, NULL, 0, &node));
    return out;
}

static void edge(CUgraphNode from, CUgraphNode to, int how) {
    CUgraphEdgeData data = {0};
    if (how == PROGRAMMATIC)
        data = (CUgraphEdgeData){.from_port = 1, .type = 1};
    MUST(cuGraphAddDependencies_v2(graph, &from, &to, &data, 1));
}

static void launch(litmus_t *t) {
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, t->free_stream[0]));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static void one_edge(litmus_t *t, int how) {
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode first = add(t, t->memory, 1, 1);
    litmus_hand_over(t);
    edge(first, add(t, t->memory, 2, 0), how);
    launch(t);
}

static void plain(litmus_t *t) {
    one_edge(t, PLAIN);
}

static void programmatic(litmus_t *t) {
    one_edge(t, PROGRAMMATIC);
}

static void chain(litmus_t *t, int first, int second) {
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode a = add(t, t->memory, 1, 1), b = add(t, t->other, 0, 0);
    litmus_hand_over(t);
    CUgraphNode c = add(t, t->memory, 2, 0);
    edge(a, b, first);
    edge(b, c, second);
    launch(t);
}

static void then_plain(litmus_t *t) {
    chain(t, PROGRAMMATIC, PLAIN);
}

static void after_plain(litmus_t *t) {
    chain(t, PLAIN, PROGRAMMATIC);
}

static void twice(litmus_t *t) {
    chain(t, PROGRAMMATIC, PROGRAMMATIC);
}

/* Work behind the launch comes after all kernels of it. */
static void behind_the_launch(litmus_t *t) {
    MUST(cuGraphCreate(&graph, 0));
    edge(add(t, t->memory, 1, 1), add(t, t->other, 0, 0), PROGRAMMATIC);
    launch(t);
    litmus_hand_over(t);
    litmus_new(t, t->free_stream[0]);
}

static void begin(litmus_t *t) {
    MUST(cuStreamBeginCapture_v2(t->free_stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void capture(litmus_t *t, bool programmatic_launch) {
    begin(t);
    litmus_old(t, t->free_stream[0]);
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[0], t->memory, 2, false, programmatic_launch);
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    launch(t);
}

static void captured(litmus_t *t) {
    capture(t, true);
}

static void captured_plain(litmus_t *t) {
    capture(t, false);
}

/* A programmatic launch overlaps only its own stream's kernel: a wait for an event is a full
 * edge. */
static void captured_behind_an_event(litmus_t *t) {
    begin(t);
    litmus_old(t, t->free_stream[0]);
    MUST(cuEventRecord(t->event[0], t->free_stream[0]));
    MUST(cuStreamWaitEvent(t->free_stream[1], t->event[0], 0));
    litmus_hand_over(t);
    litmus_launch(t, 0, t->free_stream[1], t->memory, 2, false, true);
    MUST(cuEventRecord(t->event[1], t->free_stream[1]));
    MUST(cuStreamWaitEvent(t->free_stream[0], t->event[1], 0));
    MUST(cuStreamEndCapture(t->free_stream[0], &graph));
    launch(t);
}

LITMUS_CASES({"a plain edge", plain, ORDERED | DIRECT},
             {"a programmatic edge", programmatic, RACY | DIRECT},
             {"a plain edge behind it", then_plain, ORDERED | DIRECT},
             {"a plain edge before it", after_plain, ORDERED | DIRECT},
             {"two programmatic edges", twice, RACY | DIRECT},
             {"behind the launch", behind_the_launch, ORDERED},
             {"captured", captured, RACY | DIRECT},
             {"captured, a plain launch", captured_plain, ORDERED | DIRECT},
             {"captured behind an event", captured_behind_an_event, ORDERED | DIRECT})
