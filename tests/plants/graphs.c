/* Faults in keeping memory for graphs. */
#include "plants.h"

enum { MIB = 1 << 20 };

/* The memory is freed while the work that uses it is captured, and the graph is launched later:
 * good only where whoever serves the memory keeps it for the graph. */
void plants_graph_memory_released(plants_t *t) {
    CUgraph graph;
    CUgraphExec exec;
    plants_take(t, MIB);
    MUST(cuStreamBeginCapture_v2(t->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    plants_old(t, t->stream[0]);
    plants_give(t);
    MUST(cuStreamEndCapture(t->stream[0], &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    plants_seek(t, PLANTS_SOME);
    plants_new(t, t->stream[1]);
    MUST(cuGraphLaunch(exec, t->stream[0]));
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
}
