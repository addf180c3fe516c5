/* gpu_costs calls: times, by size, the calls that a cache makes or saves (costs.h). */
#include "costs.h"

enum { BATCH = 64, STREAMS = 32, LEAST = 4 };
#define MIB          ((uint64_t)1 << 20)
#define MOST         (4096 * MIB)
#define SECONDS      0.7 /* limit for a group of calls of one size */
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Returns how many blocks of this size to hold at once: at most BATCH, together at most MOST bytes
 * and a quarter of the free memory. */
static unsigned batch_of(uint64_t bytes) {
    size_t left, total;
    MUST(cu.cuMemGetInfo_v2(&left, &total));
    uint64_t fits = (left / 4 < MOST ? left / 4 : MOST) / bytes;
    return fits < BATCH ? (unsigned)fits : BATCH;
}

/* Passes of a group. The first is a warm-up. If the time limit passes, fewer are made, but at least
 * LEAST. */
typedef struct {
    unsigned done, most;
    double end;
} passes_t;

static passes_t begin(unsigned passes) {
    return (passes_t){.most = passes, .end = costs_wall() + SECONDS * 1e9};
}

static bool next(passes_t *passes) {
    return passes->done <= passes->most && (passes->done < LEAST || costs_wall() < passes->end);
}

/* Ends a pass. Discards the figures of the first one. */
static void end_pass(passes_t *passes, costs_series_t *series, unsigned count) {
    for (unsigned i = 0; i < count && !passes->done; i++)
        series[i].count = 0;
    passes->done++;
}

static void print(const costs_series_t *series, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        costs_print(&series[i]);
}

/* ---------------------------------------------------------------- cuMemAlloc */

static void time_plain(uint64_t bytes, unsigned passes) {
    costs_series_t all[] = {{.call = "cuMemAlloc", .kind = "", .bytes = bytes},
                            {.call = "cuMemFree", .kind = "", .bytes = bytes}};
    unsigned batch = batch_of(bytes);
    CUdeviceptr at[BATCH];
    for (passes_t p = begin(passes); batch && next(&p);) {
        TIMED(&all[0], batch, cu.cuMemAlloc_v2(&at[i], bytes));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[1], batch, cu.cuMemFree_v2(at[i]));
        end_pass(&p, all, COUNT(all));
    }
    print(all, COUNT(all));
}

/* ---------------------------------------------------------------- cuMemAllocAsync */

static CUmemoryPool pool;

static void keep(uint64_t bytes) {
    cuuint64_t value = bytes;
    MUST(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
}

/* A hit gets memory that the pool kept.  A miss finds the pool empty.  Each miss is timed alone,
 * because the pool may take more from the device than one request needs. */
static void time_async(uint64_t bytes, unsigned passes) {
    costs_series_t all[] = {
        {.call = "cuMemAllocAsync", .kind = "", .bytes = bytes},
        {.call = "cuMemFreeAsync", .kind = "", .bytes = bytes},
        {.call = "cuMemAllocAsync", .kind = "pool miss", .bytes = bytes},
        {.call = "cuMemFreeAsync", .kind = "pool keeps nothing, and wait", .bytes = bytes},
    };
    unsigned batch = batch_of(bytes);
    CUdeviceptr at[BATCH];
    for (passes_t p = begin(passes); batch && next(&p);) {
        keep(UINT64_MAX);
        for (unsigned warm = 0; warm < 2; warm++) {
            if (warm)
                TIMED(&all[0], batch, cu.cuMemAllocAsync(&at[i], bytes, NULL));
            else
                for (unsigned i = 0; i < batch; i++)
                    MUST(cu.cuMemAllocAsync(&at[i], bytes, NULL));
            MUST(cu.cuCtxSynchronize());
            if (warm)
                TIMED(&all[1], batch, cu.cuMemFreeAsync(at[i], NULL));
            else
                for (unsigned i = 0; i < batch; i++)
                    MUST(cu.cuMemFreeAsync(at[i], NULL));
            MUST(cu.cuCtxSynchronize());
        }
        keep(0);
        MUST(cu.cuMemPoolTrimTo(pool, 0));
        TIMED(&all[2], 1, cu.cuMemAllocAsync(at, bytes, NULL));
        MUST(cu.cuCtxSynchronize());
        double from = costs_clock();
        MUST(cu.cuMemFreeAsync(*at, NULL));
        MUST(cu.cuStreamSynchronize(NULL));
        costs_add(&all[3], costs_clock() - from, 1);
        end_pass(&p, all, COUNT(all));
    }
    print(all, COUNT(all));
}

/* ---------------------------------------------------------------- memory in pages */

static const CUmemAllocationProp of_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};
static const CUmemAccessDesc read_write = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

