/* The CUDA device on a driver of this test, which knows the order of the work: what one thread's
 * fences and join events are worth while others submit, destroy streams and release contexts. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "allocator/order/fence.h"
#include "device/cuda_int.h"
#include "device/driver.h"
#include "run_suite.h"

/* Streams of the program; ours; the legacy one; per-thread ones, by thread. */
enum { STREAMS = 700, OURS = 1, LEGACY = 0, OWN = 350, FIRST = 0x1000, EVENTS = 700 };

typedef struct {
    unsigned at[STREAMS]; /* how far each stream has come */
} clocks_t;

static struct {
    unsigned submitted[STREAMS];
    clocks_t before[STREAMS]; /* what a stream waits for */
    clocks_t event[EVENTS];
    _Atomic bool gone[STREAMS];
    unsigned events, recorded, on_legacy, whole;
} d;

static uint64_t thread = 1; /* which thread the calls are made by */

static uint64_t thread_now(void) {
    return thread;
}

static ac_cuda_context_t context;
static const CUcontext handle = (CUcontext)0x100;

/* What another thread does during the next record of an event on a stream of the program; 0: any.
 */
static void (*meanwhile)(void);
static unsigned meanwhile_at;

static CUstream stream_at(unsigned i) {
    return (CUstream)(uintptr_t)(FIRST + 16 * i);
}

static unsigned own_of(uint64_t of) {
    return OWN + (unsigned)of;
}

static unsigned index_of(CUstream stream) {
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return stream == CU_STREAM_LEGACY ? LEGACY : own_of(thread);
    unsigned i = (unsigned)((uintptr_t)stream - FIRST) / 16;
    ck_assert_uint_lt(i, STREAMS);
    return i;
}

/* The same, when a call of ours enters the context next. */
static void (*_Atomic at_entry)(void);

static CUresult get_current(CUcontext *out) {
    void (*others)(void) = atomic_exchange(&at_entry, NULL);
    if (others)
        others();
    *out = handle;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *out) {
    *out = 0;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *out, unsigned flags) {
    (void)flags;
    ck_assert_uint_lt(d.events, EVENTS);
    *out = (CUevent)(uintptr_t)++d.events;
    return CUDA_SUCCESS;
}

static clocks_t *clocks_of(CUevent event) {
    return &d.event[(uintptr_t)event - 1];
}

static CUresult event_record(CUevent event, CUstream stream) {
    unsigned i = index_of(stream);
    bool now = meanwhile_at ? i == meanwhile_at : i != OURS;
    void (*others)(void) = now ? meanwhile : NULL;
    if (others) {
        meanwhile = NULL;
        uint32_t held = ac_ranks_swap(0); /* as other threads */
        others();
        ac_ranks_swap(held);
    }
    ck_assert_msg(!atomic_load(&d.gone[i]), "the driver is given a stream that is gone");
    d.recorded++;
    *clocks_of(event) = d.before[i];
    clocks_of(event)->at[i] = d.submitted[i];
    if (stream == CU_STREAM_LEGACY) { /* comes after all blocking streams */
        d.on_legacy++;
        memcpy(clocks_of(event)->at, d.submitted, sizeof d.submitted);
    }
    return CUDA_SUCCESS;
}

static CUresult context_record(CUcontext of, CUevent event) {
    ck_assert_ptr_eq(of, handle);
    d.whole++;
    memcpy(clocks_of(event)->at, d.submitted, sizeof d.submitted);
    return CUDA_SUCCESS;
}

