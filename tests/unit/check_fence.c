/* Timelines: when a freed block may be reused, and the device calls that this needs. */
#include <check.h>

#include "allocator/order/fence.h"
#include "fake_device.h"
#include "run_suite.h"

static fake_device_t device;
static fake_context_t context[2];
static ac_timeline_t timeline[2];

static void begin(void) {
    fake_device_init(&device, (uint64_t)1 << 30);
    for (int i = 0; i < 2; i++) {
        fake_context_init(&context[i], &device);
        ck_assert(ac_timeline_open(&timeline[i], &fake_ops, &context[i]));
    }
}

static void submit(int i) {
    fake_submit(&context[i]);
    ac_fence_submitted(&timeline[i]);
}

static uint64_t target(int i) {
    bool all;
    return ac_fence_target(&timeline[i], &all);
}

START_TEST(untouched_without_work) {
    uint64_t born = ac_fence_handout(&timeline[0]);
    ck_assert(ac_fence_untouched(&timeline[0], born));
    submit(1); /* another context's work does not count */
    ck_assert(ac_fence_untouched(&timeline[0], born));
    submit(0);
    ck_assert(!ac_fence_untouched(&timeline[0], born));
    ck_assert(ac_fence_untouched(&timeline[0], ac_fence_handout(&timeline[0])));
    atomic_store(&ac_fence_shared, true);
    ck_assert(!ac_fence_untouched(&timeline[0], born));
    born = ac_fence_handout(&timeline[0]);
    ck_assert(ac_fence_untouched(&timeline[0], born));
    submit(1); /* now it counts */
    ck_assert(!ac_fence_untouched(&timeline[0], born));
}
END_TEST

/* Submissions and requests alternate. Each change makes one epoch; repeated submissions or
 * requests make none. */
START_TEST(epochs_tell_blocks_from_earlier_work) {
    uint64_t clock = 0;
    for (int i = 0; i < 10; i++) {
        submit(0);
        submit(0);
        uint64_t born = ac_fence_handout(&timeline[0]);
        ck_assert_uint_gt(born, clock);
        ck_assert_uint_eq(born, ac_fence_now());
        ck_assert_uint_eq(born, ac_fence_handout(&timeline[0]));
        ck_assert(ac_fence_untouched(&timeline[0], born));
        ck_assert(clock == 0 || !ac_fence_untouched(&timeline[0], clock));
        clock = born;
    }
}
END_TEST

/* A call in progress, marked in its thread's slot or counted in the timeline. */
static ac_submitter_t caller;

static void enter(bool by_slot) {
    ac_fence_list(&caller);
    if (by_slot)
        ck_assert(ac_fence_enter_as(&timeline[0], &caller));
    else
        ac_fence_enter(&timeline[0]);
    ac_fence_mark(&timeline[0]);
}

static void leave(bool by_slot) {
    if (by_slot)
        ac_fence_leave_as(&timeline[0], &caller);
    else
        ac_fence_leave(&timeline[0]);
}

/* The block was handed out during a call that marks work at its end. It counts as touched. */
START_TEST(a_call_around_a_request_counts) {
    enter(_i);
    uint64_t born = ac_fence_handout(&timeline[0]);
    ck_assert(ac_fence_untouched(&timeline[0], born));
    leave(_i);
    ck_assert(!ac_fence_untouched(&timeline[0], born));
}
END_TEST

/* The call's work does not belong to the fence that was recorded during the call. */
START_TEST(a_call_around_a_stamp_belongs_to_the_next) {
    submit(0);
    enter(_i);
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_OK);
    fake_submit(&context[0]);
    leave(_i);
    uint64_t t = target(0);
    fake_complete(&context[0], 1);
    ck_assert(ac_fence_poll(&timeline[0], false));
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], false));
    ck_assert(!ac_timeline_idle(&timeline[0]));
}
END_TEST

/* Each thread has one slot. Nested calls are counted in the timeline, in whatever order they
 * end. */
