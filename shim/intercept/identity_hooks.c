/* What a block looks like from outside: address ranges, pointer attributes, sharing.  A block
 * inside a segment answers as an allocation of its own; what cannot be answered so is refused. */
#include "intercept/body.h"
#include "intercept/ipc.h"

#include "device/driver.h"
#include "intercept/mempools.h"
#include "observe/log.h"

/* Whether `address` lies in the block as the program asked for it, not in what rounding added. */
static bool inside(const ac_block_info_t *info, CUdeviceptr address) {
    return info->allocated && address - info->address < info->requested;
}

static void refuse(ac_thread_t *thread, const char *what) {
    ac_count(thread, AC_COUNT_refused_shares);
    ac_log_once(AC_LOG_WARNING,
                "%s of memory inside a segment was refused: only a block at its start can be "
                "shared; run with ACCEL_ALLOC_CONF=enabled:false if the program depends on it",
                what);
}

/* Others than streams of this context may use the block from now on: no stream's order holds them
 * back from memory that earlier work is still busy with. */
static void expose(const ac_block_info_t *info) {
    ac_sole_settle(ac_arena_timeline(info->arena), true);
    if (info->paged)
        ac_block_pin(info->address);
}

/* What the driver now knows about the segment stays true for as long as it lives: take it out of
 * reuse. */
static void taint(ac_thread_t *thread, const ac_block_info_t *info) {
    bool fresh = false;
    expose(info);
    if (ac_block_taint(info->address, &fresh) == AC_OK && fresh)
        ac_count(thread, AC_COUNT_exported_segments);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuMemGetAddressRange_v2);
    (void)thread;
    ac_block_info_t info;
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return ac_ipc_address_range(real, base, size, address);
    CUdeviceptr segment;
    size_t segment_bytes;
    CUresult result = real(&segment, &segment_bytes,
                           address); /* errors of the context are the driver's to tell */
    if (result != CUDA_SUCCESS)
        return result;
    if (!inside(&info, address))
        return CUDA_ERROR_NOT_FOUND;
    expose(&info); /* the way in of libraries that register memory with a network card */
    if (base)
        *base = info.address;
    if (size)
        *size = info.requested;
    return CUDA_SUCCESS;
}

/* A block that stands for memory of its device's pool answers as such: it has no context, and is
 * neither for IPC nor for other devices on the bus. */
static void patch_pooled(CUpointer_attribute attribute, const ac_block_info_t *info, void *data) {
    if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
        *(CUmemoryPool *)data = ac_mempool_handle(info->mempool);
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
        *(CUcontext *)data = NULL;
    else if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
             attribute == CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)
        *(unsigned *)data = 0;
}

/* Pages have no context, and are what is mapped: neither is so with memory of cuMemAlloc. */
static void patch_paged(CUpointer_attribute attribute, const ac_block_info_t *info, void *data) {
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR)
        *(CUdeviceptr *)data = info->address;
    else if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE)
        *(size_t *)data = info->requested;
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT && !info->async)
        *(CUcontext *)data = ((ac_cuda_context_t *)ac_arena_context(info->arena))->handle;
}

/* Put the block's own figures in place of the segment's. */
static void patch(CUpointer_attribute attribute, const ac_block_info_t *info, void *data) {
    if (info->async)
        patch_pooled(attribute, info, data);
    if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
        attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
        expose(info);
    if (info->paged)
        patch_paged(attribute, info, data);
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        *(CUdeviceptr *)data = info->address;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)data = info->requested;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuPointerGetAttribute);
    (void)thread;
    ac_block_info_t info;
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return ac_ipc_attribute(real, data, attribute, address);
    if (!inside(&info, address))
        return real(data, attribute, AC_UNOWNED);
    CUresult result = real(data, attribute, address);
    if (result == CUDA_SUCCESS)
        patch(attribute, &info, data);
    return result;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuPointerGetAttributes);
    (void)thread;
    ac_block_info_t info;
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return ac_ipc_attributes(real, count, attributes, data, address);
    if (!inside(&info, address))
        return real(count, attributes, data, AC_UNOWNED);
    CUresult result = real(count, attributes, data, address);
    if (result == CUDA_SUCCESS)
        for (unsigned i = 0; i < count; i++)
            patch(attributes[i], &info, data[i]);
    return result;
}

/* SYNC_MEMOPS holds for the whole segment, which makes more calls synchronous than asked for,
 * never fewer. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuPointerSetAttribute);
    ac_block_info_t info;
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return real(value, attribute, address);
    if (!inside(&info, address))
        return real(value, attribute, AC_UNOWNED);
    CUresult result = real(value, attribute, address);
    if (result == CUDA_SUCCESS)
        taint(thread, &info);
    return result;
}

/* The handle names the very range that was asked for: right for any range inside one block. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags) {
    AC_ENTER_OR_RETURN(cuMemGetHandleForAddressRange);
    ac_block_info_t info;
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return real(handle, address, size, type, flags);
    if (!inside(&info, address))
        return real(handle, AC_UNOWNED, size, type, flags);
    if (size > info.size || address - info.address > info.size - size) {
        refuse(thread, "a handle for a range");
        return real(handle, AC_UNOWNED, size, type, flags);
    }
    CUresult result = real(handle, address, size, type, flags);
    if (result == CUDA_SUCCESS)
        taint(thread, &info);
    return result;
}

/* The program did not map this memory: it has no handle of its own, whatever lies below. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    AC_ENTER_OR_RETURN(cuMemRetainAllocationHandle);
    (void)thread;
    return real(handle, ac_owned((CUdeviceptr)(uintptr_t)address) ? (void *)(uintptr_t)AC_UNOWNED
                                                                  : address);
}
