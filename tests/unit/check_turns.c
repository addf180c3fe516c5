/* Turns of the single-stream rule: what they cover, and when they are over; on the device and
 * with the oracle of line_device.h. */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "line_device.h"
#include "no_membarrier.h"

/* A kernel on the home that ends only when another stream has worked: the turn may not cover it.
 */
START_TEST(the_turn_leaves_out_work_behind_the_free) {
    static const int frees[] = {1, 2, 3, 4, 5, 6, 7, 8, 33, 100, 200};
    for (int i = 0; i < frees[_i]; i++) {
        submit(0);
        ck_assert(lean());
    }
    submit(0);
    if (_i % 2) { /* fences that cover it do not take the place of the turn */
        for (int i = 0; i < 2 * AC_FENCE_RING; i++) {
            ck_assert_int_eq(ac_fence_close(&line, false), AC_OK);
            ac_fence_submitted(&line);
        }
    }
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], (unsigned)frees[_i]);
    ck_assert_uint_eq(d.turns, (unsigned)frees[_i]);
    ac_single_settle(&line, true);
    ck_assert_uint_eq(d.completed[0], (unsigned)frees[_i]);
    ck_assert_uint_eq(d.syncs, 0);
}
END_TEST

/* All the ways to end the rule. */
START_TEST(no_end_of_the_rule_waits_for_work_behind_the_free) {
    for (int i = 0; i < 3; i++) {
        submit(0);
        ck_assert(lean());
    }
    submit(0);
    switch (_i) {
    case 0:
        ac_single_settle(&line, false);
        break;
    case 1:
        ac_fence_cross();
        break;
    case 2:
        ac_single_leave(&line);
        submit(1);
        break;
    case 3:
        ck_assert(!ac_single_unorder(&line));
        ck_assert_uint_eq(d.host_waits, 0);
        d.completed[0] = 3;
        ck_assert(ac_single_unorder(&line));
        ck_assert_uint_eq(d.host_waits, 0);
        break;
    }
    ck_assert_uint_eq(d.turns, 3);
    ck_assert_uint_lt(d.completed[0], 4);
    ck_assert_uint_eq(d.syncs, 0);
}
END_TEST

static void home_submits(void) {
    submit(0);
}

/* Two threads find that a turn is due.  The one that comes back last recorded its turn behind the
 * work of the other: it is not taken. */
START_TEST(of_two_turns_the_first_is_taken) {
    submit(0);
    ck_assert(lean());
    meanwhile = home_submits;
    submit(0);
    ck_assert_uint_eq(d.turns, 2);
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

/* The same, and the later turn has the later stamp. */
START_TEST(a_turn_behind_later_work_is_not_taken) {
    submit(0);
    ck_assert(lean());
    meanwhile = another_thread_submits;
    submit(0); /* may run for ever */
    atomic_store(&may_record, true);
    pthread_join(submitter, NULL);
    ck_assert_uint_eq(d.turns, 2);
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], 1);
}
END_TEST

static void another_free_leans(void) {
    ck_assert(lean());
}

/* A free that leans while a turn is being recorded has the next one. */
START_TEST(a_free_beside_a_record_has_a_turn_of_its_own) {
    submit(0);
    ck_assert(lean());
    submit(0);
    ck_assert(lean());
    meanwhile = another_free_leans;
    submit(0);
    ck_assert_uint_eq(d.turns, 3);
    ck_assert(!ac_single_due(&line.single));
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], 2);
}
END_TEST

static void a_second_stream_works(void) {
    submit(1);
}

/* The home is left while a turn is being recorded: what is recorded then is the turn. */
START_TEST(the_home_is_left_beside_a_record) {
    submit(0);
    ck_assert(lean());
    meanwhile = a_second_stream_works;
    submit(0);
    ck_assert_uint_eq(d.before[1].at[0], 1);
    ck_assert_uint_eq(d.waits, 1);
    ck_assert(!lean());
}
END_TEST

/* The next submission looks at nothing but the clock. */
START_TEST(a_free_that_leans_ends_the_epoch) {
    submit(0);
    uint64_t clock = ac_fence_now();
    for (int i = 0; i < 5; i++) {
        ck_assert(lean());
        ck_assert_uint_gt(ac_fence_now(), clock);
    }
    ck_assert_uint_eq(ac_fence_now(), clock + 1); /* once is enough */
    submit(0);
    clock = ac_fence_now();
    ck_assert(lean());
    ck_assert_uint_gt(ac_fence_now(), clock);
}
END_TEST

