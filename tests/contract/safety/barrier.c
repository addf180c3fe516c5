/* Contracts 2 and 9, free_sync:auto. A program that uses a free as its only barrier reads the values
 * that the device wrote. Once a program has awaited a result itself, no free makes it wait.
 *
 * usage: barrier [ROUNDS [NAME]]     NAME: only cases of the first part with this prefix
 *
 * Each case runs in a child process. A case of the first part writes a new value late, by a kernel or
 * a copy behind one. It frees some block, and reads the value on the host; all this in ROUNDS rounds
 * (20). The cases of the second part check if a free waited; they run under the library alone. With
 * real time, work may be over before a check; the case then checks less. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "barrier.h"

enum { LATE_NS = 2000000 };

CUcontext first;
CUstream stream, other;
CUfunction store, held;
CUdeviceptr memory;
volatile unsigned *result;

bool real_time(void) {
    const char *sim = getenv("ACCEL_SIM");
    return sim && strstr(sim, "clock:real");
}

static void start(void) {
    first = test_device(0);
    stream = test_stream();
    other = test_stream();
    static const unsigned short sizes[] = {8, 4};
    store = test_kernel(&(simcuda_kernel_t){.name = "store",
                                            .fn = test_store,
                                            .duration_ns = LATE_NS,
                                            .param_count = 2,
                                            .param_bytes = sizes});
    held = test_kernel(&(simcuda_kernel_t){.name = "held", .duration_ns = HELD_NS});
    MUST(cuMemAlloc_v2(&memory, 4 * KIB));
    void *host;
    MUST(cuMemHostAlloc(&host, 4 * KIB, 0)); /* copies to pageable memory are not asynchronous */
    result = memset(host, 0, 4 * KIB);
}

void write_to(CUdeviceptr address, unsigned value, CUstream on) {
    void *params[] = {&address, &value};
    MUST(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, on, params, NULL));
}

CUdeviceptr block(void) {
    CUdeviceptr address;
    MUST(cuMemAlloc_v2(&address, 256 * KIB));
    return address;
}

void barrier(void) {
    CUdeviceptr address = block(); /* no work uses it */
    MUST(cuMemFree_v2(address));
}

/* --- what the program takes a free for a barrier of --- */

void to_host(unsigned value) {
    write_to(memory, value, stream);
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
}

static void to_host_unified(unsigned value) {
    write_to(memory, value, stream);
    MUST(cuMemcpyAsync(test_address((void *)result), memory, 4, stream));
}

void to_host_legacy(unsigned value) {
    write_to(memory, value, NULL);
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, NULL));
}

static void to_host_per_thread(unsigned value) {
    write_to(memory, value, CU_STREAM_PER_THREAD);
    MUST(cuMemcpyDtoHAsync_v2_ptsz((void *)result, memory, 4, NULL));
}

void rows(unsigned value) {
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .srcPitch = 4,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = (void *)result,
                          .dstPitch = 4,
                          .WidthInBytes = 4,
                          .Height = 1};
    write_to(memory, value, stream);
    MUST(cuMemcpy2DAsync_v2(&copy, stream));
}

static CUDA_MEMCPY3D box(void) {
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = memory,
                           .srcPitch = 4,
                           .srcHeight = 1,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = test_address((void *)result),
                           .dstPitch = 4,
                           .dstHeight = 1,
                           .WidthInBytes = 4,
                           .Height = 1,
                           .Depth = 1};
}

static void boxes(unsigned value) {
    CUDA_MEMCPY3D copy = box();
    write_to(memory, value, stream);
    MUST(cuMemcpy3DAsync_v2(&copy, stream));
}

static void batch(unsigned value) {
    CUdeviceptr to[] = {memory + KIB, test_address((void *)result)}, from[] = {memory, memory};
    size_t bytes[] = {4, 4}, at = 0, failed;
    _Alignas(8) int order[16] = {1}; /* CUmemcpyAttributes: in stream order */
    CUmemcpyAttributes *attributes = (CUmemcpyAttributes *)(void *)order;
    write_to(memory, value, stream);
    CUresult answer = cuMemcpyBatchAsync(to, from, bytes, 2, attributes, &at, 1, &failed, stream);
    if (answer == CUDA_ERROR_NOT_SUPPORTED)
        exit(TEST_SKIPPED);
    MUST(answer);
}