START_TEST(slots) {
    static ac_submitter_t one, two;
    ac_fence_list(&one);
    ac_fence_list(&one);
    ac_fence_list(&two);
    ck_assert_uint_eq(ac_fence_inside(&timeline[0], 5), 0);
    ck_assert(ac_fence_enter_as(&timeline[0], &one));
    ck_assert(!ac_fence_enter_as(&timeline[0], &one));
    ac_fence_enter(&timeline[0]);
    ck_assert(!ac_fence_enter_as(&timeline[1], &one));
    ac_fence_enter(&timeline[1]);
    ck_assert(ac_fence_enter_as(&timeline[0], &two));
    ck_assert_uint_eq(ac_fence_inside(&timeline[0], 5), 3);
    ck_assert_uint_eq(ac_fence_inside(&timeline[0], 1), 2);
    ck_assert_uint_eq(ac_fence_inside(&timeline[1], 5), 1);
    ck_assert(!ac_timeline_idle(&timeline[0]));
    ac_fence_leave_as(&timeline[0], &one);
    ck_assert_uint_eq(ac_fence_inside(&timeline[0], 5), 2);
    ac_fence_leave(&timeline[0]);
    ac_fence_leave_as(&timeline[0], &two);
    ck_assert_uint_eq(ac_fence_inside(&timeline[0], 5), 0);
    ck_assert_uint_eq(ac_fence_inside(&timeline[1], 5), 1);
    ac_fence_leave(&timeline[1]);
    ck_assert(ac_fence_enter_as(&timeline[1], &one));
    ac_fence_leave_as(&timeline[1], &one);
}
END_TEST

START_TEST(reached_after_completion_only) {
    submit(0);
    uint64_t t = target(0);
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], false));
    ck_assert(!ac_fence_poll(&timeline[0], false)); /* no fence recorded yet */
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_OK);
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_RECORD], 1); /* one fence covers it */
    ck_assert(!ac_fence_poll(&timeline[0], false));
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], false));
    fake_complete(&context[0], 1);
    ck_assert(ac_fence_poll(&timeline[0], false));
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], false));
    ck_assert_uint_eq(device.live_fences, 0);
    submit(0); /* a later free waits again */
    ck_assert_uint_gt(target(0), ac_fence_reached(&timeline[0], false));
}
END_TEST

START_TEST(a_fence_covers_no_later_work) {
    submit(0);
    ac_fence_close(&timeline[0], false);
    submit(0);
    uint64_t second = target(0);
    fake_complete(&context[0], 1);
    ck_assert(ac_fence_poll(&timeline[0], false));
    ck_assert_uint_gt(second, ac_fence_reached(&timeline[0], false));
}
END_TEST

START_TEST(wait_completes_no_more_than_needed) {
    submit(0);
    uint64_t first = target(0);
    ac_fence_close(&timeline[0], false);
    submit(0);
    ac_fence_close(&timeline[0], false);
    ck_assert_int_eq(ac_fence_wait(&timeline[0], false, first, 0), AC_OK);
    ck_assert_uint_eq(atomic_load(&context[0].completed), 1);
    ck_assert_uint_le(first, ac_fence_reached(&timeline[0], false));
    ck_assert_uint_eq(device.live_fences, 1);
}
END_TEST

START_TEST(wait_records_what_is_missing) {
    submit(0);
    ck_assert_int_eq(ac_fence_wait(&timeline[0], false, target(0), 0), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_RECORD], 1);
    ck_assert_uint_le(target(0), ac_fence_reached(&timeline[0], false));
}
END_TEST

START_TEST(wait_synchronises_where_nothing_can_be_recorded) {
    device.no_fences = true;
    submit(0);
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_UNSUPPORTED);
    ck_assert_int_eq(ac_fence_wait(&timeline[0], false, target(0), 0), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_SYNCHRONIZE], 1);
    ck_assert_uint_le(target(0), ac_fence_reached(&timeline[0], false));
}
END_TEST

START_TEST(all_lines_count_once_shared) {
    bool all;
    atomic_store(&ac_fence_shared, true);
    submit(0);
    submit(1);
    uint64_t t = ac_fence_target(&timeline[0], &all);
    ck_assert(all);
    ck_assert_int_eq(ac_fence_close(&timeline[0], true), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_RECORD], 2);
    fake_complete(&context[0], 1);
    ck_assert(ac_fence_poll(&timeline[0], true));
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], true));
    fake_complete(&context[1], 1);
    ck_assert(ac_fence_poll(&timeline[0], true));
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], true));
}
END_TEST

