/* Graphs: what comes of what, so that memory held for a capture goes when its last graph does
 * (graphs.h). Launches are rows of submit_hooks.c. */
#include "intercept/body.h"
#include "intercept/graph_hooks.h"

#include "allocator/retired/held.h"
#include "device/driver.h"
#include "intercept/graphs.h"
#include "plant.h"

/* --- the memory behind an episode: blocks of all devices --- */

typedef struct {
    uint64_t episode;
    bool holds;
} ac_episode_t;

static void ask_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    ac_episode_t *asked = arg;
    (void)device;
    asked->holds = asked->holds || ac_allocator_holds(allocator, asked->episode);
}

static bool holds(uint64_t episode) {
    ac_episode_t asked = {.episode = episode};
    ac_device_each(ask_device, &asked);
    return asked.holds;
}

static void release_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)device;
    ac_allocator_release(allocator, *(uint64_t *)arg);
}

static void release(uint64_t episode) {
    ac_device_each(release_device, &episode);
}

static bool unseen(void) {
    return atomic_load(&ac_graph_unseen);
}

static void lost(void) {
    ac_count(ac_thread_tls, AC_COUNT_untracked_captures);
}

void ac_graph_hooks_setup(void) {
    ac_graphs_setup(&(ac_graphs_memory_t){.begin = ac_held_begin,
                                          .end = ac_held_end,
                                          .holds = holds,
                                          .release = release,
                                          .unseen = unseen,
                                          .lost = lost});
}

/* --- an executable graph is made of a graph --- */

#define INSTANTIATE(symbol, params, args)                                                        \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        CUresult result;                                                                         \
        AC_RETRY(result, AC_NEED_UNKNOWN, real args);                                            \
        ac_context_note_current(thread, result);                                                 \
        if (thread && result == CUDA_SUCCESS && a)                                               \
            ac_graphs_inherit(AC_EXEC(*a), AC_GRAPH(b), false);                                  \
        return result;                                                                           \
    }
INSTANTIATE(cuGraphInstantiate, (CUgraphExec * a, CUgraph b, CUgraphNode *c, char *d, size_t e),
            (a, b, c, d, e))
INSTANTIATE(cuGraphInstantiate_v2,
            (CUgraphExec * a, CUgraph b, CUgraphNode *c, char *d, size_t e), (a, b, c, d, e))
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec * a, CUgraph b, unsigned long long c),
            (a, b, c))
INSTANTIATE(cuGraphInstantiateWithParams,
            (CUgraphExec * a, CUgraph b, CUDA_GRAPH_INSTANTIATE_PARAMS *c), (a, b, c))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
            (CUgraphExec * a, CUgraph b, CUDA_GRAPH_INSTANTIATE_PARAMS *c), (a, b, c))

/* An update that succeeded replaced every parameter; one that failed, some perhaps.  The last
 * launch may still run: the fence that a released block gets covers it. */
#define UPDATE(symbol, params, args)                                                             \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        CUresult result;                                                                         \
        AC_RETRY(result, AC_NEED_UNKNOWN, real args);                                            \
        ac_context_note_current(thread, result);                                                 \
        if (thread)                                                                              \
            ac_graphs_inherit(AC_EXEC(a), AC_GRAPH(b),                                           \
                              result == CUDA_SUCCESS || AC_PLANTED(failed_update_released));     \
        return result;                                                                           \
    }
UPDATE(cuGraphExecUpdate, (CUgraphExec a, CUgraph b, CUgraphNode *c, CUgraphExecUpdateResult *d),
       (a, b, c, d))
UPDATE(cuGraphExecUpdate_v2, (CUgraphExec a, CUgraph b, CUgraphExecUpdateResultInfo *c),
       (a, b, c))

/* --- a graph is made of a graph, or takes one in --- */

CUresult cuGraphCreate(CUgraph *a, unsigned b) {
    AC_BODY(cuGraphCreate);
    CUresult result = real(a, b);
    if (thread && result == CUDA_SUCCESS && a)
        ac_graphs_fresh(AC_GRAPH(*a));
    return result;
}

