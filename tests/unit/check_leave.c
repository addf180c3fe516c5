/* expandable_segments:auto on the fake device. The arena uses pages until others know memory by its
 * address, and native segments from then on. */
#include "allocator/core_int.h"
#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "run_suite.h"

static void begin_auto(void) {
    begin((uint64_t)1 << 30);
    atomic_store(&ac_expand_shared, false);
    settings.expandable_segments = AC_PAGES_AUTO;
    settings.page = 8 * MIB;
    settings.small_page = AC_SEGMENT_ALIGN;
    ac_allocator_configure(allocator, &settings);
}

static bool on_pages(uint64_t address) {
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(address, &info), AC_OK);
    return info.paged;
}

/* Does the first step of a program that shares memory. */
static void share(uint64_t address) {
    ck_assert_int_eq(ac_block_pin(address), AC_OK);
}

START_TEST(pages_until_shared) {
    uint64_t first = alloc(16 * MIB), small = alloc(4096);
    ck_assert(on_pages(first) && on_pages(small));
    give(alloc(16 * MIB));
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 0);
    ck_assert_int_eq(counters.left_pages, 0);
    share(first);
    ck_assert_int_eq(counters.left_pages, 1);
    uint64_t large = alloc(16 * MIB); /* although pages are free */
    ck_assert(!on_pages(large) && !on_pages(alloc(32 << 10)));
    ck_assert(on_pages(first));
    give(first); /* requests no longer use its place */
    ck_assert(!on_pages(alloc(16 * MIB)));
    uint64_t address;
    ck_assert_int_eq(try_alloc(other, 16 * MIB, &address), AC_OK);
    ck_assert(!on_pages(address));
    share(large);
    share(small);
    ck_assert_int_eq(counters.left_pages, 1);
}
END_TEST

static bool set_sync(void *arg, uint64_t address, bool on) {
    (void)arg, (void)address, (void)on;
    return true;
}

/* Each query and each setting by which others learn of a block. */
START_TEST(what_counts_as_shared) {
    uint64_t block = alloc(16 * MIB), serial;
    if (_i == 0)
        ck_assert_int_eq(ac_block_identify(block, &serial), AC_OK);
    else if (_i == 1)
        ck_assert_int_eq(ac_block_sync(block, true, set_sync, NULL), AC_OK);
    else
        ac_allocator_is_shared(allocator); /* no handle, but the program wants to share */
    ck_assert_int_eq(counters.left_pages, 1);
    ck_assert(!on_pages(alloc(16 * MIB)));
}
END_TEST

START_TEST(settings_stay_left) {
    share(alloc(16 * MIB));
    ac_allocator_configure(allocator, &settings);
    ck_assert(!on_pages(alloc(16 * MIB)));
    settings.expandable_segments = AC_PAGES_ON;
    ac_allocator_configure(allocator, &settings);
    uint64_t paged = alloc(16 * MIB);
    ck_assert(on_pages(paged));
    share(paged);
    ck_assert(on_pages(alloc(16 * MIB))); /* as the program requested */
}
END_TEST

/* Free pages go back before the budget is exceeded. They serve before a request fails. */
START_TEST(free_pages) {
    uint64_t keep = alloc(64 * MIB), gone = alloc(448 * MIB);
    give(gone);
    share(keep);
    uint64_t segment = alloc(440 * MIB);
    ck_assert(!on_pages(segment));
    ck_assert_uint_le(reserved(), 512 * MIB + 512 * MIB / 10);
    give(segment);
    ac_allocator_settle_debt(allocator);
    alloc(512 * MIB);
    give(alloc(64 * MIB));
    settings.limit = reserved();
    ac_allocator_configure(allocator, &settings);
    give(keep);
    while (reserved() <= settings.limit) {
        uint64_t address;
        if (try_alloc(arena, 8 * MIB, &address) != AC_OK)
            break;
    }
    ck_assert_uint_ge((uint64_t)stats.allocated_bytes[AC_POOL_ALL].current,
                      settings.limit - 8 * MIB);
}
END_TEST

