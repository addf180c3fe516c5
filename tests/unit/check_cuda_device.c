/* The CUDA device on a driver of this test. One thread uses fences and join events while others submit,
 * destroy streams and release contexts. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "cuda_frame.h"
#include "run_suite.h"

START_TEST(a_fence_covers_work_whose_call_has_not_returned) {
    CUstream stream = stream_at(2);
    bool marked = ac_cuda_stream_begin(&context, stream);
    ck_assert(covers(2));
    d.submitted[2]++; /* the work runs, and may tell another thread */
    ck_assert(covers(2));
    ck_assert(covers(2));
    ac_cuda_stream_end(&context, stream, marked);
    ck_assert(covers(2));
}
END_TEST

static bool marked;

static void the_call_goes_on_and_returns(void) {

    ac_cuda_stream_end(&context, stream_at(2), marked);
}

START_TEST(the_mark_of_a_call_outlives_a_fence_before_it) {
    marked = ac_cuda_stream_begin(&context, stream_at(2));
    meanwhile = the_call_goes_on_and_returns;
    ck_assert(covers(2));
    d.submitted[2]++; /* as if between the record and its return */
    ck_assert(covers(2));
}
END_TEST

static _Atomic bool started, over;
static pthread_t other;

static void run_beside(void *(*what)(void *)) {
    ck_assert_int_eq(pthread_create(&other, NULL, what, NULL), 0);
    while (!atomic_load(&started))
        sched_yield();
    for (int i = 0; i < 100 && !atomic_load(&over); i++)
        sched_yield();
}

static void *destroy(void *unused) {
    atomic_store(&started, true);
    ac_cuda_stream_retire(&context, stream_at(2), false);
    atomic_store(&d.gone[2], true);
    atomic_store(&over, true);
    return unused;
}

static void the_stream_is_destroyed(void) {
    run_beside(destroy);
}

START_TEST(no_fence_names_a_stream_that_is_gone) {
    ac_cuda_stream_used(&context, stream_at(2));
    meanwhile = the_stream_is_destroyed;
    covers(2);
    pthread_join(other, NULL);
    ck_assert(atomic_load(&d.gone[2]));
    covers(2);
}
END_TEST

static void it_is_synchronised_and_works_anew(void) {
    ac_cuda_synced(&context, ac_cuda_lost(&context));
    ac_cuda_stream_used(&context, stream_at(2));
    d.submitted[2]++;
}

static void once_the_first_stream_is_joined(void) {
    meanwhile = it_is_synchronised_and_works_anew;
}

/* The count of submissions equals the one that the fence saw, but the submissions differ. */
START_TEST(work_that_came_after_a_fence_looked_is_not_taken_for_what_it_saw) {
    ac_cuda_stream_used(&context, stream_at(2));
    d.submitted[2]++;
    ac_cuda_stream_used(&context, stream_at(3));
    meanwhile = once_the_first_stream_is_joined;
    covers(2);
    ck_assert(meanwhile == NULL);
    ck_assert_uint_eq(d.submitted[2], 2);
    ck_assert(covers(2));
}
END_TEST

static void it_is_destroyed_during_a_capture(void) {
    ac_cuda_capture_begin(NULL);
    ac_cuda_capture_began(NULL, true);
    ac_cuda_stream_retire(&context, stream_at(2), true);
    ac_cuda_capture_ended(NULL);
}

/* Join events cannot wait for this stream, and the fence no longer names it. */
START_TEST(no_fence_leaves_out_a_stream_that_went_meanwhile) {
    void *fence = NULL;
    ac_cuda_stream_used(&context, stream_at(2));
    ac_cuda_stream_used(&context, stream_at(3));
    at_entry = it_is_destroyed_during_a_capture;
    ck_assert_int_eq(ac_cuda_ops.fence_record(&context, false, &fence), AC_UNSUPPORTED);
    ck_assert(atomic_load(&at_entry) == NULL);
}
END_TEST

static ac_status_t turned;
static void *join;

static void *record_join(void *unused) {
    atomic_store(&started, true);
    turned = ac_cuda_ops.join_record(&context, ac_cuda_stream_key(stream_at(2)), &join);
    atomic_store(&over, true);
    return unused;
}

/* A release that is not the last one leaves the context. Another thread's joins that happened meanwhile are
 * in order. */
START_TEST(a_context_that_stays_is_waited_for) {
    ac_cuda_context_dying(&context);
    run_beside(record_join);
    ac_cuda_context_spare(&context);
    pthread_join(other, NULL);
    ck_assert_int_eq(turned, AC_OK);
    ac_cuda_ops.fence_release(&context, join);
}
END_TEST

