/* The stand-in runtime on the simulated device: what programs rely on, group by group.  Built
 * against every version of the stand-in and the static archive.  Each test has a process of its
 * own, so each begins with an uninitialised runtime. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>

#include "cuda_runtime_min.h"
#include "simcuda.h"
#include "run_suite.h"

#define OK(call) ck_assert_int_eq((call), cudaSuccess)
#define FAILS(call, error)                                                                       \
    do {                                                                                         \
        ck_assert_int_eq((call), (error));                                                       \
        ck_assert_int_eq(cudaGetLastError(), (error));                                           \
    } while (0)

/* A driver function, by the name that the driver exports. */
static void *driver(const char *symbol) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    ck_assert_ptr_nonnull(library);
    void *address = dlsym(library, symbol);
    ck_assert_msg(address != NULL, "the simulated driver lacks %s", symbol);
    return address;
}

#define DRIVER(type, variable, symbol)                                                           \
    type *variable = NULL;                                                                       \
    do {                                                                                         \
        void *address = driver(symbol);                                                          \
        memcpy(&variable, &address, sizeof variable);                                            \
    } while (0)

/* Function types of simcuda.h, for the casts. */
typedef unsigned long long calls_fn(const char *symbol);
typedef void *host_fn(CUdeviceptr address);
typedef int supported_fn(const char *symbol);
typedef int register_fn(const simcuda_kernel_t *kernel);

/* ---------------------------------------------------------------- devices and contexts */
START_TEST(devices_are_counted_and_chosen) {
    DRIVER(cuCtxGetCurrent_fn, current, "cuCtxGetCurrent");
    int n = 0, device = -1;
    CUcontext first = NULL, second = NULL;
    OK(cudaGetDeviceCount(&n));
    ck_assert_int_eq(n, 2);
    OK(cudaGetDevice(&device));
    ck_assert_int_eq(device, 0);
    ck_assert_int_eq(current(&first), CUDA_SUCCESS);
    ck_assert_ptr_null(first);
    OK(cudaFree(NULL));
    ck_assert_int_eq(current(&first), CUDA_SUCCESS);
    ck_assert_ptr_nonnull(first);
    OK(cudaSetDevice(1));
    ck_assert_int_eq(current(&second), CUDA_SUCCESS);
#if RT_MAJOR >= 12
    ck_assert_ptr_ne(first, second);
#else
    ck_assert_ptr_eq(first, second); /* version 11 waits for the next call */
    OK(cudaFree(NULL));
    ck_assert_int_eq(current(&second), CUDA_SUCCESS);
    ck_assert_ptr_ne(first, second);
#endif
    OK(cudaGetDevice(&device));
    ck_assert_int_eq(device, 1);
    FAILS(cudaSetDevice(2), cudaErrorInvalidDevice);
    FAILS(cudaSetDevice(-1), cudaErrorInvalidDevice);
    OK(cudaGetDevice(&device));
    ck_assert_int_eq(device, 1);
    OK(cudaSetDevice(0));
    OK(cudaFree(NULL));
    ck_assert_int_eq(current(&second), CUDA_SUCCESS);
    ck_assert_ptr_eq(first, second);
}
END_TEST

static void *device_of_new_thread(void *out) {
    OK(cudaGetDevice(out));
    OK(cudaFree(NULL));
    return NULL;
}

START_TEST(a_thread_starts_on_device_0_with_the_same_context) {
    DRIVER(calls_fn, calls, "simcuda_calls");
    pthread_t thread;
    int device = -1;
    OK(cudaSetDevice(1));
    ck_assert_int_eq(pthread_create(&thread, NULL, device_of_new_thread, &device), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(device, 0);
    OK(cudaSetDevice(0));
    OK(cudaSetDevice(1));
    OK(cudaFree(NULL));
    ck_assert_uint_eq(calls("cuDevicePrimaryCtxRetain"), 2);
}
END_TEST

START_TEST(a_context_of_the_driver_api_is_used) {
    DRIVER(cuCtxCreate_v2_fn, create, "cuCtxCreate_v2");
    DRIVER(cuCtxDestroy_v2_fn, destroy, "cuCtxDestroy_v2");
    DRIVER(cuPointerGetAttribute_fn, attribute, "cuPointerGetAttribute");
    CUcontext own = NULL, owner = NULL;
    void *p = NULL;
    int device = -1;
    OK(cudaGetDeviceCount(&device));
    ck_assert_int_eq(create(&own, 0, 1), CUDA_SUCCESS);
    OK(cudaMalloc(&p, 1024));
    ck_assert_int_eq(attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, (uintptr_t)p), CUDA_SUCCESS);
    ck_assert_ptr_eq(owner, own);
    OK(cudaGetDevice(&device));
    ck_assert_int_eq(device, 1);
    OK(cudaFree(p));
    ck_assert_int_eq(destroy(own), CUDA_SUCCESS);
    OK(cudaMalloc(&p, 1024)); /* the primary context of device 0 takes over */
    OK(cudaGetDevice(&device));
    ck_assert_int_eq(device, 0);
}
END_TEST

