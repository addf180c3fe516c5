/* Edges of graphs.  An edge waits for the end of a node, or only for the beginning of a kernel
 * (programmatic edges).  Global lock.
 *
 * A programmatic edge holds its kernel until the kernel before it has begun.  At that moment
 * everything that the earlier kernel waited for is over.  The simulator nevertheless keeps the
 * whole order, as it does for launches.  Only the race detector uses the weaker order.
 *
 * Guesses (public documentation is silent):
 *   edge data that is neither zero nor a programmatic edge
 *   between kernels, an edge twice, an edge that is not there  INVALID_VALUE
 *   removing an edge by other data than its own                INVALID_VALUE
 *   removing edges of a graph with memory nodes                NOT_SUPPORTED
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

enum { PROGRAMMATIC = 1 }; /* CUgraphEdgeData.type */

/* ---- ports ---- */

static sim_port_t *port_find(CUgraphNode from, CUgraphNode to) {
    for (size_t i = 0; i < to->port_count; i++)
        if (to->ports[i].from == from)
            return &to->ports[i];
    return NULL;
}

unsigned char sim_graph_port(CUgraphNode from, CUgraphNode to) {
    const sim_port_t *port = port_find(from, to);
    return port ? port->port : SIM_PORT_DONE;
}

bool sim_graph_port_set(CUgraphNode from, CUgraphNode to, unsigned char port) {
    sim_port_t *old = port_find(from, to);
    if (old)
        *old = to->ports[--to->port_count];
    if (port == SIM_PORT_DONE)
        return true;
    sim_port_t *grown = realloc(to->ports, (to->port_count + 1) * sizeof *grown);
    if (!grown)
        return false;
    to->ports = grown;
    to->ports[to->port_count++] = (sim_port_t){from, port};
    return true;
}

static CUgraphEdgeData data_of(CUgraphNode from, CUgraphNode to) {
    unsigned char port = sim_graph_port(from, to);
    return (CUgraphEdgeData){.from_port = port, .type = port ? PROGRAMMATIC : 0};
}

static bool is_zero(const CUgraphEdgeData *data) {
    static const CUgraphEdgeData zero;
    return !data || !memcmp(data, &zero, sizeof zero);
}

/* Finds the port at which an edge begins; false: the data describes no valid edge. */
static bool port_wanted(const CUgraphEdgeData *data, CUgraphNode from, CUgraphNode to,
                        unsigned char *port) {
    *port = SIM_PORT_DONE;
    if (is_zero(data))
        return true;
    *port = data->from_port;
    return from->type == CU_GRAPH_NODE_TYPE_KERNEL && to->type == CU_GRAPH_NODE_TYPE_KERNEL &&
           data->type == PROGRAMMATIC && !data->to_port &&
           (data->from_port == SIM_PORT_PROGRAMMATIC || data->from_port == SIM_PORT_LAUNCH_ORDER);
}

bool sim_graph_plain_edges(const CUgraphEdgeData *edges, size_t count) {
    for (size_t i = 0; edges && i < count; i++)
        if (!is_zero(&edges[i])) {
            sim_log("programmatic edges given to a capture are not simulated");
            return false;
        }
    return true;
}

/* ---- reading ---- */

/* Returns true if an edge of the node has data that is not zero.  A list without this data would
 * mislead. */
static bool lossy(const sim_graph_node_t *node) {
    for (size_t i = 0; i < node->after.count; i++)
        if (sim_graph_port((CUgraphNode)node, node->after.item[i]))
            return true;
    return false;
}

