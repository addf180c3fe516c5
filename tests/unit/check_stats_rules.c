/* The device statistics, operation by operation, against PyTorch's rules. */
#include <string.h>
#include <time.h>

#include "fake_world.h"
#include "run_suite.h"

#define MIB ((int64_t)1 << 20)
#define KIB ((int64_t)1 << 10)

static void begin(void) {
    open_world(1, 400 * (uint64_t)MIB, fake_settings("thread_cache_mb:0"));
}

static uint64_t alloc(int64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_arena_alloc(arena, (uint64_t)bytes, false, &address), AC_OK);
    return address;
}

/* A step of a script, and the `current` values of the large pool after it. */
typedef struct {
    char what; /* a: allocate into `at`; f: free `at`; w: submit work; c: it completes, and the
                  next request finds out; t: trim; s: trim and wait */
    int at;
    int64_t kib;
    int64_t allocation, allocated, requested, active, active_kib, split, split_kib, segment,
        reserved;
} step_t;

static void play(const step_t *step, unsigned steps) {
    uint64_t block[16];
    for (unsigned i = 0; i < steps; i++) {
        const step_t *s = &step[i];
        switch (s->what) {
        case 'a':
            block[s->at] = alloc(s->kib * KIB);
            break;
        case 'f':
            ck_assert_int_eq(ac_block_free(block[s->at]), AC_OK);
            break;
        case 'w':
            submit(0);
            break;
        case 'c':
            complete(0);
            ac_fence_wait(ac_arena_timeline(arena), false, ac_fence_now(), 0);
            break;
        default:
            ac_allocator_trim(allocator, s->what == 's');
        }
        int p = AC_POOL_LARGE;
        const struct {
            const char *name;
            int64_t is, want;
        } rows[] = {
            {"allocation", stats.allocation[p].current, s->allocation},
            {"allocated_bytes", stats.allocated_bytes[p].current, s->allocated * KIB},
            {"requested_bytes", stats.requested_bytes[p].current, s->requested * KIB},
            {"active", stats.active[p].current, s->active},
            {"active_bytes", stats.active_bytes[p].current, s->active_kib * KIB},
            {"inactive_split", stats.inactive_split[p].current, s->split},
            {"inactive_split_bytes", stats.inactive_split_bytes[p].current, s->split_kib * KIB},
            {"segment", stats.segment[p].current, s->segment},
            {"reserved_bytes", stats.reserved_bytes[p].current, s->reserved * KIB},
        };
        for (unsigned k = 0; k < sizeof rows / sizeof rows[0]; k++)
            ck_assert_msg(rows[k].is == rows[k].want, "step %u (%c): %s is %lld, not %lld", i,
                          s->what, rows[k].name, (long long)rows[k].is, (long long)rows[k].want);
    }
}

#define M 1024 /* KiB */
START_TEST(splits_and_merges) {
    static const step_t script[] = {
        /* what at size | allocation, its KiB, requested | active, KiB | split, KiB | segment, KiB
         */
        {'a', 0, 4 * M, 1, 4 * M, 4 * M, 1, 4 * M, 1, 16 * M, 1, 20 * M},
        {'a', 1, 6 * M, 2, 10 * M, 10 * M, 2, 10 * M, 1, 10 * M, 1, 20 * M}, /* same count */
        {'a', 2, 10 * M, 3, 20 * M, 20 * M, 3, 20 * M, 0, 0, 1, 20 * M},     /* taken whole */
        {'f', 1, 0, 2, 14 * M, 14 * M, 2, 14 * M, 1, 6 * M, 1, 20 * M},      /* no neighbour */
        {'f', 0, 0, 1, 10 * M, 10 * M, 1, 10 * M, 1, 10 * M, 1, 20 * M},     /* merged right */
        {'a', 3, 10 * M, 2, 20 * M, 20 * M, 2, 20 * M, 0, 0, 1, 20 * M},
        {'f', 2, 0, 1, 10 * M, 10 * M, 1, 10 * M, 1, 10 * M, 1, 20 * M},
        {'f', 3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 20 * M}, /* unsplit again: not counted */
        {'a', 4, 20 * M, 1, 20 * M, 20 * M, 1, 20 * M, 0, 0, 1, 20 * M},
        {'f', 4, 0, 0, 0, 0, 0, 0, 0, 0, 1, 20 * M},
        {'t', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    };
    play(script, sizeof script / sizeof script[0]);
    /* The peaks show only states that existed: a merge counts once, as its net effect. */
    ck_assert_int_eq(stats.inactive_split[AC_POOL_LARGE].peak, 1);
    ck_assert_int_eq(stats.inactive_split_bytes[AC_POOL_LARGE].peak, 16 * MIB);
    ck_assert_int_eq(stats.inactive_split[AC_POOL_LARGE].allocated, 3);
    ck_assert_int_eq(stats.active_bytes[AC_POOL_ALL].peak, 20 * MIB);
    ck_assert_int_eq(stats.num_device_alloc, 1);
    ck_assert_int_eq(stats.num_device_free, 1);
}
END_TEST

/* A free with pending work lowers `allocated` at once, and `active` and `requested` later. */
START_TEST(pending_frees) {
    static const step_t script[] = {
        {'a', 0, 4 * M, 1, 4 * M, 4 * M, 1, 4 * M, 1, 16 * M, 1, 20 * M},
        {'w', 0, 0, 1, 4 * M, 4 * M, 1, 4 * M, 1, 16 * M, 1, 20 * M},
        {'f', 0, 0, 0, 0, 4 * M, 1, 4 * M, 1, 16 * M, 1, 20 * M},
        {'t', 0, 0, 0, 0, 4 * M, 1, 4 * M, 1, 16 * M, 1, 20 * M},
        {'c', 0, 0, 0, 0, 4 * M, 1, 4 * M, 1, 16 * M, 1, 20 * M},
        {'a', 1, 20 * M, 1, 20 * M, 20 * M, 1, 20 * M, 0, 0, 1, 20 * M}, /* found out */
        {'w', 0, 0, 1, 20 * M, 20 * M, 1, 20 * M, 0, 0, 1, 20 * M},
        {'f', 1, 0, 0, 0, 20 * M, 1, 20 * M, 0, 0, 1, 20 * M},
        {'s', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
    };
    play(script, sizeof script / sizeof script[0]);
    ck_assert_int_eq(stats.num_sync_all_streams, 1); /* from `s` alone */
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_LARGE].freed, 24 * MIB);
    ck_assert_int_eq(stats.requested_bytes[AC_POOL_LARGE].freed, 24 * MIB);
}
END_TEST

