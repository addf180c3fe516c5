/* Policy decisions by amounts (policy.h): budgets, native segments, the budget of pages. */
#include "allocator/policy.h"
#include "device/device.h"
#include "run_suite.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static ac_settings_t settings;
static ac_toll_t toll;

static void begin(void) {
    settings = (ac_settings_t){.large_segment_size = 20 * MIB,
                               .max_split_size = AC_UNLIMITED,
                               .limit = AC_UNLIMITED,
                               .memory = 80 * GIB,
                               .wait_budget = 0.2,
                               .page = 8 * MIB,
                               .small_page = 2 * MIB};
    toll = (ac_toll_t){0};
}

static ac_plan_t plan(uint64_t live, uint64_t reserved, ac_for_t kind, uint64_t size) {
    return ac_policy_plan(&settings, live, reserved, kind, size);
}

/* Each budget is a share above the high-water mark; a small program has the floor. */
START_TEST(budgets_have_shares_and_floors) {
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_IDLE, 1000 * MIB), 1080 * MIB);
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_WAIT, 1000 * MIB), 1200 * MIB);
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_PAGES, 1000 * MIB), 1100 * MIB);
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_IDLE, MIB), 40 * MIB);
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_WAIT, MIB), 120 * MIB);
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_PAGES, MIB), 32 * MIB);
    ck_assert_uint_lt(ac_budget(&settings, AC_BUDGET_HOLES, MIB), 2 * MIB);
    ck_assert_uint_eq(ac_budget_fence(&settings, 1000 * MIB), 100 * MIB + 1);
    settings.expandable_segments = true;
    settings.page_budget = 0.02;
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_IDLE, 1000 * MIB), 1080 * MIB);
    ck_assert_uint_eq(ac_budget(&settings, AC_BUDGET_PAGES, 1000 * MIB), 1020 * MIB);
}
END_TEST

/* On one stream waiting blocks may hold 8 MiB, or 1/32 of the live bytes if as much is reserved beyond them.
 * They never exceed the memory there is. */
START_TEST(one_stream_lets_little_wait) {
    ck_assert_uint_eq(ac_budget_sole(32 * GIB, 34 * GIB, GIB), GIB);
    ck_assert_uint_eq(ac_budget_sole(32 * GIB, 32 * GIB + 100 * MIB, GIB), 100 * MIB);
    ck_assert_uint_eq(ac_budget_sole(32 * GIB, 32 * GIB, GIB), 8 * MIB);
    ck_assert_uint_eq(ac_budget_sole(MIB, 20 * MIB, GIB), 8 * MIB);
    ck_assert_uint_eq(ac_budget_sole(32 * GIB, 34 * GIB, MIB), MIB);
}
END_TEST

START_TEST(garbage_is_a_share_of_the_limit) {
    settings.gc_threshold = 0.5;
    ck_assert_uint_eq(ac_budget_garbage(&settings, 90 * GIB), 0);
    settings.limit = 10 * GIB;
    ck_assert_uint_eq(ac_budget_garbage(&settings, 6 * GIB), GIB);
    ck_assert_uint_eq(ac_budget_garbage(&settings, 5 * GIB), 0);
}
END_TEST

/* Within the budget a segment is an eighth of the reserved bytes, in whole requests. If the device refuses, it
 * is smaller. */
START_TEST(segments_hold_whole_requests) {
    ac_plan_t p = plan(40 * GIB, 8 * GIB, AC_FOR_LARGE, 100 * MIB);
    ck_assert_uint_eq(p.segment[0], 1000 * MIB);
    ck_assert_uint_eq(p.segment[1], 100 * MIB);
    ck_assert_uint_eq(p.segment[2], 100 * MIB);
    ck_assert_uint_eq(p.trim, 0);
    ck_assert(!p.exceeds && !p.waits);
    p = plan(40 * GIB, 0, AC_FOR_LARGE, 3 * MIB + 512);
    ck_assert_uint_eq(p.segment[0], 20 * MIB);
    ck_assert_uint_eq(p.segment[2], 4 * MIB);
    ck_assert_uint_eq(plan(40 * GIB, 30 * GIB, AC_FOR_LARGE, 512 * MIB).segment[0], GIB); /* never more */
}
END_TEST

