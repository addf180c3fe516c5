/* The allocator on a fake device: single behaviours and edge cases of the request ladder. */
#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "run_suite.h"

/* --- reuse --- */

START_TEST(reuse_without_device_calls) {
    uint64_t a = alloc(3 * MIB);
    unsigned calls = device.total_calls;
    give(a);
    ck_assert_uint_eq(alloc(3 * MIB), a);
    give(a);
    uint64_t b = 0;
    ck_assert_int_eq(ac_arena_alloc(arena, 3 * MIB, true, &b), AC_OK);
    ck_assert_uint_eq(b, a);
    ck_assert_int_eq(ac_arena_alloc(arena, 300 * MIB, true, &b), AC_BUSY);
    ck_assert_uint_eq(device.total_calls, calls);
    ck_assert_uint_eq(counters.ready_frees, 2);
}
END_TEST

START_TEST(work_keeps_memory_from_reuse) {
    raise_high_water(400 * MIB);
    alloc(100 * MIB); /* from here on a fence pays for the memory it makes reusable */
    uint64_t a = alloc(3 * MIB);
    alloc(17 * MIB); /* the rest of the segment */
    submit(0);
    give(a);
    ck_assert_uint_eq(counters.fenced_frees, 1);
    ck_assert_uint_gt(atomic_load(&ac_arena_timeline(arena)->open), 0);
    ck_assert_uint_ne(alloc(3 * MIB), a);
    alloc(17 * MIB);
    fake_complete(&context[0], 1);
    ck_assert_uint_eq(alloc(3 * MIB), a); /* the request polls before it calls the device */
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 4);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], 0);
}
END_TEST

/* Small blocks alternate with work. They share a fence, and memory stays within the smallest
 * budget. */
START_TEST(a_small_program_takes_few_fences) {
    for (int i = 0; i < 6400; i++) {
        uint64_t a = alloc(MIB);
        if (ac_fence_full(ac_arena_timeline(arena)))
            ac_fence_close(ac_arena_timeline(arena), false);
        submit(0);
        give(a);
        if (i % 10 == 9) /* the device lags a little */
            fake_complete(&context[0], atomic_load(&context[0].submitted) - 5);
    }
    ck_assert_uint_gt(counters.fenced_frees, 6000);
    ck_assert_uint_le(device.calls[FAKE_RECORD], 6400 / 64 + AC_FENCE_FIRST);
    ck_assert_uint_le(reserved(), 120 * MIB);
    ck_assert_uint_eq(counters.fence_waits, 0);
}
END_TEST

/* Each of these blocks is large enough to be worth a fence. */
START_TEST(large_blocks_are_waited_for_within_the_budget) {
    for (int i = 0; i < 100; i++) {
        uint64_t a = alloc(100 * MIB);
        if (ac_fence_full(ac_arena_timeline(arena)))
            ac_fence_close(ac_arena_timeline(arena), false);
        submit(0);
        give(a);
    }
    ck_assert_uint_le(reserved(), 125 * MIB);
}
END_TEST

START_TEST(a_block_born_after_the_work_is_ready) {
    submit(0);
    uint64_t a = alloc(3 * MIB);
    give(a);
    ck_assert_uint_eq(counters.ready_frees, 1);
    ck_assert_uint_eq(alloc(3 * MIB), a);
    ck_assert_int_eq(ac_block_mark_used(a), AC_OK);
    give(a);
    ck_assert_uint_eq(counters.fenced_frees, 1);
}
END_TEST

/* A kernel does not end. The budget justifies at most one wait for it. */
START_TEST(growth_does_not_wait_for_ever) {
    uint64_t a = alloc(200 * MIB);
    device.endless = true;
    submit(0);
    give(a);
    uint64_t b = alloc(200 * MIB);
    ck_assert_uint_ne(b, a);
    ck_assert_uint_eq(counters.fence_waits, 1);
    give(b); /* ready: no work came during its life */
    alloc(200 * MIB);
    alloc(200 * MIB);
    ck_assert_uint_eq(counters.fence_waits, 1);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 3);
    device.endless = false;
    ac_allocator_trim(allocator, true); /* returns the fence */
}
END_TEST

