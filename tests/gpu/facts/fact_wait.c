/* Facts 4, 8 and 12: calls that hold up the host while a kernel runs, and the memory that
 * cuMemGetInfo counts. */
#include "facts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LARGE_MIB = 64, CALLS = 200, SMALL_BLOCKS = 64 };

static CUstream stream_of(unsigned flags) {
    CUstream stream;
    MUST(cu.cuStreamCreate(&stream, flags));
    return stream;
}

/* ---------------------------------------------------------------- 4 */

/* Blocks allocated before the kernel starts.  Each try frees one of them. */
typedef struct {
    CUdeviceptr block[16];
    unsigned next;
} blocks_t;

static CUresult free_next(void *arg) {
    blocks_t *blocks = arg;
    return cu.cuMemFree_v2(blocks->block[blocks->next++]);
}

static void free_waits(claim_t claim, CUstream stream, gpu_kernel_t slow, CUcontext other,
                       size_t bytes) {
    blocks_t blocks = {.next = 0};
    for (size_t i = 0; i < sizeof blocks.block / sizeof *blocks.block; i++)
        MUST(cu.cuMemAlloc_v2(&blocks.block[i], bytes));
    if (other)
        MUST(cu.cuCtxSetCurrent(gpu_beside()->context));
    fact_waits(claim, stream, slow, other, free_next, &blocks);
    if (other)
        MUST(cu.cuCtxSetCurrent(gpu.primary));
    while (blocks.next < sizeof blocks.block / sizeof *blocks.block)
        free_next(&blocks);
}

/* A thread that frees memory while a kernel runs, to see its effect on another thread's call. */
typedef struct {
    CUdeviceptr block;
    _Atomic bool entered, left;
} freer_t;

static void *free_elsewhere(void *arg) {
    freer_t *freer = arg;
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    atomic_store(&freer->entered, true);
    MUST(cu.cuMemFree_v2(freer->block));
    atomic_store(&freer->left, true);
    return NULL;
}

static CUresult launch_beside(void *stream) {
    return gpu_try(gpu.quick, *(CUstream *)stream, gpu_word(0), gpu_word(GPU_WORDS_KEPT + 1));
}

static CUresult alloc_beside(void *memory) {
    return cu.cuMemAlloc_v2(memory, LARGE_MIB * MIB);
}

/* Answers whether `call` is held up while another thread frees memory during a kernel.  The kernel
 * has ended if its word is set. */
static void held_up(claim_t claim, CUstream stream, gpu_call_t *call, void *arg) {
    enum { LOOKS = 100 };
    unsigned word = GPU_WORDS_KEPT;
    freer_t freer = {.entered = false};
    pthread_t thread;
    MUST(cu.cuMemAlloc_v2(&freer.block, LARGE_MIB * MIB));
    gpu.words[word] = 0;
    gpu_launch(gpu.slow, stream, gpu_word(0), gpu_word(word));
    if (pthread_create(&thread, NULL, free_elsewhere, &freer)) {
        fact_skip(claim, "unknown: no thread");
        return;
    }
    /* The thread has 2 ms of the kernel's 20 to enter the call. */
    for (int i = 0; i < LOOKS; i++)
        gpu_rest();
    bool before =
        gpu.words[word] == 0 && atomic_load(&freer.entered) && !atomic_load(&freer.left);
    CUresult result = call(arg);
    bool after = gpu.words[word] == 0;
    bool still_inside = !atomic_load(&freer.left);
    pthread_join(thread, NULL);
    MUST(cu.cuCtxSynchronize());
    if (result || !before)
        fact_skip(claim, "unknown: %s",
                  result ? gpu_error(result) : "the free was over before the other call");
    else
        fact_answer(claim, !after, "The kernel was %s when the call returned, the free %s.",
                    after ? "still running" : "over", still_inside ? "was not" : "had returned");
}

