/* Fills (cudaMemset and its variants), and copies to and from named device variables. */
#include "internal.h"

/* ---------------------------------------------------------------- fills */

/* Form of a fill, synchronous or on a stream.  The driver's functions for the two forms differ
 * only in the stream. */
struct target {
    bool async;
    cudaStream_t stream;
    enum simrt_mode mode;
};

static CUresult fill_line(CUdeviceptr at, int value, size_t bytes, struct target t) {
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    return t.async ? RT_BY_MODE(t.mode, cuMemsetD8Async, ptsz)(at, (unsigned char)value, bytes,
                                                               t.stream)
                   : RT_BY_MODE(t.mode, cuMemsetD8_v2, ptds)(at, (unsigned char)value, bytes);
}

static CUresult fill_rows(CUdeviceptr at, size_t pitch, int value, size_t width, size_t height,
                          struct target t) {
    if (width == 0 || height == 0) {
        return CUDA_SUCCESS;
    }
    return t.async ? RT_BY_MODE(t.mode, cuMemsetD2D8Async, ptsz)(at, pitch, (unsigned char)value,
                                                                 width, height, t.stream)
                   : RT_BY_MODE(t.mode, cuMemsetD2D8_v2, ptds)(at, pitch, (unsigned char)value,
                                                               width, height);
}

static CUresult fill_box(struct cudaPitchedPtr to, int value, struct cudaExtent extent,
                         struct target t) {
    if (extent.width > to.pitch || (extent.depth > 1 && extent.height > to.ysize)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (extent.depth <= 1 || extent.height == to.ysize) { /* one run of rows */
        return fill_rows(RT_PTR(to.ptr), to.pitch, value, extent.width,
                         extent.height * extent.depth, t);
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t z = 0; z < extent.depth && result == CUDA_SUCCESS; z++) {
        result = fill_rows(RT_PTR(to.ptr) + z * to.pitch * to.ysize, to.pitch, value,
                           extent.width, extent.height, t);
    }
    return result;
}

#define NOW(mode)        ((struct target){false, NULL, mode})
#define ON(stream, mode) ((struct target){true, stream, mode})

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    RT_CALL(simrt_enter, fill_line(RT_PTR(to), value, bytes, NOW(RT_LEGACY)));
}

cudaError_t cudaMemset_ptds(void *to, int value, size_t bytes) {
    RT_CALL(simrt_enter, fill_line(RT_PTR(to), value, bytes, NOW(RT_PER_THREAD)));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    RT_CALL(simrt_enter, fill_line(RT_PTR(to), value, bytes, ON(stream, RT_LEGACY)));
}

cudaError_t cudaMemsetAsync_ptsz(void *to, int value, size_t bytes, cudaStream_t stream) {
    RT_CALL(simrt_enter, fill_line(RT_PTR(to), value, bytes, ON(stream, RT_PER_THREAD)));
}

cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
    RT_CALL(simrt_enter, fill_rows(RT_PTR(to), pitch, value, width, height, NOW(RT_LEGACY)));
}

cudaError_t cudaMemset2D_ptds(void *to, size_t pitch, int value, size_t width, size_t height) {
    RT_CALL(simrt_enter, fill_rows(RT_PTR(to), pitch, value, width, height, NOW(RT_PER_THREAD)));
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    RT_CALL(simrt_enter,
            fill_rows(RT_PTR(to), pitch, value, width, height, ON(stream, RT_LEGACY)));
}

cudaError_t cudaMemset2DAsync_ptsz(void *to, size_t pitch, int value, size_t width, size_t height,
                                   cudaStream_t stream) {
    RT_CALL(simrt_enter,
            fill_rows(RT_PTR(to), pitch, value, width, height, ON(stream, RT_PER_THREAD)));
}

cudaError_t cudaMemset3D(struct cudaPitchedPtr to, int value, struct cudaExtent extent) {
    RT_CALL(simrt_enter, fill_box(to, value, extent, NOW(RT_LEGACY)));
}

cudaError_t cudaMemset3D_ptds(struct cudaPitchedPtr to, int value, struct cudaExtent extent) {
    RT_CALL(simrt_enter, fill_box(to, value, extent, NOW(RT_PER_THREAD)));
}

cudaError_t cudaMemset3DAsync(struct cudaPitchedPtr to, int value, struct cudaExtent extent,
                              cudaStream_t stream) {
    RT_CALL(simrt_enter, fill_box(to, value, extent, ON(stream, RT_LEGACY)));
}