static void *allocate_once_more(void *out) {
    OK(cudaMalloc(out, 4096));
    return NULL;
}

START_TEST(reset_begins_anew) {
    void *p = NULL, *q = NULL;
    pthread_t thread;
    OK(cudaMalloc(&p, 4096));
    OK(cudaMemset(p, 1, 4096));
    OK(cudaDeviceReset());
    ck_assert_int_ne(cudaFree(p), cudaSuccess);
    OK(cudaMalloc(&p, 4096));
    OK(cudaMemset(p, 1, 4096));
    ck_assert_int_eq(pthread_create(&thread, NULL, allocate_once_more, &q), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    OK(cudaFree(q));
    OK(cudaFree(p));
}
END_TEST

START_TEST(properties_agree_with_attributes) {
    struct cudaDeviceProp p;
    size_t free_bytes = 0, total = 0;
    int value = 0;
    memset(&p, 0xee, sizeof p);
#if RT_MAJOR == 12
    OK(cudaGetDeviceProperties_v2(&p, 1));
#else
    OK(cudaGetDeviceProperties(&p, 1));
#endif
    ck_assert_uint_gt(strlen(p.name), 0);
    OK(cudaMemGetInfo(&free_bytes, &total));
    ck_assert_uint_eq(p.totalGlobalMem, total);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1));
    ck_assert_int_eq(p.warpSize, value);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 1));
    ck_assert_int_eq(p.major, value);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 1));
    ck_assert_int_eq(p.multiProcessorCount, value);
    ck_assert_int_ge(p.maxThreadsDim[2], 1);
    FAILS(cudaGetDeviceProperties(&p, 2), cudaErrorInvalidDevice);
    FAILS(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 2), cudaErrorInvalidDevice);
#if RT_MAJOR == 12
    memset(&p, 0xee, sizeof p);
    OK(cudaGetDeviceProperties(&p, 1)); /* room for the structure of version 11 only */
    ck_assert_int_eq(((unsigned char *)&p)[727], 0);
    ck_assert_int_eq(((unsigned char *)&p)[728], 0xee);
#endif
}
END_TEST

START_TEST(flags_and_limits) {
    unsigned flags = 0;
    size_t limit = 0;
    OK(cudaSetDeviceFlags(cudaDeviceScheduleYield));
    OK(cudaGetDeviceFlags(&flags));
    ck_assert_uint_eq(flags & (cudaDeviceScheduleYield | cudaDeviceMapHost),
                      cudaDeviceScheduleYield | cudaDeviceMapHost);
    FAILS(cudaSetDeviceFlags(0x1000), cudaErrorInvalidValue);
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    OK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
    ck_assert_uint_ge(limit, 16 << 20);
}
END_TEST