/* Two threads release the context. The first one's result says nothing about the second's. */
START_TEST(each_release_is_waited_for) {
    ac_cuda_context_dying(&context);
    ac_cuda_context_dying(&context);
    ac_cuda_context_spare(&context);
    run_beside(record_join);
    ck_assert(!atomic_load(&over));
    ac_cuda_context_spare(&context);
    pthread_join(other, NULL);
    ck_assert_int_eq(turned, AC_OK);
    ac_cuda_ops.fence_release(&context, join);
}
END_TEST

START_TEST(a_context_that_goes_is_not_waited_for_any_longer) {
    ac_cuda_context_dying(&context);
    run_beside(record_join);
    ac_cuda_context_kill(&context);
    pthread_join(other, NULL);
    ck_assert_int_ne(turned, AC_OK);
}
END_TEST

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The driver does not return from destroying the context. Another thread's calls on it fail meanwhile. */
START_TEST(an_end_that_lasts_is_not_waited_for_forever) {
    ac_cuda_context_dying(&context);
    double begin = seconds();
    run_beside(record_join);
    pthread_join(other, NULL);
    ck_assert_double_lt(seconds() - begin, 10);
    ck_assert_int_ne(turned, AC_OK);
    ac_cuda_context_spare(&context);
    record_join(NULL);
    ck_assert_int_eq(turned, AC_OK);
    ac_cuda_ops.fence_release(&context, join);
}
END_TEST

/* A call of this library waits in the driver for work that continues only after the context's end. */
START_TEST(a_call_inside_is_not_waited_for_forever) {
    ac_cuda_scope_t scope;
    ck_assert(ac_cuda_enter(&context, &scope));
    double begin = seconds();
    ac_cuda_context_dying(&context);
    ck_assert_double_lt(seconds() - begin, 10);
    ac_cuda_context_kill(&context);
    ck_assert(!ac_cuda_context_is_over(&context));
    ac_cuda_leave(&scope);
    ac_cuda_context_spare(&context);
    ck_assert(ac_cuda_context_is_over(&context));
}
END_TEST

/* A context keeps one fence with its event for the next record. When the context ends, the fence serves
 * other contexts: there are only 4096 fences. */
START_TEST(a_fence_that_is_over_is_recorded_again) {
    uint64_t stream = ac_cuda_stream_key(stream_at(2));
    void *first, *second, *again;
    for (int round = 0; round < 5000; round++) {
        d.events = 0;
        ck_assert_int_eq(ac_cuda_ops.join_record(&context, stream, &first), AC_OK);
        ck_assert_int_eq(ac_cuda_ops.join_record(&context, stream, &second), AC_OK);
        ck_assert_ptr_ne(first, second);
        ac_cuda_ops.fence_release(&context, first);
        ck_assert_int_eq(ac_cuda_ops.join_record(&context, stream, &again), AC_OK);
        ck_assert_ptr_eq(again, first);
        ck_assert_uint_eq(d.events, 2);
        ac_cuda_ops.fence_release(&context, again);
        ac_cuda_context_kill(&context);
        ac_cuda_ops.fence_release(&context, second);
        ac_cuda_context_init(&context, handle, 1, 0, AC_RECORD_STREAMS);
    }
}
END_TEST

/* The context's record serves another one after work of a stream came later than the end. */
START_TEST(nothing_of_a_context_that_went_is_left) {
    ac_cuda_context_kill(&context);
    ac_cuda_stream_begin(&context, stream_at(2));
    ac_cuda_context_again(&context, handle, 2, AC_RECORD_STREAMS);
    ck_assert_uint_eq(context.stream_count + context.event_count, 0);
}
END_TEST

/* --- more streams than there are entries, and streams that cannot be named --- */

START_TEST(streams_without_work_give_way) {
    for (unsigned i = 0; i < AC_CUDA_STREAMS + 50; i++) {
        work_on(stream_at(2 + i));
        ck_assert(covers(2 + i));
    }
}
END_TEST

START_TEST(threads_that_ended_give_way) {
    for (unsigned i = 0; i < AC_CUDA_STREAMS + 50; i++) {
        thread = 2 + i;
        work_on(CU_STREAM_PER_THREAD);
        thread = 1;
        ck_assert(covers(own_of(2 + i)));
    }
}
END_TEST

static void another_fence_and_then_more_work(void) {
    ck_assert(covers(2));
    work_on(stream_at(2));
}

/* The count of submissions equals the one that the first fence saw, but the submissions differ. */
START_TEST(a_mark_is_cleared_by_the_fence_that_saw_it_only) {
    work_on(stream_at(2));
    work_on(stream_at(3));
    meanwhile_at = 3;
    meanwhile = another_fence_and_then_more_work;
    covers(3);
    ck_assert(covers(2));
}
END_TEST

static bool can_record(void) {
    void *fence = NULL;
    ac_status_t status = ac_cuda_ops.fence_record(&context, false, &fence);
    if (status == AC_OK)
        ac_cuda_ops.fence_release(&context, fence);
    return status == AC_OK;
}

