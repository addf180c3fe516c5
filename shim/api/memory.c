/* Memory by the C API (accelcache.h): the same hooks as a program's own calls, so that the rules
 * and the figures are theirs. */
#include "api/api_int.h"

#include "device/driver.h"
#include "intercept/modules.h"

accel_status_t ac_api_status(CUresult result) {
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

/* The result of a call that is made at once where a context is likely to be current. */
#define FIRST_TRY(call) (ac_is_active() ? (call) : CUDA_ERROR_NOT_INITIALIZED)

/* What most calls come to is looked at first. */
#define LIKELY_DONE(result) __builtin_expect((result) == CUDA_SUCCESS, 1)

/* Whether the call, whose first try had this result, is to be made again: it lacked a device, and
 * there is one now.  *status: what to answer if not. */
static bool again(CUresult result, accel_status_t *status) {
    *status = ac_api_status(result);
    if (result != CUDA_ERROR_NOT_INITIALIZED && result != CUDA_ERROR_INVALID_CONTEXT)
        return false;
    *status = have_device();
    return *status == ACCEL_OK;
}

accel_status_t accel_malloc(void **pointer, size_t bytes) {
    const void *caller = __builtin_return_address(0);
    CUdeviceptr address = 0;
    accel_status_t status = ACCEL_OK;
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    CUresult first = bytes ? FIRST_TRY(ac_mem_alloc(&address, bytes, caller)) : CUDA_SUCCESS;
    if (!LIKELY_DONE(first) && again(first, &status))
        status = ac_api_status(ac_mem_alloc(&address, bytes, caller));
    if (status == ACCEL_OK)
        *pointer = (void *)(uintptr_t)address;
    return status;
}

accel_status_t ac_api_refused(uint64_t address) {
    ac_block_info_t block;
    if (ac_block_find(address, &block) != AC_OK)
        return ACCEL_ERROR_NOT_OURS;
    bool inside = block.allocated && block.address != address;
    return inside ? ACCEL_ERROR_INTERIOR : ACCEL_ERROR_DOUBLE_FREE;
}

accel_status_t accel_free(void *pointer) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    accel_status_t status = ACCEL_OK;
    CUresult first = address ? FIRST_TRY(cuMemFree_v2(address)) : CUDA_SUCCESS;
    if (LIKELY_DONE(first))
        return ACCEL_OK;
    if (again(first, &status))
        status = ac_api_status(cuMemFree_v2(address));
    return status == ACCEL_ERROR_INVALID ? ac_api_refused(address) : status;
}

accel_status_t ac_api_malloc_async(void **pointer, size_t bytes, void *stream,
                                   const void *caller) {
    CUdeviceptr address = 0;
    accel_status_t status = ACCEL_OK;
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    ac_asking_t asking = ac_asking_begin(ac_thread_tls, caller);
    if (bytes && again(FIRST_TRY(cuMemAllocAsync(&address, bytes, stream)), &status))
        status = ac_api_status(cuMemAllocAsync(&address, bytes, stream));
    ac_asking_end(&asking, (void *)(uintptr_t)address);
    if (status == ACCEL_OK)
        *pointer = (void *)(uintptr_t)address;
    return status;
}

accel_status_t accel_malloc_async(void **pointer, size_t bytes, void *stream) {
    return ac_api_malloc_async(pointer, bytes, stream, __builtin_return_address(0));
}

accel_status_t accel_free_async(void *pointer, void *stream) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    accel_status_t status = ACCEL_OK;
    if (address && again(FIRST_TRY(cuMemFreeAsync(address, stream)), &status))
        status = ac_api_status(cuMemFreeAsync(address, stream));
    return status == ACCEL_ERROR_INVALID ? ac_api_refused(address) : status;
}
