/* The CUDA device on a driver of this test. Waits keep their limits, and no thread is cancelled inside
 * the driver. */
#include <pthread.h>
#include <sched.h>

#include "allocator/order/fence.h"
#include "cuda_frame.h"
#include "device/cuda_fill.h"
#include "run_suite.h"

static _Atomic unsigned synchronised;

static CUresult no_answer(CUevent event) {
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult synchronize(void) {
    synchronised++;
    return CUDA_SUCCESS;
}

/* The driver's query of an event fails. A wait without a limit uses another method; a wait with a
 * limit does not. */
START_TEST(a_limited_wait_keeps_its_limit) {
    void *fence = NULL;
    ac_driver.cuEventQuery = ac_driver.cuEventSynchronize = no_answer;
    ac_driver.cuCtxSynchronize = synchronize;
    ck_assert_int_eq(ac_cuda_ops.fence_record(&context, false, &fence), AC_OK);
    ck_assert_int_eq(ac_cuda_ops.fence_wait(&context, fence, 1), AC_BUSY);
    ck_assert_uint_eq(synchronised, 0);
    ck_assert_int_eq(ac_cuda_ops.fence_wait(&context, fence, 0), AC_OK);
    ck_assert_uint_eq(synchronised, 1);
    ac_cuda_ops.fence_release(&context, fence);
}
END_TEST

static bool over_now;

static CUresult whether_over(CUevent event) {
    (void)event;
    return over_now ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static const uint64_t LONG_NS = 20000000000, SHORT_NS = 50000000;

START_TEST(a_limited_synchronisation_keeps_its_limit) {
    static const ac_record_mode_t modes[] = {AC_RECORD_STREAMS, AC_RECORD_NONE};
    atomic_store(&context.mode, modes[_i]);
    ac_driver.cuEventQuery = whether_over;
    ac_driver.cuCtxSynchronize = synchronize;
    work_on(stream_at(2));
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, 1000), AC_BUSY);
    ck_assert_uint_eq(synchronised, 0);
    over_now = true;
    /* The limit is not too short for a thread that queries an idle driver. */
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, 1), AC_OK);
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, 0), AC_OK);
    ck_assert_uint_eq(synchronised, 2);
}
END_TEST

/* The events report that the context is idle, but the driver still waits. */
static _Atomic bool let_go;
static _Atomic unsigned inside;

static CUresult synchronize_later(void) {
    atomic_fetch_add(&inside, 1);
    while (!atomic_load(&let_go))
        sched_yield();
    synchronised++;
    return CUDA_SUCCESS;
}

START_TEST(a_limited_synchronisation_does_not_wait_for_the_driver) {
    over_now = true;
    ac_driver.cuEventQuery = whether_over;
    ac_driver.cuCtxSynchronize = synchronize_later;
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, SHORT_NS), AC_BUSY);
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, SHORT_NS), AC_BUSY);
    ck_assert_uint_le(inside, 1); /* no second thread starts while the first is inside */
    atomic_store(&let_go, true);
    /* A synchronisation that began before this wait does not cover all earlier work. */
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, LONG_NS), AC_OK);
    ck_assert_uint_eq(inside, 2);
    ck_assert_uint_eq(synchronised, 2);
}
END_TEST

static unsigned filled;

static CUresult fill_later(CUdeviceptr address, unsigned char byte, size_t bytes,
                           CUstream stream) {
    ck_assert(address == 512 && byte == 7 && bytes == 24);
    ck_assert_ptr_eq(stream, stream_at(OURS));
    filled++;
    return CUDA_SUCCESS;
}

static CUresult no_wait(CUstream stream) {
    ck_abort_msg("the driver's wait for %p has no limit", (void *)stream);
    return CUDA_SUCCESS;
}

