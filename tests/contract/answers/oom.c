/* Memory that runs out (contract 3), on a device of 256 MiB.  The program judges for itself.
 *
 * usage: oom [CASE]      with limits: ACCEL_ALLOC_CONF=memory_limit:... and `limit` as the case
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answers.h"

enum { MANY = 4096 };
static CUfunction late;
static CUstream stream;

static CUdeviceptr held[MANY];

static unsigned take(size_t bytes) {
    unsigned n = 0;
    while (n < MANY && cuMemAlloc_v2(&held[n], bytes) == CUDA_SUCCESS)
        n++;
    return n;
}

static void give(unsigned from, unsigned to, unsigned step) {
    for (unsigned i = from; i < to; i += step)
        MUST(cuMemFree_v2(held[i]));
}

/* All free memory serves again, whatever sizes it was cut into before. */
static void other_sizes(void) {
    static const size_t size[] = {4096, MIB, 10 * MIB, 60 * MIB, 65536, 4 * MIB, 220 * MIB};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        unsigned n = take(size[i]);
        EXPECT(n == MANY || n >= 216 * MIB / size[i]);
        give(0, n, 1);
    }
}

/* A program frees half of its memory and gets it again while work on it is pending. */
static void halves(void) {
    unsigned n = take(2 * MIB);
    for (unsigned i = 0; i < n; i++)
        MUST(cuMemsetD8Async(held[i], 1, 100, stream));
    MUST(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    give(0, n, 2);
    for (unsigned i = 0; i < n; i += 2)
        EXPECT(cuMemAlloc_v2(&held[i], 2 * MIB) == CUDA_SUCCESS);
    give(0, n, 1);
    EXPECT(take(200 * MIB) == 1);
}

/* A program that holds nothing can get the memory that cuMemGetInfo calls free in one piece. */
static void obtainable(void) {
    size_t room, total;
    give(0, take(3 * MIB), 1);
    give(0, take(1000), 1);
    MUST(cuMemGetInfo_v2(&room, &total));
    EXPECT(room > 240 * MIB && room <= total);
    EXPECT(cuMemAlloc_v2(&held[0], room / (2 * MIB) * (2 * MIB)) == CUDA_SUCCESS);
    MUST(cuMemFree_v2(held[0]));
    MUST(cuMemGetInfo_v2(&room, &total));
    EXPECT(room > 240 * MIB);
}

/* Calls outside the allocator get the memory that the cache holds. */
static void others(void) {
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 16384, .Height = 12000, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUdeviceptr pointer;
    CUcontext context;
    /* The second round has pending work, the third has idle memory in addition. */
    for (int round = 0; round < 3; round++) {
#define FILL()                                                                                   \
    do {                                                                                         \
        unsigned n = take(20 * MIB), idle = round == 2;                                          \
        give(0, idle, 1);                                                                        \
        if (round)                                                                               \
            MUST(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));                 \
        give(idle, n, 1);                                                                        \
    } while (0)
        FILL();
        EXPECT(cuArrayCreate_v2(&array, &shape) == CUDA_SUCCESS);
        MUST(cuArrayDestroy(array));
        FILL();
        EXPECT(cuMemCreate(&handle, 200 * MIB, &prop, 0) == CUDA_SUCCESS);
        MUST(cuMemRelease(handle));
        FILL();
        EXPECT(cuMemAllocAsync(&pointer, 200 * MIB, stream) == CUDA_SUCCESS);
        MUST(cuMemFreeAsync(pointer, stream));
        MUST(cuStreamSynchronize(stream));
        FILL();
        EXPECT(cuMemAllocManaged(&pointer, 200 * MIB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
        MUST(cuMemFree_v2(pointer));
        FILL();
        MUST(cuCtxCreate_v2(&context, 0, 0)); /* the request also gets memory of the other
                                                 context's cache */
        EXPECT(cuMemAlloc_v2(&pointer, 200 * MIB) == CUDA_SUCCESS);
        MUST(cuCtxDestroy_v2(context));
    }
    static const char *const functions[] = {
        "cuModuleLoadData", "cuGraphInstantiateWithFlags", "cuStreamCreate", "cuEventCreate",
        "cuArrayCreate_v2", "cuMemAllocManaged",           "cuGraphCreate",  "cuGraphClone",
        "cuGraphAddNode",   "cuDevicePrimaryCtxRetain"};
    /* While there is idle memory to give back, the program does not see a single out-of-memory
     * failure of these functions. */
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        char plan[96];
        CUmodule module;
        CUgraph graph, other;
        CUgraphNode node;
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
        CUgraphExec exec;
        CUstream fresh;
        CUevent event;
        give(0, take(20 * MIB), 1);
        MUST(cuGraphCreate(&graph, 0));
        snprintf(plan, sizeof plan, "%s@1=2", functions[i]);
        NEED(simcuda_fail(plan) == 0);
        shape.Height = 10;
        EXPECT(cuModuleLoadData(&module, "stand-in") == CUDA_SUCCESS);
        EXPECT(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
        EXPECT(cuStreamCreate(&fresh, 0) == CUDA_SUCCESS);
        EXPECT(cuEventCreate(&event, 0) == CUDA_SUCCESS);
        EXPECT(cuArrayCreate_v2(&array, &shape) == CUDA_SUCCESS);
        EXPECT(cuGraphCreate(&other, 0) == CUDA_SUCCESS);
        EXPECT(cuGraphClone(&other, graph) == CUDA_SUCCESS);
        EXPECT(cuGraphAddNode(&node, graph, NULL, 0, &params) == CUDA_SUCCESS);
        EXPECT(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
        EXPECT(cuMemAllocManaged(&pointer, MIB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
        simcuda_clear_faults();
    }
}

/* A limit of 64 MiB bounds the reserved memory, and ends without a trace. */
static void limit(void) {
    size_t room, total;
    unsigned n = take(2 * MIB);
    EXPECT(n >= 22 && n <= 32);
    EXPECT(simcuda_used_memory(0) <= 66 * MIB);
    MUST(cuMemGetInfo_v2(&room, &total));
    EXPECT(total == 64 * MIB && room <= total);
    give(0, n, 1);
    EXPECT(cuMemAlloc_v2(&held[0], 100 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAlloc_v2(&held[0], 60 * MIB) == CUDA_SUCCESS);
    EXPECT(cuMemAlloc_v2(&held[1], 10 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuMemFree_v2(held[0]));
    EXPECT(take(10 * MIB) >= 5);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"other_sizes", other_sizes},
             {"halves", halves},
             {"obtainable", obtainable},
             {"others", others},
             {"limit", limit}};

static void run(const void *arg) {
    test_device(0);
    late = test_kernel(&(simcuda_kernel_t){.name = "late", .duration_ns = 5000000});
    stream = test_stream();
    (*(void (*const *)(void))arg)();
}

int main(int argc, char **argv) {
    unsigned failed = 0, ran = 0;
    const char *only = argc > 1 ? argv[1] : NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (only ? strcmp(only, cases[i].name) != 0 : !strcmp(cases[i].name, "limit"))
            continue;
        ran++;
        failed += in_child(cases[i].name, run, &cases[i].run) != 0;
    }
    printf("%u cases, %u failed\n", ran, failed);
    return failed || !ran;
}