static CUresult dependencies(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                             size_t *count) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    if (!node || (edges && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (nodes && !edges && node->port_count)
        return CUDA_ERROR_LOSSY_QUERY;
    CUresult result = sim_nodes_list(&node->before, false, nodes, count);
    for (size_t i = 0; !result && edges && i < *count; i++)
        edges[i] = nodes[i] ? data_of(nodes[i], node) : (CUgraphEdgeData){0};
    return result;
}

static CUresult dependents(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges,
                           size_t *count) {
    sim_graph_node_t *node = sim_graph_node_get(handle);
    if (!node || (edges && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (nodes && !edges && lossy(node))
        return CUDA_ERROR_LOSSY_QUERY;
    CUresult result = sim_nodes_list(&node->after, false, nodes, count);
    for (size_t i = 0; !result && edges && i < *count; i++)
        edges[i] = nodes[i] ? data_of(node, nodes[i]) : (CUgraphEdgeData){0};
    return result;
}

SIM_API(cuGraphNodeGetDependencies)(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    return dependencies(node, nodes, NULL, count);
}

SIM_API(cuGraphNodeGetDependentNodes)(CUgraphNode node, CUgraphNode *nodes, size_t *count) {
    return dependents(node, nodes, NULL, count);
}

SIM_API(cuGraphNodeGetDependencies_v2)
(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count) {
    return dependencies(node, nodes, edges, count);
}

SIM_API(cuGraphNodeGetDependentNodes_v2)
(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *count) {
    return dependents(node, nodes, edges, count);
}

static CUresult all_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                          CUgraphEdgeData *edges, size_t *count) {
    sim_graph_t *graph = sim_graph_get(handle);
    if (!graph || !count || !from != !to || (edges && !from))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; from && !edges && i < graph->nodes.count; i++)
        if (graph->nodes.item[i]->port_count)
            return CUDA_ERROR_LOSSY_QUERY;
    size_t found = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        sim_graph_node_t *node = graph->nodes.item[i];
        for (size_t j = 0; j < node->after.count; j++) {
            if (from && found == *count)
                return CUDA_SUCCESS;
            if (from) {
                from[found] = node;
                to[found] = node->after.item[j];
            }
            if (edges)
                edges[found] = data_of(node, node->after.item[j]);
            found++;
        }
    }
    for (size_t i = found; from && i < *count; i++) {
        from[i] = to[i] = NULL;
        if (edges)
            edges[i] = (CUgraphEdgeData){0};
    }
    *count = found;
    return CUDA_SUCCESS;
}

SIM_API(cuGraphGetEdges)(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    return all_edges(graph, from, to, NULL, count);
}

SIM_API(cuGraphGetEdges_v2)
(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count) {
    return all_edges(graph, from, to, edges, count);
}

/* ---- changing ---- */

typedef struct {
    sim_graph_t *graph;
    const CUgraphNode *from, *to;
    const CUgraphEdgeData *data;
    size_t count;
} edges_t;

/* Checks every edge before the first change, so that a call changes all edges or none. */
static CUresult check(const edges_t *edges, bool there) {
    const CUgraphNode *from = edges->from, *to = edges->to;
    if (!edges->graph || (edges->count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < edges->count; i++) {
        unsigned char port;
        if (!sim_graph_node_get(from[i]) || !sim_graph_node_get(to[i]) ||
            from[i]->graph != edges->graph || to[i]->graph != edges->graph || from[i] == to[i] ||
            sim_nodes_has(&to[i]->before, from[i]) != there ||
            !port_wanted(edges->data ? &edges->data[i] : NULL, from[i], to[i], &port) ||
            (there && port != sim_graph_port(from[i], to[i])))
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (from[i] == from[j] && to[i] == to[j])
                return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult add(const edges_t *edges) {
    CUresult result = check(edges, false);
    for (size_t i = 0; !result && i < edges->count; i++) {
        unsigned char port;
        port_wanted(edges->data ? &edges->data[i] : NULL, edges->from[i], edges->to[i], &port);
        if (!sim_graph_edge(edges->from[i], edges->to[i]) ||
            !sim_graph_port_set(edges->from[i], edges->to[i], port))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult drop(const edges_t *edges) {
    CUresult result = check(edges, true);
    if (!result && edges->graph->has_memory)
        result = CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; !result && i < edges->count; i++) {
        sim_graph_port_set(edges->from[i], edges->to[i], SIM_PORT_DONE);
        sim_nodes_remove(&edges->from[i]->after, edges->to[i]);
        sim_nodes_remove(&edges->to[i]->before, edges->from[i]);
    }
    return result;
}

SIM_API(cuGraphAddDependencies)
(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    return add(&(edges_t){sim_graph_get(graph), from, to, NULL, count});
}

SIM_API(cuGraphAddDependencies_v2)
(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
 size_t count) {
    return add(&(edges_t){sim_graph_get(graph), from, to, data, count});
}

SIM_API(cuGraphRemoveDependencies)
(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    return drop(&(edges_t){sim_graph_get(graph), from, to, NULL, count});
}

SIM_API(cuGraphRemoveDependencies_v2)
(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
 size_t count) {
    return drop(&(edges_t){sim_graph_get(graph), from, to, data, count});
}
