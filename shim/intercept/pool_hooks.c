/* Memory pools.  Stream-ordered requests are served here as long as the program leaves the pool
 * of the device alone: what it asks of a pool, sets or shares, only the driver can answer for.
 * The first such call hands the pool to the driver for good; what was served before stays ours.
 * Explicit pools are always the driver's. */
#include "intercept/body.h"

#include "device/driver.h"

enum { UNKNOWN, SERVED, DRIVERS };
static _Atomic int states[AC_LIVE_DEVICES];

/* The pool that the driver made for the device; NULL: none. */
static CUmemoryPool default_pool(CUdevice device) {
    static _Atomic(CUmemoryPool) known[AC_LIVE_DEVICES];
    CUmemoryPool pool = atomic_load(&known[device]);
    if (!pool && ac_driver.cuDeviceGetDefaultMemPool &&
        ac_driver.cuDeviceGetDefaultMemPool(&pool, device) == CUDA_SUCCESS)
        atomic_store(&known[device], pool);
    return pool;
}

static bool has_pools(CUdevice device) {
    int supported = 0;
    return ac_driver.cuDeviceGetAttribute &&
           ac_driver.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
                                          device) == CUDA_SUCCESS &&
           supported;
}

/* Whether the device's own pool is still the one it uses. */
static bool unchanged(CUdevice device) {
    CUmemoryPool own = default_pool(device), current = NULL;
    return own && ac_driver.cuDeviceGetMemPool &&
           ac_driver.cuDeviceGetMemPool(&current, device) == CUDA_SUCCESS && current == own;
}

bool ac_pool_serves(CUdevice device) {
    if (device < 0 || device >= AC_LIVE_DEVICES)
        return false;
    int state = atomic_load_explicit(&states[device], memory_order_acquire);
    if (state == UNKNOWN) {
        int found = has_pools(device) && unchanged(device) ? SERVED : DRIVERS;
        if (atomic_compare_exchange_strong(&states[device], &state, found))
            state = found;
    }
    return state == SERVED;
}

CUmemoryPool ac_pool_of(CUdevice device) {
    return device >= 0 && device < AC_LIVE_DEVICES ? default_pool(device) : NULL;
}

static void touch_device(CUdevice device) {
    if (device >= 0 && device < AC_LIVE_DEVICES)
        atomic_store(&states[device], DRIVERS);
}

static CUdevice device_of(CUmemoryPool pool) {
    int count = 0;
    if (pool && ac_driver.cuDeviceGetCount(&count) == CUDA_SUCCESS)
        for (CUdevice device = 0; device < count && device < AC_LIVE_DEVICES; device++)
            if (default_pool(device) == pool)
                return device;
    return -1;
}

void ac_pool_touch(CUmemoryPool pool) {
    touch_device(device_of(pool));
}

/* A call that names `pool`. */
#define TOUCH(symbol, params, args)                                                              \
    CUresult symbol params {                                                                     \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        if (thread)                                                                              \
            ac_pool_touch(pool);                                                                 \
        return real args;                                                                        \
    }
TOUCH(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *access, size_t count),
      (pool, access, count))
TOUCH(cuMemPoolGetAccess,
      (CUmemAccess_flags * access, CUmemoryPool pool, CUmemLocation *location),
      (access, pool, location))
TOUCH(cuMemPoolExportToShareableHandle,
      (void *handle, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags),
      (handle, pool, type, flags))
TOUCH(cuMemPoolImportPointer,
      (CUdeviceptr * pointer, CUmemoryPool pool, CUmemPoolPtrExportData *exported),
      (pointer, pool, exported))

/* What the program means is memory of its pool: ours is part of it. */
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t least) {
    AC_ENTER_OR_RETURN(cuMemPoolTrimTo);
    CUdevice device = thread ? device_of(pool) : -1;
    CUresult result = real(pool, least);
    if (device >= 0) {
        touch_device(device);
        ac_allocator_t *allocator = ac_device_allocator(device);
        if (result == CUDA_SUCCESS && allocator)
            ac_allocator_trim(allocator, false);
    }
    return result;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *exported, CUdeviceptr pointer) {
    AC_ENTER_OR_RETURN(cuMemPoolExportPointer);
    ac_block_info_t info;
    if (thread && ac_owned(pointer) && ac_block_find(pointer, &info) == AC_OK && info.async)
        touch_device(ac_block_device(&info));
    return real(exported, pointer);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    AC_ENTER_OR_RETURN(cuDeviceSetMemPool);
    if (thread)
        touch_device(device);
    return real(device, pool);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    AC_ENTER_OR_RETURN(cuMemSetMemPool);
    if (thread && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        touch_device(location->id);
    return real(location, type, pool);
}

/* --- attributes: what is in use counts what was served here --- */

static ac_mark_t mark_of(CUmemPool_attribute attribute) {
    bool used = attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ||
                attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    return used ? AC_MARK_USED : AC_MARK_RESERVED;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    AC_ENTER_OR_RETURN(cuMemPoolGetAttribute);
    CUdevice device = thread ? device_of(pool) : -1;
    touch_device(device);
    CUresult result = real(pool, attribute, value);
    ac_allocator_t *allocator =
        device >= 0 && result == CUDA_SUCCESS ? ac_device_allocator(device) : NULL;
    if (!allocator || attribute < CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
        attribute > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        return result;
    uint64_t now, most;
    ac_streams_used(allocator, mark_of(attribute), &now, &most);
    bool high = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ||
                attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    *(cuuint64_t *)value += high ? most : now;
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    AC_ENTER_OR_RETURN(cuMemPoolSetAttribute);
    CUdevice device = thread ? device_of(pool) : -1;
    touch_device(device);
    CUresult result = real(pool, attribute, value);
    ac_allocator_t *allocator =
        device >= 0 && result == CUDA_SUCCESS ? ac_device_allocator(device) : NULL;
    if (allocator && (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
                      attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH))
        ac_streams_used_reset(allocator, mark_of(attribute));
    return result;
}