/* A growth far beyond the budget waits for work only if whole pages can go back afterwards. */
START_TEST(holes_within_pages_are_not_waited_for) {
    enum { BLOCKS = 64 };
    uint64_t block[BLOCKS], elsewhere;
    ck_assert_int_eq(try_alloc(other, 4 * MIB, &elsewhere), AC_OK);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = alloc(4 * MIB); /* two blocks per page */
    for (int i = 1; i < BLOCKS; i += 2)
        give(block[i]);
    if (_i)
        give(block[2]);
    share(block[0]);
    submit(0);
    submit(1);
    give(elsewhere); /* the block waits for the work, and the request does not */
    ck_assert(!on_pages(alloc(100 * MIB)));
    ck_assert_int_eq(device.calls[FAKE_WAIT] > 0, _i);
    complete(0); /* completes the fence under way */
    complete(1);
    ac_fence_poll(ac_arena_timeline(arena), true);
}
END_TEST

/* Medium blocks that keep many pages do not predict their behaviour in native segments. */
START_TEST(medium_blocks_begin_anew) {
    enum { PAIRS = 20 };
    uint64_t large[PAIRS], medium = 0;
    for (int i = 0; i < PAIRS; i++) {
        large[i] = alloc(8 * MIB);
        medium = alloc(600 << 10);
    }
    for (int i = 0; i < PAIRS; i++)
        give(large[i]);
    alloc(100 * MIB);
    ck_assert(allocator->supply->medium.apart);
    share(medium);
    ck_assert(!allocator->supply->medium.apart);
    ck_assert(!on_pages(alloc(600 << 10)));
}
END_TEST

/* Requests do not look at a block that waits in the order of a stream, either. */
START_TEST(what_waits_in_the_order_of_a_stream_is_left) {
    enum { STREAM = 0x1000 };
    uint64_t first = alloc(16 * MIB), address, waits;
    ck_assert_int_eq(ac_arena_alloc_on(arena, STREAM, 24 * MIB, false, &waits), AC_OK);
    ck_assert(on_pages(waits));
    submit(0);
    ck_assert_int_eq(ac_block_free_on(arena, STREAM, waits), AC_OK);
    ac_arena_stream_is(arena, STREAM, true);
    share(first);
    check_world();
    ck_assert_int_eq(ac_arena_alloc_on(arena, STREAM, 24 * MIB, false, &address), AC_OK);
    ck_assert(!on_pages(address));
    check_world();
    ck_assert_int_eq(ac_block_free_on(arena, STREAM, address), AC_OK);
    complete(0); /* completes the fence under way */
    ac_fence_poll(ac_arena_timeline(arena), true);
}
END_TEST

/* An allocator without shared memory of its own follows at its next growth. */
START_TEST(others_follow) {
    give(alloc(16 * MIB));
    atomic_store(&ac_expand_shared, true);
    ck_assert(on_pages(alloc(8 * MIB)));
    ck_assert(!on_pages(alloc(64 * MIB)));
    ck_assert_int_eq(counters.left_pages, 1);
    ck_assert(!on_pages(alloc(8 * MIB)));
}
END_TEST

START_TEST(no_pages) {
    ac_device_ops_t without = fake_ops;
    without.range_support = NULL;
    allocator = ac_allocator_create(&settings, &stats, &counters);
    ac_arena_t *native = ac_arena_create(allocator, &without, &context[0]);
    uint64_t address;
    ck_assert_int_eq(ac_arena_alloc(native, MIB, false, &address), AC_OK);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    share(address);
    ck_assert_int_eq(counters.left_pages, 0);
    give(address);
    ac_allocator_trim(allocator, true);
    ac_arena_drop(native);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("leave");
    TCase *tests = tcase_create("leave");
    tcase_add_checked_fixture(tests, begin_auto, end);
    tcase_add_test(tests, pages_until_shared);
    tcase_add_loop_test(tests, what_counts_as_shared, 0, 3);
    tcase_add_test(tests, settings_stay_left);
    tcase_add_test(tests, free_pages);
    tcase_add_loop_test(tests, holes_within_pages_are_not_waited_for, 0, 2);
    tcase_add_test(tests, medium_blocks_begin_anew);
    tcase_add_test(tests, what_waits_in_the_order_of_a_stream_is_left);
    tcase_add_test(tests, others_follow);
    tcase_add_test(tests, no_pages);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
