/* The operations of device.h on pages, over virtual memory management (cuda_device.h).
 *
 * These calls use no context: pages belong to the device. A call that unmaps or releases is repeated
 * once if it fails: the caller has forgotten the pages, and they would be lost.
 * While a context is alive they count as calls inside it, so that none meets the end of the
 * process; a stream's capture is let pass by the thread's mode. */
#include <string.h>

#include "device/cuda_int.h"
#include "device/driver.h"
#include "observe/write.h"

/* Devices that may reach each other's memory: bit j of [i], device j that of device i. */
enum { PEERS = 64 };
static _Atomic uint64_t peers[PEERS];
/* `former`: devices that could, and may still have rights on pages. `taking`: former devices that are
 * losing these rights. */
static _Atomic uint64_t former[PEERS];
static _Atomic uint64_t taking[PEERS];

_Atomic bool ac_cuda_pages_stay;

/* Devices without pages for other processes, because the driver refuses them: bit i. */
_Atomic bool ac_cuda_pages_exported;
static _Atomic uint64_t unexportable;

static bool attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    return ac_driver.cuDeviceGetAttribute &&
           ac_driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS && value;
}

static bool is_bound(void) {
    return ac_driver.cuMemAddressReserve && ac_driver.cuMemAddressFree && ac_driver.cuMemCreate &&
           ac_driver.cuMemRelease && ac_driver.cuMemMap && ac_driver.cuMemUnmap &&
           ac_driver.cuMemSetAccess && ac_driver.cuMemGetAllocationGranularity;
}

