/* Nodes with parameters: making nodes, and reading and changing their parameters, in graphs and in
 * executable graphs.  Global lock.
 *
 * Guesses (public documentation is silent):
 *   parameters of copies, fills and host
 *   functions that a capture made                NOT_SUPPORTED, logged
 *   kernelParams of cuGraphKernelNodeGetParams   NULL if the kernel's arguments are not known
 *   a node of another type                       INVALID_VALUE
 *   a child graph with memory nodes              NOT_SUPPORTED
 *   a free node for memory already freed in the
 *   other kind of graph                          INVALID_VALUE
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* ---- setting ---- */

static void set_work(sim_graph_node_t *node, sim_work_t *work, CUcontext ctx) {
    sim_work_unref(node->work);
    node->work = work;
    node->ctx = ctx;
    node->described = true;
}

static CUresult context_or_current(CUcontext *ctx) {
    return *ctx ? sim_ctx_check(*ctx) : sim_ctx_current(ctx);
}

CUresult sim_graph_set_kernel(sim_graph_node_t *node, const CUDA_KERNEL_NODE_PARAMS *params) {
    CUcontext ctx = params->ctx;
    CUresult result = context_or_current(&ctx);
    if (result)
        return result;
    union {
        CUkernel kernel;
        CUfunction function;
    } handle = {.kernel = params->kern};
    sim_launch_args_t args = {
        .function = params->func ? params->func : handle.function,
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .shared_bytes = params->sharedMemBytes,
        .params = params->kernelParams,
        .extra = params->extra,
    };
    sim_work_t *work;
    result = sim_kernel_work(ctx, &args, &work);
    if (result)
        return result;
    set_work(node, work, ctx);
    return CUDA_SUCCESS;
}

/* The peer form has a context at the place of a reserved word of the plain form. */
static CUDA_MEMCPY3D_PEER peer_form(const CUDA_MEMCPY3D *copy, CUcontext ctx) {
    CUDA_MEMCPY3D_PEER peer;
    _Static_assert(sizeof peer == sizeof *copy, "the two forms have one layout");
    memcpy(&peer, copy, sizeof peer);
    peer.srcContext = peer.dstContext = ctx;
    return peer;
}

CUresult sim_graph_set_copy(sim_graph_node_t *node, const CUDA_MEMCPY3D *params, CUcontext ctx) {
    CUresult result = context_or_current(&ctx);
    if (result)
        return result;
    CUDA_MEMCPY3D_PEER peer = peer_form(params, ctx);
    sim_work_t *work;
    result = sim_copy3d_work(ctx, &peer, false, &work);
    if (result)
        return result;
    set_work(node, work, ctx);
    node->params.copy = *params;
    return CUDA_SUCCESS;
}

CUresult sim_graph_set_fill(sim_graph_node_t *node, const CUDA_MEMSET_NODE_PARAMS *params,
                            CUcontext ctx) {
    CUresult result = context_or_current(&ctx);
    if (result)
        return result;
    if (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4)
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work;
    result = sim_fill_work(ctx, params->dst, params->pitch, params->value, params->elementSize,
                           params->width, params->height, &work);
    if (result)
        return result;
    set_work(node, work, ctx);
    node->params.fill = *params;
    return CUDA_SUCCESS;
}

CUresult sim_graph_set_host(sim_graph_node_t *node, const CUDA_HOST_NODE_PARAMS *params) {
    CUcontext ctx = NULL;
    CUresult result = context_or_current(&ctx);
    if (result)
        return result;
    if (!params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work;
    result = sim_host_work(ctx, params->fn, params->userData, &work);
    if (result)
        return result;
    set_work(node, work, ctx);
    node->params.host = *params;
    return CUDA_SUCCESS;
}

CUresult sim_graph_set_event(sim_graph_node_t *node, CUevent handle) {
    CUevent event;
    CUresult result = sim_event_get(handle, &event);
    if (result)
        return result;
    node->described = true;
    node->params.event.event = event;
    node->params.event.event_id = event->object.id;
    return CUDA_SUCCESS;
}

/* ---- adding ---- */

/* Returns a new node if the call succeeded, and frees it otherwise. */
static CUresult keep(CUresult result, sim_graph_node_t *node, CUgraphNode *out) {
    if (result)
        sim_graph_node_free(node);
    else
        *out = node;
    return result;
}

static CUresult add(CUgraphNode *out, CUgraph handle, CUgraphNodeType type,
                    const CUgraphNode *before, size_t count, const void *params,
                    sim_graph_node_t **node) {
    sim_graph_t *graph = sim_graph_get(handle);
    if (!out || !graph || !params)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_graph_node_new(graph, type, before, count, node);
}

SIM_API(cuGraphAddKernelNode_v2)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
 const CUDA_KERNEL_NODE_PARAMS *params) {
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_KERNEL, before, count, params, &node);
    return result ? result : keep(sim_graph_set_kernel(node, params), node, out);
}