static void of_an_array(unsigned value) {
    static CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = {4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    if (!array)
        MUST(cuArrayCreate_v2(&array, &shape));
    write_to(memory, value, NULL);
    MUST(cuMemcpyDtoA_v2(array, 0, memory, 4));
    write_to(memory, 0, NULL);
    MUST(cuMemcpyAtoHAsync_v2((void *)result, array, 0, 4, NULL));
}

void launch_graph(CUgraph graph) {
    CUgraphExec exec;
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, other));
}

void captured(unsigned value) {
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    to_host(value);
    MUST(cuStreamEndCapture(stream, &graph));
    launch_graph(graph);
}

static CUgraphNode late_node(CUgraph graph, unsigned value) {
    CUgraphNode node;
    void *params[] = {&memory, &value};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = store,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params};
    MUST(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    return node;
}

static void copy_node(unsigned value) {
    CUgraph graph;
    CUDA_MEMCPY3D copy = box();
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode before = late_node(graph, value), node;
    MUST(cuGraphAddMemcpyNode(&node, graph, &before, 1, &copy, first));
    launch_graph(graph);
}

static void generic_node(unsigned value) {
    CUgraph graph;
    CUDA_MEMCPY3D copy = box();
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.payload[1] = (long long)(uintptr_t)first;
    memcpy(&params.payload[2], &copy, sizeof copy);
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode before = late_node(graph, value), node;
    MUST(cuGraphAddNode(&node, graph, &before, 1, &params));
    launch_graph(graph);
}

/* The node had another target when it was made. */
static void redirected_node(unsigned value) {
    CUgraph graph;
    CUgraphExec exec;
    CUDA_MEMCPY3D copy = box();
    copy.dstDevice = memory + KIB;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode before = late_node(graph, value), node;
    MUST(cuGraphAddMemcpyNode(&node, graph, &before, 1, &copy, first));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    copy = box();
    MUST(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, first));
    MUST(cuGraphLaunch(exec, other));
}

void managed(unsigned value) {
    static CUdeviceptr address;
    if (!address)
        MUST(cuMemAllocManaged(&address, 4 * KIB, CU_MEM_ATTACH_GLOBAL));
    result = (volatile unsigned *)(uintptr_t)address;
    write_to(address, value, stream);
}

/* The same thread and others used the stream before. */
static void managed_later(unsigned value) {
    write_to(memory, value, stream);
    MUST(cuMemsetD8Async(memory + KIB, 1, 4, stream));
    write_to(memory, value, stream);
    managed(value);
}

static void managed_by_attributes(unsigned value) {
    static CUdeviceptr address;
    if (!address)
        MUST(cuMemAllocManaged(&address, 4 * KIB, CU_MEM_ATTACH_GLOBAL));
    result = (volatile unsigned *)(uintptr_t)address;
    void *params[] = {&address, &value};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};
    MUST(cuLaunchKernelEx(&config, store, params, NULL));
}