/* One step of the wait runs out of time. The work is over when the next step begins. */
static void end_after_a_step(void *arg, fake_kind_t kind) {
    bool *stepped = arg;
    if (kind == FAKE_WAIT && !*stepped) {
        nanosleep(&(struct timespec){.tv_nsec = 110000000}, NULL);
        *stepped = true;
    } else if (kind == FAKE_QUERY && *stepped) {
        fake_complete(&context[0], atomic_load(&context[0].submitted));
    }
}

START_TEST(trim_gives_back_what_ended_between_steps) {
    bool stepped = false;
    uint64_t a = alloc(200 * MIB);
    submit(0);
    give(a);
    device.endless = true;
    device.arg = &stepped;
    device.before = end_after_a_step;
    ck_assert_uint_eq(ac_allocator_trim(allocator, true), 200 * MIB);
    ck_assert(stepped);
}
END_TEST

START_TEST(growth_waits_beyond_the_budget) {
    uint64_t a = alloc(200 * MIB);
    for (unsigned i = 0; i < 20; i++) { /* each request waits for the one before; none grows */
        submit(0);
        give(a);
        ck_assert_uint_eq(alloc(200 * MIB), a);
    }
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    ck_assert_uint_eq(counters.fence_waits, 20);
}
END_TEST

START_TEST(contexts_do_not_share_blocks) {
    uint64_t a = alloc(3 * MIB), b = 0;
    give(a);
    ck_assert_int_eq(try_alloc(other, 3 * MIB, &b), AC_OK);
    ck_assert_uint_ne(a, b);
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(b + 5, &info), AC_OK);
    ck_assert_ptr_eq(info.arena, other);
}
END_TEST

/* --- the edges of the interface --- */

START_TEST(addresses_that_are_not_allocated) {
    uint64_t a = alloc(3 * MIB);
    bool fresh;
    ck_assert_int_eq(ac_block_free(a + 512), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_free(a + 1), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_free(a + 4 * MIB), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_free(FAKE_BASE - 1), AC_NOT_OURS);
    ck_assert_int_eq(ac_block_free(UINT64_MAX), AC_NOT_OURS);
    give(a);
    ck_assert_int_eq(ac_block_free(a), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_taint(a, &fresh), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_block_mark_used(a), AC_BAD_ADDRESS);
    ac_allocator_trim(allocator, false);
    ck_assert_int_eq(ac_block_free(a), AC_NOT_OURS);
    ck_assert_ptr_null(ac_block_arena(a));
}
END_TEST

START_TEST(senseless_sizes) {
    uint64_t address;
    ck_assert_int_eq(try_alloc(arena, 0, &address), AC_OOM);
    ck_assert_int_eq(try_alloc(arena, UINT64_MAX, &address), AC_OOM);
    ck_assert_int_eq(try_alloc(arena, (uint64_t)1 << 48, &address), AC_OOM);
    ck_assert_int_eq(try_alloc(arena, ((uint64_t)1 << 48) - 1, &address), AC_OOM);
}
END_TEST

START_TEST(block_information) {
    uint64_t a = alloc(1000 * 1000 + 1);
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(a + 1000 * 1000, &info), AC_OK);
    ck_assert_uint_eq(info.address, a);
    ck_assert_uint_eq(info.requested, 1000 * 1000 + 1);
    ck_assert_uint_eq(info.size, (1000 * 1000 + 1 + 511) / 512 * 512);
    ck_assert_uint_eq(info.segment_size, 20 * MIB);
    ck_assert(info.allocated);
    ck_assert_int_eq(ac_block_find(a + info.size, &info), AC_OK);
    ck_assert(!info.allocated);
    ck_assert_int_eq(ac_block_find(a + 20 * MIB, &info), AC_NOT_OURS);
}
END_TEST

/* --- segment sizes: the policy of the large pool --- */

