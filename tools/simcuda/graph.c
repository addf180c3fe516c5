/* Graphs and their structure: creation, nodes, copies, order.  Global lock.
 *
 * Guesses (public documentation is silent):
 *   handles that are not graphs or nodes     INVALID_VALUE
 *   removing nodes of a graph with memory
 *   nodes, cloning a graph with them         NOT_SUPPORTED
 *   destroying a child graph by its handle   INVALID_VALUE
 *   destroying a graph being captured into   ILLEGAL_STATE
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

static sim_slab_t graphs = SIM_SLAB(sim_graph_t, 1 << 16);
static sim_slab_t graph_nodes = SIM_SLAB(sim_graph_node_t, 1 << 20);

/* ---- lists of nodes ---- */

bool sim_nodes_add(sim_nodes_t *nodes, CUgraphNode node) {
    if (nodes->count == nodes->room) {
        size_t room = nodes->room ? 2 * nodes->room : 4;
        CUgraphNode *grown = realloc(nodes->item, room * sizeof *grown);
        if (!grown)
            return false;
        nodes->item = grown;
        nodes->room = room;
    }
    nodes->item[nodes->count++] = node;
    return true;
}

bool sim_nodes_has(const sim_nodes_t *nodes, CUgraphNode node) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->item[i] == node)
            return true;
    return false;
}

void sim_nodes_remove(sim_nodes_t *nodes, CUgraphNode node) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->item[i] == node) {
            memmove(nodes->item + i, nodes->item + i + 1,
                    (--nodes->count - i) * sizeof *nodes->item);
            return;
        }
}

void sim_nodes_free(sim_nodes_t *nodes) {
    free(nodes->item);
    *nodes = (sim_nodes_t){0};
}

/* ---- objects ---- */

sim_graph_t *sim_graph_get(CUgraph handle) {
    return sim_slab_has(&graphs, handle) && !handle->image ? handle : NULL;
}

sim_graph_node_t *sim_graph_node_get(CUgraphNode handle) {
    return sim_slab_has(&graph_nodes, handle) && !handle->graph->image ? handle : NULL;
}

