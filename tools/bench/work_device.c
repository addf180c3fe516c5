/* Work in between: launches of a kernel that does nothing. */
#include "work.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include PEER_HEADER

#if PEER_DEVICE
#include "simcuda.h"

#define CU_FN(symbol, name, since, mode, params, args) CUresult symbol params;
#include "device/cuda_functions.def"
#undef CU_FN

enum { MAX_STREAMS = 512 };

struct work_device {
    CUcontext context;
    CUfunction noop;
    CUstream stream[MAX_STREAMS];
    long streams;
};

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry bench_noop() { ret; }\n";

#define MUST(call) must(call, #call)
static void must(CUresult result, const char *call) {
    if (result)
        work_fail(call, result);
}

void work_device_launch(const work_device_t *device, long stream) {
    MUST(cuLaunchKernel(device->noop, 1, 1, 1, 1, 1, 1, 0, device->stream[stream], NULL, NULL));
}

/* Gives the kernel no duration on the simulated device.  Otherwise the figure would include a
 * growing queue. */
static void describe_kernel(void) {
    __typeof__(&simcuda_register_kernel) register_kernel;
    void *found = dlsym(RTLD_DEFAULT, "simcuda_register_kernel");
    memcpy(&register_kernel, &found, sizeof found);
    const simcuda_kernel_t kernel = {.name = "bench_noop"};
    if (found)
        register_kernel(&kernel);
}

/* A second thread, which every process that uses a GPU has.  With only one thread, the C library's
 * locks skip their atomic operations.  A peer that starts a thread would then pay for those in the
 * simulated driver. */
static void *idle(void *unused) {
    for (;;)
        pause();
    return unused;
}

static void need_two_threads(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, idle, NULL))
        work_fail("pthread_create", 0);
    pthread_detach(thread);
}

/* Opens the peer's device.  When this returns, every stream has had work. */
work_device_t *work_device_open(long streams) {
    static work_device_t device;
    CUmodule module;
    need_two_threads();
    work_peer_give(work_peer_take(512), 512); /* the runtime makes its context current here */
    describe_kernel();
    MUST(cuCtxGetCurrent(&device.context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&device.noop, module, "bench_noop"));
    device.streams = streams;
    for (long i = 0; i < streams; i++) {
        MUST(cuStreamCreate(&device.stream[i], CU_STREAM_NON_BLOCKING));
        work_device_launch(&device, i);
    }
    MUST(cuCtxSynchronize());
    return &device;
}

void work_device_thread(const work_device_t *device) {
    MUST(cuCtxSetCurrent(device->context));
}

void *work_device_stream(const work_device_t *device, long stream) {
    return device->stream[stream];
}

void work_device_wait(const work_device_t *device) {
    (void)device;
    MUST(cuCtxSynchronize());
}

/* Begins a capture in relaxed mode, in which requests are allowed. */
void work_device_capture(const work_device_t *device) {
    MUST(cuStreamBeginCapture_v2(device->stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
}

/* ---------------------------------------------------------------- passes */

static work_device_t *device;

static double launch_pass(const work_t *w, long pairs) {
    double begin = work_clock(w);
    for (long i = 0; i < pairs; i++)
        work_device_launch(device, i % w->streams);
    double took = work_clock(w) - begin;
    MUST(cuCtxSynchronize());
    return took;
}

/* The final wait is not timed: on a GPU it is the time of the kernels. */
static double pair_launch_pass(const work_t *w, long pairs) {
    double begin = work_clock(w);
    for (long i = 0; i < pairs; i++) {
        void *on = device->stream[i % w->streams], *pointer = peer_take((size_t)w->bytes, on);
        work_device_launch(device, i % w->streams);
        peer_give(pointer, (size_t)w->bytes, on);
    }
    double took = work_clock(w) - begin;
    MUST(cuCtxSynchronize());
    return took;
}

/* Measures, then runs once more between two readings of the library's statistics, to count fences.
 * No reading is taken in between: the simulated driver allocates each launch from the same heap,
 * which a reading would fragment. */
static void measure(const work_t *w, work_pass_fn *pass) {
    enum { COUNTED = 8192 };
    device = work_device_open(w->streams);
    work_measure(w, pass);
    char *before = work_statistics();
    pass(w, COUNTED);
    char *after = work_statistics();
    printf(", \"before\": %s, \"after\": %s", before, after);
    free(before);
    free(after);
}

void work_launch(const work_t *w) {
    measure(w, launch_pass);
}

void work_pair_launch(const work_t *w) {
    measure(w, pair_launch_pass);
}

#else

work_device_t *work_device_open(long streams) {
    (void)streams;
    return NULL;
}

void work_device_thread(const work_device_t *device) {
    (void)device;
}

void work_device_launch(const work_device_t *device, long stream) {
    (void)device;
    (void)stream;
}

void *work_device_stream(const work_device_t *device, long stream) {
    (void)device;
    (void)stream;
    return NULL;
}

void work_device_wait(const work_device_t *device) {
    (void)device;
}

void work_device_capture(const work_device_t *device) {
    (void)device;
}

#endif

work_device_t *work_launches(const work_t *w) {
    if (w->launch && !work_peer_device())
        work_fail("launch=1: this peer submits nothing", 0);
    return w->launch || w->streams > 1 ? work_device_open(w->streams) : NULL;
}