START_TEST(segments_have_the_sizes_of_the_policy) {
    alloc(1);
    ck_assert_uint_eq(reserved(), 2 * MIB);
    alloc(64 * 1024); /* the largest small size: same segment */
    ck_assert_uint_eq(reserved(), 2 * MIB);
    alloc(64 * 1024 + 1); /* the smallest large size */
    ck_assert_uint_eq(reserved(), 22 * MIB);
    alloc(400 * MIB + 1); /* larger than any budget: rounded to whole pages */
    ck_assert_uint_eq(reserved(), 424 * MIB);
}
END_TEST

START_TEST(segments_grow_with_what_is_reserved) {
    static const struct {
        uint64_t first, second;
    } rows[] = {{100, 20}, {320, 40}, {1600, 200}, {8000, 1000}, {16000, 1024}};
    uint64_t high = alloc(40000 * MIB);
    give(high);
    ac_allocator_trim(allocator, false);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t a = alloc(rows[i].first * MIB);
        uint64_t b = alloc(MIB);
        ck_assert_uint_eq(reserved(), (rows[i].first + rows[i].second) * MIB);
        give(a), give(b);
        ac_allocator_trim(allocator, false);
        ck_assert_uint_eq(reserved(), 0);
    }
}
END_TEST

/* The size leaves a third of its exact segment unused. Sharing segments costs few driver calls
 * and little waste. */
START_TEST(one_segment_for_several_requests) {
    const unsigned blocks = 200;
    for (unsigned i = 0; i < blocks; i++)
        alloc(3 * MIB);
    ck_assert_uint_le(reserved(), blocks * 3 * MIB * 11 / 10 + 4 * MIB);
    ck_assert_int_lt(device.calls[FAKE_SEGMENT_ALLOC], (int)blocks / 2);
}
END_TEST

START_TEST(idle_segments_go_before_growing_past_the_budget) {
    device.bump = true;
    uint64_t a = alloc(100 * MIB), b = alloc(100 * MIB), c = alloc(100 * MIB);
    give(b);
    give(a);
    give(c);
    alloc(110 * MIB); /* 410 are more than 1.1 x 300, 310 are not */
    ck_assert_uint_eq(reserved(), 310 * MIB);
    ck_assert_ptr_null(ac_block_arena(b)); /* the longest idle segment went */
    ck_assert_ptr_nonnull(ac_block_arena(a));
}
END_TEST

/* --- segments that one request fills --- */

enum { REST = 100 << 10 };

static bool lies_in(uint64_t address, uint64_t from, uint64_t bytes) {
    return address >= from && address < from + bytes;
}

START_TEST(what_a_large_request_leaves_serves_no_small_one) {
    uint64_t a = alloc(100 * MIB - REST);
    ck_assert_uint_eq(reserved(), 100 * MIB);
    ck_assert(!lies_in(alloc(REST - 4096), a, 100 * MIB));
    give(a);
    ck_assert_uint_eq(alloc(100 * MIB), a); /* nothing prevents a larger one */
}
END_TEST

START_TEST(beside_what_is_small_for_the_program_it_does) {
    raise_high_water(1000 * MIB);
    uint64_t a = alloc(100 * MIB - REST);
    ck_assert_uint_eq(reserved(), 100 * MIB);
    ck_assert(lies_in(alloc(REST - 4096), a, 100 * MIB));
}
END_TEST

START_TEST(the_rest_serves_once_a_part_is_free) {
    const ac_stream_t stream = 0x1000;
    uint64_t a, part;
    ac_arena_stream_is(arena, stream, true);
    ck_assert_int_eq(ac_arena_alloc_on(arena, stream, 100 * MIB - REST, false, &a), AC_OK);
    ck_assert_int_eq(ac_block_free_on(arena, stream, a), AC_OK);
    ck_assert_int_eq(ac_arena_alloc_on(arena, stream, 40 * MIB, false, &part), AC_OK);
    ck_assert_uint_eq(part, a);
    ck_assert_int_eq(ac_allocator_check(allocator, NULL), 0);
    give(part);
    ck_assert_uint_eq(alloc(100 * MIB), a);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
}
END_TEST

