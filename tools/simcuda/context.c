/* Contexts: primary and created ones, the stack of each thread, flags and limits.  Global
 * lock; the stack belongs to its thread. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

sim_slab_t sim_contexts = SIM_SLAB(sim_context_t, 4096);

/* ---- being usable ---- */

CUcontext sim_ctx_home(CUcontext ctx) {
    return ctx->green ? ctx->parent : ctx;
}

static bool alive(CUcontext ctx) {
    return sim_ctx_home(ctx)->active;
}

CUresult sim_ctx_check(CUcontext ctx) {
    if (!sim_slab_has(&sim_contexts, ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!alive(ctx))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return sim_ctx_home(ctx)->sticky;
}

CUresult sim_ctx_current(CUcontext *out) {
    const sim_thread_t *self = sim_self;
    if (!self || !self->current)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext ctx = self->current;
    /* A reset primary context keeps its handle.  A context that merely reuses the handle value
     * is a different one. */
    if (!sim_slab_has(&sim_contexts, ctx) || !alive(ctx) ||
        (!ctx->primary && ctx->object.id != self->stack[self->depth - 1].id))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *out = ctx;
    return sim_ctx_home(ctx)->sticky;
}

/* ---- stack ---- */

static void update_current(sim_thread_t *self) {
    self->current = self->depth ? self->stack[self->depth - 1].ctx : NULL;
}

static CUresult push(CUcontext ctx) {
    sim_thread_t *self = sim_thread();
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (self->depth == self->room) {
        size_t room = self->room ? 2 * self->room : 8;
        void *grown = realloc(self->stack, room * sizeof *self->stack);
        if (!grown)
            return CUDA_ERROR_OUT_OF_MEMORY;
        self->stack = grown;
        self->room = room;
    }
    self->stack[self->depth].ctx = ctx;
    self->stack[self->depth++].id = ctx->object.id;
    update_current(self);
    return CUDA_SUCCESS;
}

static void pop(sim_thread_t *self) {
    if (self->depth)
        self->depth--;
    update_current(self);
}

SIM_API(cuCtxGetCurrent)(CUcontext *out) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sim_self ? sim_self->current : NULL;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxSetCurrent)(CUcontext ctx) {
    sim_thread_t *self = sim_thread();
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!ctx) {
        pop(self);
        return CUDA_SUCCESS;
    }
    CUresult result = sim_ctx_check(ctx);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return result;
    if (self->depth)
        self->depth--;
    return push(ctx);
}

static CUresult push_checked(CUcontext ctx) {
    CUresult result = sim_ctx_check(ctx);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return result;
    return push(ctx);
}

