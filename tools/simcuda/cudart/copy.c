/* Copies and fills.  Each operation is written once, with the default stream as a parameter.  The
 * exported twins below it only choose that stream. */
#include <string.h>

#include "internal.h"

#define FAILURE(error) ((CUresult)(error))

/* ---------------------------------------------------------------- linear */
static CUresult copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                     enum simrt_mode mode) {
    if (kind > cudaMemcpyDefault) {
        return FAILURE(cudaErrorInvalidMemcpyDirection);
    }
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_BY_MODE(mode, cuMemcpyHtoD_v2, ptds)(RT_PTR(to), from, bytes);
    case cudaMemcpyDeviceToHost:
        return RT_BY_MODE(mode, cuMemcpyDtoH_v2, ptds)(to, RT_PTR(from), bytes);
    case cudaMemcpyDeviceToDevice:
        return RT_BY_MODE(mode, cuMemcpyDtoD_v2, ptds)(RT_PTR(to), RT_PTR(from), bytes);
    default:
        return RT_BY_MODE(mode, cuMemcpy, ptds)(RT_PTR(to), RT_PTR(from), bytes);
    }
}

static CUresult copy_async(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                           cudaStream_t stream, enum simrt_mode mode) {
    if (kind > cudaMemcpyDefault) {
        return FAILURE(cudaErrorInvalidMemcpyDirection);
    }
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return RT_BY_MODE(mode, cuMemcpyHtoDAsync_v2, ptsz)(RT_PTR(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
        return RT_BY_MODE(mode, cuMemcpyDtoHAsync_v2, ptsz)(to, RT_PTR(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
        return RT_BY_MODE(mode, cuMemcpyDtoDAsync_v2, ptsz)(RT_PTR(to), RT_PTR(from), bytes,
                                                            stream);
    default:
        return RT_BY_MODE(mode, cuMemcpyAsync, ptsz)(RT_PTR(to), RT_PTR(from), bytes, stream);
    }
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    RT_CALL(simrt_enter, copy(to, from, bytes, kind, RT_LEGACY));
}

cudaError_t cudaMemcpy_ptds(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    RT_CALL(simrt_enter, copy(to, from, bytes, kind, RT_PER_THREAD));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_async(to, from, bytes, kind, stream, RT_LEGACY));
}

cudaError_t cudaMemcpyAsync_ptsz(void *to, const void *from, size_t bytes,
                                 enum cudaMemcpyKind kind, cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_async(to, from, bytes, kind, stream, RT_PER_THREAD));
}

/* ---------------------------------------------------------------- rectangles */
/* Returns the memory type of one side of a copy.  With the default kind, the driver finds it by
 * address. */
static CUmemorytype source_type(enum cudaMemcpyKind kind) {
    return kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
           : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost
               ? CU_MEMORYTYPE_HOST
               : CU_MEMORYTYPE_DEVICE;
}

static CUmemorytype target_type(enum cudaMemcpyKind kind) {
    return kind == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
           : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost
               ? CU_MEMORYTYPE_HOST
               : CU_MEMORYTYPE_DEVICE;
}

struct rectangle {
    void *to;
    size_t to_pitch;
    const void *from;
    size_t from_pitch;
    size_t width, height;
    enum cudaMemcpyKind kind;
};

static CUresult describe_2d(const struct rectangle *r, CUDA_MEMCPY2D *d) {
    if (r->kind > cudaMemcpyDefault) {
        return FAILURE(cudaErrorInvalidMemcpyDirection);
    }
    if (r->width > r->to_pitch || r->width > r->from_pitch) {
        return FAILURE(cudaErrorInvalidPitchValue);
    }
    *d = (CUDA_MEMCPY2D){
        .srcMemoryType = source_type(r->kind),
        .srcHost = r->from,
        .srcDevice = RT_PTR(r->from),
        .srcPitch = r->from_pitch,
        .dstMemoryType = target_type(r->kind),
        .dstHost = r->to,
        .dstDevice = RT_PTR(r->to),
        .dstPitch = r->to_pitch,
        .WidthInBytes = r->width,
        .Height = r->height,
    };
    return CUDA_SUCCESS;
}

static CUresult copy_2d(struct rectangle r, enum simrt_mode mode) {
    CUDA_MEMCPY2D d;
    CUresult result = describe_2d(&r, &d);
    return result != CUDA_SUCCESS || r.width == 0 || r.height == 0
               ? result
               : RT_BY_MODE(mode, cuMemcpy2DUnaligned_v2, ptds)(&d);
}

static CUresult copy_2d_async(struct rectangle r, cudaStream_t stream, enum simrt_mode mode) {
    CUDA_MEMCPY2D d;
    CUresult result = describe_2d(&r, &d);
    return result != CUDA_SUCCESS || r.width == 0 || r.height == 0
               ? result
               : RT_BY_MODE(mode, cuMemcpy2DAsync_v2, ptsz)(&d, stream);
}

#define RECTANGLE ((struct rectangle){to, to_pitch, from, from_pitch, width, height, kind})

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    RT_CALL(simrt_enter, copy_2d(RECTANGLE, RT_LEGACY));
}

