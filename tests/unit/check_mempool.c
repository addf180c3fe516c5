/* Memory pools in the allocator, on the fake device: their figures, their limits, and the idle
 * memory kept for them. */
#include "allocator_frame.h"
#include "run_suite.h"

enum { STREAM = 16, POOL = 2, OTHER = 3, EPOCHS = 4 };

static uint64_t take(unsigned pool, uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(
        ac_arena_alloc_from(arena, AC_MODULE_UNKNOWN, pool, STREAM, bytes, false, &address),
        AC_OK);
    return address;
}

static void expect(unsigned pool, uint64_t used, uint64_t held, uint64_t most,
                   uint64_t most_held) {
    ac_mempool_t figures;
    ac_mempool_figures(allocator, pool, &figures);
    ck_assert_uint_eq(figures.now[AC_MARK_USED], used);
    ck_assert_uint_eq(figures.now[AC_MARK_RESERVED], held);
    ck_assert_uint_eq(figures.most[AC_MARK_USED], most);
    ck_assert_uint_eq(figures.most[AC_MARK_RESERVED], most_held);
}

static uint64_t pass(unsigned epochs) {
    uint64_t freed = 0;
    while (epochs--)
        freed += ac_allocator_decay(allocator, EPOCHS);
    return freed;
}

/* Requests are counted in units of 512 bytes, whichever block serves them. */
START_TEST(figures) {
    ac_mempool_open(allocator, POOL, 0, 0);
    uint64_t a = take(POOL, 1), b = take(POOL, 5000), c = take(OTHER, MIB);
    expect(POOL, 512 + 5120, 512 + 5120, 512 + 5120, 512 + 5120);
    expect(OTHER, MIB, MIB, MIB, MIB);
    give(b);
    expect(POOL, 512, 512 + 5120, 512 + 5120, 512 + 5120);
    ac_mempool_reset(allocator, POOL, AC_MARK_USED);
    expect(POOL, 512, 512 + 5120, 512, 512 + 5120);
    ac_mempool_synced();
    expect(POOL, 512, 512, 512, 512 + 5120);
    ac_mempool_reset(allocator, POOL, AC_MARK_RESERVED);
    expect(POOL, 512, 512, 512, 512);
    give(a);
    give(c);
    expect(POOL, 0, 512, 512, 512);
    expect(OTHER, 0, MIB, MIB, MIB);
}
END_TEST

/* A synchronisation is applied before any change after it. */
START_TEST(synchronisation_comes_first) {
    ac_mempool_open(allocator, POOL, 2 * MIB, 0);
    uint64_t a = take(POOL, 3 * MIB), b = take(POOL, MIB);
    ac_mempool_synced();
    give(a); /* 4 MiB were in use */
    expect(POOL, MIB, 4 * MIB, 4 * MIB, 4 * MIB);
    ac_mempool_synced();
    expect(POOL, MIB, 2 * MIB, 4 * MIB, 4 * MIB);
    ac_mempool_synced();
    ac_mempool_keep(allocator, POOL, 0); /* the synchronisation came before */
    expect(POOL, MIB, 2 * MIB, 4 * MIB, 4 * MIB);
    give(b);
}
END_TEST

/* A reused number starts with new figures, and contains the former pool's blocks. */
START_TEST(number_again) {
    ac_mempool_open(allocator, POOL, 8 * MIB, 0);
    uint64_t a = take(POOL, 2 * MIB);
    give(take(POOL, 4 * MIB));
    ac_mempool_open(allocator, POOL, 0, 0);
    expect(POOL, 2 * MIB, 2 * MIB, 2 * MIB, 2 * MIB);
    give(a);
    ac_mempool_synced();
    expect(POOL, 0, 0, 2 * MIB, 2 * MIB);
}
END_TEST

START_TEST(limits) {
    ac_mempool_open(allocator, POOL, 0, 4 * MIB);
    ck_assert(!ac_mempool_claim(allocator, POOL, 4 * MIB + 1, 0));
    ck_assert(!ac_mempool_claim(allocator, POOL, UINT64_MAX - 5, 0));
    ck_assert(ac_mempool_claim(allocator, POOL, 3 * MIB, 0));
    ck_assert(!ac_mempool_claim(allocator, POOL, 2 * MIB, 0)); /* the first one is in progress */
    uint64_t a = take(POOL, 3 * MIB);
    ck_assert(!ac_mempool_claim(allocator, POOL, MIB, 512));
    ck_assert(ac_mempool_claim(allocator, POOL, MIB, 0));
    ac_mempool_unclaim(allocator, POOL, MIB); /* the claim was not served */
    give(a);
    ck_assert(ac_mempool_claim(allocator, POOL, 4 * MIB, 0));
    ac_mempool_unclaim(allocator, POOL, 4 * MIB);
}
END_TEST

/* Memory for pools with a threshold does not go back after a while; the rest does. */
START_TEST(kept_for_a_while) {
    ac_mempool_open(allocator, POOL, 40 * MIB, 0);
    uint64_t a = take(POOL, 30 * MIB), b = alloc(50 * MIB);
    give(b);
    give(a);
    ac_mempool_synced();
    uint64_t before = reserved();
    ck_assert_uint_eq(pass(EPOCHS + 1), before - 30 * MIB);
    ck_assert_uint_eq(pass(50), 0);
    ck_assert_uint_eq(reserved(), 30 * MIB);
    ac_mempool_keep(allocator, POOL, 0);
    ac_mempool_synced();
    ck_assert_uint_eq(pass(EPOCHS + 1), 30 * MIB);
}
END_TEST

/* A trim by the program leaves the bytes that it names, and the memory that another pool keeps. */
START_TEST(trimmed) {
    ac_mempool_open(allocator, POOL, UINT64_MAX, 0);
    ac_mempool_open(allocator, OTHER, UINT64_MAX, 0);
    uint64_t a = take(POOL, 30 * MIB), b = take(OTHER, 20 * MIB);
    give(a);
    ac_mempool_trim(allocator, POOL, 30 * MIB);
    ck_assert_uint_eq(reserved(), 50 * MIB);
    expect(POOL, 0, 30 * MIB, 30 * MIB, 30 * MIB);
    give(b);
    ac_mempool_trim(allocator, POOL, 0);
    ck_assert_uint_ge(reserved(), 20 * MIB);
    ck_assert_uint_lt(reserved(), 50 * MIB);
    expect(POOL, 0, 0, 30 * MIB, 30 * MIB);
    ac_mempool_trim(allocator, OTHER, 0);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* The context ends, and its blocks with it. */
START_TEST(lost) {
    ac_mempool_open(allocator, POOL, 0, 0);
    take(POOL, 3 * MIB);
    take(POOL, 700);
    expect(POOL, 3 * MIB + 1024, 3 * MIB + 1024, 3 * MIB + 1024, 3 * MIB + 1024);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ac_mempool_synced();
    expect(POOL, 0, 0, 3 * MIB + 1024, 3 * MIB + 1024);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mempool");
    TCase *tests = tcase_create("mempool");
    tcase_add_checked_fixture(tests, begin_large, end);
    tcase_add_test(tests, figures);
    tcase_add_test(tests, synchronisation_comes_first);
    tcase_add_test(tests, number_again);
    tcase_add_test(tests, limits);
    tcase_add_test(tests, kept_for_a_while);
    tcase_add_test(tests, trimmed);
    tcase_add_test(tests, lost);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
