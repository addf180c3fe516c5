/* The single-stream rule, on the device and with the oracle of line_device.h. */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "line_device.h"
#include "no_membarrier.h"
#include "run_suite.h"

START_TEST(one_stream_protects_what_is_freed) {
    ck_assert(!rely()); /* there is no stream yet */
    for (int i = 0; i < 3; i++) {
        submit(0);
        ck_assert(rely());
    }
    ck_assert_uint_eq(d.join_events, 2); /* before the second stream and the third */
    ck_assert_uint_eq(d.waits + d.syncs, 0);
}
END_TEST

/* --- which frees rely on order --- */

enum { MIB = 1 << 20 };

/* Frees `bytes`. Returns true if the free waits. */
static bool waits(uint64_t bytes) {
    bool yes = ac_sole_waits(&timeline, bytes);
    if (yes)
        ac_fence_want_own(&timeline, ac_fence_weight((uint64_t)60 * MIB, bytes));
    return yes;
}

static unsigned waits_of(uint64_t bytes) {
    unsigned count = 0;
    while (count < 1000 && waits(bytes))
        count++;
    return count;
}

static void complete_all(void) {
    memcpy(d.completed, d.submitted, sizeof d.completed);
}

START_TEST(frees_wait_up_to_a_bound) {
    submit(0);
    ac_sole_set_bound(&timeline, 0, 0, UINT64_MAX);
    ck_assert_uint_eq(waits_of(MIB), 8);
    ck_assert(waits(0) && !waits(512) && rely());
    ac_sole_set_bound(&timeline, (uint64_t)1024 * MIB, (uint64_t)1040 * MIB, UINT64_MAX);
    ck_assert_uint_eq(waits_of(MIB), 8); /* at most the bytes reserved beyond the live ones */
    ac_sole_set_bound(&timeline, (uint64_t)1024 * MIB, (uint64_t)2048 * MIB, UINT64_MAX);
    ck_assert_uint_eq(waits_of(MIB), 16); /* 1/32 of the live bytes */
    ac_sole_set_bound(&timeline, (uint64_t)1024 * MIB, (uint64_t)2048 * MIB, 33 * MIB);
    ck_assert_uint_eq(waits_of(MIB), 0);
    ck_assert(waits(0));
    ac_sole_set_bound(&timeline, (uint64_t)1024 * MIB, (uint64_t)2048 * MIB, 31 * MIB); /* the device has no more */
    ck_assert(!waits(0));
}
END_TEST

START_TEST(half_of_the_bound_is_worth_a_fence) {
    submit(0);
    ac_sole_set_bound(&timeline, 0, 0, UINT64_MAX);
    for (int i = 0; i < 4; i++)
        ck_assert(waits(MIB));
    submit(0);
    ck_assert_uint_eq(recorded, 0);
    ck_assert(waits(512));
    submit(0);
    ck_assert_uint_eq(recorded, 1);
    ck_assert_uint_eq(ac_fence_waiting_bytes(&timeline), 4 * MIB + 512);
    for (int i = 0; i < 63; i++) /* small blocks: as with several streams */
        ck_assert(waits(512));
    ck_assert(!ac_fence_full(&timeline));
    ck_assert(waits(512) && ac_fence_full(&timeline));
    complete_all();
    ck_assert(ac_fence_poll(&timeline, false));
    ck_assert_uint_eq(ac_fence_waiting_bytes(&timeline), 64 * 512);
    submit(0);
    submit(0);
    ck_assert_uint_eq(recorded, 2);
    complete_all();
    ac_fence_poll(&timeline, false);
    ck_assert_uint_eq(ac_fence_waiting_bytes(&timeline), 0);
    ck_assert_uint_eq(d.join_events, 0);
}
END_TEST

/* The device is polled when a join event is recorded, but not for each one. */
START_TEST(frees_wait_again_once_fences_are_over) {
    submit(0);
    ac_sole_set_bound(&timeline, 0, 0, UINT64_MAX);
    ck_assert_uint_eq(waits_of(MIB), 8);
    ck_assert(rely());
    if (_i == 0)
        complete_all(); /* in time */
    submit(0); /* the waiting frees get their fence */
    unsigned relied = 0;
    for (; relied < 64 && !waits(MIB); relied++) {
        ck_assert(rely());
        complete_all();
        submit(0);
    }
    ck_assert_uint_lt(relied, 64);
    ck_assert_uint_eq(relied > 1, _i);
}
END_TEST

