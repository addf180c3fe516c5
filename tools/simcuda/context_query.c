/* Queries and settings of the current context: device, ids, flags, limits, peers, waiting.  Global
 * lock. */
#include <stdlib.h>

#include "state.h"

SIM_API(cuCtxGetDevice)(CUdevice *out) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result && result != CUDA_ERROR_ILLEGAL_ADDRESS)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = ctx->device;
    return CUDA_SUCCESS;
}

/* Replaces NULL by the current context. */
static CUresult named_or_current(CUcontext *ctx) {
    return *ctx ? sim_ctx_check(*ctx) : sim_ctx_current(ctx);
}

SIM_API(cuCtxGetDevice_v2)(CUdevice *out, CUcontext ctx) {
    CUresult result = named_or_current(&ctx);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = ctx->device;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetId)(CUcontext ctx, unsigned long long *out) {
    CUresult result = named_or_current(&ctx);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = ctx->object.id;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetApiVersion)(CUcontext ctx, unsigned *out) {
    CUresult result = named_or_current(&ctx);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = ctx->api_version;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetFlags)(unsigned *out) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = sim_ctx_home(ctx)->flags;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxSetFlags)(unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    sim_ctx_home(ctx)->flags = flags;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetLimit)(size_t *out, CUlimit limit) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *out = sim_ctx_home(ctx)->limits[limit];
    return CUDA_SUCCESS;
}

SIM_API(cuCtxSetLimit)(CUlimit limit, size_t value) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    sim_ctx_home(ctx)->limits[limit] = value;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxGetCacheConfig)(CUfunc_cache *out) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = 0;
    return result;
}

SIM_API(cuCtxSetCacheConfig)(SIM_UNUSED CUfunc_cache config) {
    CUcontext ctx;
    return sim_ctx_current(&ctx);
}

SIM_API(cuCtxGetSharedMemConfig)(CUsharedconfig *out) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = 1; /* four-byte banks */
    return result;
}

SIM_API(cuCtxSetSharedMemConfig)(SIM_UNUSED CUsharedconfig config) {
    CUcontext ctx;
    return sim_ctx_current(&ctx);
}

SIM_API(cuCtxResetPersistingL2Cache)(void) {
    CUcontext ctx;
    return sim_ctx_current(&ctx);
}

SIM_API(cuCtxGetStreamPriorityRange)(int *least, int *greatest) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

/* ---- waiting ---- */

static CUresult synchronize(CUcontext ctx) {
    CUcontext home = sim_ctx_home(ctx);
    if (sim_captures) {
        CUresult result = sim_capture_sync(home, NULL);
        if (result)
            return result;
    }
    CUresult result = sim_wait_ctx(ctx);
    sim_pool_synced();
    return result;
}

SIM_API(cuCtxSynchronize)(void) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    return result ? result : synchronize(ctx);
}

SIM_API(cuCtxSynchronize_v2)(CUcontext ctx) {
    CUresult result = named_or_current(&ctx);
    return result ? result : synchronize(ctx);
}

SIM_API(cuCtxRecordEvent)(CUcontext ctx, CUevent event) {
    CUresult result = named_or_current(&ctx);
    if (result)
        return result;
    if (!sim_config.ctx_record_event)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = sim_event_get(event, &event);
    if (result)
        return result;
    CUcontext home = sim_ctx_home(ctx);
    if (event->ctx != home)
        return CUDA_ERROR_INVALID_HANDLE;
    if (home->captures) { /* documented: invalidates them */
        sim_capture_sync(home, NULL);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    sim_work_t *work = sim_record_work(home, event);
    if (!work || !sim_ctx_order(ctx, work)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_work_submit(work);
    sim_event_attach(event, work);
    sim_work_unref(work);
    return CUDA_SUCCESS;
}

SIM_API(cuCtxWaitEvent)(CUcontext ctx, CUevent event) {
    CUresult result = named_or_current(&ctx);
    if (result)
        return result;
    if (!sim_config.ctx_record_event)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = sim_event_get(event, &event);
    if (result)
        return result;
    CUcontext home = sim_ctx_home(ctx);
    if (home->captures) {
        sim_capture_sync(home, NULL);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return sim_ctx_barrier(ctx, event);
}

/* ---- peers ---- */

bool sim_peer_enabled(CUcontext ctx, uint64_t peer_id) {
    const sim_context_t *home = sim_ctx_home(ctx);
    for (size_t i = 0; i < home->peer_count; i++)
        if (home->peers[i] == peer_id)
            return true;
    return false;
}

SIM_API(cuCtxEnablePeerAccess)(CUcontext peer, unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_ctx_check(peer);
    if (result)
        return result;
    CUcontext home = sim_ctx_home(ctx);
    peer = sim_ctx_home(peer);
    if (peer == home)
        return CUDA_ERROR_INVALID_DEVICE;
    if (peer->device != home->device && !sim_peer_allowed(home->device, peer->device))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    for (size_t i = 0; i < home->peer_count; i++)
        if (home->peers[i] == peer->object.id)
            return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (home->peer_count == SIM_MAX_DEVICES)
        return CUDA_ERROR_TOO_MANY_PEERS;
    home->peers[home->peer_count++] = peer->object.id;
    return CUDA_SUCCESS;
}

SIM_API(cuCtxDisablePeerAccess)(CUcontext peer) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    result = sim_ctx_check(peer);
    if (result)
        return result;
    CUcontext home = sim_ctx_home(ctx);
    for (size_t i = 0; i < home->peer_count; i++) {
        if (home->peers[i] == sim_ctx_home(peer)->object.id) {
            home->peers[i] = home->peers[--home->peer_count];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