START_TEST(the_rest_serves_before_a_request_fails) {
    uint64_t a = alloc(64 * MIB - REST), b = alloc(REST - 4096);
    ck_assert(lies_in(b, a, 64 * MIB));
}
END_TEST

/* --- max_split_size --- */

static void set_max_split(uint64_t bytes) {
    settings.max_split_size = bytes;
    ac_allocator_configure(allocator, &settings);
}

START_TEST(oversize_blocks_stay_whole) {
    raise_high_water(1000 * MIB);
    set_max_split(30 * MIB);
    uint64_t a = alloc(40 * MIB);
    give(a);
    uint64_t b = alloc(MIB); /* may not split the large block */
    ck_assert(b < a || b >= a + 40 * MIB);
    ck_assert_uint_eq(alloc(35 * MIB), a); /* near enough: 20 MiB of slack */
    give(a);
    uint64_t c = alloc(100 * MIB);
    give(c);
    uint64_t d = alloc(79 * MIB); /* false: 100 < 79 + 20 */
    ck_assert_uint_ne(d, c);
    ck_assert_uint_eq(alloc(81 * MIB), c);
}
END_TEST

/* A request just below the limit gets a segment of the limit's size, and may reuse it. */
START_TEST(a_request_close_to_max_split_size) {
    set_max_split(21 * MIB);
    uint64_t a = alloc(20 * MIB + MIB / 2);
    give(a);
    unsigned calls = device.total_calls;
    ck_assert_uint_eq(alloc(20 * MIB + MIB / 2), a);
    ck_assert_uint_eq(device.total_calls, calls);
}
END_TEST

START_TEST(a_slack_smaller_than_a_page) {
    settings.large_segment_size = MIB / 2;
    set_max_split(30 * MIB);
    uint64_t a = alloc(30 * MIB + 512);
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(a, &info), AC_OK);
    ck_assert_uint_eq(info.size, 32 * MIB);
}
END_TEST

/* --- low memory --- */

START_TEST(segments_are_exact_and_large_blocks_whole) {
    settings.exact = true;
    ac_allocator_configure(allocator, &settings);
    alloc(3 * MIB);
    ck_assert_uint_eq(reserved(), 4 * MIB);
    uint64_t large = alloc(128 * MIB);
    give(large);
    ck_assert_uint_eq(alloc(64 * MIB), large); /* half of the large block */
    ck_assert_uint_eq(reserved(), 132 * MIB);
    uint64_t small = alloc(10 * MIB); /* not from the other half */
    ck_assert_uint_eq(reserved(), 142 * MIB);
    settings.limit = 142 * MIB;
    ac_allocator_configure(allocator, &settings);
    ck_assert_uint_eq(alloc(10 * MIB), large + 64 * MIB); /* preferred over a failure */
    give(small);
    ck_assert_uint_eq(alloc(10 * MIB), small);
}
END_TEST

/* --- the small limit --- */

START_TEST(the_small_limit_parts_the_pools) {
    static ac_cache_tally_t tally;
    settings.thread_cache = 64 * MIB;
    ac_allocator_configure(allocator, &settings);
    ac_cache_t *cache = ac_cache_open(arena, &tally);
    static const struct {
        uint64_t limit, bytes;
        int pool;
    } rows[] = {
        {256 << 10, 256 << 10, AC_POOL_SMALL}, {256 << 10, (256 << 10) + 1, AC_POOL_LARGE},
        {256 << 10, 1000, AC_POOL_SMALL},      {8192, 8192, AC_POOL_SMALL},
        {8192, 8193, AC_POOL_LARGE},           {8192, 70000, AC_POOL_LARGE}};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        settings.small_limit = rows[i].limit;
        ac_allocator_configure(allocator, &settings);
        for (int again = 0; again < 5; again++) { /* with the cache, if it takes part */
            uint64_t address;
            ac_device_stats_t now;
            ck_assert_int_eq(ac_cache_alloc(cache, rows[i].bytes, false, &address), AC_OK);
            ac_allocator_stats(allocator, &now);
            ck_assert_int_eq(now.allocation[rows[i].pool].current, 1);
            ck_assert_int_eq(now.allocation[AC_POOL_ALL].current, 1);
            ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
        }
    }
    ac_cache_close(cache);
}
END_TEST