static CUDA_KERNEL_NODE_PARAMS widened(const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    CUDA_KERNEL_NODE_PARAMS wide = {0};
    memcpy(&wide, params, sizeof *params);
    return wide;
}

SIM_API(cuGraphAddKernelNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
 const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS wide = widened(params);
    return sim_do_cuGraphAddKernelNode_v2(out, graph, before, count, &wide);
}

SIM_API(cuGraphAddMemcpyNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
 const CUDA_MEMCPY3D *params, CUcontext ctx) {
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_MEMCPY, before, count, params, &node);
    return result ? result : keep(sim_graph_set_copy(node, params, ctx), node, out);
}

SIM_API(cuGraphAddMemsetNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
 const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx) {
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_MEMSET, before, count, params, &node);
    return result ? result : keep(sim_graph_set_fill(node, params, ctx), node, out);
}

SIM_API(cuGraphAddHostNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
 const CUDA_HOST_NODE_PARAMS *params) {
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_HOST, before, count, params, &node);
    return result ? result : keep(sim_graph_set_host(node, params), node, out);
}

SIM_API(cuGraphAddEmptyNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count) {
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_EMPTY, before, count, "", &node);
    return result ? result : keep(CUDA_SUCCESS, node, out);
}

SIM_API(cuGraphAddEventRecordNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count, CUevent event) {
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_EVENT_RECORD, before, count, "", &node);
    return result ? result : keep(sim_graph_set_event(node, event), node, out);
}

SIM_API(cuGraphAddEventWaitNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count, CUevent event) {
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_WAIT_EVENT, before, count, "", &node);
    return result ? result : keep(sim_graph_set_event(node, event), node, out);
}

SIM_API(cuGraphAddChildGraphNode)
(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count, CUgraph child_handle) {
    sim_graph_t *child = sim_graph_get(child_handle);
    if (!child)
        return CUDA_ERROR_INVALID_VALUE;
    if (child->has_memory)
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_graph_node_t *node;
    CUresult result = add(out, graph, CU_GRAPH_NODE_TYPE_GRAPH, before, count, "", &node);
    if (result)
        return result;
    result = sim_graph_copy(child, false, &node->params.child, NULL);
    if (!result)
        node->params.child->parent = node;
    return keep(result, node, out);
}

SIM_API(cuGraphChildGraphNodeGetGraph)(CUgraphNode handle, CUgraph *out) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    if (!node || node->type != CU_GRAPH_NODE_TYPE_GRAPH || !out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = node->params.child;
    return CUDA_SUCCESS;
}

/* ---- memory nodes ---- */

CUresult sim_graph_add_alloc(sim_graph_t *graph, const CUgraphNode *before, size_t count,
                             const CUDA_MEM_ALLOC_NODE_PARAMS *params, sim_graph_node_t **out) {
    sim_graph_mem_t *mem;
    CUresult result = sim_graph_mem_new(params, graph->object.id, &mem);
    if (result)
        return result;
    result = sim_graph_node_new(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, before, count, out);
    if (result) {
        sim_graph_mem_unref(mem);
        return result;
    }
    (*out)->params.mem = mem;
    graph->has_memory = true;
    return CUDA_SUCCESS;
}

CUresult sim_graph_add_free(sim_graph_t *graph, const CUgraphNode *before, size_t count,
                            uint64_t address, sim_graph_node_t **out) {
    sim_graph_mem_t *mem = sim_graph_mem_at(address);
    if (!mem)
        return CUDA_ERROR_INVALID_VALUE;
    bool own = mem->graph_id == graph->object.id;
    if (mem->freed_in_graph || (own && mem->freed_elsewhere))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.item[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
            graph->nodes.item[i]->params.mem == mem)
            return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_graph_node_new(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, before, count, out);
    if (result)
        return result;
    (*out)->params.mem = sim_graph_mem_ref(mem);
    mem->freed_in_graph |= own;
    mem->freed_elsewhere += !own;
    graph->has_memory = true;
    return CUDA_SUCCESS;
}

void sim_graph_undo_free(sim_graph_node_t *node) {
    sim_graph_mem_t *mem = node->params.mem;
    if (mem->graph_id == node->graph->object.id)
        mem->freed_in_graph = false;
    else
        mem->freed_elsewhere--;
}

