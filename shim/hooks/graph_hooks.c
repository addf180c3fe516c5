/* Hooks of graphs.  They follow which graph is made of which, so that memory held for a capture is
 * released with its last graph (graphs.h).  submit_hooks.c has the launches. */
#include "hooks/body.h"
#include "hooks/copies.h"
#include "hooks/graph_hooks.h"

#include "allocator/order/capture.h"
#include "allocator/retired/retired.h"
#include "device/driver.h"
#include "track/graphs.h"
#include "track/pinned.h"
#include "track/reach.h"
#include "hooks/submit_hooks.h"
#include "failpoint.h"

/* --- memory held by a capture session: blocks of all devices, and pinned blocks --- */

typedef struct {
    uint64_t session;
    bool holds;
} ac_session_t;

static void ask_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    ac_session_t *asked = arg;
    (void)device;
    asked->holds = asked->holds || ac_allocator_holds(allocator, asked->session);
}

static bool holds(uint64_t session) {
    ac_session_t asked = {.session = session, .holds = ac_pinned_holds(session)};
    ac_device_each(ask_device, &asked);
    return asked.holds;
}

static void release_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)device;
    ac_allocator_release(allocator, *(uint64_t *)arg);
}

static void release(uint64_t session) {
    ac_device_each(release_device, &session);
    ac_pinned_release(session);
}

static bool unseen(void) {
    return atomic_load(&ac_graph_unseen);
}

static void lost(void) {
    ac_count(ac_thread_tls, AC_COUNT_untracked_captures);
}

void ac_graph_hooks_setup(void) {
    ac_graphs_setup(&(ac_graphs_memory_t){.begin = ac_order_capture_begin,
                                          .end = ac_order_capture_end,
                                          .holds = holds,
                                          .release = release,
                                          .unseen = unseen,
                                          .lost = lost});
}

/* --- an executable graph is made of a graph --- */

#define INSTANTIATE(symbol, params, args)                                                        \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        AC_RETRY(result, AC_NEED_UNKNOWN, real args);                                            \
        ac_context_note_current(thread, result);                                                 \
        if (thread && result == CUDA_SUCCESS && exec)                                            \
            ac_graphs_inherit(AC_EXEC(*exec), AC_GRAPH(graph), false);                           \
        return result;                                                                           \
    }
INSTANTIATE(cuGraphInstantiate,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *wrong, char *log, size_t size),
            (exec, graph, wrong, log, size))
INSTANTIATE(cuGraphInstantiate_v2,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *wrong, char *log, size_t size),
            (exec, graph, wrong, log, size))
INSTANTIATE(cuGraphInstantiateWithFlags,
            (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams,
            (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how),
            (exec, graph, how))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
            (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how),
            (exec, graph, how))

/* A successful update replaces every parameter; a failed one may replace some.  The last launch may
 * still run: a released block gets a fence that covers it. */
#define UPDATE(symbol, params, args)                                                             \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        AC_RETRY(result, AC_NEED_UNKNOWN, real args);                                            \
        ac_context_note_current(thread, result);                                                 \
        if (thread)                                                                              \
            ac_graphs_inherit(AC_EXEC(exec), AC_GRAPH(graph),                                    \
                              result == CUDA_SUCCESS || AC_FAILPOINT(failed_update_released));   \
        return result;                                                                           \
    }
UPDATE(cuGraphExecUpdate,
       (CUgraphExec exec, CUgraph graph, CUgraphNode *wrong, CUgraphExecUpdateResult *update),
       (exec, graph, wrong, update))
UPDATE(cuGraphExecUpdate_v2,
       (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *update),
       (exec, graph, update))

/* --- a graph is made of a graph, or takes one in --- */

CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
    AC_ENTER_OR_RETURN(cuGraphCreate);
    CUresult result;
    AC_RETRY(result, AC_NEED_LITTLE, real(graph, flags));
    if (thread && result == CUDA_SUCCESS && graph)
        ac_graphs_fresh(AC_GRAPH(*graph));
    return result;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
    AC_ENTER_OR_RETURN(cuGraphClone);
    CUresult result;
    AC_RETRY(result, AC_NEED_LITTLE, real(clone, graph));
    if (thread && result == CUDA_SUCCESS && clone) {
        ac_graphs_fresh(AC_GRAPH(*clone));
        if (!AC_FAILPOINT(graph_clone_forgotten))
            ac_graphs_inherit(AC_GRAPH(*clone), AC_GRAPH(graph), false);
    }
    return result;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                  size_t count, CUgraph child) {
    AC_ENTER_OR_RETURN(cuGraphAddChildGraphNode);
    CUresult result = real(node, graph, before, count, child);
    if (thread && result == CUDA_SUCCESS && !AC_FAILPOINT(child_graph_forgotten))
        ac_graphs_inherit(AC_GRAPH(graph), AC_GRAPH(child), false);
    return result;
}