/* --- roundup_power2_divisions --- */

START_TEST(divisions_round_exactly) {
    static const struct {
        uint32_t divisions;
        uint64_t bytes, size;
    } rows[] = {
        {0, 1, 512},
        {0, 512, 512},
        {0, 513, 1024},
        {4, 1200, 1536}, /* too small for steps of less than a granule */
        {4, 2049, 2560},
        {4, 1200 * 1024, 1280 * 1024},
        {4, 1280 * 1024, 1280 * 1024},
        {4, 1281 * 1024, 1536 * 1024},
        {4, 2047 * 1024, 2048 * 1024},
        {4, 2048 * 1024, 2048 * 1024},
        {8, 1025 * 1024, 1152 * 1024},
        {1, 1200 * 1024 + 1, 1200 * 1024 + 512},
        {2, 5 * MIB, 6 * MIB},
        {2, 6 * MIB + 1, 8 * MIB},
        {256, 131072, 131072},
        {256, 131073, 131584},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int k = 0; k < AC_DIVISION_SLOTS; k++)
            settings.divisions[k] = rows[i].divisions;
        ac_allocator_configure(allocator, &settings);
        uint64_t a = alloc(rows[i].bytes);
        ac_block_info_t info;
        ck_assert_int_eq(ac_block_find(a, &info), AC_OK);
        ck_assert_msg(info.size == rows[i].size, "row %u: %llu", i,
                      (unsigned long long)info.size);
        ck_assert_uint_eq(info.requested, rows[i].bytes);
        give(a);
    }
}
END_TEST

START_TEST(divisions_by_size) {
    static const struct {
        uint64_t bytes;
        int slot;
    } rows[] = {{MIB / 2 + 1, 0},   {MIB + 1, 0},          {2 * MIB - 1, 0}, {2 * MIB + 1, 1},
                {300 * MIB + 1, 8}, {40000 * MIB + 1, 15}, {70 * MIB + 1, 6}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int k = 0; k < AC_DIVISION_SLOTS; k++)
            settings.divisions[k] = k == rows[i].slot ? 2 : 0;
        ac_allocator_configure(allocator, &settings);
        uint64_t a = alloc(rows[i].bytes), power = MIB / 2;
        while (power * 2 <= rows[i].bytes)
            power *= 2;
        ac_block_info_t info;
        ck_assert_int_eq(ac_block_find(a, &info), AC_OK);
        uint64_t want = rows[i].bytes <= power + power / 2 ? power + power / 2 : 2 * power;
        ck_assert_uint_eq(info.size, want);
        give(a);
        ac_allocator_trim(allocator, false);
    }
}
END_TEST

/* --- limit and garbage collection --- */

START_TEST(the_limit_holds) {
    uint64_t address;
    settings.limit = 64 * MIB;
    ac_allocator_configure(allocator, &settings);
    ck_assert_uint_eq(ac_allocator_room(allocator), 64 * MIB);
    uint64_t a = alloc(60 * MIB);
    ck_assert_uint_eq(ac_allocator_room(allocator), 4 * MIB);
    unsigned calls = device.calls[FAKE_SEGMENT_ALLOC];
    ck_assert_int_eq(try_alloc(arena, 5 * MIB, &address), AC_OOM);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], calls); /* no device call */
    ck_assert_int_eq(stats.num_ooms, 1);
    alloc(3 * MIB); /* the exact size still fits */
    ck_assert_uint_eq(reserved(), 64 * MIB);
    give(a);
    ck_assert_int_eq(try_alloc(other, 50 * MIB, &address), AC_OK); /* the cached segment goes */
    ck_assert_uint_le(reserved(), 64 * MIB);
}
END_TEST