START_TEST(pools_are_apart) {
    uint64_t s = alloc(1000), l = alloc(65 * KIB);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_SMALL].current, 1024);
    ck_assert_int_eq(stats.requested_bytes[AC_POOL_SMALL].current, 1000);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_LARGE].current, 65 * KIB);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].current, 65 * KIB + 1024);
    ck_assert_int_eq(stats.segment[AC_POOL_ALL].current, 2);
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_SMALL].current, 2 * MIB);
    ck_assert_int_eq(stats.inactive_split[AC_POOL_ALL].current, 2);
    ac_block_free(s);
    ac_block_free(l);
    ck_assert_int_eq(stats.inactive_split[AC_POOL_ALL].current, 0);
}
END_TEST

/* Each block remembers whether it counted as oversize. A changed setting leaves the counts
 * balanced. */
START_TEST(oversize_counts) {
    settings.max_split_size = 30 * (uint64_t)MIB;
    ac_allocator_configure(allocator, &settings);
    ck_assert_int_eq(stats.max_split_size, 30 * MIB);
    uint64_t a = alloc(30 * MIB), b = alloc(25 * MIB);
    ck_assert_int_eq(stats.oversize_allocations.current, 1);
    ck_assert_int_eq(stats.oversize_segments.current, 1);
    settings.max_split_size = AC_UNLIMITED;
    ac_allocator_configure(allocator, &settings);
    ck_assert_int_eq(stats.max_split_size, -1);
    ac_block_free(a);
    ac_block_free(b);
    ck_assert_int_eq(stats.oversize_allocations.current, 0);
    ac_allocator_trim(allocator, false);
    ck_assert_int_eq(stats.oversize_segments.current, 0);
    ck_assert_int_eq(stats.oversize_segments.freed, 1);
}
END_TEST

START_TEST(out_of_memory_counts) {
    uint64_t address;
    alloc(300 * MIB);
    for (int i = 1; i <= 3; i++) {
        ck_assert_int_eq(ac_arena_alloc(arena, 200 * (uint64_t)MIB, false, &address), AC_OOM);
        ck_assert_int_eq(stats.num_ooms, i);
        ck_assert_int_eq(stats.num_alloc_retries, i); /* once each, after a trim */
        ck_assert_int_eq(stats.num_sync_all_streams, i);
    }
    ac_allocator_reset_accumulated(allocator);
    ck_assert_int_eq(stats.num_ooms + stats.num_alloc_retries + stats.num_sync_all_streams +
                         stats.num_device_alloc + stats.num_device_free,
                     0);
}
END_TEST

START_TEST(resets) {
    uint64_t a = alloc(10 * MIB), b = alloc(5 * MIB);
    ac_block_free(a);
    ac_allocator_reset_peak(allocator);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].peak, 5 * MIB);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].allocated, 15 * MIB);
    ac_allocator_reset_accumulated(allocator);
    ac_block_free(b);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].freed, 5 * MIB);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].allocated, 0);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].current, 0);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].peak, 5 * MIB);
}
END_TEST

/* A thread may have been stopped permanently while it held the lock. */
START_TEST(figures_do_not_wait_for_ever) {
    ac_device_stats_t copy;
    ac_device_counters_t count;
    struct timespec passed = {0, 0};
    ac_block_free(alloc(10 * MIB));
    ck_assert(ac_allocator_figures(allocator, &passed, &copy, &count));
    ck_assert_int_eq(memcmp(&copy, &stats, sizeof copy), 0);
    ck_assert_int_eq(memcmp(&count, &counters, sizeof count), 0);
    ac_lock(&allocator->lock);
    uint32_t held = ac_ranks_swap(0); /* as another thread */
    ck_assert(!ac_allocator_figures(allocator, &passed, &copy, &count));
    ac_ranks_swap(held);
    ac_unlock(&allocator->lock);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("stats_rules");
    TCase *tests = tcase_create("stats_rules");
    tcase_add_checked_fixture(tests, begin, check_world);
    tcase_add_test(tests, splits_and_merges);
    tcase_add_test(tests, pending_frees);
    tcase_add_test(tests, pools_are_apart);
    tcase_add_test(tests, oversize_counts);
    tcase_add_test(tests, out_of_memory_counts);
    tcase_add_test(tests, resets);
    tcase_add_test(tests, figures_do_not_wait_for_ever);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