START_TEST(frees_rely_while_requests_lack_memory) {
    unsigned relied = 0;
    submit(0);
    ac_sole_set_bound(&timeline, 0, 0, UINT64_MAX);
    ac_sole_lacked(&timeline);
    ck_assert(!ac_sole_lacks(&timeline) && waits(512));
    ck_assert(ac_sole_lacks(&timeline));
    ac_sole_lacked(&timeline);
    for (; relied < 1000 && !waits(512); relied++) {
        ck_assert(rely());
        submit(0);
    }
    ck_assert_uint_ge(relied, 256);
    ck_assert_uint_lt(relied, 1000);
}
END_TEST

/* A synchronisation that covers the last submission ends the wait of all frees, even if they are too few for a
 * fence. */
START_TEST(nothing_waits_after_a_synchronisation) {
    submit(0);
    ac_sole_set_bound(&timeline, 0, 0, UINT64_MAX);
    ck_assert_uint_eq(waits_of(MIB), 8);
    ck_assert_uint_eq(ac_fence_waiting_bytes(&timeline), 8 * MIB);
    full_sync();
    ck_assert_uint_eq(ac_fence_waiting_bytes(&timeline), 0);
    ck_assert(!ac_sole_lacks(&timeline)); /* a request that grows now finds no waiting frees */
    submit(0);
    ck_assert(waits(512));
    uint64_t clock = ac_fence_stamp();
    submit(0); /* during the synchronisation */
    ck_assert(waits(512));
    ac_fence_synced(&timeline, clock);
    ck_assert_uint_eq(ac_fence_waiting_bytes(&timeline), 2 * 512);
    ck_assert_uint_eq(recorded, 0);
}
END_TEST

START_TEST(a_second_stream_waits_once) {
    submit(0);
    ck_assert(rely());
    submit(1);
    ck_assert(!rely());
    ck_assert_uint_eq(d.join_events, 1);
    ck_assert_uint_eq(d.waits, 1);
    submit(1);
    submit(0);
    ck_assert_uint_eq(d.waits, 1);
    submit(2); /* a third stream does the same */
    ck_assert_uint_eq(d.join_events, 1);
    ck_assert_uint_eq(d.waits, 2);
    ck_assert_uint_eq(d.syncs + d.host_waits, 0);
}
END_TEST

START_TEST(without_a_free_nothing_is_waited_for) {
    submit(0);
    submit(1);
    ck_assert_uint_eq(d.join_events + d.waits + d.syncs, 0);
    ck_assert(!rely());
}
END_TEST

START_TEST(an_idle_context_changes_its_sole) {
    submit(0);
    ck_assert(rely());
    full_sync();
    submit(1);
    ck_assert(rely());
    ck_assert_uint_eq(d.join_events + d.waits, 0);
}
END_TEST

START_TEST(what_is_done_needs_no_join) {
    submit(0);
    ck_assert(rely());
    full_sync();
    submit(0); /* may never end */
    submit(1);
    ac_sole_settle(&timeline, false);
    ck_assert_uint_eq(d.join_events + d.waits + d.host_waits + d.syncs, 0);
}
END_TEST

START_TEST(no_thread_waits_for_a_stream_that_is_held) {
    submit(0);
    ck_assert(rely());
    ac_fence_enter(&timeline);
    ac_sole_enter(&timeline, FIRST_KEY, &joins);
    ac_sole_hold(&timeline);
    ck_assert_uint_eq(d.join_events, 1); /* before the work that blocks it */
    d.submitted[0]++;
    ac_fence_leave(&timeline);
    ck_assert(!rely());
    submit(1);
    ck_assert_uint_eq(d.before[1].at[0], 1);
}
END_TEST

START_TEST(a_free_after_that_needs_one) {
    submit(0);
    ck_assert(rely());
    full_sync();
    submit(0);
    ck_assert(rely());
    submit(1);
    ck_assert_uint_eq(d.join_events, 1);
    ck_assert_uint_eq(d.waits, 1);
}
END_TEST

