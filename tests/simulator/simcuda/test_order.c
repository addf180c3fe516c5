/* Ordering rules, with the virtual clock: kernels last one millisecond, so that what waited
 * for what shows in event times to the millisecond. */
#include <pthread.h>

#include "sim_test.h"

static CUcontext ctx;
static CUfunction kernel;
static CUevent origin;

static void set_up(void) {
    ctx = start();
    kernel = nothing_kernel();
    simcuda_set_kernel_ns(1000000);
    CUstream first;
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    origin = mark(first);
}

static CUstream stream_with(unsigned flags) {
    CUstream stream;
    OK(cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent run_and_mark(CUstream stream) {
    OK(run(kernel, stream));
    return mark(stream);
}

static int end_of(CUevent event) {
    OK(cuEventSynchronize(event));
    return between(origin, event);
}

START_TEST(one_stream_is_in_order_and_streams_are_not) {
    set_up();
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING), b = stream_with(CU_STREAM_NON_BLOCKING);
    CUevent a1 = run_and_mark(a), a2 = run_and_mark(a), b1 = run_and_mark(b);
    ck_assert_int_eq(end_of(a2), 2);
    ck_assert_int_eq(end_of(a1), 1);
    ck_assert_int_eq(end_of(b1), 1);
}
END_TEST

START_TEST(the_legacy_stream_waits_for_blocking_streams) {
    set_up();
    CUstream blocking = stream_with(CU_STREAM_DEFAULT),
             free = stream_with(CU_STREAM_NON_BLOCKING);
    CUevent b = run_and_mark(blocking);
    OK(run(kernel, free));
    CUevent f = run_and_mark(free);
    CUevent legacy = run_and_mark(NULL);
    CUevent after = run_and_mark(blocking), beside = run_and_mark(free);
    ck_assert_int_eq(end_of(b), 1);
    ck_assert_int_eq(end_of(f), 2);
    ck_assert_int_eq(end_of(legacy), 2); /* after b; f does not matter */
    ck_assert_int_eq(end_of(after), 3);  /* after the legacy kernel */
    ck_assert_int_eq(end_of(beside), 3); /* after f only */
}
END_TEST

START_TEST(blocking_streams_meet_only_in_the_legacy_stream) {
    set_up();
    CUstream a = stream_with(CU_STREAM_DEFAULT), b = stream_with(CU_STREAM_DEFAULT);
    CUevent a1 = run_and_mark(a), b1 = run_and_mark(b);
    ck_assert_int_eq(end_of(a1), 1);
    ck_assert_int_eq(end_of(b1), 1);
    OK(run(kernel, a));
    CUevent legacy = mark(CU_STREAM_LEGACY); /* a record is work of the legacy stream too */
    CUevent b2 = run_and_mark(b);
    ck_assert_int_eq(end_of(legacy), 2);
    ck_assert_int_eq(end_of(b2), 3);
}
END_TEST

static void *record_own(void *out) {
    OK(cuCtxSetCurrent(ctx));
    *(CUevent *)out = run_and_mark(CU_STREAM_PER_THREAD);
    return NULL;
}

START_TEST(each_thread_has_its_own_default_stream) {
    set_up();
    CUevent mine, other;
    pthread_t thread;
    mine = run_and_mark(CU_STREAM_PER_THREAD);
    pthread_create(&thread, NULL, record_own, &other);
    pthread_join(thread, NULL);
    CUevent legacy = run_and_mark(NULL); /* per-thread streams are blocking ones */
    ck_assert_int_eq(end_of(mine), 1);
    ck_assert_int_eq(end_of(other), 1);
    ck_assert_int_eq(end_of(legacy), 2);
    unsigned long long one, two, again;
    OK(cuStreamGetId(CU_STREAM_PER_THREAD, &one));
    OK(cuStreamGetId(CU_STREAM_LEGACY, &two));
    OK(cuStreamGetId_ptsz(NULL, &again));
    ck_assert_uint_ne(one, two);
    ck_assert_uint_eq(one, again);
}
END_TEST

START_TEST(an_event_orders_streams) {
    set_up();
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING), b = stream_with(CU_STREAM_NON_BLOCKING);
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamWaitEvent(b, event, 0)); /* not recorded yet: no wait */
    CUevent b1 = run_and_mark(b);
    OK(run(kernel, a));
    OK(run(kernel, a));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(cuEventDestroy_v2(event)); /* the wait stays */
    CUevent b2 = run_and_mark(b);
    ck_assert_int_eq(end_of(b1), 1);
    ck_assert_int_eq(end_of(b2), 3);
}
END_TEST

