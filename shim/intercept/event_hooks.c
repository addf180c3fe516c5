/* Events and what waits for them or for a stream: they tell of broken contexts, and of the order
 * between streams (allocator/order/order.h).  Before the first stream-ordered request nobody asks for
 * that order, and a call costs one more branch. */
#include "intercept/body.h"

#include "intercept/attributes.h"
#include "intercept/tracing.h"
#include "plant.h"

static bool follows(const ac_thread_t *thread) {
    return thread && atomic_load_explicit(&ac_streams_tracked, memory_order_acquire);
}

static uint64_t name_of(CUevent event) {
    return (uint64_t)(uintptr_t)event;
}

/* Others may record the event, at times that are not known here. */
static void distrust(ac_thread_t *thread, CUevent event) {
    if (thread && ac_event_distrust(name_of(event)))
        ac_count(thread, AC_COUNT_untracked_events);
}

/* Something stands in the stream, if the call succeeded. */
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
    if (!record->followed)
        return;
    record->edge.arena = NULL;
    record->stream = stream;
    record->per_thread = per_thread;
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
    note(thread, record->context, result);
}

#define RECORD(symbol, per_thread, flags, params, args)                                          \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        ac_record_t record;                                                                      \
        if ((flags)&CU_EVENT_RECORD_EXTERNAL) /* may become a node of a graph */                 \
            distrust(thread, a);                                                                 \
        record_begin(&record, thread, a, b, per_thread);                                         \
        CUresult result = real args;                                                             \
        record_end(&record, thread, a, result);                                                  \
        return result;                                                                           \
    }
RECORD(cuEventRecord, false, 0u, (CUevent a, CUstream b), (a, b))
RECORD(cuEventRecord_ptsz, true, 0u, (CUevent a, CUstream b), (a, b))
RECORD(cuEventRecordWithFlags, false, c, (CUevent a, CUstream b, unsigned c), (a, b, c))
RECORD(cuEventRecordWithFlags_ptsz, true, c, (CUevent a, CUstream b, unsigned c), (a, b, c))

/* A record behind several streams is more than is kept of it: nothing. */
#define RECORD_ALL(symbol, params, args)                                                         \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        if (follows(thread))                                                                     \
            ac_event_forget(name_of(b));                                                         \
        CUresult result = real args;                                                             \
        if (follows(thread))                                                                     \
            ac_event_forget(name_of(b));                                                         \
        return result;                                                                           \
    }
RECORD_ALL(cuCtxRecordEvent, (CUcontext a, CUevent b), (a, b))
RECORD_ALL(cuGreenCtxRecordEvent, (CUgreenCtx a, CUevent b), (a, b))

/* --- waits of a stream --- */

#define WAIT(symbol, per_thread)                                                                 \
    CUresult symbol(CUstream a, CUevent b, unsigned c) {                                         \
        AC_BODY(symbol);                                                                         \
        ac_edge_t edge;                                                                          \
        ac_context_t *context = thread ? ac_context_of_stream(thread, a) : NULL;                 \
        bool followed = follows(thread);                                                         \
        uint64_t captures = followed ? ac_cuda_capture_mark() : 0;                               \
        if (followed && context)                                                                 \
            ac_edge_of_event(&edge, context->arena, name_of(b));                                 \
        CUresult result = real(a, b, c);                                                         \
        if (followed && context && result == CUDA_SUCCESS &&                                     \
            ac_cuda_capture_none_since(captures))                                                \
            ac_edge_joined(&edge, ac_stream_named(a, per_thread));                               \
        if (followed)                                                                            \
            submitted(context, a, per_thread, result);                                           \
        note(thread, context, result);                                                           \
        return result;                                                                           \
    }
WAIT(cuStreamWaitEvent, false)
WAIT(cuStreamWaitEvent_ptsz, true)

/* --- waits of the host: what they saw complete is ready for everybody --- */

#define EVENT_DONE(symbol, waits)                                                                \
    CUresult symbol(CUevent a) {                                                                 \
        AC_BODY(symbol);                                                                         \
        ac_edge_t edge;                                                                          \
        bool followed = follows(thread);                                                         \
        if (followed)                                                                            \
            ac_edge_of_event(&edge, NULL, name_of(a));                                           \
        CUresult result = real(a);                                                               \
        if (followed && result == CUDA_SUCCESS)                                                  \
            ac_edge_completed(&edge);                                                            \
        ac_context_note_current(thread, result); /* an event does not tell whose it is */        \
        if (waits)                                                                               \
            ac_trace_event_synced(a, result);                                                    \
        return result;                                                                           \
    }
EVENT_DONE(cuEventSynchronize, true)
EVENT_DONE(cuEventQuery, false)