static CUresult no_record(CUcontext of, CUevent event) {
    (void)of, (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    clocks_t *before = &d.before[index_of(stream)];
    for (int i = 0; i < STREAMS; i++)
        if (before->at[i] < clocks_of(event)->at[i])
            before->at[i] = clocks_of(event)->at[i];
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *out, unsigned flags) {
    (void)flags;
    *out = stream_at(OURS);
    return CUDA_SUCCESS;
}

static void begin(void) {
    memset(&d, 0, sizeof d);
    ac_driver.cuCtxGetCurrent = get_current;
    ac_driver.cuCtxGetDevice = get_device;
    ac_driver.cuEventCreate = event_create;
    ac_driver.cuEventRecord = event_record;
    ac_driver.cuStreamWaitEvent = wait_event;
    ac_driver.cuStreamCreate = stream_create;
    ac_driver.cuCtxRecordEvent = NULL;
    ac_cuda_thread = thread_now;
    thread = 1;
    ac_cuda_context_init(&context, handle, 0, 0, AC_RECORD_STREAMS);
}

/* Whether a fence of now covers all that `stream` was given. */
static bool covers(unsigned stream) {
    void *fence = NULL;
    ck_assert_int_eq(ac_cuda_ops.fence_record(&context, false, &fence), AC_OK);
    bool all = d.before[OURS].at[stream] == d.submitted[stream];
    ac_cuda_ops.fence_release(&context, fence);
    return all;
}

START_TEST(a_fence_covers_work_whose_call_has_not_returned) {
    CUstream stream = stream_at(2);
    bool marked = ac_cuda_stream_begin(&context, stream);
    ck_assert(covers(2));
    d.submitted[2]++; /* it runs, and may tell another thread so */
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
    d.submitted[2]++; /* as if between the record and the return */
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

/* As many submissions as the fence saw, but others. */
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
    ac_cuda_capture_begin();
    ac_cuda_capture_began(true);
    ac_cuda_stream_retire(&context, stream_at(2), true);
    ac_cuda_capture_ended();
}

/* Nothing of ours could be made to wait for it, and the fence names it no more. */
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

/* A release that is not the last one leaves the context, and what another thread had to order
 * meanwhile is in order. */
START_TEST(a_context_that_stays_is_waited_for) {
    ac_cuda_context_dying(&context);
    run_beside(record_join);
    ac_cuda_context_spare(&context);
    pthread_join(other, NULL);
    ck_assert_int_eq(turned, AC_OK);
    ac_cuda_ops.fence_release(&context, join);
}
END_TEST

/* Two threads release it: the first one's answer says nothing of the second's. */
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

/* The driver does not come back from the end of the context; what another thread wants of it
 * meanwhile fails. */
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

/* A call of ours waits in the driver for work that goes on only after the context's end. */
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

/* A context keeps one fence with its event for the next record, and what it kept serves other
 * contexts when it goes: there are 4096 fences, and contexts without end. */
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

/* Its record serves another one when work of a stream has come after the end. */
START_TEST(nothing_of_a_context_that_went_is_left) {
    ac_cuda_context_kill(&context);
    ac_cuda_stream_begin(&context, stream_at(2));
    ac_cuda_context_again(&context, handle, 2, AC_RECORD_STREAMS);
    ck_assert_uint_eq(context.stream_count + context.event_count, 0);
}
END_TEST

/* --- more streams than there are entries, and streams that cannot be named --- */

static void work_on(CUstream stream) {
    bool begun = ac_cuda_stream_begin(&context, stream);
    d.submitted[index_of(stream)]++;
    ac_cuda_stream_end(&context, stream, begun);
}

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

/* As many submissions as the first fence had seen: they are others nevertheless. */
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
    work_on(stream_at(2)); /* has an entry; its call has returned before the next timeline */
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

/* Other threads' own streams are named by events of theirs: the legacy stream, which would order
 * streams that the program does not order, is asked once, before they know that. */
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

/* How often this thread gave the processor up by itself: unlike time, that does not depend on
 * what else the machine does. */
static long sleeps(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_nvcsw;
}

/* A call that has not returned, and may not before this thread goes on: its event does not cover
 * what it may have submitted. */
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
    ck_assert_int_lt(sleeps() - begun, FENCES / 10); /* waited for once */
    thread = 2;
    ac_cuda_stream_end(&context, CU_STREAM_PER_THREAD, marked);
    thread = 1;
    ck_assert(covers(own_of(2)));
}
END_TEST

/* Nothing of ours goes into a stream while any captures. */
START_TEST(own_streams_of_others_after_a_capture) {
    thread = 2;
    work_on(CU_STREAM_PER_THREAD);
    thread = 1;
    ck_assert(covers(own_of(2)));
    ac_cuda_capture_begin();
    ac_cuda_capture_began(true);
    unsigned events = d.recorded;
    thread = 2;
    work_on(CU_STREAM_PER_THREAD);
    ck_assert_uint_eq(d.recorded, events);
    ac_cuda_capture_ended();
    thread = 1;
    ck_assert(covers(own_of(2)));
}
END_TEST

/* --- waits --- */

static _Atomic unsigned synchronised;

static CUresult no_answer(CUevent event) {
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult synchronize(void) {
    synchronised++;
    return CUDA_SUCCESS;
}

/* The driver does not tell of an event: a wait without a limit has another way, one with a limit
 * does not take it. */
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
    /* It is not too short for the thread that asks an idle driver. */
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, 1), AC_OK);
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, 0), AC_OK);
    ck_assert_uint_eq(synchronised, 2);
}
END_TEST

/* The events say that the context is idle; the driver waits nevertheless. */
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
    ck_assert_uint_le(inside, 1); /* no second thread beside the first */
    atomic_store(&let_go, true);
    /* One that began before this wait does not tell of all that came before it. */
    ck_assert_int_eq(ac_cuda_ops.synchronize(&context, LONG_NS), AC_OK);
    ck_assert_uint_eq(inside, 2);
    ck_assert_uint_eq(synchronised, 2);
}
END_TEST

static unsigned filled;

static CUresult fill_later(CUdeviceptr address, unsigned char byte, size_t bytes, CUstream stream) {
    ck_assert(address == 512 && byte == 7 && bytes == 24);
    ck_assert_ptr_eq(stream, stream_at(OURS));
    filled++;
    return CUDA_SUCCESS;
}

static CUresult no_wait(CUstream stream) {
    ck_abort_msg("the driver's wait for %p has no limit", (void *)stream);
    return CUDA_SUCCESS;
}

/* A fill behind work that does not end is given up, and others are not begun behind it. */
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

static unsigned destroyed;

static CUresult event_destroy(CUevent event) {
    (void)event;
    ck_assert_msg(atomic_load(&context.users) > 0, "the context may be gone");
    destroyed++;
    return CUDA_SUCCESS;
}

/* A thread that destroys the context waits for calls of ours that are inside. */
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

/* --- a thread that the program cancels while it is in the driver --- */

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
                  200000000); /* longer than it only yields */
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

/* It is cancelled when it is out of there, and leaves nothing behind: not a fence that no thread
 * asks for any more, nor the gate, nor a context that nothing can destroy. */
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

/* --- memory that is the host's --- */

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

/* The kernel takes memory back for a request from what a control group counts as used. */
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
    tcase_add_test(tests, a_limited_wait_keeps_its_limit);
    tcase_add_loop_test(tests, a_limited_synchronisation_keeps_its_limit, 0, 2);
    tcase_add_test(tests, a_limited_synchronisation_does_not_wait_for_the_driver);
    tcase_add_test(tests, a_fill_is_not_waited_for_forever);
    tcase_add_test(tests, an_event_too_many_is_destroyed_from_inside_the_context);
    tcase_add_loop_test(tests, no_thread_is_cancelled_in_the_driver, 0, 4);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