static void time_pages(uint64_t bytes, unsigned passes) {
    costs_series_t all[] = {{.call = "cuMemAddressReserve", .kind = "", .bytes = bytes},
                            {.call = "cuMemCreate", .kind = "", .bytes = bytes},
                            {.call = "cuMemMap", .kind = "", .bytes = bytes},
                            {.call = "cuMemSetAccess", .kind = "", .bytes = bytes},
                            {.call = "cuMemUnmap", .kind = "", .bytes = bytes},
                            {.call = "cuMemRelease", .kind = "", .bytes = bytes},
                            {.call = "cuMemAddressFree", .kind = "", .bytes = bytes}};
    unsigned batch = batch_of(bytes);
    CUdeviceptr at[BATCH];
    CUmemGenericAllocationHandle page[BATCH];
    for (passes_t p = begin(passes); batch && next(&p);) {
        TIMED(&all[0], batch, cu.cuMemAddressReserve(&at[i], bytes, 0, 0, 0));
        TIMED(&all[1], batch, cu.cuMemCreate(&page[i], bytes, &of_device, 0));
        TIMED(&all[2], batch, cu.cuMemMap(at[i], bytes, 0, page[i], 0));
        TIMED(&all[3], batch, cu.cuMemSetAccess(at[i], bytes, &read_write, 1));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[4], batch, cu.cuMemUnmap(at[i], bytes));
        TIMED(&all[5], batch, cu.cuMemRelease(page[i]));
        TIMED(&all[6], batch, cu.cuMemAddressFree(at[i], bytes));
        end_pass(&p, all, COUNT(all));
    }
    print(all, COUNT(all));
}

/* Times calls over a range of `pages` pages.  Ranges of equal size show the cost of a page. */
static void time_range(uint64_t bytes, unsigned pages, const char *kind, unsigned passes) {
    costs_series_t all[] = {{.call = "cuMemSetAccess", .kind = kind, .bytes = bytes},
                            {.call = "cuMemUnmap", .kind = kind, .bytes = bytes}};
    uint64_t each = bytes / pages;
    CUmemGenericAllocationHandle page[BATCH];
    CUdeviceptr at;
    if (batch_of(bytes) == 0 || pages > BATCH)
        return;
    MUST(cu.cuMemAddressReserve(&at, bytes, 0, 0, 0));
    for (unsigned k = 0; k < pages; k++)
        MUST(cu.cuMemCreate(&page[k], each, &of_device, 0));
    for (passes_t p = begin(passes); next(&p);) {
        for (unsigned k = 0; k < pages; k++)
            MUST(cu.cuMemMap(at + k * each, each, 0, page[k], 0));
        TIMED(&all[0], 1, cu.cuMemSetAccess(at, bytes, &read_write, 1));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[1], 1, cu.cuMemUnmap(at, bytes));
        end_pass(&p, all, COUNT(all));
    }
    for (unsigned k = 0; k < pages; k++)
        MUST(cu.cuMemRelease(page[k]));
    MUST(cu.cuMemAddressFree(at, bytes));
    print(all, COUNT(all));
}

/* ---------------------------------------------------------------- events and streams */

static void time_events(unsigned passes) {
    costs_series_t all[] = {
        {.call = "cuEventCreate", .kind = ""},     {.call = "cuEventRecord", .kind = ""},
        {.call = "cuEventQuery", .kind = ""},      {.call = "cuEventSynchronize", .kind = ""},
        {.call = "cuStreamWaitEvent", .kind = ""}, {.call = "cuEventDestroy", .kind = ""},
        {.call = "cuStreamQuery", .kind = ""},     {.call = "cuStreamSynchronize", .kind = ""},
        {.call = "cuCtxSynchronize", .kind = ""},  {.call = "cuMemGetInfo", .kind = ""}};
    CUstream stream;
    CUevent event[BATCH];
    size_t left, total;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (passes_t p = begin(passes); next(&p);) {
        TIMED(&all[0], BATCH, cu.cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
        TIMED(&all[1], BATCH, cu.cuEventRecord(event[i], stream));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[2], BATCH, cu.cuEventQuery(event[i]));
        TIMED(&all[3], BATCH, cu.cuEventSynchronize(event[i]));
        TIMED(&all[4], BATCH, cu.cuStreamWaitEvent(stream, event[i], 0));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[5], BATCH, cu.cuEventDestroy_v2(event[i]));
        TIMED(&all[6], BATCH, cu.cuStreamQuery(stream));
        TIMED(&all[7], BATCH, cu.cuStreamSynchronize(stream));
        TIMED(&all[8], BATCH, cu.cuCtxSynchronize());
        TIMED(&all[9], BATCH, cu.cuMemGetInfo_v2(&left, &total));
        end_pass(&p, all, COUNT(all));
    }
    MUST(cu.cuStreamDestroy_v2(stream));
    print(all, COUNT(all));
}