START_TEST(after_several_streams_a_synchronisation_leads_back) {
    submit(0);
    ck_assert(rely());
    submit(1);
    submit(2);
    full_sync();
    forget_join_events();
    submit(2);
    ck_assert(rely());
    unsigned waits = d.waits;
    submit(0);
    ck_assert_uint_eq(d.waits, waits + 1);
}
END_TEST

START_TEST(a_join_that_is_over_is_not_waited_for) {
    submit(0);
    ck_assert(rely());
    submit(1);
    ac_fence_close(&timeline, false);
    memcpy(d.completed, d.submitted, sizeof d.completed);
    ck_assert(ac_fence_poll(&timeline, false));
    submit(2);
    ck_assert_uint_eq(d.waits, 1);
}
END_TEST

START_TEST(a_stream_handle_that_returns_waits_again) {
    submit(0);
    ck_assert(rely());
    submit(1);
    ac_sole_stream_gone(&timeline, FIRST_KEY + 1);
    memset(&d.before[1], 0, sizeof d.before[1]); /* another stream with this handle */
    submit(1);
    ck_assert_uint_eq(d.waits, 2);
}
END_TEST

START_TEST(the_sole_may_be_destroyed) {
    submit(0);
    ck_assert(rely());
    ac_sole_stream_gone(&timeline, FIRST_KEY);
    ck_assert_uint_eq(d.join_events, 1); /* recorded while the stream could be named */
    submit(0);                           /* another stream with its handle */
    submit(1);
    ck_assert_uint_eq(d.waits, 2);
}
END_TEST

START_TEST(a_capture_ends_the_rule_for_its_time) {
    submit(0);
    ck_assert(rely());
    ac_fence_capture_begin(NULL);
    ck_assert(!rely());
    ck_assert_uint_eq(d.join_events, 1);
    d.captures[0] = true;
    ac_fence_capture_began();
    submit(0); /* captured: no work */
    submit(1);
    ck_assert_uint_eq(d.waits, 1);
    d.captures[0] = false;
    full_sync();
    forget_join_events();
    submit(1);
    ck_assert(rely());
}
END_TEST

/* Another thread destroys the sole stream while this thread is about to pass it to the device. */
static _Atomic bool destroying, destroyed;

static void *destroy_sole(void *unused) {
    (void)unused;
    atomic_store(&destroying, true);
    ac_sole_stream_gone(&timeline, FIRST_KEY);
    atomic_store(&destroyed, true);
    return NULL;
}

static pthread_t destroyer;

static void the_sole_is_destroyed(void) {
    ck_assert_int_eq(pthread_create(&destroyer, NULL, destroy_sole, NULL), 0);
    while (!atomic_load(&destroying))
        sched_yield();
    for (int i = 0; i < 100 && !atomic_load(&destroyed); i++)
        sched_yield();
    ck_assert_msg(!atomic_load(&destroyed), "a stream that is gone is named to the device");
}

START_TEST(who_destroys_the_sole_waits_for_who_names_it) {
    submit(0);
    ck_assert(rely());
    meanwhile = the_sole_is_destroyed;
    submit(1);
    pthread_join(destroyer, NULL);
    ck_assert(atomic_load(&destroyed));
}
END_TEST

static void a_capture_begins(void) {
    ac_fence_capture_begin(NULL);
    d.captures[4] = true;
    ac_fence_capture_began();
}

static void a_third_stream_works(void) {
    meanwhile = a_capture_begins;
    submit(2);
}

/* The second thread to leave the sole stream cannot record. The join event of the capture exists by then. */
START_TEST(a_capture_begins_while_two_threads_leave) {
    submit(0);
    ck_assert(rely());
    meanwhile = a_third_stream_works;
    submit(1);
    ck_assert_uint_eq(d.waits, 2);
    ck_assert_uint_eq(d.join_events, 1);
}
END_TEST

START_TEST(no_sole_while_a_capture_begins) {
    ac_sole_close();
    submit(0);
    ck_assert(!rely());
    ac_sole_open();
}
END_TEST

