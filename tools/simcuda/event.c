/* Events.  An event refers to the newest record item made of it.  Global lock. */
#include "race.h"
#include "state.h"

sim_slab_t sim_events = SIM_SLAB(sim_event_t, 1 << 20);

static const sim_work_ops_t record_ops = {.name = "record", .type = SIM_WORK_RECORD};

CUresult sim_event_get(CUevent handle, CUevent *out) {
    if (!sim_slab_has(&sim_events, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = handle;
    return handle->ctx->sticky;
}

SIM_API(cuEventCreate)(CUevent *out, unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    bool interprocess = flags & CU_EVENT_INTERPROCESS;
    if (!out ||
        flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING |
                            CU_EVENT_INTERPROCESS) ||
        (interprocess && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent event = sim_slab_take(&sim_events);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->ctx = sim_ctx_home(ctx);
    event->flags = flags;
    if (interprocess && !sim_ipc_event_new(event)) {
        sim_slab_give(&sim_events, event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = event;
    return CUDA_SUCCESS;
}

static void drop(CUevent event) {
    if (event->capture || event->capture_nodes)
        sim_capture_event_gone(event);
    if (event->shared)
        sim_ipc_event_gone(event);
    sim_work_unref(event->work);
    sim_slab_give(&sim_events, event);
}

static CUresult destroy(CUevent event) {
    if (!sim_slab_has(&sim_events, event))
        return CUDA_ERROR_INVALID_HANDLE;
    drop(event);
    return CUDA_SUCCESS;
}

SIM_API(cuEventDestroy_v2)(CUevent event) {
    return destroy(event);
}

SIM_API(cuEventDestroy)(CUevent event) {
    return destroy(event);
}

void sim_events_ctx_gone(CUcontext ctx) {
    size_t at = 0;
    for (CUevent event; (event = sim_slab_next(&sim_events, &at));)
        if (event->ctx == ctx)
            drop(event);
}

sim_work_t *sim_record_work(CUcontext ctx, CUevent event) {
    if (event->shared)
        return sim_ipc_record_work(ctx, event);
    return sim_work_new(&record_ops, ctx, 0);
}

void sim_event_attach(CUevent event, sim_work_t *work) {
    sim_work_ref(work);
    sim_work_unref(event->work);
    event->work = work;
    event->recorded = true;
    if (event->capture || event->capture_nodes)
        sim_capture_event_gone(event); /* a real record replaces the one from a capture */
    if (event->shared)
        sim_ipc_event_recorded(event);
}

bool sim_work_after_event(sim_work_t *work, CUevent event) {
    sim_work_t *before = NULL;
    if (!event->shared)
        return sim_work_after(work, event->work);
    bool good = sim_ipc_event_before(work->ctx, event, &before) && sim_work_after(work, before);
    sim_work_unref(before);
    return good;
}

CUresult sim_event_record(CUevent event, CUstream stream, unsigned flags) {
    if (event->ctx != stream->ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return sim_capture_event_record(stream, event, flags);
    sim_work_t *work = sim_record_work(stream->ctx, event), *kept;
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = sim_enqueue(stream, work, &kept);
    if (result)
        return result;
    sim_event_attach(event, kept);
    sim_work_unref(kept);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream handle, unsigned flags, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result)
        result = sim_event_get(event, &event);
    if (!result && flags > CU_EVENT_RECORD_EXTERNAL)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : sim_event_record(event, stream, flags);
}

SIM_API(cuEventRecord)(CUevent event, CUstream stream) {
    return record(event, stream, 0, false);
}

SIM_API(cuEventRecord_ptsz)(CUevent event, CUstream stream) {
    return record(event, stream, 0, true);
}

SIM_API(cuEventRecordWithFlags)(CUevent event, CUstream stream, unsigned flags) {
    return record(event, stream, flags, false);
}

SIM_API(cuEventRecordWithFlags_ptsz)(CUevent event, CUstream stream, unsigned flags) {
    return record(event, stream, flags, true);
}

SIM_API(cuEventQuery)(CUevent event) {
    CUresult result = sim_event_get(event, &event);
    if (result)
        return result;
    if (event->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (event->shared)
        return sim_ipc_event_query(event);
    CUcontext ctx = event->ctx;
    bool done = sim_is_done(event->work);
    return ctx->sticky ? ctx->sticky : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SIM_API(cuEventSynchronize)(CUevent event) {
    CUresult result = sim_event_get(event, &event);
    if (result)
        return result;
    if (event->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (event->shared)
        return sim_ipc_event_wait(event);
    CUcontext ctx = event->ctx;
    sim_wait(event->work);
    sim_pool_synced();
    return ctx->sticky;
}

static CUresult elapsed(float *out, CUevent first, CUevent second) {
    CUresult result = sim_event_get(first, &first);
    if (!result)
        result = sim_event_get(second, &second);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (first->ctx != second->ctx || !first->work || !second->work ||
        (first->flags | second->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_is_done(first->work) || !sim_is_done(second->work))
        return CUDA_ERROR_NOT_READY;
    *out = (float)(((double)second->work->done - (double)first->work->done) / 1e6);
    return CUDA_SUCCESS;
}

SIM_API(cuEventElapsedTime)(float *out, CUevent first, CUevent second) {
    return elapsed(out, first, second);
}

SIM_API(cuEventElapsedTime_v2)(float *out, CUevent first, CUevent second) {
    return elapsed(out, first, second);
}

CUresult sim_stream_wait_event(CUstream stream, CUevent event, unsigned flags) {
    if (stream->capture || event->capture)
        return sim_capture_event_wait(stream, event, flags);
    if (!event->shared && (!event->work || (event->work->state == SIM_DONE && !sim_race_on)))
        return CUDA_SUCCESS;
    sim_work_t *work = sim_work_new(&sim_wait_ops, stream->ctx, 0);
    if (!work || !sim_work_after_event(work, event)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return sim_enqueue(stream, work, NULL);
}

static CUresult wait_event(CUstream handle, CUevent event, unsigned flags, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result)
        result = sim_event_get(event, &event);
    if (!result && flags > CU_EVENT_WAIT_EXTERNAL)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : sim_stream_wait_event(stream, event, flags);
}

SIM_API(cuStreamWaitEvent)(CUstream stream, CUevent event, unsigned flags) {
    return wait_event(stream, event, flags, false);
}

SIM_API(cuStreamWaitEvent_ptsz)(CUstream stream, CUevent event, unsigned flags) {
    return wait_event(stream, event, flags, true);
}

SIM_LIVE_COUNT(events) {
    return sim_events.live;
}
