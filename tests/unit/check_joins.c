/* Turns of the single-stream rule: the work that they cover, and their end. Uses the device and
 * the oracle of line_device.h. */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "line_device.h"
#include "no_membarrier.h"
#include "run_suite.h"

/* A kernel on the sole stream ends only after another stream has worked. The join event may not
 * cover this kernel. */
START_TEST(the_join_leaves_out_work_behind_the_free) {
    static const int frees[] = {1, 2, 3, 4, 5, 6, 7, 8, 33, 100, 200};
    for (int i = 0; i < frees[_i]; i++) {
        submit(0);
        ck_assert(rely());
    }
    submit(0);
    if (_i % 2) { /* fences that cover it do not replace the join event */
        for (int i = 0; i < 2 * AC_FENCE_RING; i++) {
            ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
            ac_fence_submitted(&timeline);
        }
    }
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], (unsigned)frees[_i]);
    ck_assert_uint_eq(d.join_events, (unsigned)frees[_i]);
    ac_sole_settle(&timeline, true);
    ck_assert_uint_eq(d.completed[0], (unsigned)frees[_i]);
    ck_assert_uint_eq(d.syncs, 0);
}
END_TEST

/* Every way to end the rule. */
START_TEST(no_end_of_the_rule_waits_for_work_behind_the_free) {
    for (int i = 0; i < 3; i++) {
        submit(0);
        ck_assert(rely());
    }
    submit(0);
    switch (_i) {
    case 0:
        ac_sole_settle(&timeline, false);
        break;
    case 1:
        ac_fence_share();
        break;
    case 2:
        ac_sole_leave(&timeline);
        submit(1);
        break;
    case 3:
        ck_assert(!ac_sole_unorder(&timeline));
        ck_assert_uint_eq(d.host_waits, 0);
        d.completed[0] = 3;
        ck_assert(ac_sole_unorder(&timeline));
        ck_assert_uint_eq(d.host_waits, 0);
        break;
    }
    ck_assert_uint_eq(d.join_events, 3);
    ck_assert_uint_lt(d.completed[0], 4);
    ck_assert_uint_eq(d.syncs, 0);
}
END_TEST

static void sole_submits(void) {
    submit(0);
}

/* Two threads find that a join event is due. The thread that returns last recorded its event
 * behind the other one's work, so the event is not used. */
START_TEST(of_two_join_events_the_first_is_taken) {
    submit(0);
    ck_assert(rely());
    meanwhile = sole_submits;
    submit(0);
    ck_assert_uint_eq(d.join_events, 2);
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], 1);
}
END_TEST

static _Atomic bool about_to_record, may_record;
static pthread_t submitter;

static void wait_to_record(void) {
    atomic_store(&about_to_record, true);
    while (!atomic_load(&may_record))
        sched_yield();
}

static void *submit_beside(void *unused) {
    submit(0);
    return unused;
}

static void another_thread_submits(void) {
    meanwhile = wait_to_record;
    ck_assert_int_eq(pthread_create(&submitter, NULL, submit_beside, NULL), 0);
    while (!atomic_load(&about_to_record))
        sched_yield();
}

/* The later join event also has the later stamp. */
START_TEST(a_join_behind_later_work_is_not_taken) {
    submit(0);
    ck_assert(rely());
    meanwhile = another_thread_submits;
    submit(0); /* may never end */
    atomic_store(&may_record, true);
    pthread_join(submitter, NULL);
    ck_assert_uint_eq(d.join_events, 2);
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], 1);
}
END_TEST

static void another_free_relies(void) {
    ck_assert(rely());
}

/* A free that relies on order while a join event is being recorded gets the next join event. */
START_TEST(a_free_beside_a_record_has_a_join_of_its_own) {
    submit(0);
    ck_assert(rely());
    submit(0);
    ck_assert(rely());
    meanwhile = another_free_relies;
    submit(0);
    ck_assert_uint_eq(d.join_events, 3);
    ck_assert(!ac_sole_due(&timeline.single));
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], 2);
}
END_TEST

static void a_second_stream_works(void) {
    submit(1);
}

/* The sole stream is left while a join event is being recorded. This event is the one to join. */
START_TEST(the_sole_is_left_beside_a_record) {
    submit(0);
    ck_assert(rely());
    meanwhile = a_second_stream_works;
    submit(0);
    ck_assert_uint_eq(d.before[1].at[0], 1);
    ck_assert_uint_eq(d.waits, 1);
    ck_assert(!rely());
}
END_TEST

/* The next submission looks at the clock only. */
START_TEST(a_free_that_leans_ends_the_epoch) {
    submit(0);
    uint64_t clock = ac_fence_now();
    for (int i = 0; i < 5; i++) {
        ck_assert(rely());
        ck_assert_uint_gt(ac_fence_now(), clock);
    }
    ck_assert_uint_eq(ac_fence_now(), clock + 1); /* one step is enough */
    submit(0);
    clock = ac_fence_now();
    ck_assert(rely());
    ck_assert_uint_gt(ac_fence_now(), clock);
}
END_TEST

