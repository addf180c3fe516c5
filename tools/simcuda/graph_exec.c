/* Executable graphs: instantiation, update, launch.  Global lock.
 *
 * An executable graph is a private copy of the graph (its image) in topological order.  A launch
 * first makes all its items, so that it fails as a whole or not at all.  It then submits a mark
 * that follows the stream's work and the previous launch, the nodes in the order of their edges,
 * and a last mark that becomes the stream's newest item.
 *
 * Guesses (public documentation is silent):
 *   a second executable graph of a graph with memory   INVALID_VALUE
 *   freeing, in another graph, memory that is not
 *   allocated when the graph is launched               INVALID_VALUE
 *   device launch                                      NOT_SUPPORTED, logged
 *   instantiating while a capture fills the graph      ILLEGAL_STATE
 *   launching a graph with memory into a capture       NOT_SUPPORTED
 *   an update changes the function of a kernel freely
 *   a launch that uses a destroyed event               INVALID_VALUE
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "race.h"

static sim_slab_t graph_execs = SIM_SLAB(sim_graph_exec_t, 1 << 16);

/* Results of cuGraphInstantiateWithParams. */
enum { INSTANTIATE_SUCCESS = 0, INSTANTIATE_ERROR = 1, INSTANTIATE_INVALID_STRUCTURE = 2 };

static sim_graph_exec_t *exec_get(CUgraphExec handle) {
    return sim_slab_has(&graph_execs, handle) ? handle : NULL;
}

static sim_graph_node_t *find_origin(sim_graph_t *graph, uint64_t id) {
    for (size_t i = 0; i < graph->nodes.count; i++) {
        sim_graph_node_t *node = graph->nodes.item[i];
        if (node->origin_id == id)
            return node;
        sim_graph_node_t *inner =
            node->type == CU_GRAPH_NODE_TYPE_GRAPH ? find_origin(node->params.child, id) : NULL;
        if (inner)
            return inner;
    }
    return NULL;
}

sim_graph_node_t *sim_graph_exec_node(CUgraphExec handle, CUgraphNode node) {
    sim_graph_exec_t *exec = exec_get(handle);
    return exec && sim_graph_node_get(node) ? find_origin(exec->image, node->object.id) : NULL;
}

/* ---- instantiation ---- */