START_TEST(a_wait_is_for_the_record_before_it) {
    set_up();
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING), b = stream_with(CU_STREAM_NON_BLOCKING);
    CUevent event = run_and_mark(a);
    OK(cuStreamWaitEvent(b, event, 0));
    OK(run(kernel, a));
    OK(run(kernel, a));
    OK(cuEventRecord(event, a));
    ck_assert_int_eq(end_of(run_and_mark(b)), 2);
    GIVES(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    ck_assert_int_eq(end_of(event), 3);
}
END_TEST

START_TEST(a_destroyed_stream_finishes_its_work) {
    set_up();
    CUstream a = stream_with(CU_STREAM_DEFAULT);
    unsigned long long old_id, new_id;
    OK(cuStreamGetId(a, &old_id));
    CUevent end = run_and_mark(a);
    OK(cuStreamDestroy_v2(a));
    GIVES(cuStreamQuery(a), CUDA_ERROR_INVALID_HANDLE);
    CUstream b = stream_with(CU_STREAM_DEFAULT);
    ck_assert_ptr_eq(a, b); /* a handle value comes back, the stream does not */
    OK(cuStreamGetId(b, &new_id));
    ck_assert_uint_ne(old_id, new_id);
    OK(cuStreamQuery(b));
    GIVES(cuEventQuery(end), CUDA_ERROR_NOT_READY);
    CUevent legacy = run_and_mark(NULL);
    OK(cuCtxSynchronize());
    OK(cuEventQuery(end));
    ck_assert_int_eq(end_of(legacy), 2); /* the legacy stream waited for the orphan */
}
END_TEST

START_TEST(a_context_wait_holds_all_later_work) {
    set_up();
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING);
    CUevent event = run_and_mark(a);
    OK(cuCtxWaitEvent(ctx, event));
    CUstream later = stream_with(CU_STREAM_NON_BLOCKING);
    ck_assert_int_eq(end_of(run_and_mark(later)), 2);
}
END_TEST

