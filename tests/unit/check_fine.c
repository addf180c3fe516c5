/* Fine pages (supply/fine.h) on the fake device: when pages of large blocks become half as large, for which
 * requests, and when that ends. */
#include "allocator/core_int.h"
#include "allocator/supply/fine.h"
#include "allocator_frame.h"
#include "run_suite.h"

enum { BLOCKS = 60 };

static uint64_t block[BLOCKS];

static void begin_paged(void) {
    begin((uint64_t)8 << 30);
    settings.expandable_segments = true;
    settings.page = 8 * MIB;
    settings.small_page = AC_SEGMENT_ALIGN;
    ac_allocator_configure(allocator, &settings);
}

static bool is_fine(void) {
    ac_lock(&allocator->lock);
    bool fine = ac_policy_fine(&allocator->supply->expand.toll, &allocator->settings);
    ac_unlock(&allocator->lock);
    return fine;
}

/* Allocates blocks until reserved memory has grown by a tenth. */
static void grow_by(uint64_t size) {
    for (uint64_t most = reserved() + reserved() / 10; reserved() < most;)
        alloc(size);
}

/* Allocates blocks of `size` next to each other and frees every second one. Blocks of `larger`, which fit
 * nowhere, follow. */
static void cut_pages(int blocks, uint64_t size, uint64_t larger) {
    for (int i = 0; i < blocks; i++)
        block[i] = alloc(size);
    for (int i = 1; i < blocks; i += 2)
        give(block[i]);
    if (larger)
        grow_by(larger);
}

/* Returns the number of pages that the device makes for the request. */
static uint64_t pages_for(uint64_t size) {
    uint64_t before = device.calls[FAKE_PAGE_CREATE];
    alloc(size);
    return device.calls[FAKE_PAGE_CREATE] - before;
}

/* A freed block of 20 MiB leaves 4 MiB on a page that another block shares. */
START_TEST(pages_become_fine) {
    cut_pages(BLOCKS, 20 * MIB, 24 * MIB);
    ck_assert(is_fine());
    ck_assert_uint_eq(pages_for(24 * MIB), 6);
    ck_assert_uint_eq(pages_for(120 * MIB), 30);
}
END_TEST

/* Partly used end pages matter little in a request of many pages. */
START_TEST(large_requests_get_whole_pages) {
    cut_pages(BLOCKS, 20 * MIB, 24 * MIB);
    ck_assert(is_fine());
    ck_assert_uint_eq(pages_for(128 * MIB), 16);
}
END_TEST

/* Pages stay whole in these cases: few rests, small pages only, a configured page size, a configured
 * budget, or low_memory. With the last two the cost of moves is not watched. */
START_TEST(others_stay_as_they_are) {
    if (_i == 1)
        settings.page = settings.small_page;
    if (_i == 3)
        settings.page = 16 * MIB;
    if (_i == 2)
        settings.page_budget = 0.2;
    if (_i == 4)
        settings.page_budget = 0.05; /* the cost of moving is not watched */
    if (_i == 5)
        settings.frugal = true;
    ac_allocator_configure(allocator, &settings);
    if (_i == 1)
        cut_pages(BLOCKS, 3 * MIB, 4 * MIB);
    else if (_i == 3)
        cut_pages(BLOCKS, 40 * MIB, 48 * MIB);
    else
        cut_pages(_i ? BLOCKS : 30, 20 * MIB, 24 * MIB);
    ck_assert(!is_fine());
}
END_TEST

/* Idle small pages do not count as rests. */
START_TEST(rests_of_medium_blocks_do_not_count) {
    enum { MEDIUM = 600, ON_A_PAGE = 8 };
    static uint64_t medium[MEDIUM];
    for (int i = 0; i < MEDIUM; i++)
        medium[i] = alloc(256 << 10);
    cut_pages(BLOCKS, 24 * MIB, 0);
    for (int i = 0; i < MEDIUM; i++)
        if (i % ON_A_PAGE)
            give(medium[i]);
    grow_by(32 * MIB);
    ck_assert(!is_fine());
}
END_TEST

/* While pages may not move, rests are not the reason for the growth. */
START_TEST(not_while_the_device_works) {
    cut_pages(BLOCKS, 20 * MIB, 0);
    submit(0);
    grow_by(24 * MIB);
    ck_assert(!is_fine());
    end_idle();
}
END_TEST

/* Rests are not the only reason if much more was allocated meanwhile. */
START_TEST(not_where_more_was_taken) {
    cut_pages(BLOCKS, 12 * MIB, 0);
    submit(0);
    grow_by(16 * MIB);
    complete(0);
    uint64_t before = reserved();
    for (int i = 0; i < 30; i++)
        alloc(16 * MIB);
    ck_assert_uint_gt(reserved(), before);
    ck_assert(!is_fine());
}
END_TEST

/* After a program has doubled, the allocator checks again whether new blocks leave rests. Old blocks are no
 * reason to begin again. */
START_TEST(it_ends_where_new_blocks_leave_no_rests) {
    cut_pages(BLOCKS, 12 * MIB, 16 * MIB);
    ck_assert(is_fine());
    if (_i)
        cut_pages(BLOCKS / 2, 14 * MIB, 0);
    for (int i = 0; i < 8; i++)
        alloc(128 * MIB);
    ck_assert_int_eq(is_fine(), _i);
    ck_assert_int_eq(pages_for(120 * MIB) > 20, _i);
    for (int i = 0; i < 20; i++)
        alloc(16 * MIB);
    ck_assert_int_eq(is_fine(), _i);
}
END_TEST

/* A configured page size applies to all new pages. Fine pages end with a new page size, a configured
 * budget, or low_memory: with the last two the cost of moves is not watched. */
START_TEST(it_ends_with_the_settings) {
    cut_pages(BLOCKS, 20 * MIB, 24 * MIB);
    ck_assert(is_fine());
    if (_i == 1)
        settings.page = 64 * MIB;
    if (_i == 2)
        settings.page_budget = 0.05;
    if (_i == 3)
        settings.frugal = true;
    ac_allocator_configure(allocator, &settings);
    ck_assert_int_eq(is_fine(), _i == 0);
    if (_i == 1)
        ck_assert_uint_eq(pages_for(256 * MIB), 4);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fine");
    TCase *tests = tcase_create("fine");
    tcase_add_checked_fixture(tests, begin_paged, end);
    tcase_add_test(tests, pages_become_fine);
    tcase_add_test(tests, large_requests_get_whole_pages);
    tcase_add_loop_test(tests, others_stay_as_they_are, 0, 6);
    tcase_add_test(tests, rests_of_medium_blocks_do_not_count);
    tcase_add_test(tests, not_while_the_device_works);
    tcase_add_test(tests, not_where_more_was_taken);
    tcase_add_loop_test(tests, it_ends_where_new_blocks_leave_no_rests, 0, 2);
    tcase_add_loop_test(tests, it_ends_with_the_settings, 0, 4);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
