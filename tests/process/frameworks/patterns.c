/* The calls by which programs that cannot run on the simulated device take their memory, made by a program
 * of our own from reading theirs: what the library serves of it, counts, and does not see.  NCCL and CuPy have
 * NVIDIA's CUDA runtime linked in, vLLM and llama.cpp need kernels.
 *
 * usage: patterns CASE      prints the line of JSON that use.py prints, of the same four sizes */
#include <stdio.h>
#include <string.h>

#include "accelcache.h"
#include "harness.h"

enum { MIB = 1 << 20, SIZES = 4 };
static const size_t sizes[SIZES] = {1000, 100000, 3 * MIB, 50 * MIB};

#define OK(call) GIVES(call, ACCEL_OK)

static size_t rounded(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* --- memory by pages, as all four programs map it --- */

typedef struct {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
} pages_t;

static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static size_t granularity(void) {
    size_t unit;
    MUST(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return unit;
}

static void map(pages_t *pages) {
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemCreate(&pages->handle, pages->bytes, &prop, 0));
    MUST(cuMemMap(pages->address, pages->bytes, 0, pages->handle, 0));
    MUST(cuMemSetAccess(pages->address, pages->bytes, &access, 1));
}

static void unmap(const pages_t *pages) {
    MUST(cuMemUnmap(pages->address, pages->bytes));
    MUST(cuMemRelease(pages->handle));
}

static pages_t pages_of(size_t bytes) {
    pages_t pages = {.bytes = rounded(bytes, granularity())};
    MUST(cuMemAddressReserve(&pages.address, pages.bytes, 0, 0, 0));
    map(&pages);
    return pages;
}

static void drop(const pages_t *pages) {
    unmap(pages);
    MUST(cuMemAddressFree(pages->address, pages->bytes));
}

/* --- measurement --- */

typedef struct {
    int64_t served, counted, unseen;
} figures_t;

static figures_t figures(void) {
    accel_device_stats_t stats = {.size = sizeof stats};
    size_t available, total;
    MUST(cuCtxSynchronize());
    OK(accel_empty_cache());
    OK(accel_get_device_stats(0, &stats));
    OK(accel_get_device_memory_info(0, &available, &total));
    return (figures_t){stats.requested_bytes.all.allocated, stats.allocated_bytes.all.current,
                       (int64_t)(total - available) - stats.reserved_bytes.all.current};
}

static figures_t before, there;

static void begin(void) {
    before = figures();
}
static void taken(void) {
    there = figures();
}
/* Returns the bytes that are still held. */
static int64_t held(void) {
    figures_t now = figures();
    return now.counted - before.counted + now.unseen - before.unseen;
}

/* --- cases --- */

/* ncclCuMemAlloc: each buffer has a handle and a range of its own, for other processes to import. */
static void nccl_cumem(void) {
    pages_t buffer[SIZES];
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    begin();
    for (int i = 0; i < SIZES; i++)
        buffer[i] = pages_of(sizes[i]);
    taken();
    for (int i = 0; i < SIZES; i++)
        drop(&buffer[i]);
}

/* NCCL without NCCL_CUMEM_ENABLE, and RMM's cuda_memory_resource. */
static void plain(void) {
    CUdeviceptr buffer[SIZES];
    begin();
    for (int i = 0; i < SIZES; i++)
        MUST(cuMemAlloc_v2(&buffer[i], sizes[i]));
    taken();
    for (int i = 0; i < SIZES; i++)
        MUST(cuMemFree_v2(buffer[i]));
}

/* vLLM's cumem_allocator, under PyTorch's cache, which asks it for segments of 2, 20 and 50 MiB.  Asleep the
 * pages have gone and the addresses stay; awake they are there again. */
static void vllm(void) {
    pages_t segment[2];
    pages_of(2 * MIB); /* allocated first, like the first block of use.py, and never freed */
    begin();
    segment[0] = pages_of(20 * MIB);
    segment[1] = pages_of(50 * MIB);
    taken();
    for (int i = 0; i < 2; i++)
        unmap(&segment[i]);
    EXPECT(held() == 0);
    for (int i = 0; i < 2; i++)
        map(&segment[i]);
    EXPECT(held() == 70 * MIB);
    for (int i = 0; i < 2; i++)
        drop(&segment[i]);
}

/* ggml_cuda_pool_vmm: one range of 32 GiB that grows at its end, blocks last in, first out; a handle is
 * released as soon as it is mapped. */
static void llama_vmm(void) {
    const size_t most = (size_t)32 << 30;
    pages_t pool = {0};
    size_t used = 0, mapped = 0;
    begin();
    MUST(cuMemAddressReserve(&pool.address, most, 0, 0, 0));
    for (int i = 0; i < SIZES; i++) {
        size_t bytes = rounded(sizes[i], 128);
        if (used + bytes > mapped) {
            pages_t more = {pool.address + mapped, rounded(used + bytes - mapped, granularity()),
                            0};
            map(&more);
            MUST(cuMemRelease(more.handle));
            mapped += more.bytes;
        }
        used += bytes;
    }
    taken();
    MUST(cuMemUnmap(pool.address, mapped));
    MUST(cuMemAddressFree(pool.address, most));
}

/* ggml_cuda_pool_leg: a twentieth more than is needed, in units of 256 bytes; freed buffers are kept, and
 * the one that fits best serves the next request.  Weights are a buffer of their own. */
static void llama_leg(void) {
    CUdeviceptr buffer[SIZES];
    size_t bytes[SIZES];
    begin();
    for (int i = 0; i < SIZES; i++) {
        bytes[i] = rounded((size_t)(1.05 * (double)sizes[i]), 256);
        MUST(cuMemAlloc_v2(&buffer[i], bytes[i]));
    }
    taken();
    for (int i = 0; i < SIZES; i++) /* with the pool */
        MUST(cuMemFree_v2(buffer[i]));
}

/* CuPy's MemoryPool: units of 512 bytes, a cudaMalloc for what no free chunk serves. */
static void cupy_pool(void) {
    CUdeviceptr chunk[SIZES];
    begin();
    for (int i = 0; i < SIZES; i++)
        MUST(cuMemAlloc_v2(&chunk[i], rounded(sizes[i], 512)));
    taken();
    for (int i = 0; i < SIZES; i++) /* free_all_blocks */
        MUST(cuMemFree_v2(chunk[i]));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"nccl-cumem", nccl_cumem}, {"plain", plain},         {"vllm", vllm},
             {"llama-vmm", llama_vmm},   {"llama-leg", llama_leg}, {"cupy-pool", cupy_pool}};

int main(int argc, char **argv) {
    size_t asked = 0;
    for (int i = 0; i < SIZES; i++)
        asked += sizes[i];
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) != 0)
            continue;
        test_title = argv[1];
        test_device(0);
        cases[i].run();
        printf("{\"asked\": %zu, \"served\": %lld, \"counted\": %lld, \"unseen\": %lld, "
               "\"left\": %lld}\n",
               asked, (long long)(there.served - before.served),
               (long long)(there.counted - before.counted),
               (long long)(there.unseen - before.unseen), (long long)held());
        return TEST_GOOD;
    }
    fprintf(stderr, "usage: patterns CASE\n");
    return TEST_USAGE;
}