START_TEST(too_many_streams_are_forgotten_by_a_synchronisation) {
    for (unsigned i = 0; i < AC_CUDA_STREAMS + 1; i++)
        work_on(stream_at(2 + i));
    ck_assert(!can_record());
    work_on(stream_at(2)); /* has an entry; its call returned before the next timeline */
    uint64_t begun = ac_cuda_lost(&context);
    work_on(stream_at(3)); /* the synchronisation does not cover it */
    ac_cuda_synced(&context, begun);
    ck_assert(covers(3));
    work_on(stream_at(2 + AC_CUDA_STREAMS + 1));
    ck_assert(covers(2 + AC_CUDA_STREAMS + 1));
}
END_TEST

START_TEST(a_loss_is_made_up_for_by_a_later_synchronisation_only) {
    uint64_t begun = ac_cuda_lost(&context);
    for (unsigned i = 0; i < AC_CUDA_STREAMS + 1; i++)
        work_on(stream_at(2 + i));
    ac_cuda_synced(&context, begun);
    ck_assert(!can_record());
    ac_cuda_synced(&context, ac_cuda_lost(&context));
    ck_assert(can_record());
}
END_TEST

/* Events name other threads' own streams. The legacy stream serves once, before the threads know that
 * events are needed. It would order streams that the program does not order. */
START_TEST(own_streams_of_others_need_no_barrier) {
    enum { THREADS = 3, ROUNDS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < THREADS; i++) {
            thread = 2 + i;
            work_on(CU_STREAM_PER_THREAD);
            work_on(CU_STREAM_PER_THREAD);
        }
        thread = 1;
        for (uint64_t i = 0; i < THREADS; i++)
            ck_assert(covers(own_of(2 + i)));
    }
    ck_assert_uint_eq(d.on_legacy, 1);
}
END_TEST

START_TEST(the_contexts_own_event_comes_before_the_legacy_stream) {
    ac_driver.cuCtxRecordEvent = context_record;
    thread = 2;
    work_on(CU_STREAM_PER_THREAD);
    thread = 1;
    ck_assert(covers(own_of(2)));
    ck_assert_uint_eq(d.on_legacy, 0);
    ck_assert_uint_eq(d.whole, 1);
    ac_driver.cuCtxRecordEvent = no_record;
    thread = 3;
    bool begun = ac_cuda_stream_begin(&context, CU_STREAM_PER_THREAD);
    d.submitted[own_of(3)]++;
    thread = 1;
    ck_assert(covers(own_of(3)));
    ck_assert_uint_eq(d.on_legacy, 1);
    thread = 3;
    ac_cuda_stream_end(&context, CU_STREAM_PER_THREAD, begun);
}
END_TEST

/* Returns how often this thread gave the processor up voluntarily. Unlike time, this does not depend on
 * other load. */
