/* Device statistics: the exact rules of increase, decrease and both resets. */
#include <check.h>
#include <string.h>

#include "observe/stats.h"
#include "run_suite.h"

static void expect(const ac_stat_t *s, int64_t current, int64_t peak, int64_t allocated,
                   int64_t freed) {
    ck_assert_int_eq(s->current, current);
    ck_assert_int_eq(s->peak, peak);
    ck_assert_int_eq(s->allocated, allocated);
    ck_assert_int_eq(s->freed, freed);
}

START_TEST(up_and_down) {
    ac_stat_t s = {0, 0, 0, 0};
    ac_stat_up(&s, 100);
    ac_stat_up(&s, 50);
    ac_stat_down(&s, 120);
    ac_stat_up(&s, 10);
    expect(&s, 40, 150, 160, 120);

    ac_stat_t pools[AC_POOL_KINDS] = {{0, 0, 0, 0}};
    ac_stat_pools_up(pools, AC_POOL_SMALL, 5);
    ac_stat_pools_up(pools, AC_POOL_LARGE, 7);
    ac_stat_pools_down(pools, AC_POOL_SMALL, 5);
    expect(&pools[AC_POOL_ALL], 7, 12, 12, 5);
    expect(&pools[AC_POOL_SMALL], 0, 5, 5, 5);
    expect(&pools[AC_POOL_LARGE], 7, 7, 7, 0);
}
END_TEST

/* Fills all fields with different numbers, so that a field that a reset misses or confuses is
 * noticed. */
static void fill(ac_device_stats_t *stats) {
    int64_t *word = (int64_t *)stats;
    for (size_t i = 0; i < sizeof *stats / sizeof *word; i++)
        word[i] = 1000 + (int64_t)i;
}

typedef void visit_fn(const ac_stat_t *now, const ac_stat_t *before);

static void each(const ac_device_stats_t *now, const ac_device_stats_t *before, visit_fn *visit) {
#define STAT_POOLS(name, unit, doc)                                                              \
    for (int i = 0; i < AC_POOL_KINDS; i++)                                                      \
        visit(&now->name[i], &before->name[i]);
#define STAT_SINGLE(name, unit, doc) visit(&now->name, &before->name);
#include "observe/stats.def"
}

static void peak_was_reset(const ac_stat_t *now, const ac_stat_t *before) {
    expect(now, before->current, before->current, before->allocated, before->freed);
}

static void accumulated_was_reset(const ac_stat_t *now, const ac_stat_t *before) {
    expect(now, before->current, before->peak, 0, 0);
}

START_TEST(reset_peak) {
    ac_device_stats_t stats, before;
    fill(&stats);
    before = stats;
    ac_stats_reset_peak(&stats);
    each(&stats, &before, peak_was_reset);
    ck_assert_int_eq(stats.num_alloc_retries, before.num_alloc_retries);
    ck_assert_int_eq(stats.num_ooms, before.num_ooms);
    ck_assert_int_eq(stats.max_split_size, before.max_split_size);
    ck_assert_int_eq(stats.num_sync_all_streams, before.num_sync_all_streams);
    ck_assert_int_eq(stats.num_device_alloc, before.num_device_alloc);
    ck_assert_int_eq(stats.num_device_free, before.num_device_free);
}
END_TEST

START_TEST(reset_accumulated) {
    ac_device_stats_t stats, before;
    fill(&stats);
    before = stats;
    ac_stats_reset_accumulated(&stats);
    each(&stats, &before, accumulated_was_reset);
    ck_assert_int_eq(stats.num_alloc_retries, 0);
    ck_assert_int_eq(stats.num_ooms, 0);
    ck_assert_int_eq(stats.max_split_size, before.max_split_size);
    ck_assert_int_eq(stats.num_sync_all_streams, 0);
    ck_assert_int_eq(stats.num_device_alloc, 0);
    ck_assert_int_eq(stats.num_device_free, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("stats");
    TCase *cases = tcase_create("stats");
    tcase_add_test(cases, up_and_down);
    tcase_add_test(cases, reset_peak);
    tcase_add_test(cases, reset_accumulated);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
