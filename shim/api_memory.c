/* Memory by the C API (accelcache.h): the same hooks as a program's own calls, so that the rules
 * and the figures are theirs. */
#include "accelcache.h"

#include "device/driver.h"
#include "intercept/body.h"

#pragma GCC visibility push(default)

static accel_status_t status_of(CUresult result) {
    switch (result) {
    case CUDA_SUCCESS:
        return ACCEL_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return ACCEL_ERROR_DEVICE_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
        return ACCEL_ERROR_INVALID;
    default:
        return ACCEL_ERROR_CUDA;
    }
}

/* A thread that named no device yet uses the first one, as it would with the CUDA runtime. */
static accel_status_t have_device(void) {
    return accel_current_device() < 0 ? accel_set_device(0) : ACCEL_OK;
}

/* Nobody's business where there is a context: then the call just succeeds. */
#define WITH_DEVICE(result, call)                                                                \
    (result) = ac_is_active() ? (call) : CUDA_ERROR_NOT_INITIALIZED;                             \
    if ((result) == CUDA_ERROR_NOT_INITIALIZED || (result) == CUDA_ERROR_INVALID_CONTEXT) {      \
        accel_status_t missing = have_device();                                                  \
        if (missing != ACCEL_OK)                                                                 \
            return missing;                                                                      \
        (result) = (call);                                                                       \
    }

accel_status_t accel_malloc(void **pointer, size_t bytes) {
    CUdeviceptr address = 0;
    CUresult result;
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    if (bytes) {
        WITH_DEVICE(result, cuMemAlloc_v2(&address, bytes));
        if (result != CUDA_SUCCESS)
            return status_of(result);
    }
    *pointer = (void *)(uintptr_t)address;
    return ACCEL_OK;
}

accel_status_t accel_free(void *pointer) {
    CUresult result;
    if (!pointer)
        return ACCEL_OK;
    WITH_DEVICE(result, cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer));
    return status_of(result);
}

accel_status_t accel_malloc_async(void **pointer, size_t bytes, void *stream) {
    CUdeviceptr address = 0;
    CUresult result;
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    if (bytes) {
        WITH_DEVICE(result, cuMemAllocAsync(&address, bytes, stream));
        if (result != CUDA_SUCCESS)
            return status_of(result);
    }
    *pointer = (void *)(uintptr_t)address;
    return ACCEL_OK;
}

accel_status_t accel_free_async(void *pointer, void *stream) {
    CUresult result;
    if (!pointer)
        return ACCEL_OK;
    WITH_DEVICE(result, cuMemFreeAsync((CUdeviceptr)(uintptr_t)pointer, stream));
    return status_of(result);
}

#pragma GCC visibility pop
