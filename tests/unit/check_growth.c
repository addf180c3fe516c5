/* Growth by several threads. One thread calls the device, and the others share the new segment. No
 * thread waits if the wait could be endless, or if the answer could differ from its own. */
#include <sched.h>
#include <stdlib.h>

#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "run_suite.h"

enum { SHARERS = 6, STREAM = 0x1000 };

/* The first call for a segment blocks until `let_go`. */
static _Atomic bool standing, let_go;
static _Atomic unsigned segment_calls;

static void stand_still(void *unused, fake_kind_t kind) {
    (void)unused;
    if (kind != FAKE_SEGMENT_ALLOC || atomic_fetch_add(&segment_calls, 1))
        return;
    atomic_store(&standing, true);
    while (!atomic_load(&let_go))
        sched_yield();
}

typedef struct {
    pthread_t thread;
    uint64_t bytes, address;
    ac_stream_t stream; /* 0: a plain request */
    ac_status_t status;
} asker_t;

static void *ask(void *arg) {
    asker_t *asker = arg;
    asker->status = asker->stream ? ac_arena_alloc_on(arena, asker->stream, asker->bytes, false,
                                                      &asker->address)
                                  : ac_arena_alloc(arena, asker->bytes, false, &asker->address);
    return NULL;
}

static void start(asker_t *asker, uint64_t bytes, ac_stream_t stream) {
    *asker = (asker_t){.bytes = bytes, .stream = stream, .status = AC_FAILED};
    ck_assert_int_eq(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static void join(asker_t *asker) {
    pthread_join(asker->thread, NULL);
}

static uint64_t coming(void) {
    ac_lock(&allocator->lock);
    uint64_t bytes = arena->growths->coming[AC_POOL_LARGE];
    ac_unlock(&allocator->lock);
    return bytes;
}

static uint64_t in_an_hour(void) {
    return fake_ops.now_ns() + (uint64_t)3600 * 1000000000;
}

/* Makes a sharing thread wait until it is served, however long the others take to start. */
static void wait_for_long(void) {
    static ac_device_ops_t ops;
    ops = fake_ops;
    ops.now_ns = in_an_hour;
    arena->ops = &ops;
}

/* Starts a thread that calls the device and blocks there. */
static void start_growing(asker_t *grower, uint64_t bytes) {
    device.before = stand_still;
    start(grower, bytes, 0);
    while (!atomic_load(&standing))
        sched_yield();
}

/* Starts threads that miss meanwhile. Each of them has claimed a part of the coming segment. */
static void start_sharing(asker_t sharer[SHARERS], uint64_t bytes, ac_stream_t stream) {
    uint64_t left = coming();
    for (int i = 0; i < SHARERS; i++)
        start(&sharer[i], bytes, stream);
    while (coming() != left - SHARERS * bytes)
        sched_yield();
}

START_TEST(threads_that_miss_together_share_one_segment) {
    asker_t grower, sharer[SHARERS];
    wait_for_long();
    start_growing(&grower, 2 * MIB);
    ck_assert_uint_eq(coming(), 18 * MIB);
    start_sharing(sharer, 2 * MIB, _i ? STREAM : 0);
    atomic_store(&let_go, true);
    join(&grower);
    ck_assert_int_eq(grower.status, AC_OK);
    for (int i = 0; i < SHARERS; i++) {
        join(&sharer[i]);
        ck_assert_int_eq(sharer[i].status, AC_OK);
    }
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    ck_assert_uint_eq(coming(), 0);
    ck_assert_uint_eq(counters.async_allocs, _i * SHARERS);
    give(grower.address);
    for (int i = 0; i < SHARERS; i++)
        give(sharer[i].address);
}
END_TEST

START_TEST(what_would_not_do_for_it_is_not_waited_for) {
    asker_t grower, other_one;
    start_growing(&grower, 2 * MIB);
    start(&other_one, 19 * MIB, 0); /* 18 MiB are left */
    join(&other_one);
    ck_assert_int_eq(other_one.status, AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1); /* the first call is still blocked */
    atomic_store(&let_go, true);
    join(&grower);
    ck_assert_int_eq(grower.status, AC_OK);
}
END_TEST

/* The rest of a segment for medium blocks serves medium blocks only. */
START_TEST(large_requests_do_not_wait_for_medium_segments) {
    asker_t grower, other_one;
    wait_for_long();
    enum { MEDIUM = 14 }; /* MiB of a segment for medium blocks: 1/64 of the live bytes */
    uint64_t large = alloc(1000 * MIB);
    give(large);
    for (int i = 0; i < MEDIUM; i++)
        alloc(MIB);
    ck_assert_uint_eq(alloc(1000 * MIB), large);
    start_growing(&grower, MIB);
    start(&other_one, 2 * MIB, 0);
    join(&other_one);
    ck_assert_int_eq(other_one.status, AC_OK);
    atomic_store(&let_go, true);
    join(&grower);
    ck_assert_int_eq(grower.status, AC_OK);
}
END_TEST

START_TEST(who_shared_a_failure_asks_by_itself) {
    asker_t grower, sharer[SHARERS];
    wait_for_long();
    device.fail_at = device.total_calls + 1;
    device.fail_with[FAKE_SEGMENT_ALLOC] = AC_FAILED;
    start_growing(&grower, 2 * MIB);
    start_sharing(sharer, 2 * MIB, _i ? STREAM : 0);
    atomic_store(&let_go, true);
    join(&grower);
    ck_assert_int_eq(grower.status, AC_FAILED);
    for (int i = 0; i < SHARERS; i++) {
        join(&sharer[i]);
        ck_assert_int_eq(sharer[i].status, AC_OK);
    }
    ck_assert_uint_ge(device.calls[FAKE_SEGMENT_ALLOC], 2);
    ck_assert_uint_le(device.calls[FAKE_SEGMENT_ALLOC], 1 + SHARERS);
}
END_TEST

/* The device answers the first thread only after the second one was served. */
START_TEST(a_call_that_waits_for_the_program_holds_up_no_thread) {
    asker_t grower, waiter;
    start_growing(&grower, 2 * MIB);
    start(&waiter, 2 * MIB, 0);
    join(&waiter);
    ck_assert_int_eq(waiter.status, AC_OK);
    ck_assert_uint_eq(coming(), 0); /* the next request does not wait */
    atomic_store(&let_go, true);
    join(&grower);
    ck_assert_int_eq(grower.status, AC_OK);
}
END_TEST

START_TEST(beside_a_capture_each_thread_gets_its_own_answer) {
    asker_t grower, other_one;
    start_growing(&grower, 2 * MIB);
    atomic_store(&context[0].capturing, true);
    uint64_t left = coming();
    start(&other_one, 2 * MIB, _i ? STREAM : 0);
    join(&other_one);
    ck_assert_int_eq(other_one.status, AC_BUSY); /* the device's own status */
    ck_assert_uint_eq(coming(), left);
    atomic_store(&context[0].capturing, false);
    atomic_store(&let_go, true);
    join(&grower);
    ck_assert_int_eq(grower.status, AC_OK);
}
END_TEST

/* --- a thread that is cancelled while it waits for others --- */

static void stand_still_in_a_free(void *unused, fake_kind_t kind) {
    (void)unused;
    if (kind != FAKE_SEGMENT_FREE)
        return;
    atomic_store(&standing, true);
    while (!atomic_load(&let_go))
        sched_yield();
}

static void *trim(void *unused) {
    (void)unused;
    ac_allocator_trim(allocator, false);
    return NULL;
}

/* Waits with cancellation pending. The first wait that is a cancellation point would cancel this
 * thread. */
static void *ask_cancelled(void *arg) {
    int state;
    pthread_cancel(pthread_self());
    ask(arg);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return NULL;
}

static unsigned asked_for_segments(void) {
    pthread_mutex_lock(&device.lock);
    unsigned calls = device.calls[FAKE_SEGMENT_ALLOC];
    pthread_mutex_unlock(&device.lock);
    return calls;
}

START_TEST(a_thread_cancelled_while_others_give_back_leaves_the_lock) {
    enum { LAST_CALLS = 2, TURNS = 1000 };
    asker_t asker = {.bytes = 100 * MIB, .status = AC_FAILED};
    pthread_t trimmer;
    void *result;
    give(alloc(2 * MIB));
    device.before = stand_still_in_a_free;
    ck_assert_int_eq(pthread_create(&trimmer, NULL, trim, NULL), 0);
    while (!atomic_load(&standing))
        sched_yield();
    unsigned calls = asked_for_segments();
    ck_assert_int_eq(pthread_create(&asker.thread, NULL, ask_cancelled, &asker), 0);
    while (asked_for_segments() < calls + LAST_CALLS)
        sched_yield();
    for (int i = 0; i < TURNS; i++) /* the thread is about to wait, or waits */
        sched_yield();
    atomic_store(&let_go, true);
    pthread_join(asker.thread, &result);
    ck_assert_ptr_null(result);
    ck_assert_int_eq(asker.status, AC_OOM);
    pthread_join(trimmer, NULL);
}
END_TEST

/* --- large free blocks are kept whole --- */

static uint64_t keep_large(uint64_t bytes) {
    uint64_t large = alloc(bytes);
    give(large);
    return large;
}

START_TEST(where_the_device_refuses_it_is_broken_up) {
    uint64_t large = keep_large(1000 * MIB);
    device.capacity = 1001 * MIB;
    ck_assert_uint_eq(alloc(MIB), large);
    unsigned calls = asked_for_segments();
    give(large);
    ck_assert_uint_eq(alloc(MIB), large);
    ck_assert_uint_eq(asked_for_segments(), calls); /* the refusal is remembered */
}
END_TEST

START_TEST(beside_a_capture_it_is_broken_up) {
    uint64_t large = keep_large(1000 * MIB);
    unsigned calls = asked_for_segments();
    atomic_store(&context[0].capturing, true);
    ck_assert_uint_eq(alloc(MIB / 4), large);
    ck_assert_uint_eq(asked_for_segments(), calls);
    atomic_store(&context[0].capturing, false);
}
END_TEST

/* 140 MiB are reserved: one block of 100 is free, one of 40 waits for work. */
static uint64_t waiting, ready;

static void keep_large_beside_work(void) {
    ready = alloc(100 * MIB);
    waiting = alloc(40 * MIB);
    give(ready);
    submit(0);
    give(waiting);
}

START_TEST(a_request_waits_rather_than_break_up_a_large_block) {
    keep_large_beside_work();
    ck_assert_uint_eq(alloc(30 * MIB), waiting); /* 170 are more than 1.2 x 140 */
    ck_assert_uint_eq(counters.fence_waits, 1);
    ck_assert_uint_eq(reserved(), 140 * MIB);
}
END_TEST

START_TEST(within_the_budget_it_does_not_wait) {
    keep_large_beside_work();
    ck_assert_uint_eq(alloc(20 * MIB), ready);
    ck_assert_uint_eq(counters.fence_waits, 0);
    ck_assert_uint_eq(reserved(), 140 * MIB);
    end_idle();
}
END_TEST

static uint64_t alloc_on(ac_stream_t stream, uint64_t bytes) {
    uint64_t address;
    if (!stream)
        return alloc(bytes);
    ck_assert_int_eq(ac_arena_alloc_on(arena, stream, bytes, false, &address), AC_OK);
    return address;
}

static void give_on(ac_stream_t stream, uint64_t address) {
    ac_status_t status = stream ? ac_block_free_on(arena, stream, address) : ac_block_free(address);
    ck_assert_int_eq(status, AC_OK);
}

START_TEST(idle_segments_are_waited_for_beyond_the_budget) {
    ac_stream_t stream = _i ? STREAM : 0;
    uint64_t a = alloc_on(stream, 500 * MIB), b;
    for (unsigned i = 1; i < 20; i++, a = b) {
        submit(0);
        b = alloc_on(stream, 500 * MIB + i * 2 * MIB);
        give_on(stream, a);
    }
    ck_assert_uint_le(reserved(), 1600 * MIB); /* two live segments, one idle */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("growth");
    TCase *tests = tcase_create("growth");
    tcase_add_checked_fixture(tests, begin_large, end);
    tcase_add_loop_test(tests, threads_that_miss_together_share_one_segment, 0, 2);
    tcase_add_test(tests, what_would_not_do_for_it_is_not_waited_for);
    tcase_add_test(tests, large_requests_do_not_wait_for_medium_segments);
    tcase_add_loop_test(tests, who_shared_a_failure_asks_by_itself, 0, 2);
    tcase_add_test(tests, a_call_that_waits_for_the_program_holds_up_no_thread);
    tcase_add_loop_test(tests, beside_a_capture_each_thread_gets_its_own_answer, 0, 2);
    tcase_add_test(tests, where_the_device_refuses_it_is_broken_up);
    tcase_add_test(tests, beside_a_capture_it_is_broken_up);
    tcase_add_test(tests, a_request_waits_rather_than_break_up_a_large_block);
    tcase_add_test(tests, within_the_budget_it_does_not_wait);
    tcase_add_loop_test(tests, idle_segments_are_waited_for_beyond_the_budget, 0, 2);
    suite_add_tcase(suite, tests);
    TCase *tight = tcase_create("tight");
    tcase_add_checked_fixture(tight, begin_tight, end);
    tcase_add_test(tight, a_thread_cancelled_while_others_give_back_leaves_the_lock);
    suite_add_tcase(suite, tight);
    return run_suite(suite);
}