/* Times the record of an event of the whole context while `streams` streams are open.  The driver
 * may have to visit each stream. */
static void time_context_event(unsigned streams, const char *kind, unsigned passes) {
    costs_series_t one = {.call = "cuCtxRecordEvent", .kind = kind};
    CUstream stream[STREAMS];
    CUevent event;
    if (!cu.cuCtxRecordEvent)
        return;
    MUST(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (unsigned k = 0; k < streams; k++) {
        MUST(cu.cuStreamCreate(&stream[k], CU_STREAM_NON_BLOCKING));
        MUST(cu.cuLaunchKernel(costs_noop, 1, 1, 1, 1, 1, 1, 0, stream[k], NULL, NULL));
    }
    MUST(cu.cuCtxSynchronize());
    bool works = !cu.cuCtxRecordEvent(costs_context, event);
    for (passes_t p = begin(passes); works && next(&p);) {
        TIMED(&one, BATCH, cu.cuCtxRecordEvent(costs_context, event));
        MUST(cu.cuCtxSynchronize());
        end_pass(&p, &one, 1);
    }
    for (unsigned k = 0; k < streams; k++)
        MUST(cu.cuStreamDestroy_v2(stream[k]));
    MUST(cu.cuEventDestroy_v2(event));
    print(&one, 1);
}

static void time_streams(unsigned passes) {
    costs_series_t all[] = {{.call = "cuStreamCreate", .kind = ""},
                            {.call = "cuLaunchKernel", .kind = ""},
                            {.call = "cuMemcpyAsync", .kind = ""},
                            {.call = "cuMemsetD8Async", .kind = ""},
                            {.call = "cuStreamDestroy", .kind = ""}};
    CUstream stream[STREAMS];
    CUdeviceptr at;
    MUST(cu.cuMemAlloc_v2(&at, 4096));
    for (passes_t p = begin(passes); next(&p);) {
        TIMED(&all[0], STREAMS, cu.cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        TIMED(&all[1], BATCH,
              cu.cuLaunchKernel(costs_noop, 1, 1, 1, 1, 1, 1, 0, *stream, NULL, NULL));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[2], BATCH, cu.cuMemcpyAsync(at, at + 2048, 16, *stream));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[3], BATCH, cu.cuMemsetD8Async(at, 0, 16, *stream));
        MUST(cu.cuCtxSynchronize());
        TIMED(&all[4], STREAMS, cu.cuStreamDestroy_v2(stream[i]));
        end_pass(&p, all, COUNT(all));
    }
    MUST(cu.cuMemFree_v2(at));
    print(all, COUNT(all));
}

/* ---------------------------------------------------------------- all of it */

void costs_calls(unsigned passes) {
    static const uint64_t plain[] = {512,     64 << 10, 1 * MIB,  2 * MIB,  4 * MIB,
                                     8 * MIB, 20 * MIB, 32 * MIB, 64 * MIB, 512 * MIB};
    time_events(passes);
    time_streams(passes);
    time_context_event(1, "", passes);
    time_context_event(STREAMS, "32 streams", passes);
    for (unsigned k = 0; k < COUNT(plain); k++)
        time_plain(plain[k], passes);
    CUdevice device;
    MUST(cu.cuDeviceGet(&device, 0));
    if (costs_pools && !cu.cuDeviceGetDefaultMemPool(&pool, device))
        for (unsigned k = 0; k < COUNT(plain); k++)
            time_async(plain[k], passes);
    for (unsigned k = 3; costs_vmm && k < COUNT(plain); k++)
        time_pages(plain[k], passes);
    if (costs_vmm) {
        time_range(64 * MIB, 1, "1 page", passes);
        time_range(64 * MIB, 8, "8 pages", passes);
        time_range(64 * MIB, 32, "32 pages", passes);
    }
}