void fact_4(void) {
    size_t large = LARGE_MIB * MIB;
    CUstream nonblocking = stream_of(CU_STREAM_NON_BLOCKING);
    free_waits(CLAIM_4_waits_legacy_stream, NULL, gpu.slow, NULL, large);
    free_waits(CLAIM_4_waits_blocking_stream, stream_of(CU_STREAM_DEFAULT), gpu.slow, NULL,
               large);
    free_waits(CLAIM_4_waits_nonblocking_stream, nonblocking, gpu.slow, NULL, large);
    free_waits(CLAIM_4_waits_small_block, nonblocking, gpu.slow, NULL, KIB);
    const gpu_beside_t *beside = gpu_beside();
    if (fact_needs(CLAIM_4_waits_other_context, beside, "a second context"))
        free_waits(CLAIM_4_waits_other_context, beside->stream, beside->slow, gpu.primary, large);
    CUstream second = stream_of(CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = 0, spare;
    uint32_t value = 0;
    held_up(CLAIM_4_holds_up_launches, nonblocking, launch_beside, &second);
    held_up(CLAIM_4_holds_up_allocations, nonblocking, alloc_beside, &memory);
    if (memory)
        MUST(cu.cuMemFree_v2(memory));
    MUST(cu.cuMemAlloc_v2(&memory, large));
    MUST(cu.cuMemAlloc_v2(&spare, large));
    gpu.words[8] = 41;
    gpu_launch(gpu.slow, nonblocking, gpu_word(8), memory);
    MUST(cu.cuMemFree_v2(spare));
    MUST(cu.cuStreamSynchronize(nonblocking));
    MUST(cu.cuMemcpyDtoH_v2(&value, memory, sizeof value));
    fact_answer(CLAIM_4_free_under_kernel_keeps_others, value == 42, "It left %u, wanted 42.",
                value);
}

/* ---------------------------------------------------------------- 8 */

typedef struct {
    size_t bytes;
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    CUdeviceptr range;
    CUmemGenericAllocationHandle handle[16];
    unsigned next;
} pages_t;

static void pages_prepare(pages_t *p) {
    memset(p, 0, sizeof *p);
    p->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p->prop.location.id = gpu.device;
    p->access.location = p->prop.location;
    p->access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    MUST(cu.cuMemGetAllocationGranularity(&p->bytes, &p->prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    MUST(cu.cuMemAddressReserve(&p->range, 16 * p->bytes, 0, 0, 0));
}

static CUresult create_next(void *arg) {
    pages_t *p = arg;
    return cu.cuMemCreate(&p->handle[p->next++], p->bytes, &p->prop, 0);
}

static CUresult map_next(void *arg) {
    pages_t *p = arg;
    unsigned i = p->next++;
    return cu.cuMemMap(p->range + i * p->bytes, p->bytes, 0, p->handle[i], 0);
}

static CUresult access_next(void *arg) {
    pages_t *p = arg;
    return cu.cuMemSetAccess(p->range + p->next++ * p->bytes, p->bytes, &p->access, 1);
}

static CUresult unmap_next(void *arg) {
    pages_t *p = arg;
    return cu.cuMemUnmap(p->range + p->next++ * p->bytes, p->bytes);
}

static CUresult release_next(void *arg) {
    pages_t *p = arg;
    return cu.cuMemRelease(p->handle[p->next++]);
}

/* Answers the claim with the first pages.  Makes the call for the other pages without a kernel. */
static void page_step(claim_t claim, pages_t *p, gpu_call_t *call, CUstream stream) {
    p->next = 0;
    fact_waits(claim, stream, gpu.slow, NULL, call, p);
    while (p->next < 16)
        MUST(call(p));
}

static void all_pages(pages_t *p, gpu_call_t *call) {
    for (p->next = 0; p->next < 16;)
        MUST(call(p));
}

void fact_8(void) {
    static const claim_t claims[] = {CLAIM_8_create_waits, CLAIM_8_map_waits,
                                     CLAIM_8_set_access_waits, CLAIM_8_unmap_waits,
                                     CLAIM_8_release_waits};
    static gpu_call_t *const calls[] = {create_next, map_next, access_next, unmap_next,
                                        release_next};
    enum { STEPS = 5, UNMAP = 3 };
    pages_t pages;
    if (!gpu_has_pages()) {
        for (int i = 0; i < STEPS; i++)
            fact_needs(claims[i], false, "virtual memory management");
        fact_needs(CLAIM_8_release_mapped_waits, false, "virtual memory management");
        fact_needs(CLAIM_8_unmap_waits_other_context, false, "virtual memory management");
        return;
    }
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    pages_prepare(&pages);
    for (int i = 0; i < STEPS; i++)
        page_step(claims[i], &pages, calls[i], stream);
    for (int i = 0; i < UNMAP; i++)
        all_pages(&pages, calls[i]);
    page_step(CLAIM_8_release_mapped_waits, &pages, release_next, stream);
    all_pages(&pages, unmap_next);
    const gpu_beside_t *beside = gpu_beside();
    if (!fact_needs(CLAIM_8_unmap_waits_other_context, beside, "a second context"))
        return;
    for (int i = 0; i < UNMAP; i++)
        all_pages(&pages, calls[i]);
    pages.next = 0;
    MUST(cu.cuCtxSetCurrent(beside->context));
    fact_waits(CLAIM_8_unmap_waits_other_context, beside->stream, beside->slow, gpu.primary,
               unmap_next, &pages);
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    while (pages.next < 16)
        MUST(unmap_next(&pages));
    all_pages(&pages, release_next);
    MUST(cu.cuMemAddressFree(pages.range, 16 * pages.bytes));
}

/* ---------------------------------------------------------------- 12 */

static size_t free_now(void) {
    size_t available, total;
    MUST(cu.cuMemGetInfo_v2(&available, &total));
    return available;
}

static CUresult get_info(void *arg) {
    size_t *values = arg;
    return cu.cuMemGetInfo_v2(&values[0], &values[1]);
}

/* Tries up to three times, because other processes may use memory in between. */
static void comes_back(void) {
    size_t before = 0, held = 0, after = 0, bytes = LARGE_MIB * MIB;
    bool good = false;
    for (int i = 0; i < 3 && !good; i++) {
        CUdeviceptr memory;
        before = free_now();
        MUST(cu.cuMemAlloc_v2(&memory, bytes));
        held = free_now();
        MUST(cu.cuMemFree_v2(memory));
        after = free_now();
        good = before - held >= bytes && after == before;
    }
    fact_answer(CLAIM_12_freed_comes_back, good,
                "Free: %zu bytes, %zu with 64 MiB allocated, %zu after their free.", before, held,
                after);
}

static void handles_count(void) {
    pages_t pages;
    if (!fact_needs(CLAIM_12_counts_handles, gpu_has_pages(), "virtual memory management"))
        return;
    pages_prepare(&pages);
    size_t before = free_now();
    all_pages(&pages, create_next);
    size_t held = free_now();
    all_pages(&pages, release_next);
    MUST(cu.cuMemAddressFree(pages.range, 16 * pages.bytes));
    fact_answer(CLAIM_12_counts_handles, before - held >= 16 * pages.bytes && before > held,
                "Free: %zu bytes, %zu with 16 handles of %zu bytes, %zu after their release.",
                before, held, pages.bytes, free_now());
}

static void pools_count(void) {
    CUmemoryPool pool;
    CUdeviceptr memory;
    int pools = 0;
    cuuint64_t keep = UINT64_MAX;
    cu.cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, gpu.device);
    if (!fact_needs(CLAIM_12_counts_pools, pools && GPU_HAS(cuMemAllocAsync), "memory pools"))
        return;
    MUST(cu.cuDeviceGetDefaultMemPool(&pool, gpu.device));
    MUST(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    size_t before = free_now();
    MUST(cu.cuMemAllocAsync(&memory, LARGE_MIB * MIB, NULL));
    MUST(cu.cuMemFreeAsync(memory, NULL));
    MUST(cu.cuCtxSynchronize());
    size_t kept = free_now();
    MUST(cu.cuMemPoolTrimTo(pool, 0));
    size_t trimmed = free_now();
    fact_answer(CLAIM_12_counts_pools, before - kept >= LARGE_MIB * MIB && before > kept,
                "Free: %zu bytes, %zu while the pool kept 64 MiB, %zu after it was trimmed.",
                before, kept, trimmed);
}

static void step_of_free(void) {
    CUdeviceptr blocks[SMALL_BLOCKS];
    size_t last = free_now(), least = 0, whole = 0;
    for (int i = 0; i < SMALL_BLOCKS; i++) {
        MUST(cu.cuMemAlloc_v2(&blocks[i], 256 * KIB));
        size_t now = free_now();
        if (now < last && (!least || last - now < least))
            least = last - now;
        whole += now < last ? last - now : 0;
        last = now;
    }
    for (int i = 0; i < SMALL_BLOCKS; i++)
        MUST(cu.cuMemFree_v2(blocks[i]));
    fact_figure(CLAIM_12_step, (double)least / (double)KIB, "KiB",
                "The smallest step of %d allocations of 256 KiB, which took %zu bytes together.",
                SMALL_BLOCKS, whole);
}

void fact_12(void) {
    size_t values[2] = {0}, whole = 0;
    MUST(get_info(values));
    double before = gpu_clock();
    for (int i = 0; i < CALLS; i++)
        MUST(get_info(values));
    fact_figure(CLAIM_12_ns_call, (gpu_clock() - before) * 1e6 / CALLS, "ns",
                "Mean of %d calls in a row, device idle.", CALLS);
    fact_waits(CLAIM_12_holds_up_host, stream_of(CU_STREAM_NON_BLOCKING), gpu.slow, NULL,
               get_info, values);
    MUST(cu.cuDeviceTotalMem_v2(&whole, gpu.device));
    size_t total = values[1];
    comes_back();
    handles_count();
    pools_count();
    step_of_free();
    MUST(get_info(values));
    fact_answer(CLAIM_12_total_is_constant, total == values[1] && total && total <= whole,
                "cuMemGetInfo: %zu, later %zu; cuDeviceTotalMem: %zu.", total, values[1], whole);
}
