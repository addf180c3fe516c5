/* Faults on demand and faults that happen by themselves: the fault plan, sticky errors, bad
 * settings, forks, ends of processes. */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_test.h"

START_TEST(the_nth_call_fails) {
    CUdeviceptr a;
    start();
    ck_assert_int_eq(simcuda_fail("cuMemAlloc@2"), 0);
    OK(cuMemAlloc_v2(&a, 512));
    GIVES(cuMemAlloc_v2(&a, 512), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&a, 512));
    ck_assert_int_eq(simcuda_fail("cuMemFree_v2@1;cuCtxGetCurrent@1=46"), 0);
    GIVES(cuMemFree_v2(a), CUDA_ERROR_UNKNOWN);
    OK(cuMemFree_v2(a));
    CUcontext ctx;
    GIVES(cuCtxGetCurrent(&ctx), CUDA_ERROR_DEVICE_UNAVAILABLE);
    OK(cuCtxGetCurrent(&ctx));
    OK(cuMemAlloc_v2(&a, 512));
    ck_assert_int_eq(simcuda_fail("cuMemFree@1=0"), 0);
    unsigned long long used = simcuda_used_memory(0);
    OK(cuMemFree_v2(a)); /* so it says */
    ck_assert_uint_eq(simcuda_used_memory(0), used);
    OK(cuMemFree_v2(a));
    ck_assert_uint_lt(simcuda_used_memory(0), used);
}
END_TEST

