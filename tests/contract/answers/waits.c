/* Requests for memory while work takes long, or does not end before the program goes on (contract 9). A request
 * waits for that work only if it would fail otherwise, and then with a limit. The device has 1 GiB. Each case
 * runs in a child process and checks its own results.
 *
 * usage: waits [CASE]    `quiet` needs a driver with a free that does not wait, and the race detector */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

#define SECONDS(s) ((uint64_t)((s)*1e9))
/* Durations of kernels. A lasting one is over before a request has to fail. An endless one never ends as far as
 * a request can tell. */
#define LASTING ((long long)1200000000)
#define ENDLESS ((long long)12000000000)
/* Times in seconds. A request waits half a second for work that could save memory. A request that would fail
 * waits for oom_wait. */
#define SOON     1
#define OOM_WAIT 4.9
#define OVER     11
enum { SOME = 100, MORE = 200, NEARLY_ALL = 900, HALF = 500 }; /* MiB */

static CUfunction endless, lasting;
static CUstream stream, second;
static CUdeviceptr flag;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void launch(CUfunction kernel) {
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* Ends the wait of the held stream and the long kernels. */
static void release(void) {
    MUST(cuStreamWriteValue32_v2(second, flag, 1, 0));
    MUST(cuCtxSynchronize());
}

static CUdeviceptr must_have(size_t mib) {
    CUdeviceptr at;
    MUST(cuMemAlloc_v2(&at, mib * MIB));
    return at;
}

/* Leaves a block of this size idle. */
static void leave_idle(size_t mib) {
    MUST(cuMemFree_v2(must_have(mib)));
}

/* Leaves idle memory in two parts, so that a request for nearly all of it must move pages. */
static void leave_pieces(void) {
    CUdeviceptr at = must_have(HALF);
    must_have(2);
    MUST(cuMemFree_v2(at));
}

static uint64_t began;
static void start(void) {
    began = now();
}

static bool took(double from, double to) {
    uint64_t spent = now() - began;
    bool good = spent >= SECONDS(from) && spent < SECONDS(to);
    if (!good)
        printf("%.3f s\n", (double)spent / 1e9);
    return good;
}

/* On a busy machine half a second becomes longer. A case that ends with SLOW runs again, a few times. */
enum { SLOW = 99, ROUNDS = 5 };

static void took_soon(void) {
    if (!took(0, SOON)) {
        fflush(stdout);
        _exit(SLOW);
    }
}

/* --- growing --- */

static void grow(void) {
    CUdeviceptr at;
    start();
    EXPECT(cuMemAlloc_v2(&at, MORE * MIB) == CUDA_SUCCESS);
    took_soon();
}

/* Expects that memory above the budget goes back once this needs no wait. */
static void expect_given_back(void) {
    for (int i = 0; i < 3000 && simcuda_used_memory(0) > 240 * MIB; i++)
        nap();
    EXPECT(simcuda_used_memory(0) <= 240 * MIB);
}

static void hold_stream(void) {
    MUST(cuStreamWaitValue32_v2(stream, flag, 1, 0));
}

static void grow_beside_a_held_stream(void) {
    leave_idle(SOME);
    hold_stream();
    grow();
    release();
}

static void grow_beside_one_that_does_not_end(void) {
    leave_idle(SOME);
    launch(endless);
    grow();
    release();
    EXPECT(simcuda_used_memory(0) <= 240 * MIB); /* by the synchronisation itself */
}

/* The program does not synchronise. The case needs a fence, so it does not run with fence:sync. */
static void grow_and_give_back_later(void) {
    const char *conf = getenv("ACCEL_ALLOC_CONF");
    if (conf && strstr(conf, "fence:sync"))
        return;
    leave_idle(SOME);
    launch(lasting);
    grow();
    expect_given_back();
}

/* Owed memory adds almost no cost to synchronisations with another stream. */
static void synchronise_beside_one_that_does_not_end(void) {
    enum { MANY = 2000 };
    leave_idle(SOME);
    launch(endless);
    grow();
    unsigned long long calls = simcuda_calls_total();
    for (int i = 0; i < MANY; i++)
        MUST(cuStreamSynchronize(second));
    EXPECT(simcuda_calls_total() - calls < MANY + MANY / 2);
    release();
    EXPECT(simcuda_used_memory(0) <= 240 * MIB);
}

static void grow_on_a_stream(void) {
    CUdeviceptr at;
    MUST(cuMemAllocAsync(&at, SOME * MIB, stream));
    MUST(cuMemFreeAsync(at, stream));
    MUST(cuStreamSynchronize(stream));
    launch(endless);
    start();
    EXPECT(cuMemAllocAsync(&at, MORE * MIB, stream) == CUDA_SUCCESS);
    took_soon();
    grow();
    release();
}

static void grow_beside_freed_memory(void) {
    CUdeviceptr at = must_have(SOME);
    MUST(cuMemsetD8Async(at, 1, MIB, stream));
    launch(endless);
    MUST(cuMemsetD8Async(at, 1, MIB, second));
    MUST(cuMemFree_v2(at));
    grow();
    grow(); /* no second wait for the same stuck work */
    release();
}

/* --- requests that would fail --- */

static CUresult ask(size_t mib) {
    CUdeviceptr at;
    start();
    return cuMemAlloc_v2(&at, mib * MIB);
}

static void fits_after_a_kernel(void) {
    leave_idle(HALF);
    launch(lasting);
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
    EXPECT(took(0, OOM_WAIT));
}

static void never_fits_beside_an_endless_one(void) {
    leave_pieces();
    launch(endless);
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(took(OOM_WAIT, OVER));
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY); /* known from the first request */
    took_soon();
    release();
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
}

