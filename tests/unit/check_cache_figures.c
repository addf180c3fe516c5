/* Figures about blocks in a thread's cache, on a fake device. */
#include <string.h>

#include "cache_frame.h"
#include "run_suite.h"

enum { LIVE = 24, STEPS = 6000 };

typedef struct {
    int64_t now[AC_POOL_KINDS], peak[AC_POOL_KINDS];
} figure_t;

static figure_t allocated, allocated_bytes, active, active_bytes, requested;

static void note(figure_t *figure, const ac_stat_t *stat, const uint64_t growth[AC_FLOWS]) {
    figure->now[AC_POOL_SMALL] = stat[AC_POOL_SMALL].current + (int64_t)growth[0];
    figure->now[AC_POOL_LARGE] = stat[AC_POOL_LARGE].current + (int64_t)growth[1];
    figure->now[AC_POOL_ALL] = figure->now[AC_POOL_SMALL] + figure->now[AC_POOL_LARGE];
    for (int i = 0; i < AC_POOL_KINDS; i++)
        if (figure->peak[i] < figure->now[i])
            figure->peak[i] = figure->now[i];
}

/* Computes the figures that a read would show now. A read itself would change the state,
 * because it absorbs the tallies. */
static void note_all(void) {
    ac_cache_sum_t sum = {.ordered = 0};
    ac_cache_tally_add(&tally[0], false, &sum);
    uint64_t growth[5][AC_FLOWS];
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *f = &sum.flow[i];
        const ac_cache_wait_t *w = &sum.waiting[i];
        growth[0][i] = f->taken - f->given;
        growth[1][i] = f->taken_bytes - f->given_bytes;
        growth[2][i] = growth[0][i] + w->blocks;
        growth[3][i] = growth[1][i] + w->bytes;
        growth[4][i] = f->taken_requested - f->given_requested + w->requested;
    }
    note(&allocated, stats.allocation, growth[0]);
    note(&allocated_bytes, stats.allocated_bytes, growth[1]);
    note(&active, stats.active, growth[2]);
    note(&active_bytes, stats.active_bytes, growth[3]);
    note(&requested, stats.requested_bytes, growth[4]);
}

/* Compares all figures. Without `exact` the peak of all pools may be too low; the peaks of
 * single pools always may. No peak may be too high. */
static void same(const figure_t *want, const ac_stat_t *have, bool exact, int step,
                 const char *what) {
    for (int i = 0; i < AC_POOL_KINDS; i++) {
        ck_assert_msg(want->now[i] == have[i].current, "step %d, %s: current", step, what);
        ck_assert_msg(have[i].peak == want->peak[i] ||
                          (have[i].peak < want->peak[i] && !(exact && i == AC_POOL_ALL)),
                      "step %d, %s: peak %lld, %lld", step, what, (long long)want->peak[i],
                      (long long)have[i].peak);
        ck_assert_msg(have[i].peak >= have[i].current, "step %d, %s: below now", step, what);
        ck_assert_msg(have[i].allocated - have[i].freed == have[i].current, "step %d, %s: sums",
                      step, what);
    }
}

static void read_and_compare(int step) {
    ac_allocator_settle(allocator); /* reading does the same */
    note_all();
    ac_device_stats_t have = now();
    same(&allocated, have.allocation, false, step, "allocation");
    same(&allocated_bytes, have.allocated_bytes, true, step, "allocated_bytes");
    same(&active, have.active, false, step, "active");
    same(&active_bytes, have.active_bytes, false, step, "active_bytes");
    same(&requested, have.requested_bytes, false, step, "requested_bytes");
}

static void reset_peaks(void) {
    figure_t *const all[] = {&allocated, &allocated_bytes, &active, &active_bytes, &requested};
    ac_allocator_reset_peak(allocator);
    note_all(); /* takes blocks back; some of them are ready */
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        memcpy(all[i]->peak, all[i]->now, sizeof all[i]->peak);
    ac_device_stats_t have = now();
    memcpy(active.peak,
           (int64_t[]){have.active[0].peak, have.active[1].peak, have.active[2].peak},
           sizeof active.peak);
    memcpy(active_bytes.peak,
           (int64_t[]){have.active_bytes[0].peak, have.active_bytes[1].peak,
                       have.active_bytes[2].peak},
           sizeof active_bytes.peak);
    memcpy(requested.peak,
           (int64_t[]){have.requested_bytes[0].peak, have.requested_bytes[1].peak,
                       have.requested_bytes[2].peak},
           sizeof requested.peak);
}

