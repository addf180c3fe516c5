/* Memory of graphs: addresses that allocation nodes own, and the physical memory the device
 * keeps for them (cuDeviceGraphMemTrim).  Global lock.
 *
 * Physical memory is counted, not placed.  A launch that allocates raises `used`; a free lowers
 * it when it runs.  The device is charged for the highest `used` since the last trim, in steps
 * of 2 MiB.
 *
 * Guesses (public documentation is silent):
 *   the charge is made at launch; a launch without enough memory answers OUT_OF_MEMORY
 *   pools of host memory for allocation nodes   NOT_SUPPORTED, logged
 *   handle types other than none                INVALID_VALUE
 *   setting a figure that is no high-water mark,
 *   or setting one to anything but zero         INVALID_VALUE
 */
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "race.h"

#define STEP (2ull << 20)

typedef struct {
    uint64_t used, used_high, reserved, reserved_high;
} figures_t;

static figures_t *figures_of(int device) {
    sim_device_t *d = &sim_devices[device];
    if (!d->extra)
        d->extra = calloc(1, sizeof(figures_t));
    return d->extra;
}

/* Index by address, for free nodes made before any launch. */
static struct {
    sim_graph_mem_t **item;
    size_t count, room;
} all;

static uint64_t round_up(uint64_t size, uint64_t align) {
    return (size + align - 1) & ~(align - 1);
}

static uint64_t alignment(uint64_t size) {
    return size >= SIM_LARGE_SIZE ? SIM_LARGE_ALIGN : SIM_SMALL_ALIGN;
}

sim_graph_mem_t *sim_graph_mem_at(uint64_t address) {
    for (size_t i = 0; i < all.count; i++)
        if (all.item[i]->base == address)
            return all.item[i];
    return NULL;
}

uint64_t sim_graph_mem_left(uint64_t address) {
    for (size_t i = 0; i < all.count; i++)
        if (address - all.item[i]->base < all.item[i]->size)
            return all.item[i]->base + all.item[i]->size - address;
    return 0;
}

sim_graph_mem_t *sim_graph_mem_ref(sim_graph_mem_t *mem) {
    mem->refs++;
    return mem;
}

void sim_graph_mem_unref(sim_graph_mem_t *mem) {
    if (!mem || --mem->refs)
        return;
    for (size_t i = 0; i < all.count; i++)
        if (all.item[i] == mem) {
            all.item[i] = all.item[--all.count];
            break;
        }
    sim_mirror_discard(mem->base, mem->size);
    sim_range_give(mem->base, mem->size);
    free(mem->access);
    free(mem);
}

static bool remember(sim_graph_mem_t *mem) {
    if (all.count == all.room) {
        size_t room = all.room ? 2 * all.room : 16;
        sim_graph_mem_t **grown = realloc(all.item, room * sizeof *grown);
        if (!grown)
            return false;
        all.item = grown;
        all.room = room;
    }
    all.item[all.count++] = mem;
    return true;
}