static CUstream green_stream(CUgreenCtx *green) {
    CUdevResourceDesc desc;
    CUstream stream;
    struct {
        unsigned type, padding[35];
    } whole, groups[2];
    unsigned count = 2;
    OK(cuDeviceGetDevResource(0, (CUdevResource *)(void *)&whole, 1));
    OK(cuDevSmResourceSplitByCount((CUdevResource *)(void *)groups, &count,
                                   (CUdevResource *)(void *)&whole, NULL, 0, 30));
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(groups[1].type, 1);
    GIVES(cuDevSmResourceSplitByCount((CUdevResource *)(void *)groups, &count,
                                      (CUdevResource *)(void *)&whole, NULL, 0, ~0u),
          CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    OK(cuDevResourceGenerateDesc(&desc, (CUdevResource *)(void *)groups, 1));
    OK(cuGreenCtxCreate(green, desc, 0, 1));
    OK(cuGreenCtxStreamCreate(&stream, *green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

START_TEST(green_streams_belong_to_the_primary_context) {
    set_up();
    CUgreenCtx green, found;
    CUcontext view, home;
    CUdeviceptr memory;
    CUstream stream = green_stream(&green), other = stream_with(CU_STREAM_NON_BLOCKING);
    CUevent end = run_and_mark(stream), all, only;
    OK(run(kernel, other));
    OK(run(kernel, other));
    OK(cuEventCreate(&all, 0));
    OK(cuEventCreate(&only, 0));
    OK(cuCtxRecordEvent(ctx, all));
    OK(cuGreenCtxRecordEvent(green, only));
    ck_assert_int_eq(end_of(only), 1);
    ck_assert_int_eq(end_of(all), 2);
    ck_assert_int_eq(end_of(end), 1);
    OK(cuStreamGetCtx_v2(stream, &home, &found));
    ck_assert_ptr_null(home);
    ck_assert_ptr_eq(found, green);
    OK(cuCtxFromGreenCtx(&view, green));
    OK(cuCtxSetCurrent(view));
    OK(cuMemAlloc_v2(&memory, 4096));
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemFree_v2(memory));
    OK(cuGreenCtxDestroy(green));
    GIVES(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

static void add_one(void *counter) {
    ++*(int *)counter;
}

static void callback(CUstream stream, CUresult status, void *counter) {
    *(int *)counter += status == CUDA_SUCCESS && stream ? 10 : 100;
}

static void call_driver(void *result) {
    CUdeviceptr memory;
    *(CUresult *)result = cuMemAlloc_v2(&memory, 512);
}

START_TEST(host_functions_run_in_stream_order) {
    set_up();
    int counter = 0;
    CUresult inner = CUDA_SUCCESS;
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING);
    OK(run(kernel, a));
    OK(cuLaunchHostFunc(a, add_one, &counter));
    OK(cuStreamAddCallback(a, callback, &counter, 0));
    OK(cuLaunchHostFunc(a, call_driver, &inner));
    ck_assert_int_eq(counter, 0);
    simcuda_advance(900000);
    ck_assert_int_eq(counter, 0);
    OK(cuStreamSynchronize(a));
    ck_assert_int_eq(counter, 11);
    ck_assert_uint_eq(inner, CUDA_ERROR_NOT_PERMITTED);
}
END_TEST

START_TEST(values_in_memory_hold_a_stream) {
    set_up();
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING), b = stream_with(CU_STREAM_NON_BLOCKING);
    CUdeviceptr word;
    OK(cuMemAlloc_v2(&word, 4));
    OK(cuMemsetD32_v2(word, 0, 1));
    OK(cuCtxSynchronize());
    origin = mark(a);
    OK(cuStreamWaitValue32(a, word, 5, 0));
    CUevent a1 = run_and_mark(a);
    OK(run(kernel, b));
    OK(run(kernel, b));
    OK(cuStreamWriteValue32(b, word, 5, 0));
    ck_assert_int_eq(end_of(a1), 3);
}
END_TEST

START_TEST(values_come_in_batches_too) {
    set_up();
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING), b = stream_with(CU_STREAM_NON_BLOCKING);
    CUdeviceptr words;
    OK(cuMemAllocManaged(&words, 16, CU_MEM_ATTACH_GLOBAL));
    unsigned long long *seen = (unsigned long long *)(uintptr_t)words;
    unsigned long long list[2][6] = {{5, words, 1ull << 40}, {4, words + 8, 7, 1}};
    OK(cuStreamBatchMemOp_v2(a, 2, (CUstreamBatchMemOpParams *)(void *)list, 0));
    GIVES(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    OK(cuMemPrefetchAsync(words, 16, 0, b));
    OK(cuMemAdvise(words, 16, 1, 0));
    GIVES(cuMemAdvise(words, 17, 1, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamWriteValue64(b, words + 8, 7, 0));
    OK(cuStreamSynchronize(a));
    ck_assert_uint_eq(seen[0], 1ull << 40);
    list[0][0] = 99;
    GIVES(cuStreamBatchMemOp(a, 1, (CUstreamBatchMemOpParams *)(void *)list, 0),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(queries_do_not_wait_and_polling_makes_progress) {
    set_up();
    CUstream a = stream_with(CU_STREAM_NON_BLOCKING);
    OK(run(kernel, a));
    GIVES(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    unsigned long long begin = simcuda_now(), first = 0;
    int polls = 1;
    for (; cuStreamQuery(a) == CUDA_ERROR_NOT_READY; polls++)
        if (polls == 4)
            first = simcuda_now() - begin;
    /* A kernel takes 1 ms. A call takes 100 ns, but time moves faster for a program that only
     * polls. */
    ck_assert_uint_eq(first, 400);
    ck_assert_int_gt(polls, 10);
    ck_assert_int_lt(polls, 40);
    /* A program that submits work between its queries does not only poll. */
    OK(run(kernel, a));
    for (int i = 0; i < 40; i++) {
        GIVES(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
        OK(run(kernel, a));
    }
}
END_TEST

START_TEST(the_same_program_gives_the_same_times) {
    set_up();
    CUstream streams[3];
    for (int i = 0; i < 3; i++)
        streams[i] = stream_with(i ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 50; i++)
        OK(run(kernel, i % 7 ? streams[i % 3] : NULL));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(simcuda_pending_work(), 0);
    /* Eight legacy kernels in a row, and between two of them two on each blocking stream. */
    ck_assert_uint_eq(simcuda_now() / 1000000, 8 + 7 * 2);
}
END_TEST

SUITE_MAIN("order", one_stream_is_in_order_and_streams_are_not,
           the_legacy_stream_waits_for_blocking_streams,
           blocking_streams_meet_only_in_the_legacy_stream,
           each_thread_has_its_own_default_stream, an_event_orders_streams,
           a_wait_is_for_the_record_before_it, a_destroyed_stream_finishes_its_work,
           a_context_wait_holds_all_later_work, green_streams_belong_to_the_primary_context,
           host_functions_run_in_stream_order, values_in_memory_hold_a_stream,
           values_come_in_batches_too, queries_do_not_wait_and_polling_makes_progress,
           the_same_program_gives_the_same_times)
