/* Streams, events, synchronisation, capture. */
#include "hooks/body.h"
#include "track/observers.h"

#include "device/driver.h"
#include "track/captures.h"
#include "track/ipc_pages.h"
#include "tell/tracing.h"
#include "failpoint.h"

/* --- creation and destruction of streams --- */

#define STREAM_CREATE(symbol, params, args)                                                      \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result;                                                                         \
        AC_RETRY(result, AC_NEED_LITTLE, real args);                                             \
        return result;                                                                           \
    }
STREAM_CREATE(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags))
STREAM_CREATE(cuStreamCreateWithPriority, (CUstream * stream, unsigned flags, int priority),
              (stream, flags, priority))
STREAM_CREATE(cuGreenCtxStreamCreate,
              (CUstream * stream, CUgreenCtx context, unsigned flags, int priority),
              (stream, context, flags, priority))

/* Ends the context's records of the stream before the driver's call.  stream_left, after the
 * call, ends records that other threads have added meanwhile. */
static void leave_stream(ac_context_t *context, void *stream) {
    if (!AC_FAILPOINT(stream_handle_reused))
        ac_sole_stream_gone(context->timeline, ac_cuda_stream_key(stream));
    bool pending = ac_device_any_memory() && !ac_timeline_idle(context->timeline);
    ac_cuda_stream_retire(&context->cuda, stream, pending);
    ac_tell_stream_gone(context, stream);
}

static void stream_left(ac_context_t *context, void *stream) {
    ac_event_stream_gone(context, stream);
}

/* Visits the stream's context; visits all contexts if it is NULL, not known. */
static void each_of(ac_context_t *context, void (*visit)(ac_context_t *, void *),
                    CUstream stream) {
    if (context)
        visit(context, stream);
    else
        ac_context_each(visit, stream);
}

/* Ends the records of the stream before the driver destroys it: the handle may come back for
 * another stream, and no later event can name the old one. */
static CUresult destroy_stream(ac_thread_t *thread, cuStreamDestroy_v2_fn *real,
                               CUstream stream) {
    if (!thread || (uintptr_t)stream <= 2)
        return real(stream);
    ac_context_t *context = ac_context_of_stream(thread, stream);
    each_of(context, leave_stream, stream);
    ac_context_stream_gone(stream);
    if (!AC_FAILPOINT(stream_handle_reused))
        ac_observe_stream_gone(stream);
    ac_capture_t capture;
    bool captures = ac_capture_leaving(stream, &capture);
    CUresult result = real(stream);
    each_of(context, stream_left, stream);
    if (captures)
        ac_capture_left(&capture, result == CUDA_SUCCESS);
    return result;
}

