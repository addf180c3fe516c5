/* Queries about a block: address ranges, pointer attributes, sharing.  The answers describe a
 * block inside a segment as an allocation of its own.  A query that has no answer of this kind is
 * refused. */
#include "hooks/body.h"
#include "hooks/ipc.h"

#include <unistd.h>

#include "device/driver.h"
#include "failpoint.h"
#include "hooks/direct_hooks.h"
#include "track/mempools.h"
#include "track/pinned.h"
#include "observe/log.h"

/* Returns true if `address` lies in the bytes that the program asked for, without the rounding. */
static bool inside(const ac_block_info_t *info, CUdeviceptr address) {
    return info->allocated && address - info->address < info->requested;
}

/* Called before others than streams of this context may use the block.  The order of a stream does
 * not keep them from memory that earlier work still uses.  The single-stream rule (order/sole.h)
 * therefore ends for the context. */
static void expose(const ac_block_info_t *info) {
    ac_sole_settle(ac_arena_timeline(info->arena), true);
    if (info->paged)
        ac_block_pin(info->address);
}

/* Takes the segment out of reuse: the driver now has a setting for it that lasts as long as the
 * segment.  It does so even if another thread freed the block during the driver's call. */
static void taint(ac_thread_t *thread, const ac_block_info_t *info) {
    bool fresh;
    AC_WINDOW(attribute_set);
    expose(info);
    if (ac_address_taint(info->address, &fresh) == AC_OK && fresh)
        ac_count(thread, AC_COUNT_exported_segments);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuMemGetAddressRange_v2);
    (void)thread;
    ac_block_info_t info;
    ac_host_info_t pinned;
    if (ac_pinned_find(address, &pinned))
        return ac_pinned_range(real, base, size, address, &pinned);
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return ac_ipc_address_range(real, base, size, address);
    CUdeviceptr segment;
    size_t segment_bytes;
    CUresult result = real(&segment, &segment_bytes,
                           address); /* the driver reports errors of the context */
    if (result != CUDA_SUCCESS)
        return result;
    if (!inside(&info, address))
        return CUDA_ERROR_NOT_FOUND;
    expose(&info); /* libraries that register memory with a network card call this function */
    if (base)
        *base = info.address;
    if (size)
        *size = info.requested;
    return CUDA_SUCCESS;
}

/* --- attributes --- */

bool ac_block_is_pooled(const ac_block_info_t *info) {
    return info->async &&
           !(ac_process_config()->async_ipc && ac_mempool_is_default(info->mempool));
}

static bool names_lifetime(CUpointer_attribute attribute) {
    return attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
           attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
}

static uint64_t id_of(const ac_block_info_t *info) {
    return (uint64_t)1 << 63 | info->serial;
}

/* Replaces the driver's answer about the segment or the pages by the answer about the block.  A
 * block that stands for memory of its device's pool has no context, and is usable neither for IPC
 * nor by other devices on the bus.  Pages have no context and may have types of handles; memory of
 * cuMemAlloc has a context and no types of handles. */
static void patch(CUpointer_attribute attribute, const ac_block_info_t *info, void *data) {
    const ac_cuda_context_t *context = ac_arena_context(info->arena);
    bool pooled = ac_block_is_pooled(info);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = info->address;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = info->requested;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        expose(info);
        *(uint64_t *)data = id_of(info);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(uint64_t *)data = id_of(info);
        break;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        expose(info);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: /* the lowest byte, whatever size the driver wrote */
        *(uint8_t *)data = info->sync;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        if (pooled)
            *(CUmemoryPool *)data = ac_mempool_handle(info->mempool);
        break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (pooled || info->paged)
            *(CUcontext *)data = pooled ? NULL : context->handle;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        if (pooled || info->paged)
            *(unsigned *)data = !pooled && ac_cuda_pages_exportable(context->device);
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        if (info->paged)
            *(uint64_t *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        if (pooled)
            *(unsigned *)data = 0;
        break;
    default:
        break;
    }
}

/* Replaces the driver's answers by the block's own.  Gives the block an id if an attribute asks
 * for one.  AC_BAD_ADDRESS: the block was freed meanwhile.  AC_OOM: host memory is short. */