/* A join event is a fence: a query of it shows that memory which relied on order is complete. */
START_TEST(a_join_tells_of_completion) {
    submit(0);
    ck_assert(rely());
    uint64_t relied = atomic_load(&timeline.single.relied);
    submit(0);                                        /* may never end */
    ck_assert(!ac_fence_under_way(&timeline, false)); /* no free waits for it */
    d.completed[0] = 1;
    ck_assert(ac_fence_poll(&timeline, false));
    ck_assert_uint_ge(ac_fence_reached(&timeline, false), relied);
    ck_assert(!ac_timeline_idle(&timeline));
    submit(1);
    ck_assert_uint_eq(d.waits, 0);
}
END_TEST

/* The join event is also found complete if no thread has queried it before. */
START_TEST(a_join_that_is_over_holds_no_stream_back) {
    submit(0);
    ck_assert(rely());
    submit(0);
    d.completed[0] = 1;
    submit(1);
    ck_assert_uint_eq(d.waits, 0);
    ck_assert_uint_eq(timeline.single.backoff, 0);
}
END_TEST

START_TEST(without_join_events_no_free_relies) {
    d.never_join_events = true;
    submit(0);
    ck_assert(!rely());
    submit(1);
    ck_assert_uint_eq(d.waits + d.syncs, 0);
}
END_TEST

/* The join event cannot be recorded. Frees no longer rely on order, and the host waits for
 * nothing before a second stream comes. */
START_TEST(a_record_that_fails_ends_leaning) {
    submit(0);
    ck_assert(rely());
    d.no_join_events = true;
    submit(0);
    ck_assert(!rely());
    submit(0);
    ck_assert_uint_eq(d.syncs + d.host_waits, 0);
    d.no_join_events = false, d.late_join_events = true;
    submit(1);
    ck_assert_uint_eq(d.waits, 1);
    full_sync();
    submit(1);
    ck_assert_int_eq(ac_sole_mode(atomic_load(&timeline.single.word)), AC_SOLE_ONE);
}
END_TEST

/* A join event serves all frees before it. Completed work gets none. */
START_TEST(join_events_are_few) {
    for (int i = 0; i < 1000; i++) {
        submit(0);
        for (int n = 0; n < 3; n++)
            ck_assert(rely());
    }
    ck_assert_uint_eq(d.join_events, 999);
    for (int i = 0; i < 1000; i++) {
        submit(0);
        ck_assert(rely());
        full_sync();
    }
    ck_assert_uint_eq(d.join_events, 1000);
    submit(1); /* all work is complete */
    ck_assert_uint_eq(d.waits, 0);
}
END_TEST

/* A fence that frees wait for stays until it is complete, however many join events follow it. */
START_TEST(join_events_push_no_fence_out) {
    uint64_t clock = 0;
    for (int i = 0; i < 2; i++) {
        submit(0);
        clock = ac_fence_now();
        ck_assert_int_eq(ac_fence_close(&timeline, false), AC_OK);
    }
    submit(0);
    for (int i = 0; i < 3 * AC_FENCE_RING; i++) {
        ck_assert(rely());
        submit(0);
        ck_assert_int_eq(ac_fence_check(&timeline), 0);
    }
    ck_assert_uint_eq(d.join_events, 3 * AC_FENCE_RING);
    ck_assert_uint_eq(d.fences, 2 + AC_FENCE_JOIN_EVENTS);
    d.completed[0] = 2;
    ck_assert(ac_fence_poll(&timeline, false));
    ck_assert_uint_eq(ac_fence_reached(&timeline, false), clock);
}
END_TEST

START_TEST(a_join_costs_backoff) {
    for (int round = 0, alone = 0; round < 3; round++) {
        full_sync();
        int seen = 0;
        for (submit(0); !rely(); submit(0))
            seen++;
        ck_assert_int_ge(seen, alone);
        ck_assert_int_le(seen, 4096);
        alone = seen * 2 + 1;
        submit(1);
        ck_assert_uint_eq(timeline.single.join, (unsigned)round + 1);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("join_events");
    TCase *tests = tcase_create("join_events");
    tcase_add_checked_fixture(tests, begin, end);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, the_join_leaves_out_work_behind_the_free, 0, 11);
    tcase_add_loop_test(tests, no_end_of_the_rule_waits_for_work_behind_the_free, 0, 4);
    tcase_add_test(tests, of_two_join_events_the_first_is_taken);
    tcase_add_test(tests, a_join_behind_later_work_is_not_taken);
    tcase_add_test(tests, a_free_beside_a_record_has_a_join_of_its_own);
    tcase_add_test(tests, the_sole_is_left_beside_a_record);
    tcase_add_test(tests, a_free_that_leans_ends_the_epoch);
    tcase_add_test(tests, a_join_tells_of_completion);
    tcase_add_test(tests, a_join_that_is_over_holds_no_stream_back);
    tcase_add_test(tests, without_join_events_no_free_relies);
    tcase_add_test(tests, a_record_that_fails_ends_leaning);
    tcase_add_test(tests, join_events_are_few);
    tcase_add_test(tests, join_events_push_no_fence_out);
    tcase_add_test(tests, a_join_costs_backoff);
    suite_add_tcase(suite, tests);
    return run_suite_as(suite, CK_FORK); /* a filter stays with its process */
}