/* The wait for a fill behind endless work is given up, and no further fill begins behind it. */
START_TEST(a_fill_is_not_waited_for_forever) {
    ac_driver.cuEventQuery = whether_over;
    ac_driver.cuMemsetD8Async = fill_later;
    ac_driver.cuStreamSynchronize = no_wait;
    ck_assert(ac_cuda_ops.fills_over(&context));
    uint64_t begin_ns = ac_cuda_ops.now_ns();
    ck_assert_int_eq(ac_cuda_ops.memory_fill(&context, 512, 24, 7), AC_BUSY);
    ck_assert_uint_ge(ac_cuda_ops.now_ns() - begin_ns, 900000000);
    for (int i = 0; i < 3; i++) {
        uint64_t first;
        ck_assert(!ac_cuda_ops.fills_over(&context));
        ck_assert_int_eq(ac_cuda_ops.memory_fill(&context, 512, 24, 7), AC_BUSY);
        ck_assert_int_eq(ac_cuda_ops.memory_differs(&context, 512, 24, 7, &first), AC_BUSY);
    }
    ck_assert_uint_eq(filled, 1);
    over_now = true;
    ck_assert(ac_cuda_ops.fills_over(&context));
    ck_assert_int_eq(ac_cuda_ops.memory_fill(&context, 512, 24, 7), AC_OK);
    ck_assert_uint_eq(filled, 2);
}
END_TEST

enum { FILLER = 3 };

static CUresult filler_create(CUstream *out, unsigned flags) {
    (void)flags;
    *out = stream_at(FILLER);
    return CUDA_SUCCESS;
}

static CUresult fill_words(CUdeviceptr address, unsigned word, size_t count, CUstream stream) {
    ck_assert(address == 512 && word == 7 && count == 6);
    d.submitted[index_of(stream)]++;
    filled++;
    return CUDA_SUCCESS;
}

/* Late writes of a fill are work of the context. Fences by streams cover them. */
START_TEST(a_fence_covers_a_late_fill) {
    ac_driver.cuEventQuery = whether_over;
    ac_driver.cuMemsetD32Async = fill_words;
    ac_driver.cuMemsetD8Async = fill_later;
    ac_driver.cuStreamSynchronize = no_wait;
    ac_driver.cuStreamCreate = filler_create;
    ck_assert_int_eq(ac_cuda_fill(&context, 512, 24, 7), AC_BUSY);
    ac_driver.cuStreamCreate = stream_create;
    ck_assert(covers(FILLER));
    ck_assert_int_eq(ac_cuda_fill(&context, 512, 24, 7), AC_UNSUPPORTED);
    ck_assert_uint_eq(filled, 1);
    over_now = true;
    ck_assert_int_eq(ac_cuda_fill(&context, 512, 24, 7), AC_OK);
    ck_assert_uint_eq(filled, 2);
}
END_TEST

