/* Medium blocks on the fake device. Pages of several sizes in one arena: which blocks get the smaller pages, how
 * memory changes between sizes, and which pages can go back.
 *
 * Native segments: when medium and big blocks get segments of their own. */
#include "allocator/supply/expand.h"
#include "allocator/supply/medium.h"
#include "allocator_frame.h"
#include "run_suite.h"

static void begin_paged(void) {
    begin((uint64_t)1 << 30);
    settings.expandable_segments = true;
    settings.page = 8 * MIB;
    settings.small_page = AC_SEGMENT_ALIGN;
    ac_allocator_configure(allocator, &settings);
}

static unsigned index_at(uint64_t address) {
    ac_lock(&allocator->lock);
    unsigned index = ac_page_map_find(address)->segment->index;
    ac_unlock(&allocator->lock);
    return index;
}

/* --- medium blocks --- */

/* Allocates pairs of a large and a medium block. The large one is freed; the medium one stays and keeps its
 * page. */
static void keep_pages(uint64_t large, uint64_t medium) {
    uint64_t address[20];
    for (int i = 0; i < 20; i++) {
        address[i] = alloc(large);
        ck_assert_uint_eq(index_at(alloc(medium)), AC_POOL_LARGE);
    }
    for (int i = 0; i < 20; i++)
        give(address[i]);
    alloc(100 * MIB); /* has to grow, by more than the live bytes explain */
}