START_TEST(garbage_goes_above_the_threshold) {
    device.bump = true;
    raise_high_water(900 * MIB);
    settings.limit = 1000 * MIB;
    settings.gc_threshold = 0.5;
    ac_allocator_configure(allocator, &settings);
    uint64_t block[4];
    for (int i = 0; i < 4; i++)
        block[i] = alloc(100 * MIB);
    give(block[2]);
    give(block[0]);
    alloc(180 * MIB); /* 80 MiB too many: the longest idle segment goes, the other stays */
    ck_assert_uint_eq(reserved(), 480 * MIB);
    ck_assert_ptr_null(ac_block_arena(block[2]));
}
END_TEST

START_TEST(no_garbage_below_the_threshold) {
    settings.limit = 1000 * MIB;
    settings.gc_threshold = 0.9;
    ac_allocator_configure(allocator, &settings);
    raise_high_water(800 * MIB);
    unsigned calls = device.calls[FAKE_SEGMENT_FREE];
    uint64_t a = alloc(30 * MIB);
    alloc(300 * MIB);
    give(a);
    alloc(31 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_FREE], calls);
}
END_TEST

/* --- out of memory (64 MiB) --- */

/* Memory that only the order of a stream protects is idle, but not quiet. */
START_TEST(a_segment_goes_back_when_the_device_is_done_with_it) {
    atomic_store(&ac_sole_wanted, true);
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    uint64_t a = alloc(40 * MIB);
    ac_fence_enter(timeline);
    ac_sole_enter(timeline, 1, NULL);
    fake_submit(&context[0]);
    ac_fence_leave(timeline);
    give(a);
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 40 * MIB);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 0);
    const ac_shrink_t all = {.bytes = AC_UNLIMITED}; /* in any of the ways */
    ck_assert_uint_eq(ac_supply_shrink(allocator, &all), 0);
    ck_assert(atomic_load(&ac_trim_pending) && !ac_allocator_settle_debt(allocator));
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 40 * MIB);
    ck_assert(ac_allocator_settle_debt(allocator));
}
END_TEST

/* The segment cannot go at the free, because a stream's order protects it or work is pending. It
 * goes back later. */
START_TEST(a_tainted_segment_goes_back_later) {
    bool fresh;
    atomic_store(&ac_sole_wanted, _i == 0);
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    uint64_t a = alloc(40 * MIB);
    ck_assert_int_eq(ac_block_taint(a, &fresh), AC_OK);
    ac_fence_enter(timeline);
    ac_sole_enter(timeline, 1, NULL);
    fake_submit(&context[0]);
    ac_fence_leave(timeline);
    if (_i == 2)
        ck_assert_int_eq(ac_block_free_on(arena, 16, a), AC_OK);
    else
        give(a);
    ck_assert(atomic_load(&ac_trim_pending) && !ac_allocator_settle_debt(allocator));
    ck_assert_uint_eq(reserved(), 40 * MIB);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    ck_assert(ac_allocator_settle_debt(allocator));
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* The allocator waits once for work that does not end, for as long as `oom_wait` says. */
START_TEST(failing_has_a_limit) {
    uint64_t a = alloc(40 * MIB), b, begin = fake_ops.now_ns();
    settings.oom_wait = 0.02;
    ac_allocator_configure(allocator, &settings);
    submit(0);
    give(a);
    device.endless = true;
    ck_assert_int_eq(try_alloc(arena, 60 * MIB, &b), AC_OOM);
    ck_assert_uint_lt(fake_ops.now_ns() - begin, (uint64_t)10000000000);
    unsigned waits = device.calls[FAKE_WAIT];
    ck_assert_uint_gt(waits, 0);
    ck_assert_int_eq(try_alloc(arena, 60 * MIB, &b), AC_OOM);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], waits);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    ck_assert_int_eq(try_alloc(arena, 60 * MIB, &b), AC_OK);
}
END_TEST

/* No pending block would make the request fit, so the allocator does not wait. */
START_TEST(what_does_not_help_is_not_waited_for) {
    uint64_t a = alloc(20 * MIB), b;
    alloc(40 * MIB);
    submit(0);
    give(a);
    ck_assert_int_eq(try_alloc(arena, 30 * MIB, &b), AC_OOM);
    ck_assert_uint_eq(device.calls[FAKE_WAIT], 0);
    ck_assert_int_eq(try_alloc(arena, 22 * MIB, &b), AC_OK);
}
END_TEST