START_TEST(an_idle_line_holds_nothing_up) {
    atomic_store(&ac_fence_shared, true);
    bool all;
    submit(1);
    uint64_t t = ac_fence_target(&timeline[0], &all);
    ck_assert_int_eq(ac_fence_wait(&timeline[0], true, t, 0), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], 1); /* timeline 0 never had work */
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], true));
}
END_TEST

START_TEST(a_closed_line_holds_nothing_up) {
    atomic_store(&ac_fence_shared, true);
    bool all;
    submit(1);
    uint64_t t = ac_fence_target(&timeline[0], &all);
    ac_fence_close(&timeline[0], true);
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], true));
    fake_context_kill(&context[1]);
    ac_timeline_close(&timeline[1]);
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], true));
    ck_assert_uint_eq(device.live_fences, 0); /* the device's records are gone too */
}
END_TEST

/* A thread still holds the timeline of an ended context. It must not touch the next context. */
START_TEST(a_closed_line_is_out_of_reach) {
    static ac_timeline_t next;
    static fake_context_t another;
    submit(0);
    fake_context_kill(&context[0]);
    ac_timeline_close(&timeline[0]);
    fake_context_init(&another, &device);
    ck_assert(ac_timeline_open(&next, &fake_ops, &another));
    fake_submit(&another);
    ac_fence_submitted(&next);
    unsigned calls = device.total_calls;
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_OK);
    ck_assert_int_eq(ac_fence_wait(&timeline[0], false, ac_fence_now(), 0), AC_OK);
    ck_assert_uint_eq(device.total_calls, calls);
    ac_fence_synced(&timeline[0], ac_fence_stamp());
    ck_assert(!atomic_load(&next.broken));
    ck_assert_uint_gt(target(0), 0);
    bool all;
    ck_assert_uint_gt(ac_fence_target(&next, &all), ac_fence_reached(&next, false));
}
END_TEST

/* A fence was taken out of the ring for a query. It comes back after its context ended. */
static void close_line_0(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != FAKE_QUERY || !atomic_load(&timeline[0].live))
        return;
    fake_context_kill(&context[0]);
    device.fail_at = device.total_calls + 1; /* so the query itself still answers "not yet" */
    device.fail_with[FAKE_QUERY] = AC_BUSY;
    ac_timeline_close(&timeline[0]);
}

START_TEST(a_late_fence_is_released) {
    submit(0);
    ac_fence_close(&timeline[0], false);
    device.before = close_line_0;
    ac_fence_poll(&timeline[0], false);
    ck_assert_uint_eq(device.live_fences, 0);
    ck_assert_uint_eq(timeline[0].count, 0);
    ck_assert_ptr_null(device.wrong);
}
END_TEST

START_TEST(a_synchronisation_retires) {
    submit(0);
    ac_fence_close(&timeline[0], false);
    uint64_t clock = ac_fence_stamp();
    submit(0); /* this happens while the program synchronises */
    ac_fence_close(&timeline[0], false);
    uint64_t second = target(0);
    submit(0);
    fake_complete(&context[0], 1);
    ac_fence_synced(&timeline[0], clock);
    ck_assert_uint_eq(device.live_fences, 1);
    ck_assert_uint_eq(ac_fence_reached(&timeline[0], false), clock);
    ck_assert_uint_gt(target(0), ac_fence_reached(&timeline[0], false));
    ac_fence_synced(&timeline[0], clock - 1); /* a late report changes nothing */
    ck_assert_uint_eq(ac_fence_reached(&timeline[0], false), clock);
    fake_complete(&context[0], 2); /* the later fence is unchanged */
    ck_assert(ac_fence_poll(&timeline[0], false));
    ck_assert_uint_eq(ac_fence_reached(&timeline[0], false), second);
    ck_assert_uint_gt(target(0), second);
}
END_TEST

START_TEST(a_full_ring_loses_no_free) {
    uint64_t t[3 * AC_FENCE_RING];
    for (unsigned i = 0; i < 3 * AC_FENCE_RING; i++) {
        submit(0);
        t[i] = target(0);
        ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_OK);
        ck_assert_int_eq(ac_fence_check(&timeline[0]), 0);
    }
    ck_assert_uint_eq(device.live_fences, AC_FENCE_RING);
    for (unsigned done = 1; done <= 3 * AC_FENCE_RING; done++) {
        fake_complete(&context[0], done);
        ac_fence_poll(&timeline[0], false);
        ck_assert_int_eq(ac_fence_check(&timeline[0]), 0);
        /* No target is reached early; the oldest is reached at once, and all in the end. */
        for (unsigned i = done; i < 3 * AC_FENCE_RING; i++)
            ck_assert_uint_gt(t[i], ac_fence_reached(&timeline[0], false));
        ck_assert_uint_le(t[0], ac_fence_reached(&timeline[0], false));
    }
    ck_assert_uint_le(t[3 * AC_FENCE_RING - 1], ac_fence_reached(&timeline[0], false));
    ck_assert_uint_eq(device.live_fences, 0);
}
END_TEST