/* Positions in the payload of CUgraphNodeParams, for the two kinds of nodes that contain graphs. */
enum { CHILD_GRAPH, CHILD_OWNERSHIP, BODY_HANDLE = 0, BODY_SIZE, BODY_GRAPHS };
enum { OWNERSHIP_MOVE = 1 };

/* Records that `graph` got a node with these parameters. */
static void node_added(CUgraph graph, const CUgraphNodeParams *params) {
    if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        const void *child = (const void *)(uintptr_t)params->payload[CHILD_GRAPH];
        ac_graphs_inherit(AC_GRAPH(graph), AC_GRAPH(child), false);
        if ((int)params->payload[CHILD_OWNERSHIP] == OWNERSHIP_MOVE)
            ac_graphs_inside(AC_GRAPH(child), AC_GRAPH(graph));
    } else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        /* The program captures into the bodies of a conditional node. */
        const CUgraph *body = (const CUgraph *)(uintptr_t)params->payload[BODY_GRAPHS];
        unsigned count = (unsigned)((unsigned long long)params->payload[BODY_SIZE] >> 32);
        for (unsigned i = 0; body && i < count; i++)
            ac_graphs_inside(AC_GRAPH(body[i]), AC_GRAPH(graph));
    }
}

void ac_memcpy_node(const CUDA_MEMCPY3D *copy) {
    if (LONG_SHAPE(copy))
        ac_graphs_show();
}

/* Nodes with work that may hold its graph until the program acts elsewhere. */
#define HOLDING_NODE(symbol, type)                                                               \
    CUresult symbol(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,   \
                    const type *params) {                                                        \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (thread)                                                                              \
            ac_graphs_hold();                                                                    \
        return real(node, graph, before, count, params);                                         \
    }
HOLDING_NODE(cuGraphAddHostNode, CUDA_HOST_NODE_PARAMS)
HOLDING_NODE(cuGraphAddBatchMemOpNode, CUDA_BATCH_MEM_OP_NODE_PARAMS)
HOLDING_NODE(cuGraphAddExternalSemaphoresWaitNode, CUDA_EXT_SEM_WAIT_NODE_PARAMS)

/* The driver calls the object's destructor like a host function, with the same restrictions. */
CUresult cuUserObjectCreate(CUuserObject *object, void *value, CUhostFn destroy,
                            unsigned references, unsigned flags) {
    AC_ENTER_OR_RETURN(cuUserObjectCreate);
    if (thread)
        ac_thread_expect_guests();
    return real(object, value, destroy, references, flags);
}

/* --- nodes that copy and fill: checked in the calls that the driver checks (guesses.def) --- */

#define REACHING_NODE(symbol, ok, params, args)                                                  \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        return !thread || (ok) ? real args : CUDA_ERROR_INVALID_VALUE;                           \
    }
/* Returns false for a copy that the driver refuses.  Records whether another copy is visible
 * work. */
static bool may_copy(ac_thread_t *thread, const CUDA_MEMCPY3D *copy) {
    bool may = ac_reach_3d(thread, copy);
    if (may)
        ac_memcpy_node(copy);
    return may;
}
REACHING_NODE(cuGraphAddMemcpyNode, may_copy(thread, copy),
              (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,
               const CUDA_MEMCPY3D *copy, CUcontext context),
              (node, graph, before, count, copy, context))
REACHING_NODE(cuGraphMemcpyNodeSetParams, may_copy(thread, copy),
              (CUgraphNode node, const CUDA_MEMCPY3D *copy), (node, copy))
REACHING_NODE(cuGraphExecMemcpyNodeSetParams, may_copy(thread, copy),
              (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context),
              (exec, node, copy, context))
REACHING_NODE(cuGraphAddMemsetNode, ac_reach_memset(thread, fill),
              (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,
               const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context),
              (node, graph, before, count, fill, context))
REACHING_NODE(cuGraphMemsetNodeSetParams, ac_reach_memset(thread, fill),
              (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill), (node, fill))
REACHING_NODE(cuGraphExecMemsetNodeSetParams, ac_reach_memset(thread, fill),
              (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill,
               CUcontext context),
              (exec, node, fill, context))