static void managed_by_graph(unsigned value) {
    CUgraph graph;
    static CUdeviceptr address;
    if (!address)
        MUST(cuMemAllocManaged(&address, 4 * KIB, CU_MEM_ATTACH_GLOBAL));
    result = (volatile unsigned *)(uintptr_t)address;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    write_to(address, value, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    launch_graph(graph);
}

static void mapped(unsigned value) {
    static void *host;
    if (!host)
        MUST(cuMemHostAlloc(&host, 4 * KIB, CU_MEMHOSTALLOC_DEVICEMAP));
    result = host;
    write_to(test_address(host), value, stream);
}

static void registered(unsigned value) {
    static void *host;
    if (!host) {
        NEED(posix_memalign(&host, 4 * KIB, 4 * KIB) == 0);
        MUST(cuMemHostRegister_v2(host, 4 * KIB, CU_MEMHOSTREGISTER_DEVICEMAP));
    }
    result = host;
    write_to(test_address(host), value, stream);
}

static void asked_for(unsigned value) {
    static void *host;
    static CUdeviceptr address;
    if (!host) {
        MUST(cuMemHostAlloc(&host, 4 * KIB, 0));
        MUST(cuMemHostGetDevicePointer_v2(&address, host, 0));
    }
    result = host;
    write_to(address, value, stream);
}

/* Returns the host's address of memory that the host may read. */
static volatile unsigned *seen_by_host(CUdeviceptr address) {
    __typeof__(&simcuda_host) host;
    return test_find("simcuda_host", &host) ? host(address) : (void *)(uintptr_t)address;
}

static void variable(unsigned value) {
    static CUdeviceptr address;
    size_t bytes;
    CUmodule module;
    if (!address) {
        MUST(cuModuleLoadData(&module, ".version 8.0\n.target sm_80\n.address_size 64\n"
                                       ".global .attribute(.managed) .align 4 .u32 seen = 0;\n"));
        MUST(cuModuleGetGlobal_v2(&address, &bytes, module, "seen"));
    }
    result = seen_by_host(address);
    write_to(address, value, stream);
}

/* The body of a kernel that stores to an address of the program's own memory. */
static void store_directly(const simcuda_launch_t *launch) {
    unsigned *to;
    memcpy(&to, launch->params[0], sizeof to);
    memcpy(to, launch->params[1], sizeof *to);
}

static void pageable(unsigned value) {
    static unsigned there;
    int reaches = 0;
    MUST(cuDeviceGetAttribute(&reaches, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0));
    if (!reaches)
        exit(TEST_SKIPPED);
    if (result != &there) {
        static const unsigned short sizes[] = {8, 4};
        store = test_kernel(&(simcuda_kernel_t){.name = "store_directly",
                                                .fn = store_directly,
                                                .duration_ns = LATE_NS,
                                                .param_count = 2,
                                                .param_bytes = sizes});
    }
    result = &there;
    write_to((CUdeviceptr)(uintptr_t)&there, value, stream);
}

static void of_pool(CUmemoryPool pool, unsigned value) {
    static CUdeviceptr address;
    if (!address)
        MUST(cuMemAllocFromPoolAsync(&address, 4 * KIB, pool, stream));
    result = seen_by_host(address);
    write_to(address, value, stream);
}

static void made_pool(CUmemAllocationType type, CUmemLocationType where, unsigned value) {
    static CUmemoryPool pool;
    CUmemPoolProps what = {.allocType = type, .location = {where, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult answer = pool ? CUDA_SUCCESS : cuMemPoolCreate(&pool, &what);
    if (answer == CUDA_ERROR_NOT_SUPPORTED)
        exit(TEST_SKIPPED);
    MUST(answer);
    if (where != CU_MEM_LOCATION_TYPE_DEVICE)
        MUST(cuMemPoolSetAccess(pool, &access, 1));
    of_pool(pool, value);
}

static void managed_pool(unsigned value) {
    made_pool(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, value);
}

static void host_pool(unsigned value) {
    made_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST, value);
}

static void default_pool(unsigned value) {
    CUmemoryPool pool;
    CUmemLocation where = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUresult answer = cuMemGetDefaultMemPool(&pool, &where, CU_MEM_ALLOCATION_TYPE_MANAGED);
    if (answer == CUDA_ERROR_NOT_SUPPORTED)
        exit(TEST_SKIPPED);
    MUST(answer);
    of_pool(pool, value);
}

static void physical_of(CUmemLocationType where, unsigned value) {
    static CUdeviceptr address;
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {where, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    size_t unit;
    if (!address) {
        MUST(cuMemGetAllocationGranularity(&unit, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        MUST(cuMemCreate(&handle, unit, &what, 0));
        MUST(cuMemAddressReserve(&address, unit, 0, 0, 0));
        MUST(cuMemMap(address, unit, 0, handle, 0));
        MUST(cuMemSetAccess(address, unit, &access, 1));
    }
    result = seen_by_host(address);
    write_to(address, value, stream);
}

static void physical(unsigned value) {
    physical_of(CU_MEM_LOCATION_TYPE_HOST, value);
}

static void physical_of_node(unsigned value) {
    physical_of(CU_MEM_LOCATION_TYPE_HOST_NUMA, value);
}

/* --- synchronisations that tell nothing of the result --- */

static void before_the_work(unsigned value) {
    if (value == 1) {
        write_to(memory, value, stream);
        MUST(cuStreamSynchronize(stream));
        MUST(cuCtxSynchronize());
    }
    to_host(value);
}

static void of_another_stream(unsigned value) {
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    write_to(memory + KIB, value, other);
    MUST(cuEventRecord(event, other));
    to_host(value);
    MUST(cuStreamSynchronize(other));
    MUST(cuEventSynchronize(event));
    MUST(cuEventDestroy_v2(event));
}

static void of_the_same_handle(unsigned value) {
    CUstream gone = test_stream();
    to_host(value);
    MUST(cuMemcpyDtoHAsync_v2((void *)(result + 1), memory, 4, gone));
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamSynchronize(test_stream()));
}

/* A copy to the host that waits for no stream but its own; one to the device; one of nothing. */
static void copies_beside(unsigned value) {
    unsigned word;
    to_host(value);
    MUST(cuMemcpyDtoH_v2(&word, memory + KIB, 4));
    MUST(cuMemcpyDtoH_v2_ptds(&word, memory + KIB, 4));
}

static void copies_elsewhere(unsigned value) {
    unsigned word = 0;
    CUDA_MEMCPY2D none = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = &word};
    to_host_legacy(value);
    MUST(cuMemcpyDtoH_v2(&word, memory + KIB, 0));
    MUST(cuMemcpy2D_v2(&none));
    MUST(cuMemcpyDtoD_v2(memory + KIB, memory + 2 * KIB, 4));
}

/* Copies first a result of another context, in a stream of this one. */
static void copies_of_another_context(unsigned value) {
    static CUdeviceptr far;
    unsigned word = 0;
    CUcontext second;
    if (!far) {
        MUST(cuDevicePrimaryCtxRetain(&second, 1));
        MUST(cuCtxSetCurrent(second));
        MUST(cuMemAlloc_v2(&far, 4 * KIB));
        MUST(cuMemsetD8_v2(far, 0, 4 * KIB));
        MUST(cuCtxSetCurrent(first));
    }
    to_host_legacy(value);
    if (value == 1) {
        CUDA_MEMCPY2D row = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = far,
                             .srcPitch = 4,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = &word,
                             .dstPitch = 4,
                             .WidthInBytes = 4,
                             .Height = 1};
        MUST(cuMemcpyDtoH_v2(&word, far, 4));
        MUST(cuMemcpy2D_v2(&row));
    }
}

static void not_complete(unsigned value) {
    to_host(value);
    if (!real_time())
        GIVES(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
}

/* --- ways to free --- */

static void touched(void) {
    CUdeviceptr address = block();
    MUST(cuMemsetD8Async(address, 1, 4, other));
    MUST(cuMemFree_v2(address));
}

static void *free_it(void *address) {
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemFree_v2((CUdeviceptr)(uintptr_t)address));
    return NULL;
}

static void of_pinned_memory(void) {
    void *host;
    MUST(cuMemHostAlloc(&host, 4 * KIB, 0));
    MUST(cuMemFreeHost(host));
}

static void by_another_thread(void) {
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, free_it, (void *)(uintptr_t)block()) == 0);
    NEED(pthread_join(thread, NULL) == 0);
}

