/* Memory pools as objects: creation, destruction, attributes, access, the pools of a device.
 * Global lock.  What is in them: mempool.c.
 *
 * Guesses (public documentation is silent):
 *   destroying a default pool              INVALID_VALUE
 *   pools of host or managed memory        NOT_SUPPORTED, logged
 *   taking access from the own device      INVALID_VALUE
 *   access for a device without peers      INVALID_DEVICE
 *   maxSize                                counts in 2 MiB, rounded up
 */
#include "pool.h"

static CUresult pool_new(const CUmemPoolProps *props, bool is_default, sim_pool_t **out) {
    sim_pool_t *pool = sim_slab_take(&sim_pools);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->props = *props;
    pool->props.maxSize = (props->maxSize + SIM_LARGE_ALIGN - 1) & ~(SIM_LARGE_ALIGN - 1);
    pool->device = props->location.id;
    pool->is_default = is_default;
    pool->follow_events = pool->opportunistic = pool->internal_dependencies = 1;
    pool->access[pool->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    *out = pool;
    return CUDA_SUCCESS;
}

static sim_pool_t *default_pool(int device) {
    sim_device_t *d = &sim_devices[device];
    if (!d->default_pool) {
        CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
        if (pool_new(&props, true, &d->default_pool))
            return NULL;
    }
    return d->default_pool;
}

sim_pool_t *sim_pool_current(int device) {
    sim_pool_t *current = sim_devices[device].current_pool;
    return current ? current : default_pool(device);
}

CUresult sim_pool_new(const CUmemPoolProps *props, sim_pool_t **out) {
    return pool_new(props, false, out);
}

SIM_API(cuMemPoolCreate)(CUmemoryPool *out, const CUmemPoolProps *props) {
    if (!out || !props || props->maxSize > INT64_MAX ||
        props->handleTypes > (CU_MEM_HANDLE_TYPE_FABRIC << 1) - 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ||
        props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        sim_log("cuMemPoolCreate: pools of host or managed memory are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(props->location.id);
    sim_pool_t *pool = NULL;
    if (!result)
        result = pool_new(props, false, &pool);
    if (!result)
        *out = pool;
    return result;
}

SIM_API(cuMemPoolDestroy)(CUmemoryPool handle) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!pool || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_devices[pool->device].current_pool == pool)
        sim_devices[pool->device].current_pool = NULL;
    pool->doomed = true;
    sim_pool_bury(pool);
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolTrimTo)(CUmemoryPool handle, size_t keep) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    sim_pool_trim(pool, keep, true);
    return CUDA_SUCCESS;
}

/* ---- attributes ---- */

static int *switch_of(sim_pool_t *pool, CUmemPool_attribute attribute) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &pool->follow_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &pool->opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &pool->internal_dependencies;
    default:
        return NULL;
    }
}

static uint64_t *figure_of(sim_pool_t *pool, CUmemPool_attribute attribute) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

SIM_API(cuMemPoolGetAttribute)(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    const int *flag = switch_of(pool, attribute);
    const uint64_t *figure = figure_of(pool, attribute);
    if (flag)
        *(int *)value = *flag;
    else if (figure)
        *(cuuint64_t *)value = *figure;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolSetAttribute)(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    int *flag = switch_of(pool, attribute);
    if (flag) {
        *flag = *(const int *)value != 0;
        return CUDA_SUCCESS;
    }
    cuuint64_t figure = 0;
    if (figure_of(pool, attribute))
        figure = *(const cuuint64_t *)value;
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->threshold = figure;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (figure)
            return CUDA_ERROR_INVALID_VALUE;
        pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (figure)
            return CUDA_ERROR_INVALID_VALUE;
        pool->used_high = pool->used;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- access ---- */

static CUresult check_access(const sim_pool_t *pool, const CUmemAccessDesc *desc) {
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(desc->location.id);
    if (result)
        return result;
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->location.id == pool->device)
        return desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
                                                                 : CUDA_ERROR_INVALID_VALUE;
    return sim_config.peer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Of a graph: its own device, and those that its allocation node names. */
static CUmemAccess_flags graph_access(const sim_graph_mem_t *mem, int device) {
    CUmemAccess_flags flags = device == mem->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (size_t i = 0; i < mem->access_count; i++)
        if (mem->access[i].location.id == device)
            flags = mem->access[i].flags;
    return flags;
}

bool sim_pool_allows(const sim_alloc_t *record, int device, bool write) {
    const sim_pool_owner_t *owner = record->owner;
    CUmemAccess_flags flags = *owner == SIM_OWNER_GRAPH ? graph_access(record->owner, device)
                                                        : record->pool->access[device];
    return write ? flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

SIM_API(cuMemPoolSetAccess)(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!pool || (count && !map))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_access(pool, &map[i]);
        if (result)
            return result;
    }
    for (size_t i = 0; i < count; i++)
        pool->access[map[i].location.id] = map[i].flags;
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolGetAccess)
(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!flags || !pool || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(location->id);
    if (!result)
        *flags = pool->access[location->id];
    return result;
}

/* ---- the pools of a device ---- */

static CUresult device_pool(CUmemoryPool *out, CUdevice device, bool current) {
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    sim_pool_t *pool = current ? sim_pool_current(device) : default_pool(device);
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = pool;
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceGetDefaultMemPool)(CUmemoryPool *out, CUdevice device) {
    return device_pool(out, device, false);
}

SIM_API(cuDeviceGetMemPool)(CUmemoryPool *out, CUdevice device) {
    return device_pool(out, device, true);
}

SIM_API(cuDeviceSetMemPool)(CUdevice device, CUmemoryPool handle) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    sim_pool_t *pool = sim_pool_get(handle);
    if (!pool || pool->device != device || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    sim_devices[device].current_pool = pool;
    return CUDA_SUCCESS;
}

/* The general form of CUDA 13; only pinned memory of devices is simulated. */
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type) {
    if (!location ||
        (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED))
        return CUDA_ERROR_INVALID_VALUE;
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_NONE:
        if (!managed)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_MEM_LOCATION_TYPE_DEVICE:
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (managed || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
        sim_log("memory pools of host or managed memory are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetDefaultMemPool)
(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type) {
    CUresult result = check_location(location, type);
    return result ? result : device_pool(out, location->id, false);
}

SIM_API(cuMemGetMemPool)(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type) {
    CUresult result = check_location(location, type);
    return result ? result : device_pool(out, location->id, true);
}

SIM_API(cuMemSetMemPool)(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    CUresult result = check_location(location, type);
    return result ? result : sim_do_cuDeviceSetMemPool(location->id, pool);
}
