/* Nodes by one call for every type: cuGraphAddNode, cuGraphNodeSetParams and
 * cuGraphExecNodeSetParams.  Each type's parameters go to the function for that type.
 *
 * Guesses (public documentation is silent):
 *   fields of the structure that the type does not use  ignored
 *   a child graph whose ownership is handed over        NOT_SUPPORTED, logged
 *   types without a function in this driver             NOT_SUPPORTED, logged
 */
#include <string.h>

#include "graph.h"

/* Layouts of `payload`, type by type; shared ones are the structures of the older calls. */
typedef struct {
    int flags, reserved;
    CUcontext ctx;
    CUDA_MEMCPY3D copy;
} copy_params_t;

typedef struct {
    CUDA_MEMSET_NODE_PARAMS fill;
    CUcontext ctx;
} fill_params_t;

typedef struct {
    CUgraph graph;
    int ownership; /* 0: the graph is copied */
} child_params_t;

_Static_assert(sizeof(copy_params_t) <= sizeof((CUgraphNodeParams){0}.payload),
               "the largest parameters fit");

typedef struct {
    CUgraph graph;
    const CUgraphNode *before;
    size_t count;
} place_t;

#define ADD(call, ...) sim_do_##call(out, at->graph, at->before, at->count, __VA_ARGS__)

static CUresult add_kernel(CUgraphNode *out, const place_t *at, void *payload) {
    return ADD(cuGraphAddKernelNode_v2, payload);
}

static CUresult add_copy(CUgraphNode *out, const place_t *at, void *payload) {
    const copy_params_t *params = payload;
    return ADD(cuGraphAddMemcpyNode, &params->copy, params->ctx);
}

static CUresult add_fill(CUgraphNode *out, const place_t *at, void *payload) {
    const fill_params_t *params = payload;
    return ADD(cuGraphAddMemsetNode, &params->fill, params->ctx);
}

static CUresult add_host(CUgraphNode *out, const place_t *at, void *payload) {
    return ADD(cuGraphAddHostNode, payload);
}

static CUresult add_empty(CUgraphNode *out, const place_t *at, SIM_UNUSED void *payload) {
    return sim_do_cuGraphAddEmptyNode(out, at->graph, at->before, at->count);
}

static CUresult add_child(CUgraphNode *out, const place_t *at, void *payload) {
    const child_params_t *params = payload;
    if (!params->ownership)
        return ADD(cuGraphAddChildGraphNode, params->graph);
    sim_log("child graphs that are given away are not simulated");
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult add_record(CUgraphNode *out, const place_t *at, void *payload) {
    return ADD(cuGraphAddEventRecordNode, *(CUevent *)payload);
}

static CUresult add_wait(CUgraphNode *out, const place_t *at, void *payload) {
    return ADD(cuGraphAddEventWaitNode, *(CUevent *)payload);
}

static CUresult add_alloc(CUgraphNode *out, const place_t *at, void *payload) {
    return ADD(cuGraphAddMemAllocNode, payload); /* writes the address into them */
}

static CUresult add_free(CUgraphNode *out, const place_t *at, void *payload) {
    return ADD(cuGraphAddMemFreeNode, *(CUdeviceptr *)payload);
}

static CUresult set_kernel(sim_graph_node_t *node, const void *payload) {
    return sim_graph_set_kernel(node, payload);
}

static CUresult set_copy(sim_graph_node_t *node, const void *payload) {
    const copy_params_t *params = payload;
    return sim_graph_set_copy(node, &params->copy, params->ctx ? params->ctx : node->ctx);
}

static CUresult set_fill(sim_graph_node_t *node, const void *payload) {
    const fill_params_t *params = payload;
    return sim_graph_set_fill(node, &params->fill, params->ctx ? params->ctx : node->ctx);
}

static CUresult set_host(sim_graph_node_t *node, const void *payload) {
    return sim_graph_set_host(node, payload);
}

static CUresult set_event(sim_graph_node_t *node, const void *payload) {
    return sim_graph_set_event(node, *(const CUevent *)payload);
}

static const struct {
    CUresult (*add)(CUgraphNode *out, const place_t *at, void *payload);
    CUresult (*set)(sim_graph_node_t *node, const void *payload); /* NULL: cannot be changed */
} types[] = {
    [CU_GRAPH_NODE_TYPE_KERNEL] = {add_kernel, set_kernel},
    [CU_GRAPH_NODE_TYPE_MEMCPY] = {add_copy, set_copy},
    [CU_GRAPH_NODE_TYPE_MEMSET] = {add_fill, set_fill},
    [CU_GRAPH_NODE_TYPE_HOST] = {add_host, set_host},
    [CU_GRAPH_NODE_TYPE_GRAPH] = {add_child, NULL},
    [CU_GRAPH_NODE_TYPE_EMPTY] = {add_empty, NULL},
    [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = {add_wait, set_event},
    [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = {add_record, set_event},
    [CU_GRAPH_NODE_TYPE_MEM_ALLOC] = {add_alloc, NULL},
    [CU_GRAPH_NODE_TYPE_MEM_FREE] = {add_free, NULL},
};

static bool known(const CUgraphNodeParams *params) {
    unsigned type = (unsigned)params->type;
    return type < sizeof types / sizeof *types && types[type].add;
}

SIM_API(cuGraphAddNode_v2)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,
 size_t count, CUgraphNodeParams *params) {
    if (!out || !params)
        return CUDA_ERROR_INVALID_VALUE;
    if (!known(params)) {
        sim_log("cuGraphAddNode: nodes of type %d are not simulated", (int)params->type);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    /* Edges with data are added one by one, after a node without edges. */
    CUgraphNode node;
    place_t at = {graph, before, edges ? 0 : count};
    CUresult result = types[params->type].add(&node, &at, params->payload);
    for (size_t i = 0; !result && edges && i < count; i++) {
        result = sim_do_cuGraphAddDependencies_v2(graph, &before[i], &node, &edges[i], 1);
        if (result && node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            sim_graph_undo_free(node);
        if (result)
            sim_graph_node_free(node);
    }
    if (!result)
        *out = node;
    return result;
}

SIM_API(cuGraphAddNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
 CUgraphNodeParams *params) {
    return sim_do_cuGraphAddNode_v2(out, graph, before, NULL, count, params);
}

static CUresult set(sim_graph_node_t *node, const CUgraphNodeParams *params) {
    if (!node || !params || node->type != params->type)
        return CUDA_ERROR_INVALID_VALUE;
    if (known(params) && types[params->type].set)
        return types[params->type].set(node, params->payload);
    sim_log("changing nodes of type %d is not simulated", (int)params->type);
    return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuGraphNodeSetParams)(CUgraphNode node, CUgraphNodeParams *params) {
    return set(sim_graph_node_get(node), params);
}

SIM_API(cuGraphExecNodeSetParams)(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params) {
    return set(sim_graph_exec_node(exec, node), params);
}
