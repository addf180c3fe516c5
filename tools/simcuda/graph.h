/* Graphs, their nodes, executable graphs and captures: interface of graph*.c and capture.c.
 * Global lock everywhere. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "pool.h"
#include "sim.h"

typedef struct {
    CUgraphNode *item;
    size_t count, room;
} sim_nodes_t;

bool sim_nodes_add(sim_nodes_t *nodes, CUgraphNode node);
bool sim_nodes_has(const sim_nodes_t *nodes, CUgraphNode node);
void sim_nodes_remove(sim_nodes_t *nodes, CUgraphNode node); /* keeps the order */
void sim_nodes_free(sim_nodes_t *nodes);

/* The point of a node at which an edge begins: CUgraphEdgeData.from_port. */
enum { SIM_PORT_DONE = 0, SIM_PORT_PROGRAMMATIC = 1, SIM_PORT_LAUNCH_ORDER = 2 };

typedef struct {
    CUgraphNode from;
    unsigned char port;
} sim_port_t;

/* References to user objects, one entry for each object. */
typedef struct {
    CUuserObject object;
    uint64_t held;
} sim_user_ref_t;

typedef struct {
    sim_user_ref_t *item;
    size_t count, room;
} sim_user_refs_t;

typedef struct CUgraphNode_handle {
    sim_object_t object;
    CUgraph graph;
    CUgraphNodeType type;
    sim_nodes_t before, after;
    sim_port_t *ports; /* of edges from `before` that do not begin at its end */
    size_t port_count;
    sim_work_t *work;    /* cloned at each launch; NULL: the type is enough to run the node */
    bool described;      /* made by a cuGraphAdd call: `params` holds its arguments */
    bool disabled;       /* in executable graphs: cuGraphNodeSetEnabled */
    uint64_t origin_id;  /* copies: the node of the copied graph */
    size_t at;           /* scratch: index in an order being made */
    sim_work_t *planned; /* scratch: item of the launch being made */
    union {
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        struct {
            CUevent event;
            uint64_t event_id;
        } event;
        CUgraph child;
        sim_graph_mem_t *mem;
    } params;
    void **arguments; /* what cuGraphKernelNodeGetParams last gave out */
    CUcontext ctx;    /* of copies and fills, for a later SetParams */
} sim_graph_node_t;

typedef struct CUgraph_handle {
    sim_object_t object;
    sim_nodes_t nodes;           /* images: in topological order */
    CUgraphNode parent;          /* child graph of this node, or NULL */
    bool image;                  /* part of an executable graph */
    bool has_memory;             /* allocation or free nodes */
    size_t execs;                /* executable graphs made of it */
    struct sim_capture *capture; /* being captured into */
    sim_user_refs_t users;
} sim_graph_t;

typedef struct CUgraphExec_handle {
    sim_object_t object;
    CUgraph image;
    uint64_t graph_id; /* of the graph it was made of */
    CUgraph graph;
    cuuint64_t flags;
    sim_work_t *last; /* end of the newest launch */
} sim_graph_exec_t;

/* ---- graph.c ---- */

sim_graph_t *sim_graph_get(CUgraph handle); /* not parts of executable graphs; NULL: none */
sim_graph_node_t *sim_graph_node_get(CUgraphNode handle);
CUresult sim_graph_new(sim_graph_t **out);
void sim_graph_free(sim_graph_t *graph);
/* Makes a node without work after the given nodes of the same graph. */
CUresult sim_graph_node_new(sim_graph_t *graph, CUgraphNodeType type, const CUgraphNode *before,
                            size_t count, sim_graph_node_t **out);
void sim_graph_node_free(sim_graph_node_t *node);                  /* and its edges */
bool sim_graph_edge(sim_graph_node_t *from, sim_graph_node_t *to); /* false: no memory */
/* Implements all list queries.  NULL asks for the count.  Nodes that do not fit are left out;
 * surplus entries are set to NULL. */