SIM_API(cuGraphAddMemAllocNode)
(CUgraphNode *out, CUgraph handle, const CUgraphNode *before, size_t count,
 CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    sim_graph_t *graph = sim_graph_get(handle);
    if (!out || !graph || !params || graph->parent)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_node_t *node;
    CUresult result = sim_graph_add_alloc(graph, before, count, params, &node);
    if (!result) {
        params->dptr = node->params.mem->base;
        *out = node;
    }
    return result;
}

SIM_API(cuGraphAddMemFreeNode)
(CUgraphNode *out, CUgraph handle, const CUgraphNode *before, size_t count, CUdeviceptr address) {
    sim_graph_t *graph = sim_graph_get(handle);
    if (!out || !graph || graph->parent)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_node_t *node;
    CUresult result = sim_graph_add_free(graph, before, count, address, &node);
    if (!result)
        *out = node;
    return result;
}

/* ---- reading ---- */

static CUresult readable(CUgraphNode handle, CUgraphNodeType type, const void *out,
                         sim_graph_node_t **node) {
    *node = sim_graph_node_get(handle);
    if (!*node || (*node)->type != type || !out)
        return CUDA_ERROR_INVALID_VALUE;
    bool memory = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (!memory && !(*node)->described) {
        sim_log("parameters of captured nodes are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

/* The returned arguments are the node's own copies, also for captured kernels. */
SIM_API(cuGraphKernelNodeGetParams_v2)(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    if (!node || node->type != CU_GRAPH_NODE_TYPE_KERNEL || !params)
        return CUDA_ERROR_INVALID_VALUE;
    sim_launch_args_t args;
    unsigned count = sim_kernel_describe(node->work, &args, NULL);
    void **arguments = realloc(node->arguments, (count + 1) * sizeof *arguments);
    if (!arguments)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->arguments = arguments;
    sim_kernel_describe(node->work, &args, arguments);
    *params = (CUDA_KERNEL_NODE_PARAMS){.func = args.function,
                                        .gridDimX = args.grid[0],
                                        .gridDimY = args.grid[1],
                                        .gridDimZ = args.grid[2],
                                        .blockDimX = args.block[0],
                                        .blockDimY = args.block[1],
                                        .blockDimZ = args.block[2],
                                        .sharedMemBytes = args.shared_bytes,
                                        .kernelParams = count ? arguments : NULL,
                                        .ctx = node->ctx};
    return CUDA_SUCCESS;
}

SIM_API(cuGraphKernelNodeGetParams)(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    CUDA_KERNEL_NODE_PARAMS wide;
    CUresult result = sim_do_cuGraphKernelNodeGetParams_v2(handle, params ? &wide : NULL);
    if (!result)
        memcpy(params, &wide, sizeof *params);
    return result;
}

SIM_API(cuGraphMemcpyNodeGetParams)(CUgraphNode handle, CUDA_MEMCPY3D *params) {
    sim_graph_node_t *node;
    CUresult result = readable(handle, CU_GRAPH_NODE_TYPE_MEMCPY, params, &node);
    if (!result)
        *params = node->params.copy;
    return result;
}

SIM_API(cuGraphMemsetNodeGetParams)(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *params) {
    sim_graph_node_t *node;
    CUresult result = readable(handle, CU_GRAPH_NODE_TYPE_MEMSET, params, &node);
    if (!result)
        *params = node->params.fill;
    return result;
}

SIM_API(cuGraphHostNodeGetParams)(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *params) {
    sim_graph_node_t *node;
    CUresult result = readable(handle, CU_GRAPH_NODE_TYPE_HOST, params, &node);
    if (!result)
        *params = node->params.host;
    return result;
}

SIM_API(cuGraphEventRecordNodeGetEvent)(CUgraphNode handle, CUevent *event) {
    sim_graph_node_t *node;
    CUresult result = readable(handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &node);
    if (!result)
        *event = node->params.event.event;
    return result;
}

SIM_API(cuGraphEventWaitNodeGetEvent)(CUgraphNode handle, CUevent *event) {
    sim_graph_node_t *node;
    CUresult result = readable(handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &node);
    if (!result)
        *event = node->params.event.event;
    return result;
}

SIM_API(cuGraphMemAllocNodeGetParams)(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    sim_graph_node_t *node;
    CUresult result = readable(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params, &node);
    if (!result) {
        const sim_graph_mem_t *mem = node->params.mem;
        *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
            .poolProps = mem->props,
            .accessDescs = mem->access_count ? mem->access : NULL,
            .accessDescCount = mem->access_count,
            .bytesize = mem->size,
            .dptr = mem->base,
        };
    }
    return result;
}

SIM_API(cuGraphMemFreeNodeGetParams)(CUgraphNode handle, CUdeviceptr *address) {
    sim_graph_node_t *node;
    CUresult result = readable(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, address, &node);
    if (!result)
        *address = node->params.mem->base;
    return result;
}

/* ---- changing ---- */

static bool of_type(const sim_graph_node_t *node, CUgraphNodeType type, const void *params) {
    return node && params && node->type == type;
}

SIM_API(cuGraphKernelNodeSetParams_v2)
(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    return of_type(node, CU_GRAPH_NODE_TYPE_KERNEL, params) ? sim_graph_set_kernel(node, params)
                                                            : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphKernelNodeSetParams)
(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS wide = widened(params);
    return sim_do_cuGraphKernelNodeSetParams_v2(handle, &wide);
}

SIM_API(cuGraphMemcpyNodeSetParams)(CUgraphNode handle, const CUDA_MEMCPY3D *params) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    return of_type(node, CU_GRAPH_NODE_TYPE_MEMCPY, params)
               ? sim_graph_set_copy(node, params, node->ctx)
               : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphMemsetNodeSetParams)
(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS *params) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    return of_type(node, CU_GRAPH_NODE_TYPE_MEMSET, params)
               ? sim_graph_set_fill(node, params, node->ctx)
               : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphHostNodeSetParams)(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS *params) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    return of_type(node, CU_GRAPH_NODE_TYPE_HOST, params) ? sim_graph_set_host(node, params)
                                                          : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphEventRecordNodeSetEvent)(CUgraphNode handle, CUevent event) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    return of_type(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, "") ? sim_graph_set_event(node, event)
                                                              : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphEventWaitNodeSetEvent)(CUgraphNode handle, CUevent event) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    return of_type(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, "") ? sim_graph_set_event(node, event)
                                                            : CUDA_ERROR_INVALID_VALUE;
}