static void node_asked(ac_thread_t *thread, const CUgraphNodeParams *params) {
    ac_event_node(thread, params);
    if (thread && params &&
        (params->type == CU_GRAPH_NODE_TYPE_HOST ||
         params->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ||
         params->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT))
        ac_graphs_hold();
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                        CUgraphNodeParams *params) {
    AC_ENTER_OR_RETURN(cuGraphAddNode);
    if (thread && !ac_reach_node(thread, params))
        return CUDA_ERROR_INVALID_VALUE;
    node_asked(thread, params);
    CUresult result;
    AC_RETRY(result, AC_NEED_LITTLE, real(node, graph, before, count, params));
    if (thread && result == CUDA_SUCCESS && params)
        node_added(graph, params);
    return result;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *edges, size_t count,
                           CUgraphNodeParams *params) {
    AC_ENTER_OR_RETURN(cuGraphAddNode_v2);
    if (thread && !ac_reach_node(thread, params))
        return CUDA_ERROR_INVALID_VALUE;
    node_asked(thread, params);
    CUresult result;
    AC_RETRY(result, AC_NEED_LITTLE, real(node, graph, before, edges, count, params));
    if (thread && result == CUDA_SUCCESS && params)
        node_added(graph, params);
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
    AC_ENTER_OR_RETURN(cuGraphExecChildGraphNodeSetParams);
    CUresult result = real(exec, node, child);
    if (thread && result == CUDA_SUCCESS)
        ac_graphs_inherit(AC_EXEC(exec), AC_GRAPH(child), false);
    return result;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    AC_ENTER_OR_RETURN(cuGraphExecNodeSetParams);
    if (thread && !ac_reach_node(thread, params))
        return CUDA_ERROR_INVALID_VALUE;
    ac_event_node(thread, params);
    CUresult result = real(exec, node, params);
    if (thread && result == CUDA_SUCCESS && params && params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        ac_graphs_inherit(AC_EXEC(exec), AC_GRAPH((uintptr_t)params->payload[CHILD_GRAPH]),
                          false);
    return result;
}

/* Returns the graph inside a node.  The driver does not tell its outer graph, so the library cannot
 * follow graphs made of it or nodes added to it. */
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    AC_ENTER_OR_RETURN(cuGraphChildGraphNodeGetGraph);
    CUresult result = real(node, graph);
    if (thread && result == CUDA_SUCCESS)
        atomic_store(&ac_graph_unseen, true);
    return result;
}

/* --- destruction --- */

static ac_holder_t leaving(ac_thread_t *thread, ac_holder_t holder) {
    return thread ? ac_graphs_leaving(holder) : (ac_holder_t){AC_HOLDER_NONE, 0};
}

CUresult cuGraphDestroy(CUgraph graph) {
    AC_ENTER_OR_RETURN(cuGraphDestroy);
    ac_holder_t holder = leaving(thread, AC_GRAPH(graph));
    CUresult result = real(graph);
    ac_graphs_left(holder, AC_GRAPH(graph), result == CUDA_SUCCESS);
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    AC_ENTER_OR_RETURN(cuGraphExecDestroy);
    ac_holder_t holder = leaving(thread, AC_EXEC(exec));
    CUresult result = real(exec);
    ac_graphs_left(holder, AC_EXEC(exec), result == CUDA_SUCCESS);
    return result;
}

/* --- nodes that the program made itself join a capture: they count as submissions --- */

static CUresult joined(ac_thread_t *thread, CUstream stream, CUresult result) {
    if (!thread || result != CUDA_SUCCESS || AC_FAILPOINT(joined_nodes_unseen))
        return result;
    ac_context_t *context = ac_context_of_stream(thread, stream);
    if (context)
        ac_fence_submitted(context->timeline);
    else
        ac_context_unseen();
    return result;
}

#define DEPENDENCIES(symbol, params, args)                                                       \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        return joined(thread, stream, real args);                                                \
    }
DEPENDENCIES(cuStreamUpdateCaptureDependencies,
             (CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags),
             (stream, nodes, count, flags))
DEPENDENCIES(cuStreamUpdateCaptureDependencies_ptsz,
             (CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags),
             (stream, nodes, count, flags))
DEPENDENCIES(cuStreamUpdateCaptureDependencies_v2,
             (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
              unsigned flags),
             (stream, nodes, edges, count, flags))
DEPENDENCIES(cuStreamUpdateCaptureDependencies_v2_ptsz,
             (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
              unsigned flags),
             (stream, nodes, edges, count, flags))