/* With one cache no peak of allocated bytes is missed or invented, even if blocks wait. */
START_TEST(peaks_of_bytes_are_exact) {
    static const uint64_t sizes[] = {512, 700, 1024, 40000, 65536, 70000, 131072, 262144};
    uint64_t live[LIVE] = {0}, waited = 0, gathered = 0;
    uint64_t state = 88172645463325252u + (uint64_t)_i;
    figure_t *const all[] = {&allocated, &allocated_bytes, &active, &active_bytes, &requested};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        memset(all[i], 0, sizeof *all[i]);
    for (int step = 0; step < STEPS; step++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        unsigned slot = (unsigned)(state >> 20) % LIVE;
        uint64_t before = waiting();
        if (live[slot]) {
            put(live[slot]);
            live[slot] = 0;
            waited += waiting() > before;
        } else {
            live[slot] = take(sizes[(state >> 40) % 8]);
            gathered += waiting() < before;
        }
        note_all();
        if ((state >> 10) % 4 == 0)
            submit(0);
        if ((state >> 28) % 32 == 0)
            finish_work();
        note_all();
        if ((state >> 33) % 500 == 0)
            reset_peaks();
        if ((state >> 13) % 16 == 0)
            read_and_compare(step);
    }
    ck_assert_uint_gt(waited, STEPS / 10);
    ck_assert_uint_gt(gathered, STEPS / 100);
    finish_work();
}
END_TEST

enum { MANY = 30000, EACH = 2048, FEW = MANY / 8 };

static void take_and_free(ac_cache_t *by, int blocks, uint64_t bytes) {
    static uint64_t many[MANY];
    for (int i = 0; i < blocks; i++)
        ck_assert_int_eq(by ? ac_cache_alloc(by, bytes, false, &many[i])
                            : ac_arena_alloc(arena, bytes, false, &many[i]),
                         AC_OK);
    for (int i = 0; i < blocks; i++)
        ck_assert_int_eq(by ? ac_cache_free(by, many[i]) : ac_block_free(many[i]), AC_OK);
}

/* Few large blocks, then many small ones with as many bytes. The headroom is not used up. */
static void check_many(ac_cache_t *by, int64_t unseen) {
    take_and_free(by, MANY, EACH); /* growth raises peaks too */
    ac_allocator_reset_peak(allocator);
    take_and_free(by, FEW, MANY / FEW * EACH);
    ck_assert_int_le(now().allocation[AC_POOL_ALL].peak, FEW);
    take_and_free(by, MANY, EACH);
    ac_device_stats_t have = now();
    ck_assert_int_eq(have.allocated_bytes[AC_POOL_ALL].peak, (int64_t)MANY * EACH);
    ck_assert_int_le(have.allocation[AC_POOL_ALL].peak, MANY);
    ck_assert_int_ge(have.allocation[AC_POOL_ALL].peak, MANY - unseen);
    ck_assert_int_ge(have.active[AC_POOL_SMALL].peak, MANY - unseen);
}

START_TEST(other_peaks_lack_what_is_bounded) {
    check_many(cache, 2 * AC_CACHE_UNSEEN_BLOCKS);
    end();
}
END_TEST

START_TEST(other_peaks_show_what_the_lock_sees) {
    check_many(NULL, AC_STAT_UNSEEN_BLOCKS);
    end();
}
END_TEST

START_TEST(what_waits_is_not_kept_free_memory) {
    habit(MIB);
    wait_for_work(MIB);
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
    ck_assert_uint_eq(counted().thread_cache_bytes, 0);
    ck_assert_int_eq(now().active_bytes[AC_POOL_LARGE].current, MIB);
    ck_assert_int_eq(now().allocated_bytes[AC_POOL_LARGE].current, 0);
    finish_work();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache_figures");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin_cached, end_cached);
    tcase_add_loop_test(all, peaks_of_bytes_are_exact, 0, 5);
    tcase_add_test(all, other_peaks_lack_what_is_bounded);
    tcase_add_test(all, other_peaks_show_what_the_lock_sees);
    tcase_add_test(all, what_waits_is_not_kept_free_memory);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
