/* Frees that must not wait: the second part of the barrier program (barrier.c). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "barrier.h"

static void configure(const char *text) {
    accel_status_t (*set)(const char *, char *, size_t);
    NEED(test_find("accel_set_allocator_settings", &set));
    MUST(set(text, NULL, 0));
}

static bool waits(void) {
    CUstream late = test_stream();
    MUST(cuLaunchKernel(held, 1, 1, 1, 1, 1, 1, 0, late, NULL, NULL));
    long long before = test_figure("free_waits");
    barrier();
    return test_figure("free_waits") != before;
}

static void expect_no_wait(void) {
    EXPECT(!waits());
}

static void result_waits(void) {
    to_host(1);
    barrier();
    EXPECT(*result == 1);
    EXPECT(real_time() || (test_figure("free_waits") == 1 && test_figure("free_wait_ns") > 0));
}

static void nothing_visible(void) {
    MUST(cuMemcpyHtoDAsync_v2(memory, (void *)result, 4, stream));
    MUST(cuMemcpyDtoDAsync_v2(memory + KIB, memory, 4, stream));
    expect_no_wait();
}

/* The copy is over, and pending work has no visible result. */
static void visible_is_over(void) {
    result_waits();
    expect_no_wait();
}

static void behind_stream(void) {
    to_host(1);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
    expect_no_wait();
}