START_TEST(capture_defers) {
    submit(0);
    ac_fence_close(&timeline[0], false);
    submit(0);
    atomic_store(&context[0].capturing, true);
    fake_complete(&context[0], 2);
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_BUSY);
    ck_assert(atomic_load(&timeline[0].open)); /* retried at a later submission */
    ck_assert(!ac_fence_poll(&timeline[0], false));
    ck_assert_int_eq(ac_fence_wait(&timeline[0], false, target(0), 0), AC_BUSY);
    atomic_store(&context[0].capturing, false);
    ck_assert(ac_fence_poll(&timeline[0], false));
    ck_assert_int_eq(ac_fence_wait(&timeline[0], false, target(0), 0), AC_OK);
    ck_assert_uint_eq(device.live_fences, 0);
}
END_TEST

START_TEST(a_broken_context_never_gets_ready) {
    submit(0);
    device.fail_at = 1;
    device.fail_with[FAKE_RECORD] = AC_FAILED;
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_FAILED);
    ck_assert(atomic_load(&timeline[0].broken));
    ck_assert_int_eq(ac_fence_wait(&timeline[0], false, target(0), 0), AC_FAILED);
    ck_assert_uint_gt(target(0), ac_fence_reached(&timeline[0], false));
}
END_TEST

START_TEST(unseen_work_counts_everywhere) {
    bool all;
    atomic_store(&ac_fence_untracked, true);
    ck_assert(!ac_fence_untouched(&timeline[0], ac_fence_handout(&timeline[0])));
    uint64_t t = ac_fence_target(&timeline[0], &all);
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], all));
    atomic_store(&ac_fence_shared, true);
    fake_submit(&context[1]); /* no mark counts this work */
    t = ac_fence_target(&timeline[0], &all);
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], all));
    ck_assert_int_eq(ac_fence_wait(&timeline[0], all, t, 0), AC_OK);
    ck_assert_uint_eq(atomic_load(&context[1].completed), 1);
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], all));
}
END_TEST

static unsigned early_questions;

static ac_status_t answer_late(void *arg, void *fence) {
    if (early_questions) {
        early_questions--;
        return AC_BUSY;
    }
    return fake_ops.fence_query(arg, fence);
}

/* An idle device needs a moment for an event. The next query would be about a new event, because
 * unseen work may have come meanwhile. */
START_TEST(calm_allows_an_event_a_moment) {
    ac_device_ops_t late = fake_ops;
    late.fence_query = answer_late;
    timeline[0].ops = &late;
    ac_fence_unseen();
    early_questions = 5;
    ck_assert(ac_fence_calm(0));
    fake_submit(&context[0]);
    ck_assert(!ac_fence_calm(0));
}
END_TEST

START_TEST(want_opens_the_lines_that_count) {
    ac_fence_want(&timeline[0], false, AC_FENCE_BATCH_WEIGHT);
    ck_assert(ac_fence_full(&timeline[0]) && !ac_fence_full(&timeline[1]));
    ac_fence_want(&timeline[0], true, AC_FENCE_BATCH_WEIGHT - 1);
    ck_assert(!ac_fence_full(&timeline[1]));
    ac_fence_want(&timeline[0], true, 1); /* the weights of several frees add up */
    ck_assert(ac_fence_full(&timeline[1]));
    ac_fence_close(&timeline[0], true);
    ck_assert(!atomic_load(&timeline[0].open) && !atomic_load(&timeline[1].open));
}
END_TEST

/* A submission has not returned. Its work may run, and a fence recorded before the driver got it
 * does not cover it. */