CUresult cuGraphClone(CUgraph *a, CUgraph b) {
    AC_BODY(cuGraphClone);
    CUresult result = real(a, b);
    if (thread && result == CUDA_SUCCESS && a) {
        ac_graphs_fresh(AC_GRAPH(*a));
        if (!AC_PLANTED(graph_clone_forgotten))
            ac_graphs_inherit(AC_GRAPH(*a), AC_GRAPH(b), false);
    }
    return result;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *a, CUgraph b, const CUgraphNode *c, size_t d,
                                  CUgraph e) {
    AC_BODY(cuGraphAddChildGraphNode);
    CUresult result = real(a, b, c, d, e);
    if (thread && result == CUDA_SUCCESS && !AC_PLANTED(child_graph_forgotten))
        ac_graphs_inherit(AC_GRAPH(b), AC_GRAPH(e), false);
    return result;
}

/* The words of CUgraphNodeParams.payload for the two kinds of nodes that contain graphs. */
enum { CHILD_GRAPH, CHILD_OWNERSHIP, BODY_HANDLE = 0, BODY_SIZE, BODY_GRAPHS };
enum { OWNERSHIP_MOVE = 1 };

/* `graph` got a node with these parameters. */
static void node_added(CUgraph graph, const CUgraphNodeParams *params) {
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        const void *child = (const void *)(uintptr_t)params->payload[CHILD_GRAPH];
        ac_graphs_inherit(AC_GRAPH(graph), AC_GRAPH(child), false);
        if ((int)params->payload[CHILD_OWNERSHIP] == OWNERSHIP_MOVE)
            ac_graphs_inside(AC_GRAPH(child), AC_GRAPH(graph));
    } else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        /* Its bodies are made to be captured into. */
        const CUgraph *body = (const CUgraph *)(uintptr_t)params->payload[BODY_GRAPHS];
        unsigned count = (unsigned)((unsigned long long)params->payload[BODY_SIZE] >> 32);
        for (unsigned i = 0; body && i < count; i++)
            ac_graphs_inside(AC_GRAPH(body[i]), AC_GRAPH(graph));
    }
}

/* Work that may hold its graph until the program does something else. */
#define HOLDING_NODE(symbol, type)                                                               \
    CUresult symbol(CUgraphNode *a, CUgraph b, const CUgraphNode *c, size_t d, const type *e) {  \
        AC_BODY(symbol);                                                                         \
        if (thread)                                                                              \
            ac_graphs_hold();                                                                    \
        return real(a, b, c, d, e);                                                              \
    }
HOLDING_NODE(cuGraphAddHostNode, CUDA_HOST_NODE_PARAMS)
HOLDING_NODE(cuGraphAddBatchMemOpNode, CUDA_BATCH_MEM_OP_NODE_PARAMS)
HOLDING_NODE(cuGraphAddExternalSemaphoresWaitNode, CUDA_EXT_SEM_WAIT_NODE_PARAMS)

/* Its destructor is called by the driver, as a host function is. */
CUresult cuUserObjectCreate(CUuserObject *a, void *b, CUhostFn c, unsigned d, unsigned e) {
    AC_BODY(cuUserObjectCreate);
    if (thread)
        ac_thread_expect_guests();
    return real(a, b, c, d, e);
}

static void node_asked(ac_thread_t *thread, const CUgraphNodeParams *params) {
    ac_event_node(thread, params);
    if (thread && params &&
        (params->type == CU_GRAPH_NODE_TYPE_HOST ||
         params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
         params->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT))
        ac_graphs_hold();
}

CUresult cuGraphAddNode(CUgraphNode *a, CUgraph b, const CUgraphNode *c, size_t d,
                        CUgraphNodeParams *e) {
    AC_BODY(cuGraphAddNode);
    node_asked(thread, e);
    CUresult result = real(a, b, c, d, e);
    if (thread && result == CUDA_SUCCESS && e)
        node_added(b, e);
    return result;
}