CUresult sim_nodes_list(const sim_nodes_t *from, bool roots_only, CUgraphNode *nodes,
                        size_t *count);
/* Makes a copy in topological order.  INVALID_VALUE: there is a cycle; *bad is one of its nodes. */
CUresult sim_graph_copy(sim_graph_t *graph, bool image, sim_graph_t **out, CUgraphNode *bad);
/* Sorts the nodes by edges and creation.  The caller frees the list. */
CUresult sim_graph_sort(sim_graph_t *graph, CUgraphNode **out, CUgraphNode *bad);

/* ---- user_object.c ---- */

bool sim_user_refs_copy(sim_user_refs_t *to, const sim_user_refs_t *from); /* false: no memory */
/* Keeps the objects until `work` is complete (NULL: it is), and drops the references then. */
void sim_user_refs_keep(const sim_user_refs_t *refs, sim_work_t *work);
void sim_user_refs_drop(sim_user_refs_t *refs);

/* ---- graph_edges.c ---- */

unsigned char sim_graph_port(CUgraphNode from, CUgraphNode to);
bool sim_graph_port_set(CUgraphNode from, CUgraphNode to, unsigned char port); /* no memory */
/* Returns false, with a line in the log, if the data describes more than plain edges.  NULL is
 * plain. */
bool sim_graph_plain_edges(const CUgraphEdgeData *edges, size_t count);

/* ---- graph_exec.c ---- */

/* Returns the executable graph's node for `node`, or NULL. */
sim_graph_node_t *sim_graph_exec_node(CUgraphExec exec, CUgraphNode node);

/* ---- graph_nodes.c ---- */

/* Sets the work and params of a node.  Checks contexts and handles. */
CUresult sim_graph_set_kernel(sim_graph_node_t *node, const CUDA_KERNEL_NODE_PARAMS *params);
CUresult sim_graph_set_copy(sim_graph_node_t *node, const CUDA_MEMCPY3D *params, CUcontext ctx);
CUresult sim_graph_set_fill(sim_graph_node_t *node, const CUDA_MEMSET_NODE_PARAMS *params,
                            CUcontext ctx);
CUresult sim_graph_set_host(sim_graph_node_t *node, const CUDA_HOST_NODE_PARAMS *params);
CUresult sim_graph_set_event(sim_graph_node_t *node, CUevent event);

/* Makes memory nodes.  `before` lists the nodes that come before, as in sim_graph_node_new. */
CUresult sim_graph_add_alloc(sim_graph_t *graph, const CUgraphNode *before, size_t count,
                             const CUDA_MEM_ALLOC_NODE_PARAMS *params, sim_graph_node_t **out);
CUresult sim_graph_add_free(sim_graph_t *graph, const CUgraphNode *before, size_t count,
                            uint64_t address, sim_graph_node_t **out);
/* Called before a memory node is freed.  Undoes the effect of adding it. */
void sim_graph_undo_free(sim_graph_node_t *node);

/* ---- capture.c ---- */

typedef struct sim_capture {
    struct sim_capture *next; /* captures not ended */
    unsigned refs;            /* the list, streams, events */
    uint64_t id;
    sim_graph_t *graph;
    bool own_graph; /* made by cuStreamBeginCapture: destroyed if the capture fails */
    bool ended, invalid;
    CUstreamCaptureMode mode;
    sim_thread_t *thread;
    CUstream origin;
    CUgraphEdgeData *edges; /* zeroes for cuStreamGetCaptureInfo */
    size_t edge_room;
} sim_capture_t;

/* Record cuMemAllocAsync and cuMemFreeAsync on a capturing stream. */
CUresult sim_capture_alloc(CUstream stream, const CUmemPoolProps *props, size_t size,
                           CUdeviceptr *out);
CUresult sim_capture_free(CUstream stream, CUdeviceptr address);
/* Records cuGraphLaunch on a capturing stream as a child graph node.  Takes over `child`. */
CUresult sim_capture_child(CUstream stream, sim_graph_t *child);

#endif
