/* Streams as chains of work: CUDA's ordering rules.  Global lock.
 *
 *   - an item follows the previous one of its stream;
 *   - An item follows the previous one of its stream.
 *   - An item of the legacy stream follows everything before it in the blocking streams of the
 *     context, per-thread default streams included.  Every later item of these streams follows
 *     it.  Non-blocking streams are left out.
 *   - cuCtxWaitEvent orders all later items of the context after its event.
 *     cuGreenCtxWaitEvent orders the later items of the green context's own streams.
 *
 * A stream can be destroyed, and its handle value reused, while its work goes on: items do not
 * refer to the stream. */
#include <stdlib.h>

#include "race.h"
#include "state.h"

sim_slab_t sim_streams = SIM_SLAB(sim_stream_t, 1 << 16);

CUstream sim_stream_make(CUcontext home, unsigned flags, int priority) {
    CUstream stream = sim_slab_take(&sim_streams);
    if (!stream)
        return NULL;
    stream->ctx = home;
    stream->flags = flags;
    stream->priority = priority;
    stream->next = home->streams;
    stream->link = &home->streams;
    if (stream->next)
        stream->next->link = &stream->next;
    home->streams = stream;
    return stream;
}

/* Forgets finished orphans.  Orphans are used only here and when work is ordered. */
static void prune_orphans(CUcontext ctx) {
    size_t kept = 0;
    for (size_t i = 0; i < ctx->orphan_count; i++) {
        if (ctx->orphans[i].work->state == SIM_DONE)
            sim_work_unref(ctx->orphans[i].work);
        else
            ctx->orphans[kept++] = ctx->orphans[i];
    }
    ctx->orphan_count = kept;
}

static void keep_orphan(CUcontext ctx, sim_work_t *work, bool blocking, CUgreenCtx green) {
    prune_orphans(ctx);
    if (ctx->orphan_count == ctx->orphan_room) {
        size_t room = ctx->orphan_room ? 2 * ctx->orphan_room : 8;
        void *grown = realloc(ctx->orphans, room * sizeof *ctx->orphans);
        if (!grown) { /* no later call could wait for it, so do it now */
            sim_wait(work);
            return;
        }
        ctx->orphans = grown;
        ctx->orphan_room = room;
    }
    ctx->orphans[ctx->orphan_count].work = sim_work_ref(work);
    ctx->orphans[ctx->orphan_count].green_id = green ? green->object.id : 0;
    ctx->orphans[ctx->orphan_count++].blocking = blocking;
}