CUresult cuGraphAddNode_v2(CUgraphNode *a, CUgraph b, const CUgraphNode *c,
                           const CUgraphEdgeData *d, size_t e, CUgraphNodeParams *f) {
    AC_BODY(cuGraphAddNode_v2);
    node_asked(thread, f);
    CUresult result = real(a, b, c, d, e, f);
    if (thread && result == CUDA_SUCCESS && f)
        node_added(b, f);
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec a, CUgraphNode b, CUgraph c) {
    AC_BODY(cuGraphExecChildGraphNodeSetParams);
    CUresult result = real(a, b, c);
    if (thread && result == CUDA_SUCCESS)
        ac_graphs_inherit(AC_EXEC(a), AC_GRAPH(c), false);
    return result;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec a, CUgraphNode b, CUgraphNodeParams *c) {
    AC_BODY(cuGraphExecNodeSetParams);
    ac_event_node(thread, c);
    CUresult result = real(a, b, c);
    if (thread && result == CUDA_SUCCESS && c && c->type == CU_GRAPH_NODE_TYPE_GRAPH)
        ac_graphs_inherit(AC_EXEC(a), AC_GRAPH((uintptr_t)c->payload[CHILD_GRAPH]), false);
    return result;
}

/* The graph inside a node, of which nobody tells whose it is: what is made of it or put into it
 * cannot be followed. */
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode a, CUgraph *b) {
    AC_BODY(cuGraphChildGraphNodeGetGraph);
    CUresult result = real(a, b);
    if (thread && result == CUDA_SUCCESS)
        atomic_store(&ac_graph_unseen, true);
    return result;
}

/* --- destruction --- */

static ac_holder_t leaving(ac_thread_t *thread, ac_holder_t holder) {
    return thread ? ac_graphs_leaving(holder) : (ac_holder_t){AC_HOLDER_NONE, 0};
}

CUresult cuGraphDestroy(CUgraph a) {
    AC_BODY(cuGraphDestroy);
    ac_holder_t holder = leaving(thread, AC_GRAPH(a));
    CUresult result = real(a);
    ac_graphs_left(holder, AC_GRAPH(a), result == CUDA_SUCCESS);
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec a) {
    AC_BODY(cuGraphExecDestroy);
    ac_holder_t holder = leaving(thread, AC_EXEC(a));
    CUresult result = real(a);
    ac_graphs_left(holder, AC_EXEC(a), result == CUDA_SUCCESS);
    return result;
}

/* --- nodes that the program made itself become part of a capture: as if they were submitted ---
 */

static CUresult joined(ac_thread_t *thread, CUstream stream, CUresult result) {
    if (!thread || result != CUDA_SUCCESS || AC_PLANTED(joined_nodes_unseen))
        return result;
    ac_context_t *context = ac_context_of_stream(thread, stream);
    if (context)
        ac_fence_submitted(context->line);
    else
        ac_context_unseen();
    return result;
}

#define DEPENDENCIES(symbol, params, args)                                                       \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        return joined(thread, a, real args);                                                     \
    }
DEPENDENCIES(cuStreamUpdateCaptureDependencies,
             (CUstream a, CUgraphNode *b, size_t c, unsigned d), (a, b, c, d))
DEPENDENCIES(cuStreamUpdateCaptureDependencies_ptsz,
             (CUstream a, CUgraphNode *b, size_t c, unsigned d), (a, b, c, d))
DEPENDENCIES(cuStreamUpdateCaptureDependencies_v2,
             (CUstream a, CUgraphNode *b, const CUgraphEdgeData *c, size_t d, unsigned e),
             (a, b, c, d, e))
DEPENDENCIES(cuStreamUpdateCaptureDependencies_v2_ptsz,
             (CUstream a, CUgraphNode *b, const CUgraphEdgeData *c, size_t d, unsigned e),
             (a, b, c, d, e))
