/* Memory that the host sees, too: pinned, registered and managed.  Its device address is its host
 * address, as with unified addressing.  Global lock. */
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

enum {
    HOSTALLOC_FLAGS =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED,
    REGISTER_FLAGS = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                     CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY,
};

static size_t page_round(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

static CUresult map_record(CUcontext ctx, sim_mem_kind_t kind, size_t size, unsigned flags,
                           sim_alloc_t **out) {
    if (size > SIZE_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *host = mmap(NULL, page_round(size), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_alloc_t *record =
        sim_alloc_new(kind, (uint64_t)(uintptr_t)host, size, ctx->device, sim_ctx_home(ctx));
    if (!record) {
        munmap(host, page_round(size));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    record->flags = flags;
    record->host = host;
    *out = record;
    return CUDA_SUCCESS;
}

static CUresult host_alloc(void **out, size_t size, unsigned flags) {
    CUcontext ctx;
    sim_alloc_t *record;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || flags & ~(unsigned)HOSTALLOC_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = map_record(ctx, SIM_MEM_HOST, size, flags, &record);
    if (!result)
        *out = record->host;
    return result;
}

SIM_API(cuMemHostAlloc)(void **out, size_t size, unsigned flags) {
    return host_alloc(out, size, flags);
}

SIM_API(cuMemAllocHost_v2)(void **out, size_t size) {
    return host_alloc(out, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}

void sim_host_free(sim_alloc_t *record) {
    if (record->kind == SIM_MEM_HOST)
        munmap(record->host, page_round(record->size));
    sim_alloc_delete(record);
}

SIM_API(cuMemFreeHost)(void *host) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result || !host)
        return result;
    sim_alloc_t *record = sim_alloc_at((uint64_t)(uintptr_t)host);
    if (!record || record->kind != SIM_MEM_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_config.free_sync) {
        uint64_t id = record->id;
        sim_wait_device(record->device);
        record = sim_alloc_at((uint64_t)(uintptr_t)host);
        if (!record || record->id != id)
            return CUDA_ERROR_INVALID_VALUE;
    }
    sim_host_free(record);
    return CUDA_SUCCESS;
}

static CUresult host_register(void *host, size_t size, unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    uint64_t base = (uint64_t)(uintptr_t)host;
    if (!host || !size || base + size < base || flags & ~(unsigned)REGISTER_FLAGS)
        return CUDA_ERROR_INVALID_VALUE;
    const sim_alloc_t *at = sim_alloc_around(base);
    const sim_alloc_t *next = at ? at : sim_alloc_from(base);
    if (next && next->base < base + size)
        return next->kind == SIM_MEM_HOST || next->kind == SIM_MEM_REGISTERED
                   ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                   : CUDA_ERROR_INVALID_VALUE;
    sim_alloc_t *record =
        sim_alloc_new(SIM_MEM_REGISTERED, base, size, ctx->device, sim_ctx_home(ctx));
    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    record->flags = flags;
    record->host = host;
    return CUDA_SUCCESS;
}

SIM_API(cuMemHostRegister_v2)(void *host, size_t size, unsigned flags) {
    return host_register(host, size, flags);
}

SIM_API(cuMemHostRegister)(void *host, size_t size, unsigned flags) {
    return host_register(host, size, flags);
}

SIM_API(cuMemHostUnregister)(void *host) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    sim_alloc_t *record = sim_alloc_at((uint64_t)(uintptr_t)host);
    if (record && record->kind == SIM_MEM_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (!record || record->kind != SIM_MEM_REGISTERED)
        return host ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    sim_host_free(record);
    return CUDA_SUCCESS;
}

static sim_alloc_t *host_record(const void *host) {
    sim_alloc_t *record = sim_alloc_around((uint64_t)(uintptr_t)host);
    bool pinned = record && (record->kind == SIM_MEM_HOST || record->kind == SIM_MEM_REGISTERED);
    return pinned ? record : NULL;
}

SIM_API(cuMemHostGetDevicePointer_v2)(CUdeviceptr *out, void *host, unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || flags || !host_record(host))
        return CUDA_ERROR_INVALID_VALUE;
    *out = (uint64_t)(uintptr_t)host;
    return CUDA_SUCCESS;
}

SIM_API(cuMemHostGetFlags)(unsigned *out, void *host) {
    const sim_alloc_t *record = host_record(host);
    if (!out || !record)
        return CUDA_ERROR_INVALID_VALUE;
    *out = record->flags;
    return CUDA_SUCCESS;
}

/* Managed memory counts against the device as if it all resided there. */
SIM_API(cuMemAllocManaged)(CUdeviceptr *out, size_t size, unsigned flags) {
    CUcontext ctx;
    sim_alloc_t *record;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!out || !size || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t charged = page_round(size);
    result = sim_device_charge(ctx->device, charged);
    if (result)
        return result;
    result = map_record(ctx, SIM_MEM_MANAGED, size, flags, &record);
    if (result) {
        sim_device_uncharge(ctx->device, charged);
        return result;
    }
    record->charged = charged;
    *out = record->base;
    return CUDA_SUCCESS;
}

void sim_managed_free(sim_alloc_t *record) {
    munmap(record->host, page_round(record->size));
    sim_device_uncharge(record->device, record->charged);
    sim_alloc_delete(record);
}
