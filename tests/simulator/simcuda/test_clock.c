/* clock:real: work completes without polling, blocking host functions hold up their
 * own stream only, many threads at once, costs.  Nothing here waits for a fixed time. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include "sim_test.h"

static void post(void *semaphore) {
    sem_post(semaphore);
}

static void take(void *semaphore) {
    sem_wait(semaphore);
}

START_TEST(work_completes_without_polling) {
    sem_t done;
    sem_init(&done, 0, 0);
    start();
    CUfunction kernel = nothing_kernel();
    CUstream stream;
    CUdeviceptr a;
    int *pinned;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc((void **)&pinned, sizeof *pinned, 0));
    OK(cuMemAlloc_v2(&a, 4));
    OK(cuMemsetD32Async(a, 17, 1, stream));
    OK(run(kernel, stream));
    OK(cuMemcpyDtoHAsync_v2(pinned, a, sizeof *pinned, stream));
    OK(cuLaunchHostFunc(stream, post, &done));
    sem_wait(&done); /* the only thing this thread does */
    ck_assert_int_eq(*pinned, 17);
}
END_TEST

START_TEST(a_blocked_host_function_holds_its_stream_only) {
    sem_t gate;
    sem_init(&gate, 0, 0);
    start();
    CUfunction kernel = nothing_kernel();
    CUstream held, free_one;
    CUdeviceptr a;
    int out = 0;
    OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&a, 4));
    OK(cuLaunchHostFunc(held, take, &gate));
    OK(run(kernel, held));
    CUevent end = mark(held);
    OK(run(kernel, free_one));
    OK(cuMemsetD32Async(a, 3, 1, free_one));
    OK(cuMemcpyDtoHAsync_v2(&out, a, sizeof out, free_one));
    OK(cuStreamSynchronize(free_one));
    ck_assert_int_eq(out, 3);
    GIVES(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    GIVES(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    sem_post(&gate);
    OK(cuStreamSynchronize(held));
    OK(cuEventQuery(end));
}
END_TEST

START_TEST(a_value_written_by_the_host_releases_a_stream) {
    start();
    atomic_uint *flag;
    CUdeviceptr address;
    CUstream stream;
    OK(cuMemHostAlloc((void **)&flag, 4, 0));
    OK(cuMemHostGetDevicePointer_v2(&address, (void *)flag, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(stream, address, 1, 1));
    GIVES(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    atomic_store(flag, 1);
    OK(cuStreamSynchronize(stream));
}
END_TEST

/* The device removes finished work although the program never queries, and each item once. */
START_TEST(a_long_queue_stays_short) {
    start();
    CUfunction kernel = nothing_kernel();
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    simcuda_set_kernel_ns(1);
    for (int i = 0; i < 20000; i++) {
        OK(run(kernel, stream));
        if (i % 100 == 99)
            ck_assert_uint_lt(simcuda_pending_work(), 10000);
    }
    OK(cuStreamSynchronize(stream));
    ck_assert_uint_eq(simcuda_pending_work(), 0);
}
END_TEST

static CUcontext shared_ctx;
static CUfunction shared_kernel;

static void *busy(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    CUstream stream;
    OK(cuCtxSetCurrent(shared_ctx));
    OK(cuStreamCreate(&stream, seed % 2));
    for (int i = 0; i < 300; i++) {
        CUdeviceptr a;
        unsigned value = seed * 1000 + (unsigned)i, out = 0;
        OK(cuMemAlloc_v2(&a, 4096));
        OK(cuMemsetD32Async(a, value, 1024, stream));
        OK(run(shared_kernel, i % 5 ? stream : CU_STREAM_PER_THREAD));
        OK(cuMemcpyDtoHAsync_v2(&out, a + 4092, 4, stream));
        ck_assert_uint_eq(out, value);
        CUevent event = mark(stream);
        OK(cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
        OK(cuEventDestroy_v2(event));
        OK(cuMemFree_v2(a));
    }
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}

START_TEST(threads_work_side_by_side) {
    pthread_t threads[4];
    shared_ctx = start();
    shared_kernel = nothing_kernel();
    simcuda_set_kernel_ns(1000);
    for (size_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, busy, (void *)(i + 1));
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(simcuda_pending_work(), 0);
    ck_assert_uint_eq(simcuda_live_allocations(NULL), 0);
}
END_TEST

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

START_TEST(published_costs_are_paid) {
    CUdeviceptr a;
    ck_assert_int_eq(simcuda_configure("costs:published"), 0);
    start();
    double before = seconds();
    for (int i = 0; i < 100; i++) {
        OK(cuMemAlloc_v2(&a, 4096));
        OK(cuMemFree_v2(a));
    }
    ck_assert_double_ge(seconds() - before, 200 * 33e-6);
}
END_TEST

START_TEST(virtual_costs_are_exact) {
    CUdeviceptr a;
    ck_assert_int_eq(simcuda_configure("costs:published,clock:virtual"), 0);
    start();
    unsigned long long before = simcuda_now();
    OK(cuMemAlloc_v2(&a, 4096));
    OK(cuMemFree_v2(a));
    ck_assert_uint_eq(simcuda_now() - before, 66000);
    CUstream stream;
    OK(cuStreamCreate(&stream, 0));
    ck_assert_uint_eq(simcuda_now() - before, 66100);
    simcuda_advance(900);
    ck_assert_uint_eq(simcuda_now() - before, 67000);
}
END_TEST

SUITE_MAIN("clock", work_completes_without_polling, a_blocked_host_function_holds_its_stream_only,
           a_value_written_by_the_host_releases_a_stream, a_long_queue_stays_short,
           threads_work_side_by_side, published_costs_are_paid, virtual_costs_are_exact)