/* ---------------------------------------------------------------- memory */
START_TEST(memory_comes_and_goes) {
    size_t before = 0, between = 0, after = 0, total = 0;
    void *p = NULL;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&p, 64 << 20));
    OK(cudaMemGetInfo(&between, &total));
    ck_assert_uint_ge(before - between, 64 << 20);
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&after, &total));
    ck_assert_uint_eq(before, after);
    ck_assert_int_ne(cudaFree(p), cudaSuccess);
    FAILS(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
    ck_assert_str_eq(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    ck_assert_str_eq(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    ck_assert_str_eq(cudaGetErrorName((cudaError_t)77777), "unrecognized error code");
}
END_TEST

START_TEST(pitched_memory) {
    void *p = NULL;
    size_t pitch = 0;
    struct cudaPitchedPtr box;
    OK(cudaMallocPitch(&p, &pitch, 100, 10));
    ck_assert_uint_ge(pitch, 100);
    OK(cudaFree(p));
    OK(cudaMalloc3D(&box, (struct cudaExtent){60, 4, 3}));
    ck_assert_uint_eq(box.xsize, 60);
    ck_assert_uint_eq(box.ysize, 4);
    OK(cudaMemset3D(box, 7, (struct cudaExtent){60, 3, 3}));
    unsigned char line[60];
    OK(cudaMemcpy(line, (char *)box.ptr + box.pitch * (2 * 4 + 2), 60, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(line[0], 7);
    ck_assert_int_eq(line[59], 7);
    OK(cudaFree(box.ptr));
}
END_TEST

START_TEST(pointers_tell_what_they_are) {
    struct cudaPointerAttributes a;
    void *device = NULL, *pinned = NULL, *managed = NULL;
    int plain = 0;
    OK(cudaMalloc(&device, 256));
    OK(cudaMallocHost(&pinned, 256));
    OK(cudaMallocManaged(&managed, 256, cudaMemAttachGlobal));
    OK(cudaPointerGetAttributes(&a, device));
    ck_assert_int_eq(a.type, cudaMemoryTypeDevice);
    ck_assert_int_eq(a.device, 0);
    ck_assert_ptr_eq(a.devicePointer, device);
    ck_assert_ptr_null(a.hostPointer);
    OK(cudaPointerGetAttributes(&a, pinned));
    ck_assert_int_eq(a.type, cudaMemoryTypeHost);
    ck_assert_ptr_eq(a.hostPointer, pinned);
    OK(cudaPointerGetAttributes(&a, managed));
    ck_assert_int_eq(a.type, cudaMemoryTypeManaged);
    OK(cudaPointerGetAttributes(&a, &plain));
    ck_assert_int_eq(a.type, cudaMemoryTypeUnregistered);
    ck_assert_int_eq(a.device, cudaInvalidDeviceId);
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
    OK(cudaFreeHost(NULL));
    OK(cudaFree(device));
}
END_TEST

START_TEST(host_memory_is_registered) {
    size_t size = 8192;
    void *memory = aligned_alloc(4096, size), *alias = NULL;
    unsigned flags = 0;
    OK(cudaHostRegister(memory, size, cudaHostRegisterMapped));
    FAILS(cudaHostRegister(memory, size, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer(&alias, memory, 0));
    ck_assert_ptr_nonnull(alias);
    OK(cudaHostUnregister(memory));
    FAILS(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    free(memory);
    OK(cudaHostAlloc(&memory, size, cudaHostAllocMapped | cudaHostAllocWriteCombined));
    OK(cudaHostGetFlags(&flags, memory));
    ck_assert_uint_eq(flags & cudaHostAllocWriteCombined, cudaHostAllocWriteCombined);
    OK(cudaFreeHost(memory));
}
END_TEST

START_TEST(copies_of_every_kind) {
    char from[256], to[256];
    void *a = NULL, *b = NULL;
    for (int i = 0; i < 256; i++) {
        from[i] = (char)i;
    }
    OK(cudaMalloc(&a, 256));
    OK(cudaMalloc(&b, 256));
    for (int twin = 0; twin < 2; twin++) {
        memset(to, 0, sizeof to);
        OK((twin ? cudaMemcpy_ptds : cudaMemcpy)(a, from, 256, cudaMemcpyHostToDevice));
        OK((twin ? cudaMemcpy_ptds : cudaMemcpy)(b, a, 256, cudaMemcpyDeviceToDevice));
        OK((twin ? cudaMemcpy_ptds : cudaMemcpy)(to, b, 256, cudaMemcpyDeviceToHost));
        ck_assert_mem_eq(from, to, 256);
        OK((twin ? cudaMemset_ptds : cudaMemset)(b, 0x5a, 128));
        OK((twin ? cudaMemcpy_ptds : cudaMemcpy)(to, b, 256, cudaMemcpyDefault));
        ck_assert_int_eq(to[127], 0x5a);
        ck_assert_mem_eq(from + 128, to + 128, 128);
        OK((twin ? cudaMemcpyAsync_ptsz : cudaMemcpyAsync)(b, from, 256, cudaMemcpyDefault,
                                                           NULL));
        OK((twin ? cudaStreamSynchronize_ptsz : cudaStreamSynchronize)(NULL));
        OK((twin ? cudaMemcpy_ptds : cudaMemcpy)(to, b, 256, cudaMemcpyDeviceToHost));
        ck_assert_mem_eq(from, to, 256);
    }
    OK(cudaMemcpy(to, from + 1, 128, cudaMemcpyHostToHost));
    ck_assert_mem_eq(from + 1, to, 128);
    FAILS(cudaMemcpy(a, from, 256, (enum cudaMemcpyKind)5), cudaErrorInvalidMemcpyDirection);
    OK(cudaMemcpy(a, from, 0, cudaMemcpyHostToDevice));
}
END_TEST

START_TEST(copies_of_rectangles_and_boxes) {
    unsigned char from[8 * 16], to[8 * 16];
    void *p = NULL;
    size_t pitch = 0;
    for (int i = 0; i < 8 * 16; i++) {
        from[i] = (unsigned char)i;
    }
    OK(cudaMallocPitch(&p, &pitch, 12, 8));
    OK(cudaMemcpy2D(p, pitch, from, 16, 12, 8, cudaMemcpyHostToDevice));
    memset(to, 0xff, sizeof to);
    OK(cudaMemcpy2DAsync(to, 16, p, pitch, 12, 8, cudaMemcpyDeviceToHost, NULL));
    OK(cudaDeviceSynchronize());
    ck_assert_mem_eq(to + 7 * 16, from + 7 * 16, 12);
    ck_assert_int_eq(to[12], 0xff);
    FAILS(cudaMemcpy2D(p, 4, from, 16, 12, 8, cudaMemcpyHostToDevice),
          cudaErrorInvalidPitchValue);
    OK(cudaMemset2D(p, pitch, 9, 12, 8));
    OK(cudaMemcpy2D(to, 16, p, pitch, 12, 8, cudaMemcpyDefault));
    ck_assert_int_eq(to[7 * 16 + 11], 9);

    struct cudaMemcpy3DParms box = {
        .srcPtr = {from, 16, 16, 4},
        .srcPos = {2, 1, 1},
        .dstPtr = {p, pitch, 12, 4},
        .extent = {5, 2, 1},
        .kind = cudaMemcpyHostToDevice,
    };
    OK(cudaMemcpy3D(&box));
    OK(cudaMemcpy2D(to, 16, p, pitch, 12, 8, cudaMemcpyDeviceToHost));
    ck_assert_mem_eq(to, from + 16 * 5 + 2, 5);
    ck_assert_mem_eq(to + 16, from + 16 * 6 + 2, 5);
    ck_assert_int_eq(to[5], 9);
    box.srcPtr.ptr = NULL;
    FAILS(cudaMemcpy3D(&box), cudaErrorInvalidValue);
}
END_TEST

START_TEST(peers_copy) {
    char from[64] = "from one device to the other", to[64] = "";
    void *a = NULL, *b = NULL;
    int can = 0;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    ck_assert_int_eq(can, 1);
    OK(cudaMalloc(&a, 64));
    OK(cudaMemcpy(a, from, 64, cudaMemcpyHostToDevice));
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&b, 64));
    OK(cudaMemcpyPeer(b, 1, a, 0, 64));
    OK(cudaMemcpy(to, b, 64, cudaMemcpyDeviceToHost));
    ck_assert_str_eq(from, to);
    OK(cudaDeviceEnablePeerAccess(0, 0));
    FAILS(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    OK(cudaDeviceDisablePeerAccess(0));
    FAILS(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
}
END_TEST

START_TEST(stream_ordered_memory_and_pools) {
    cudaMemPool_t pool = NULL, current = NULL;
    cudaStream_t stream = NULL;
    void *p = NULL;
    unsigned long long threshold = 1 << 20, got = 0;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                     .location = {cudaMemLocationTypeDevice, 0}};
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&p, 1000, stream));
    OK(cudaMemsetAsync(p, 3, 1000, stream));
    OK(cudaFreeAsync(p, stream));
    OK(cudaMallocAsync_ptsz(&p, 1000, NULL));
    OK(cudaFreeAsync_ptsz(p, NULL));
    OK(cudaMallocAsync(&p, 0, stream));
    ck_assert_ptr_null(p);
    OK(cudaFreeAsync(NULL, stream));
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
    ck_assert_uint_eq(got, threshold);
    OK(cudaMallocFromPoolAsync(&p, 1000, pool, stream));
    OK(cudaFreeAsync(p, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaDeviceSetMemPool(0, pool));
    OK(cudaDeviceGetMemPool(&current, 0));
    ck_assert_ptr_eq(current, pool);
    OK(cudaDeviceGetDefaultMemPool(&current, 0));
    ck_assert_ptr_ne(current, pool);
    OK(cudaDeviceSetMemPool(0, current));
    OK(cudaMemPoolDestroy(pool));
    OK(cudaStreamDestroy(stream));
}
END_TEST

/* ---------------------------------------------------------------- streams and graphs */
static void set_one(void *place) {
    *(int *)place = 1;
}

static void set_from_callback(cudaStream_t stream, cudaError_t status, void *place) {
    *(int *)place = stream != NULL && status == cudaSuccess;
}

typedef int wait_value_fn(cudaStream_t, CUdeviceptr, unsigned, unsigned);

/* A program that polls and then launches must not find an error of that launch. */
START_TEST(what_is_not_ready_is_no_error) {
    cudaStream_t stream = NULL;
    cudaEvent_t event = NULL;
    void *gate = NULL;
    DRIVER(wait_value_fn, wait, "cuStreamWaitValue32_v2");
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaEventCreate(&event));
    OK(cudaMalloc(&gate, 4));
    OK(cudaMemset(gate, 0, 4));
    ck_assert_int_eq(wait(stream, (CUdeviceptr)(uintptr_t)gate, 1, 0), 0);
    OK(cudaEventRecord(event, stream));
    ck_assert_int_eq(cudaStreamQuery(stream), cudaErrorNotReady);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaSuccess);
    ck_assert_int_eq(cudaEventQuery(event), cudaErrorNotReady);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    OK(cudaMemset(gate, 1, 4));
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(gate));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}
END_TEST

START_TEST(streams_events_and_host_functions) {
    cudaStream_t a = NULL, b = NULL;
    cudaEvent_t start = NULL, end = NULL;
    int least = 0, greatest = 0, called = 0, called_back = 0, priority = 0;
    unsigned flags = 0;
    float ms = -1;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&a, cudaStreamNonBlocking, greatest));
    OK(cudaStreamCreate(&b));
    OK(cudaStreamGetFlags(a, &flags));
    ck_assert_uint_eq(flags, cudaStreamNonBlocking);
    OK(cudaStreamGetPriority(a, &priority));
    ck_assert_int_eq(priority, greatest);
    OK(cudaEventCreate(&start));
    OK(cudaEventCreateWithFlags(&end, cudaEventDefault));
    OK(cudaEventRecord(start, a));
    OK(cudaLaunchHostFunc(a, set_one, &called));
    OK(cudaStreamAddCallback(a, set_from_callback, &called_back, 0));
    OK(cudaEventRecord(end, a));
    OK(cudaStreamWaitEvent(b, end, 0));
    OK(cudaStreamSynchronize(b));
    ck_assert_int_eq(called, 1);
    ck_assert_int_eq(called_back, 1);
    OK(cudaEventQuery(end));
    OK(cudaEventElapsedTime(&ms, start, end));
    ck_assert(ms >= 0);
    OK(cudaStreamQuery(a));
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}
END_TEST