START_TEST(settling_makes_the_host_wait) {
    submit(0);
    ck_assert(rely());
    ac_sole_settle(&timeline, false);
    ck_assert_uint_eq(d.host_waits, 1);
    ck_assert_uint_eq(d.completed[0], 1);
    submit(1);
    ck_assert_uint_eq(d.waits, 0);
    full_sync();
    forget_join_events();
    submit(1);
    ck_assert(rely());
    ac_sole_settle(&timeline, true);
    full_sync();
    submit(1);
    ck_assert(!rely()); /* for good */
}
END_TEST

/* A stray stream may belong to any context. It comes after work that relies on the sole stream, unless it is that
 * stream. */
START_TEST(a_stray_waits_for_the_join) {
    submit(0);
    ck_assert(rely());
    ac_fence_untracked_begin(FIRST_KEY + !_i);
    ck_assert_int_eq(rely(), _i);
    ck_assert_uint_eq(d.waits, !_i);
    ac_fence_untracked_end(false);
    full_sync();
    forget_join_events();
    submit(1);
    ck_assert(rely()); /* the rule goes on */
}
END_TEST

START_TEST(crossing_ends_the_rule) {
    submit(0);
    ck_assert(rely());
    ac_fence_share();
    ck_assert_uint_eq(d.completed[0], 1);
    submit(0);
    ck_assert(!rely());
}
END_TEST

START_TEST(without_fences_or_waits_it_synchronises) {
    submit(0);
    ck_assert(rely());
    d.no_join_events = true;
    submit(1);
    ck_assert_uint_eq(d.syncs, 1);
    full_sync();
    forget_join_events();
    submit(1);
    ck_assert(rely());
    d.no_join_events = false, d.no_waits = true;
    submit(0);
    ck_assert_uint_eq(d.host_waits, 1);
}
END_TEST

/* The kernel ran before its call returned, and told another thread that the memory is free. */
START_TEST(a_free_beside_a_call_relies) {
    submit(0);
    ac_fence_enter(&timeline);
    ac_sole_enter(&timeline, FIRST_KEY, &joins);
    d.submitted[0]++;
    ck_assert(rely());
    submit(1); /* while the thread is still inside */
    ck_assert_uint_eq(d.before[1].at[0], 2);
    ac_fence_leave(&timeline);
    ck_assert(!rely());
}
END_TEST

/* A fence recorded meanwhile covers this work. A fence from before the free does not. */
START_TEST(a_join_beside_a_call_is_over_when_its_work_is) {
    submit(0);
    ac_fence_enter(&timeline);
    ac_sole_enter(&timeline, FIRST_KEY, &joins);
    ac_fence_close(&timeline, false);
    d.submitted[0]++;
    ck_assert(rely());
    d.completed[0] = 1;
    ac_fence_poll(&timeline, false);
    submit(1);
    ck_assert_uint_eq(d.waits, 1);
    ac_fence_close(&timeline, false);
    ac_fence_leave(&timeline);
    memcpy(d.completed, d.submitted, sizeof d.completed);
    ck_assert(ac_fence_poll(&timeline, false));
    submit(2);
    ck_assert_uint_eq(d.waits, 1);
}
END_TEST

/* Another thread entered when there was no sole stream. Its work may come at any time. */
START_TEST(no_sole_beside_who_is_inside) {
    static ac_submitter_t other;
    ac_fence_list(&other);
    submit(0);
    submit(1); /* no free relied on order: every stream works */
    ck_assert_int_eq(ac_sole_mode(atomic_load(&timeline.single.word)), AC_SOLE_MANY);
    ck_assert(ac_fence_enter_as(&timeline, &other));
    ac_sole_enter(&timeline, FIRST_KEY + 2, NULL);
    full_sync();
    ck_assert_int_eq(ac_sole_mode(atomic_load(&timeline.single.word)), AC_SOLE_NONE);
    submit(0);
    ck_assert_int_eq(ac_sole_mode(atomic_load(&timeline.single.word)), AC_SOLE_MANY);
    ck_assert(!rely());
    d.submitted[2]++;
    ac_fence_leave_as(&timeline, &other);
    full_sync();
    submit(0);
    ck_assert_int_eq(ac_sole_mode(atomic_load(&timeline.single.word)), AC_SOLE_ONE);
    ck_assert(rely());
}
END_TEST

