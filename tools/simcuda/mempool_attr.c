/* Memory pools as objects: creation, destruction, attributes, access, and the pools of a device.
 * mempool.c handles the memory in them.  Global lock.
 *
 * Guesses (public documentation is silent):
 *   destroying a default pool              INVALID_VALUE
 *   host memory of a NUMA node, to be shared   NOT_SUPPORTED, logged
 *   a NUMA node other than 0               INVALID_VALUE
 *   taking access from the own device, or from the host for its memory   INVALID_VALUE
 *   access of the host to a device's pool, of anyone to a managed one    INVALID_VALUE
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
    bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    pool->device = on_device ? props->location.id : 0;
    pool->managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    pool->on_host = pool->managed || !on_device;
    pool->is_default = is_default;
    pool->follow_events = pool->opportunistic = pool->internal_dependencies = 1;
    for (int device = 0; device < SIM_MAX_DEVICES; device++)
        pool->access[device] = pool->managed || (!pool->on_host && device == pool->device)
                                   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
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

/* Checks that memory exists at the location: on a device, on the host, or on both. */
static CUresult check_location(const CUmemLocation *location, CUmemAllocationType type) {
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (!location || (!managed && type != CU_MEM_ALLOCATION_TYPE_PINNED))
        return CUDA_ERROR_INVALID_VALUE;
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return sim_device_check(location->id);
    case CU_MEM_LOCATION_TYPE_HOST:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_NONE:
        return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool is_of_host(const CUmemPoolProps *props) {
    return props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ||
           props->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

/* Checks a pool of host or managed memory.  Only memory of a NUMA node can be shared.  Managed
 * memory takes no size limit. */
static CUresult check_host(const CUmemPoolProps *props) {
    bool managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    if (managed && (props->maxSize || props->usage))
        return CUDA_ERROR_INVALID_VALUE;
    if (!props->handleTypes)
        return CUDA_SUCCESS;
    if (managed || props->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_INVALID_VALUE;
    sim_log("cuMemPoolCreate: host memory that is shared is not simulated");
    return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuMemPoolCreate)(CUmemoryPool *out, const CUmemPoolProps *props) {
    if (!out || !props || props->maxSize > INT64_MAX ||
        props->handleTypes > (CU_MEM_HANDLE_TYPE_FABRIC << 1) - 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_location(&props->location, props->allocType);
    if (!result && is_of_host(props))
        result = check_host(props);
    sim_pool_t *pool = NULL;
    if (!result)
        result = pool_new(props, false, &pool);
    if (!result)
        *out = pool;
    return result;
}

/* Default and current pools of host and managed memory, one pair for each location. */
typedef struct {
    CUmemAllocationType type;
    CUmemLocation location;
    sim_pool_t *own, *current;
} place_t;
static place_t places[SIM_MAX_DEVICES + 5];
static size_t place_count;

static place_t *place_of(const CUmemLocation *location, CUmemAllocationType type) {
    int id = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : 0;
    for (size_t i = 0; i < place_count; i++)
        if (places[i].type == type && places[i].location.type == location->type &&
            places[i].location.id == id)
            return &places[i];
    place_t *place = &places[place_count];
    *place = (place_t){.type = type, .location = {location->type, id}};
    CUmemPoolProps props = {.allocType = type, .location = place->location};
    if (pool_new(&props, true, &place->own))
        return NULL;
    place_count++;
    return place;
}

static void leave_places(const sim_pool_t *pool) {
    for (size_t i = 0; i < place_count; i++)
        if (places[i].current == pool)
            places[i].current = NULL;
}

SIM_API(cuMemPoolDestroy)(CUmemoryPool handle) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!pool || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_devices[pool->device].current_pool == pool)
        sim_devices[pool->device].current_pool = NULL;
    leave_places(pool);
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

static bool is_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id == 0);
}

static CUresult check_access(const sim_pool_t *pool, const CUmemAccessDesc *desc) {
    if (pool->managed)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->on_host && is_host(&desc->location) &&
        desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_SUCCESS;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(desc->location.id);
    if (result)
        return result;
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->on_host)
        return CUDA_SUCCESS;
    if (desc->location.id == pool->device)
        return desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS
               : desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE    ? CUDA_ERROR_INVALID_DEVICE
                                                                 : CUDA_ERROR_INVALID_VALUE;
    return sim_config.peer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Returns the access to memory of a graph.  Its own device has access, and each device that the
 * allocation node names. */
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
        if (map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            pool->access[map[i].location.id] = map[i].flags;
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolGetAccess)
(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    sim_pool_t *pool = sim_pool_get(handle);
    if (!flags || !pool || !location)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->on_host && is_host(location)) {
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    }
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
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
    if (!pool || pool->device != device || pool->on_host || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    sim_devices[device].current_pool = pool;
    return CUDA_SUCCESS;
}

/* ---- the same for all kinds of memory (CUDA 13) ---- */

static bool is_of_device(const CUmemLocation *location, CUmemAllocationType type) {
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
}

static CUresult pool_of_place(CUmemoryPool *out, const CUmemLocation *location,
                              CUmemAllocationType type, bool current) {
    CUresult result = check_location(location, type);
    if (result || !out || is_of_device(location, type))
        return result ? result
               : !out ? CUDA_ERROR_INVALID_VALUE
                      : device_pool(out, location->id, current);
    const place_t *place = place_of(location, type);
    if (!place)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = current && place->current ? place->current : place->own;
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetDefaultMemPool)
(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type) {
    return pool_of_place(out, location, type, false);
}

SIM_API(cuMemGetMemPool)(CUmemoryPool *out, CUmemLocation *location, CUmemAllocationType type) {
    return pool_of_place(out, location, type, true);
}

SIM_API(cuMemSetMemPool)
(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool handle) {
    CUresult result = check_location(location, type);
    if (result || is_of_device(location, type))
        return result ? result : sim_do_cuDeviceSetMemPool(location->id, handle);
    sim_pool_t *pool = sim_pool_get(handle);
    place_t *place = place_of(location, type);
    bool fits = pool && pool->props.allocType == type &&
                pool->props.location.type == location->type &&
                (location->type != CU_MEM_LOCATION_TYPE_DEVICE || pool->device == location->id);
    if (!fits || !place)
        return place ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    place->current = pool;
    return CUDA_SUCCESS;
}