cudaError_t cudaMemcpy2D_ptds(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind) {
    RT_CALL(simrt_enter, copy_2d(RECTANGLE, RT_PER_THREAD));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_2d_async(RECTANGLE, stream, RT_LEGACY));
}

cudaError_t cudaMemcpy2DAsync_ptsz(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                   size_t width, size_t height, enum cudaMemcpyKind kind,
                                   cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_2d_async(RECTANGLE, stream, RT_PER_THREAD));
}

/* ---------------------------------------------------------------- boxes */
/* Returns the size of an element.  Positions and widths count elements for an array, bytes
 * otherwise. */
static CUresult element_size(cudaArray_t array, size_t *size) {
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult result = RT_DRIVER(cuArray3DGetDescriptor_v2)(&d, array);
    if (result == CUDA_SUCCESS) {
        size_t channel =
            d.Format == CU_AD_FORMAT_UNSIGNED_INT8 || d.Format == CU_AD_FORMAT_SIGNED_INT8 ? 1
            : d.Format == CU_AD_FORMAT_UNSIGNED_INT32 || d.Format == CU_AD_FORMAT_SIGNED_INT32 ||
                    d.Format == CU_AD_FORMAT_FLOAT
                ? 4
                : 2;
        *size = channel * d.NumChannels;
    }
    return result;
}

/* One side of a copy of a box: memory or array, and the position in it. */
struct side {
    cudaArray_t array;
    struct cudaPos position;
    struct cudaPitchedPtr memory;
};

/* Fills the structure, except types and contexts.  The non-peer structure is a prefix of it. */
static CUresult describe_3d(struct side from, struct side to, struct cudaExtent extent,
                            CUDA_MEMCPY3D_PEER *d) {
    size_t element = 1;
    CUresult result = CUDA_SUCCESS;
    if ((from.array != NULL) == (from.memory.ptr != NULL) ||
        (to.array != NULL) == (to.memory.ptr != NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (from.array != NULL) {
        result = element_size(from.array, &element);
    } else if (to.array != NULL) {
        result = element_size(to.array, &element);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *d = (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = from.position.x * (from.array != NULL ? element : 1),
        .srcY = from.position.y,
        .srcZ = from.position.z,
        .srcArray = from.array,
        .srcHost = from.memory.ptr,
        .srcDevice = RT_PTR(from.memory.ptr),
        .srcPitch = from.memory.pitch,
        .srcHeight = from.memory.ysize,
        .dstXInBytes = to.position.x * (to.array != NULL ? element : 1),
        .dstY = to.position.y,
        .dstZ = to.position.z,
        .dstArray = to.array,
        .dstHost = to.memory.ptr,
        .dstDevice = RT_PTR(to.memory.ptr),
        .dstPitch = to.memory.pitch,
        .dstHeight = to.memory.ysize,
        .WidthInBytes = extent.width * element,
        .Height = extent.height,
        .Depth = extent.depth,
    };
    return CUDA_SUCCESS;
}

static bool empty(struct cudaExtent extent) {
    return extent.width == 0 || extent.height == 0 || extent.depth == 0;
}

/* The driver's two structures differ only in two words, which are reserved, zero, or a
 * context. */
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "same shape");

static CUresult describe_box(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *out) {
    CUDA_MEMCPY3D_PEER d;
    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (p->kind > cudaMemcpyDefault) {
        return FAILURE(cudaErrorInvalidMemcpyDirection);
    }
    CUresult result =
        describe_3d((struct side){p->srcArray, p->srcPos, p->srcPtr},
                    (struct side){p->dstArray, p->dstPos, p->dstPtr}, p->extent, &d);
    if (result == CUDA_SUCCESS) {
        d.srcMemoryType = p->srcArray != NULL ? CU_MEMORYTYPE_ARRAY : source_type(p->kind);
        d.dstMemoryType = p->dstArray != NULL ? CU_MEMORYTYPE_ARRAY : target_type(p->kind);
        memcpy(out, &d, sizeof *out);
    }
    return result;
}

static CUresult copy_3d(const struct cudaMemcpy3DParms *p, enum simrt_mode mode) {
    CUDA_MEMCPY3D d;
    CUresult result = describe_box(p, &d);
    return result != CUDA_SUCCESS || empty(p->extent) ? result
                                                      : RT_BY_MODE(mode, cuMemcpy3D_v2, ptds)(&d);
}

static CUresult copy_3d_async(const struct cudaMemcpy3DParms *p, cudaStream_t stream,
                              enum simrt_mode mode) {
    CUDA_MEMCPY3D d;
    CUresult result = describe_box(p, &d);
    return result != CUDA_SUCCESS || empty(p->extent)
               ? result
               : RT_BY_MODE(mode, cuMemcpy3DAsync_v2, ptsz)(&d, stream);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p) {
    RT_CALL(simrt_enter, copy_3d(p, RT_LEGACY));
}

cudaError_t cudaMemcpy3D_ptds(const struct cudaMemcpy3DParms *p) {
    RT_CALL(simrt_enter, copy_3d(p, RT_PER_THREAD));
}

cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_3d_async(p, stream, RT_LEGACY));
}