START_TEST(idle_memory_of_all_contexts_is_given_back) {
    uint64_t a, b;
    ck_assert_int_eq(try_alloc(other, 40 * MIB, &a), AC_OK);
    ck_assert_int_eq(try_alloc(arena, 40 * MIB, &b), AC_OOM);
    ck_assert_int_eq(stats.num_ooms, 1);
    submit(1);
    give(a); /* pending: the request must wait for it */
    ck_assert_int_eq(try_alloc(arena, 40 * MIB, &b), AC_OK);
    ck_assert_int_ge(stats.num_alloc_retries, 2);
    ck_assert_int_ge(stats.num_sync_all_streams, 2);
    ck_assert_int_eq(stats.num_ooms, 1);
}
END_TEST

START_TEST(tainted_memory_counts_as_given_back) {
    bool fresh;
    uint64_t a = alloc(60 * MIB);
    ck_assert_int_eq(ac_block_taint(a, &fresh), AC_OK);
    ck_assert(fresh);
    ck_assert_int_eq(ac_block_taint(a, &fresh), AC_OK);
    ck_assert(!fresh);
    submit(0);
    give(a);
    alloc(50 * MIB);
}
END_TEST

START_TEST(a_tainted_segment_serves_no_other) {
    bool fresh;
    uint64_t a = alloc(3 * MIB), b = alloc(3 * MIB);
    ck_assert_int_eq(ac_block_taint(a, &fresh), AC_OK);
    give(b);
    uint64_t c = alloc(3 * MIB);
    ck_assert(c < a || c >= a + 20 * MIB);
    uint64_t held = reserved();
    give(a); /* the last block: its segment goes at once */
    ck_assert_uint_eq(reserved(), held - 20 * MIB);
}
END_TEST

START_TEST(the_pools_help_each_other) {
    alloc(512);        /* a small segment of 2 MiB */
    alloc(62 * MIB);   /* all the rest */
    alloc(200 * 1024); /* a large request, from the small segment */
    uint64_t address;
    while (try_alloc(arena, 64 * 1024, &address) == AC_OK) /* fills the segment */
        ;
    while (try_alloc(arena, 512, &address) == AC_OK)
        ;
    ck_assert_int_eq(stats.inactive_split_bytes[AC_POOL_ALL].current, 0);
}
END_TEST

START_TEST(small_requests_use_large_segments_at_the_end) {
    uint64_t a = alloc(62 * MIB + 512); /* takes 64 MiB: leaves no room for a small segment */
    alloc(512);
    ck_assert_uint_eq(reserved(), 64 * MIB);
    give(a);
}
END_TEST

START_TEST(memory_that_is_not_idle_does_not_help) {
    uint64_t a = alloc(30 * MIB), b = alloc(30 * MIB), address;
    give(a);
    ck_assert_int_eq(try_alloc(arena, 40 * MIB, &address), AC_OOM);
    give(b);
    alloc(60 * MIB);
}
END_TEST

/* The driver does not take a segment back during a capture. The segment stays counted as
 * reserved. */
START_TEST(a_refused_segment_stays_ours) {
    bool fresh;
    uint64_t a = alloc(10 * MIB), b = alloc(30 * MIB);
    ck_assert_int_eq(ac_block_taint(b, &fresh), AC_OK);
    give(a);
    atomic_store(&context[0].capturing, true);
    give(b);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 0);
    ck_assert_uint_eq(reserved(), 50 * MIB);
    const char *why = NULL;
    ck_assert_msg(ac_allocator_check(allocator, &why) == 0, "%s", why);
    ck_assert_int_eq(stats.num_device_free, 0);
    ck_assert_int_eq(stats.num_device_alloc, 2);
    uint64_t address;
    ck_assert_int_eq(try_alloc(arena, 30 * MIB, &address), AC_BUSY);
    ck_assert_uint_eq(alloc(10 * MIB), a); /* served from the segment that was put back */
    give(a);
    atomic_store(&context[0].capturing, false);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 50 * MIB);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