static bool is_blocking(const sim_stream_t *stream) {
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void sim_stream_drop(CUstream stream) {
    if (stream->capture)
        sim_capture_stream_gone(stream);
    *stream->link = stream->next;
    if (stream->next)
        stream->next->link = stream->link;
    sim_work_t *last = stream->last;
    CUcontext ctx = stream->ctx;
    bool blocking = is_blocking(stream);
    if (sim_race_on) {
        if (blocking)
            sim_race_stream_gone(&ctx->gone[0], last);
        sim_race_stream_gone(&ctx->gone[1], last);
        if (stream->green)
            sim_race_stream_gone(&stream->green->gone, last);
    }
    CUgreenCtx green = stream->green;
    free(stream->capture_tail);
    sim_slab_give(&sim_streams, stream);
    if (last && last->state != SIM_DONE)
        keep_orphan(ctx, last, blocking, green);
    sim_work_unref(last);
}

void sim_streams_ctx_gone(CUcontext ctx) {
    while (ctx->streams)
        sim_stream_drop(ctx->streams);
    for (size_t i = 0; i < ctx->orphan_count; i++)
        sim_work_unref(ctx->orphans[i].work);
    free(ctx->orphans);
    ctx->orphans = NULL;
    ctx->orphan_count = ctx->orphan_room = 0;
    sim_work_unref(ctx->barrier);
    ctx->barrier = NULL;
    for (unsigned i = 0; i < 2; i++)
        sim_race_gone_free(&ctx->gone[i]);
}

bool sim_stream_order(CUstream stream, sim_work_t *work) {
    CUcontext ctx = stream->ctx;
    if (!sim_work_after(work, ctx->barrier) || !sim_work_after(work, stream->last))
        return false;
    if (stream->green && !sim_work_after(work, stream->green->barrier))
        return false;
    if (!stream->is_legacy)
        return !is_blocking(stream) || sim_work_after(work, ctx->legacy->last);
    if (sim_race_on)
        sim_race_after_gone(ctx->gone[0], work);
    for (CUstream other = ctx->streams; other; other = other->next)
        if (is_blocking(other) && !sim_work_after(work, other->last))
            return false;
    prune_orphans(ctx);
    for (size_t i = 0; i < ctx->orphan_count; i++)
        if (ctx->orphans[i].blocking && !sim_work_after(work, ctx->orphans[i].work))
            return false;
    return true;
}

void sim_stream_advance(CUstream stream, sim_work_t *work) {
    sim_work_t *before = stream->last;
    stream->last = sim_work_ref(work);
    sim_work_unref(before);
}

/* Returns true if the stream belongs to the green context, or is a default stream: these belong to
 * the primary context, in any current context. */
static bool is_of(const sim_stream_t *stream, CUgreenCtx green) {
    return !green || stream->green == green || stream->is_legacy || stream->is_per_thread;
}

bool sim_ctx_order(CUcontext ctx, sim_work_t *work) {
    CUgreenCtx green = ctx->green_of;
    CUcontext home = sim_ctx_home(ctx);
    if (sim_race_on)
        sim_race_after_gone(green ? green->gone : home->gone[1], work);
    for (CUstream stream = home->streams; stream; stream = stream->next)
        if (is_of(stream, green) && !sim_work_after(work, stream->last))
            return false;
    prune_orphans(home);
    for (size_t i = 0; i < home->orphan_count; i++)
        if ((!green || home->orphans[i].green_id == green->object.id) &&
            !sim_work_after(work, home->orphans[i].work))
            return false;
    return sim_work_after(work, green ? green->barrier : home->barrier);
}

CUresult sim_ctx_barrier(CUcontext ctx, CUevent event) {
    CUcontext home = sim_ctx_home(ctx);
    sim_work_t **barrier = ctx->green_of ? &ctx->green_of->barrier : &home->barrier;
    sim_work_t *work = sim_work_new(&sim_mark_ops, home, 0);
    if (!work || !sim_work_after(work, *barrier) || !sim_work_after_event(work, event)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_work_submit(work);
    sim_work_unref(*barrier);
    *barrier = work;
    return CUDA_SUCCESS;
}

CUresult sim_enqueue(CUstream stream, sim_work_t *work, sim_work_t **kept) {
    if (kept)
        *kept = NULL;
    if (stream->capture)
        return sim_capture_record(stream, work);
    if (stream->is_legacy && stream->ctx->captures) {
        CUresult result = sim_capture_implicit(stream->ctx);
        if (result) {
            sim_work_unref(work);
            return result;
        }
    }
    work->stream_id = stream->object.id;
    if (!sim_stream_order(stream, work)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_work_submit(work);
    sim_stream_advance(stream, work);
    if (kept)
        *kept = sim_work_ref(work);
    sim_work_unref(work);
    return CUDA_SUCCESS;
}

/* ---- waiting ---- */

/* Makes an item that completes when the next item of `stream` could start. */
static sim_work_t *probe(CUstream stream) {
    sim_work_t *mark = sim_work_new(&sim_mark_ops, stream->ctx, 0);
    if (mark && sim_stream_order(stream, mark)) {
        sim_work_submit(mark);
        return mark;
    }
    sim_work_unref(mark);
    return NULL;
}

static bool holds(const sim_work_t *barrier) {
    return barrier && (barrier->state != SIM_DONE || sim_race_on);
}

static bool needs_probe(CUstream stream) {
    return stream->is_legacy || holds(stream->ctx->barrier) ||
           (stream->green && holds(stream->green->barrier));
}

CUresult sim_wait_stream(CUstream stream) {
    CUcontext ctx = stream->ctx;
    uint64_t id = ctx->object.id;
    sim_work_t *work = needs_probe(stream) ? probe(stream) : sim_work_ref(stream->last);
    sim_wait(work);
    sim_work_unref(work);
    return ctx->object.id == id ? ctx->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_wait_ctx(CUcontext view) {
    CUcontext ctx = sim_ctx_home(view);
    uint64_t id = ctx->object.id;
    bool look = sim_pending || sim_race_on;
    sim_work_t *mark = look ? sim_work_new(&sim_mark_ops, ctx, 0) : NULL;
    if (mark && sim_ctx_order(view, mark)) {
        sim_work_submit(mark);
        sim_wait(mark);
    }
    sim_work_unref(mark);
    return ctx->object.id == id ? ctx->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void sim_wait_device(int ordinal) {
    if (!sim_pending && !sim_race_on)
        return;
    sim_work_t *mark = sim_work_new(&sim_mark_ops, NULL, 0);
    bool good = mark;
    size_t at = 0;
    for (CUcontext ctx; good && (ctx = sim_slab_next(&sim_contexts, &at));)
        if (ctx->active && ctx->device == ordinal)
            good = sim_ctx_order(ctx, mark);
    if (good) {
        sim_work_submit(mark);
        sim_wait(mark);
    }
    sim_work_unref(mark);
}

static CUresult query(CUstream stream) {
    CUcontext ctx = stream->ctx;
    sim_work_t *work = needs_probe(stream) ? probe(stream) : sim_work_ref(stream->last);
    bool done = sim_is_done(work);
    sim_work_unref(work);
    return ctx->sticky ? ctx->sticky : done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* ---- handles ---- */

CUstream sim_stream_own(CUcontext home) {
    sim_thread_t *self = sim_thread();
    if (!self)
        return NULL;
    size_t dead = self->own_count;
    for (size_t i = 0; i < self->own_count; i++) {
        if (self->own[i].ctx == home && self->own[i].id == home->object.id)
            return self->own[i].stream;
        if (self->own[i].ctx->object.id != self->own[i].id)
            dead = i;
    }
    CUstream stream = sim_stream_make(home, CU_STREAM_DEFAULT, 0);
    if (!stream)
        return NULL;
    stream->is_per_thread = true;
    if (dead == self->own_count) {
        void *grown = realloc(self->own, (dead + 1) * sizeof *self->own);
        if (!grown) {
            sim_stream_drop(stream);
            return NULL;
        }
        self->own = grown;
        self->own_count++;
    }
    self->own[dead].ctx = home;
    self->own[dead].id = home->object.id;
    self->own[dead].stream = stream;
    return stream;
}

/* Called at the end of a thread.  Its default streams are destroyed; their work goes on. */
void sim_thread_gone(void *thread) {
    sim_thread_t *self = thread;
    if (!(atomic_load(&sim_gate) & (SIM_GATE_FORKED | SIM_GATE_EXITING))) {
        sim_lock();
        for (size_t i = 0; i < self->own_count; i++) {
            CUcontext ctx = self->own[i].ctx;
            if (ctx->object.live && ctx->active && ctx->object.id == self->own[i].id)
                sim_stream_drop(self->own[i].stream);
        }
        sim_unlock();
    }
    free(self->own);
    free(self->stack);
    free(self);
    sim_self = NULL;
}

CUresult sim_stream_get(CUstream handle, bool per_thread, CUstream *out) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUcontext ctx;
        CUresult result = sim_ctx_current(&ctx);
        if (result)
            return result;
        CUcontext home = sim_ctx_home(ctx);
        bool own = handle ? handle == CU_STREAM_PER_THREAD : per_thread;
        *out = own ? sim_stream_own(home) : home->legacy;
        return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!sim_slab_has(&sim_streams, handle))
        return CUDA_ERROR_INVALID_HANDLE;
    *out = handle;
    return handle->ctx->sticky;
}

static CUresult create(CUstream *out, unsigned flags, int priority) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    if (priority > 0)
        priority = 0;
    if (priority < -5)
        priority = -5;
    CUstream stream = sim_stream_make(sim_ctx_home(ctx), flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->green = ctx->green_of;
    *out = stream;
    return CUDA_SUCCESS;
}

SIM_API(cuStreamCreate)(CUstream *out, unsigned flags) {
    return create(out, flags, 0);
}

SIM_API(cuStreamCreateWithPriority)(CUstream *out, unsigned flags, int priority) {
    return create(out, flags, priority);
}

static CUresult destroy(CUstream stream) {
    if (!sim_slab_has(&sim_streams, stream) || stream->is_legacy || stream->is_per_thread)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_stream_drop(stream);
    return CUDA_SUCCESS;
}

SIM_API(cuStreamDestroy_v2)(CUstream stream) {
    return destroy(stream);
}

SIM_API(cuStreamDestroy)(CUstream stream) {
    return destroy(stream);
}

static CUresult query_handle(CUstream handle, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && sim_captures)
        result = sim_capture_sync(stream->ctx, stream);
    return result ? result : query(stream);
}

SIM_API(cuStreamQuery)(CUstream handle) {
    return query_handle(handle, false);
}

SIM_API(cuStreamQuery_ptsz)(CUstream handle) {
    return query_handle(handle, true);
}

static CUresult synchronize(CUstream handle, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && sim_captures)
        result = sim_capture_sync(stream->ctx, stream);
    if (!result) {
        result = sim_wait_stream(stream);
        sim_pool_synced();
    }
    return result;
}

SIM_API(cuStreamSynchronize)(CUstream handle) {
    return synchronize(handle, false);
}

SIM_API(cuStreamSynchronize_ptsz)(CUstream handle) {
    return synchronize(handle, true);
}

SIM_LIVE_COUNT(streams) {
    uint64_t count = 0;
    size_t at = 0;
    for (CUstream stream; (stream = sim_slab_next(&sim_streams, &at));)
        count += !stream->is_legacy && !stream->is_per_thread;
    return count;
}