/* The sole stream changes while a thread of the old one is still inside. */
START_TEST(no_heir_beside_who_is_inside) {
    static ac_submitter_t other;
    ac_fence_list(&other);
    submit(0);
    ck_assert(ac_fence_enter_as(&timeline, &other));
    ac_sole_enter(&timeline, FIRST_KEY, NULL);
    full_sync();
    submit(1);
    ck_assert_int_eq(ac_sole_mode(atomic_load(&timeline.single.word)), AC_SOLE_MANY);
    d.submitted[0]++;
    ac_fence_leave_as(&timeline, &other);
}
END_TEST

/* If the kernel's barrier fails, other threads may be inside unseen. No stream becomes the sole one. */
START_TEST(no_sole_without_a_barrier) {
    static ac_submitter_t other;
    ac_fence_list(&other);
    if (!ac_barrier_is_light() || !refuse_membarrier(EPERM))
        return; /* others have their own barrier, or filters are forbidden here */
    submit(0);
    ck_assert_int_eq(ac_sole_mode(atomic_load(&timeline.single.word)), AC_SOLE_MANY);
    ck_assert(!rely());
}
END_TEST

/* The work may run and tell another thread so before its call returns. */
START_TEST(work_is_marked_before_its_call) {
    for (int sole = 0; sole < 2; sole++) { /* the first call makes it the sole stream, the second finds it */
        uint64_t born = ac_fence_handout(&timeline);
        ac_fence_enter(&timeline);
        ac_sole_enter(&timeline, FIRST_KEY, &joins);
        ck_assert(!ac_fence_untouched(&timeline, born));
        ac_fence_leave(&timeline);
        ck_assert(!ac_fence_untouched(&timeline, born));
    }
}
END_TEST

/* A wait for the sole stream counts like a synchronisation. */
START_TEST(the_sole_does_all_the_work) {
    ck_assert_uint_eq(ac_sole_alone(&timeline, FIRST_KEY), 0);
    submit(0);
    ck_assert(rely());
    uint64_t alone = ac_sole_alone(&timeline, FIRST_KEY);
    ck_assert_uint_eq(ac_sole_alone(&timeline, FIRST_KEY + 1), 0);
    submit(0); /* after it */
    d.completed[0] = 1;
    ac_fence_synced(&timeline, alone);
    ck_assert_uint_eq(atomic_load(&timeline.done), alone);
    submit(1); /* work that memory relied on is complete */
    ck_assert_uint_eq(d.waits, 0);
    ck_assert_uint_eq(ac_sole_alone(&timeline, FIRST_KEY), 0);
}
END_TEST

START_TEST(the_setting_switches_it_off) {
    atomic_store(&ac_sole_wanted, false);
    submit(0);
    ck_assert(!rely());
    atomic_store(&ac_sole_wanted, true);
}
END_TEST

static _Atomic bool enough;

static void *close_and_poll(void *unused) {
    while (!atomic_load(&enough)) {
        ac_fence_close(&timeline, false);
        ac_fence_poll(&timeline, false);
    }
    return unused;
}

/* Work may run that no mark counts. A free is ready only after a fence recorded later than this work. This holds even
 * if another thread finds the context idle and advances the fences. */
START_TEST(what_no_mark_counts_takes_a_fence_of_its_own) {
    pthread_t closer;
    ac_fence_uncount();
    ck_assert_int_eq(pthread_create(&closer, NULL, close_and_poll, NULL), 0);
    for (int i = 0; i < 4000; i++) {
        bool all;
        unsigned before = atomic_load(&recorded);
        uint64_t target = ac_fence_target(&timeline, &all);
        bool ready = target <= ac_fence_reached(&timeline, all);
        ck_assert_msg(!ready || atomic_load(&recorded) != before, "free %d took no fence", i);
        while (target > ac_fence_reached(&timeline, all)) { /* the other thread may not be running */
            ac_fence_close(&timeline, false);
            ac_fence_poll(&timeline, false);
        }
    }
    atomic_store(&enough, true);
    pthread_join(closer, NULL);
}
END_TEST