/* Makes all event calls fail. Only a synchronisation can tell then that work is over, and it has no limit. */
static void no_events(void) {
    if (simcuda_fail("cuEventCreate>=1=801;cuEventRecord>=1=801;cuCtxRecordEvent>=1=801") != 0)
        exit(3);
}

static void fits_after_a_kernel_without_events(void) {
    leave_idle(HALF);
    no_events();
    launch(lasting);
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
    EXPECT(took(0, OOM_WAIT));
}

static void never_fits_beside_an_endless_one_without_events(void) {
    leave_pieces();
    no_events();
    launch(endless);
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(took(OOM_WAIT, OVER));
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY); /* known from the first request */
    took_soon();
    release();
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
}

static void what_comes_back_is_too_little(void) {
    must_have(MORE);
    leave_idle(HALF);
    launch(endless);
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    release();
}

static void a_held_stream_and_no_room(void) {
    must_have(NEARLY_ALL);
    hold_stream();
    EXPECT(ask(HALF) == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    release();
}

static void a_held_stream_and_idle_memory(void) {
    leave_pieces();
    hold_stream();
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    release();
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
}

/* The request waits although a stream is held, because a free of the driver would have waited, too. */
static void a_held_stream_and_pending_memory(void) {
    CUdeviceptr at = must_have(HALF);
    hold_stream();
    MUST(cuMemsetD8Async(at, 1, MIB, stream));
    MUST(cuMemFree_v2(at));
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(took(OOM_WAIT, OVER));
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY); /* known from the first request */
    took_soon();
    release();
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
}

/* The request does not wait, because a free in the order of the stream would not have waited. */
static void a_held_stream_and_ordered_memory(void) {
    CUdeviceptr at, plain = must_have(SOME);
    MUST(cuMemAllocAsync(&at, HALF * MIB, stream));
    hold_stream();
    MUST(cuMemFreeAsync(at, stream));
    EXPECT(ask(NEARLY_ALL - SOME) == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    MUST(cuMemsetD8Async(plain, 1, MIB, stream));
    MUST(cuMemFree_v2(plain));
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(took(OOM_WAIT, OVER)); /* a free of this memory would have waited */
    release();
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
}

static void last(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_sec = LASTING / 1000000000, .tv_nsec = LASTING % 1000000000},
              NULL);
}

static void fits_after_a_host_function(void) {
    CUdeviceptr at = must_have(HALF);
    MUST(cuMemsetD8Async(at, 1, MIB, stream));
    MUST(cuLaunchHostFunc(stream, last, NULL));
    MUST(cuMemFree_v2(at));
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
    EXPECT(took(0, OOM_WAIT));
}

/* A request gave up its wait for the stream. Later requests fit once the stream went on, although the program
 * waits only for its streams and never for the whole context. */
