/* Allocation records and plain device memory: cuMemAlloc, cuMemFree and their kin.  Global
 * lock.
 *
 * Answers that documentation leaves open stand in guesses.def. */
#include <stdlib.h>

#include "race.h"
#include "state.h"

static sim_node_t *index_root;
static sim_alloc_t *spare; /* records ready for reuse, chained by owner */

static uint64_t round_up(uint64_t value, uint64_t align) {
    return (value + align - 1) & ~(align - 1);
}

/* ---- records ---- */

CUresult sim_device_charge(int device, uint64_t bytes) {
    sim_device_t *d = &sim_devices[device];
    if (bytes > d->total - d->used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    d->used += bytes;
    if (d->used > d->used_high)
        d->used_high = d->used;
    return CUDA_SUCCESS;
}

CUresult sim_device_charge_all(int device, uint64_t bytes) {
    CUresult result = sim_device_charge(device, bytes);
    if (result && sim_config.pool_yield && sim_pool_release_idle(device))
        result = sim_device_charge(device, bytes);
    return result;
}

void sim_device_uncharge(int device, uint64_t bytes) {
    sim_devices[device].used -= bytes;
}

sim_alloc_t *sim_alloc_new(sim_mem_kind_t kind, uint64_t base, uint64_t size, int device,
                           CUcontext ctx) {
    sim_alloc_t *record = spare;
    if (record)
        spare = record->owner;
    else if (!(record = malloc(sizeof *record)))
        return NULL;
    *record = (sim_alloc_t){.node.key = base,
                            .base = base,
                            .size = size,
                            .id = sim_next_id(),
                            .kind = kind,
                            .managed = kind == SIM_MEM_MANAGED,
                            .device = device,
                            .ctx = ctx,
                            .ctx_id = ctx ? ctx->object.id : 0};
    sim_tree_insert(&index_root, &record->node);
    if (sim_race_on)
        sim_race_record_new(record);
    return record;
}

void sim_alloc_delete(sim_alloc_t *record) {
    if (sim_race_on)
        sim_race_record_gone(record);
    sim_tree_remove(&index_root, &record->node);
    record->owner = spare;
    spare = record;
}

sim_alloc_t *sim_alloc_at(uint64_t base) {
    return (sim_alloc_t *)(void *)sim_tree_find(index_root, base);
}

sim_alloc_t *sim_alloc_around(uint64_t address) {
    sim_alloc_t *record = (sim_alloc_t *)(void *)sim_tree_floor(index_root, address);
    return record && address - record->base < record->size ? record : NULL;
}

sim_alloc_t *sim_alloc_from(uint64_t base) {
    return (sim_alloc_t *)(void *)sim_tree_ceil(index_root, base);
}

sim_alloc_t *sim_alloc_next(sim_alloc_t *after) {
    return (sim_alloc_t *)(void *)sim_tree_ceil(index_root, after ? after->base + 1 : 0);
}

bool sim_range_ok(uint64_t address, uint64_t length, bool write) {
    while (length) {
        sim_alloc_t *record = (sim_alloc_t *)(void *)sim_tree_floor(index_root, address);
        if (!record || record->no_access || (write && record->read_only))
            return false;
        /* A pool's block may be reused at a slightly smaller size while work of its former owner
         * is pending.  All of its granules therefore stay accessible. */
        uint64_t size =
            record->kind == SIM_MEM_POOL ? round_up(record->size, SIM_SMALL_ALIGN) : record->size;
        if (address - record->base >= size)
            return false;
        record->touched |= write;
        uint64_t here = record->base + size - address;
        if (here >= length)
            return true;
        address += here;
        length -= here;
    }
    return true;
}

static bool reaches(CUcontext ctx, const sim_alloc_t *record, bool write) {
    switch (record->kind) {
    case SIM_MEM_DEVICE:
    case SIM_MEM_GLOBAL:
        return record->device == ctx->device || sim_peer_enabled(ctx, record->ctx_id);
    case SIM_MEM_VMM:
    case SIM_MEM_MULTICAST:
        return sim_vmm_allows(record, ctx->device, write);
    case SIM_MEM_POOL:
        return sim_pool_allows(record, ctx->device, write);
    default:
        return true;
    }
}

bool sim_reaches(CUcontext ctx, uint64_t address, uint64_t length, bool write) {
    for (uint64_t end = address + length; address < end;) {
        const sim_alloc_t *record = sim_alloc_around(address);
        if (!record)
            return true; /* gaps between blocks of a pool */
        if (!reaches(ctx, record, write))
            return false;
        address = record->base + record->size;
    }
    return true;
}

void *sim_bytes(uint64_t address) {
    if (sim_space_holds(address))
        address += (uint64_t)sim_mirror_delta;
    return (void *)(uintptr_t)address;
}

/* ---- device memory ---- */

static uint64_t range_align(uint64_t size) {
    return size >= SIM_LARGE_SIZE ? SIM_LARGE_ALIGN : SIM_SMALL_ALIGN;
}

CUresult sim_device_alloc(CUcontext ctx, sim_mem_kind_t kind, uint64_t size, sim_alloc_t **out) {
    int device = ctx->device;
    if (size > sim_devices[device].total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t charged = round_up(size, SIM_SMALL_ALIGN);
    CUresult result = sim_device_charge_all(device, charged);
    if (result)
        return result;
    uint64_t base = sim_range_take(size, range_align(size), 0);
    sim_alloc_t *record = base ? sim_alloc_new(kind, base, size, device, ctx) : NULL;
    if (!record) {
        if (base)
            sim_range_give(base, size);
        sim_device_uncharge(device, charged);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    record->charged = charged;
    *out = record;
    return CUDA_SUCCESS;
}

void sim_device_free(sim_alloc_t *record) {
    if (record->exported)
        sim_ipc_freed(record);
    if (record->touched)
        sim_mirror_discard(record->base, record->size);
    sim_range_give(record->base, record->size);
    sim_device_uncharge(record->device, record->charged);
    sim_alloc_delete(record);
}

static CUresult alloc_plain(sim_fn_t fn, CUdeviceptr *out, size_t size) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || !size)
        return CUDA_ERROR_INVALID_VALUE;
    sim_alloc_t *record;
    result = sim_device_alloc(sim_ctx_home(ctx), SIM_MEM_DEVICE, size, &record);
    if (result)
        return result;
    sim_call_bytes(fn, size);
    *out = record->base;
    return CUDA_SUCCESS;
}

SIM_API(cuMemAlloc_v2)(CUdeviceptr *out, size_t size) {
    return alloc_plain(SIM_FN_cuMemAlloc_v2, out, size);
}

SIM_API(cuMemAllocPitch_v2)
(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = round_up(width, SIM_SMALL_ALIGN);
    if (row < width || height > SIZE_MAX / row)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = alloc_plain(SIM_FN_cuMemAllocPitch_v2, out, row * height);
    if (!result)
        *pitch = row;
    return result;
}

SIM_API(cuMemFree_v2)(CUdeviceptr address) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result || !address)
        return result;
    sim_alloc_t *record = sim_alloc_at(address);
    if (!record)
        return CUDA_ERROR_INVALID_VALUE;
    if (record->kind == SIM_MEM_POOL)
        return sim_pool_free_sync(record);
    if (record->kind != SIM_MEM_DEVICE && record->kind != SIM_MEM_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    sim_call_bytes(SIM_FN_cuMemFree_v2, record->size);
    if (sim_config.free_sync) {
        uint64_t id = record->id;
        sim_wait_device(record->device);
        result = sim_ctx_current(&ctx);
        if (result)
            return result;
        record = sim_alloc_at(address); /* another thread may have freed it meanwhile */
        if (!record || record->id != id)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (record->kind == SIM_MEM_MANAGED)
        sim_managed_free(record);
    else
        sim_device_free(record);
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetInfo_v2)(size_t *available, size_t *total) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    const sim_device_t *device = &sim_devices[ctx->device];
    if (available)
        *available = device->total - device->used;
    if (total)
        *total = device->total;
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetAddressRange_v2)(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    const sim_alloc_t *record = sim_alloc_around(address);
    if (!record)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = record->base;
    if (size)
        *size = record->size;
    return CUDA_SUCCESS;
}

/* Frees the memory of a context that ends. */
void sim_memory_ctx_gone(CUcontext ctx) {
    sim_alloc_t *record = sim_alloc_next(NULL);
    while (record) {
        sim_alloc_t *next = sim_alloc_next(record);
        if (record->ctx == ctx && record->ctx_id == ctx->object.id) {
            if (record->kind == SIM_MEM_DEVICE || record->kind == SIM_MEM_GLOBAL)
                sim_device_free(record);
            else if (record->kind == SIM_MEM_MANAGED)
                sim_managed_free(record);
            else if (record->kind == SIM_MEM_HOST || record->kind == SIM_MEM_REGISTERED)
                sim_host_free(record);
        }
        record = next;
    }
}
