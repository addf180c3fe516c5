/* CUDA arrays: linear storage with a shape.  Texture hardware is not simulated, so an array is
 * device memory laid out row after row, plane after plane; copies find it through
 * sim_array_layout.  Global lock.
 *
 * Guesses (public documentation is silent):
 *   largest extents                 the texture limits among the device attributes are not
 *                                   checked.  An array must fit the device.
 *   sparse and deferred arrays      NOT_SUPPORTED, logged
 *   formats of more than 1, 2 or 4
 *   channels, unknown formats       INVALID_VALUE
 *   mipmapped arrays                not simulated (NOT_SUPPORTED, logged)
 */
#include "sim.h"

typedef struct CUarray_handle {
    sim_object_t object;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    sim_alloc_t *record;
    CUcontext ctx;
    uint64_t ctx_id;
    sim_array_layout_t layout;
} sim_array_t;

/* Flags of cuArray3DCreate. */
enum {
    ARRAY_LAYERED = 0x01,
    ARRAY_SURFACE = 0x02,
    ARRAY_CUBEMAP = 0x04,
    ARRAY_GATHER = 0x08,
    ARRAY_DEPTH = 0x10,
    ARRAY_COLOR = 0x20,
    ARRAY_SPARSE = 0x40,
    ARRAY_DEFERRED = 0x80,
};

static sim_slab_t arrays = SIM_SLAB(sim_array_t, 1 << 16);

static size_t format_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0;
    }
}

static sim_array_t *array_get(CUarray handle) {
    return sim_slab_has(&arrays, handle) ? handle : NULL;
}

CUresult sim_array_layout(CUarray handle, sim_array_layout_t *out) {
    const sim_array_t *array = array_get(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    *out = array->layout;
    return CUDA_SUCCESS;
}

/* Extents are in elements; 0 means "no such dimension" and counts as one. */
static bool layout_of(const CUDA_ARRAY3D_DESCRIPTOR *shape, sim_array_layout_t *out,
                      uint64_t *size) {
    size_t bytes = format_bytes(shape->Format);
    bool channels = shape->NumChannels == 1 || shape->NumChannels == 2 || shape->NumChannels == 4;
    if (!bytes || !channels || !shape->Width)
        return false;
    out->rows = shape->Height ? shape->Height : 1;
    out->planes = shape->Depth ? shape->Depth : 1;
    uint64_t total;
    if (__builtin_mul_overflow(shape->Width, bytes * shape->NumChannels, &out->row_bytes) ||
        __builtin_mul_overflow(out->row_bytes, out->rows, &total) ||
        __builtin_mul_overflow(total, out->planes, size))
        *size = UINT64_MAX;
    return true;
}

static CUresult check_flags(const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    unsigned flags = shape->Flags;
    if (flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) {
        sim_log("sparse and deferred-mapping arrays are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (flags & ~(unsigned)(ARRAY_LAYERED | ARRAY_SURFACE | ARRAY_CUBEMAP | ARRAY_GATHER |
                            ARRAY_DEPTH | ARRAY_COLOR))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & ARRAY_CUBEMAP && (shape->Width != shape->Height || shape->Depth % 6 ||
                                  (!(flags & ARRAY_LAYERED) && shape->Depth != 6)))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & ARRAY_LAYERED && !shape->Depth)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & ARRAY_GATHER && (!shape->Height || shape->Depth))
        return CUDA_ERROR_INVALID_VALUE;
    bool volume = shape->Depth && !(flags & (ARRAY_LAYERED | ARRAY_CUBEMAP));
    return volume && !shape->Height ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    sim_array_layout_t layout = {0};
    uint64_t size;
    if (!out || !shape || !layout_of(shape, &layout, &size))
        return CUDA_ERROR_INVALID_VALUE;
    result = check_flags(shape);
    if (result)
        return result;
    sim_array_t *array = sim_slab_take(&arrays);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ctx = sim_ctx_home(ctx);
    sim_alloc_t *record;
    result = sim_device_alloc(ctx, SIM_MEM_ARRAY, size, &record);
    if (result) {
        sim_slab_give(&arrays, array);
        return result;
    }
    record->owner = array;
    layout.base = record->base;
    array->shape = *shape;
    array->record = record;
    array->ctx = ctx;
    array->ctx_id = ctx->object.id;
    array->layout = layout;
    *out = array;
    return CUDA_SUCCESS;
}

static void destroy(sim_array_t *array) {
    sim_device_free(array->record);
    sim_slab_give(&arrays, array);
}

SIM_API(cuArrayCreate_v2)(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape) {
    if (!shape)
        return create(out, NULL);
    return create(out, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = shape->Width,
                                                  .Height = shape->Height,
                                                  .Format = shape->Format,
                                                  .NumChannels = shape->NumChannels});
}

SIM_API(cuArray3DCreate_v2)(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    return create(out, shape);
}

SIM_API(cuArrayDestroy)(CUarray handle) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    sim_array_t *array = array_get(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t id = array->object.id;
    if (sim_config.free_sync)
        sim_wait_device(array->record->device); /* drops the lock */
    if (!sim_slab_has(&arrays, array) || array->object.id != id)
        return CUDA_ERROR_INVALID_HANDLE;
    destroy(array);
    return CUDA_SUCCESS;
}

SIM_API(cuArrayGetDescriptor_v2)(CUDA_ARRAY_DESCRIPTOR *out, CUarray handle) {
    const sim_array_t *array = array_get(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY_DESCRIPTOR){array->shape.Width, array->shape.Height, array->shape.Format,
                                   array->shape.NumChannels};
    return CUDA_SUCCESS;
}

SIM_API(cuArray3DGetDescriptor_v2)(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle) {
    const sim_array_t *array = array_get(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = array->shape;
    return CUDA_SUCCESS;
}

/* Documented for arrays with the deferred-mapping flag, which are not simulated; others have
 * no requirements to ask for. */
SIM_API(cuArrayGetMemoryRequirements)
(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray handle, CUdevice device) {
    const sim_array_t *array = array_get(handle);
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    (void)out;
    return CUDA_ERROR_INVALID_VALUE;
}

void sim_ctx_gone_array(CUcontext ctx) {
    size_t at = 0;
    for (sim_array_t *array; (array = sim_slab_next(&arrays, &at));)
        if (array->ctx == ctx && array->ctx_id == ctx->object.id)
            destroy(array);
}

SIM_LIVE_COUNT(arrays) {
    return arrays.live;
}