START_TEST(many_segments_go_at_once) {
    enum { SEGMENTS = 200, EACH = 2048 / 64 };
    static uint64_t block[SEGMENTS][EACH];
    for (int i = 0; i < SEGMENTS; i++)
        for (int k = 0; k < EACH; k++)
            block[i][k] = alloc(64 * 1024);
    for (int i = 0; i < SEGMENTS; i++)
        for (int k = i % 2; k < EACH; k++) /* every second segment keeps a block */
            give(block[i][k]);
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), SEGMENTS / 2 * 2 * MIB);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), SEGMENTS / 2 * 2 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_FREE], SEGMENTS / 2);
    ck_assert_uint_eq(reserved(), SEGMENTS / 2 * 2 * MIB);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("allocator");
    TCase *large = tcase_create("large"), *tight = tcase_create("tight");
    tcase_add_checked_fixture(large, begin_large, end);
    tcase_add_checked_fixture(tight, begin_tight, end);
    tcase_add_test(large, reuse_without_device_calls);
    tcase_add_test(large, work_keeps_memory_from_reuse);
    tcase_add_test(large, a_small_program_takes_few_fences);
    tcase_add_test(large, large_blocks_are_waited_for_within_the_budget);
    tcase_add_test(large, a_block_born_after_the_work_is_ready);
    tcase_add_test(large, growth_waits_beyond_the_budget);
    tcase_add_test(large, growth_does_not_wait_for_ever);
    tcase_add_test(large, trim_gives_back_what_ended_between_steps);
    tcase_add_test(large, one_segment_for_several_requests);
    tcase_add_test(large, contexts_do_not_share_blocks);
    tcase_add_test(large, addresses_that_are_not_allocated);
    tcase_add_test(large, senseless_sizes);
    tcase_add_test(large, block_information);
    tcase_add_test(large, segments_have_the_sizes_of_the_policy);
    tcase_add_test(large, segments_grow_with_what_is_reserved);
    tcase_add_test(large, idle_segments_go_before_growing_past_the_budget);
    tcase_add_test(large, what_a_large_request_leaves_serves_no_small_one);
    tcase_add_test(large, beside_what_is_small_for_the_program_it_does);
    tcase_add_test(large, the_rest_serves_once_a_part_is_free);
    tcase_add_test(tight, the_rest_serves_before_a_request_fails);
    tcase_add_test(large, oversize_blocks_stay_whole);
    tcase_add_test(large, a_request_close_to_max_split_size);
    tcase_add_test(large, a_slack_smaller_than_a_page);
    tcase_add_test(large, divisions_round_exactly);
    tcase_add_test(large, divisions_by_size);
    tcase_add_test(large, the_limit_holds);
    tcase_add_test(large, garbage_goes_above_the_threshold);
    tcase_add_test(large, no_garbage_below_the_threshold);
    tcase_add_test(large, many_segments_go_at_once);
    tcase_add_test(tight, idle_memory_of_all_contexts_is_given_back);
    tcase_add_test(tight, a_segment_goes_back_when_the_device_is_done_with_it);
    tcase_add_loop_test(tight, a_tainted_segment_goes_back_later, 0, 3);
    tcase_add_test(tight, failing_has_a_limit);
    tcase_add_test(tight, what_does_not_help_is_not_waited_for);
    tcase_add_test(tight, tainted_memory_counts_as_given_back);
    tcase_add_test(large, the_small_limit_parts_the_pools);
    tcase_add_test(large, segments_are_exact_and_large_blocks_whole);
    tcase_add_test(tight, a_tainted_segment_serves_no_other);
    tcase_add_test(tight, the_pools_help_each_other);
    tcase_add_test(tight, small_requests_use_large_segments_at_the_end);
    tcase_add_test(tight, memory_that_is_not_idle_does_not_help);
    tcase_add_test(tight, a_refused_segment_stays_ours);
    suite_add_tcase(suite, large);
    suite_add_tcase(suite, tight);
    return run_suite(suite);
}