START_TEST(work_inside_a_call_counts) {
    uint64_t born = ac_fence_handout(&timeline[0]);
    ac_fence_enter(&timeline[0]);
    ac_fence_mark(&timeline[0]);
    ck_assert(!ac_fence_untouched(&timeline[0], born));
    ac_fence_close(&timeline[0], false); /* records a fence: the call's progress is unknown */
    ck_assert_uint_eq(device.calls[FAKE_RECORD], 1);
    fake_submit(&context[0]); /* the work reaches the device only now */
    uint64_t t = target(0);
    ck_assert(ac_fence_poll(&timeline[0], false)); /* the fence recorded before it */
    ck_assert_uint_gt(t, ac_fence_reached(&timeline[0], false));
    ac_fence_close(&timeline[0], false);
    ck_assert(!ac_fence_poll(&timeline[0], false));
    fake_complete(&context[0], 1);
    ck_assert(ac_fence_poll(&timeline[0], false));
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], false));
    ac_fence_leave(&timeline[0]);
    ck_assert(!ac_fence_untouched(&timeline[0], born));
    ck_assert_uint_gt(target(0), ac_fence_reached(&timeline[0], false));
}
END_TEST

/* A wait ends even while another thread is inside a call of its own. */
START_TEST(wait_beside_a_call_ends) {
    atomic_store(&ac_fence_shared, true);
    submit(0);
    uint64_t t = target(0);
    ac_fence_enter(&timeline[1]);
    fake_complete(&context[0], 1);
    ck_assert_int_eq(ac_fence_wait(&timeline[0], true, t, 0), AC_OK);
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], true));
}
END_TEST

/* Frees do not wait for later work of another context. */
START_TEST(later_work_elsewhere_holds_nothing_up) {
    atomic_store(&ac_fence_shared, true);
    submit(0);
    uint64_t t = target(0);
    ck_assert_int_eq(ac_fence_close(&timeline[0], true), AC_OK);
    submit(1);
    fake_complete(&context[0], 1);
    ck_assert(ac_fence_poll(&timeline[0], true));
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], true));
}
END_TEST

/* The work of a broken context is dead, and other contexts go on. */
START_TEST(a_broken_context_holds_no_other_up) {
    atomic_store(&ac_fence_shared, true);
    submit(0);
    submit(1);
    uint64_t t = target(0);
    atomic_store(&timeline[1].broken, true);
    fake_complete(&context[0], 1);
    ck_assert_int_eq(ac_fence_wait(&timeline[0], true, t, 0), AC_OK);
    ck_assert_uint_le(t, ac_fence_reached(&timeline[0], true));
}
END_TEST

/* Each thread has a stream, and synchronisations make one of the streams the sole one. While a
 * thread is inside as the sole stream, no other stream becomes it. */
enum { RACERS = 3, JOIN_EVENTS = 20000 };
static _Atomic unsigned wrong_homes, homes;

static void *race(void *arg) {
    static ac_submitter_t submitter[RACERS];
    static ac_joins_t joins[RACERS];
    unsigned self = (unsigned)(uintptr_t)arg;
    uint64_t stream = 0x1000 + 16 * self;
    ac_fence_list(&submitter[self]);
    for (unsigned i = 0; i < JOIN_EVENTS; i++) {
        if (!ac_fence_enter_as(&timeline[0], &submitter[self]))
            atomic_fetch_add(&wrong_homes, 1);
        ac_sole_enter(&timeline[0], stream, &joins[self]);
        uint64_t number = fake_submit(&context[0]);
        uint64_t word = atomic_load(&timeline[0].single.word);
        if (ac_sole_mode(word) == AC_SOLE_ONE) {
            atomic_fetch_add(&homes, 1);
            if (ac_sole_stream(word) != stream)
                atomic_fetch_add(&wrong_homes, 1);
        }
        ac_fence_leave_as(&timeline[0], &submitter[self]);
        if (i % 4 == self) {
            uint64_t stamp = ac_fence_stamp();
            fake_complete(&context[0], number);
            if (atomic_load(&context[0].submitted) == number)
                ac_fence_synced(&timeline[0], stamp);
        }
    }
    return NULL;
}

START_TEST(no_thread_is_inside_beside_a_new_sole) {
    pthread_t thread[RACERS];
    for (uintptr_t i = 0; i < RACERS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, race, (void *)i), 0);
    for (int i = 0; i < RACERS; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_eq(atomic_load(&wrong_homes), 0);
    ck_assert_uint_gt(atomic_load(&homes), 0);
}
END_TEST

