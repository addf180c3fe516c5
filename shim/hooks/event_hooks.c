/* Events, and calls that wait for an event or a stream.  They show broken contexts, and the order between
 * streams (allocator/order/order.h).  Before the first stream-ordered request no hook follows that order,
 * and a call costs one more branch. */
#include "hooks/body.h"

#include "hooks/attributes.h"
#include "track/captures.h"
#include "track/reach.h"
#include "tell/tracing.h"
#include "failpoint.h"

static bool follows(const ac_thread_t *thread) {
    return thread && atomic_load_explicit(&ac_streams_tracked, memory_order_acquire);
}

static uint64_t name_of(CUevent event) {
    return (uint64_t)(uintptr_t)event;
}

static bool shows(void) {
    return atomic_load_explicit(&ac_shows, memory_order_relaxed);
}

/* Called if the event may be recorded without a hook, at an unknown time: it proves no order. */
static void distrust(ac_thread_t *thread, CUevent event) {
    if (thread && shows())
        ac_shown_recorded(NULL, NULL, event);
    if (thread && ac_event_distrust(name_of(event)))
        ac_count(thread, AC_COUNT_untracked_events);
}

/* Records that the call put work into the stream, if it succeeded. */
static void submitted(ac_context_t *context, CUstream stream, bool per_thread, CUresult result) {
    ac_stream_t named = ac_stream_named(stream, per_thread);
    if (context)
        ac_arena_submitted(context->arena, named == AC_STREAM_LEGACY);
    else if (result == CUDA_SUCCESS)
        ac_context_unseen();
}

static void note(ac_thread_t *thread, ac_context_t *context, CUresult result) {
    if (thread)
        ac_context_note(context, result);
}

/* --- records --- */

typedef struct {
    ac_edge_t edge;
    ac_context_t *context;
    CUstream stream;
    uint64_t captures;
    bool followed, per_thread;
} ac_record_t;

static void record_begin(ac_record_t *record, ac_thread_t *thread, CUevent event, CUstream stream,
                         bool per_thread) {
    record->followed = follows(thread);
    record->context = thread ? ac_context_of_stream(thread, stream) : NULL;
    record->stream = stream;
    record->per_thread = per_thread;
    if (!record->followed)
        return;
    record->edge.arena = NULL;
    record->captures = ac_cuda_capture_mark();
    if (record->context)
        ac_edge_record_begin(&record->edge, record->context->arena, name_of(event),
                             ac_stream_named(stream, per_thread));
    else
        ac_event_forget(name_of(event));
}

static void record_end(ac_record_t *record, ac_thread_t *thread, CUevent event, CUresult result) {
    if (record->followed && record->context)
        ac_edge_record_end(&record->edge, result == CUDA_SUCCESS &&
                                              ac_cuda_capture_none_since(record->captures));
    else if (record->followed)
        ac_event_forget(name_of(event));
    if (record->followed)
        submitted(record->context, record->stream, record->per_thread, result);
    if (thread && shows() && result == CUDA_SUCCESS) {
        CUstream stream = ac_stream_resolved(record->stream, record->per_thread);
        ac_shown_recorded(record->context, &stream, event);
    }
    note(thread, record->context, result);
}

#define RECORD(symbol, per_thread, flags, params, args)                                          \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        ac_record_t record;                                                                      \
        if ((flags)&CU_EVENT_RECORD_EXTERNAL) /* may become a node of a graph */                 \
            distrust(thread, event);                                                             \
        record_begin(&record, thread, event, stream, per_thread);                                \
        CUresult result = real args;                                                             \
        record_end(&record, thread, event, result);                                              \
        return result;                                                                           \
    }
RECORD(cuEventRecord, false, 0u, (CUevent event, CUstream stream), (event, stream))
RECORD(cuEventRecord_ptsz, true, 0u, (CUevent event, CUstream stream), (event, stream))
RECORD(cuEventRecordWithFlags, false, flags, (CUevent event, CUstream stream, unsigned flags),
       (event, stream, flags))
RECORD(cuEventRecordWithFlags_ptsz, true, flags, (CUevent event, CUstream stream, unsigned flags),
       (event, stream, flags))

