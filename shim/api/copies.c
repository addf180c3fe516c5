/* Copies, peer access, and memory that other processes share: the program's own calls of the driver,
 * made by the hooks, so that their work is counted. */
#include "api/api_int.h"

#include <string.h>

#include "device/driver.h"
#include "hooks/ipc.h"

static CUdeviceptr address_of(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

accel_status_t accel_memcpy_async(void *to, int to_device, const void *from, int from_device,
                                  size_t bytes, void *stream, int peer_enabled) {
    bool across = to_device >= 0 && from_device >= 0 && to_device != from_device;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    if ((bytes && (!to || !from)) || to_device >= accel_device_count() ||
        from_device >= accel_device_count())
        return ACCEL_ERROR_INVALID;
    if (!bytes)
        return ACCEL_OK;
    if (ac_api_have_context() != ACCEL_OK)
        return ACCEL_ERROR_CUDA;
    if (!across || peer_enabled)
        return ac_api_status(cuMemcpyAsync(address_of(to), address_of(from), bytes, stream));
    CUcontext there = ac_api_primary(to_device), here = ac_api_primary(from_device);
    if (!there || !here)
        return ACCEL_ERROR_CUDA;
    return ac_api_status(
        cuMemcpyPeerAsync(address_of(to), there, address_of(from), here, bytes, stream));
}

accel_status_t accel_copy_data(void *to, const void *from, size_t bytes) {
    if (bytes && (!to || !from))
        return ACCEL_ERROR_INVALID;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    if (!bytes)
        return ACCEL_OK;
    if (ac_api_have_context() != ACCEL_OK)
        return ACCEL_ERROR_CUDA;
    return ac_api_status(cuMemcpy(address_of(to), address_of(from), bytes));
}

accel_status_t accel_enable_peer_access(int device, int peer) {
    accel_status_t status = ac_api_need(device);
    if (status == ACCEL_OK)
        status = ac_api_need(peer);
    if (status != ACCEL_OK || device == peer)
        return status;
    CUcontext ours = ac_api_primary(device), theirs = ac_api_primary(peer);
    ac_api_scope_t scope;
    if (!ours || !theirs || !ac_api_push(&scope, device))
        return ACCEL_ERROR_CUDA;
    CUresult result = cuCtxEnablePeerAccess(theirs, 0);
    ac_api_leave(&scope);
    switch (result) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
        return ACCEL_OK;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
        return ACCEL_ERROR_UNSUPPORTED;
    default:
        return ac_api_status(result);
    }
}

/* --- sharing --- */

_Static_assert(sizeof(CUipcMemHandle) == sizeof(((accel_ipc_handle_t *)0)->bytes),
               "the driver's handle fits");

accel_status_t accel_share_ipc_handle(void *pointer, accel_ipc_handle_t *handle) {
    CUipcMemHandle driver;
    accel_pointer_info_t info = {.size = sizeof info};
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    void *stream;
    if (!handle)
        return ACCEL_ERROR_INVALID;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    accel_status_t status = accel_pointer_info(pointer, &info);
    if (status != ACCEL_OK)
        return status;
    uint64_t base = (uint64_t)(uintptr_t)info.base;
    ac_pool_segment_of(address, &base, &stream); /* stays `base` where no pool has it */
    CUresult result = ac_ipc_share(&driver, base);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE
                   ? ACCEL_ERROR_UNSUPPORTED
                   : ac_api_status(result);
    *handle = (accel_ipc_handle_t){.offset = address - base};
    memcpy(handle->bytes, &driver, sizeof handle->bytes);
    return ACCEL_OK;
}

accel_status_t accel_get_ipc_ptr(const accel_ipc_handle_t *handle, void **pointer) {
    CUipcMemHandle driver;
    CUdeviceptr base;
    if (!handle || !pointer)
        return ACCEL_ERROR_INVALID;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    if (ac_api_have_context() != ACCEL_OK)
        return ACCEL_ERROR_CUDA;
    memcpy(&driver, handle->bytes, sizeof driver);
    CUresult result = cuIpcOpenMemHandle_v2(&base, driver, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result == CUDA_SUCCESS)
        *pointer = (void *)(uintptr_t)(base + handle->offset);
    return ac_api_status(result);
}

accel_status_t accel_close_ipc_ptr(void *pointer) {
    CUdeviceptr base;
    size_t size;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    if (!pointer)
        return ACCEL_ERROR_INVALID;
    CUresult result = cuMemGetAddressRange_v2(&base, &size, address_of(pointer));
    return ac_api_status(result == CUDA_SUCCESS ? cuIpcCloseMemHandle(base) : result);
}