/* Above the budget idle segments go first, and the new segment holds few requests. */
START_TEST(beyond_the_budget_segments_are_small) {
    ac_plan_t p = plan(10000 * MIB, 10700 * MIB, AC_FOR_LARGE, 7 * MIB);
    ck_assert_uint_eq(p.trim, 1022 * MIB - 100 * MIB); /* GROWTH_MOST in whole requests */
    ck_assert_uint_eq(p.segment[0], 14 * MIB); /* two requests leave no rest, one would leave a seventh */
    ck_assert(!p.exceeds && !p.waits);
    p = plan(10000 * MIB, 10799 * MIB, AC_FOR_LARGE, 7 * MIB);
    ck_assert(p.exceeds && !p.waits);
    ck_assert(plan(10000 * MIB, 11999 * MIB, AC_FOR_LARGE, 7 * MIB).waits);
    /* A segment is at most a sixteenth of the reserved bytes. Three requests would leave a smaller rest, but
     * exceed this. */
    ck_assert_uint_eq(plan(600 * MIB, 800 * MIB, AC_FOR_LARGE, 37 * MIB / 2).segment[0], 38 * MIB);
}
END_TEST

/* Growth leaves most of the room of the device or the limit to others. */
START_TEST(segments_leave_room) {
    settings.limit = 9 * GIB;
    ck_assert_uint_eq(plan(40 * GIB, 8 * GIB, AC_FOR_LARGE, 2 * MIB).segment[0], 2 * MIB);
    settings.limit = 13 * GIB;
    ck_assert_uint_eq(plan(40 * GIB, 4 * GIB, AC_FOR_LARGE, 2 * MIB).segment[0], 512 * MIB);
    settings.max_split_size = 64 * MIB;
    ck_assert_uint_eq(plan(40 * GIB, 4 * GIB, AC_FOR_LARGE, 2 * MIB).segment[0], 62 * MIB);
    ck_assert_uint_eq(plan(40 * GIB, 4 * GIB, AC_FOR_LARGE, 65 * MIB).segment[0], 66 * MIB);
    settings.exact = true;
    ck_assert_uint_eq(plan(40 * GIB, 4 * GIB, AC_FOR_LARGE, 2 * MIB).segment[0], 2 * MIB);
}
END_TEST

START_TEST(kinds_have_sizes_of_their_own) {
    ac_plan_t p = plan(40 * GIB, 30 * GIB, AC_FOR_SMALL, 512);
    ck_assert_uint_eq(p.segment[0], 2 * MIB);
    ck_assert_uint_eq(p.segment[2], 2 * MIB);
    p = plan(640 * MIB, 600 * MIB, AC_FOR_MEDIUM, MIB);
    ck_assert_uint_eq(p.segment[0], 10 * MIB);
    ck_assert_uint_eq(p.segment[2], 2 * MIB);
    ck_assert_uint_eq(plan(40 * GIB, 30 * GIB, AC_FOR_MEDIUM, MIB).segment[0], 20 * MIB);
    ck_assert_uint_eq(plan(40 * GIB, 8 * GIB, AC_FOR_BIG, 700 * MIB).segment[0], 700 * MIB);
    ck_assert(ac_policy_parts(&settings, 160 * MIB) && !ac_policy_parts(&settings, 159 * MIB));
    ck_assert_uint_eq(ac_policy_big(GIB), 32 * MIB);
    ck_assert_uint_eq(ac_policy_big(64 * GIB), GIB);
    ck_assert(ac_policy_whole(128 * MIB, GIB) && !ac_policy_whole(127 * MIB, GIB));
    ck_assert(!ac_policy_whole(31 * MIB, MIB));
}
END_TEST

