/* Probes of memory pools. */
#include "guesses.h"

static bool has_pools(void) {
    int pools = 0;
    if (GPU_HAS(cuMemPoolCreate) && GPU_HAS(cuMemAllocFromPoolAsync))
        cu.cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, gpu.device);
    if (!pools)
        say("not here");
    return pools;
}

static CUmemoryPool pool_of(size_t most) {
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu.device},
                            .maxSize = most};
    MUST(cu.cuMemPoolCreate(&pool, &props));
    return pool;
}

static size_t free_now(void) {
    size_t available, total;
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuMemGetInfo_v2(&available, &total));
    return available;
}

static cuuint64_t reserved(CUmemoryPool pool) {
    cuuint64_t bytes = 0;
    MUST(cu.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

void guess_pool_empty(void) {
    if (!has_pools())
        return;
    size_t before = free_now();
    CUmemoryPool pool = pool_of(0);
    say("%zu MiB", (before - free_now()) / MIB);
    MUST(cu.cuMemPoolDestroy(pool));
}

void guess_pool_limit(void) {
    CUdeviceptr memory;
    if (!has_pools())
        return;
    CUmemoryPool pool = pool_of(3 * MIB);
    say("4 MiB %s, ", gpu_error(cu.cuMemAllocFromPoolAsync(&memory, 4 * MIB, pool, NULL)));
    say("1 MiB more %s", gpu_error(cu.cuMemAllocFromPoolAsync(&memory, MIB, pool, NULL)));
}

void guess_pool_owner_access(void) {
    CUmemAccessDesc none = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    if (has_pools())
        say("%s", gpu_error(cu.cuMemPoolSetAccess(pool_of(0), &none, 1)));
}

void guess_pool_steps(void) {
    CUdeviceptr memory;
    if (!has_pools())
        return;
    CUmemoryPool pool = pool_of(0);
    for (int i = 0; i < 2; i++) {
        MUST(cu.cuMemAllocFromPoolAsync(&memory, i ? 40 * MIB : MIB, pool, NULL));
        say(i ? ", 40 more %zu" : "1 MiB %zu", (size_t)reserved(pool) / MIB);
    }
}

void guess_pool_destroyed(void) {
    CUmemoryPool named = NULL;
    CUdeviceptr memory;
    if (!has_pools())
        return;
    CUmemoryPool pool = pool_of(0);
    MUST(cu.cuMemAllocFromPoolAsync(&memory, MIB, pool, NULL));
    MUST(cu.cuMemPoolDestroy(pool));
    CUresult result =
        cu.cuPointerGetAttribute(&named, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory);
    if (result)
        say("%s, ", gpu_error(result));
    else
        say("%s, ", named == pool ? "its handle" : named ? "another one" : "none");
    say("free %s", gpu_error(cu.cuMemFreeAsync(memory, NULL)));
}

void guess_pool_export_plain(void) {
    CUmemPoolPtrExportData data;
    CUdeviceptr memory;
    int handle;
    if (!has_pools())
        return;
    CUmemoryPool pool = pool_of(0);
    MUST(cu.cuMemAllocFromPoolAsync(&memory, MIB, pool, NULL));
    say("pool %s, ", gpu_error(cu.cuMemPoolExportToShareableHandle(
                         &handle, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
    say("pointer %s", gpu_error(cu.cuMemPoolExportPointer(&data, memory)));
}

/* Allocates while three quarters of the free memory are idle in a pool that may keep them. */
void guess_pool_yields(void) {
    cuuint64_t keep = UINT64_MAX;
    CUdeviceptr memory;
    if (!has_pools())
        return;
    CUmemoryPool pool = pool_of(0);
    MUST(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    size_t bytes = free_now() / 4 * 3 / (64 * MIB) * (64 * MIB);
    MUST(cu.cuMemAllocFromPoolAsync(&memory, bytes, pool, NULL));
    MUST(cu.cuMemFreeAsync(memory, NULL));
    MUST(cu.cuCtxSynchronize());
    bool kept = reserved(pool) >= bytes;
    CUresult result = cu.cuMemAlloc_v2(&memory, bytes);
    say("%s%s", kept ? "" : "nothing was kept, ", gpu_error(result));
    if (!result)
        MUST(cu.cuMemFree_v2(memory));
    MUST(cu.cuMemPoolDestroy(pool));
}