static CUresult instantiate(CUgraphExec *out, CUgraph handle, cuuint64_t flags,
                            CUgraphNode *bad) {
    const cuuint64_t known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    sim_graph_t *graph = sim_graph_get(handle);
    if (!out || !graph || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
        if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
            return CUDA_ERROR_INVALID_VALUE;
        sim_log("launching graphs from the device is not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (graph->has_memory && graph->execs)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_exec_t *exec = sim_slab_take(&graph_execs);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_graph_copy(graph, true, &exec->image, bad);
    if (result) {
        sim_slab_give(&graph_execs, exec);
        return result;
    }
    exec->graph = graph;
    exec->graph_id = graph->object.id;
    exec->flags = flags;
    graph->execs++;
    *out = exec;
    return CUDA_SUCCESS;
}

static CUresult instantiate_logged(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log,
                                   size_t log_bytes) {
    CUgraphNode culprit = NULL;
    CUresult result = instantiate(out, graph, 0, &culprit);
    if (bad)
        *bad = culprit;
    if (log && log_bytes) {
        const char *text = culprit ? "the graph has a cycle" : "";
        size_t length = strlen(text) < log_bytes ? strlen(text) : log_bytes - 1;
        memcpy(log, text, length);
        log[length] = 0;
    }
    return result;
}

SIM_API(cuGraphInstantiate)
(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t log_bytes) {
    return instantiate_logged(out, graph, bad, log, log_bytes);
}

SIM_API(cuGraphInstantiate_v2)
(CUgraphExec *out, CUgraph graph, CUgraphNode *bad, char *log, size_t log_bytes) {
    return instantiate_logged(out, graph, bad, log, log_bytes);
}

SIM_API(cuGraphInstantiateWithFlags)
(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    return instantiate(out, graph, flags, NULL);
}

/* Keeps the user objects of the graph and of its child graphs until the launch has completed. */
static void keep_users(const sim_graph_t *graph, sim_work_t *last) {
    sim_user_refs_keep(&graph->users, last);
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.item[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
            keep_users(graph->nodes.item[i]->params.child, last);
}

SIM_API(cuGraphExecDestroy)(CUgraphExec handle) {
    sim_graph_exec_t *exec = exec_get(handle);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_t *graph = sim_graph_get(exec->graph);
    if (graph && graph->object.id == exec->graph_id)
        graph->execs--;
    keep_users(exec->image, exec->last);
    sim_work_unref(exec->last);
    sim_graph_free(exec->image);
    sim_slab_give(&graph_execs, exec);
    return CUDA_SUCCESS;
}

SIM_API(cuGraphExecGetFlags)(CUgraphExec handle, cuuint64_t *flags) {
    sim_graph_exec_t *exec = exec_get(handle);
    if (!exec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

static bool can_be_disabled(const sim_graph_node_t *node) {
    return node->type == CU_GRAPH_NODE_TYPE_KERNEL || node->type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           node->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

SIM_API(cuGraphNodeSetEnabled)(CUgraphExec exec, CUgraphNode handle, unsigned enabled) {
    sim_graph_node_t *node = sim_graph_exec_node(exec, handle);
    if (!node || !can_be_disabled(node))
        return CUDA_ERROR_INVALID_VALUE;
    node->disabled = !enabled;
    return CUDA_SUCCESS;
}

SIM_API(cuGraphNodeGetEnabled)(CUgraphExec exec, CUgraphNode handle, unsigned *enabled) {
    sim_graph_node_t *node = sim_graph_exec_node(exec, handle);
    if (!node || !can_be_disabled(node) || !enabled)
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = !node->disabled;
    return CUDA_SUCCESS;
}

/* ---- launch ---- */

typedef struct {
    CUstream stream;
    sim_graph_exec_t *exec;
    sim_work_t **item;
    size_t count, room;
    sim_graph_mem_t **committed;
    size_t committed_count, committed_room;
} launch_t;

static CUresult launch_add(launch_t *launch, sim_work_t *work) {
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (launch->count == launch->room) {
        size_t room = launch->room ? 2 * launch->room : 64;
        sim_work_t **grown = realloc(launch->item, room * sizeof *grown);
        if (!grown) {
            sim_work_unref(work);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        launch->item = grown;
        launch->room = room;
    }
    work->stream_id = launch->stream->object.id;
    launch->item[launch->count++] = work;
    return CUDA_SUCCESS;
}

static sim_work_t *mark(const launch_t *launch) {
    return sim_work_new(&sim_mark_ops, launch->stream->ctx, 0);
}

static CUresult commit(launch_t *launch, sim_graph_mem_t *mem) {
    if (launch->committed_count == launch->committed_room) {
        size_t room = launch->committed_room ? 2 * launch->committed_room : 16;
        sim_graph_mem_t **grown = realloc(launch->committed, room * sizeof *grown);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        launch->committed = grown;
        launch->committed_room = room;
    }
    CUresult result = sim_graph_mem_commit(mem);
    if (!result)
        launch->committed[launch->committed_count++] = mem;
    return result;
}

static bool is_own(const launch_t *launch, const sim_graph_mem_t *mem) {
    return mem->graph_id == launch->exec->graph_id;
}

/* Makes the item of one node, without dependencies. */
static CUresult make_item(launch_t *launch, sim_graph_node_t *node, sim_work_t **out) {
    CUcontext ctx = launch->stream->ctx;
    CUevent event = NULL;
    CUresult result = CUDA_SUCCESS;
    *out = NULL;
    switch (node->type) {
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        result = sim_event_get(node->params.event.event, &event);
        if (result || event->object.id != node->params.event.event_id)
            return CUDA_ERROR_INVALID_VALUE;
        *out = node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? sim_record_work(ctx, event)
                                                             : mark(launch);
        if (*out && node->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT &&
            !sim_work_after_event(*out, event)) {
            sim_work_unref(*out);
            *out = NULL;
        }
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        result = commit(launch, node->params.mem);
        if (result)
            return result;
        *out = sim_graph_mem_alloc_work(ctx, node->params.mem);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (!is_own(launch, node->params.mem) && !node->params.mem->live)
            return CUDA_ERROR_INVALID_VALUE;
        *out = sim_graph_mem_free_work(ctx, node->params.mem);
        break;
    default:
        *out = node->work && !node->disabled ? sim_work_clone(node->work) : mark(launch);
    }
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult plan_graph(launch_t *launch, sim_graph_t *image, sim_work_t *entry,
                           sim_work_t **exit);

static CUresult plan_node(launch_t *launch, sim_graph_node_t *node, sim_work_t *entry) {
    sim_work_t *work = NULL;
    CUresult result =
        node->type == CU_GRAPH_NODE_TYPE_GRAPH ? CUDA_SUCCESS : make_item(launch, node, &work);
    if (result)
        return result;
    if (!work)
        work = mark(launch);
    result = launch_add(launch, work);
    bool enough = !result && (node->before.count || sim_work_after(work, entry));
    for (size_t i = 0; enough && i < node->before.count; i++)
        enough = sim_graph_port(node->before.item[i], node)
                     ? sim_work_after_start(work, node->before.item[i]->planned)
                     : sim_work_after(work, node->before.item[i]->planned);
    if (!enough)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->planned = work;
    if (node->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_SUCCESS;
    return plan_graph(launch, node->params.child, work, &node->planned);
}

static CUresult plan_graph(launch_t *launch, sim_graph_t *image, sim_work_t *entry,
                           sim_work_t **exit) {
    for (size_t i = 0; i < image->nodes.count; i++) {
        CUresult result = plan_node(launch, image->nodes.item[i], entry);
        if (result)
            return result;
    }
    sim_work_t *end = mark(launch);
    CUresult result = launch_add(launch, end);
    bool enough = !result && sim_work_after(end, entry);
    for (size_t i = 0; enough && i < image->nodes.count; i++)
        if (!image->nodes.item[i]->after.count)
            enough = sim_work_after(end, image->nodes.item[i]->planned);
    *exit = end;
    return enough ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Plans the free of memory that the previous launch left allocated.  Without auto-free the launch
 * is an error. */
static CUresult plan_auto_free(launch_t *launch, sim_work_t **entry) {
    const sim_graph_t *image = launch->exec->image;
    bool automatic = launch->exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    for (size_t i = 0; i < image->nodes.count; i++) {
        sim_graph_node_t *node = image->nodes.item[i];
        if (node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !node->params.mem->live)
            continue;
        if (!automatic)
            return CUDA_ERROR_INVALID_VALUE;
        sim_work_t *work = sim_graph_mem_free_work(launch->stream->ctx, node->params.mem);
        CUresult result = launch_add(launch, work);
        if (!result && !sim_work_after(work, *entry))
            result = CUDA_ERROR_OUT_OF_MEMORY;
        if (result)
            return result;
        *entry = work;
    }
    return CUDA_SUCCESS;
}

static CUresult plan(launch_t *launch, sim_work_t **tail) {
    sim_work_t *head = mark(launch);
    CUresult result = launch_add(launch, head);
    if (result)
        return result;
    if (!sim_stream_order(launch->stream, head) || !sim_work_after(head, launch->exec->last))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = plan_auto_free(launch, &head);
    return result ? result : plan_graph(launch, launch->exec->image, head, tail);
}

/* Updates what the program may do with the graph's events and memory after the launch. */
static void publish(sim_graph_t *image) {
    for (size_t i = 0; i < image->nodes.count; i++) {
        sim_graph_node_t *node = image->nodes.item[i];
        switch (node->type) {
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            sim_event_attach(node->params.event.event, node->planned);
            break;
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
            node->params.mem->live = !node->params.mem->freed_in_graph;
            break;
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            node->params.mem->live = false;
            break;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            publish(node->params.child);
            break;
        default:
            break;
        }
    }
}

static CUresult launch_now(sim_graph_exec_t *exec, CUstream stream) {
    launch_t launch = {.stream = stream, .exec = exec};
    sim_work_t *tail = NULL;
    CUresult result = plan(&launch, &tail);
    if (!result) {
        publish(exec->image);
        sim_stream_advance(stream, tail);
        sim_work_unref(exec->last);
        exec->last = sim_work_ref(tail);
        for (size_t i = 0; i < launch.count; i++)
            sim_work_submit(launch.item[i]);
        if (sim_race_on)
            sim_race_launched(launch.item, launch.count);
    } else {
        for (size_t i = 0; i < launch.committed_count; i++)
            sim_graph_mem_rollback(launch.committed[i]);
    }
    for (size_t i = 0; i < launch.count; i++)
        sim_work_unref(launch.item[i]);
    free(launch.item);
    free(launch.committed);
    return result;
}

static CUresult launch_stream(CUgraphExec handle, CUstream stream_handle, bool per_thread,
                              bool upload) {
    sim_graph_exec_t *exec = exec_get(handle);
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream;
    CUresult result = sim_stream_get(stream_handle, per_thread, &stream);
    if (result)
        return result;
    if (upload) {
        sim_work_t *work = mark(&(launch_t){.stream = stream});
        return work ? sim_enqueue(stream, work, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (stream->capture) {
        sim_graph_t *child;
        if (exec->image->has_memory)
            return CUDA_ERROR_NOT_SUPPORTED;
        result = sim_graph_copy(exec->image, false, &child, NULL);
        return result ? result : sim_capture_child(stream, child);
    }
    if (stream->is_legacy && sim_captures)
        result = sim_capture_implicit(stream->ctx);
    return result ? result : launch_now(exec, stream);
}

SIM_API(cuGraphLaunch)(CUgraphExec exec, CUstream stream) {
    return launch_stream(exec, stream, false, false);
}

SIM_API(cuGraphLaunch_ptsz)(CUgraphExec exec, CUstream stream) {
    return launch_stream(exec, stream, true, false);
}

SIM_API(cuGraphUpload)(CUgraphExec exec, CUstream stream) {
    return launch_stream(exec, stream, false, true);
}

SIM_API(cuGraphUpload_ptsz)(CUgraphExec exec, CUstream stream) {
    return launch_stream(exec, stream, true, true);
}

static CUresult instantiate_with(CUgraphExec *out, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params, bool per_thread) {
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode bad = NULL;
    CUgraphExec exec = NULL;
    CUresult result = instantiate(out ? &exec : NULL, graph, params->flags, &bad);
    if (!result && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
        result = launch_stream(exec, params->hUploadStream, per_thread, true);
        if (result)
            sim_do_cuGraphExecDestroy(exec);
    }
    params->hErrNode_out = bad;
    params->result_out = !result ? INSTANTIATE_SUCCESS
                         : bad   ? INSTANTIATE_INVALID_STRUCTURE
                                 : INSTANTIATE_ERROR;
    if (!result)
        *out = exec;
    return result;
}

SIM_API(cuGraphInstantiateWithParams)
(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate_with(out, graph, params, false);
}

SIM_API(cuGraphInstantiateWithParams_ptsz)
(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    return instantiate_with(out, graph, params, true);
}

/* ---- update ---- */

/* Compares nodes at the same place of the topological order.  `order` is the order of the new
 * graph. */
static CUgraphExecUpdateResult compare(const sim_graph_t *image, CUgraphNode *order,
                                       CUgraphExecUpdateResultInfo *info) {
    for (size_t i = 0; i < image->nodes.count; i++) {
        const sim_graph_node_t *old = image->nodes.item[i], *new = order[i];
        info->errorNode = order[i];
        if (old->type != new->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (old->before.count != new->before.count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t j = 0; j < old->before.count; j++)
            if (image->nodes.item[new->before.item[j]->at] != old->before.item[j] ||
                sim_graph_port(new->before.item[j], order[i]) !=
                    sim_graph_port(old->before.item[j], image->nodes.item[i])) {
                info->errorFromNode = new->before.item[j];
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            }
        if (old->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && old->params.mem != new->params.mem)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        if (old->type == CU_GRAPH_NODE_TYPE_GRAPH) {
            CUgraphNode *inner;
            if (old->params.child->nodes.count != new->params.child->nodes.count)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            if (sim_graph_sort(new->params.child, &inner, NULL))
                return CU_GRAPH_EXEC_UPDATE_ERROR;
            CUgraphExecUpdateResult result = compare(old->params.child, inner, info);
            free(inner);
            if (result)
                return result;
        }
    }
    info->errorNode = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* The new image replaces the old one.  Its nodes stand for the same original nodes. */
static void adopt_origins(sim_graph_t *to, const sim_graph_t *from) {
    for (size_t i = 0; i < to->nodes.count; i++) {
        to->nodes.item[i]->origin_id = from->nodes.item[i]->origin_id;
        to->nodes.item[i]->disabled = from->nodes.item[i]->disabled;
        if (to->nodes.item[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
            adopt_origins(to->nodes.item[i]->params.child, from->nodes.item[i]->params.child);
    }
}

SIM_API(cuGraphExecUpdate_v2)
(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info) {
    sim_graph_exec_t *exec = exec_get(handle);
    sim_graph_t *graph = sim_graph_get(graph_handle);
    if (!info)
        return CUDA_ERROR_INVALID_VALUE;
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode *order;
    CUresult result = sim_graph_sort(graph, &order, &info->errorNode);
    if (result)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    info->result = exec->image->nodes.count == graph->nodes.count
                       ? compare(exec->image, order, info)
                       : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    free(order);
    if (info->result)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    sim_graph_t *image;
    result = sim_graph_copy(graph, true, &image, NULL);
    if (result) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
        return result;
    }
    adopt_origins(image, exec->image);
    keep_users(exec->image, exec->last);
    sim_graph_free(exec->image);
    exec->image = image;
    return CUDA_SUCCESS;
}

SIM_API(cuGraphExecUpdate)
(CUgraphExec exec, CUgraph graph, CUgraphNode *bad, CUgraphExecUpdateResult *why) {
    CUgraphExecUpdateResultInfo info;
    CUresult result = sim_do_cuGraphExecUpdate_v2(exec, graph, &info);
    if (bad)
        *bad = info.errorNode;
    if (why)
        *why = info.result;
    return result;
}

SIM_LIVE_COUNT(graph_execs) {
    return graph_execs.live;
}
