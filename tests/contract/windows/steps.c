/* steps CASE: a thread of a program acts between two steps that the library takes for another thread, on the
 * simulated device. The library of the tests calls back (shim/failpoint.h). Exit status 0: passed. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../../tools/simcuda/cudart/cuda_runtime_min.h"

#include "accelcache.h"
#include "harness.h"

#define MIB ((size_t)1 << 20)

/* Called by the library in each window. Runs the part in the window `at`, once. */
void ac_test_window(const char *name) __attribute__((visibility("default")));
static const char *at;
static void (*part)(void);

static void *run_part(void *unused) {
    test_device(0);
    part();
    return unused;
}

static void wait_for_part(void) {
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, run_part, NULL) == 0);
    NEED(pthread_join(thread, NULL) == 0);
}

static void (*_Atomic at_exit)(const char *name); /* called in every window, in any thread */

void ac_test_window(const char *name) {
    void (*exits)(const char *) = atomic_load(&at_exit);
    if (exits)
        exits(name);
    if (!at || strcmp(name, at) != 0)
        return;
    at = NULL;
    wait_for_part();
}

static void at_window(const char *name, void (*what)(void)) {
    part = what;
    at = name;
}

static CUdeviceptr taken(size_t bytes) {
    CUdeviceptr address = 0;
    MUST(cuMemAlloc_v2(&address, bytes));
    return address;
}

/* --- a call of the driver is out of memory, and another thread gives back what it lacked --- */

static accel_status_t (*empty_cache)(void);

static void give_back(void) {
    NEED(empty_cache() == ACCEL_OK);
}

static void given_back_by_another(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    NEED(test_find("accel_empty_cache", &empty_cache));
    MUST(cuMemFree_v2(taken(40 * MIB)));
    at_window("driver_is_full", give_back);
    GIVES(cuMemCreate(&handle, 40 * MIB, &prop, 0), CUDA_SUCCESS);
    NEED(!at);
    MUST(cuMemRelease(handle));
}

/* --- two threads find the program's only context at once: there is no other one for it to share with --- */

static void take_first(void) {
    MUST(cuMemFree_v2(taken(MIB)));
}

static void first_by_two(void) {
    const simcuda_kernel_t kernel = {.name = "waits", .duration_ns = 1000000};
    CUfunction function = test_kernel(&kernel);
    CUstream stream = test_stream();
    at_window("context_unknown", take_first);
    take_first();
    NEED(!at);
    CUdeviceptr used = taken(MIB);
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    long long before = test_figure("ordered_frees");
    MUST(cuMemFree_v2(used));
    NEED(test_figure("ordered_frees") == before + 1); /* the order of its only stream protects it */
}

/* Makes a request that fails. Memory returned before the call could not have helped it, so the library does
 * not repeat it. */
static void *ask_once(void *unused) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    unsigned long long calls = simcuda_calls("cuMemCreate");
    GIVES(cuMemCreate(&handle, 100 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(simcuda_calls("cuMemCreate") == calls + 1);
    return unused;
}

static void given_back_before(void) {
    pthread_t other;
    NEED(test_find("accel_empty_cache", &empty_cache));
    for (int i = 0; i < 2; i++) {
        MUST(cuMemFree_v2(taken(40 * MIB)));
        give_back();
        ask_once(NULL);
    }
    NEED(!pthread_create(&other, NULL, ask_once, NULL));
    pthread_join(other, NULL);
}

/* --- a block is freed while it is exported --- */

enum { WHOLE = 40 };
static CUdeviceptr whole;

static void free_and_share_out(void) {
    MUST(cuMemFree_v2(whole));
    for (int i = 0; i < 2; i++)
        taken(WHOLE / 4 * MIB);
}

/* The driver's handle opens the whole segment, including other blocks in it. */
static void freed_during_export(void) {
    CUipcMemHandle handle;
    whole = taken(WHOLE * MIB);
    at_window("segment_named", free_and_share_out);
    GIVES(cuIpcGetMemHandle(&handle, whole), CUDA_ERROR_INVALID_VALUE);
    NEED(!at);
}

/* If the export fails, no other process knows the segment, so it serves again. */
static void export_refused(void) {
    CUipcMemHandle handle;
    whole = taken(WHOLE * MIB);
    GIVES(cuIpcGetMemHandle(&handle, whole), CUDA_ERROR_MAP_FAILED); /* as ACCEL_SIM says */
    MUST(cuMemFree_v2(whole));
    EXPECT(taken(WHOLE * MIB) == whole && simcuda_calls("cuMemAlloc_v2") == 1);
    GIVES(cuIpcGetMemHandle(&handle, whole), CUDA_SUCCESS);
    MUST(cuMemFree_v2(whole));
    taken(WHOLE * MIB);
    EXPECT(simcuda_calls("cuMemAlloc_v2") == 2);
}

/* --- a block is freed while the library passes a call about it to the driver --- */

static void free_whole(void) {
    MUST(cuMemFree_v2(whole));
}

/* The driver sets the attribute of a freed block for the whole segment, so the segment must not serve other
 * blocks. */
static void freed_during_setting(void) {
    unsigned value = 1;
    for (unsigned part = 1; part <= 4; part *= 4) { /* the block is the whole segment, or a quarter of it */
        whole = taken(WHOLE / part * MIB);
        unsigned long long freed = simcuda_calls("cuMemFree_v2");
        at_window("attribute_set", free_whole);
        /* ACCEL_SIM makes this call succeed. */
        MUST(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, whole));
        NEED(!at);
        EXPECT(simcuda_calls("cuMemFree_v2") == freed + 1);
    }
}

