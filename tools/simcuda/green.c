/* Green contexts: a share of a device's processors with streams of its own.  Memory, default
 * streams and modules are the primary context's.  The simulator has no processors to share
 * out, so a resource description is just a token.  Global lock. */
#include <string.h>

#include "race.h"
#include "state.h"

sim_slab_t sim_greens = SIM_SLAB(sim_green_t, 4096);

static CUresult get(CUgreenCtx green) {
    if (!sim_slab_has(&sim_greens, green))
        return CUDA_ERROR_INVALID_CONTEXT;
    return green->primary->active ? green->primary->sticky : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Retains the primary context as documented.  CU_GREEN_CTX_DEFAULT_STREAM, 1, must be set. */
SIM_API(cuGreenCtxCreate)
(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device, unsigned flags) {
    if (!out || !desc || flags != 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    CUgreenCtx green = sim_slab_take(&sim_greens);
    if (!green)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = sim_do_cuDevicePrimaryCtxRetain(&green->primary, device);
    if (result) {
        sim_slab_give(&sim_greens, green);
        return result;
    }
    green->device = device;
    *out = green;
    return CUDA_SUCCESS;
}

static void drop(CUgreenCtx green) {
    for (CUstream stream = green->primary->streams, next; stream; stream = next) {
        next = stream->next;
        if (stream->green == green)
            sim_stream_drop(stream);
    }
    sim_work_unref(green->barrier);
    if (sim_race_on)
        sim_race_gone_free(&green->gone);
    if (green->view)
        sim_slab_give(&sim_contexts, green->view);
    sim_slab_give(&sim_greens, green);
}

SIM_API(cuGreenCtxDestroy)(CUgreenCtx green) {
    if (!sim_slab_has(&sim_greens, green))
        return CUDA_ERROR_INVALID_CONTEXT;
    int device = green->device;
    drop(green);
    return sim_do_cuDevicePrimaryCtxRelease_v2(device);
}

void sim_green_ctx_gone(CUcontext ctx) {
    size_t at = 0;
    for (CUgreenCtx green; (green = sim_slab_next(&sim_greens, &at));)
        if (green->primary == ctx)
            drop(green);
}

SIM_API(cuCtxFromGreenCtx)(CUcontext *out, CUgreenCtx green) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = get(green);
    if (result)
        return result;
    if (!green->view) {
        CUcontext view = sim_slab_take(&sim_contexts);
        if (!view)
            return CUDA_ERROR_OUT_OF_MEMORY;
        view->device = green->device;
        view->green = true;
        view->parent = green->primary;
        view->green_of = green;
        view->api_version = green->primary->api_version;
        green->view = view;
    }
    *out = green->view;
    return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxStreamCreate)(CUstream *out, CUgreenCtx green, unsigned flags, int priority) {
    CUresult result = get(green);
    if (result)
        return result;
    if (!out || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream = sim_stream_make(green->primary, flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->green = green;
    *out = stream;
    return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxGetId)(CUgreenCtx green, unsigned long long *out) {
    CUresult result = get(green);
    if (result)
        return result;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = green->object.id;
    return CUDA_SUCCESS;
}

/* Returns an error if a stream of the green context captures.  As documented, this also
 * invalidates the capture. */
static CUresult captures(CUgreenCtx green) {
    CUresult result = CUDA_SUCCESS;
    for (CUstream stream = green->primary->streams; stream; stream = stream->next)
        if (stream->green == green && stream->capture)
            result = sim_capture_sync(green->primary, stream);
    return result;
}

static CUresult with_event(CUgreenCtx green, CUevent *event, CUcontext *view) {
    CUresult result = get(green);
    if (!result)
        result = sim_event_get(*event, event);
    if (!result)
        result = captures(green);
    return result ? result : sim_do_cuCtxFromGreenCtx(view, green);
}

SIM_API(cuGreenCtxRecordEvent)(CUgreenCtx green, CUevent event) {
    CUcontext view;
    CUresult result = with_event(green, &event, &view);
    if (result)
        return result;
    if (event->ctx != green->primary)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_work_t *work = sim_record_work(green->primary, event);
    if (!work || !sim_ctx_order(view, work)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_work_submit(work);
    sim_event_attach(event, work);
    sim_work_unref(work);
    return CUDA_SUCCESS;
}

SIM_API(cuGreenCtxWaitEvent)(CUgreenCtx green, CUevent event) {
    CUcontext view;
    CUresult result = with_event(green, &event, &view);
    if (!result && event->capture)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return result ? result : sim_ctx_barrier(view, event);
}

/* ---- resources: processors, which are counted but not shared out ---- */

typedef struct {
    unsigned type; /* 1: processors */
    unsigned char reserved[92];
    unsigned count;
    unsigned char more[44];
} resource_t;

_Static_assert(sizeof(resource_t) == 144, "as the ABI has it");

enum { PROCESSORS = 1, PROCESSOR_COUNT = 132, PROCESSOR_GRAIN = 8 };

static CUresult describe(CUdevResource *out, CUdevResourceType type, unsigned count) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != PROCESSORS)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    resource_t resource = {.type = PROCESSORS, .count = count};
    memcpy(out, &resource, sizeof resource);
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetDevResource)(CUdevice device, CUdevResource *out, CUdevResourceType type) {
    CUresult result = sim_device_check(device);
    return result ? result : describe(out, type, PROCESSOR_COUNT);
}

SIM_API(cuCtxGetDevResource)(CUcontext ctx, CUdevResource *out, CUdevResourceType type) {
    CUresult result = ctx ? sim_ctx_check(ctx) : sim_ctx_current(&ctx);
    return result ? result : describe(out, type, PROCESSOR_COUNT);
}

SIM_API(cuGreenCtxGetDevResource)(CUgreenCtx green, CUdevResource *out, CUdevResourceType type) {
    CUresult result = get(green);
    return result ? result : describe(out, type, PROCESSOR_COUNT);
}

SIM_API(cuDevSmResourceSplitByCount)
(CUdevResource *groups, unsigned *count, const CUdevResource *from, CUdevResource *remaining,
 SIM_UNUSED unsigned flags, unsigned least) {
    resource_t whole;
    if (!count || !from)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&whole, from, sizeof whole);
    if (whole.type != PROCESSORS || !whole.count)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (least > whole.count)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    unsigned each = (least + PROCESSOR_GRAIN - 1) / PROCESSOR_GRAIN * PROCESSOR_GRAIN;
    if (!each)
        each = PROCESSOR_GRAIN;
    unsigned possible = whole.count / each;
    if (!possible)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (!groups) {
        *count = possible;
        return CUDA_SUCCESS;
    }
    if (*count > possible)
        *count = possible;
    for (unsigned i = 0; i < *count; i++)
        describe((CUdevResource *)(void *)((char *)groups + i * sizeof whole), PROCESSORS, each);
    if (remaining)
        describe(remaining, PROCESSORS, whole.count - *count * each);
    return CUDA_SUCCESS;
}

/* Any share describes itself. */
SIM_API(cuDevResourceGenerateDesc)
(CUdevResourceDesc *out, CUdevResource *resources, unsigned count) {
    if (!out || !resources || !count)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdevResourceDesc)(void *)&sim_greens;
    return CUDA_SUCCESS;
}

SIM_LIVE_COUNT(green_contexts) {
    return sim_greens.live;
}