static long sleeps(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

/* The call has not returned, and cannot return before this thread goes on. Its event does not cover work
 * that the call may have submitted. */
START_TEST(own_streams_of_others_are_covered_in_the_midst_of_a_call) {
    enum { FENCES = 500 };
    thread = 2;
    work_on(CU_STREAM_PER_THREAD);
    thread = 1;
    ck_assert(covers(own_of(2)));
    thread = 2;
    work_on(CU_STREAM_PER_THREAD);
    marked = ac_cuda_stream_begin(&context, CU_STREAM_PER_THREAD);
    d.submitted[own_of(2)]++;
    thread = 1;
    long begun = sleeps();
    for (int i = 0; i < FENCES; i++)
        ck_assert(covers(own_of(2)));
    ck_assert_int_lt(sleeps() - begun, FENCES / 10); /* waits once */
    thread = 2;
    ac_cuda_stream_end(&context, CU_STREAM_PER_THREAD, marked);
    thread = 1;
    ck_assert(covers(own_of(2)));
}
END_TEST

/* This library submits nothing into a stream while any stream captures. */
START_TEST(own_streams_of_others_after_a_capture) {
    thread = 2;
    work_on(CU_STREAM_PER_THREAD);
    thread = 1;
    ck_assert(covers(own_of(2)));
    ac_cuda_capture_begin(NULL);
    ac_cuda_capture_began(NULL, true);
    unsigned events = d.recorded;
    thread = 2;
    work_on(CU_STREAM_PER_THREAD);
    ck_assert_uint_eq(d.recorded, events);
    ac_cuda_capture_ended(NULL);
    thread = 1;
    ck_assert(covers(own_of(2)));
}
END_TEST

/* A context counts as capturing from the start to the end of each capture, and not after a refused one. A
 * capture without a place counts for every context until it ends. */
START_TEST(captures_are_counted_by_context) {
    static ac_cuda_context_t other;
    ac_cuda_capture_begin(&context);
    ac_cuda_capture_began(&context, false);
    ck_assert(!ac_cuda_is_capturing(&context) && !ac_cuda_is_capturing(NULL));
    ac_cuda_capture_begin(&context);
    ac_cuda_capture_began(&context, true);
    ck_assert(ac_cuda_is_capturing(&context) && !ac_cuda_is_capturing(&other));
    ac_cuda_capture_unplace(&context);
    ck_assert(ac_cuda_is_capturing(&context) && ac_cuda_is_capturing(&other));
    ac_cuda_capture_ended(NULL);
    ck_assert(!ac_cuda_is_capturing(&context) && !ac_cuda_is_capturing(&other));
    ck_assert(!ac_cuda_is_capturing(NULL));
}
END_TEST

static unsigned destroyed;

static CUresult event_destroy(CUevent event) {
    (void)event;
    ck_assert_msg(atomic_load(&context.users) > 0, "the context may be gone");
    destroyed++;
    return CUDA_SUCCESS;
}

/* A thread that destroys the context waits for this library's calls inside it. */
START_TEST(an_event_too_many_is_destroyed_from_inside_the_context) {
    enum { FENCES = AC_CUDA_EVENTS + 2 }; /* one is kept as it is */
    void *fence[FENCES];
    ac_driver.cuEventDestroy_v2 = event_destroy;
    for (int i = 0; i < FENCES; i++)
        ck_assert_int_eq(ac_cuda_ops.fence_record(&context, false, &fence[i]), AC_OK);
    for (int i = 0; i < FENCES; i++)
        ac_cuda_ops.fence_release(&context, fence[i]);
    ck_assert_uint_eq(destroyed, 1);
    ck_assert_int_eq(atomic_load(&context.users), 0);
}
END_TEST

/* --- memory shared with the host --- */

static CUresult is_integrated(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_INTEGRATED;
    return CUDA_SUCCESS;
}

static const size_t more_than_any_host = (size_t)1 << 60;

static CUresult much_is_free(size_t *available, size_t *total) {
    *available = *total = more_than_any_host;
    return CUDA_SUCCESS;
}

/* For a request the kernel reclaims memory that a control group counts as used. */
START_TEST(host_does_not_bound_what_the_driver_has) {
    uint64_t available = 0;
    ac_driver.cuDeviceGetAttribute = is_integrated;
    ac_driver.cuMemGetInfo_v2 = much_is_free;
    ck_assert(ac_cuda_integrated(0));
    ck_assert_uint_lt(ac_cuda_host_left(0), more_than_any_host);
    ck_assert_int_eq(ac_cuda_ops.memory_free(&context, &available), AC_OK);
    ck_assert_uint_eq(available, more_than_any_host);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_device");
    TCase *tests = tcase_create("cuda_device");
    tcase_add_checked_fixture(tests, begin, NULL);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_fence_covers_work_whose_call_has_not_returned);
    tcase_add_test(tests, host_does_not_bound_what_the_driver_has);
    tcase_add_test(tests, the_mark_of_a_call_outlives_a_fence_before_it);
    tcase_add_test(tests, no_fence_names_a_stream_that_is_gone);
    tcase_add_test(tests, work_that_came_after_a_fence_looked_is_not_taken_for_what_it_saw);
    tcase_add_test(tests, no_fence_leaves_out_a_stream_that_went_meanwhile);
    tcase_add_test(tests, a_context_that_stays_is_waited_for);
    tcase_add_test(tests, each_release_is_waited_for);
    tcase_add_test(tests, a_context_that_goes_is_not_waited_for_any_longer);
    tcase_add_test(tests, an_end_that_lasts_is_not_waited_for_forever);
    tcase_add_test(tests, a_call_inside_is_not_waited_for_forever);
    tcase_add_test(tests, a_fence_that_is_over_is_recorded_again);
    tcase_add_test(tests, nothing_of_a_context_that_went_is_left);
    tcase_add_test(tests, streams_without_work_give_way);
    tcase_add_test(tests, threads_that_ended_give_way);
    tcase_add_test(tests, a_mark_is_cleared_by_the_fence_that_saw_it_only);
    tcase_add_test(tests, too_many_streams_are_forgotten_by_a_synchronisation);
    tcase_add_test(tests, a_loss_is_made_up_for_by_a_later_synchronisation_only);
    tcase_add_test(tests, own_streams_of_others_need_no_barrier);
    tcase_add_test(tests, the_contexts_own_event_comes_before_the_legacy_stream);
    tcase_add_test(tests, own_streams_of_others_are_covered_in_the_midst_of_a_call);
    tcase_add_test(tests, own_streams_of_others_after_a_capture);
    tcase_add_test(tests, captures_are_counted_by_context);
    tcase_add_test(tests, an_event_too_many_is_destroyed_from_inside_the_context);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