CUresult cuStreamDestroy(CUstream stream) {
    AC_ENTER_OR_RETURN(cuStreamDestroy);
    return destroy_stream(thread, real, stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    AC_ENTER_OR_RETURN(cuStreamDestroy_v2);
    return destroy_stream(thread, real, stream);
}

/* --- synchronisation of a whole context retires its part of the fences --- */

typedef struct {
    ac_context_t *context;
    uint64_t clock, lost;
} ac_sync_t;

/* Called before the driver's call, which covers only submissions that have returned by now.  If
 * there are green contexts, one of them may be current, and the driver waits only for its work.
 * The synchronisation then retires nothing. */
static ac_sync_t sync_begin(ac_context_t *context) {
    if (!context ||
        (atomic_load(&context->cuda.green) && !AC_FAILPOINT(green_context_synchronised)))
        return (ac_sync_t){.context = NULL};
    return (ac_sync_t){context, ac_fence_stamp(), ac_cuda_lost(&context->cuda)};
}

static CUresult sync_end(ac_thread_t *thread, ac_sync_t sync, CUresult result) {
    if (AC_FAILPOINT(free_during_synchronisation))
        sync.clock = ac_fence_now();
    if (sync.context && result == CUDA_SUCCESS) {
        ac_cuda_synced(&sync.context->cuda, sync.lost);
        ac_fence_synced(sync.context->timeline, sync.clock);
        ac_shown_awaited(sync.context);
        ac_count(thread, AC_COUNT_full_syncs);
        ac_synced(thread, true);
        ac_figures_synced(sync.context);
        if (__builtin_expect(ac_is_guarding(), 0) && thread)
            ac_guard_settle(sync.context->arena);
    }
    ac_pools_synced(result);
    ac_context_note(sync.context, result);
    return result;
}

CUresult cuCtxSynchronize(void) {
    AC_ENTER_OR_RETURN(cuCtxSynchronize);
    ac_context_t *context = thread ? ac_context_current(thread) : NULL;
    ac_sync_t sync = sync_begin(context);
    CUresult result = sync_end(thread, sync, real());
    ac_trace_synced(context, result);
    return result;
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    AC_ENTER_OR_RETURN(cuCtxSynchronize_v2);
    ac_context_t *record =
        thread ? (context ? ac_context_of(context) : ac_context_current(thread)) : NULL;
    ac_sync_t sync = sync_begin(record);
    CUresult result = sync_end(thread, sync, real(context));
    ac_trace_synced(record, result);
    return result;
}

/* --- capture --- */

/* Returns the capture that a call names.  `per_thread`: handle 0 is the per-thread default
 * stream. */
static ac_capture_t capture_on(ac_thread_t *thread, CUstream stream, bool per_thread) {
    if (!stream)
        stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    bool own = thread && stream == CU_STREAM_PER_THREAD;
    return (ac_capture_t){.stream = stream,
                          .thread = own ? thread->number : 0,
                          .context = thread ? ac_context_of_stream(thread, stream) : NULL};
}

/* Defines the hook that begins a capture.  It counts without a thread record or a known context,
 * too. */
#define BEGIN_CAPTURE(symbol, per_thread, into, params, args)                                    \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (ac_is_guest(thread) ||                                                               \
            (!thread && (!ac_is_active() || AC_ROW_FAILPOINT(symbol, unseen))))                  \
            return real args;                                                                    \
        ac_capture_t capture = capture_on(thread, stream, per_thread);                           \
        capture.graph = into;                                                                    \
        ac_capture_begin(&capture);                                                              \
        CUresult result = real args;                                                             \
        ac_capture_began(&capture, result == CUDA_SUCCESS);                                      \
        return result;                                                                           \
    }
BEGIN_CAPTURE(cuStreamBeginCapture, false, NULL, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, true, NULL, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_v2, false, NULL, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, true, NULL,
              (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, false, graph,
              (CUstream stream, CUgraph graph, const CUgraphNode *before,
               const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
              (stream, graph, before, edges, count, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, true, graph,
              (CUstream stream, CUgraph graph, const CUgraphNode *before,
               const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode),
              (stream, graph, before, edges, count, mode))

/* Returns true if a failed end still ended the capture: an invalidated capture is over, a capture
 * of another thread goes on.  If the driver does not tell its state, the error decides. */
static bool over_despite(CUresult result, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (ac_driver.cuStreamIsCapturing &&
        ac_driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS)
        return status == CU_STREAM_CAPTURE_STATUS_NONE;
    return result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
           result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

static CUresult end_capture(ac_thread_t *thread, cuStreamEndCapture_fn *real, CUstream stream,
                            bool per_thread, CUgraph *graph) {
    CUresult result = real(stream, graph);
    if ((!thread && !ac_is_active()) || !ac_cuda_is_capturing(NULL))
        return result;
    ac_capture_t capture = capture_on(thread, stream, per_thread);
    if (result == CUDA_SUCCESS || over_despite(result, capture.stream))
        ac_capture_ended(&capture, result == CUDA_SUCCESS && graph ? *graph : NULL);
    if (thread)
        ac_ipc_pages_bury(); /* pages that were closed during the capture */
    return result;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    AC_ENTER_OR_RETURN(cuStreamEndCapture);
    if (AC_ROW_FAILPOINT(cuStreamEndCapture, unseen))
        return real(stream, graph);
    return end_capture(thread, real, stream, false, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    AC_ENTER_OR_RETURN(cuStreamEndCapture_ptsz);
    if (AC_ROW_FAILPOINT(cuStreamEndCapture_ptsz, unseen))
        return real(stream, graph);
    return end_capture(thread, real, stream, true, graph);
}