START_TEST(medium_blocks_get_pages_of_their_own) {
    keep_pages(8 * MIB, 600 << 10);
    uint64_t medium = alloc(600 << 10);
    ck_assert_uint_eq(index_at(medium), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(index_at(alloc(2 * MIB)), AC_POOL_LARGE);
    ck_assert_uint_eq(alloc(600 << 10), medium + (600 << 10));
    give(medium);
    ck_assert_uint_eq(alloc(600 << 10), medium);
}
END_TEST

START_TEST(others_do_not_for_pages_that_large_ones_keep) {
    keep_pages(8 * MIB, 3 * MIB);
    ck_assert_uint_eq(index_at(alloc(600 << 10)), AC_POOL_LARGE);
}
END_TEST

/* Small medium blocks get small pages at once, even if none kept a large page. If all pages have one size, all
 * medium blocks do. */
START_TEST(small_medium_blocks_get_them_at_once) {
    uint64_t large = alloc(2 * MIB), before = reserved();
    ck_assert_uint_eq(index_at(alloc(513 << 10)), AC_POOL_LARGE);
    ck_assert_uint_eq(reserved(), before);
    ck_assert_uint_eq(index_at(alloc(512 << 10)), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(reserved(), before + AC_SEGMENT_ALIGN);
    settings.page = settings.small_page;
    ac_allocator_configure(allocator, &settings);
    ck_assert_uint_eq(index_at(alloc(MIB)), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(index_at(alloc(MIB + 512)), AC_POOL_LARGE);
    give(large);
}
END_TEST

/* During a capture no new memory is available. Free memory of large or medium blocks serves both. */
START_TEST(blocks_lie_together_beside_a_capture) {
    uint64_t large = alloc(3 * MIB), medium = alloc(200 << 10);
    for (int i = 1; i < 10; i++)
        alloc(200 << 10);
    ck_assert_uint_eq(index_at(medium), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(index_at(large), AC_POOL_LARGE);
    atomic_store(&context[0].capturing, true);
    uint64_t calls = device.total_calls, beside = alloc(200 << 10);
    ck_assert_uint_eq(index_at(beside), AC_POOL_LARGE);
    give(medium);
    ck_assert_uint_eq(alloc(180 << 10), medium);
    ck_assert_uint_eq(device.total_calls, calls);
    atomic_store(&context[0].capturing, false);
}
END_TEST

/* --- pages of several sizes --- */

/* Makes a hole of 64 MiB between two blocks of 1 MiB, with 3 whole pages of 16 MiB. */
static void make_hole(void) {
    settings.page = 16 * MIB;
    ac_allocator_configure(allocator, &settings);
    alloc(MIB);
    uint64_t hole = alloc(64 * MIB);
    alloc(MIB);
    give(hole);
    ck_assert_uint_eq(reserved(), 80 * MIB);
}

/* Medium blocks take a page of large ones before the arena grows beyond the budget. */
START_TEST(whole_pages_move_to_medium_blocks) {
    make_hole();
    for (int i = 0; i < 80; i++)
        ck_assert_uint_eq(index_at(alloc(200 << 10)), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(reserved(), 80 * MIB);
    ck_assert_uint_eq(counters.pages_moved, 1);
    ck_assert_uint_eq(counters.driver_frees, 0);
}
END_TEST

/* A page that is too large goes back, and a fitting page is created. */
START_TEST(pages_that_do_not_fit_go) {
    make_hole();
    settings.page = 8 * MIB;
    ac_allocator_configure(allocator, &settings);
    alloc(200 << 10);
    ck_assert_uint_eq(reserved(), 66 * MIB);
    ck_assert_uint_eq(counters.driver_frees, 1);
    ck_assert_uint_eq(counters.pages_moved, 0);
}
END_TEST

/* Makes three pages that medium blocks have left. */
static void make_idle_pages(void) {
    enum { BLOCKS = 3 * 8 };
    uint64_t block[BLOCKS];
    settings.page_budget = 0.001;
    ac_allocator_configure(allocator, &settings);
    alloc(40 * MIB);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = alloc(256 << 10);
    for (int i = 0; i < BLOCKS; i++)
        give(block[i]);
}

/* Pages that were considered for a larger page, but do not suffice, stay as idle as before. */
START_TEST(what_is_given_up_stays_as_old) {
    enum { EPOCHS = 5 };
    make_idle_pages();
    for (int i = 0; i < EPOCHS; i++)
        ac_allocator_decay(allocator, EPOCHS);
    ck_assert_uint_eq(reserved(), 46 * MIB);
    alloc(4096);
    ck_assert_uint_eq(counters.pages_moved, 1);
    ck_assert_uint_eq(reserved(), 46 * MIB);
    ac_allocator_decay(allocator, EPOCHS);
    ck_assert_uint_eq(reserved(), 42 * MIB);
}
END_TEST

/* Another thread begins to submit after the device was found idle. */
static bool enter_meanwhile(void *unused) {
    (void)unused;
    ac_fence_enter(ac_arena_timeline(arena));
    return false;
}

static void leave_it(void *unused, ac_block_t *block) {
    (void)unused, (void)block;
}

/* The device is done with these pages too. The growth uses them at once. */
START_TEST(what_is_given_up_stays_as_ready) {
    make_idle_pages();
    ck_assert_uint_eq(reserved(), 46 * MIB);
    ac_growth_ask_t ask = {.arena = arena,
                           .pool = AC_POOL_SMALL,
                           .size = 4096,
                           .look = enter_meanwhile,
                           .serve = leave_it};
    ck_assert_int_eq(ac_supply_grow(&ask), AC_OK);
    ck_assert_uint_eq(counters.pages_moved, 1);
    ck_assert_uint_eq(reserved(), 46 * MIB);
    ac_fence_leave(ac_arena_timeline(arena));
}
END_TEST

/* The device is done with the submitted work, but no thread has polled it. A request polls before it grows. */
START_TEST(the_device_is_asked_before_growing) {
    make_hole();
    settings.page = (_i ? 8 : 16) * MIB;
    ac_allocator_configure(allocator, &settings);
    submit(0);
    complete(0);
    alloc(200 << 10);
    ck_assert_uint_le(reserved(), 80 * MIB);
    ck_assert_uint_eq(counters.pages_moved, !_i);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], 0);
}
END_TEST

/* Whichever device call fails meanwhile, the records are correct, and the next request is served. */
START_TEST(a_call_fails_meanwhile) {
    make_hole();
    settings.page = 8 * MIB;
    ac_allocator_configure(allocator, &settings);
    uint64_t before = device.total_calls, address;
    for (int k = 0; k < FAKE_KINDS; k++)
        device.fail_with[k] = fake_may_answer((fake_kind_t)k, AC_FAILED) ? AC_FAILED : AC_OK;
    device.fail_at = device.total_calls + (unsigned)_i;
    ac_status_t status = try_alloc(arena, 200 << 10, &address);
    ck_assert(status == AC_OK || device.failed == 1); /* some pages are created again */
    ck_assert_uint_gt(device.total_calls, before);
    device.fail_at = 0;
    alloc(200 << 10);
}
END_TEST

static void refuse_unmapping(void *unused, fake_kind_t kind) {
    (void)unused;
    if (kind == FAKE_PAGES_UNMAP)
        device.fail_at = device.total_calls + 1;
}

/* At the limit, pages whose release failed leave no room for others. */
START_TEST(pages_that_stay_count_for_the_limit) {
    uint64_t address;
    make_hole();
    settings.page = 8 * MIB;
    settings.limit = 80 * MIB;
    ac_allocator_configure(allocator, &settings);
    device.fail_with[FAKE_PAGES_UNMAP] = AC_FAILED;
    device.before = refuse_unmapping;
    ck_assert_int_ne(try_alloc(arena, 200 << 10, &address), AC_OK);
    ck_assert_uint_gt(device.failed, 0);
    ck_assert_uint_eq(reserved(), 80 * MIB);
    device.before = NULL;
    device.fail_at = 0;
    alloc(200 << 10);
    ck_assert_uint_eq(reserved(), 66 * MIB);
}
END_TEST

/* Smaller pages move like all others. Only the missing bytes are new device memory. */
START_TEST(smaller_pages_move) {
    enum { BLOCKS = 16 };
    uint64_t block[BLOCKS];
    alloc(40 * MIB);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = alloc(256 << 10);
    for (int i = 0; i < BLOCKS; i++)
        give(block[i]);
    ck_assert_uint_eq(reserved(), 44 * MIB);
    uint64_t large = alloc(7 * MIB);
    ck_assert(fake_usable(&device, large, 7 * MIB));
    ck_assert_uint_eq(counters.pages_moved, 2);
    ck_assert_uint_eq(device.calls[FAKE_PAGES_UNMAP], 1);
    ck_assert_uint_eq(reserved(), 48 * MIB);
    give(large);
    uint64_t larger = alloc(15 * MIB); /* at the address of the freed block */
    ck_assert(fake_usable(&device, larger, 15 * MIB));
    ck_assert_uint_eq(larger, large);
}
END_TEST

/* --- what can go --- */

/* While the device works, memory that could go back is due later. A hole within a page cannot go back. */
START_TEST(holes_within_pages_are_not_owed) {
    uint64_t a = alloc(4 * MIB), b = alloc(4 * MIB);
    give(b);
    if (_i)
        give(a);
    submit(0);
    ck_assert(!ac_supply_may_shrink(allocator, 0));
    ck_assert_int_eq(atomic_load(&allocator->supply->trim_pending), _i);
    complete(0); /* completes the fence under way */
    ac_fence_poll(ac_arena_timeline(arena), false);
}
END_TEST

/* --- native segments --- */

/* Makes 400 MiB in segments of 40 MiB. Each is free except for a block of `between` bytes in its middle. */
static void cut_segments(uint64_t between) {
    enum { SEGMENTS = 10 };
    uint64_t segment[SEGMENTS], end[SEGMENTS];
    for (int i = 0; i < SEGMENTS; i++)
        segment[i] = alloc(40 * MIB);
    for (int i = 0; i < SEGMENTS; i++) {
        give(segment[i]);
        ck_assert_uint_eq(alloc(20 * MIB), segment[i]);
        alloc(between);
        end[i] = alloc(20 * MIB - between);
    }
    for (int i = 0; i < SEGMENTS; i++) {
        give(segment[i]);
        give(end[i]);
    }
    ck_assert_uint_eq(reserved(), 400 * MIB);
}

/* A large request grows because medium blocks fragment the segments. The next medium blocks avoid segments of
 * large ones, and share a segment. */
START_TEST(medium_blocks_get_native_segments_of_their_own) {
    cut_segments(500 << 10);
    ck_assert_uint_eq(index_at(alloc(500 << 10)), AC_POOL_LARGE);
    alloc(39 * MIB);
    uint64_t before = reserved(), medium = alloc(500 << 10);
    ck_assert_uint_eq(index_at(medium), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(reserved(), before + 6 * MIB); /* 1/64 of the live bytes */
    ck_assert_uint_eq(alloc(MIB), medium + (500 << 10));
    ck_assert_uint_eq(index_at(alloc(MIB + 512)), AC_POOL_LARGE);
    give(medium);
    ck_assert_uint_eq(alloc(500 << 10), medium);
}
END_TEST

/* Medium blocks take only the segments that they need if little memory is left, or if memory has to be saved. */
START_TEST(segments_of_medium_blocks_are_small_where_memory_is_short) {
    cut_segments(500 << 10);
    alloc(39 * MIB);
    if (_i == 0)
        settings.limit = reserved() + 30 * MIB;
    else
        settings.exact = true;
    ac_allocator_configure(allocator, &settings);
    uint64_t before = reserved(), medium = alloc(500 << 10);
    ck_assert_uint_eq(index_at(medium), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(reserved(), before + 2 * MIB);
}
END_TEST

/* The rule does not apply in these cases: large blocks cause the fragmentation, the program mostly holds medium
 * blocks, or it holds little. */
START_TEST(others_do_not_for_what_keeps_large_requests_out) {
    if (_i == 0) {
        cut_segments(2 * MIB);
    } else if (_i == 1) {
        cut_segments(500 << 10);
        for (int i = 0; i < 120; i++)
            alloc(MIB);
    } else {
        settings.large_segment_size = 60 * MIB;
        ac_allocator_configure(allocator, &settings);
        cut_segments(500 << 10);
    }
    alloc(39 * MIB);
    ck_assert_uint_eq(index_at(alloc(500 << 10)), AC_POOL_LARGE);
}
END_TEST

/* A large segment is not split for a medium block, not even for the first one. */
START_TEST(medium_blocks_come_apart_from_large_segments) {
    uint64_t large = alloc(1000 * MIB);
    give(large);
    ck_assert_uint_eq(index_at(alloc(500 << 10)), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(alloc(1000 * MIB), large);
}
END_TEST

/* Free memory around a large segment's rest does not matter. It will coalesce with the waiting neighbour. */
START_TEST(rests_of_large_segments_stay_for_large_blocks) {
    uint64_t segment = alloc(1000 * MIB);
    give(segment);
    uint64_t first = alloc(990 * MIB);
    ck_assert_uint_eq(first, segment);
    ck_assert_uint_eq(index_at(alloc(500 << 10)), AC_INDEX_MEDIUM);
}
END_TEST

/* The rule does not apply to a segment that is small for the program, to a program that holds little, or to a
 * larger request. */
START_TEST(others_cut_segments_up) {
    static const uint64_t live[] = {1000, 0, 1000}, segment[] = {40, 100, 1000};
    static const uint64_t size[] = {500 << 10, 500 << 10, MIB + 512};
    if (_i == 0)
        alloc(live[_i] * MIB);
    give(alloc(segment[_i] * MIB));
    ck_assert_uint_eq(index_at(alloc(size[_i])), AC_POOL_LARGE);
}
END_TEST

/* Cuts segments, and makes the allocator separate medium blocks. */
static void come_apart(void) {
    cut_segments(500 << 10);
    alloc(39 * MIB);
}

/* Idle memory beyond the budget goes back before medium blocks get more. */
START_TEST(idle_memory_makes_room_for_medium_blocks) {
    come_apart();
    uint64_t large = alloc(400 * MIB);
    give(large);
    uint64_t before = reserved();
    alloc(500 << 10);
    ck_assert_uint_lt(reserved(), before - 300 * MIB);
}
END_TEST

/* The device refuses to take an idle segment back. The segment stays one for medium blocks. */
START_TEST(refused_segments_stay_what_they_are) {
    come_apart();
    uint64_t medium = alloc(500 << 10), before = reserved();
    ck_assert_uint_eq(index_at(medium), AC_INDEX_MEDIUM);
    give(medium);
    device.fail_with[FAKE_SEGMENT_FREE] = AC_BUSY;
    device.fail_at = device.total_calls + 1;
    ac_allocator_trim(allocator, false);
    device.fail_at = 0;
    ck_assert_uint_gt(device.failed, 0);
    ck_assert_uint_eq(reserved(), before);
    ck_assert_uint_eq(alloc(500 << 10), medium);
    ck_assert_uint_eq(index_at(medium), AC_INDEX_MEDIUM);
}
END_TEST

/* Before a request fails, free memory of both kinds serves it. */
START_TEST(either_serves_before_a_request_fails) {
    come_apart();
    uint64_t medium = alloc(500 << 10), large;
    ck_assert_uint_eq(index_at(medium), AC_INDEX_MEDIUM);
    device.capacity = reserved();
    while (try_alloc(arena, 5 * MIB, &large) == AC_OK && index_at(large) == AC_POOL_LARGE)
        ;
    ck_assert_uint_eq(index_at(large), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(index_at(alloc(500 << 10)), AC_INDEX_MEDIUM);
    ck_assert_uint_eq(index_at(alloc(500 << 10)), AC_POOL_LARGE);
}
END_TEST

/* At the limit both kinds serve at once, without a device call. */
START_TEST(either_serves_at_the_limit) {
    come_apart();
    uint64_t first = alloc(500 << 10), medium = first, last;
    settings.limit = reserved();
    ac_allocator_configure(allocator, &settings);
    submit(0);
    uint64_t calls = device.total_calls;
    do {
        last = medium;
        medium = alloc(500 << 10);
    } while (index_at(medium) == AC_INDEX_MEDIUM);
    ck_assert_uint_ne(last, first);
    ck_assert_uint_eq(index_at(medium), AC_POOL_LARGE);
    ck_assert_uint_eq(device.total_calls, calls);
}
END_TEST

/* --- big blocks --- */

/* Cuts segments by blocks that are not big. A big request has then grown because of this. */
static void big_come_apart(void) {
    cut_segments(4 * MIB);
    alloc(39 * MIB);
    for (int i = 0; i < 100; i++)
        give(alloc(1000)); /* requests, which pay for the search */
    alloc(39 * MIB);
}

/* Smaller blocks avoid the segments of big ones. Each of these holds one big block, and serves the next big
 * one. */
START_TEST(big_blocks_get_segments_of_their_own) {
    big_come_apart();
    uint64_t before = reserved(), big = alloc(300 * MIB);
    ck_assert_uint_eq(index_at(big), AC_INDEX_BIG);
    ck_assert_uint_eq(reserved(), before + 300 * MIB);
    give(big);
    uint64_t large = alloc(19 * MIB);
    ck_assert_uint_eq(index_at(large), AC_POOL_LARGE);
    ck_assert_uint_eq(alloc(300 * MIB), big);
}
END_TEST

/* Big blocks share segments if the small ones do not fragment them, or if the program uses pages. */
START_TEST(big_blocks_lie_together_with_others) {
    if (_i == 0)
        cut_segments(30 * MIB / 2);
    else
        alloc(100 * MIB);
    alloc(300 * MIB);
    alloc(39 * MIB);
    uint64_t big = alloc(300 * MIB);
    ck_assert_uint_eq(index_at(big), AC_POOL_LARGE);
}
END_TEST

/* Before a request fails, free memory next to a big block serves it. */
START_TEST(segments_of_big_blocks_serve_before_a_request_fails) {
    big_come_apart();
    uint64_t big = alloc(300 * MIB), small = alloc(100 * MIB), large;
    give(big);
    ck_assert_uint_eq(alloc(200 * MIB), big);
    device.capacity = reserved();
    while (try_alloc(arena, 19 * MIB, &large) == AC_OK && index_at(large) == AC_POOL_LARGE)
        ;
    ck_assert_uint_eq(index_at(large), AC_INDEX_BIG);
    ck_assert_uint_eq(large, big + 200 * MIB);
    give(small);
}
END_TEST

/* If no new memory is available, at the limit or during a capture, it serves at once, without a device call. */
START_TEST(segments_of_big_blocks_serve_where_nothing_can_be_had) {
    big_come_apart();
    uint64_t big = alloc(300 * MIB), large = big;
    give(big);
    ck_assert_uint_eq(alloc(200 * MIB), big);
    if (_i == 0) {
        settings.limit = reserved();
        ac_allocator_configure(allocator, &settings);
        submit(0);
    } else {
        atomic_store(&context[0].capturing, true);
    }
    uint64_t calls = device.total_calls;
    for (int i = 0; i < 40 && index_at(large) == (i ? AC_POOL_LARGE : AC_INDEX_BIG); i++)
        large = alloc(19 * MIB);
    ck_assert_uint_eq(large, big + 200 * MIB);
    ck_assert_uint_eq(index_at(large), AC_INDEX_BIG);
    ck_assert_uint_eq(device.total_calls, calls);
    atomic_store(&context[0].capturing, false);
}
END_TEST

/* Makes `requests` requests, and a trade every `every` requests. */
static void trade(int requests, int every) {
    for (int i = 0; i < requests; i++) {
        give(alloc(1000));
        if (i % every == 0) {
            ac_lock(&allocator->lock);
            ac_big_note_trade(allocator);
            ac_unlock(&allocator->lock);
        }
    }
}

/* Frees big blocks of 300 MiB and allocates smaller ones in their places. */
static void leave_beside_big(int count, uint64_t size, uint64_t big[]) {
    big_come_apart();
    for (int i = 0; i < count; i++)
        big[i] = alloc(300 * MIB);
    for (int i = 0; i < count; i++)
        give(big[i]);
    for (int i = 0; i < count; i++)
        ck_assert_uint_eq(index_at(alloc(size)), AC_INDEX_BIG);
}

/* Other requests do not exceed the budget while much idle memory lies next to big blocks. They do if it is
 * little. */
START_TEST(big_blocks_join_others_that_grow_beyond_the_budget) {
    enum { BIG = 5, MOST = 40 };
    uint64_t big[BIG], before;
    int count = 0;
    leave_beside_big(BIG, (_i ? 270 : 160) * MIB, big);
    before = reserved();
    while (index_at(big[0]) == AC_INDEX_BIG && count++ < MOST)
        alloc(19 * MIB);
    ck_assert_int_eq(count <= MOST, !_i);
    if (_i == 0)
        ck_assert_uint_lt(reserved(), before + before / 8);
    ck_assert_int_eq(allocator->supply->big.apart, _i);
}
END_TEST

static void join_all(void *unused, fake_kind_t kind) {
    (void)unused;
    if (kind != FAKE_SEGMENT_ALLOC)
        return;
    ac_lock(&allocator->lock);
    ck_assert(!ac_big_stays_apart(allocator, 0));
    ac_unlock(&allocator->lock);
}

/* During a device call, another thread makes all segments serve all sizes. The new segment is then like any
 * other, and no call counts as under way. */
START_TEST(big_blocks_join_during_a_call) {
    uint64_t beside;
    leave_beside_big(1, 160 * MIB, &beside);
    device.before = join_all;
    uint64_t big = alloc(300 * MIB);
    device.before = NULL;
    ck_assert_uint_eq(index_at(big), AC_POOL_LARGE);
    for (int i = 0; i < AC_INDICES; i++) {
        ck_assert_uint_eq(arena->growths->calls[i], 0);
        ck_assert_uint_eq(arena->growths->coming[i], 0);
    }
}
END_TEST

/* A block that was big in a small program is not big after the program has grown. */
START_TEST(segments_of_what_is_no_longer_big_serve_all) {
    big_come_apart();
    uint64_t big = alloc(40 * MIB);
    ck_assert_uint_eq(index_at(big), AC_INDEX_BIG);
    for (int i = 0; i < 3; i++)
        alloc(1000 * MIB);
    ck_assert_uint_eq(index_at(alloc(40 * MIB)), AC_POOL_LARGE);
    ck_assert_uint_eq(index_at(big), AC_POOL_LARGE);
}
END_TEST

/* A program with ever new sizes would trade segments forever, so all segments serve all sizes. An occasional
 * trade is accepted. */
START_TEST(big_blocks_join_others_where_that_takes_many_calls) {
    big_come_apart();
    uint64_t big = alloc(300 * MIB);
    trade(20 * 512, _i ? 128 : 32);
    ck_assert_int_eq(allocator->supply->big.apart, _i);
    ck_assert_uint_eq(index_at(big), _i ? AC_INDEX_BIG : AC_POOL_LARGE);
}
END_TEST

/* Requests pay for walks of many blocks under the lock, so that walks are rare. */
START_TEST(large_growth_looks_at_blocks_now_and_then) {
    enum { BLOCKS = 8000 };
    static uint64_t block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        block[i] = alloc(MIB + 512);
    for (int i = 0; i < BLOCKS; i += 2)
        give(block[i]);
    alloc(600 * MIB);
    uint64_t owed = allocator->supply->medium.owed;
    ck_assert_uint_gt(owed, BLOCKS / 4);
    alloc(600 * MIB);
    ck_assert_uint_lt(allocator->supply->medium.owed, owed);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("medium");
    TCase *tests = tcase_create("medium");
    tcase_add_checked_fixture(tests, begin_paged, end);
    tcase_add_test(tests, medium_blocks_get_pages_of_their_own);
    tcase_add_test(tests, others_do_not_for_pages_that_large_ones_keep);
    tcase_add_test(tests, small_medium_blocks_get_them_at_once);
    tcase_add_test(tests, blocks_lie_together_beside_a_capture);
    tcase_add_test(tests, whole_pages_move_to_medium_blocks);
    tcase_add_test(tests, pages_that_do_not_fit_go);
    tcase_add_test(tests, what_is_given_up_stays_as_old);
    tcase_add_test(tests, what_is_given_up_stays_as_ready);
    tcase_add_loop_test(tests, the_device_is_asked_before_growing, 0, 2);
    tcase_add_loop_test(tests, a_call_fails_meanwhile, 1, 8);
    tcase_add_test(tests, pages_that_stay_count_for_the_limit);
    tcase_add_test(tests, smaller_pages_move);
    tcase_add_loop_test(tests, holes_within_pages_are_not_owed, 0, 2);
    suite_add_tcase(suite, tests);
    TCase *native = tcase_create("native");
    tcase_add_checked_fixture(native, begin_large, end);
    tcase_add_test(native, medium_blocks_get_native_segments_of_their_own);
    tcase_add_loop_test(native, segments_of_medium_blocks_are_small_where_memory_is_short, 0, 2);
    tcase_add_loop_test(native, others_do_not_for_what_keeps_large_requests_out, 0, 3);
    tcase_add_test(native, medium_blocks_come_apart_from_large_segments);
    tcase_add_test(native, rests_of_large_segments_stay_for_large_blocks);
    tcase_add_loop_test(native, others_cut_segments_up, 0, 3);
    tcase_add_test(native, idle_memory_makes_room_for_medium_blocks);
    tcase_add_test(native, refused_segments_stay_what_they_are);
    tcase_add_test(native, either_serves_before_a_request_fails);
    tcase_add_test(native, either_serves_at_the_limit);
    tcase_add_test(native, big_blocks_get_segments_of_their_own);
    tcase_add_loop_test(native, big_blocks_lie_together_with_others, 0, 2);
    tcase_add_test(native, segments_of_big_blocks_serve_before_a_request_fails);
    tcase_add_loop_test(native, segments_of_big_blocks_serve_where_nothing_can_be_had, 0, 2);
    tcase_add_loop_test(native, big_blocks_join_others_that_grow_beyond_the_budget, 0, 2);
    tcase_add_test(native, big_blocks_join_during_a_call);
    tcase_add_test(native, segments_of_what_is_no_longer_big_serve_all);
    tcase_add_loop_test(native, big_blocks_join_others_where_that_takes_many_calls, 0, 2);
    tcase_add_test(native, large_growth_looks_at_blocks_now_and_then);
    suite_add_tcase(suite, native);
    return run_suite(suite);
}