/* Returns the record of the handle's context; NULL: the event may cover only a part of its work. */
static ac_context_t *whole_context(ac_thread_t *thread, CUcontext handle) {
    ac_context_t *context = handle ? ac_context_of(handle) : ac_context_current(thread);
    return context && !atomic_load(&context->cuda.green) ? context : NULL;
}

/* An event behind several streams proves no order: the records have one stream for each event. */
#define RECORD_ALL(symbol, params, args, of)                                                     \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (follows(thread))                                                                     \
            ac_event_forget(name_of(event));                                                     \
        CUresult result = real args;                                                             \
        if (follows(thread))                                                                     \
            ac_event_forget(name_of(event));                                                     \
        if (thread && shows() && result == CUDA_SUCCESS)                                         \
            ac_shown_recorded(of, NULL, event);                                                  \
        return result;                                                                           \
    }
RECORD_ALL(cuCtxRecordEvent, (CUcontext context, CUevent event), (context, event),
           whole_context(thread, context))
RECORD_ALL(cuGreenCtxRecordEvent, (CUgreenCtx context, CUevent event), (context, event), NULL)

/* --- waits of a stream --- */

#define WAIT(symbol, per_thread)                                                                 \
    CUresult symbol(CUstream stream, CUevent event, unsigned flags) {                            \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        ac_edge_t edge;                                                                          \
        ac_context_t *context = thread ? ac_context_of_stream(thread, stream) : NULL;            \
        bool followed = follows(thread);                                                         \
        uint64_t captures = followed ? ac_cuda_capture_mark() : 0;                               \
        if (followed && context)                                                                 \
            ac_edge_of_event(&edge, context->arena, name_of(event));                             \
        bool joins = ac_capture_join_begin(context);                                             \
        CUresult result = real(stream, event, flags);                                            \
        if (joins)                                                                               \
            ac_capture_join_end(context, ac_stream_resolved(stream, per_thread),                 \
                                result == CUDA_SUCCESS);                                         \
        if (followed && context && result == CUDA_SUCCESS &&                                     \
            ac_cuda_capture_none_since(captures))                                                \
            ac_edge_joined(&edge, ac_stream_named(stream, per_thread));                          \
        if (followed)                                                                            \
            submitted(context, stream, per_thread, result);                                      \
        if (context && shows() && result == CUDA_SUCCESS)                                        \
            ac_shown_joined(context, ac_stream_resolved(stream, per_thread), event);             \
        note(thread, context, result);                                                           \
        return result;                                                                           \
    }
WAIT(cuStreamWaitEvent, false)
WAIT(cuStreamWaitEvent_ptsz, true)

/* --- waits of the host: memory behind completed work is ready for every stream --- */

#define EVENT_DONE(symbol, waits)                                                                \
    CUresult symbol(CUevent event) {                                                             \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        ac_edge_t edge;                                                                          \
        bool followed = follows(thread);                                                         \
        if (followed)                                                                            \
            ac_edge_of_event(&edge, NULL, name_of(event));                                       \
        CUresult result = real(event);                                                           \
        if (followed && result == CUDA_SUCCESS)                                                  \
            ac_edge_completed(&edge);                                                            \
        if (thread && shows() && result == CUDA_SUCCESS)                                         \
            ac_shown_awaited_event(event);                                                       \
        ac_context_note_current(thread, result); /* an event does not tell its context */        \
        if (waits)                                                                               \
            ac_pools_synced(result);                                                             \
        if (waits)                                                                               \
            ac_trace_event_synced(event, result);                                                \
        return result;                                                                           \
    }
EVENT_DONE(cuEventSynchronize, true)
EVENT_DONE(cuEventQuery, false)

static uint64_t alone_until(const ac_context_t *context, CUstream stream, bool per_thread) {
    return ac_sole_alone(context->timeline,
                         ac_cuda_stream_key(ac_stream_resolved(stream, per_thread)));
}