static void a_held_stream_that_went_on(void) {
    leave_pieces();
    hold_stream();
    EXPECT(ask(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    MUST(cuStreamWriteValue32_v2(second, flag, 1, 0));
    MUST(cuStreamSynchronize(second));
    MUST(cuStreamSynchronize(stream));
    EXPECT(ask(NEARLY_ALL) == CUDA_SUCCESS);
}

static CUresult ask_async(size_t mib) {
    CUdeviceptr at;
    start();
    return cuMemAllocAsync(&at, mib * MIB, second);
}

static CUresult ask_pitch(size_t mib) {
    CUdeviceptr at;
    size_t pitch;
    start();
    return cuMemAllocPitch_v2(&at, &pitch, MIB, mib, 4);
}

static void all_requests_alike(void) {
    leave_pieces();
    launch(endless);
    EXPECT(ask_pitch(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(took(OOM_WAIT, OVER));
    EXPECT(ask_async(NEARLY_ALL) == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    release();
    MUST(cuStreamSynchronize(second));
    EXPECT(ask_pitch(NEARLY_ALL) == CUDA_SUCCESS);
}

static CUresult create_array(void) {
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 65536, .Height = 14400, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    CUarray array;
    start();
    return cuArrayCreate_v2(&array, &shape);
}

static CUresult create_memory(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    start();
    return cuMemCreate(&handle, NEARLY_ALL * MIB, &prop, 0);
}

static CUresult load_module(void) {
    CUmodule module;
    start();
    return cuModuleLoadData(&module, "stand-in");
}

static void other_calls(void) {
    leave_idle(HALF);
    launch(lasting);
    EXPECT(create_array() == CUDA_SUCCESS);
    EXPECT(took(0, OOM_WAIT));
}

static void other_calls_beside_an_endless_one(void) {
    leave_idle(HALF);
    launch(endless);
    EXPECT(create_array() == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(took(OOM_WAIT, OVER));
    EXPECT(create_memory() == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    NEED(simcuda_fail("cuModuleLoadData>=1=2") == 0);
    EXPECT(load_module() == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    simcuda_clear_faults();
    release();
    EXPECT(create_memory() == CUDA_SUCCESS);
}

/* The calls are out of memory, but idle memory would not help them. */
static void calls_that_no_wait_would_help(void) {
    const size_t huge = (size_t)1 << 50;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CUDA_ARRAY_DESCRIPTOR plane = {65536, 65536, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUDA_ARRAY3D_DESCRIPTOR space = {16384, 16384, 16384, CU_AD_FORMAT_FLOAT, 4, 0};
    CUmipmappedArray levels;
    CUarray array;
    CUevent event;
    CUstream other;
    void *host;
    leave_idle(HALF);
    launch(endless);
    NEED(simcuda_fail("cuMipmappedArrayCreate>=1=2;cuEventCreate>=1=2;cuStreamCreate>=1=2") == 0);
    start();
    EXPECT(cuMemHostAlloc(&host, huge, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAllocHost_v2(&host, huge) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAllocManaged(&at, huge, 1) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemCreate(&handle, huge, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuArrayCreate_v2(&array, &plane) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuArray3DCreate_v2(&array, &space) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMipmappedArrayCreate(&levels, &space, 3) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuEventCreate(&event, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuStreamCreate(&other, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    simcuda_clear_faults();
    release();
}

static void other_calls_beside_a_held_stream(void) {
    leave_idle(HALF);
    hold_stream();
    EXPECT(create_memory() == CUDA_ERROR_OUT_OF_MEMORY);
    took_soon();
    release();
    EXPECT(create_memory() == CUDA_SUCCESS);
}

/* --- calls that end what the order of streams protects --- */

/* Hands memory on in the order of the stream. Its former owner is done, or comes behind the endless kernel. */
static void hand_on(bool behind) {
    CUdeviceptr at;
    if (behind)
        launch(endless);
    MUST(cuMemAllocAsync(&at, SOME * MIB, stream));
    MUST(cuMemsetD8Async(at, 1, MIB, stream));
    MUST(cuMemFreeAsync(at, stream));
    MUST(cuMemAllocAsync(&at, SOME * MIB, stream));
    if (!behind)
        launch(endless);
}

/* Launches with an attribute of no known CUDA version: it could mean anything. */
static void launch_unknown(void) {
    CUlaunchAttribute unknown = {.id = (CUlaunchAttributeID)200};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, second, &unknown, 1};
    start();
    cuLaunchKernelEx(&config, lasting, NULL, NULL);
    took_soon();
    release();
}

static void an_unknown_launch_after_memory_was_handed_on(void) {
    hand_on(false);
    launch_unknown();
}

static void an_unknown_launch_beside_its_former_owner(void) {
    hand_on(true);
    launch_unknown();
}

/* --- memory that is free by a stream's order alone, with a driver with a free that does not wait --- */

static void leave_in_use(size_t mib) {
    CUdeviceptr at = must_have(mib);
    launch(lasting);
    MUST(cuMemsetD8Async(at, 1, MIB, stream));
    MUST(cuMemFree_v2(at));
}

static void quiet_before_growing(void) {
    leave_in_use(SOME);
    grow();
    MUST(cuCtxSynchronize());
    EXPECT(simcuda_race_reports() == 0);
}

static void quiet_before_failing(void) {
    CUdeviceptr at;
    leave_in_use(HALF);
    EXPECT(cuMemAlloc_v2(&at, NEARLY_ALL * MIB) == CUDA_SUCCESS);
    EXPECT(simcuda_race_reports() == 0);
}

static void quiet_for_other_calls(void) {
    leave_in_use(HALF);
    EXPECT(create_memory() == CUDA_SUCCESS);
    EXPECT(simcuda_race_reports() == 0);
}

static void quiet_when_trimmed(void) {
    CUmemoryPool pool;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    leave_in_use(HALF);
    MUST(cuMemPoolTrimTo(pool, 0));
    MUST(cuCtxSynchronize());
    EXPECT(simcuda_race_reports() == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name)                                                                               \
    { #name, name }
    CASE(grow_beside_a_held_stream),
    CASE(grow_beside_one_that_does_not_end),
    CASE(grow_and_give_back_later),
    CASE(synchronise_beside_one_that_does_not_end),
    CASE(grow_on_a_stream),
    CASE(grow_beside_freed_memory),
    CASE(fits_after_a_kernel),
    CASE(never_fits_beside_an_endless_one),
    CASE(fits_after_a_kernel_without_events),
    CASE(never_fits_beside_an_endless_one_without_events),
    CASE(what_comes_back_is_too_little),
    CASE(a_held_stream_and_no_room),
    CASE(a_held_stream_and_idle_memory),
    CASE(a_held_stream_and_pending_memory),
    CASE(a_held_stream_and_ordered_memory),
    CASE(fits_after_a_host_function),
    CASE(a_held_stream_that_went_on),
    CASE(all_requests_alike),
    CASE(other_calls),
    CASE(other_calls_beside_an_endless_one),
    CASE(calls_that_no_wait_would_help),
    CASE(other_calls_beside_a_held_stream),
    CASE(an_unknown_launch_after_memory_was_handed_on),
    CASE(an_unknown_launch_beside_its_former_owner),
    CASE(quiet_before_growing),
    CASE(quiet_before_failing),
    CASE(quiet_for_other_calls),
    CASE(quiet_when_trimmed),
};

static void run(const void *arg) {
    void *host;
    test_device(0);
    endless = test_kernel(&(simcuda_kernel_t){.name = "endless", .duration_ns = ENDLESS});
    lasting = test_kernel(&(simcuda_kernel_t){.name = "lasting", .duration_ns = LASTING});
    stream = test_stream();
    second = test_stream();
    MUST(cuMemAllocHost_v2(&host, 4));
    memset(host, 0, 4);
    MUST(cuMemHostGetDevicePointer_v2(&flag, host, 0));
    alarm(600); /* ends a case that hangs, but not one that only lacks processor time */
    (*(void (*const *)(void))arg)();
}

/* Cases mostly wait, each in a process of its own, so several run at once. */
enum { AT_ONCE = 6 };

static unsigned reap(void) {
    int status;
    NEED(wait(&status) > 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int main(int argc, char **argv) {
    unsigned failed = 0, ran = 0, running = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool quiet = !strncmp(cases[i].name, "quiet_", 6);
        if (argc > 1 ? !strstr(cases[i].name, argv[1]) : quiet)
            continue;
        if (running == AT_ONCE) {
            failed += reap();
            running--;
        }
        pid_t child = fork();
        NEED(child >= 0);
        if (!child) {
            test_title = cases[i].name;
            int status, round = 0;
            do
                status = in_child(cases[i].name, run, &cases[i].run);
            while (WIFEXITED(status) && WEXITSTATUS(status) == SLOW && ++round < ROUNDS);
            fflush(stdout);
            _exit(status != 0);
        }
        ran++;
        running++;
    }
    while (running--)
        failed += reap();
    printf("%u cases, %u failed\n", ran, failed);
    return failed || !ran;
}