static CUresult pop_checked(CUcontext *out) {
    sim_thread_t *self = sim_thread();
    if (!self || !self->depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (out)
        *out = self->current;
    pop(self);
    return CUDA_SUCCESS;
}

SIM_API(cuCtxPushCurrent_v2)(CUcontext ctx) {
    return push_checked(ctx);
}

SIM_API(cuCtxPushCurrent)(CUcontext ctx) {
    return push_checked(ctx);
}

SIM_API(cuCtxPopCurrent_v2)(CUcontext *out) {
    return pop_checked(out);
}

SIM_API(cuCtxPopCurrent)(CUcontext *out) {
    return pop_checked(out);
}

/* ---- making and ending ---- */

static const size_t first_limits[16] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
    [CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0,
};

static CUresult bring_up(CUcontext ctx, int device, unsigned flags) {
    ctx->device = device;
    ctx->flags = flags;
    ctx->api_version = 3020;
    ctx->sticky = CUDA_SUCCESS;
    ctx->peer_count = 0;
    ctx->uses = 0;
    memcpy(ctx->limits, first_limits, sizeof ctx->limits);
    ctx->legacy = sim_stream_make(ctx, CU_STREAM_DEFAULT, 0);
    if (!ctx->legacy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ctx->legacy->is_legacy = true;
    ctx->active = true;
    return CUDA_SUCCESS;
}

/* Ends everything that the context owns.  Waits for pending work and drops the lock meanwhile,
 * so the caller checks again that there is something left to end. */
static void tear_down(CUcontext ctx) {
    sim_ctx_gone_graph(ctx);
    sim_ctx_gone_array(ctx);
    sim_ctx_gone_ipc(ctx);
    sim_ctx_gone_vmm(ctx);
    sim_ctx_gone_pool(ctx);
    sim_modules_ctx_gone(ctx);
    sim_events_ctx_gone(ctx);
    sim_streams_ctx_gone(ctx);
    sim_green_ctx_gone(ctx);
    sim_memory_ctx_gone(ctx);
    ctx->active = false;
    ctx->legacy = NULL;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device) {
    if (!out || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    CUcontext ctx = sim_slab_take(&sim_contexts);
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = bring_up(ctx, device, flags);
    if (!result)
        result = push(ctx);
    if (result) {
        if (ctx->active)
            tear_down(ctx);
        sim_slab_give(&sim_contexts, ctx);
        return result;
    }
    ctx->uses = 1;
    *out = ctx;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxCreate_v2)(CUcontext *out, unsigned flags, CUdevice device) {
    return create(out, flags, device);
}

SIM_API(cuCtxCreate)(CUcontext *out, unsigned flags, CUdevice device) {
    return create(out, flags, device);
}

SIM_API(cuCtxCreate_v3)
(CUcontext *out, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice device) {
    if (affinity || count)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(out, flags, device);
}

SIM_API(cuCtxCreate_v4)
(CUcontext *out, CUctxCreateParams *params, unsigned flags, CUdevice device) {
    if (params) { /* affinity or graphics sharing */
        static const unsigned char none[16];
        if (memcmp(params, none, sizeof none) != 0)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return create(out, flags, device);
}

static CUresult destroy(CUcontext ctx) {
    if (!sim_slab_has(&sim_contexts, ctx) || ctx->primary || ctx->green)
        return CUDA_ERROR_INVALID_CONTEXT;
    uint64_t id = ctx->object.id;
    sim_wait_ctx(ctx);
    if (!sim_slab_has(&sim_contexts, ctx) || ctx->object.id != id)
        return CUDA_ERROR_INVALID_CONTEXT;
    tear_down(ctx);
    sim_slab_give(&sim_contexts, ctx);
    sim_thread_t *self = sim_thread();
    if (self && self->current == ctx && self->stack[self->depth - 1].id == id)
        pop(self);
    return CUDA_SUCCESS;
}

SIM_API(cuCtxDestroy_v2)(CUcontext ctx) {
    return destroy(ctx);
}

SIM_API(cuCtxDestroy)(CUcontext ctx) {
    return destroy(ctx);
}

SIM_API(cuCtxAttach)(CUcontext *out, unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    ctx->uses++;
    *out = ctx;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxDetach)(CUcontext ctx) {
    const sim_thread_t *self = sim_thread();
    if (!sim_slab_has(&sim_contexts, ctx) || !self || self->current != ctx || !ctx->uses)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (ctx->uses == 1 && !ctx->primary && !ctx->green)
        return destroy(ctx);
    ctx->uses--;
    return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

SIM_API(cuDevicePrimaryCtxRetain)(CUcontext *out, CUdevice device) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    sim_device_t *d = &sim_devices[device];
    if (!d->primary) {
        d->primary = sim_slab_take(&sim_contexts);
        if (!d->primary)
            return CUDA_ERROR_OUT_OF_MEMORY;
        d->primary->primary = true;
        d->primary->device = device;
    } else if (!d->primary->active) {
        d->primary->object.id = sim_next_id();
    }
    if (!d->primary->active) {
        result = bring_up(d->primary, device, d->primary_flags);
        if (result)
            return result;
    }
    d->primary_refs++;
    *out = d->primary;
    return CUDA_SUCCESS;
}

static void end_primary(sim_device_t *d) {
    CUcontext ctx = d->primary;
    uint64_t id = ctx->object.id;
    sim_wait_ctx(ctx);
    if (ctx->active && ctx->object.id == id)
        tear_down(ctx);
}

static CUresult primary_release(CUdevice device) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    sim_device_t *d = &sim_devices[device];
    if (!d->primary_refs)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--d->primary_refs == 0 && d->primary->active)
        end_primary(d);
    return CUDA_SUCCESS;
}

/* Keeps the reference count: each caller that retained the context must still release it. */
static CUresult primary_reset(CUdevice device) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    sim_device_t *d = &sim_devices[device];
    if (d->primary && d->primary->active)
        end_primary(d);
    return CUDA_SUCCESS;
}

SIM_API(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
    return primary_release(device);
}

SIM_API(cuDevicePrimaryCtxRelease)(CUdevice device) {
    return primary_release(device);
}

SIM_API(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
    return primary_reset(device);
}

SIM_API(cuDevicePrimaryCtxReset)(CUdevice device) {
    return primary_reset(device);
}

SIM_API(cuDevicePrimaryCtxGetState)(CUdevice device, unsigned *flags, int *active) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    const sim_device_t *d = &sim_devices[device];
    if (flags)
        *flags = d->primary_flags;
    if (active)
        *active = d->primary && d->primary->active;
    return CUDA_SUCCESS;
}

SIM_API(cuDevicePrimaryCtxSetFlags_v2)(CUdevice device, unsigned flags) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    sim_devices[device].primary_flags = flags;
    if (sim_devices[device].primary)
        sim_devices[device].primary->flags = flags;
    return CUDA_SUCCESS;
}

/* Before CUDA 11 the flags of an active context could not change. */
SIM_API(cuDevicePrimaryCtxSetFlags)(CUdevice device, unsigned flags) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    if (sim_devices[device].primary && sim_devices[device].primary->active)
        return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    return sim_do_cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

SIM_LIVE_COUNT(contexts) {
    return sim_contexts.live;
}