#define STREAM_DONE(symbol, per_thread, waits)                                                   \
    CUresult symbol(CUstream stream) {                                                           \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        ac_edge_t edge;                                                                          \
        ac_context_t *context = thread ? ac_context_of_stream(thread, stream) : NULL;            \
        bool followed = context && follows(thread);                                              \
        uint64_t alone = context ? alone_until(context, stream, per_thread) : 0;                 \
        if (followed)                                                                            \
            ac_edge_of_stream(&edge, context->arena, ac_stream_named(stream, per_thread));       \
        CUresult result = real(stream);                                                          \
        if (followed && result == CUDA_SUCCESS)                                                  \
            ac_edge_completed(&edge);                                                            \
        if (context && shows() && result == CUDA_SUCCESS)                                        \
            ac_shown_awaited_stream(context, ac_stream_resolved(stream, per_thread));            \
        if (alone && result == CUDA_SUCCESS)                                                     \
            ac_fence_synced(context->timeline, alone);                                           \
        if (waits && result == CUDA_SUCCESS) {                                                   \
            ac_synced(thread, false);                                                            \
            ac_figures_synced(context);                                                          \
        }                                                                                        \
        if (waits)                                                                               \
            ac_pools_synced(result);                                                             \
        if (waits)                                                                               \
            ac_trace_stream_synced(context, ac_stream_resolved(stream, per_thread), result);     \
        note(thread, context, result);                                                           \
        return result;                                                                           \
    }
STREAM_DONE(cuStreamSynchronize, false, true)
STREAM_DONE(cuStreamSynchronize_ptsz, true, true)
STREAM_DONE(cuStreamQuery, false, false)
STREAM_DONE(cuStreamQuery_ptsz, true, false)

/* --- the end of events and streams --- */

/* Forgets the event before the driver's call: right after it, another event may get the handle. */
#define DESTROY(symbol)                                                                          \
    CUresult symbol(CUevent event) {                                                             \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (!AC_FAILPOINT(event_reused_early) && follows(thread))                                \
            ac_event_forget(name_of(event));                                                     \
        if (thread && shows())                                                                   \
            ac_shown_recorded(NULL, NULL, event);                                                \
        bool distrusted = thread && ac_event_trust(name_of(event));                              \
        CUresult result = real(event);                                                           \
        if (distrusted && result != CUDA_SUCCESS)                                                \
            ac_event_distrust(name_of(event));                                                   \
        return result;                                                                           \
    }
DESTROY(cuEventDestroy)
DESTROY(cuEventDestroy_v2)

void ac_event_stream_gone(ac_context_t *context, CUstream stream) {
    if (atomic_load_explicit(&ac_streams_tracked, memory_order_acquire) &&
        !AC_FAILPOINT(stream_handle_reused))
        ac_arena_stream_gone(context->arena, ac_stream_named(stream, false));
}

/* --- records of events without a hook: by another process, by a graph, by a kernel --- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
    AC_ENTER_OR_RETURN(cuIpcGetEventHandle);
    distrust(thread, event);
    return real(handle, event);
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
    AC_ENTER_OR_RETURN(cuIpcOpenEventHandle);
    CUresult result = real(event, handle);
    if (result == CUDA_SUCCESS)
        distrust(thread, *event);
    return result;
}

#define RECORDED_BY_GRAPH(symbol, params, args)                                                  \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        distrust(thread, event);                                                                 \
        return real args;                                                                        \
    }
RECORDED_BY_GRAPH(cuGraphAddEventRecordNode,
                  (CUgraphNode * node, CUgraph graph, const CUgraphNode *before, size_t count,
                   CUevent event),
                  (node, graph, before, count, event))
RECORDED_BY_GRAPH(cuGraphEventRecordNodeSetEvent, (CUgraphNode node, CUevent event),
                  (node, event))
RECORDED_BY_GRAPH(cuGraphExecEventRecordNodeSetEvent,
                  (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event))

/* Position of the copy in the payload of a copy node's parameters: flags and the context come before it. */
enum { NODE_COPY = 2 };

void ac_event_node(ac_thread_t *thread, const CUgraphNodeParams *params) {
    if (params && params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        distrust(thread, (CUevent)(uintptr_t)params->payload[0]);
    if (thread && params && params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        ac_memcpy_node((const CUDA_MEMCPY3D *)(const void *)&params->payload[NODE_COPY]);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params) {
    AC_ENTER_OR_RETURN(cuGraphNodeSetParams);
    if (thread && !ac_reach_node(thread, params))
        return CUDA_ERROR_INVALID_VALUE;
    ac_event_node(thread, params);
    return real(node, params);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue *value) {
    AC_ENTER_OR_RETURN(cuGraphKernelNodeSetAttribute);
    if (thread)
        ac_node_attribute_seen(attribute, value);
    return real(node, attribute, value);
}