bool ac_cuda_pages_exportable(CUdevice device) {
    return atomic_load(&ac_cuda_pages_exported) && device >= 0 && device < PEERS &&
           !(atomic_load(&unexportable) >> device & 1) &&
           ac_driver.cuMemExportToShareableHandle && ac_driver.cuMemImportFromShareableHandle &&
           attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

/* Describes a page that network cards may use if the device supports it, and that can be exported if
 * the driver allows it. Memory of cuMemAlloc has both by default. An unsupported flag or type must not
 * be set. */
static CUmemAllocationProp prop_of(CUdevice device) {
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    prop.allocFlags.gpuDirectRDMACapable =
        attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    if (ac_cuda_pages_exportable(device))
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

ac_status_t ac_cuda_range_support(void *arg, ac_range_support_t *support) {
    const ac_cuda_context_t *context = arg;
    CUmemAllocationProp prop = prop_of(context->device);
    size_t granularity = 0, memory = 0;
    if (!is_bound() || context->device >= PEERS ||
        !attribute(context->device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        ac_driver.cuMemGetAllocationGranularity(
            &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        ac_driver.cuDeviceTotalMem_v2(&memory, context->device) != CUDA_SUCCESS)
        return AC_UNSUPPORTED;
    *support = (ac_range_support_t){.granularity = granularity, .memory = memory};
    return AC_OK;
}

/* Around calls that create or map: a destroyed context gets nothing. */
typedef struct {
    ac_cuda_scope_t scope;
    bool entered;
} visit_t;

static bool enter(ac_cuda_context_t *context, visit_t *visit) {
    visit->entered = ac_cuda_enter(context, &visit->scope);
    return visit->entered;
}

/* Around calls that unmap or release: they always run, except at the end of the process, when the
 * driver does it. */
static bool enter_late(ac_cuda_context_t *context, visit_t *visit) {
    return enter(context, visit) || !atomic_load(&ac_cuda_quiet);
}

static void leave(visit_t *visit) {
    if (visit->entered)
        ac_cuda_leave(&visit->scope);
}

ac_status_t ac_cuda_range_reserve(void *arg, uint64_t bytes, uint64_t *address) {
    visit_t visit;
    CUdeviceptr base = 0;
    if (!enter(arg, &visit))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemAddressReserve(&base, bytes, AC_SEGMENT_ALIGN, 0, 0);
    if (result == CUDA_SUCCESS && base % AC_SEGMENT_ALIGN) {
        ac_driver.cuMemAddressFree(base, bytes);
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    leave(&visit);
    if (result == CUDA_SUCCESS)
        *address = base;
    return ac_cuda_status_of(result);
}

ac_status_t ac_cuda_range_release(void *arg, uint64_t address, uint64_t bytes) {
    visit_t visit;
    if (!enter_late(arg, &visit))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemAddressFree(address, bytes);
    if (result != CUDA_SUCCESS)
        result = ac_driver.cuMemAddressFree(address, bytes);
    leave(&visit);
    return ac_cuda_status_of(result);
}

ac_status_t ac_cuda_page_create(void *arg, uint64_t bytes, uint64_t *page) {
    ac_cuda_context_t *context = arg;
    visit_t visit;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = prop_of(context->device);
    if (!enter(context, &visit))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemCreate(&handle, bytes, &prop, 0);
    bool typed = prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    if (typed && result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
        !ac_driver_sticky(result)) {
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        result = ac_driver.cuMemCreate(&handle, bytes, &prop, 0);
        if (result == CUDA_SUCCESS)
            atomic_fetch_or(&unexportable, (uint64_t)1 << context->device);
    }
    leave(&visit);
    if (result == CUDA_SUCCESS)
        *page = handle;
    return ac_cuda_status_of(result);
}

ac_status_t ac_cuda_page_release(void *arg, uint64_t page) {
    visit_t visit;
    if (!enter_late(arg, &visit))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemRelease(page);
    if (result != CUDA_SUCCESS)
        result = ac_driver.cuMemRelease(page);
    leave(&visit);
    return ac_cuda_status_of(result);
}

ac_status_t ac_cuda_page_map(void *arg, uint64_t address, uint64_t bytes, uint64_t page) {
    visit_t visit;
    if (!enter(arg, &visit))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemMap(address, bytes, 0, page, 0);
    leave(&visit);
    if (result == CUDA_SUCCESS)
        ac_cuda_tell(arg, AC_EVENT_SEGMENT_MAP, address, bytes);
    return ac_cuda_status_of(result);
}

static size_t describe(CUmemAccessDesc *desc, uint64_t who, CUmemAccess_flags flags) {
    size_t count = 0;
    for (int device = 0; device < PEERS; device++)
        if (who >> device & 1)
            desc[count++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return count;
}

ac_status_t ac_cuda_pages_allow(void *arg, uint64_t address, uint64_t bytes) {
    ac_cuda_context_t *context = arg;
    CUmemAccessDesc desc[PEERS];
    visit_t visit;
    uint64_t allowed = atomic_load(&peers[context->device]) | (uint64_t)1 << context->device;
    uint64_t taken = atomic_load(&taking[context->device]) & ~allowed;
    size_t count = describe(desc, allowed, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (!enter(context, &visit))
        return AC_FAILED;
    CUresult result = ac_driver.cuMemSetAccess(address, bytes, desc, count);
    if (result == CUDA_SUCCESS && taken) /* a call of its own: without it the pages can be used */
        ac_driver.cuMemSetAccess(address, bytes, desc,
                                 describe(desc, taken, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    leave(&visit);
    return ac_cuda_status_of(result);
}

/* Taking pages away may wait for the device: a synchronisation of ours, which captures that begin
 * wait for, unless the thread's mode leaves them whole. */
ac_status_t ac_cuda_pages_unmap(void *arg, uint64_t address, uint64_t bytes) {
    ac_cuda_context_t *context = arg;
    visit_t visit;
    bool dead = atomic_load(&context->dead);
    if (!dead && atomic_load(&ac_cuda_pages_stay))
        return AC_BUSY;
    bool syncs = !dead && ac_cuda_sync_begin(context);
    CUresult result = CUDA_ERROR_DEINITIALIZED;
    if (enter_late(context, &visit)) {
        bool may = dead || syncs || (visit.entered && ac_cuda_is_relaxed(&visit.scope));
        result = may ? ac_driver.cuMemUnmap(address, bytes) : CUDA_ERROR_NOT_READY;
        if (may && result != CUDA_SUCCESS && (dead || !ac_driver_sticky(result)))
            result = ac_driver.cuMemUnmap(address, bytes);
        leave(&visit);
    }
    if (syncs)
        ac_cuda_sync_end();
    if (result == CUDA_SUCCESS)
        ac_cuda_tell(context, AC_EVENT_SEGMENT_UNMAP, address, bytes);
    return ac_cuda_status_of(result);
}

/* ---- pages between processes ---- */

ac_status_t ac_cuda_page_export(ac_cuda_context_t *context, uint64_t page, int *fd) {
    visit_t visit;
    int held[AC_LOW];
    if (!enter(context, &visit))
        return AC_FAILED;
    ac_low_hold(held);
    CUresult result = ac_driver.cuMemExportToShareableHandle(
        fd, page, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    ac_low_release(held);
    leave(&visit);
    return ac_cuda_status_of(result);
}

CUresult ac_cuda_page_import(ac_cuda_context_t *context, int fd, uint64_t address,
                             uint64_t bytes) {
    visit_t visit;
    CUmemGenericAllocationHandle page;
    if (!enter(context, &visit))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = ac_driver.cuMemImportFromShareableHandle(
        &page, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == CUDA_SUCCESS) {
        result = ac_driver.cuMemMap(address, bytes, 0, page, 0);
        ac_driver.cuMemRelease(page); /* the mapping keeps the memory */
    }
    leave(&visit);
    return result;
}

/* A synchronisation of the caller's came before, or nothing ever used them. */
ac_status_t ac_cuda_import_end(ac_cuda_context_t *context, uint64_t address, uint64_t bytes) {
    visit_t visit;
    CUresult result = CUDA_ERROR_DEINITIALIZED;
    if (enter_late(context, &visit)) {
        result = ac_driver.cuMemUnmap(address, bytes);
        if (result != CUDA_SUCCESS)
            result = ac_driver.cuMemUnmap(address, bytes);
        leave(&visit);
    }
    return ac_cuda_status_of(result);
}

uint64_t ac_cuda_peers_of(CUdevice device) {
    return device >= 0 && device < PEERS ? atomic_load(&peers[device]) : 0;
}

/* One device after the other: an unreachable device must not stop the others. */
CUresult ac_cuda_import_allow(ac_cuda_context_t *context, CUdevice owner, uint64_t address,
                              uint64_t bytes) {
    visit_t visit;
    if (!enter(context, &visit))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, context->device},
                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = ac_driver.cuMemSetAccess(address, bytes, &desc, 1);
    uint64_t others = ac_cuda_peers_of(owner);
    if (owner >= 0 && owner < PEERS)
        others |= (uint64_t)1 << owner;
    for (int device = 0; result == CUDA_SUCCESS && device < PEERS; device++) {
        desc.location.id = device;
        if (device != context->device && others >> device & 1)
            ac_driver.cuMemSetAccess(address, bytes, &desc, 1);
    }
    leave(&visit);
    return result;
}

bool ac_cuda_peer_add(CUdevice device, CUdevice peer) {
    if (device < 0 || device >= PEERS || peer < 0 || peer >= PEERS || device == peer)
        return false;
    uint64_t bit = (uint64_t)1 << peer;
    return !(atomic_fetch_or(&peers[device], bit) & bit);
}

bool ac_cuda_peer_remove(CUdevice device, CUdevice peer) {
    if (device < 0 || device >= PEERS || peer < 0 || peer >= PEERS)
        return false;
    uint64_t bit = (uint64_t)1 << peer;
    bool was = atomic_fetch_and(&peers[device], ~bit) & bit;
    if (was) {
        atomic_fetch_and(&taking[device], ~bit); /* some pages had their call before */
        atomic_fetch_or(&former[device], bit);
    }
    return was;
}

bool ac_cuda_peers_former(CUdevice device) {
    return atomic_load(&former[device]);
}

void ac_cuda_peers_take_back(CUdevice device) {
    atomic_store(&taking[device], atomic_load(&former[device]));
}

void ac_cuda_peers_taken(CUdevice device) {
    atomic_fetch_and(&former[device], ~atomic_exchange(&taking[device], 0));
}