cudaError_t cudaMemcpy3DAsync_ptsz(const struct cudaMemcpy3DParms *p, cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_3d_async(p, stream, RT_PER_THREAD));
}

/* ---------------------------------------------------------------- between devices */
static CUresult both_contexts(int to, int from, CUcontext *to_context, CUcontext *from_context) {
    CUresult result = simrt_device_primary(to, to_context);
    return result == CUDA_SUCCESS ? simrt_device_primary(from, from_context) : result;
}

cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device,
                           size_t bytes) {
    CUcontext to_context = NULL, from_context = NULL;
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess) {
        return error;
    }
    CUresult result = both_contexts(to_device, from_device, &to_context, &from_context);
    if (result == CUDA_SUCCESS && bytes != 0) {
        result =
            RT_DRIVER(cuMemcpyPeer)(RT_PTR(to), to_context, RT_PTR(from), from_context, bytes);
    }
    return simrt_return(result);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    CUcontext to_context = NULL, from_context = NULL;
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess) {
        return error;
    }
    CUresult result = both_contexts(to_device, from_device, &to_context, &from_context);
    if (result == CUDA_SUCCESS && bytes != 0) {
        result = RT_DRIVER(cuMemcpyPeerAsync)(RT_PTR(to), to_context, RT_PTR(from), from_context,
                                              bytes, stream);
    }
    return simrt_return(result);
}

static CUresult describe_peers(const struct cudaMemcpy3DPeerParms *p, CUDA_MEMCPY3D_PEER *d) {
    CUcontext to = NULL, from = NULL;
    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = both_contexts(p->dstDevice, p->srcDevice, &to, &from);
    if (result == CUDA_SUCCESS) {
        result = describe_3d((struct side){p->srcArray, p->srcPos, p->srcPtr},
                             (struct side){p->dstArray, p->dstPos, p->dstPtr}, p->extent, d);
    }
    if (result == CUDA_SUCCESS) {
        d->srcMemoryType = p->srcArray != NULL ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
        d->dstMemoryType = p->dstArray != NULL ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
        d->srcContext = from;
        d->dstContext = to;
    }
    return result;
}

static CUresult copy_peers(const struct cudaMemcpy3DPeerParms *p, enum simrt_mode mode) {
    CUDA_MEMCPY3D_PEER d;
    CUresult result = describe_peers(p, &d);
    return result != CUDA_SUCCESS || empty(p->extent)
               ? result
               : RT_BY_MODE(mode, cuMemcpy3DPeer, ptds)(&d);
}

static CUresult copy_peers_async(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream,
                                 enum simrt_mode mode) {
    CUDA_MEMCPY3D_PEER d;
    CUresult result = describe_peers(p, &d);
    return result != CUDA_SUCCESS || empty(p->extent)
               ? result
               : RT_BY_MODE(mode, cuMemcpy3DPeerAsync, ptsz)(&d, stream);
}

cudaError_t cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p) {
    RT_CALL(simrt_enter, copy_peers(p, RT_LEGACY));
}

cudaError_t cudaMemcpy3DPeer_ptds(const struct cudaMemcpy3DPeerParms *p) {
    RT_CALL(simrt_enter, copy_peers(p, RT_PER_THREAD));
}

cudaError_t cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_peers_async(p, stream, RT_LEGACY));
}

cudaError_t cudaMemcpy3DPeerAsync_ptsz(const struct cudaMemcpy3DPeerParms *p,
                                       cudaStream_t stream) {
    RT_CALL(simrt_enter, copy_peers_async(p, stream, RT_PER_THREAD));
}