cudaError_t cudaMemset3DAsync_ptsz(struct cudaPitchedPtr to, int value, struct cudaExtent extent,
                                   cudaStream_t stream) {
    RT_CALL(simrt_enter, fill_box(to, value, extent, ON(stream, RT_PER_THREAD)));
}

/* ---------------------------------------------------------------- device variables */
/* Finds the variable behind its host shadow `symbol`. */
static cudaError_t locate(const void *symbol, size_t bytes, size_t offset, char **at) {
    CUdeviceptr address = 0;
    size_t size = 0;
    cudaError_t error = simrt_enter();
    if (error == cudaSuccess) {
        error = simrt_return(simrt_symbol_find(symbol, &address, &size));
    }
    if (error == cudaSuccess && (offset > size || bytes > size - offset)) {
        error = simrt_fail(cudaErrorInvalidValue);
    }
    *at = (char *)(uintptr_t)address + offset;
    return error;
}

/* Returns true if the kind fits.  A variable is on the device, so another kind is an error of the
 * caller. */
static bool kind_fits(enum cudaMemcpyKind kind, enum cudaMemcpyKind host_kind) {
    return kind == host_kind || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

#define TO_SYMBOL(call)                                                                          \
    char *at = NULL;                                                                             \
    if (!kind_fits(kind, cudaMemcpyHostToDevice)) {                                              \
        return simrt_fail(cudaErrorInvalidMemcpyDirection);                                      \
    }                                                                                            \
    cudaError_t error = locate(symbol, bytes, offset, &at);                                      \
    return error != cudaSuccess ? error : (call)

#define FROM_SYMBOL(call)                                                                        \
    char *at = NULL;                                                                             \
    if (!kind_fits(kind, cudaMemcpyDeviceToHost)) {                                              \
        return simrt_fail(cudaErrorInvalidMemcpyDirection);                                      \
    }                                                                                            \
    cudaError_t error = locate(symbol, bytes, offset, &at);                                      \
    return error != cudaSuccess ? error : (call)

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                               enum cudaMemcpyKind kind) {
    TO_SYMBOL(cudaMemcpy(at, from, bytes, kind));
}

cudaError_t cudaMemcpyToSymbol_ptds(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind) {
    TO_SYMBOL(cudaMemcpy_ptds(at, from, bytes, kind));
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes,
                                    size_t offset, enum cudaMemcpyKind kind,
                                    cudaStream_t stream) {
    TO_SYMBOL(cudaMemcpyAsync(at, from, bytes, kind, stream));
}

cudaError_t cudaMemcpyToSymbolAsync_ptsz(const void *symbol, const void *from, size_t bytes,
                                         size_t offset, enum cudaMemcpyKind kind,
                                         cudaStream_t stream) {
    TO_SYMBOL(cudaMemcpyAsync_ptsz(at, from, bytes, kind, stream));
}

cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                 enum cudaMemcpyKind kind) {
    FROM_SYMBOL(cudaMemcpy(to, at, bytes, kind));
}

cudaError_t cudaMemcpyFromSymbol_ptds(void *to, const void *symbol, size_t bytes, size_t offset,
                                      enum cudaMemcpyKind kind) {
    FROM_SYMBOL(cudaMemcpy_ptds(to, at, bytes, kind));
}

cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream) {
    FROM_SYMBOL(cudaMemcpyAsync(to, at, bytes, kind, stream));
}

cudaError_t cudaMemcpyFromSymbolAsync_ptsz(void *to, const void *symbol, size_t bytes,
                                           size_t offset, enum cudaMemcpyKind kind,
                                           cudaStream_t stream) {
    FROM_SYMBOL(cudaMemcpyAsync_ptsz(to, at, bytes, kind, stream));
}

cudaError_t cudaGetSymbolAddress(void **out, const void *symbol) {
    char *at = NULL;
    if (out == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    cudaError_t error = locate(symbol, 0, 0, &at);
    if (error == cudaSuccess) {
        *out = at;
    }
    return error;
}

cudaError_t cudaGetSymbolSize(size_t *out, const void *symbol) {
    CUdeviceptr address = 0;
    size_t size = 0;
    cudaError_t error = simrt_enter();
    if (error == cudaSuccess && out == NULL) {
        error = simrt_fail(cudaErrorInvalidValue);
    }
    if (error == cudaSuccess) {
        error = simrt_return(simrt_symbol_find(symbol, &address, &size));
    }
    if (error == cudaSuccess) {
        *out = size;
    }
    return error;
}