static void behind_query(void) {
    to_host(1);
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
        ;
    MUST(cuLaunchKernel(held, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
    expect_no_wait();
}

static void behind_context(void) {
    to_host(1);
    MUST(cuCtxSynchronize());
    expect_no_wait();
    MUST(cuLaunchKernel(held, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
    expect_no_wait();
}

static void behind(CUevent event) {
    MUST(cuEventSynchronize(event));
    MUST(cuLaunchKernel(held, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
    expect_no_wait();
}

static void behind_event(void) {
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    to_host(1);
    MUST(cuEventRecord(event, stream));
    behind(event);
}

static void behind_event_query(void) {
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    to_host(1);
    MUST(cuEventRecord(event, stream));
    while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        ;
    behind(event);
}

static void behind_copy_by(void (*copy)(void)) {
    to_host_legacy(1);
    copy();
    MUST(cuLaunchKernel(held, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
    expect_no_wait();
}

static void copy_back(void) {
    unsigned word;
    MUST(cuMemcpyDtoH_v2(&word, memory, 4));
}

static void copy_rows_back(void) {
    unsigned word;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .srcPitch = 4,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = &word,
                          .dstPitch = 4,
                          .WidthInBytes = 4,
                          .Height = 1};
    MUST(cuMemcpy2D_v2(&rows));
}

static void behind_copy(void) {
    behind_copy_by(copy_back);
}

static void behind_copy_of_rows(void) {
    behind_copy_by(copy_rows_back);
}

static void behind_joined_stream(void) {
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    to_host(1);
    MUST(cuEventRecord(event, stream));
    MUST(cuStreamWaitEvent(other, event, 0));
    MUST(cuStreamSynchronize(other));
    MUST(cuLaunchKernel(held, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
    expect_no_wait();
}

static void behind_managed(void) {
    managed(1);
    MUST(cuStreamSynchronize(stream));
    MUST(cuLaunchKernel(held, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    expect_no_wait();
}

/* Once the program holds no memory that the host can read, kernels have no visible result, and a
 * free need not wait. */
static void managed_is_gone(void) {
    CUdeviceptr address;
    void *host, *locked;
    MUST(cuMemAllocManaged(&address, 4 * KIB, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemHostAlloc(&host, 4 * KIB, CU_MEMHOSTALLOC_DEVICEMAP));
    NEED(posix_memalign(&locked, 4 * KIB, 4 * KIB) == 0);
    MUST(cuMemHostRegister_v2(locked, 4 * KIB, CU_MEMHOSTREGISTER_DEVICEMAP));
    write_to(address, 1, stream);
    barrier();
    EXPECT(*(volatile unsigned *)(uintptr_t)address == 1);
    MUST(cuMemFree_v2(address));
    MUST(cuMemFreeHost(host));
    MUST(cuMemHostUnregister(locked));
    expect_no_wait();
}

/* The library tracks separately for each device if the program awaits results itself. */
static void another_device(void) {
    CUcontext second = test_device(1);
    CUstream there = test_stream();
    CUdeviceptr address = block();
    MUST(cuMemcpyDtoHAsync_v2((void *)(result + 1), address, 4, there));
    MUST(cuStreamSynchronize(there));
    MUST(cuCtxSetCurrent(first));
    result_waits();
    long long before = test_figure("free_waits");
    MUST(cuCtxSetCurrent(second));
    MUST(cuLaunchKernel(test_kernel(&(simcuda_kernel_t){.name = "held", .duration_ns = HELD_NS}), 1,
                        1, 1, 1, 1, 1, 0, there, NULL, NULL));
    MUST(cuMemcpyDtoHAsync_v2((void *)(result + 1), address, 4, there));
    MUST(cuMemFree_v2(address));
    EXPECT(test_figure("free_waits") == before);
}

/* The kernel ends on the host's signal, and the program frees before that signal. */
static void polling_kernel(void) {
    void *flag;
    configure("dump:none,oom_wait:0.2");
    MUST(cuMemHostAlloc(&flag, 4 * KIB, CU_MEMHOSTALLOC_DEVICEMAP));
    EXPECT(waits());
    barrier(); /* does not wait a second time */
    EXPECT(test_figure("free_waits") == 1);
}

static void in_stream_order(void) {
    CUdeviceptr address;
    to_host(1);
    MUST(cuMemAllocAsync(&address, 4 * KIB, stream));
    MUST(cuMemFreeAsync(address, stream));
    EXPECT(test_figure("free_waits") == 0);
}

static void bad_frees(void) {
    CUdeviceptr address = block();
    MUST(cuMemFree_v2(address));
    to_host(1);
    GIVES(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree_v2(memory + 512), CUDA_ERROR_INVALID_VALUE);
    EXPECT(test_figure("free_waits") == 0);
}

/* A capture in the same thread stays valid, and its graph writes only after its launch. */
static void beside_capture(void) {
    CUgraph graph;
    CUdeviceptr address = block();
    MUST(cuMemcpyDtoHAsync_v2((void *)(result + 1), memory, 4, other));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    write_to(memory, 7, stream);
    MUST(cuMemFree_v2(address));
    MUST(cuMemcpyDtoHAsync_v2((void *)result, memory, 4, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    EXPECT(test_figure("free_waits") == 0);
    launch_graph(graph);
    barrier();
    EXPECT(*result == 7);
}

/* Captured work is not pending yet. A synchronisation of its stream does not count as a wait for
 * its result. */
static void captured_only(void) {
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    to_host(1);
    MUST(cuStreamEndCapture(stream, &graph));
    barrier();
    EXPECT(test_figure("free_waits") == 0);
    MUST(cuStreamSynchronize(stream));
    launch_graph(graph);
    barrier();
    EXPECT(*result == 1);
}

static _Atomic unsigned frees_done;

static void CUDA_CB_free(void *address) {
    cuMemFree_v2((CUdeviceptr)(uintptr_t)address); /* the driver refuses it */
    atomic_fetch_add(&frees_done, 1);
}

static void in_host_function(void) {
    CUdeviceptr address = block();
    to_host(1);
    MUST(cuLaunchHostFunc(other, CUDA_CB_free, (void *)(uintptr_t)address));
    MUST(cuStreamSynchronize(other));
    EXPECT(atomic_load(&frees_done) == 1 && test_figure("free_waits") == 0);
}

static void switched_off(void) {
    configure("dump:none,free_sync:false");
    to_host(1);
    barrier();
    EXPECT((*result == 0 || real_time()) && test_figure("free_waits") == 0);
}

const barrier_look_t barrier_looks[] = {
#define LOOKS(name)                                                                              \
    { #name, name }
    LOOKS(result_waits),       LOOKS(nothing_visible), LOOKS(visible_is_over),
    LOOKS(behind_stream),      LOOKS(behind_query),    LOOKS(behind_context),
    LOOKS(behind_event),       LOOKS(behind_event_query), LOOKS(behind_joined_stream),
    LOOKS(behind_copy),        LOOKS(behind_copy_of_rows),
    LOOKS(behind_managed),     LOOKS(managed_is_gone), LOOKS(another_device),
    LOOKS(polling_kernel),     LOOKS(in_stream_order), LOOKS(bad_frees),
    LOOKS(beside_capture),     LOOKS(captured_only),   LOOKS(in_host_function),
    LOOKS(switched_off),
};
const unsigned barrier_look_count = sizeof barrier_looks / sizeof *barrier_looks;