/* --- two threads end one context --- */

static CUcontext later;
static CUdeviceptr memory;

/* Ends the primary context and makes 17 contexts. Records of ended contexts rest; the record of the primary
 * context, the oldest, serves the last one. */
static void end_and_go_on(void) {
    enum { RESTING = 16 };
    MUST(cuDevicePrimaryCtxReset_v2(0));
    for (int i = 0; i <= RESTING; i++) {
        MUST(cuCtxCreate_v2(&later, 0, 0));
        taken(MIB); /* so that the next block has no segment of its own */
        memory = taken(MIB);
        if (i < RESTING)
            MUST(cuCtxDestroy_v2(later));
    }
}

static void ended_twice(void) {
    MUST(cuMemFree_v2(taken(MIB)));
    at_window("contexts_found", end_and_go_on);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    NEED(!at);
    MUST(cuCtxSetCurrent(later));
    GIVES(cuMemFree_v2(memory), CUDA_SUCCESS);
    EXPECT(taken(MIB) == memory);
}

/* --- memory pools --- */

static CUmemoryPool pool, next_pool;

static CUmemoryPool pool_made(CUmemAllocationHandleType handles) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = handles,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool made;
    MUST(cuMemPoolCreate(&made, &props));
    return made;
}

/* Destroys the pool and makes another, which gets the library's free record. */
static void replace_pool(void) {
    MUST(cuMemPoolDestroy(pool));
    next_pool = pool_made(CU_MEM_HANDLE_TYPE_NONE);
}