static uint64_t alone_until(const ac_context_t *context, CUstream stream, bool per_thread) {
    return ac_single_alone(context->line,
                           ac_cuda_stream_key(ac_stream_resolved(stream, per_thread)));
}

#define STREAM_DONE(symbol, per_thread, waits)                                                   \
    CUresult symbol(CUstream a) {                                                                \
        AC_BODY(symbol);                                                                         \
        ac_edge_t edge;                                                                          \
        ac_context_t *context = thread ? ac_context_of_stream(thread, a) : NULL;                 \
        bool followed = context && follows(thread);                                              \
        uint64_t alone = context ? alone_until(context, a, per_thread) : 0;                      \
        if (followed)                                                                            \
            ac_edge_of_stream(&edge, context->arena, ac_stream_named(a, per_thread));            \
        CUresult result = real(a);                                                               \
        if (followed && result == CUDA_SUCCESS)                                                  \
            ac_edge_completed(&edge);                                                            \
        if (alone && result == CUDA_SUCCESS)                                                     \
            ac_fence_synced(context->line, alone);                                               \
        if (waits && result == CUDA_SUCCESS)                                                     \
            ac_synced(thread, false);                                                            \
        if (waits)                                                                               \
            ac_trace_stream_synced(context, ac_stream_resolved(a, per_thread), result);          \
        note(thread, context, result);                                                           \
        return result;                                                                           \
    }
STREAM_DONE(cuStreamSynchronize, false, true)
STREAM_DONE(cuStreamSynchronize_ptsz, true, true)
STREAM_DONE(cuStreamQuery, false, false)
STREAM_DONE(cuStreamQuery_ptsz, true, false)

/* --- the end of events and streams --- */

/* Before the driver's call: the handle may come back for another event as soon as it is free. */
#define DESTROY(symbol)                                                                          \
    CUresult symbol(CUevent a) {                                                                 \
        AC_BODY(symbol);                                                                         \
        if (!AC_PLANTED(event_reused_early) && follows(thread))                                  \
            ac_event_forget(name_of(a));                                                         \
        bool distrusted = thread && ac_event_trust(name_of(a));                                  \
        CUresult result = real(a);                                                               \
        if (distrusted && result != CUDA_SUCCESS)                                                \
            ac_event_distrust(name_of(a));                                                       \
        return result;                                                                           \
    }
DESTROY(cuEventDestroy)
DESTROY(cuEventDestroy_v2)

void ac_stream_gone(ac_context_t *context, CUstream stream) {
    if (atomic_load_explicit(&ac_streams_tracked, memory_order_acquire) &&
        !AC_PLANTED(stream_handle_reused))
        ac_arena_stream_gone(context->arena, ac_stream_named(stream, false));
}

/* --- records that nobody sees: by another process, by a graph, by a kernel --- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *a, CUevent b) {
    AC_BODY(cuIpcGetEventHandle);
    distrust(thread, b);
    return real(a, b);
}

CUresult cuIpcOpenEventHandle(CUevent *a, CUipcEventHandle b) {
    AC_BODY(cuIpcOpenEventHandle);
    CUresult result = real(a, b);
    if (result == CUDA_SUCCESS)
        distrust(thread, *a);
    return result;
}

#define RECORDED_BY_GRAPH(symbol, event, params, args)                                           \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        distrust(thread, event);                                                                 \
        return real args;                                                                        \
    }
RECORDED_BY_GRAPH(cuGraphAddEventRecordNode, e,
                  (CUgraphNode * a, CUgraph b, const CUgraphNode *c, size_t d, CUevent e),
                  (a, b, c, d, e))
RECORDED_BY_GRAPH(cuGraphEventRecordNodeSetEvent, b, (CUgraphNode a, CUevent b), (a, b))
RECORDED_BY_GRAPH(cuGraphExecEventRecordNodeSetEvent, c,
                  (CUgraphExec a, CUgraphNode b, CUevent c), (a, b, c))

void ac_event_node(ac_thread_t *thread, const CUgraphNodeParams *params) {
    if (params && params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        distrust(thread, (CUevent)(uintptr_t)params->payload[0]);
}

CUresult cuGraphNodeSetParams(CUgraphNode a, CUgraphNodeParams *b) {
    AC_BODY(cuGraphNodeSetParams);
    ac_event_node(thread, b);
    return real(a, b);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode a, CUkernelNodeAttrID b,
                                       const CUkernelNodeAttrValue *c) {
    AC_BODY(cuGraphKernelNodeSetAttribute);
    if (thread)
        ac_node_attribute_seen(b, c);
    return real(a, b, c);
}
