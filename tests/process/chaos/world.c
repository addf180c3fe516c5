/* The world that the programs run on (chaos.h). */
#include <string.h>

#include "accelcache.h"
#include "chaos.h"

world_t world;

/* The library's own functions, absent in a run without it. */
static struct {
    accel_status_t (*stats)(int, accel_device_stats_t *);
    accel_status_t (*record_stream)(void *, void *);
    accel_status_t (*empty_cache)(void);
} accel;

static unsigned last_value;

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry store(.param .u64 to, .param .u32 value) { ret; }";

static bool start_device(int d) {
    CUmodule module;
    return TWICE(cuDevicePrimaryCtxRetain, &world.ctx[d], d) && world_go(d) &&
           TWICE(cuModuleLoadData, &module, ptx) &&
           TWICE(cuModuleGetFunction, &world.store[d], module, "store");
}

bool world_start(int devices) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_access_t access = {0, -1, sizeof(unsigned), 1};
    static const simcuda_kernel_t kernel = {"store", test_store, 20000, 2, sizes, 1, &access};
    memset(&world, 0, sizeof world);
    world.here = -1;
    test_find("accel_get_device_stats", &accel.stats);
    test_find("accel_record_stream", &accel.record_stream);
    test_find("accel_empty_cache", &accel.empty_cache);
    world.library = accel.stats && accel.record_stream && accel.empty_cache;
    simcuda_register_kernel(&kernel);
    if (!TWICE(cuInit, 0))
        return false;
    for (int d = devices; d-- > 0;)
        if (!start_device(d))
            return false;
    return true;
}

bool world_go(int device) {
    bool went = world.ctx[device] && TWICE(cuCtxSetCurrent, world.ctx[device]);
    if (went)
        world.here = device;
    return went;
}

void world_streams(int n, unsigned flags) {
    for (int i = 0; i < n; i++)
        if (!CALL(cuStreamCreate, &world.stream[i], flags))
            world.stream[i] = NULL;
    for (int i = 0; i < 2; i++)
        if (!CALL(cuEventCreate, &world.event[i], CU_EVENT_DISABLE_TIMING))
            world.event[i] = NULL;
}

void wait_all(void) {
    if (!note("cuCtxSynchronize", __LINE__, cuCtxSynchronize()))
        note("cuCtxSynchronize", __LINE__, cuCtxSynchronize());
}

/* Returns false if the previous block could not be freed. */
static bool begin(int i, size_t bytes, bool ordered) {
    if (world.block[i].there)
        return false;
    world.block[i] = (block_t){.bytes = bytes, .device = world.here, .ordered = ordered};
    return true;
}

void block_get(int i, size_t bytes) {
    if (begin(i, bytes, false))
        world.block[i].there = CALL(cuMemAlloc_v2, &world.block[i].address, bytes);
}

void block_get_async(int i, size_t bytes, CUstream stream) {
    if (begin(i, bytes, true) && stream)
        world.block[i].there = CALL(cuMemAllocAsync, &world.block[i].address, bytes, stream);
}

void block_use(int i, CUstream stream) {
    block_t *b = &world.block[i];
    unsigned value = last_value + 1;
    void *params[] = {&b->address, &value};
    if (!b->there || !stream)
        return;
    if (CALL(cuLaunchKernel, world.store[world.here], 1, 1, 1, 1, 1, 1, 0, stream, params,
             NULL) &&
        !world.capturing)
        b->value = last_value = value;
}

void block_give(int i) {
    if (world.block[i].there && world.block[i].ordered)
        wait_all();
    if (world.block[i].there)
        world.block[i].there = !TWICE(cuMemFree_v2, world.block[i].address);
}

void block_give_async(int i, CUstream stream) {
    block_t *b = &world.block[i];
    if (b->there && stream && CALL(cuMemFreeAsync, b->address, stream))
        b->there = false;
    block_give(i);
}

void stream_order(CUstream from, CUstream to) {
    if (!from || !to)
        return;
    if (!world.event[0] || !CALL(cuEventRecord, world.event[0], from) ||
        !CALL(cuStreamWaitEvent, to, world.event[0], 0))
        TWICE(cuStreamSynchronize, from);
}

static void check_values(int device) {
    unsigned value;
    for (int i = 0; i < BLOCKS; i++) {
        const block_t *b = &world.block[i];
        if (b->there && b->value && b->device == device &&
            CALL(cuMemcpyDtoH_v2, &value, b->address, sizeof value) && value != b->value)
            wrong("block %d holds %u, %u was written", i, value, b->value);
    }
}

