/* A limit of 256 MiB on devices of 1 GiB.
 *
 * usage: limits CASE (a name of the table at the end).  Exit status 0: as it should be. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accelcache.h"
#include "harness.h"

#define MIB ((size_t)1 << 20)
enum { LIMIT = 256, MEMORY = 1024, PART = 64, PARTS = LIMIT / PART };

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static unsigned long long figure(const char *name) {
    static accel_status_t (*stats)(char **);
    char key[64], *json = NULL;
    NEED(test_find("accel_stats_json", &stats) && stats(&json) == ACCEL_OK && json);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(json, key);
    NEED(at);
    unsigned long long value = strtoull(at + strlen(key), NULL, 10);
    free(json);
    return value;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t mib) {
    return cuMemCreate(handle, mib * MIB, &on_device, 0);
}

static void used_is(size_t mib) {
    EXPECT(simcuda_used_memory(0) == mib * MIB);
}

static void told_free(size_t mib) {
    size_t available, total;
    MUST(cuMemGetInfo_v2(&available, &total));
    EXPECT(available == mib * MIB);
}

/* --- physical memory --- */

static void physical(void) {
    CUmemGenericAllocationHandle handle[PARTS + 1];
    CUdeviceptr p;
    for (int i = 0; i < PARTS; i++)
        GIVES(create(&handle[i], PART), CUDA_SUCCESS);
    GIVES(create(&handle[PARTS], PART), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(create(&handle[PARTS], 2), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAlloc_v2(&p, MIB), CUDA_ERROR_OUT_OF_MEMORY);
    used_is(LIMIT);
    EXPECT(figure("physical_bytes") == LIMIT * MIB);
    MUST(cuMemRelease(handle[0]));
    GIVES(cuMemAlloc_v2(&p, PART * MIB), CUDA_SUCCESS);
    GIVES(create(&handle[0], 2), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(simcuda_used_memory(0) <= LIMIT * MIB);
    MUST(cuMemFree_v2(p)); /* the cache's idle memory goes back to the device */
    GIVES(create(&handle[0], PART), CUDA_SUCCESS);
    for (int i = 0; i < PARTS; i++)
        MUST(cuMemRelease(handle[i]));
    EXPECT(figure("physical_bytes") == 0);
}

/* A handle counts once, until its last reference and its last mapping are gone. */
static void handles(void) {
    CUmemGenericAllocationHandle handle, again, more;
    CUmemAccessDesc access = {on_device.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    MUST(create(&handle, 200));
    MUST(cuMemAddressReserve(&at, 400 * MIB, 0, 0, 0));
    MUST(cuMemMap(at, 200 * MIB, 0, handle, 0));
    MUST(cuMemMap(at + 200 * MIB, 200 * MIB, 0, handle, 0));
    MUST(cuMemSetAccess(at, 400 * MIB, &access, 1));
    MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
    EXPECT(figure("physical_bytes") == 200 * MIB);
    MUST(cuMemRelease(handle));
    GIVES(create(&more, 100), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemRelease(again));
    GIVES(create(&more, 100), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemUnmap(at, 200 * MIB));
    GIVES(create(&more, 100), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemUnmap(at + 200 * MIB, 200 * MIB));
    GIVES(create(&more, 100), CUDA_SUCCESS);
    used_is(100);
    MUST(cuMemMap(at, 100 * MIB, 0, more, 0));
    MUST(cuMemSetAccess(at, 100 * MIB, &access, 1));
    MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
    MUST(cuMemRelease(more));
    MUST(cuMemUnmap(at, 100 * MIB));
    GIVES(create(&more, 200), CUDA_ERROR_OUT_OF_MEMORY); /* one handle is left */
    MUST(cuMemRelease(again));
    GIVES(create(&more, 200), CUDA_SUCCESS);
    used_is(200);
}

/* --- arrays --- */

static void arrays(void) {
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 8192, .Height = 8192, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUDA_ARRAY3D_DESCRIPTOR space = {
        .Width = 512, .Height = 512, .Depth = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array[2];
    CUdeviceptr p;
    MUST(cuArrayCreate_v2(&array[0], &plane));
    MUST(cuArray3DCreate_v2(&array[1], &space));
    EXPECT(figure("array_bytes") == 2 * PART * MIB);
    GIVES(cuMemAlloc_v2(&p, 130 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    space.Depth = 192;
    CUarray more;
    GIVES(cuArray3DCreate_v2(&more, &space), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuArrayDestroy(array[0]));
    GIVES(cuArray3DCreate_v2(&more, &space), CUDA_SUCCESS);
    plane.Height *= 2;
    GIVES(cuArrayCreate_v2(&array[0], &plane), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(figure("array_bytes") == LIMIT * MIB);
}

/* --- pools --- */

/* Makes a pool that other processes could open. The driver serves it. */
static CUmemoryPool driver_pool(void) {
    CUmemoryPool pool;
    unsigned long long all = UINT64_MAX;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = on_device.location};
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    return pool;
}

static void pools(void) {
    CUmemoryPool pool = driver_pool();
    CUstream stream = test_stream();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p[PARTS + 1];
    for (int i = 0; i < PARTS; i++)
        GIVES(cuMemAllocFromPoolAsync(&p[i], PART * MIB, pool, stream), CUDA_SUCCESS);
    GIVES(cuMemAllocFromPoolAsync(&p[PARTS], PART * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(create(&handle, 2), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(figure("driver_pool_bytes") == LIMIT * MIB);
    MUST(cuMemFreeAsync(p[0], stream));
    MUST(cuStreamSynchronize(stream));
    /* The pool keeps freed memory, and a request to the pool gets it. */
    GIVES(cuMemAllocFromPoolAsync(&p[0], PART * MIB, pool, stream), CUDA_SUCCESS);
    MUST(cuMemFreeAsync(p[0], stream));
    MUST(cuStreamSynchronize(stream));
    /* A request of another kind makes the pool give its idle memory back. */
    GIVES(create(&handle, PART), CUDA_SUCCESS);
    used_is(LIMIT);
    GIVES(cuMemAllocFromPoolAsync(&p[0], 2 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemRelease(handle));
    GIVES(cuMemAlloc_v2(&p[0], PART * MIB), CUDA_SUCCESS);
    GIVES(cuMemAllocAsync(&p[PARTS], 10 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Memory of a destroyed pool counts until it is freed. */
static void destroyed(void) {
    CUmemoryPool pool = driver_pool();
    CUstream stream = test_stream();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p[2];
    for (int i = 0; i < 2; i++)
        MUST(cuMemAllocFromPoolAsync(&p[i], PART * MIB, pool, stream));
    MUST(cuMemFreeAsync(p[1], stream));
    MUST(cuMemPoolDestroy(pool));
    GIVES(create(&handle, LIMIT - PART + 2), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemFreeAsync(p[0], stream));
    MUST(cuStreamSynchronize(stream));
    GIVES(create(&handle, LIMIT), CUDA_SUCCESS);
    used_is(LIMIT);
}

static void graphs(void) {
    CUstream stream = test_stream();
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUmemGenericAllocationHandle handle;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_device.location},
        .bytesize = 2 * PART * MIB};
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    GIVES(create(&handle, 3 * PART), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(figure("driver_pool_bytes") == 2 * PART * MIB);
    CUdeviceptr p;
    GIVES(cuMemAlloc_v2(&p, 3 * PART * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(create(&handle, 2 * PART), CUDA_SUCCESS);
}

/* --- idle memory goes back first, and a request waits for pending work --- */

static void idle(void) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    MUST(cuMemAlloc_v2(&p, 200 * MIB));
    MUST(cuMemFree_v2(p));
    GIVES(create(&handle, 200), CUDA_SUCCESS);
    used_is(200);
    MUST(cuMemRelease(handle));
    MUST(cuMemAlloc_v2(&p, 96 * MIB)); /* whole pages */
    GIVES(create(&handle, 200), CUDA_ERROR_OUT_OF_MEMORY);
    told_free(LIMIT - 96);
}

static void waits(void) {
    CUfunction late = test_kernel(&(simcuda_kernel_t){.name = "late", .duration_ns = 5000000});
    CUstream stream = test_stream();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    MUST(cuMemAlloc_v2(&p, 200 * MIB));
    MUST(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuMemFree_v2(p));
    GIVES(create(&handle, 200), CUDA_SUCCESS);
    EXPECT(simcuda_pending_work() == 0);
}

/* With ipc:native the driver serves small requests. */
static void passed(void) {
    enum { COUNT = LIMIT };
    static CUdeviceptr p[COUNT + 1];
    CUmemGenericAllocationHandle handle;
    for (int i = 0; i < COUNT; i++)
        GIVES(cuMemAlloc_v2(&p[i], MIB), CUDA_SUCCESS);
    EXPECT(figure("driver_bytes") == LIMIT * MIB);
    GIVES(cuMemAlloc_v2(&p[COUNT], MIB), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(create(&handle, 2), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAlloc_v2(&p[COUNT], 4 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < 4; i++)
        MUST(cuMemFree_v2(p[i]));
    GIVES(cuMemFree_v2(p[0]), CUDA_ERROR_INVALID_VALUE);
    EXPECT(figure("driver_bytes") == (LIMIT - 4) * MIB);
    GIVES(create(&handle, 4), CUDA_SUCCESS);
}

/* Memory stops counting when its context ends. */
static void lost(void) {
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 8192, .Height = 8192, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUcontext context;
    CUarray array;
    CUdeviceptr p;
    CUmemGenericAllocationHandle handle;
    MUST(cuCtxCreate_v2(&context, 0, 0));
    MUST(cuArrayCreate_v2(&array, &plane));
    MUST(cuMemAlloc_v2(&p, PART * MIB));
    GIVES(create(&handle, LIMIT), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuCtxDestroy_v2(context));
    test_device(0);
    GIVES(create(&handle, LIMIT), CUDA_SUCCESS);
    used_is(LIMIT);
}

static void uncounted(void) {
    CUmemAllocationProp prop = on_device;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr p;
    void *host;
    prop.location.id = 1;
    GIVES(cuMemCreate(&handle, LIMIT * MIB, &prop, 0), CUDA_SUCCESS); /* a limit of its own */
    GIVES(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemAllocManaged(&p, 2 * PART * MIB, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemHostAlloc(&host, 2 * PART * MIB, CU_MEMHOSTALLOC_DEVICEMAP));
    GIVES(create(&handle, LIMIT), CUDA_SUCCESS);
}

/* If the driver refuses the arguments, the program gets the driver's answer, even beyond the
 * limit. */
static void wrong(void) {
    CUDA_ARRAY_DESCRIPTOR plane = {
        .Width = 8192, .Height = 8192, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 3};
    CUmemAllocationProp prop = on_device;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUdeviceptr p = 7;
    MUST(create(&handle, LIMIT));
    GIVES(cuMemCreate(&handle, 3 * MIB / 2, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(&handle, 0, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(NULL, 2 * MIB, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(&handle, 2 * MIB, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemCreate(&handle, 2 * MIB, &on_device, 1), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = 5;
    EXPECT(cuMemCreate(&handle, 2 * MIB, &prop, 0) != CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAlloc_v2(NULL, MIB), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuArrayCreate_v2(&array, &plane), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuArrayCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
    plane.NumChannels = 1;
    GIVES(cuArrayCreate_v2(NULL, &plane), CUDA_ERROR_INVALID_VALUE);
    EXPECT(p == 7);
}

/* --- free and total memory --- */

static void tells(size_t limit, size_t total_mib) {
    CUmemGenericAllocationHandle handle;
    size_t available, total = 0;
    MUST(cuDeviceTotalMem_v2(&total, 1));
    EXPECT(total == total_mib * MIB);
    MUST(cuDeviceTotalMem_v2(&total, 0));
    EXPECT(total == total_mib * MIB);
    MUST(cuMemGetInfo_v2(&available, NULL));
    EXPECT(available == total_mib * MIB);
    MUST(create(&handle, 100));
    MUST(cuMemGetInfo_v2(&available, &total));
    EXPECT(total == total_mib * MIB && available == total - 100 * MIB);
    GIVES(create(&handle, limit - 98), limit == MEMORY ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemGetInfo_v2(NULL, &total));
    EXPECT(total == total_mib * MIB);
}

static void told(void) {
    tells(LIMIT, LIMIT);
}

static void device(void) {
    tells(LIMIT, MEMORY);
}

static void unlimited(void) {
    size_t total;
    CUmemGenericAllocationHandle handle;
    MUST(cuDeviceTotalMem_v2(&total, 0));
    EXPECT(total == MEMORY * MIB);
    GIVES(create(&handle, 4 * LIMIT - 2), CUDA_SUCCESS);
    EXPECT(figure("physical_bytes") == (4 * LIMIT - 2) * MIB);
    told_free(2);
}

/* --- several threads never pass the limit together, and none fails while there is room --- */

enum { THREADS = 4, ROUNDS = 2000 };
static _Atomic unsigned passed_limit;

static void *take_and_give(void *arg) {
    size_t mib = arg ? 32 : 30; /* 4 x 64 MiB fit; pools reserve by 32 MiB */
    CUmemoryPool pool = driver_pool();
    CUstream stream;
    test_device(0);
    MUST(cuStreamCreate(&stream, 0));
    for (int i = 0; i < ROUNDS; i++) {
        CUmemGenericAllocationHandle handle;
        CUdeviceptr p;
        bool plain = i % 3 == 0, more = i % 7 == 0;
        GIVES(create(&handle, mib), CUDA_SUCCESS);
        if (plain)
            GIVES(cuMemAlloc_v2(&p, 20 * MIB), CUDA_SUCCESS);
        else
            GIVES(cuMemAllocFromPoolAsync(&p, 32 * MIB, pool, stream), CUDA_SUCCESS);
        passed_limit += simcuda_used_memory(0) > LIMIT * MIB;
        if (more && create(&handle, 250) == CUDA_SUCCESS)
            test_stop(TEST_WRONG, "beyond the limit");
        MUST(cuMemRelease(handle));
        MUST(plain ? cuMemFree_v2(p) : cuMemFreeAsync(p, stream));
        if (!plain)
            MUST(cuStreamSynchronize(stream));
    }
    MUST(cuMemPoolDestroy(pool));
    return NULL;
}

static void threads(void) {
    pthread_t thread[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        NEED(!pthread_create(&thread[i], NULL, take_and_give, i % 2 ? thread : NULL));
    for (size_t i = 0; i < THREADS; i++)
        NEED(!pthread_join(thread[i], NULL));
    EXPECT(passed_limit == 0);
    CUmemGenericAllocationHandle handle;
    GIVES(create(&handle, LIMIT), CUDA_SUCCESS);
    used_is(LIMIT);
    EXPECT(figure("physical_bytes") == LIMIT * MIB && figure("driver_pool_bytes") == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"physical", physical},   {"handles", handles},     {"arrays", arrays},
             {"pools", pools},         {"destroyed", destroyed}, {"graphs", graphs},
             {"idle", idle},           {"waits", waits},         {"passed", passed},
             {"lost", lost},           {"uncounted", uncounted}, {"wrong", wrong},
             {"told", told},           {"fraction", told},       {"device", device},
             {"unlimited", unlimited}, {"threads", threads}};

int main(int argc, char **argv) {
    test_device(0);
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1])) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "usage: limits CASE\n");
    return TEST_USAGE;
}
