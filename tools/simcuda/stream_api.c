/* Other stream calls: properties, host functions and callbacks.  Global lock. */
#include <string.h>

#include "state.h"

/* ---- properties ---- */

/* Defines the bodies of a call and of its per-thread twin. */
#define TWINS(symbol, twin, params, args)                                                        \
    SIM_API(symbol) params {                                                                     \
        bool per_thread = false;                                                                 \
        return both_##symbol args;                                                               \
    }                                                                                            \
    SIM_API(twin) params {                                                                       \
        bool per_thread = true;                                                                  \
        return both_##symbol args;                                                               \
    }

static CUresult both_cuStreamGetId(CUstream handle, unsigned long long *out, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = stream->object.id;
    return result;
}
TWINS(cuStreamGetId, cuStreamGetId_ptsz, (CUstream a, unsigned long long *b), (a, b, per_thread))

static CUresult both_cuStreamGetFlags(CUstream handle, unsigned *out, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = stream->flags;
    return result;
}
TWINS(cuStreamGetFlags, cuStreamGetFlags_ptsz, (CUstream a, unsigned *b), (a, b, per_thread))

static CUresult both_cuStreamGetPriority(CUstream handle, int *out, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = stream->priority;
    return result;
}
TWINS(cuStreamGetPriority, cuStreamGetPriority_ptsz, (CUstream a, int *b), (a, b, per_thread))

static CUresult both_cuStreamGetDevice(CUstream handle, CUdevice *out, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = stream->ctx->device;
    return result;
}
TWINS(cuStreamGetDevice, cuStreamGetDevice_ptsz, (CUstream a, CUdevice *b), (a, b, per_thread))

/* For a stream of a green context, the first version returns the context's view, and makes
 * it. */
static CUresult both_cuStreamGetCtx(CUstream handle, CUcontext *out, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (stream->green)
        return sim_do_cuCtxFromGreenCtx(out, stream->green);
    *out = stream->ctx;
    return CUDA_SUCCESS;
}
TWINS(cuStreamGetCtx, cuStreamGetCtx_ptsz, (CUstream a, CUcontext *b), (a, b, per_thread))

static CUresult both_cuStreamGetCtx_v2(CUstream handle, CUcontext *out, CUgreenCtx *green,
                                       bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && (!out || !green))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    *out = stream->green ? NULL : stream->ctx;
    *green = stream->green;
    return CUDA_SUCCESS;
}
TWINS(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz, (CUstream a, CUcontext *b, CUgreenCtx *c),
      (a, b, c, per_thread))

SIM_API(cuStreamGetGreenCtx)(CUstream handle, CUgreenCtx *out) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, false, &stream);
    if (!result && !out)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *out = stream->green;
    return result;
}

/* ---- attributes: kept, without effect ---- */

static const CUstreamAttrID kept_attributes[] = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
};

/* Returns the stored attribute; NULL: it is not an attribute of streams. */
static CUstreamAttrValue *attribute_of(CUstream stream, CUstreamAttrID id) {
    for (unsigned i = 0; i < sizeof kept_attributes / sizeof *kept_attributes; i++)
        if (kept_attributes[i] == id)
            return &stream->attributes[i];
    return NULL;
}

static CUresult both_cuStreamGetAttribute(CUstream handle, CUstreamAttrID id,
                                          CUstreamAttrValue *out, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    const CUstreamAttrValue *value = attribute_of(stream, id);
    if (!out || (!value && id != CU_LAUNCH_ATTRIBUTE_PRIORITY))
        return CUDA_ERROR_INVALID_VALUE;
    if (value)
        *out = *value;
    else
        out->priority = stream->priority;
    return CUDA_SUCCESS;
}
TWINS(cuStreamGetAttribute, cuStreamGetAttribute_ptsz,
      (CUstream a, CUstreamAttrID b, CUstreamAttrValue *c), (a, b, c, per_thread))