START_TEST(a_stray_is_inside_every_line) {
    bool all;
    submit(0);
    ck_assert_int_eq(ac_fence_close(&timeline[0], false), AC_OK);
    fake_complete(&context[0], 1);
    ac_fence_poll(&timeline[0], false);
    uint64_t born = ac_fence_handout(&timeline[1]);
    ck_assert(ac_fence_idle(&timeline[1]) && ac_fence_untouched(&timeline[1], born));
    ac_fence_untracked_begin(7);
    for (int i = 0; i < 2; i++) {
        ck_assert(!ac_fence_idle(&timeline[i]));
        ck_assert(!ac_fence_untouched(&timeline[i], born));
        ac_fence_target(&timeline[i], &all);
        ck_assert(all);
    }
    ac_fence_untracked_end(_i);
    ck_assert_int_eq(ac_fence_is_unseen(), _i);
    ac_fence_target(&timeline[1], &all);
    ck_assert_int_eq(all, _i);
    born = ac_fence_handout(&timeline[1]);
    ck_assert_int_eq(ac_fence_untouched(&timeline[1], born), !_i);
}
END_TEST

START_TEST(unseen_is_all_of_it) {
    bool all;
    ac_fence_unseen();
    ck_assert(ac_fence_is_unseen() && !ac_fence_simple() && !ac_fence_idle(&timeline[0]));
    ac_fence_target(&timeline[0], &all);
    ck_assert(all);
}
END_TEST

START_TEST(lines_run_out_and_come_back) {
    static ac_timeline_t many[AC_FENCE_LINES];
    unsigned n = 0;
    while (n < AC_FENCE_LINES && ac_timeline_open(&many[n], &fake_ops, &context[0]))
        n++;
    ck_assert_uint_eq(n, AC_FENCE_LINES - 2);
    ac_timeline_close(&many[0]);
    ck_assert(ac_timeline_open(&many[n], &fake_ops, &context[0]));
    ck_assert(!ac_timeline_open(&many[n + 1], &fake_ops, &context[0]));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fence");
    TCase *tests = tcase_create("fence");
    tcase_add_checked_fixture(tests, begin, NULL);
    tcase_add_test(tests, untouched_without_work);
    tcase_add_test(tests, epochs_tell_blocks_from_earlier_work);
    tcase_add_loop_test(tests, a_stray_is_inside_every_line, 0, 2);
    tcase_add_test(tests, unseen_is_all_of_it);
    tcase_add_loop_test(tests, a_call_around_a_request_counts, 0, 2);
    tcase_add_loop_test(tests, a_call_around_a_stamp_belongs_to_the_next, 0, 2);
    tcase_add_test(tests, slots);
    tcase_add_test(tests, reached_after_completion_only);
    tcase_add_test(tests, a_fence_covers_no_later_work);
    tcase_add_test(tests, wait_completes_no_more_than_needed);
    tcase_add_test(tests, wait_records_what_is_missing);
    tcase_add_test(tests, wait_synchronises_where_nothing_can_be_recorded);
    tcase_add_test(tests, all_lines_count_once_shared);
    tcase_add_test(tests, an_idle_line_holds_nothing_up);
    tcase_add_test(tests, a_closed_line_holds_nothing_up);
    tcase_add_test(tests, a_closed_line_is_out_of_reach);
    tcase_add_test(tests, a_late_fence_is_released);
    tcase_add_test(tests, a_synchronisation_retires);
    tcase_add_test(tests, a_full_ring_loses_no_free);
    tcase_add_test(tests, capture_defers);
    tcase_add_test(tests, a_broken_context_never_gets_ready);
    tcase_add_test(tests, unseen_work_counts_everywhere);
    tcase_add_test(tests, calm_allows_an_event_a_moment);
    tcase_add_test(tests, want_opens_the_lines_that_count);
    tcase_add_test(tests, work_inside_a_call_counts);
    tcase_add_test(tests, wait_beside_a_call_ends);
    tcase_add_test(tests, later_work_elsewhere_holds_nothing_up);
    tcase_add_test(tests, a_broken_context_holds_no_other_up);
    tcase_add_test(tests, no_thread_is_inside_beside_a_new_sole);
    tcase_add_test(tests, lines_run_out_and_come_back);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