START_TEST(random_programs) {
    srand((unsigned)_i);
    for (int step = 0; step < 20000; step++) {
        unsigned stream = (unsigned)rand() % STREAMS;
        switch (rand() % 16) {
        case 0:
            full_sync();
            break;
        case 1: /* the device makes progress */
            d.completed[stream] = d.submitted[stream];
            break;
        case 2:
            ac_fence_close(&timeline, false);
            break;
        case 3:
            ac_fence_poll(&timeline, false);
            break;
        case 4: /* the program makes one stream wait for another */
            d.before[stream].at[(stream + 1) % STREAMS] = d.submitted[(stream + 1) % STREAMS];
            break;
        case 5:
            if (rand() % 8 == 0)
                ac_sole_settle(&timeline, false);
            break;
        case 6:
            forget_join_events();
            if (rand() % 4 == 0) {
                ac_fence_capture_begin(NULL);
                ck_assert(!rely());
                ac_fence_capture_began();
            }
            break;
        case 7:
        case 8:
        case 9:
            rely();
            break;
        default: /* bursts on one stream, so that a sole stream arises at times */
            for (int n = rand() % 6; n >= 0; n--) {
                submit(stream);
                if (rand() % 2)
                    rely();
            }
        }
    }
    ck_assert_uint_gt(d.join_events, 100);
    ck_assert_uint_gt(d.waits, 100);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("single");
    TCase *tests = tcase_create("single");
    tcase_add_checked_fixture(tests, begin, end);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, one_stream_protects_what_is_freed);
    tcase_add_test(tests, a_second_stream_waits_once);
    tcase_add_test(tests, frees_wait_up_to_a_bound);
    tcase_add_test(tests, half_of_the_bound_is_worth_a_fence);
    tcase_add_loop_test(tests, frees_wait_again_once_fences_are_over, 0, 2);
    tcase_add_test(tests, frees_rely_while_requests_lack_memory);
    tcase_add_test(tests, nothing_waits_after_a_synchronisation);
    tcase_add_test(tests, without_a_free_nothing_is_waited_for);
    tcase_add_test(tests, an_idle_context_changes_its_sole);
    tcase_add_test(tests, after_several_streams_a_synchronisation_leads_back);
    tcase_add_test(tests, a_join_that_is_over_is_not_waited_for);
    tcase_add_test(tests, a_stream_handle_that_returns_waits_again);
    tcase_add_test(tests, the_sole_may_be_destroyed);
    tcase_add_test(tests, a_capture_ends_the_rule_for_its_time);
    tcase_add_test(tests, a_capture_begins_while_two_threads_leave);
    tcase_add_test(tests, who_destroys_the_sole_waits_for_who_names_it);
    tcase_add_test(tests, what_is_done_needs_no_join);
    tcase_add_test(tests, a_free_after_that_needs_one);
    tcase_add_test(tests, no_thread_waits_for_a_stream_that_is_held);
    tcase_add_test(tests, no_sole_while_a_capture_begins);
    tcase_add_test(tests, settling_makes_the_host_wait);
    tcase_add_loop_test(tests, a_stray_waits_for_the_join, 0, 2);
    tcase_add_test(tests, crossing_ends_the_rule);
    tcase_add_test(tests, without_fences_or_waits_it_synchronises);
    tcase_add_test(tests, a_free_beside_a_call_relies);
    tcase_add_test(tests, a_join_beside_a_call_is_over_when_its_work_is);
    tcase_add_test(tests, no_sole_beside_who_is_inside);
    tcase_add_test(tests, no_heir_beside_who_is_inside);
    tcase_add_test(tests, no_sole_without_a_barrier);
    tcase_add_test(tests, work_is_marked_before_its_call);
    tcase_add_test(tests, the_sole_does_all_the_work);
    tcase_add_test(tests, the_setting_switches_it_off);
    tcase_add_test(tests, what_no_mark_counts_takes_a_fence_of_its_own);
    tcase_add_loop_test(tests, random_programs, 1, 9);
    suite_add_tcase(suite, tests);
    return run_suite_as(suite, CK_FORK); /* a filter stays with its process */
}