/* Compares the library's statistics with the program's blocks that the cache serves. The query
 * has a cost: a later free of the block waits for a fence. */
static void check_statistics(int device) {
    accel_device_stats_t stats = {.size = sizeof stats};
    int64_t blocks = 0, bytes = 0;
    if (!world.library ||
        (accel.stats(device, &stats) != ACCEL_OK && accel.stats(device, &stats) != ACCEL_OK)) {
        if (world.library)
            wrong("no statistics of device %d", device);
        return;
    }
    for (int i = 0; i < BLOCKS; i++) {
        const block_t *b = &world.block[i];
        void *address = (void *)(uintptr_t)b->address;
        if (b->there && b->device == device && accel.record_stream(address, NULL) == ACCEL_OK) {
            blocks++;
            bytes += (int64_t)b->bytes;
        }
    }
    if (stats.allocation.all.current != blocks)
        wrong("device %d: %lld blocks by the statistics, the program holds %lld", device,
              (long long)stats.allocation.all.current, (long long)blocks);
    if (stats.allocated_bytes.all.current < bytes ||
        stats.active_bytes.all.current < stats.allocated_bytes.all.current ||
        stats.reserved_bytes.all.current < stats.active_bytes.all.current ||
        stats.requested_bytes.all.current < bytes)
        wrong("device %d: %lld bytes requested, %lld allocated, %lld active, %lld reserved; the "
              "program holds %lld",
              device, (long long)stats.requested_bytes.all.current,
              (long long)stats.allocated_bytes.all.current,
              (long long)stats.active_bytes.all.current,
              (long long)stats.reserved_bytes.all.current, (long long)bytes);
}

void world_check(void) {
    int home = world.here;
    for (int d = 0; d < DEVICES; d++)
        if (world.ctx[d] && world_go(d))
            wait_all();
    for (int d = 0; d < DEVICES; d++) {
        if (!world.ctx[d] || !world_go(d))
            continue;
        check_values(d);
        check_statistics(d);
    }
    if (home >= 0)
        world_go(home);
}

void world_finish(void) {
    world_check();
    for (int i = 0; i < BLOCKS; i++)
        block_give(i);
    if (world.library && accel.empty_cache() != ACCEL_OK)
        wrong("accel_empty_cache refused");
    for (int i = 0; i < STREAMS; i++) {
        if (world.stream[i])
            TWICE(cuStreamDestroy_v2, world.stream[i]);
        world.stream[i] = NULL;
    }
    for (int i = 0; i < 2; i++) {
        if (world.event[i])
            TWICE(cuEventDestroy_v2, world.event[i]);
        world.event[i] = NULL;
    }
}

#define EMPTY(name)                                                                              \
    if (stats.name.current)                                                                      \
    wrong("device %d: " #name " is %lld in the end", device, (long long)stats.name.current)

static void check_zero(int device) {
    accel_device_stats_t stats = {.size = sizeof stats};
    if (accel.stats(device, &stats) != ACCEL_OK) {
        wrong("no statistics of device %d in the end", device);
        return;
    }
    EMPTY(allocated_bytes.all);
    EMPTY(reserved_bytes.all);
    EMPTY(active_bytes.all);
    EMPTY(requested_bytes.all);
    EMPTY(allocation.all);
    EMPTY(segment.all);
    EMPTY(active.all);
    EMPTY(inactive_split.all);
    EMPTY(inactive_split_bytes.all);
    EMPTY(oversize_allocations);
    EMPTY(oversize_segments);
}

void world_check_empty(void) {
    unsigned long long bytes, count;
    world_check();
    if (world.library) {
        if (accel.empty_cache() != ACCEL_OK)
            wrong("accel_empty_cache refused in the end");
        for (int d = 0; d < DEVICES; d++)
            if (world.ctx[d])
                check_zero(d);
    }
    count = simcuda_live_allocations(&bytes);
    if (count)
        wrong("%llu allocations of %llu bytes are left", count, bytes);
}

void world_end(void) {
    for (int i = 0; i < BLOCKS; i++)
        if (world.block[i].there) /* in a broken context: the block ends with it */
            simcuda_owner_end(world.block[i].address);
    for (int d = 0; d < DEVICES; d++) {
        if (!world.ctx[d])
            continue;
        TWICE(cuDevicePrimaryCtxRelease_v2, d);
        if (world.library)
            check_zero(d);
    }
}
