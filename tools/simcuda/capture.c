/* Stream capture: the captures that streams belong to, the calls that are forbidden meanwhile,
 * and the graph nodes that captured work becomes.  Global lock.
 *
 * A stream in a capture has a tail: the nodes that its next node depends on.  Recording an event
 * copies the tail into the event.  Waiting for the event adds these nodes to the tail of the
 * waiting stream, which joins the capture if it is in none.  A capture that ended stays while
 * events refer to it, so that these differ from events that were really recorded.
 *
 * Guesses (public documentation is silent):
 *   beginning on the legacy stream             STREAM_CAPTURE_UNSUPPORTED
 *   beginning on a capturing stream, ending on
 *   one that does not capture                  ILLEGAL_STATE
 *   calls forbidden while a capture that was
 *   invalidated has not ended                  as while it was valid
 *   ending with a NULL graph pointer           INVALID_VALUE, the capture goes on
 *   waiting for an event of an ended capture   CAPTURED_EVENT
 *   waiting, in a capture, for an event that
 *   was never recorded                         no dependency, SUCCESS
 *   a legacy stream waiting for an event of a
 *   capture                                    STREAM_CAPTURE_IMPLICIT, invalidates
 *   destroying a stream while it captures      invalidates; the capture ends with its origin
 *   external records and waits (flag 1)
 *   outside captures                           as plain ones
 *   freeing, in a capture, memory that no
 *   graph allocated                            INVALID_VALUE, the capture stays valid
 *   synchronising other streams                as other unsafe calls
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

size_t sim_captures;

static sim_capture_t *captures;

/* ---- life ---- */

static void capture_unref(sim_capture_t *capture) {
    if (--capture->refs)
        return;
    free(capture->edges);
    free(capture);
}

static bool tail_set(CUstream stream, const CUgraphNode *nodes, size_t count) {
    if (count > stream->capture_tail_room) {
        CUgraphNode *grown = realloc(stream->capture_tail, count * sizeof *grown);
        if (!grown)
            return false;
        stream->capture_tail = grown;
        stream->capture_tail_room = count;
    }
    if (count)
        memmove(stream->capture_tail, nodes, count * sizeof *nodes);
    stream->capture_tail_count = count;
    return true;
}

static bool tail_add(CUstream stream, const CUgraphNode *nodes, size_t count) {
    size_t have = stream->capture_tail_count;
    CUgraphNode *all = malloc((have + count + 1) * sizeof *all);
    if (!all)
        return false;
    if (have)
        memcpy(all, stream->capture_tail, have * sizeof *all);
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t j = 0; j < have && !known; j++)
            known = all[j] == nodes[i];
        if (!known)
            all[have++] = nodes[i];
    }
    bool done = tail_set(stream, all, have);
    free(all);
    return done;
}

static bool stream_join(CUstream stream, sim_capture_t *capture, const CUgraphNode *tail,
                        size_t count) {
    if (!tail_set(stream, tail, count))
        return false;
    stream->capture = capture;
    capture->refs++;
    stream->ctx->captures++;
    sim_captures++;
    return true;
}

static void stream_leave(CUstream stream) {
    sim_capture_t *capture = stream->capture;
    stream->capture = NULL;
    free(stream->capture_tail);
    stream->capture_tail = NULL;
    stream->capture_own = NULL;
    stream->capture_tail_count = stream->capture_tail_room = 0;
    stream->ctx->captures--;
    sim_captures--;
    capture_unref(capture);
}

/* Ends the capture for all its streams.  The graph of a failed capture is destroyed, too. */
static void capture_end(sim_capture_t *capture, bool keep_graph) {
    capture->ended = true;
    for (sim_capture_t **link = &captures; *link; link = &(*link)->next)
        if (*link == capture) {
            *link = capture->next;
            break;
        }
    capture->graph->capture = NULL;
    if (!keep_graph && capture->own_graph)
        sim_graph_free(capture->graph);
    capture->graph = NULL;
    CUstream stream;
    for (size_t at = 0; (stream = sim_slab_next(&sim_streams, &at));)
        if (stream->capture == capture)
            stream_leave(stream);
    capture_unref(capture);
}

