/* Allocation: device, pinned, pitched and stream-ordered memory, and attributes of pointers. */
#include <string.h>

#include "internal.h"

/* Answers a request for zero bytes itself, as the real runtime does: neither the driver nor a
 * library in front of it sees the request. */
cudaError_t cudaMalloc(void **out, size_t bytes) {
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess) {
        return error;
    }
    if (out == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    if (bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    return simrt_return(RT_DRIVER(cuMemAlloc_v2)(RT_OUT(out), bytes));
}

/* Programs also use this call to initialise a device, so the context is made first, even for
 * NULL. */
cudaError_t cudaFree(void *pointer) {
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess || pointer == NULL) {
        return error;
    }
    return simrt_return(RT_DRIVER(cuMemFree_v2)(RT_PTR(pointer)));
}

/* Rows suit elements of 4 bytes; the driver's pitch is the same for 8 and 16.  Two things are
 * guesses: the element size that the real runtime uses, and its answer to an empty rectangle. */
enum { PITCH_ELEMENT = 4 };

static CUresult allocate_pitched(void **out, size_t *pitch, size_t width, size_t height) {
    if (out == NULL || pitch == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (width == 0 || height == 0) {
        *out = NULL;
        *pitch = 0;
        return CUDA_SUCCESS;
    }
    return RT_DRIVER(cuMemAllocPitch_v2)(RT_OUT(out), pitch, width, height, PITCH_ELEMENT);
}

cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    RT_CALL(simrt_enter, allocate_pitched(out, pitch, width, height));
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent extent) {
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess) {
        return error;
    }
    size_t rows = 0;
    if (out == NULL || __builtin_mul_overflow(extent.height, extent.depth, &rows)) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    void *pointer = NULL;
    size_t pitch = 0;
    CUresult result = allocate_pitched(&pointer, &pitch, extent.width, rows);
    if (result == CUDA_SUCCESS) {
        *out = (struct cudaPitchedPtr){pointer, pitch, extent.width, extent.height};
    }
    return simrt_return(result);
}

/* ---------------------------------------------------------------- host memory */
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess) {
        return error;
    }
    if (out == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    if (bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    return simrt_return(RT_DRIVER(cuMemHostAlloc)(out, bytes, flags));
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer) {
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess || pointer == NULL) {
        return error;
    }
    return simrt_return(RT_DRIVER(cuMemFreeHost)(pointer));
}

/* ---------------------------------------------------------------- stream-ordered */
static CUresult malloc_async(void **out, size_t bytes, cudaStream_t stream,
                             enum simrt_mode mode) {
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes == 0) {
        *out = NULL;
        return CUDA_SUCCESS;
    }
    return RT_BY_MODE(mode, cuMemAllocAsync, ptsz)(RT_OUT(out), bytes, stream);
}

static CUresult malloc_from_pool(void **out, size_t bytes, cudaMemPool_t pool,
                                 cudaStream_t stream, enum simrt_mode mode) {
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes == 0) {
        *out = NULL;
        return CUDA_SUCCESS;
    }
    return RT_BY_MODE(mode, cuMemAllocFromPoolAsync, ptsz)(RT_OUT(out), bytes, pool, stream);
}

static CUresult free_async(void *pointer, cudaStream_t stream, enum simrt_mode mode) {
    return pointer == NULL ? (CUresult)CUDA_SUCCESS
                           : RT_BY_MODE(mode, cuMemFreeAsync, ptsz)(RT_PTR(pointer), stream);
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) {
    RT_CALL(simrt_enter, malloc_async(out, bytes, stream, RT_LEGACY));
}

cudaError_t cudaMallocAsync_ptsz(void **out, size_t bytes, cudaStream_t stream) {
    RT_CALL(simrt_enter, malloc_async(out, bytes, stream, RT_PER_THREAD));
}

cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
    RT_CALL(simrt_enter, malloc_from_pool(out, bytes, pool, stream, RT_LEGACY));
}

cudaError_t cudaMallocFromPoolAsync_ptsz(void **out, size_t bytes, cudaMemPool_t pool,
                                         cudaStream_t stream) {
    RT_CALL(simrt_enter, malloc_from_pool(out, bytes, pool, stream, RT_PER_THREAD));
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    RT_CALL(simrt_enter, free_async(pointer, stream, RT_LEGACY));
}

cudaError_t cudaFreeAsync_ptsz(void *pointer, cudaStream_t stream) {
    RT_CALL(simrt_enter, free_async(pointer, stream, RT_PER_THREAD));
}

/* ---------------------------------------------------------------- attributes of pointers */
/* Returns the attributes.  For an unknown pointer the driver answers zeros, not an error. */
static CUresult pointer_attributes(struct cudaPointerAttributes *out, const void *pointer) {
    CUmemorytype type = 0;
    CUdeviceptr device_pointer = 0;
    void *host_pointer = NULL;
    unsigned managed = 0;
    int ordinal = -2;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    };
    void *places[] = {&type, &device_pointer, &host_pointer, &managed, &ordinal};
    CUresult result = RT_DRIVER(cuPointerGetAttributes)(sizeof which / sizeof which[0], which,
                                                        places, RT_PTR(pointer));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memset(out, 0, sizeof *out);
    if (type == 0) { /* plain host memory; that hostPointer echoes it is a guess */
        out->type = cudaMemoryTypeUnregistered;
        out->device = cudaInvalidDeviceId;
        out->hostPointer = (void *)(uintptr_t)pointer;
        return CUDA_SUCCESS;
    }
    out->type = managed != 0                 ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                             : cudaMemoryTypeDevice;
    out->device = ordinal;
    out->devicePointer = (void *)(uintptr_t)device_pointer;
    out->hostPointer = host_pointer;
    return CUDA_SUCCESS;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer) {
    RT_CALL(simrt_enter,
            out == NULL ? (CUresult)CUDA_ERROR_INVALID_VALUE : pointer_attributes(out, pointer));
}

/* ---------------------------------------------------------------- between processes */
/* Passes the handle by value, so the runtime's structure is converted to the driver's. */
cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags) {
    CUipcMemHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof driver_handle);
    RT_CALL(simrt_enter, RT_DRIVER(cuIpcOpenMemHandle_v2)(RT_OUT(out), driver_handle, flags));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
    CUipcEventHandle driver_handle;
    memcpy(&driver_handle, &handle, sizeof driver_handle);
    RT_CALL(simrt_enter, RT_DRIVER(cuIpcOpenEventHandle)(event, driver_handle));
}