static CUresult check_params(const CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    const CUmemPoolProps *props = &params->poolProps;
    if (!params->bytesize || (params->accessDescCount && !params->accessDescs) ||
        props->handleTypes || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
        sim_log("allocation nodes for host memory are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(props->location.id);
    for (size_t i = 0; !result && i < params->accessDescCount; i++)
        result = params->accessDescs[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE
                     ? sim_device_check(params->accessDescs[i].location.id)
                     : CUDA_ERROR_INVALID_VALUE;
    if (!result && params->bytesize > sim_devices[props->location.id].total)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

CUresult sim_graph_mem_new(const CUDA_MEM_ALLOC_NODE_PARAMS *params, uint64_t graph_id,
                           sim_graph_mem_t **out) {
    CUresult result = check_params(params);
    if (result)
        return result;
    sim_graph_mem_t *mem = calloc(1, sizeof *mem);
    if (!mem)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *mem = (sim_graph_mem_t){.owner = SIM_OWNER_GRAPH,
                             .refs = 1,
                             .graph_id = graph_id,
                             .size = params->bytesize,
                             .props = params->poolProps,
                             .device = params->poolProps.location.id,
                             .access_count = params->accessDescCount};
    mem->access = calloc(mem->access_count + 1, sizeof *mem->access);
    mem->base = mem->access ? sim_range_take(mem->size, alignment(mem->size), 0) : 0;
    if (!mem->base || !remember(mem)) {
        if (mem->base)
            sim_range_give(mem->base, mem->size);
        free(mem->access);
        free(mem);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (mem->access_count)
        memcpy(mem->access, params->accessDescs, mem->access_count * sizeof *mem->access);
    *out = mem;
    return CUDA_SUCCESS;
}

/* ---- being allocated ---- */

static CUresult reserve(figures_t *figures, int device, uint64_t size) {
    uint64_t wanted = figures->used + size;
    if (wanted > figures->reserved) {
        uint64_t more = round_up(wanted - figures->reserved, STEP);
        CUresult result = sim_device_charge(device, more);
        if (result && sim_pool_release_idle(device))
            result = sim_device_charge(device, more);
        if (result)
            return result;
        figures->reserved += more;
        if (figures->reserved > figures->reserved_high)
            figures->reserved_high = figures->reserved;
    }
    figures->used = wanted;
    if (figures->used > figures->used_high)
        figures->used_high = figures->used;
    return CUDA_SUCCESS;
}

CUresult sim_graph_mem_commit(sim_graph_mem_t *mem) {
    if (mem->submitted) { /* allocated by an earlier launch, and freed first */
        mem->submitted++;
        return CUDA_SUCCESS;
    }
    figures_t *figures = figures_of(mem->device);
    if (!figures)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = reserve(figures, mem->device, mem->size);
    if (result)
        return result;
    mem->record = sim_alloc_new(SIM_MEM_POOL, mem->base, mem->size, mem->device, NULL);
    if (!mem->record) {
        figures->used -= mem->size;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mem->record->no_access = true;
    mem->record->owner = mem;
    mem->submitted = 1;
    sim_graph_mem_ref(mem); /* for the time it is allocated */
    return CUDA_SUCCESS;
}

void sim_graph_mem_rollback(sim_graph_mem_t *mem) {
    if (!mem->submitted)
        return;
    mem->record->no_access = true;
    if (--mem->submitted)
        return;
    sim_alloc_delete(mem->record);
    mem->record = NULL;
    figures_t *figures = figures_of(mem->device);
    if (figures)
        figures->used -= mem->size;
    sim_graph_mem_unref(mem);
}

/* ---- items ---- */

typedef struct {
    sim_graph_mem_t *mem;
} payload_t;

static CUresult alloc_run(sim_work_t *work) {
    sim_graph_mem_t *mem = SIM_PAYLOAD(work, payload_t)->mem;
    if (mem->record)
        mem->record->no_access = false;
    return CUDA_SUCCESS;
}

static CUresult free_run(sim_work_t *work) {
    sim_graph_mem_rollback(SIM_PAYLOAD(work, payload_t)->mem);
    return CUDA_SUCCESS;
}

static void release(void *payload) {
    sim_graph_mem_unref(((payload_t *)payload)->mem);
}

static const sim_work_ops_t alloc_ops = {.name = "graph_alloc",
                                         .type = SIM_WORK_ALLOC,
                                         .flags = SIM_RUN_ALWAYS,
                                         .run = alloc_run,
                                         .release = release};
static const sim_work_ops_t free_ops = {.name = "graph_free",
                                        .type = SIM_WORK_FREE,
                                        .flags = SIM_RUN_ALWAYS,
                                        .run = free_run,
                                        .release = release};

static sim_work_t *item(const sim_work_ops_t *ops, CUcontext ctx, sim_graph_mem_t *mem) {
    sim_work_t *work = sim_work_new(ops, ctx, sizeof(payload_t));
    if (work)
        SIM_PAYLOAD(work, payload_t)->mem = sim_graph_mem_ref(mem);
    if (work && sim_race_on)
        sim_race_touch(work, mem->base, mem->size, true,
                       ops == &alloc_ops ? SIM_USE_ALLOC : SIM_USE_FREE);
    return work;
}

sim_work_t *sim_graph_mem_alloc_work(CUcontext ctx, sim_graph_mem_t *mem) {
    return item(&alloc_ops, ctx, mem);
}

sim_work_t *sim_graph_mem_free_work(CUcontext ctx, sim_graph_mem_t *mem) {
    return item(&free_ops, ctx, mem);
}

/* ---- the API ---- */

SIM_API(cuDeviceGraphMemTrim)(CUdevice device) {
    CUresult result = sim_device_check(device);
    figures_t *figures = result ? NULL : figures_of(device);
    if (figures) {
        uint64_t keep = round_up(figures->used, STEP);
        if (keep < figures->reserved) {
            sim_device_uncharge(device, figures->reserved - keep);
            figures->reserved = keep;
        }
    }
    return result;
}

static uint64_t *figure(figures_t *figures, CUgraphMem_attribute attribute) {
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &figures->used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &figures->used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &figures->reserved;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &figures->reserved_high;
    default:
        return NULL;
    }
}

SIM_API(cuDeviceGetGraphMemAttribute)
(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    figures_t *figures = figures_of(device);
    if (!figures)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t *from = figure(figures, attribute);
    if (!from || !value)
        return CUDA_ERROR_INVALID_VALUE;
    *(cuuint64_t *)value = *from;
    return CUDA_SUCCESS;
}

SIM_API(cuDeviceSetGraphMemAttribute)
(CUdevice device, CUgraphMem_attribute attribute, void *value) {
    CUresult result = sim_device_check(device);
    if (result)
        return result;
    figures_t *figures = figures_of(device);
    if (!figures)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!value || (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
                   attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    if (*(const cuuint64_t *)value)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        figures->used_high = figures->used;
    else
        figures->reserved_high = figures->reserved;
    return CUDA_SUCCESS;
}