static CUresult capture_begin(CUstream stream, CUstreamCaptureMode mode, sim_graph_t *graph,
                              const CUgraphNode *before, size_t count) {
    sim_capture_t *capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *capture = (sim_capture_t){.refs = 1,
                               .id = sim_next_id(),
                               .graph = graph,
                               .mode = mode,
                               .thread = sim_thread(),
                               .origin = stream,
                               .next = captures};
    if (!graph) {
        CUresult result = sim_graph_new(&capture->graph);
        if (result) {
            free(capture);
            return result;
        }
        capture->own_graph = true;
    }
    if (!stream_join(stream, capture, before, count)) {
        if (capture->own_graph)
            sim_graph_free(capture->graph);
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->graph->capture = capture;
    captures = capture;
    return CUDA_SUCCESS;
}

/* ---- what is not allowed meanwhile ---- */

/* Applies the documented rule for potentially unsafe calls, by the modes of the thread and of the
 * capture. */
static bool forbids(const sim_capture_t *capture, const sim_thread_t *thread) {
    if (thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == thread)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static CUresult unsafe_call(void) {
    const sim_thread_t *thread = sim_thread();
    CUresult result = CUDA_SUCCESS;
    for (sim_capture_t *capture = captures; thread && capture; capture = capture->next)
        if (forbids(capture, thread)) {
            capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

CUresult sim_capture_unsafe(SIM_UNUSED sim_fn_t fn) {
    return unsafe_call();
}

/* Invalidates the captures with a stream in the context.  `blocking` selects only streams that
 * synchronise with the legacy stream. */
static bool invalidate_in(CUcontext ctx, bool blocking, bool only_ask) {
    bool any = false;
    if (!ctx->captures)
        return false;
    for (CUstream stream = ctx->streams; stream; stream = stream->next)
        if (stream->capture && !(blocking && stream->flags & CU_STREAM_NON_BLOCKING)) {
            any = true;
            if (!only_ask)
                stream->capture->invalid = true;
        }
    return any;
}

CUresult sim_capture_sync(CUcontext ctx, CUstream stream) {
    if (!stream) {
        if (invalidate_in(sim_ctx_home(ctx), false, false))
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (stream->capture) {
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (stream->is_legacy) {
        CUresult result = sim_capture_implicit(stream->ctx);
        if (result)
            return result;
    }
    return unsafe_call();
}

CUresult sim_capture_implicit(CUcontext ctx) {
    return invalidate_in(ctx, true, false) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

void sim_capture_stream_gone(CUstream stream) {
    sim_capture_t *capture = stream->capture;
    if (!capture)
        return;
    capture->invalid = true;
    if (capture->origin == stream)
        capture_end(capture, false);
    else
        stream_leave(stream);
}

/* ---- work becomes nodes ---- */

static CUgraphNodeType node_type(const sim_work_t *work) {
    switch (work->ops->type) {
    case SIM_WORK_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SIM_WORK_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SIM_WORK_FILL:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SIM_WORK_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case SIM_WORK_WRITE_VALUE:
    case SIM_WORK_WAIT_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

static CUresult add_node(CUstream stream, CUgraphNodeType type, sim_graph_node_t **out) {
    sim_capture_t *capture = stream->capture;
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult result = sim_graph_node_new(capture->graph, type, stream->capture_tail,
                                         stream->capture_tail_count, out);
    if (result)
        return result;
    CUgraphNode node = *out;
    stream->capture_own = node;
    if (tail_set(stream, &node, 1))
        return CUDA_SUCCESS;
    sim_graph_node_free(node);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Returns the newest node of the stream itself, if the next node depends on it. */
static CUgraphNode own_tail(CUstream stream) {
    for (size_t i = 0; i < stream->capture_tail_count; i++)
        if (stream->capture_tail[i] == stream->capture_own)
            return stream->capture_own;
    return NULL;
}

CUresult sim_capture_record(CUstream stream, sim_work_t *work) {
    sim_graph_node_t *node;
    CUgraphNode own = own_tail(stream);
    CUresult result = add_node(stream, node_type(work), &node);
    if (!result && work->programmatic && own && own->type == CU_GRAPH_NODE_TYPE_KERNEL &&
        !sim_graph_port_set(own, node, SIM_PORT_PROGRAMMATIC))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        sim_work_unref(work);
        return result;
    }
    work->programmatic = false; /* the edge holds this from now on */
    node->work = work;
    node->ctx = work->ctx;
    return CUDA_SUCCESS;
}

/* Makes the node the stream's tail if it was made.  Nodes with parameters to check are made
 * first. */
static CUresult became_tail(CUstream stream, CUresult result, sim_graph_node_t *node) {
    if (result)
        return result;
    CUgraphNode tail = node;
    stream->capture_own = node;
    return tail_set(stream, &tail, 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_capture_alloc(CUstream stream, const CUmemPoolProps *props, size_t size,
                           CUdeviceptr *out) {
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = *props, .bytesize = size};
    params.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    params.poolProps.maxSize = 0;
    sim_graph_node_t *node = NULL;
    CUresult result = sim_graph_add_alloc(stream->capture->graph, stream->capture_tail,
                                          stream->capture_tail_count, &params, &node);
    result = became_tail(stream, result, node);
    if (!result)
        *out = node->params.mem->base;
    return result;
}

CUresult sim_capture_free(CUstream stream, CUdeviceptr address) {
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    sim_graph_node_t *node = NULL;
    CUresult result = sim_graph_add_free(stream->capture->graph, stream->capture_tail,
                                         stream->capture_tail_count, address, &node);
    return became_tail(stream, result, node);
}

CUresult sim_capture_child(CUstream stream, sim_graph_t *child) {
    sim_graph_node_t *node;
    CUresult result = add_node(stream, CU_GRAPH_NODE_TYPE_GRAPH, &node);
    if (result) {
        sim_graph_free(child);
        return result;
    }
    node->params.child = child;
    child->parent = node;
    return CUDA_SUCCESS;
}

/* ---- events ---- */

void sim_capture_event_gone(CUevent event) {
    if (event->capture)
        capture_unref(event->capture);
    event->capture = NULL;
    free(event->capture_nodes);
    event->capture_nodes = NULL;
    event->capture_node_count = 0;
}

static CUresult external_node(CUstream stream, CUgraphNodeType type, CUevent event) {
    sim_graph_node_t *node;
    CUresult result = add_node(stream, type, &node);
    return result ? result : sim_graph_set_event(node, event);
}

CUresult sim_capture_event_record(CUstream stream, CUevent event, unsigned flags) {
    sim_capture_t *capture = stream->capture;
    if (!capture)
        return sim_capture_implicit(stream->ctx);
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags & CU_EVENT_RECORD_EXTERNAL)
        return external_node(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    size_t count = stream->capture_tail_count;
    CUgraphNode *nodes = malloc((count + 1) * sizeof *nodes);
    if (!nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count)
        memcpy(nodes, stream->capture_tail, count * sizeof *nodes);
    sim_capture_event_gone(event);
    event->capture = capture;
    capture->refs++;
    event->capture_nodes = nodes;
    event->capture_node_count = count;
    return CUDA_SUCCESS;
}

static CUresult invalidate(sim_capture_t *a, sim_capture_t *b, CUresult why) {
    a->invalid = true;
    if (b)
        b->invalid = true;
    return why;
}

CUresult sim_capture_event_wait(CUstream stream, CUevent event, unsigned flags) {
    sim_capture_t *to = stream->capture, *from = event->capture;
    if (to && to->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (to && flags & CU_EVENT_WAIT_EXTERNAL)
        return external_node(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    if (!from) {
        if (to && event->recorded)
            return invalidate(to, NULL, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        return CUDA_SUCCESS;
    }
    if (from->ended)
        return to ? invalidate(to, NULL, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                  : CUDA_ERROR_CAPTURED_EVENT;
    if (from->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!to) {
        if (stream->is_legacy)
            return invalidate(from, NULL, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        return stream_join(stream, from, event->capture_nodes, event->capture_node_count)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (to != from)
        return invalidate(to, from, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return tail_add(stream, event->capture_nodes, event->capture_node_count)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- the API: beginning ---- */

static CUresult begin_on(CUstream handle, bool per_thread, CUstreamCaptureMode mode,
                         CUstream *stream) {
    CUresult result = sim_stream_get(handle, per_thread, stream);
    if (result)
        return result;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if ((*stream)->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return (*stream)->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, bool per_thread, CUstreamCaptureMode mode) {
    CUstream stream;
    CUresult result = begin_on(handle, per_thread, mode, &stream);
    return result ? result : capture_begin(stream, mode, NULL, NULL, 0);
}

SIM_API(cuStreamBeginCapture)(CUstream stream) {
    return begin(stream, false, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SIM_API(cuStreamBeginCapture_ptsz)(CUstream stream) {
    return begin(stream, true, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SIM_API(cuStreamBeginCapture_v2)(CUstream stream, CUstreamCaptureMode mode) {
    return begin(stream, false, mode);
}

SIM_API(cuStreamBeginCapture_v2_ptsz)(CUstream stream, CUstreamCaptureMode mode) {
    return begin(stream, true, mode);
}

static bool nodes_of(const sim_graph_t *graph, const CUgraphNode *nodes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!sim_graph_node_get(nodes[i]) || nodes[i]->graph != graph)
            return false;
    return true;
}

static CUresult begin_to_graph(CUstream handle, bool per_thread, CUgraph graph_handle,
                               const CUgraphNode *before, const CUgraphEdgeData *edges,
                               size_t count, CUstreamCaptureMode mode) {
    CUstream stream;
    CUresult result = begin_on(handle, per_thread, mode, &stream);
    if (result)
        return result;
    sim_graph_t *graph = sim_graph_get(graph_handle);
    if (!graph || (count && !before) || !nodes_of(graph, before, count))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!sim_graph_plain_edges(edges, count))
        return CUDA_ERROR_NOT_SUPPORTED;
    return capture_begin(stream, mode, graph, before, count);
}

SIM_API(cuStreamBeginCaptureToGraph)
(CUstream stream, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,
 size_t count, CUstreamCaptureMode mode) {
    return begin_to_graph(stream, false, graph, before, edges, count, mode);
}

SIM_API(cuStreamBeginCaptureToGraph_ptsz)
(CUstream stream, CUgraph graph, const CUgraphNode *before, const CUgraphEdgeData *edges,
 size_t count, CUstreamCaptureMode mode) {
    return begin_to_graph(stream, true, graph, before, edges, count, mode);
}

SIM_API(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode *mode) {
    sim_thread_t *thread = sim_thread();
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUstreamCaptureMode old = thread->capture_mode;
    thread->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- the API: ending ---- */

/* Marks in `at` all nodes before the given ones, each node once. */
static void mark_before(sim_graph_t *graph, const CUgraphNode *nodes, size_t count) {
    for (size_t i = 0; i < graph->nodes.count; i++)
        graph->nodes.item[i]->at = 0;
    CUgraphNode *todo = malloc((graph->nodes.count + 1) * sizeof *todo);
    size_t open = 0;
    for (size_t i = 0; todo && i < count; i++)
        if (!nodes[i]->at) {
            nodes[i]->at = 1;
            todo[open++] = nodes[i];
        }
    while (open) {
        CUgraphNode node = todo[--open];
        for (size_t i = 0; i < node->before.count; i++)
            if (!node->before.item[i]->at) {
                node->before.item[i]->at = 1;
                todo[open++] = node->before.item[i];
            }
    }
    free(todo);
}

/* Returns true if the newest nodes of every other stream come before the origin's tail. */
static bool all_joined(const sim_capture_t *capture) {
    mark_before(capture->graph, capture->origin->capture_tail,
                capture->origin->capture_tail_count);
    CUstream stream;
    for (size_t at = 0; (stream = sim_slab_next(&sim_streams, &at));)
        if (stream->capture == capture)
            for (size_t i = 0; i < stream->capture_tail_count; i++)
                if (!stream->capture_tail[i]->at)
                    return false;
    return true;
}

static CUresult end(CUstream handle, bool per_thread, CUgraph *out) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    sim_capture_t *capture = stream->capture;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!all_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *out = result ? NULL : capture->graph;
    capture_end(capture, !result);
    return result;
}

SIM_API(cuStreamEndCapture)(CUstream stream, CUgraph *graph) {
    return end(stream, false, graph);
}

SIM_API(cuStreamEndCapture_ptsz)(CUstream stream, CUgraph *graph) {
    return end(stream, true, graph);
}

/* ---- the API: asking ---- */

static CUresult status_of(CUstream handle, bool per_thread, CUstream *stream,
                          CUstreamCaptureStatus *status) {
    CUresult result = sim_stream_get(handle, per_thread, stream);
    if (result)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    if ((*stream)->is_legacy && invalidate_in((*stream)->ctx, true, true))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    const sim_capture_t *capture = (*stream)->capture;
    *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

SIM_API(cuStreamIsCapturing)(CUstream handle, CUstreamCaptureStatus *status) {
    CUstream stream;
    return status_of(handle, false, &stream, status);
}

SIM_API(cuStreamIsCapturing_ptsz)(CUstream handle, CUstreamCaptureStatus *status) {
    CUstream stream;
    return status_of(handle, true, &stream, status);
}

typedef struct {
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **tail;
    const CUgraphEdgeData **edges;
    size_t *count;
} info_t;

static CUresult info(CUstream handle, bool per_thread, CUstreamCaptureStatus *status,
                     const info_t *out) {
    CUstream stream;
    if (out->edges && !out->tail)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = status_of(handle, per_thread, &stream, status);
    if (result || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return result;
    sim_capture_t *capture = stream->capture;
    size_t count = stream->capture_tail_count;
    if (out->edges && capture->edge_room < count) {
        CUgraphEdgeData *grown = calloc(count, sizeof *grown);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        free(capture->edges);
        capture->edges = grown;
        capture->edge_room = count;
    }
    if (out->id)
        *out->id = capture->id;
    if (out->graph)
        *out->graph = capture->graph;
    if (out->tail)
        *out->tail = stream->capture_tail;
    if (out->edges)
        *out->edges = capture->edges;
    if (out->count)
        *out->count = count;
    return CUDA_SUCCESS;
}

#define CAPTURE_INFO(suffix, per_thread)                                                         \
    SIM_API(cuStreamGetCaptureInfo##suffix)                                                      \
    (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id) {                         \
        return info(stream, per_thread, status, &(info_t){.id = id});                            \
    }                                                                                            \
    SIM_API(cuStreamGetCaptureInfo_v2##suffix)                                                   \
    (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,          \
     const CUgraphNode **tail, size_t *count) {                                                  \
        return info(stream, per_thread, status, &(info_t){id, graph, tail, NULL, count});        \
    }                                                                                            \
    SIM_API(cuStreamGetCaptureInfo_v3##suffix)                                                   \
    (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,          \
     const CUgraphNode **tail, const CUgraphEdgeData **edges, size_t *count) {                   \
        return info(stream, per_thread, status, &(info_t){id, graph, tail, edges, count});       \
    }
CAPTURE_INFO(, false)
CAPTURE_INFO(_ptsz, true)

static CUresult update(CUstream handle, bool per_thread, const CUgraphNode *nodes, size_t count,
                       unsigned flags) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!nodes_of(stream->capture->graph, nodes, count))
        return CUDA_ERROR_INVALID_VALUE;
    bool done = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? tail_set(stream, nodes, count)
                                                            : tail_add(stream, nodes, count);
    return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

#define CAPTURE_UPDATE(suffix, per_thread)                                                       \
    SIM_API(cuStreamUpdateCaptureDependencies##suffix)                                           \
    (CUstream stream, CUgraphNode * nodes, size_t count, unsigned flags) {                       \
        return update(stream, per_thread, nodes, count, flags);                                  \
    }                                                                                            \
    SIM_API(cuStreamUpdateCaptureDependencies_v2##suffix)                                        \
    (CUstream stream, CUgraphNode * nodes, const CUgraphEdgeData *edges, size_t count,           \
     unsigned flags) {                                                                           \
        if (!sim_graph_plain_edges(edges, count))                                                \
            return CUDA_ERROR_NOT_SUPPORTED;                                                     \
        return update(stream, per_thread, nodes, count, flags);                                  \
    }
CAPTURE_UPDATE(, false)
CAPTURE_UPDATE(_ptsz, true)

SIM_LIVE_COUNT(captures) {
    return sim_captures;
}
