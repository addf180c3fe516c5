/* The budget of pages if a program moves pages all the time (policy.h). */
#include "allocator/core_int.h"
#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "run_suite.h"

static void begin_paged(void) {
    begin((uint64_t)4 << 30);
    settings.expandable_segments = true;
    settings.page = 4 * MIB;
    settings.small_page = 2 * MIB;
    ac_allocator_configure(allocator, &settings);
    atomic_store(&ac_trim_pending, false);
}

/* Makes `requests` requests of ever new sizes up to 64 MiB, with 512 MiB live. */
static void churn(unsigned requests) {
    enum { LIVE = 256 };
    static uint64_t random = 1;
    uint64_t block[LIVE], size[LIVE], live = 0;
    unsigned count = 0;
    for (unsigned i = 0; i < requests; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bytes = (random >> 33) % (64 * MIB) + 1;
        while (live + bytes > 512 * MIB || count == LIVE) {
            unsigned chosen = (unsigned)((random >> 20) % count);
            give(block[chosen]);
            live -= size[chosen];
            block[chosen] = block[--count];
            size[chosen] = size[count];
        }
        block[count] = alloc(bytes);
        size[count++] = bytes;
        live += bytes;
    }
    while (count)
        give(block[--count]);
}

static double share_reserved(void) {
    return (double)reserved() / (double)allocator->high_water - 1;
}

static void be_calm(unsigned requests) {
    for (unsigned i = 0; i < requests; i++)
        give(alloc(8 * MIB));
}

/* If pages move with every few requests, the budget rises. It falls when moves stop. */
START_TEST(budget_learns) {
    churn(2000);
    ck_assert(share_reserved() < 0.11);
    ck_assert(!atomic_load(&ac_trim_pending));
    uint64_t before = counters.pages_moved;
    churn(9000);
    uint64_t then = counters.pages_moved;
    churn(2000);
    ck_assert_uint_lt(counters.pages_moved - then, before / 3);
    double learned = share_reserved();
    ck_assert(learned > 0.13 && learned < 0.32);
    ck_assert(atomic_load(&ac_trim_pending) && !ac_allocator_settle_debt(allocator));
    be_calm(3000);
    ck_assert(!ac_allocator_settle_debt(allocator));
    ck_assert(share_reserved() == learned);
    be_calm(20000);
    ck_assert(!ac_allocator_settle_debt(allocator));
    ck_assert(share_reserved() < learned && share_reserved() > 0.1);
    be_calm(110000);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert(share_reserved() < 0.11);
}
END_TEST

/* Three kinds of programs do not get a higher budget: one that only starts with moves, one with low_memory,
 * and one with a configured budget. */
START_TEST(budget_does_not_learn) {
    for (int round = 0; round < 4; round++) {
        churn(2000);
        be_calm(4000);
    }
    ck_assert(share_reserved() < 0.11);
    settings.frugal = true;
    ac_allocator_configure(allocator, &settings);
    churn(7000);
    ck_assert(share_reserved() < 0.11);
    settings.frugal = false;
    settings.page_budget = 0.05;
    ac_allocator_configure(allocator, &settings);
    ac_allocator_trim(allocator, false);
    churn(7000);
    ck_assert(share_reserved() < 0.11);
}
END_TEST

/* A program that moves a page now and then does not get one either, however long it runs. */
START_TEST(moves_now_and_then_earn_nothing) {
    churn(200);
    be_calm(20000);
    ac_allocator_trim(allocator, false);
    for (int round = 0; round < 40; round++) {
        churn(40);
        be_calm(4000);
    }
    const ac_toll_t *toll = &allocator->supply->expand.toll;
    ck_assert_uint_gt(counters.pages_moved, 1000);
    ck_assert_uint_lt(toll->earned_ns, toll->spent_ns / 4);
}
END_TEST

static void learn(void) {
    churn(13000);
    ck_assert(share_reserved() > 0.13);
    ck_assert(!ac_allocator_settle_debt(allocator));
}

static void pass(uint64_t seconds) {
    ac_toll_t *toll = &allocator->supply->expand.toll;
    ck_assert_uint_ne(toll->calm_ns, 0);
    toll->calm_ns -= seconds * 1000000000;
}

/* A program that stops making requests loses the learned budget. */
START_TEST(budget_falls_with_time) {
    learn();
    double learned = share_reserved();
    pass(6);
    ck_assert(!ac_allocator_settle_debt(allocator));
    ck_assert(share_reserved() == learned);
    churn(200); /* moves: the seconds before do not count */
    unsigned share = allocator->supply->expand.toll.share;
    ck_assert(!ac_allocator_settle_debt(allocator));
    pass(1);
    ck_assert(!ac_allocator_settle_debt(allocator));
    ck_assert_uint_ge(allocator->supply->expand.toll.share, share - 1);
    pass(3600);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert(share_reserved() < 0.11);
}
END_TEST

/* The learned budget is forgotten with low_memory, and if the budget is configured. */
START_TEST(budget_is_forgotten) {
    learn();
    settings.frugal = _i == 0;
    settings.page_budget = _i == 0 ? 0 : 0.05;
    ac_allocator_configure(allocator, &settings);
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert(share_reserved() < 0.11);
}
END_TEST

/* The budget rises however often the program resets the statistics. */
START_TEST(budget_learns_beside_resets) {
    for (int i = 0; i < 130; i++) {
        churn(100);
        ac_allocator_reset_accumulated(allocator);
    }
    ck_assert(share_reserved() > 0.13);
    ck_assert(allocator->supply->expand.toll.share);
}
END_TEST

/* If less memory lies idle on pages, moves earn a smaller budget. */
START_TEST(small_and_fine_pages_earn_less) {
    settings.page = settings.small_page;
    settings.frugal = _i == 1;
    ac_allocator_configure(allocator, &settings);
    allocator->supply->expand.toll.fine = (ac_fine_t){.live = _i == 2 ? 512 * MIB : 0, .page = settings.page};
    churn(3000);
    if (_i)
        ck_assert(share_reserved() < 0.05);
    else
        ck_assert(share_reserved() > 0.09);
}
END_TEST

/* If moves cost much, fine pages end before the budget of pages rises. */
START_TEST(fine_pages_end_where_moves_cost_much) {
    allocator->supply->expand.toll.fine = (ac_fine_t){.live = 512 * MIB, .page = allocator->settings.page};
    for (int i = 0; i < 50 && allocator->supply->expand.toll.fine.live; i++)
        churn(200);
    ck_assert_uint_eq(allocator->supply->expand.toll.fine.live, 0);
    churn(1500);
    ck_assert_uint_eq(allocator->supply->expand.toll.share, 0);
    ck_assert(share_reserved() < 0.11);
    churn(9000);
    ck_assert(share_reserved() > 0.11);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("toll");
    TCase *tests = tcase_create("toll");
    tcase_add_checked_fixture(tests, begin_paged, end);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, budget_learns);
    tcase_add_test(tests, budget_does_not_learn);
    tcase_add_test(tests, moves_now_and_then_earn_nothing);
    tcase_add_test(tests, budget_falls_with_time);
    tcase_add_loop_test(tests, budget_is_forgotten, 0, 2);
    tcase_add_test(tests, budget_learns_beside_resets);
    tcase_add_loop_test(tests, small_and_fine_pages_earn_less, 0, 3);
    tcase_add_test(tests, fine_pages_end_where_moves_cost_much);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