START_TEST(all_calls_from_the_nth_on_fail) {
    CUdeviceptr a;
    start();
    ck_assert_int_eq(simcuda_fail("cuMemAlloc>=3=709"), 0);
    OK(cuMemAlloc_v2(&a, 512));
    OK(cuMemAlloc_v2(&a, 512));
    for (int i = 0; i < 3; i++)
        GIVES(cuMemAlloc_v2(&a, 512), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    simcuda_clear_faults();
    OK(cuMemAlloc_v2(&a, 512));
    ck_assert_uint_eq(simcuda_calls("cuMemAlloc_v2"), 6);
    simcuda_reset_calls();
    ck_assert_uint_eq(simcuda_calls("cuMemAlloc_v2"), 0);
}
END_TEST

START_TEST(plans_and_settings_are_checked) {
    ck_assert_int_ne(simcuda_fail("cuNoSuchThing@1"), 0);
    ck_assert_int_ne(simcuda_fail("cuMemAlloc@0"), 0);
    ck_assert_int_ne(simcuda_fail("cuMemAlloc"), 0);
    ck_assert_int_ne(simcuda_configure("colour:red"), 0);
    ck_assert_int_ne(simcuda_configure("memory:lots"), 0);
    ck_assert_int_ne(simcuda_configure("devices:65"), 0);
    ck_assert_int_eq(simcuda_configure("memory:8M,kernel_us:3"), 0);
    start();
    ck_assert_int_eq(simcuda_configure("kernel_us:4"), 0);
    ck_assert_int_ne(simcuda_configure("memory:16M"), 0); /* too late */
}
END_TEST

START_TEST(settings_describe_themselves) {
    char text[8192], little[8];
    size_t length = simcuda_describe(text, sizeof text);
    ck_assert_uint_lt(length, sizeof text);
    ck_assert_uint_eq(strlen(text), length);
    ck_assert_ptr_nonnull(strstr(text, "\nmemory\t16G\tSTART\t"));
    ck_assert_uint_eq(simcuda_describe(little, sizeof little), length);
    ck_assert_uint_eq(strlen(little), sizeof little - 1);
}
END_TEST

START_TEST(an_unreadable_setting_fails_the_start) {
    pid_t child = fork();
    if (!child) {
        setenv("ACCEL_SIM", "memry:4G", 1);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        _exit(cuInit(0) == CUDA_ERROR_UNKNOWN ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(no_device) {
    int count;
    ck_assert_int_eq(simcuda_configure("devices:0"), 0);
    GIVES(cuInit(0), CUDA_ERROR_NO_DEVICE);
    GIVES(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
}
END_TEST

START_TEST(a_faulting_launch_breaks_its_context_for_good) {
    CUcontext ctx = start(), other;
    CUfunction kernel = nothing_kernel();
    CUdeviceptr a;
    CUevent event;
    OK(cuEventCreate(&event, 0));
    simcuda_sticky(2);
    OK(run(kernel, NULL));
    OK(cuCtxSynchronize());
    OK(run(kernel, NULL));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuMemAlloc_v2(&a, 512), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    GIVES(run(kernel, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuCtxCreate_v2(&other, 0, 0)); /* another context is well */
    OK(cuMemAlloc_v2(&a, 512));
    OK(cuCtxSetCurrent(ctx));
    OK(cuDevicePrimaryCtxReset_v2(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuMemAlloc_v2(&a, 512));
}
END_TEST

START_TEST(work_on_memory_that_went_away_faults) {
    static const simcuda_access_t writes = {0, -1, 64, 1};
    static const simcuda_kernel_t toucher = {.name = "nothing",
                                             .duration_ns = 50000000,
                                             .param_count = 1,
                                             .access_count = 1,
                                             .access = &writes};
    start();
    ck_assert_int_eq(simcuda_configure("free_sync:false"), 0);
    ck_assert_int_eq(simcuda_register_kernel(&toucher), 0);
    CUfunction kernel = nothing_kernel();
    CUdeviceptr a;
    OK(cuMemAlloc_v2(&a, 4096));
    void *params[] = {&a};
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuMemFree_v2(a)); /* while the kernel still runs */
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

static int status_of(pid_t child) {
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

START_TEST(a_fork_child_gets_errors_and_does_not_hang) {
    start();
    CUfunction kernel = nothing_kernel();
    OK(run(kernel, NULL));
    pid_t child = fork();
    if (!child) {
        CUdeviceptr a;
        CUcontext ctx;
        const char *name;
        int bad = cuMemAlloc_v2(&a, 512) != CUDA_ERROR_NOT_INITIALIZED ||
                  cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
                  cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED ||
                  cuCtxGetCurrent(&ctx) != CUDA_ERROR_NOT_INITIALIZED ||
                  cuGetErrorName(2, &name) != CUDA_SUCCESS || simcuda_live_allocations(NULL) != 0;
        _exit(bad);
    }
    ck_assert_int_eq(status_of(child), 0);
    OK(cuCtxSynchronize());
}
END_TEST

static void never_ends(void *gate) {
    pthread_mutex_lock(gate);
}

START_TEST(a_process_ends_with_work_in_the_queue) {
    pid_t child = fork();
    if (!child) {
        static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
        pthread_mutex_lock(&gate);
        start();
        CUfunction kernel = nothing_kernel();
        simcuda_set_kernel_ns(1000000000000);
        OK(cuLaunchHostFunc(NULL, never_ends, &gate));
        OK(run(kernel, NULL));
        exit(0);
    }
    ck_assert_int_eq(status_of(child), 0);
}
END_TEST

static void call_after_main(void) {
    CUdeviceptr a;
    if (cuMemAlloc_v2(&a, 512) != CUDA_SUCCESS)
        _exit(3);
}

START_TEST(handlers_at_exit_may_still_call) {
    pid_t child = fork();
    if (!child) {
        start();
        atexit(call_after_main);
        exit(0);
    }
    ck_assert_int_eq(status_of(child), 0);
}
END_TEST

SUITE_MAIN("faults", the_nth_call_fails, all_calls_from_the_nth_on_fail,
           plans_and_settings_are_checked, settings_describe_themselves,
           an_unreadable_setting_fails_the_start, no_device,
           a_faulting_launch_breaks_its_context_for_good, work_on_memory_that_went_away_faults,
           a_fork_child_gets_errors_and_does_not_hang, a_process_ends_with_work_in_the_queue,
           handlers_at_exit_may_still_call)