/* --- pages --- */

static uint64_t pages(void) {
    return ac_policy_pages(&toll, &settings, 10000 * MIB, settings.page);
}

/* Passes `count` windows. Each request costs `cost_ns` in them. Returns true if the share fell. */
static bool windows(int count, uint64_t cost_ns) {
    bool fell = false;
    for (int i = 0; i < count; i++) {
        toll.spent_ns += cost_ns * AC_WINDOW_REQUESTS;
        fell |= ac_policy_learn(&toll, &settings, toll.requests + AC_WINDOW_REQUESTS, 0);
    }
    return fell;
}

/* Before its pages ever moved, a program has a tiny budget of pages. Moves raise it to at most 10 %, or 4 % with
 * low_memory. */
START_TEST(moves_earn_pages) {
    ck_assert_uint_eq(pages(), 10000 * MIB);
    ac_policy_charge(&toll, 1, 10, 0, settings.page);
    uint64_t once = toll.earned_ns;
    ck_assert_uint_eq(once, 26000 + 36000 + 10 * 4500);
    ac_policy_charge(&toll, 1, 0, 16 * MIB, settings.page); /* a trade earns nothing */
    ck_assert_uint_eq(toll.earned_ns, once);
    ck_assert_uint_gt(toll.spent_ns, once);
    toll.earned_ns = 220000 * 40; /* the time that 40 pages take */
    ck_assert_uint_eq(pages(), 10080 * MIB);
    toll.earned_ns *= 1000;
    ck_assert_uint_eq(pages(), 11000 * MIB);
    settings.frugal = true;
    ck_assert_uint_eq(pages(), 10400 * MIB);
    settings.page_budget = 0.5;
    ck_assert_uint_eq(pages(), 15000 * MIB);
}
END_TEST

/* Lasting costly moves raise the budget, quiet windows lower it. */
START_TEST(costly_moves_raise_the_budget) {
    toll.earned_ns = UINT64_MAX / 2;
    windows(AC_WINDOWS - 1, AC_TOLL_MUCH_NS + 1);
    ck_assert_uint_eq(pages(), 11000 * MIB);
    windows(1, AC_TOLL_MUCH_NS + 1);
    ck_assert_uint_eq(pages(), 11100 * MIB);
    windows(1, 2 * AC_TOLL_MUCH_NS + 1);
    ck_assert_uint_eq(pages(), 11400 * MIB);
    windows(1, 3 * AC_TOLL_MUCH_NS + 1);
    ck_assert_uint_eq(pages(), 12000 * MIB);
    windows(9, 4 * AC_TOLL_MUCH_NS);
    ck_assert_uint_eq(pages(), 13000 * MIB);
    ck_assert_uint_eq(ac_policy_kept(&toll, &settings, 10000 * MIB), 13000 * MIB);
    ck_assert(!windows(AC_WINDOWS - 1, 0));
    ck_assert(windows(1, 0));
    ck_assert_uint_eq(pages(), 12900 * MIB);
    ck_assert(!windows(3, (AC_TOLL_MUCH_NS + AC_TOLL_LITTLE_NS) / 2)); /* neither */
    ck_assert_uint_eq(pages(), 12900 * MIB);
}
END_TEST

/* Rests on pages count while reserved memory exceeds the live bytes by 5 to 10 %. They count again only after
 * more is reserved. */
START_TEST(rests_make_pages_half_as_large) {
    const uint64_t live = 10000 * MIB;
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 10499 * MIB), UINT64_MAX);
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 10500 * MIB), 500 * MIB);
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 11000 * MIB), 500 * MIB);
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 11001 * MIB), UINT64_MAX);
    toll.fine.old = 100 * MIB;
    toll.fine.looked = 10600 * MIB;
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 10599 * MIB), UINT64_MAX);
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 10600 * MIB), 600 * MIB);
    settings.page = 16 * MIB;
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 10800 * MIB), UINT64_MAX);
    settings.page = settings.small_page;
    ck_assert_uint_eq(ac_policy_rests(&toll, &settings, live, 10800 * MIB), UINT64_MAX);
}
END_TEST