/* A turn is a fence: what leaned is known to be complete by asking for it. */
START_TEST(a_turn_tells_of_completion) {
    submit(0);
    ck_assert(lean());
    uint64_t leaned = atomic_load(&line.single.leaned);
    submit(0);                                    /* may run for ever */
    ck_assert(!ac_fence_under_way(&line, false)); /* no free waits for it */
    d.completed[0] = 1;
    ck_assert(ac_fence_poll(&line, false));
    ck_assert_uint_ge(ac_fence_reached(&line, false), leaned);
    ck_assert(!ac_fence_line_idle(&line));
    submit(1);
    ck_assert_uint_eq(d.waits, 0);
}
END_TEST

/* Also where it was not asked for before. */
START_TEST(a_turn_that_is_over_holds_no_stream_back) {
    submit(0);
    ck_assert(lean());
    submit(0);
    d.completed[0] = 1;
    submit(1);
    ck_assert_uint_eq(d.waits, 0);
    ck_assert_uint_eq(line.single.patience, 0);
}
END_TEST

START_TEST(without_turns_no_free_leans) {
    d.never_turns = true;
    submit(0);
    ck_assert(!lean());
    submit(1);
    ck_assert_uint_eq(d.waits + d.syncs, 0);
}
END_TEST

/* A turn that cannot be recorded: frees lean no more, and the host waits for nothing before a
 * second stream comes. */
START_TEST(a_record_that_fails_ends_leaning) {
    submit(0);
    ck_assert(lean());
    d.no_turns = true;
    submit(0);
    ck_assert(!lean());
    submit(0);
    ck_assert_uint_eq(d.syncs + d.host_waits, 0);
    d.no_turns = false, d.late_turns = true;
    submit(1);
    ck_assert_uint_eq(d.waits, 1);
    full_sync();
    submit(1);
    ck_assert_int_eq(ac_single_mode(atomic_load(&line.single.word)), AC_SINGLE_ONE);
}
END_TEST

/* A turn serves all frees before it, and none is recorded for what is complete. */
START_TEST(turns_are_few) {
    for (int i = 0; i < 1000; i++) {
        submit(0);
        for (int n = 0; n < 3; n++)
            ck_assert(lean());
    }
    ck_assert_uint_eq(d.turns, 999);
    for (int i = 0; i < 1000; i++) {
        submit(0);
        ck_assert(lean());
        full_sync();
    }
    ck_assert_uint_eq(d.turns, 1000);
    submit(1); /* everything is complete */
    ck_assert_uint_eq(d.waits, 0);
}
END_TEST

/* However many turns come after it, a fence that frees wait for stays until it is complete. */
START_TEST(turns_push_no_fence_out) {
    uint64_t clock = 0;
    for (int i = 0; i < 2; i++) {
        submit(0);
        clock = ac_fence_now();
        ck_assert_int_eq(ac_fence_close(&line, false), AC_OK);
    }
    submit(0);
    for (int i = 0; i < 3 * AC_FENCE_RING; i++) {
        ck_assert(lean());
        submit(0);
        ck_assert_int_eq(ac_fence_check(&line), 0);
    }
    ck_assert_uint_eq(d.turns, 3 * AC_FENCE_RING);
    ck_assert_uint_eq(d.fences, 2 + AC_FENCE_TURNS);
    d.completed[0] = 2;
    ck_assert(ac_fence_poll(&line, false));
    ck_assert_uint_eq(ac_fence_reached(&line, false), clock);
}
END_TEST

START_TEST(a_turn_costs_patience) {
    for (int round = 0, alone = 0; round < 3; round++) {
        full_sync();
        int seen = 0;
        for (submit(0); !lean(); submit(0))
            seen++;
        ck_assert_int_ge(seen, alone);
        ck_assert_int_le(seen, 4096);
        alone = seen * 2 + 1;
        submit(1);
        ck_assert_uint_eq(line.single.turn, (unsigned)round + 1);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("turns");
    TCase *tests = tcase_create("turns");
    tcase_add_checked_fixture(tests, begin, end);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, the_turn_leaves_out_work_behind_the_free, 0, 11);
    tcase_add_loop_test(tests, no_end_of_the_rule_waits_for_work_behind_the_free, 0, 4);
    tcase_add_test(tests, of_two_turns_the_first_is_taken);
    tcase_add_test(tests, a_turn_behind_later_work_is_not_taken);
    tcase_add_test(tests, a_free_beside_a_record_has_a_turn_of_its_own);
    tcase_add_test(tests, the_home_is_left_beside_a_record);
    tcase_add_test(tests, a_free_that_leans_ends_the_epoch);
    tcase_add_test(tests, a_turn_tells_of_completion);
    tcase_add_test(tests, a_turn_that_is_over_holds_no_stream_back);
    tcase_add_test(tests, without_turns_no_free_leans);
    tcase_add_test(tests, a_record_that_fails_ends_leaning);
    tcase_add_test(tests, turns_are_few);
    tcase_add_test(tests, turns_push_no_fence_out);
    tcase_add_test(tests, a_turn_costs_patience);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_FORK); /* a filter stays with its process */
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