START_TEST(a_captured_graph_runs) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaStream_t stream = NULL;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    unsigned char got[64] = {0};
    size_t nodes = 0;
    void *p = NULL;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc(&p, 64));
    OK(cudaMemset(p, 0, 64));
    OK(cudaDeviceSynchronize());
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    ck_assert_int_eq(mode, cudaStreamCaptureModeGlobal);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamIsCapturing(stream, &status));
    ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
    OK(cudaMemsetAsync(p, 0x11, 64, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    ck_assert_uint_eq(nodes, 1);
#if RT_MAJOR >= 12
    OK(cudaGraphInstantiate(&exec, graph, 0));
#else
    OK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0));
#endif
    OK(cudaMemcpy(got, p, 64, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(got[63], 0);
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(got, p, 64, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(got[63], 0x11);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}
END_TEST

/* Uses a handle in the other process; the exit status tells the result. */
static int open_and_read(int pipe_end) {
    cudaIpcMemHandle_t handle;
    char text[32] = "";
    void *p = NULL;
    if (read(pipe_end, &handle, sizeof handle) != (ssize_t)sizeof handle) {
        return 1;
    }
    if (cudaIpcOpenMemHandle(&p, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
        return 2;
    }
    if (cudaMemcpy(text, p, sizeof text, cudaMemcpyDeviceToHost) != cudaSuccess) {
        return 3;
    }
    if (cudaIpcCloseMemHandle(p) != cudaSuccess) {
        return 4;
    }
    return strcmp(text, "from the other process") == 0 ? 0 : 5;
}

START_TEST(memory_is_opened_by_another_process) {
    cudaIpcMemHandle_t handle;
    char text[32] = "from the other process";
    int ends[2] = {-1, -1}, status = -1;
    void *p = NULL;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork(); /* before the first call: a runtime does not survive a fork */
    if (child == 0) {
        _exit(open_and_read(ends[0]));
    }
    OK(cudaMalloc(&p, 4096));
    OK(cudaMemcpy(p, text, sizeof text, cudaMemcpyHostToDevice));
    OK(cudaIpcGetMemHandle(&handle, p));
    ck_assert_int_eq(write(ends[1], &handle, sizeof handle), (ssize_t)sizeof handle);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_ne(cudaIpcCloseMemHandle(p), cudaSuccess);
}
END_TEST

START_TEST(events_have_handles_for_other_processes) {
    cudaIpcEventHandle_t handle;
    cudaEvent_t event = NULL;
    OK(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    DRIVER(supported_fn, supported, "simcuda_supported");
    if (supported("cuIpcGetEventHandle") == 1) {
        OK(cudaIpcGetEventHandle(&handle, event));
    } else { /* then the driver's answer passes through */
        FAILS(cudaIpcGetEventHandle(&handle, event), cudaErrorNotSupported);
    }
    OK(cudaEventDestroy(event));
}
END_TEST

/* ---------------------------------------------------------------- kernels and variables */
static const char module_text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .global .align 4 .b8 table[64];\n"
                                  ".visible .entry scale(.param .u64 scale_param_0,\n"
                                  "    .param .u32 scale_param_1)\n{\n    ret;\n}\n";
static const struct simrt_fatbin_wrapper wrapper = {RT_FATBIN_MAGIC, 1, module_text, NULL};
static char scale_stub, table_shadow, unregistered;

static void scale(const simcuda_launch_t *launch) {
    CUdeviceptr address = 0;
    unsigned factor = 0;
    ck_assert_uint_eq(launch->param_count, 2);
    memcpy(&address, launch->params[0], sizeof address);
    memcpy(&factor, launch->params[1], sizeof factor);
    DRIVER(host_fn, host, "simcuda_host");
    unsigned *values = host(address);
    for (unsigned i = 0; i < launch->grid[0] * launch->block[0]; i++) {
        values[i] *= factor;
    }
}

static void **register_module(void) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_kernel_t kernel = {
        .name = "scale", .fn = scale, .duration_ns = -1, .param_count = 2, .param_bytes = sizes};
    DRIVER(register_fn, add, "simcuda_register_kernel");
    ck_assert_int_eq(add(&kernel), 0);
    void **module = __cudaRegisterFatBinary((void *)(uintptr_t)&wrapper);
    __cudaRegisterFunction(module, &scale_stub, &scale_stub, "scale", -1, NULL, NULL, NULL, NULL,
                           NULL);
    __cudaRegisterVar(module, &table_shadow, &table_shadow, "table", 0, 64, 0, 0);
    __cudaRegisterFatBinaryEnd(module);
    return module;
}

START_TEST(kernels_are_launched_by_their_stubs) {
    unsigned values[4] = {1, 2, 3, 4}, factor = 3;
    void *p = NULL, *args[] = {&p, &factor};
    void **module = register_module();
    OK(cudaMalloc(&p, sizeof values));
    OK(cudaMemcpy(p, values, sizeof values, cudaMemcpyHostToDevice));
    dim3 grid = {2, 1, 1}, block = {2, 1, 1}, none = {0, 1, 1};
    OK(cudaLaunchKernel(&scale_stub, grid, block, args, 0, NULL));
    factor = 2; /* taken at the launch, not later */
    OK(cudaLaunchKernel_ptsz(&scale_stub, grid, block, args, 0, NULL));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(values, p, sizeof values, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(values[0], 6);
    ck_assert_uint_eq(values[3], 24);
    FAILS(cudaLaunchKernel(&unregistered, grid, block, args, 0, NULL),
          cudaErrorInvalidDeviceFunction);
    FAILS(cudaLaunchKernel(&scale_stub, none, block, args, 0, NULL),
          cudaErrorInvalidConfiguration);
    __cudaUnregisterFatBinary(module);
    FAILS(cudaLaunchKernel(&scale_stub, grid, block, args, 0, NULL),
          cudaErrorInvalidDeviceFunction);
}
END_TEST

START_TEST(a_configuration_is_pushed_and_popped) {
    dim3 grid = {1, 2, 3}, block = {4, 5, 6}, g, b;
    size_t shared = 0;
    cudaStream_t stream = NULL;
    FAILS(__cudaPopCallConfiguration(&g, &b, &shared, &stream), cudaErrorMissingConfiguration);
    ck_assert_uint_eq(__cudaPushCallConfiguration(grid, block, 7, cudaStreamPerThread), 0);
    ck_assert_uint_eq(__cudaPushCallConfiguration(block, grid, 8, NULL), 0);
    OK(__cudaPopCallConfiguration(&g, &b, &shared, &stream));
    ck_assert_uint_eq(g.z, 6);
    OK(__cudaPopCallConfiguration(&g, &b, &shared, &stream));
    ck_assert_uint_eq(g.x, 1);
    ck_assert_uint_eq(b.z, 6);
    ck_assert_uint_eq(shared, 7);
    ck_assert_ptr_eq(stream, cudaStreamPerThread);
}
END_TEST

#if RT_MAJOR >= 12
START_TEST(kernels_are_launched_by_their_handles) {
    unsigned values[2] = {5, 6}, factor = 2;
    void *p = NULL, *args[] = {&p, &factor};
    cudaKernel_t kernel = NULL, public_kernel = NULL;
    dim3 grid = {2, 1, 1}, block = {1, 1, 1};
    register_module();
    OK(__cudaGetKernel(&kernel, &scale_stub));
    OK(cudaMalloc(&p, sizeof values));
    OK(cudaMemcpy(p, values, sizeof values, cudaMemcpyHostToDevice));
    OK(__cudaLaunchKernel(kernel, grid, block, args, 0, NULL));
    OK(__cudaLaunchKernel_ptsz(kernel, grid, block, args, 0, NULL));
    cudaLaunchConfig_t config = {.gridDim = grid, .blockDim = block};
    OK(cudaLaunchKernelExC(&config, &scale_stub, args));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(values, p, sizeof values, cudaMemcpyDeviceToHost));
    ck_assert_uint_eq(values[1], 48);
    OK(cudaGetKernel(&public_kernel, &scale_stub));
    DRIVER(cuKernelGetFunction_fn, get_function, "cuKernelGetFunction");
    CUfunction function = NULL;
    ck_assert_int_eq(get_function(&function, public_kernel), CUDA_SUCCESS);
    FAILS(__cudaGetKernel(&kernel, &unregistered), cudaErrorSymbolNotFound);
    FAILS(__cudaLaunchKernel(NULL, grid, block, args, 0, NULL), cudaErrorInvalidDeviceFunction);
}
END_TEST
#endif

START_TEST(kernels_have_attributes) {
    struct cudaFuncAttributes a;
    int blocks = 0;
    register_module();
    OK(cudaFuncGetAttributes(&a, &scale_stub));
    ck_assert_int_gt(a.maxThreadsPerBlock, 0);
    OK(cudaFuncSetAttribute(&scale_stub, cudaFuncAttributeMaxDynamicSharedMemorySize, 4096));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &scale_stub, 128, 0));
    ck_assert_int_gt(blocks, 0);
    FAILS(cudaFuncGetAttributes(&a, &unregistered), cudaErrorInvalidDeviceFunction);
}
END_TEST

START_TEST(variables_are_copied_by_name) {
    char from[64] = "a variable", to[64] = "";
    void *address = NULL;
    size_t size = 0;
    register_module();
    OK(cudaMemcpyToSymbol(&table_shadow, from, 32, 16, cudaMemcpyHostToDevice));
    OK(cudaMemcpyFromSymbol(to, &table_shadow, 32, 16, cudaMemcpyDeviceToHost));
    ck_assert_str_eq(from, to);
    OK(cudaGetSymbolSize(&size, &table_shadow));
    ck_assert_uint_eq(size, 64);
    OK(cudaGetSymbolAddress(&address, &table_shadow));
    ck_assert_ptr_nonnull(address);
    memset(to, 0, sizeof to);
    OK(cudaMemcpyFromSymbolAsync_ptsz(to, &table_shadow, 32, 16, cudaMemcpyDefault, NULL));
    OK(cudaDeviceSynchronize());
    ck_assert_str_eq(from, to);
    FAILS(cudaMemcpyToSymbol(&table_shadow, from, 32, 48, cudaMemcpyHostToDevice),
          cudaErrorInvalidValue);
    FAILS(cudaMemcpyToSymbol(&table_shadow, from, 8, 0, cudaMemcpyDeviceToHost),
          cudaErrorInvalidMemcpyDirection);
    FAILS(cudaGetSymbolAddress(&address, &unregistered), cudaErrorInvalidSymbol);
}
END_TEST

/* ---------------------------------------------------------------- entry points */
START_TEST(driver_functions_through_the_runtime) {
    void *p = NULL, *twin = NULL;
#if RT_MAJOR >= 12
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    OK(cudaGetDriverEntryPoint("cuMemAlloc", &p, cudaEnableDefault, &status));
    ck_assert_int_eq(status, cudaDriverEntryPointSuccess);
    ck_assert_ptr_eq(p, driver("cuMemAlloc_v2"));
    OK(cudaGetDriverEntryPoint("cuNoSuchFunction", &p, cudaEnableDefault, &status));
    ck_assert_ptr_null(p);
    ck_assert_int_eq(status, cudaDriverEntryPointSymbolNotFound);
    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &p, 2000, cudaEnableDefault, NULL));
    ck_assert_ptr_ne(p, driver("cuMemAlloc_v2"));
    OK(cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &p, 7000, 0, &status));
    ck_assert_int_eq(status, cudaDriverEntryPointVersionNotSufficent);
    OK(cudaGetDriverEntryPoint("cuMemcpyAsync", &p, cudaEnableDefault, &status));
    OK(cudaGetDriverEntryPoint_ptsz("cuMemcpyAsync", &twin, cudaEnableDefault, &status));
