/* Streams, events, synchronisation, capture. */
#include "intercept/body.h"

#include "device/driver.h"
#include "plant.h"

/* --- life of streams --- */

#define STREAM_CREATE(symbol, params, args)                                                      \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        CUresult result;                                                                         \
        AC_RETRY(result, real args);                                                             \
        return result;                                                                           \
    }
STREAM_CREATE(cuStreamCreate, (CUstream * a, unsigned b), (a, b))
STREAM_CREATE(cuStreamCreateWithPriority, (CUstream * a, unsigned b, int c), (a, b, c))
STREAM_CREATE(cuGreenCtxStreamCreate, (CUstream * a, CUgreenCtx b, unsigned c, int d),
              (a, b, c, d))

/* Streams that began a capture: destroying one ends its capture. */
enum { ORIGINS = 64 };
static _Atomic(CUstream) origins[ORIGINS];

static bool origin_replace(CUstream from, CUstream to) {
    for (int i = 0; i < ORIGINS; i++) {
        CUstream seen = from;
        if (atomic_compare_exchange_strong(&origins[i], &seen, to))
            return true;
    }
    return false;
}

/* Its handle may come back for another stream, and no later event names it: join it first. */
static CUresult destroy_stream(ac_thread_t *thread, cuStreamDestroy_v2_fn *real,
                               CUstream stream) {
    if (!thread || (uintptr_t)stream <= 2)
        return real(stream);
    ac_context_t *context = ac_context_of_stream(thread, stream);
    if (context && !AC_PLANTED(stream_handle_reused))
        ac_single_stream_gone(context->line, ac_cuda_stream_key(stream));
    if (context)
        ac_cuda_stream_retire(&context->cuda, stream,
                              atomic_load(&context->line->inside) ||
                                  atomic_load(&context->line->last_submit) >
                                      atomic_load(&context->line->done));
    ac_context_stream_gone(stream);
    ac_stream_gone(thread, context, stream);
    bool origin = context && origin_replace(stream, NULL);
    CUresult result = real(stream);
    ac_stream_gone(thread, context, stream); /* what was said of it meanwhile */
    if (origin && result == CUDA_SUCCESS)
        ac_cuda_capture_ended(&context->cuda);
    else if (origin)
        origin_replace(NULL, stream);
    return result;
}

CUresult cuStreamDestroy(CUstream a) {
    AC_BODY(cuStreamDestroy);
    return destroy_stream(thread, real, a);
}

CUresult cuStreamDestroy_v2(CUstream a) {
    AC_BODY(cuStreamDestroy_v2);
    return destroy_stream(thread, real, a);
}

/* --- synchronisation of a whole context retires its part of the fences --- */

typedef struct {
    ac_context_t *context;
    uint64_t clock, lost;
} ac_sync_t;

/* Before the driver's call: only what returned by now is covered by it.  Whether it waits for the
 * streams of green contexts is not documented: then it retires nothing. */
static ac_sync_t sync_begin(ac_context_t *context) {
    if (!context || atomic_load(&context->cuda.mode) == AC_RECORD_BOTH)
        return (ac_sync_t){.context = NULL};
    return (ac_sync_t){context, ac_fence_now(), ac_cuda_lost(&context->cuda)};
}

static CUresult sync_end(ac_thread_t *thread, ac_sync_t sync, CUresult result) {
    if (AC_PLANTED(free_during_synchronisation))
        sync.clock = ac_fence_now();
    if (sync.context && result == CUDA_SUCCESS) {
        ac_cuda_synced(&sync.context->cuda, sync.lost);
        ac_fence_synced(sync.context->line, sync.clock);
        ac_count(thread, AC_COUNT_full_syncs);
    }
    ac_context_note(sync.context, result);
    return result;
}

CUresult cuCtxSynchronize(void) {
    AC_BODY(cuCtxSynchronize);
    ac_sync_t sync = sync_begin(thread ? ac_context_current(thread) : NULL);
    return sync_end(thread, sync, real());
}

CUresult cuCtxSynchronize_v2(CUcontext a) {
    AC_BODY(cuCtxSynchronize_v2);
    ac_context_t *context = thread ? (a ? ac_context_of(a) : ac_context_current(thread)) : NULL;
    ac_sync_t sync = sync_begin(context);
    return sync_end(thread, sync, real(a));
}

/* --- capture --- */

#define BEGIN_CAPTURE(symbol, params, args)                                                      \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        ac_context_t *context = thread ? ac_context_of_stream(thread, a) : NULL;                 \
        if (thread && !context) /* a capture that nobody knows of would be spoilt: ask again */  \
            context = ac_context_of_stream(thread, a);                                           \
        if (!context)                                                                            \
            return real args;                                                                    \
        ac_fence_capture_begin();                                                                \
        ac_cuda_capture_begin();                                                                 \
        CUresult result = real args;                                                             \
        ac_cuda_capture_began(&context->cuda, result == CUDA_SUCCESS);                           \
        ac_fence_capture_began();                                                                \
        if (result == CUDA_SUCCESS && (uintptr_t)(a) > 2)                                        \
            origin_replace(NULL, a);                                                             \
        return result;                                                                           \
    }
BEGIN_CAPTURE(cuStreamBeginCapture, (CUstream a), (a))
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, (CUstream a), (a))
BEGIN_CAPTURE(cuStreamBeginCapture_v2, (CUstream a, CUstreamCaptureMode b), (a, b))
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream a, CUstreamCaptureMode b), (a, b))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph,
              (CUstream a, CUgraph b, const CUgraphNode *c, const CUgraphEdgeData *d, size_t e,
               CUstreamCaptureMode f),
              (a, b, c, d, e, f))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz,
              (CUstream a, CUgraph b, const CUgraphNode *c, const CUgraphEdgeData *d, size_t e,
               CUstreamCaptureMode f),
              (a, b, c, d, e, f))

typedef enum { CAPTURING, NOT_CAPTURING, UNKNOWN } ac_capture_t;

static ac_capture_t capture_of(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!ac_driver.cuStreamIsCapturing ||
        ac_driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS)
        return UNKNOWN;
    return status == CU_STREAM_CAPTURE_STATUS_NONE ? NOT_CAPTURING : CAPTURING;
}

/* Whether the capture is over, whatever the call returned: an invalidated one ends as well, one
 * of another thread goes on.  Where the driver does not tell, the result of the call decides. */
static CUresult end_capture(ac_thread_t *thread, cuStreamEndCapture_fn *real, CUstream stream,
                            CUstream resolved, CUgraph *graph) {
    ac_context_t *context = thread ? ac_context_of_stream(thread, resolved) : NULL;
    if (!context)
        return real(stream, graph);
    ac_capture_t before = capture_of(resolved);
    CUresult result = real(stream, graph);
    ac_capture_t after = before == NOT_CAPTURING ? UNKNOWN : capture_of(resolved);
    bool ends = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (before != NOT_CAPTURING &&
        (after == NOT_CAPTURING ? before == CAPTURING || ends : after == UNKNOWN && ends)) {
        origin_replace(resolved, NULL);
        ac_cuda_capture_ended(&context->cuda);
    }
    return result;
}

CUresult cuStreamEndCapture(CUstream a, CUgraph *b) {
    AC_BODY(cuStreamEndCapture);
    return end_capture(thread, real, a, a, b);
}

CUresult cuStreamEndCapture_ptsz(CUstream a, CUgraph *b) {
    AC_BODY(cuStreamEndCapture_ptsz);
    return end_capture(thread, real, a, a ? a : CU_STREAM_PER_THREAD, b);
}