/* Blocks of few pages get smaller pages until moves become costly. This end comes before a larger budget. */
START_TEST(half_pages_end_before_the_budget_rises) {
    ck_assert_uint_eq(ac_policy_page(&toll, &settings, MIB), 8 * MIB);
    toll.fine = (ac_fine_t){.live = 1000 * MIB, .page = 8 * MIB};
    toll.earned_ns = UINT64_MAX / 2;
    ck_assert_uint_eq(ac_policy_page(&toll, &settings, 127 * MIB), 4 * MIB);
    ck_assert_uint_eq(ac_policy_page(&toll, &settings, 128 * MIB), 8 * MIB);
    ck_assert_uint_eq(pages(), 10400 * MIB);
    windows(AC_WINDOWS, AC_TOLL_MUCH_NS + 1);
    ck_assert(!ac_policy_fine(&toll, &settings));
    ck_assert_uint_eq(pages(), 11000 * MIB);
    windows(AC_WINDOWS, AC_TOLL_MUCH_NS + 1);
    ck_assert_uint_eq(pages(), 11100 * MIB);
    toll.fine = (ac_fine_t){.live = 1000 * MIB, .page = 4 * MIB}; /* the setting has changed since */
    ck_assert(!ac_policy_fine(&toll, &settings));
}
END_TEST

/* Time without a move counts as quiet windows, even if no request comes. */
START_TEST(time_lowers_the_budget) {
    toll.share = 20;
    toll.spent_ns = 1;
    uint64_t now = AC_CALM_NS;
    ck_assert(!ac_policy_learn(&toll, &settings, 0, now));
    ck_assert(!ac_policy_learn(&toll, &settings, 0, now + 7 * (uint64_t)AC_CALM_NS));
    ck_assert(ac_policy_learn(&toll, &settings, 0, now + 8 * (uint64_t)AC_CALM_NS));
    ck_assert_uint_eq(toll.share, 19);
    toll.spent_ns++; /* a move restarts the time */
    ck_assert(!ac_policy_learn(&toll, &settings, 0, now + 20 * (uint64_t)AC_CALM_NS));
    ck_assert(ac_policy_learn(&toll, &settings, 0, now + 1000 * (uint64_t)AC_CALM_NS));
    ck_assert_uint_eq(toll.share, 0);
}
END_TEST

/* A configured budget does not learn, and forgets. */
START_TEST(set_budgets_do_not_learn) {
    toll.share = 20;
    settings.page_budget = _i ? 0.1 : 0;
    settings.frugal = !_i;
    ck_assert_uint_eq(ac_policy_kept(&toll, &settings, 10000 * MIB), 10800 * MIB);
    ck_assert(windows(20, 10 * AC_TOLL_MUCH_NS));
    ck_assert_uint_eq(toll.share, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("policy");
    TCase *tests = tcase_create("policy");
    tcase_add_checked_fixture(tests, begin, NULL);
    tcase_add_test(tests, budgets_have_shares_and_floors);
    tcase_add_test(tests, one_stream_lets_little_wait);
    tcase_add_test(tests, garbage_is_a_share_of_the_limit);
    tcase_add_test(tests, segments_hold_whole_requests);
    tcase_add_test(tests, beyond_the_budget_segments_are_small);
    tcase_add_test(tests, segments_leave_room);
    tcase_add_test(tests, kinds_have_sizes_of_their_own);
    tcase_add_test(tests, moves_earn_pages);
    tcase_add_test(tests, costly_moves_raise_the_budget);
    tcase_add_test(tests, rests_make_pages_half_as_large);
    tcase_add_test(tests, half_pages_end_before_the_budget_rises);
    tcase_add_test(tests, time_lowers_the_budget);
    tcase_add_loop_test(tests, set_budgets_do_not_learn, 0, 2);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