static CUresult both_cuStreamSetAttribute(CUstream handle, CUstreamAttrID id,
                                          const CUstreamAttrValue *in, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    CUstreamAttrValue *value = attribute_of(stream, id);
    if (!in || !value)
        return CUDA_ERROR_INVALID_VALUE;
    *value = *in;
    return CUDA_SUCCESS;
}
TWINS(cuStreamSetAttribute, cuStreamSetAttribute_ptsz,
      (CUstream a, CUstreamAttrID b, const CUstreamAttrValue *c), (a, b, c, per_thread))

static CUresult both_cuStreamCopyAttributes(CUstream to, CUstream from, bool per_thread) {
    CUstream target, source;
    CUresult result = sim_stream_get(to, per_thread, &target);
    if (!result)
        result = sim_stream_get(from, per_thread, &source);
    if (!result)
        memcpy(target->attributes, source->attributes, sizeof target->attributes);
    return result;
}
TWINS(cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz, (CUstream a, CUstream b),
      (a, b, per_thread))

/* ---- host functions and callbacks ---- */

typedef struct {
    CUhostFn fn;
    void *data;
} host_payload_t;

static CUresult run_host(sim_work_t *work) {
    const host_payload_t *payload = SIM_PAYLOAD(work, host_payload_t);
    payload->fn(payload->data);
    return CUDA_SUCCESS;
}

static const sim_work_ops_t host_ops = {
    .name = "host", .type = SIM_WORK_HOST, .flags = SIM_RUN_HOST, .run = run_host};

CUresult sim_host_work(CUcontext ctx, CUhostFn fn, void *data, sim_work_t **out) {
    sim_work_t *work = sim_work_new(&host_ops, ctx, sizeof(host_payload_t));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *SIM_PAYLOAD(work, host_payload_t) = (host_payload_t){fn, data};
    work->duration = sim_config.host_func_us * 1000;
    *out = work;
    return CUDA_SUCCESS;
}

static CUresult both_cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data, bool per_thread) {
    CUstream stream;
    sim_work_t *work;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && !fn)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = sim_host_work(stream->ctx, fn, data, &work);
    return result ? result : sim_enqueue(stream, work, NULL);
}
TWINS(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, (CUstream a, CUhostFn b, void *c),
      (a, b, c, per_thread))

typedef struct {
    CUstreamCallback fn;
    CUstream handle; /* as the caller named it */
    void *data;
} callback_payload_t;

/* Unlike host functions, callbacks also run in a broken context, and receive its error. */
static CUresult run_callback(sim_work_t *work) {
    const callback_payload_t *payload = SIM_PAYLOAD(work, callback_payload_t);
    payload->fn(payload->handle, work->failed ? work->ctx->sticky : CUDA_SUCCESS, payload->data);
    return CUDA_SUCCESS;
}

static const sim_work_ops_t callback_ops = {.name = "callback",
                                            .type = SIM_WORK_HOST,
                                            .flags = SIM_RUN_HOST | SIM_RUN_ALWAYS,
                                            .run = run_callback};

static CUresult both_cuStreamAddCallback(CUstream handle, CUstreamCallback fn, void *data,
                                         unsigned flags, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    if (!fn || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_work_t *work = sim_work_new(&callback_ops, stream->ctx, sizeof(callback_payload_t));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *SIM_PAYLOAD(work, callback_payload_t) = (callback_payload_t){fn, handle, data};
    work->duration = sim_config.host_func_us * 1000;
    return sim_enqueue(stream, work, NULL);
}
TWINS(cuStreamAddCallback, cuStreamAddCallback_ptsz,
      (CUstream a, CUstreamCallback b, void *c, unsigned d), (a, b, c, d, per_thread))

static CUresult both_cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length,
                                            unsigned flags, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (result)
        return result;
    const sim_alloc_t *record = sim_alloc_at(address);
    if (!record || record->kind != SIM_MEM_MANAGED || (length && length != record->size) ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
         flags != CU_MEM_ATTACH_SINGLE))
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work = sim_work_new(&sim_mark_ops, stream->ctx, 0);
    return work ? sim_enqueue(stream, work, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
}
TWINS(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz,
      (CUstream a, CUdeviceptr b, size_t c, unsigned d), (a, b, c, d, per_thread))