static ac_status_t patch_all(unsigned count, const CUpointer_attribute *attributes, void **data,
                             ac_block_info_t *info) {
    ac_status_t status = AC_OK;
    for (unsigned i = 0; i < count && status == AC_OK; i++)
        if (names_lifetime(attributes[i]) && !info->serial)
            status = ac_block_identify(info->address, &info->serial);
    for (unsigned i = 0; i < count && status == AC_OK; i++)
        patch(attributes[i], info, data[i]);
    return status;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuPointerGetAttribute);
    (void)thread;
    ac_block_info_t info;
    ac_host_info_t pinned;
    if (ac_pinned_find(address, &pinned))
        return ac_pinned_attribute(real, data, attribute, address, &pinned);
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return ac_ipc_attribute(real, data, attribute, address);
    if (!inside(&info, address))
        return real(data, attribute, AC_UNOWNED);
    CUresult result = real(data, attribute, address);
    if (result != CUDA_SUCCESS)
        return result;
    ac_status_t status = patch_all(1, &attribute, &data, &info);
    if (status == AC_OOM)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return status == AC_OK ? result : real(data, attribute, AC_UNOWNED);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuPointerGetAttributes);
    (void)thread;
    ac_block_info_t info;
    ac_host_info_t pinned;
    if (ac_pinned_find(address, &pinned))
        return ac_pinned_attributes(real, count, attributes, data, address, &pinned);
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return ac_ipc_attributes(real, count, attributes, data, address);
    if (!inside(&info, address))
        return real(count, attributes, data, AC_UNOWNED);
    CUresult result = real(count, attributes, data, address);
    if (result != CUDA_SUCCESS)
        return result;
    ac_status_t status = patch_all(count, attributes, data, &info);
    if (status == AC_OOM)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return status == AC_OK ? result : real(count, attributes, data, AC_UNOWNED);
}

/* --- SYNC_MEMOPS --- */

typedef struct {
    cuPointerSetAttribute_fn *real;
    CUresult result; /* of the first call that failed */
} sync_ask_t;

/* Sets SYNC_MEMOPS by the driver.  It applies to the driver's whole allocation, so more calls
 * become synchronous than the program asked for, never fewer. */
static bool set_sync(void *arg, uint64_t address, bool on) {
    sync_ask_t *ask = arg;
    unsigned value = on;
    CUresult result = ask->real(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
    if (ask->result == CUDA_SUCCESS)
        ask->result = result;
    return result == CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuPointerSetAttribute);
    ac_block_info_t info;
    sync_ask_t ask = {real, CUDA_SUCCESS};
    ac_host_info_t pinned;
    if (ac_pinned_find(address, &pinned))
        return ac_pinned_set_attribute(real, value, attribute, address, &pinned);
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return real(value, attribute, address);
    if (!inside(&info, address))
        return real(value, attribute, AC_UNOWNED);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        CUresult result = real(value, attribute, address);
        if (result == CUDA_SUCCESS)
            taint(thread, &info); /* the new state of the memory is not known */
        return result;
    }
    ac_status_t status = ac_block_sync(info.address, *(const unsigned *)value, set_sync, &ask);
    if (status == AC_OOM)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (status == AC_NOT_OURS || status == AC_BAD_ADDRESS) /* freed meanwhile */
        return real(value, attribute, AC_UNOWNED);
    if (status == AC_OK)
        expose(&info);
    return ask.result;
}

/* --- handles of ranges --- */

/* Returns true if a byte that the program asked for lies in [from, to). */
static bool touches(const ac_block_info_t *info, uint64_t from, uint64_t to) {
    return info->allocated && info->address < to && from < info->address + info->requested;
}

/* Finds the block of a range of host pages: it touches the first page and the last one.  Libraries
 * round the range of a block to whole host pages.  False: there is no block, or the range leaves
 * the segment. */
static bool block_of_range(uint64_t address, uint64_t size, ac_block_info_t *info) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = address + size;
    uint64_t first = address & -page, last = (end - 1) & -page;
    if (!size || end < address)
        return false;
    /* A block that touches two pages covers the end of the first.  In one page, any block there is
     * tried. */
    for (uint64_t at = first == last ? first : first + page - AC_GRANULE; at < first + page;
         at += AC_GRANULE)
        if (ac_block_find(at, info) == AC_OK && touches(info, first, first + page) &&
            touches(info, last, last + page))
            return address >= info->segment_address &&
                   end <= info->segment_address + info->segment_size;
    return false;
}

/* The handle covers exactly the range of the call, so the driver makes it without changes. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size,
                                       CUmemRangeHandleType type, unsigned long long flags) {
    AC_ENTER_OR_RETURN(cuMemGetHandleForAddressRange);
    ac_block_info_t info;
    if (!ac_owned(address)) {
        ac_pinned_shared(address);
        return real(handle, address, size, type, flags);
    }
    if (!block_of_range(address, size, &info)) {
        if (ac_block_find(address, &info) == AC_OK && inside(&info, address)) {
            ac_count(thread, AC_COUNT_refused_shares);
            ac_log_once(AC_LOG_WARNING, "a handle was refused for a range of memory that is not "
                                        "of one allocation");
        }
        return real(handle, AC_UNOWNED, size, type, flags);
    }
    if (ac_block_is_pooled(&info))
        return real(handle, AC_UNOWNED, size, type, flags);
    CUresult result = real(handle, address, size, type, flags);
    if (result == CUDA_SUCCESS)
        expose(&info);
    return result;
}

/* Memory of ours has no handle for the program, since the program did not map it. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    AC_ENTER_OR_RETURN(cuMemRetainAllocationHandle);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
    CUresult result = real(
        handle, ac_owned(at) || ac_ipc_covers(at) ? (void *)(uintptr_t)AC_UNOWNED : address);
    if (result == CUDA_SUCCESS)
        ac_direct_retained(thread, *handle);
    return result;
}