static void from_another_context(void) {
    static CUcontext second;
    CUdeviceptr address = block();
    if (!second)
        MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemFree_v2(address));
    MUST(cuCtxSetCurrent(first));
}

static void by_the_library(void) {
    accel_status_t (*own)(void *);
    if (!test_find("accel_free", &own))
        barrier();
    else
        NEED(own((void *)(uintptr_t)block()) == ACCEL_OK);
}

#if BARRIER_RUNTIME
int cudaMalloc(void **, size_t);
int cudaFree(void *);
static void by_the_runtime(void) {
    void *address;
    MUST(cudaMalloc(&address, 256 * KIB));
    MUST(cudaFree(address));
}
#else
#define by_the_runtime barrier
#endif

static void reads(void (*submit)(unsigned), void (*give)(void), unsigned times) {
    for (unsigned i = 1; i <= times; i++) {
        submit(i);
        give();
        if (*result != i)
            test_stop(TEST_WRONG, "%u in round %u", *result, i);
    }
}

static const struct {
    const char *name;
    void (*submit)(unsigned);
    void (*give)(void);
} barriers[] = {
#define READS(submit, give)                                                                      \
    { #submit ", " #give, submit, give }
    READS(to_host, barrier),
    READS(to_host_unified, barrier),
    READS(to_host_legacy, barrier),
    READS(to_host_per_thread, barrier),
    READS(rows, barrier),
    READS(boxes, barrier),
    READS(batch, barrier),
    READS(of_an_array, barrier),
    READS(captured, barrier),
    READS(copy_node, barrier),
    READS(generic_node, barrier),
    READS(redirected_node, barrier),
    READS(managed, barrier),
    READS(managed_later, barrier),
    READS(managed_by_attributes, barrier),
    READS(managed_by_graph, barrier),
    READS(mapped, barrier),
    READS(registered, barrier),
    READS(asked_for, barrier),
    READS(variable, barrier),
    READS(pageable, barrier),
    READS(managed_pool, barrier),
    READS(host_pool, barrier),
    READS(default_pool, barrier),
    READS(physical, barrier),
    READS(physical_of_node, barrier),
    READS(copies_beside, barrier),
    READS(copies_elsewhere, barrier),
    READS(copies_of_another_context, barrier),
    READS(to_host, of_pinned_memory),
    READS(mapped, of_pinned_memory),
    READS(before_the_work, barrier),
    READS(of_another_stream, barrier),
    READS(of_the_same_handle, barrier),
    READS(not_complete, barrier),
    READS(to_host, touched),
    READS(to_host, by_another_thread),
    READS(to_host, from_another_context),
    READS(to_host, by_the_library),
    READS(managed, by_the_library),
    READS(to_host, by_the_runtime),
    READS(mapped, by_the_runtime),
};

enum { BARRIERS = sizeof barriers / sizeof *barriers };

static int run(unsigned i, unsigned times) {
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(BARRIER_CASE_S);
        test_title = i < BARRIERS ? barriers[i].name : barrier_looks[i - BARRIERS].name;
        start();
        if (i < BARRIERS)
            reads(barriers[i].submit, barriers[i].give, times);
        else
            barrier_looks[i - BARRIERS].run();
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : TEST_WRONG;
}

int main(int argc, char **argv) {
    unsigned times = argc > 1 ? (unsigned)atoi(argv[1]) : 20, failed = 0, skipped = 0;
    unsigned count = test_library_is_here() && argc < 3 ? BARRIERS + barrier_look_count : BARRIERS;
    for (unsigned i = 0; i < count; i++) {
        if (argc > 2 && strncmp(barriers[i].name, argv[2], strlen(argv[2])) != 0)
            continue;
        int status = run(i, times);
        skipped += status == TEST_SKIPPED;
        if (status && status != TEST_SKIPPED) {
            printf("%s failed\n", i < BARRIERS ? barriers[i].name : barrier_looks[i - BARRIERS].name);
            failed++;
        }
    }
    printf("%u cases, %u skipped, %u failed\n", count, skipped, failed);
    return failed != 0;
}