static unsigned long long used_of(CUmemoryPool of) {
    unsigned long long used = 0;
    MUST(cuMemPoolGetAttribute(of, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    return used;
}

/* The device's current pool is destroyed during a request for its memory. The request must not use another
 * pool. */
static void destroyed_at(const char *window) {
    CUdeviceptr block;
    pool = pool_made(CU_MEM_HANDLE_TYPE_NONE);
    MUST(cuDeviceSetMemPool(0, pool));
    MUST(cuMemAllocAsync(&block, MIB, NULL));
    MUST(cuMemFreeAsync(block, NULL));
    MUST(cuStreamSynchronize(NULL));
    at_window(window, replace_pool);
    GIVES(cuMemAllocAsync(&block, MIB, NULL), CUDA_SUCCESS);
    NEED(!at);
    EXPECT(used_of(next_pool) == 0);
    MUST(cuMemFreeAsync(block, NULL));
    MUST(cuStreamSynchronize(NULL));
    EXPECT(used_of(next_pool) == 0);
}

static void pool_destroyed_when_found(void) {
    destroyed_at("pool_found");
}

static void pool_destroyed_when_claimed(void) {
    destroyed_at("pool_sure");
}

/* Requests too much. The device is full, so pools served by the driver give back their idle memory. */
static void ask_too_much(void) {
    CUdeviceptr block;
    GIVES(cuMemAlloc_v2(&block, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

static void named_while_destroyed(void) {
    CUdeviceptr block;
    taken(64 * MIB);
    pool = pool_made(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    MUST(cuMemAllocFromPoolAsync(&block, MIB, pool, NULL));
    MUST(cuMemFreeAsync(block, NULL));
    ask_too_much();
    unsigned long long trims = simcuda_calls("cuMemPoolTrimTo");
    EXPECT(trims > 0);
    at_window("pool_destroying", ask_too_much);
    GIVES(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    EXPECT(!at && simcuda_calls("cuMemPoolTrimTo") == trims);
}

/* Gives another device access to the pool, which is still empty. */
static void let_device_in(void) {
    CUmemAccessDesc reader = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemPoolSetAccess(pool, &reader, 1));
    EXPECT(simcuda_calls("cuCtxEnablePeerAccess") == 0);
}

/* A hit of the runtime's cudaMallocAsync comes from this pool, with a size that no lane keeps. */
static void reader_beside_hit(void) {
    void *block;
    CUstream stream;
    test_device(1);
    NEED(cudaSetDevice(0) == cudaSuccess);
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 4; i++) {
        NEED(cudaMallocAsync(&block, MIB, stream) == cudaSuccess);
        NEED(cudaFreeAsync(block, stream) == cudaSuccess);
    }
    unsigned long long asked = simcuda_calls_total();
    at_window("pool_sure", let_device_in);
    NEED(cudaMallocAsync(&block, MIB / 2, stream) == cudaSuccess);
    NEED(!at && simcuda_calls_total() > asked);
    EXPECT(simcuda_calls("cuCtxEnablePeerAccess") > 0);
}

/* A thread is about to take a block from its lane when another thread gives the device access. That thread
 * must wait until the block is visible. */
static pthread_t lane_owner, lane_reader;
static _Atomic bool lane_found, lane_may_go;

static void *let_device_in_beside(void *unused) {
    test_device(0);
    CUmemAccessDesc reader = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemPoolSetAccess(pool, &reader, 1));
    atomic_store(&lane_may_go, true);
    return unused;
}

static void beside_lane(const char *name) {
    if (!pthread_equal(pthread_self(), lane_owner)) {
        if (!strcmp(name, "barrier_heavy")) /* the other thread reads which threads are in a cache */
            atomic_store(&lane_may_go, true);
    } else if (!strcmp(name, "lane_serves") && !atomic_exchange(&lane_found, true)) {
        NEED(!pthread_create(&lane_reader, NULL, let_device_in_beside, NULL));
        while (!atomic_load(&lane_may_go)) /* or the test's limit ends it */
            sched_yield();
    }
}

static void reader_beside_lane(void) {
    CUdeviceptr block;
    test_device(1);
    test_device(0);
    CUstream stream = test_stream();
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < 4; i++) {
        MUST(cuMemAllocAsync(&block, MIB, stream));
        MUST(cuMemFreeAsync(block, stream));
    }
    NEED(simcuda_calls("cuMemAllocAsync") == 0);
    lane_owner = pthread_self();
    atomic_store(&at_exit, beside_lane);
    MUST(cuMemAllocAsync(&block, MIB, stream));
    NEED(atomic_load(&lane_found) && simcuda_calls("cuMemAllocAsync") == 0);
    NEED(!pthread_join(lane_reader, NULL));
    EXPECT(simcuda_calls("cuCtxEnablePeerAccess") > 0);
}

/* --- a block waits after its free; it is freed again while another thread reads its record --- */

static accel_status_t (*raw_delete)(void *);
static void *late;

static void free_late_again(void) {
    GIVES(raw_delete(late), ACCEL_ERROR_DOUBLE_FREE);
}

/* A call without a record frees the block, and another owner gets its memory. */
static accel_status_t (*malloc_async)(void **, size_t, void *), (*free_async)(void *, void *);
static void *late_stream, *next_owner;

static void hand_late_on(void) {
    GIVES(free_async(late, late_stream), ACCEL_OK);
    GIVES(malloc_async(&next_owner, MIB, late_stream), ACCEL_OK);
    NEED(next_owner == late);
}

/* Calls `meanwhile` while a thread reads the record of a block that waits after its free. */
static void look_at_late(void (*meanwhile)(void)) {
    accel_status_t (*enable)(int), (*record)(void *, void *);
    accel_status_t (*alloc)(void **, size_t, void *);
    accel_deleter_t (*deleter)(void);
    CUgraph graph;
    CUstream stream = test_stream(), other = test_stream();
    NEED(test_find("accel_enable", &enable) && test_find("accel_record_stream", &record) &&
         test_find("accel_raw_alloc_with_stream", &alloc) && test_find("accel_raw_deleter", &deleter) &&
         test_find("accel_raw_delete", &raw_delete) && test_find("accel_empty_cache", &empty_cache) &&
         test_find("accel_malloc_async", &malloc_async) && test_find("accel_free_async", &free_async));
    late_stream = stream;
    NEED(enable(0) == ACCEL_OK && alloc(&late, MIB, stream) == ACCEL_OK && record(late, other) == ACCEL_OK);
    MUST(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    deleter()(late);
    MUST(cuStreamEndCapture(other, &graph));
    at_window("late_looked_at", meanwhile);
    give_back();
    EXPECT(!at);
}

static void late_freed_again(void) {
    unsigned long long freed = simcuda_calls("cuMemFree_v2");
    look_at_late(free_late_again);
    EXPECT(simcuda_calls("cuMemFree_v2") == freed + 1);
    EXPECT(raw_delete(late) != ACCEL_OK);
}

static void late_handed_on(void) {
    look_at_late(hand_late_on);
    GIVES(free_async(next_owner, late_stream), ACCEL_OK);
}

/* --- a private pool goes, and another thread asks for its memory before it has gone back --- */

static accel_status_t (*pool_create)(unsigned, const accel_allocator_t *, accel_pool_id_t *);
static accel_status_t (*pool_begin)(int, accel_pool_id_t, int (*)(void *, void *), void *);
static accel_status_t (*pool_end)(int, accel_pool_id_t), (*pool_release)(accel_pool_id_t);
static accel_status_t (*raw_alloc)(void **, size_t);
static pthread_t asker;

static void *ask_pool(void *answer) {
    void *memory;
    test_device(0);
    *(accel_status_t *)answer = raw_alloc(&memory, 80 * MIB);
    return NULL;
}

static accel_status_t asked;

static void ask_while_cut(const char *name) {
    enum { AHEAD_NS = 30000000 };
    if (strcmp(name, "segments_cut") != 0)
        return;
    at_exit = NULL;
    NEED(!pthread_create(&asker, NULL, ask_pool, &asked));
    nanosleep(&(struct timespec){.tv_nsec = AHEAD_NS}, NULL);
}

static accel_pool_id_t opened(void) {
    accel_pool_id_t made;
    NEED(pool_create(0, NULL, &made) == ACCEL_OK && pool_begin(0, made, NULL, NULL) == ACCEL_OK);
    return made;
}

static void asked_while_cut(void) {
    void *memory;
    NEED(test_find("accel_pool_create", &pool_create) && test_find("accel_pool_release", &pool_release) &&
         test_find("accel_begin_allocate_to_pool", &pool_begin) && test_find("accel_raw_alloc", &raw_alloc) &&
         test_find("accel_end_allocate_to_pool", &pool_end) && test_find("accel_raw_delete", &raw_delete));
    accel_pool_id_t first = opened();
    GIVES(raw_alloc(&memory, 80 * MIB), ACCEL_OK);
    GIVES(raw_delete(memory), ACCEL_OK);
    NEED(pool_end(0, first) == ACCEL_OK && pool_release(first) == ACCEL_OK);
    opened();
    asked = ACCEL_ERROR_INVALID;
    at_exit = ask_while_cut;
    GIVES(pool_release(first), ACCEL_OK);
    NEED(!at_exit && !pthread_join(asker, NULL));
    EXPECT(asked == ACCEL_OK);
}

/* --- metrics are removed at exit, while a thread writes them --- */

static const char *writer_stops_at, *metrics_file;
static _Atomic bool writer_stopped, writer_done, removed;

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Stops the writer in the window until the metrics are removed, or for a while if it holds the lock. A file
 * that it writes later must not stay. */
static void remove_beside_writer(const char *name) {
    enum { PATIENCE = 300 };
    if (!strcmp(name, writer_stops_at) && !atomic_exchange(&writer_stopped, true)) {
        for (int i = 0; i < PATIENCE && !atomic_load(&removed); i++)
            nap();
    } else if (!strcmp(name, "dump_ended")) {
        atomic_store(&writer_done, atomic_load(&writer_stopped));
    } else if (!strcmp(name, "metrics_removed")) {
        atomic_store(&removed, true);
        while (!atomic_load(&writer_done)) /* or the test's limit ends it */
            nap();
        EXPECT(access(metrics_file, F_OK) != 0);
    }
}

static void exit_beside_writer(const char *window) {
    metrics_file = strrchr(getenv("ACCEL_ALLOC_CONF"), ':') + 1;
    unlink(metrics_file);
    taken(MIB);
    while (access(metrics_file, F_OK) != 0)
        nap();
    writer_stops_at = window;
    atomic_store(&at_exit, remove_beside_writer);
    while (!atomic_load(&writer_stopped))
        nap();
}

static void removed_before_metrics(void) {
    exit_beside_writer("dump_begins");
}

static void removed_beside_metrics(void) {
    exit_beside_writer("metrics_wanted");
}

/* --- a capture begins right after the library found none --- */

enum { IN_ORDER = 4 };
static CUdeviceptr named_by_graph;
static CUstream captured;
static CUgraph graph;

static void capture_use(void) {
    MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(named_by_graph, 1, MIB, captured));
}

/* The thread must not use the old result for its next frees. */
static void captured_beside_free(void) {
    CUstream stream = test_stream();
    CUdeviceptr block[IN_ORDER];
    captured = test_stream();
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < IN_ORDER; i++)
            MUST(cuMemAllocAsync(&block[i], MIB, stream));
        for (int i = 0; i < IN_ORDER && round < 3; i++)
            MUST(cuMemFreeAsync(block[i], stream));
    }
    named_by_graph = block[IN_ORDER - 1];
    MUST(cuStreamDestroy_v2(test_stream())); /* makes the threads drop their cached facts */
    at_window("lane_asked", capture_use);
    MUST(cuMemFreeAsync(block[0], stream));
    NEED(!at);
    MUST(cuMemAllocAsync(&block[0], MIB, stream)); /* the thread knows its context again */
    MUST(cuMemFreeAsync(named_by_graph, stream));
    for (int i = 0; i < IN_ORDER - 1; i++) {
        MUST(cuMemAllocAsync(&block[i], MIB, stream));
        EXPECT(block[i] != named_by_graph);
    }
    MUST(cuStreamEndCapture(captured, &graph));
    MUST(cuGraphDestroy(graph));
}

/* Tests cudaFree while several streams have work. */
static void captured_beside_fast_free(void) {
    CUstream stream[2] = {test_stream(), test_stream()};
    void *block[IN_ORDER], *again;
    captured = test_stream();
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < IN_ORDER; i++)
            NEED(cudaMalloc(&block[i], MIB) == cudaSuccess);
        for (int i = 0; i < 2; i++)
            MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)block[i], 1, MIB, stream[i]));
        for (int i = 0; i < IN_ORDER && round < 3; i++)
            NEED(cudaFree(block[i]) == cudaSuccess);
        MUST(cuCtxSynchronize());
    }
    named_by_graph = (CUdeviceptr)(uintptr_t)block[IN_ORDER - 1];
    MUST(cuStreamDestroy_v2(test_stream()));
    NEED(cudaMalloc(&again, MIB) == cudaSuccess); /* the runtime's context is known again */
    at_window("server_found", capture_use);
    NEED(cudaFree(block[0]) == cudaSuccess);
    NEED(!at);
    for (int i = 1; i < IN_ORDER; i++) /* the graph names the last one */
        NEED(cudaFree(block[i]) == cudaSuccess);
    MUST(cuStreamEndCapture(captured, &graph));
    MUST(cuCtxSynchronize());
    for (int i = 0; i < 2 * IN_ORDER; i++) {
        NEED(cudaMalloc(&again, MIB) == cudaSuccess);
        EXPECT((CUdeviceptr)(uintptr_t)again != named_by_graph);
    }
    MUST(cuGraphDestroy(graph));
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"given_back_by_another", given_back_by_another},
    {"given_back_before", given_back_before},
    {"first_by_two", first_by_two},
    {"freed_during_export", freed_during_export},
    {"export_refused", export_refused},
    {"freed_during_setting", freed_during_setting},
    {"ended_twice", ended_twice},
    {"pool_destroyed_when_found", pool_destroyed_when_found},
    {"pool_destroyed_when_claimed", pool_destroyed_when_claimed},
    {"named_while_destroyed", named_while_destroyed},
    {"captured_beside_free", captured_beside_free},
    {"captured_beside_fast_free", captured_beside_fast_free},
    {"reader_beside_hit", reader_beside_hit},
    {"reader_beside_lane", reader_beside_lane},
    {"late_freed_again", late_freed_again},
    {"late_handed_on", late_handed_on},
    {"asked_while_cut", asked_while_cut},
    {"removed_before_metrics", removed_before_metrics},
    {"removed_beside_metrics", removed_beside_metrics},
};

int main(int argc, char **argv) {
    for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            test_title = argv[1];
            test_device(0);
            cases[i].run();
            return TEST_GOOD;
        }
    fprintf(stderr, "usage: steps CASE\n");
    return TEST_USAGE;
}