#else
    OK(cudaGetDriverEntryPoint("cuMemAlloc", &p, cudaEnableDefault));
    ck_assert_ptr_eq(p, driver("cuMemAlloc_v2"));
    FAILS(cudaGetDriverEntryPoint("cuNoSuchFunction", &p, cudaEnableDefault),
          cudaErrorSymbolNotFound);
    OK(cudaGetDriverEntryPoint("cuMemcpyAsync", &p, cudaEnableDefault));
    OK(cudaGetDriverEntryPoint_ptsz("cuMemcpyAsync", &twin, cudaEnableDefault));
#endif
    ck_assert_ptr_eq(p, driver("cuMemcpyAsync"));
    ck_assert_ptr_eq(twin, driver("cuMemcpyAsync_ptsz"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("runtime");
    TCase *tests = tcase_create("simulated device");
    tcase_add_test(tests, devices_are_counted_and_chosen);
    tcase_add_test(tests, a_thread_starts_on_device_0_with_the_same_context);
    tcase_add_test(tests, a_context_of_the_driver_api_is_used);
    tcase_add_test(tests, reset_begins_anew);
    tcase_add_test(tests, properties_agree_with_attributes);
    tcase_add_test(tests, flags_and_limits);
    tcase_add_test(tests, memory_comes_and_goes);
    tcase_add_test(tests, pitched_memory);
    tcase_add_test(tests, pointers_tell_what_they_are);
    tcase_add_test(tests, host_memory_is_registered);
    tcase_add_test(tests, copies_of_every_kind);
    tcase_add_test(tests, copies_of_rectangles_and_boxes);
    tcase_add_test(tests, peers_copy);
    tcase_add_test(tests, stream_ordered_memory_and_pools);
    tcase_add_test(tests, what_is_not_ready_is_no_error);
    tcase_add_test(tests, streams_events_and_host_functions);
    tcase_add_test(tests, a_captured_graph_runs);
    tcase_add_test(tests, memory_is_opened_by_another_process);
    tcase_add_test(tests, events_have_handles_for_other_processes);
    tcase_add_test(tests, kernels_are_launched_by_their_stubs);
    tcase_add_test(tests, a_configuration_is_pushed_and_popped);
#if RT_MAJOR >= 12
    tcase_add_test(tests, kernels_are_launched_by_their_handles);
#endif
    tcase_add_test(tests, kernels_have_attributes);
    tcase_add_test(tests, variables_are_copied_by_name);
    tcase_add_test(tests, driver_functions_through_the_runtime);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