static CUresult refuse_words(CUdeviceptr address, unsigned word, size_t count, CUstream stream) {
    (void)address, (void)word, (void)count, (void)stream;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult refuse_byte(CUdeviceptr address, unsigned char byte, size_t bytes,
                            CUstream stream) {
    (void)address, (void)byte, (void)bytes, (void)stream;
    return CUDA_ERROR_INVALID_VALUE;
}

/* A fill that is refused as a whole is not late. If the driver took a part, it may be. */
START_TEST(a_fill_that_is_refused) {
    over_now = true;
    ac_driver.cuEventQuery = whether_over;
    ac_driver.cuMemsetD32Async = refuse_words;
    ac_driver.cuMemsetD8Async = refuse_byte;
    ac_driver.cuStreamSynchronize = no_wait;
    ck_assert_int_eq(ac_cuda_fill(&context, 512, 24, 7), AC_UNSUPPORTED);
    ck_assert_int_eq(ac_cuda_fill(&context, 512, 3, 7), AC_UNSUPPORTED);
    ac_driver.cuMemsetD32Async = fill_words;
    ck_assert_int_eq(ac_cuda_fill(&context, 512, 26, 7), AC_BUSY);
    ck_assert_uint_eq(filled, 1);
}
END_TEST

/* --- a thread that the program cancels inside the driver --- */

static pthread_t other;
static _Atomic bool complete;

static CUresult cancelled_query(CUevent event) {
    (void)event;
    pthread_testcancel();
    return atomic_load(&complete) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult cancelled_record(CUevent event, CUstream stream) {
    pthread_testcancel();
    return event_record(event, stream);
}

static CUresult cancelled_alloc(CUdeviceptr *address, size_t bytes) {
    (void)bytes;
    pthread_testcancel();
    *address = AC_SEGMENT_ALIGN;
    return CUDA_SUCCESS;
}

static ac_timeline_t timeline;
static bool came_back;

static void *poll_cancelled(void *unused) {
    pthread_cancel(pthread_self());
    ac_fence_poll(&timeline, false);
    came_back = true;
    pthread_testcancel();
    return unused;
}

static void *wait_cancelled(void *unused) {
    pthread_cancel(pthread_self());
    ac_fence_wait(&timeline, false, ac_fence_now() - 1,
                  200000000); /* after this time it only yields */
    came_back = true;
    pthread_testcancel();
    return unused;
}

static void *close_cancelled(void *unused) {
    pthread_cancel(pthread_self());
    ac_fence_close(&timeline, false);
    came_back = true;
    pthread_testcancel();
    return unused;
}

static void *alloc_cancelled(void *unused) {
    uint64_t address;
    pthread_cancel(pthread_self());
    ac_cuda_ops.segment_alloc(&context, AC_SEGMENT_ALIGN, &address);
    came_back = true;
    pthread_testcancel();
    return unused;
}

/* The thread is cancelled after it left the driver. It leaves nothing behind: no fence without an
 * owner, no held gate, and no context that cannot be destroyed. */
START_TEST(no_thread_is_cancelled_in_the_driver) {
    void *(*const inside[])(void *) = {poll_cancelled, wait_cancelled, close_cancelled,
                                       alloc_cancelled};
    void *result;
    ac_driver.cuEventQuery = cancelled_query;
    ac_driver.cuEventRecord = cancelled_record;
    ac_driver.cuMemAlloc_v2 = cancelled_alloc;
    ck_assert(ac_timeline_open(&timeline, &ac_cuda_ops, &context));
    ac_fence_submitted(&timeline);
    ac_fence_close(&timeline, false);
    if (_i == 2)
        ac_fence_submitted(&timeline);
    came_back = false;
    ck_assert_int_eq(pthread_create(&other, NULL, inside[_i], NULL), 0);
    pthread_join(other, &result);
    ck_assert(result == PTHREAD_CANCELED);
    ck_assert(came_back);
    ck_assert_int_eq(atomic_load(&context.users), 0);
    ck_assert_int_eq(pthread_rwlock_trywrlock(&ac_cuda_gate.lock), 0);
    pthread_rwlock_unlock(&ac_cuda_gate.lock);
    ck_assert(!ac_fence_poll(&timeline, false));
    atomic_store(&complete, true);
    ck_assert(ac_fence_poll(&timeline, false));
    ck_assert(!ac_fence_under_way(&timeline, false));
    ac_timeline_close(&timeline);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_wait");
    TCase *tests = tcase_create("cuda_wait");
    tcase_add_checked_fixture(tests, begin, NULL);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_limited_wait_keeps_its_limit);
    tcase_add_loop_test(tests, a_limited_synchronisation_keeps_its_limit, 0, 2);
    tcase_add_test(tests, a_limited_synchronisation_does_not_wait_for_the_driver);
    tcase_add_test(tests, a_fill_is_not_waited_for_forever);
    tcase_add_test(tests, a_fence_covers_a_late_fill);
    tcase_add_test(tests, a_fill_that_is_refused);
    tcase_add_loop_test(tests, no_thread_is_cancelled_in_the_driver, 0, 4);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