/* ---- changing executable graphs ---- */

static sim_graph_node_t *exec_node(CUgraphExec exec, CUgraphNode handle, CUgraphNodeType type,
                                   const void *params) {
    sim_graph_node_t *node = params ? sim_graph_exec_node(exec, handle) : NULL;
    return node && node->type == type ? node : NULL;
}

SIM_API(cuGraphExecKernelNodeSetParams_v2)
(CUgraphExec exec, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params) {
    sim_graph_node_t *node = exec_node(exec, handle, CU_GRAPH_NODE_TYPE_KERNEL, params);
    return node ? sim_graph_set_kernel(node, params) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphExecKernelNodeSetParams)
(CUgraphExec exec, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS wide = widened(params);
    return sim_do_cuGraphExecKernelNodeSetParams_v2(exec, handle, &wide);
}

SIM_API(cuGraphExecMemcpyNodeSetParams)
(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMCPY3D *params, CUcontext ctx) {
    sim_graph_node_t *node = exec_node(exec, handle, CU_GRAPH_NODE_TYPE_MEMCPY, params);
    return node ? sim_graph_set_copy(node, params, ctx) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphExecMemsetNodeSetParams)
(CUgraphExec exec, CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx) {
    sim_graph_node_t *node = exec_node(exec, handle, CU_GRAPH_NODE_TYPE_MEMSET, params);
    return node ? sim_graph_set_fill(node, params, ctx) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphExecHostNodeSetParams)
(CUgraphExec exec, CUgraphNode handle, const CUDA_HOST_NODE_PARAMS *params) {
    sim_graph_node_t *node = exec_node(exec, handle, CU_GRAPH_NODE_TYPE_HOST, params);
    return node ? sim_graph_set_host(node, params) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphExecEventRecordNodeSetEvent)
(CUgraphExec exec, CUgraphNode handle, CUevent event) {
    sim_graph_node_t *node = exec_node(exec, handle, CU_GRAPH_NODE_TYPE_EVENT_RECORD, "");
    return node ? sim_graph_set_event(node, event) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphExecEventWaitNodeSetEvent)(CUgraphExec exec, CUgraphNode handle, CUevent event) {
    sim_graph_node_t *node = exec_node(exec, handle, CU_GRAPH_NODE_TYPE_WAIT_EVENT, "");
    return node ? sim_graph_set_event(node, event) : CUDA_ERROR_INVALID_VALUE;
}