CUresult sim_graph_new(sim_graph_t **out) {
    *out = sim_slab_take(&graphs);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_graph_free(sim_graph_t *graph) {
    while (graph->nodes.count)
        sim_graph_node_free(graph->nodes.item[graph->nodes.count - 1]);
    sim_nodes_free(&graph->nodes);
    sim_user_refs_drop(&graph->users);
    sim_slab_give(&graphs, graph);
}

bool sim_graph_edge(sim_graph_node_t *from, sim_graph_node_t *to) {
    if (!sim_nodes_add(&from->after, to))
        return false;
    if (sim_nodes_add(&to->before, from))
        return true;
    from->after.count--;
    return false;
}

CUresult sim_graph_node_new(sim_graph_t *graph, CUgraphNodeType type, const CUgraphNode *before,
                            size_t count, sim_graph_node_t **out) {
    if (count && !before)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!sim_slab_has(&graph_nodes, before[i]) || before[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (before[i] == before[j])
                return CUDA_ERROR_INVALID_VALUE;
    }
    sim_graph_node_t *node = sim_slab_take(&graph_nodes);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->graph = graph;
    node->type = type;
    bool enough = sim_nodes_add(&graph->nodes, node);
    for (size_t i = 0; enough && i < count; i++)
        enough = sim_graph_edge(before[i], node);
    if (!enough) {
        sim_graph_node_free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = node;
    return CUDA_SUCCESS;
}

void sim_graph_node_free(sim_graph_node_t *node) {
    for (size_t i = 0; i < node->before.count; i++)
        sim_nodes_remove(&node->before.item[i]->after, node);
    for (size_t i = 0; i < node->after.count; i++) {
        sim_graph_port_set(node, node->after.item[i], SIM_PORT_DONE);
        sim_nodes_remove(&node->after.item[i]->before, node);
    }
    free(node->ports);
    sim_nodes_free(&node->before);
    sim_nodes_free(&node->after);
    sim_nodes_remove(&node->graph->nodes, node);
    sim_work_unref(node->work);
    free(node->arguments);
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH && node->params.child)
        sim_graph_free(node->params.child);
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        sim_graph_mem_unref(node->params.mem);
    sim_slab_give(&graph_nodes, node);
}

/* ---- order and copies ---- */

CUresult sim_graph_sort(sim_graph_t *graph, CUgraphNode **out, CUgraphNode *bad) {
    size_t count = graph->nodes.count, done = 0;
    CUgraphNode *order = calloc(count + 1, sizeof *order);
    if (!order)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        graph->nodes.item[i]->at = graph->nodes.item[i]->before.count;
    for (size_t i = 0; i < count; i++)
        if (!graph->nodes.item[i]->at)
            order[done++] = graph->nodes.item[i];
    for (size_t i = 0; i < done; i++)
        for (size_t j = 0; j < order[i]->after.count; j++)
            if (!--order[i]->after.item[j]->at)
                order[done++] = order[i]->after.item[j];
    if (done < count) {
        for (size_t i = 0; bad && i < count; i++)
            if (graph->nodes.item[i]->at)
                *bad = graph->nodes.item[i];
        free(order);
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++)
        order[i]->at = i;
    *out = order;
    return CUDA_SUCCESS;
}

static CUresult copy_content(sim_graph_node_t *to, sim_graph_node_t *from, bool image) {
    to->described = from->described;
    to->disabled = from->disabled;
    to->origin_id = from->graph->image && image ? from->origin_id : from->object.id;
    to->ctx = from->ctx;
    if (from->work && !(to->work = sim_work_clone(from->work)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (from->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        CUresult result = sim_graph_copy(from->params.child, image, &to->params.child, NULL);
        if (!result)
            to->params.child->parent = to;
        return result;
    }
    to->params = from->params;
    if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || from->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        sim_graph_mem_ref(to->params.mem);
    return CUDA_SUCCESS;
}

static CUresult copy_edge(sim_graph_t *copy, CUgraphNode from, CUgraphNode to, CUgraphNode node) {
    CUgraphNode start = copy->nodes.item[from->at];
    bool enough =
        sim_graph_edge(start, node) && sim_graph_port_set(start, node, sim_graph_port(from, to));
    return enough ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_graph_copy(sim_graph_t *graph, bool image, sim_graph_t **out, CUgraphNode *bad) {
    CUgraphNode *order;
    CUresult result = sim_graph_sort(graph, &order, bad);
    if (result)
        return result;
    sim_graph_t *copy;
    result = sim_graph_new(&copy);
    if (result) {
        free(order);
        return result;
    }
    copy->image = image;
    copy->has_memory = graph->has_memory;
    for (size_t i = 0; !result && i < graph->nodes.count; i++) {
        sim_graph_node_t *node;
        result = sim_graph_node_new(copy, order[i]->type, NULL, 0, &node);
        for (size_t j = 0; !result && j < order[i]->before.count; j++)
            result = copy_edge(copy, order[i]->before.item[j], order[i], node);
        if (!result)
            result = copy_content(node, order[i], image);
    }
    free(order);
    if (!result && !sim_user_refs_copy(&copy->users, &graph->users))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        sim_graph_free(copy);
    else
        *out = copy;
    return result;
}

/* ---- the API ---- */

SIM_API(cuGraphCreate)(CUgraph *out, unsigned flags) {
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_graph_t *graph;
    CUresult result = sim_graph_new(&graph);
    if (!result)
        *out = graph;
    return result;
}

SIM_API(cuGraphDestroy)(CUgraph handle) {
    sim_graph_t *graph = sim_graph_get(handle);
    if (!graph || graph->parent)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    sim_graph_free(graph);
    return CUDA_SUCCESS;
}

SIM_API(cuGraphClone)(CUgraph *out, CUgraph handle) {
    sim_graph_t *graph = sim_graph_get(handle), *copy;
    if (!out || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->has_memory)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = sim_graph_copy(graph, false, &copy, NULL);
    if (!result)
        *out = copy;
    return result;
}

SIM_API(cuGraphNodeFindInClone)(CUgraphNode *out, CUgraphNode original, CUgraph clone) {
    sim_graph_t *graph = sim_graph_get(clone);
    if (!out || !graph || !sim_graph_node_get(original))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.item[i]->origin_id == original->object.id) {
            *out = graph->nodes.item[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphNodeGetType)(CUgraphNode handle, CUgraphNodeType *type) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

SIM_API(cuGraphDestroyNode)(CUgraphNode handle) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    if (node->graph->has_memory)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (node->graph->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    sim_graph_node_free(node);
    return CUDA_SUCCESS;
}

CUresult sim_nodes_list(const sim_nodes_t *from, bool roots_only, CUgraphNode *nodes,
                        size_t *count) {
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    for (size_t i = 0; i < from->count; i++) {
        if (roots_only && from->item[i]->before.count)
            continue;
        if (nodes && found == *count)
            return CUDA_SUCCESS;
        if (nodes)
            nodes[found] = from->item[i];
        found++;
    }
    for (size_t i = found; nodes && i < *count; i++)
        nodes[i] = NULL;
    *count = found;
    return CUDA_SUCCESS;
}

SIM_API(cuGraphGetNodes)(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    sim_graph_t *graph = sim_graph_get(handle);
    return graph ? sim_nodes_list(&graph->nodes, false, nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

SIM_API(cuGraphGetRootNodes)(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    sim_graph_t *graph = sim_graph_get(handle);
    return graph ? sim_nodes_list(&graph->nodes, true, nodes, count) : CUDA_ERROR_INVALID_VALUE;
}

SIM_LIVE_COUNT(graphs) {
    return graphs.live;
}

SIM_LIVE_COUNT(graph_nodes) {
    return graph_nodes.live;
}
