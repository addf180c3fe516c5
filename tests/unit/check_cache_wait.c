/* Blocks that wait in a thread's cache, on a fake device: when they are ready, where they are
 * while they are not, and what the figures say meanwhile.  And those that are loose there. */
#include <string.h>

#include "allocator_frame.h"
#include "run_suite.h"

#define LIMIT (64 * MIB)

static ac_cache_tally_t tally[2];
static ac_cache_t *cache;

static void begin_cached(void) {
    begin_large();
    settings.thread_cache = LIMIT;
    ac_allocator_configure(allocator, &settings);
    memset(tally, 0, sizeof tally);
    cache = ac_cache_open(arena, &tally[0]);
    ck_assert_ptr_nonnull(cache);
}

static void end_cached(void) {
    atomic_store(&ac_fence_shared, false);
    end();
    if (cache)
        ac_cache_close(cache);
    end();
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current,
                     stats.active[AC_POOL_ALL].allocated - stats.active[AC_POOL_ALL].freed);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    fake_complete(&context[1], atomic_load(&context[1].submitted));
}

static uint64_t take(uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_cache_alloc(cache, bytes, false, &address), AC_OK);
    return address;
}

static void put(uint64_t address) {
    ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
}

/* Served by the cache alone. */
static bool hit(uint64_t bytes, uint64_t *address) {
    return ac_cache_take(cache, bytes, address, ac_fence_handout) ||
           ac_cache_take_long(cache, bytes, address);
}

static ac_device_stats_t now(void) {
    ac_device_stats_t figures;
    ac_allocator_stats(allocator, &figures);
    return figures;
}

static ac_device_counters_t counted(void) {
    struct timespec deadline = {.tv_sec = INT32_MAX};
    ac_device_stats_t figures;
    ac_device_counters_t all;
    ck_assert(ac_allocator_figures(allocator, &deadline, &figures, &all));
    return all;
}

static uint64_t waiting(void) {
    return tally[0].side[0].waiting.blocks + tally[0].side[1].waiting.blocks;
}

/* Sizes that come again are kept. */
static void habit(uint64_t bytes) {
    put(take(bytes));
    put(take(bytes));
    ac_caches_recall(allocator, cache);
}

/* A block that was freed with work beside it. */
static uint64_t wait_for_work(uint64_t bytes) {
    uint64_t address = take(bytes);
    submit(0);
    put(address);
    return address;
}

/* The work is done, and the allocator knows. */
static void finish_work(void) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_fence_close(timeline, false);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    ac_fence_poll(timeline, false);
}

/* --- when it is ready --- */

START_TEST(it_serves_when_its_work_is_done) {
    uint64_t address;
    habit(MIB);
    uint64_t a = wait_for_work(MIB);
    ck_assert_uint_eq(waiting(), 1);
    ck_assert_ptr_null(arena->retired->fence[0].first);
    ck_assert(!hit(MIB, &address));
    ac_fence_close(ac_arena_timeline(arena), false);
    ck_assert(!ac_fence_poll(ac_arena_timeline(arena), false));
    ck_assert(!hit(MIB, &address)); /* a fence is under way */
    fake_complete(&context[0], 1);
    ck_assert(!hit(MIB, &address)); /* no thread has seen yet that it is over */
    ck_assert(ac_fence_poll(ac_arena_timeline(arena), false));
    ck_assert(hit(MIB, &address));
    ck_assert_uint_eq(address, a);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(counted().fenced_frees, 1);
}
END_TEST

/* It is not kept once it is ready, and counts with the bytes that it has. */
START_TEST(of_a_refused_size_it_goes_when_recalled) {
    const char *why = NULL;
    uint64_t address;
    habit(MIB);
    uint64_t a = wait_for_work(MIB);
    ac_cache_find(cache, MIB)->size |= AC_ENTRY_REFUSED;
    finish_work();
    ck_assert(!hit(MIB, &address));
    ck_assert_msg(!ac_allocator_check(allocator, &why), "%s", why);
    ck_assert_uint_eq(waiting(), 1);
    ac_caches_recall(allocator, cache);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_int_eq(now().active_bytes[AC_POOL_ALL].current, 0);
    ck_assert_uint_eq(take(MIB), a);
}
END_TEST

START_TEST(later_work_is_waited_for_by_later_frees_alone) {
    uint64_t address;
    habit(MIB);
    uint64_t a = take(MIB), b = take(MIB);
    submit(0);
    put(a);
    ac_fence_close(ac_arena_timeline(arena), false);
    submit(0);
    put(b);
    ck_assert_uint_eq(waiting(), 2);
    fake_complete(&context[0], 1);
    ck_assert(ac_fence_poll(ac_arena_timeline(arena), false));
    ck_assert(hit(MIB, &address));
    ck_assert_uint_eq(address, a);
    ck_assert(!hit(MIB, &address));
    ck_assert_uint_eq(waiting(), 1);
    finish_work();
}
END_TEST

START_TEST(work_that_is_known_to_be_done_is_not_waited_for) {
    uint64_t address;
    habit(MIB);
    uint64_t a = take(MIB);
    submit(0);
    finish_work();
    put(a);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert(hit(MIB, &address));
    ck_assert_uint_eq(counted().fenced_frees, 0);
}
END_TEST

/* The pattern that all this is for; a second lock of a mutex by its owner never returns. */
START_TEST(a_burst_takes_no_lock) {
    enum { BLOCKS = 40 };
    uint64_t block[BLOCKS];
    habit(MIB);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++)
            block[i] = take(MIB);
        submit(0);
        if (round) /* the first one raised peaks */
            ac_lock(&allocator->lock);
        for (int i = 0; i < BLOCKS; i++)
            put(block[i]);
        ck_assert_uint_eq(waiting(), BLOCKS);
        finish_work();
        for (int i = 0; i < BLOCKS; i++)
            ck_assert(hit(MIB, &block[i]));
        if (round)
            ac_unlock(&allocator->lock);
        ck_assert_int_eq(now().allocation[AC_POOL_ALL].current, BLOCKS);
        for (int i = 0; i < BLOCKS; i++)
            put(block[i]);
    }
    ck_assert_uint_eq(device.calls[FAKE_RECORD], 3);
}
END_TEST

/* A block at a time, and work on it, as long as fences keep pace: neither the lock nor the device
 * once there are enough of them. */
START_TEST(pairs_beside_work_take_no_lock) {
    enum { PAIRS = 3000 };
    habit(MIB);
    for (int round = 0; round < 2; round++) {
        unsigned locked = 0;
        for (int i = 0; i < PAIRS; i++) {
            uint64_t address;
            if (round)
                ac_lock(&allocator->lock);
            bool served = hit(MIB, &address);
            if (round)
                ac_unlock(&allocator->lock);
            if (!served) {
                address = take(MIB);
                locked++;
            }
            if (ac_fence_full(ac_arena_timeline(arena)))
                ac_fence_close(ac_arena_timeline(arena), false);
            submit(0);
            fake_complete(&context[0], atomic_load(&context[0].submitted));
            if (round)
                ac_lock(&allocator->lock);
            put(address);
            if (round)
                ac_unlock(&allocator->lock);
        }
        if (round)
            ck_assert_uint_le(locked, PAIRS / 32);
    }
}
END_TEST

/* --- where it is meanwhile --- */

START_TEST(recalled_it_is_pending) {
    habit(MIB);
    uint64_t a = wait_for_work(MIB), b = wait_for_work(MIB);
    ck_assert(ac_caches_recall(allocator, NULL));
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_ptr_eq(arena->retired->fence[0].first, ac_page_map_get(a));
    ck_assert_ptr_eq(arena->retired->fence[0].last, ac_page_map_get(b));
    ck_assert_int_eq(ac_page_map_get(a)->state, AC_BLOCK_RETIRED);
    end();
    ck_assert_int_eq(now().active[AC_POOL_ALL].current, 2);
    finish_work();
    ck_assert_uint_eq(alloc(19 * MIB), a);
    ck_assert_int_eq(now().active[AC_POOL_ALL].current, 1);
}
END_TEST

START_TEST(recalled_it_may_find_a_queue) {
    habit(MIB);
    uint64_t a = wait_for_work(MIB);
    submit(0);
    uint64_t other_one = alloc(2 * MIB);
    submit(0);
    give(other_one); /* waits for later work, in the queue */
    ac_caches_recall(allocator, NULL);
    ck_assert_ptr_eq(arena->retired->fence[0].last, ac_page_map_get(a));
    end(); /* targets do not fall along the queue */
    finish_work();
}
END_TEST

START_TEST(what_is_ready_is_recalled_to_the_free_memory) {
    habit(MIB);
    for (int i = 0; i < 4; i++)
        wait_for_work(MIB);
    finish_work();
    ck_assert_uint_eq(waiting(), 4);
    ck_assert(ac_caches_recall(allocator, NULL));
    ck_assert_ptr_null(arena->retired->fence[0].first);
    ck_assert_int_eq(now().active[AC_POOL_ALL].current, 0);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 20 * MIB);
}
END_TEST

/* A walk over the arenas must not rely on having seen another one before. */
static void leave_one_arena(void) {
    fake_context_kill(&context[1]);
    ac_arena_drop(other);
}

START_TEST(a_trim_leaves_it_or_waits_for_it) {
    bool wait = _i;
    leave_one_arena();
    habit(MIB);
    wait_for_work(MIB);
    ck_assert_uint_eq(ac_allocator_trim(allocator, wait), wait ? 20 * MIB : 0);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(atomic_load(&context[0].completed), wait);
    ck_assert_uint_eq(reserved(), wait ? 0 : 20 * MIB);
    ac_allocator_trim(allocator, true); /* the fence goes back */
}
END_TEST

START_TEST(decay_asks_for_it) {
    leave_one_arena();
    habit(MIB);
    wait_for_work(MIB);
    fake_complete(&context[0], 1);
    for (int epoch = 0; epoch < 3; epoch++)
        ac_allocator_decay(allocator, 1);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

START_TEST(short_of_memory_others_wait_for_it) {
    uint64_t address;
    settings.limit = 20 * MIB;
    ac_allocator_configure(allocator, &settings);
    habit(4 * MIB);
    uint64_t block[4];
    for (int i = 0; i < 4; i++)
        block[i] = take(4 * MIB);
    submit(0);
    for (int i = 0; i < 4; i++)
        put(block[i]);
    ck_assert_uint_eq(waiting(), 4);
    ck_assert_int_eq(try_alloc(arena, 18 * MIB, &address), AC_OK);
    ck_assert_uint_eq(atomic_load(&context[0].completed), 1);
    give(address);
    for (int i = 0; i < 4; i++)
        block[i] = take(4 * MIB);
    submit(0);
    for (int i = 0; i < 4; i++)
        put(block[i]);
    ck_assert_uint_eq(take(18 * MIB), address); /* and so does its owner */
}
END_TEST

static ac_cache_t *second;
static uint64_t late;

/* The other thread frees while this one waits. */
static void free_late(void *unused, fake_kind_t kind) {
    (void)unused;
    if (kind != FAKE_WAIT || !late)
        return;
    submit(0);
    ck_assert_int_eq(ac_cache_free(second, late), AC_OK);
    ck_assert_uint_eq(tally[1].side[1].waiting.blocks, 1);
    late = 0;
}

START_TEST(beyond_the_budget_it_is_waited_for_again) {
    uint64_t address, again;
    settings.large_segment_size = 2 * MIB;
    ac_allocator_configure(allocator, &settings);
    second = ac_cache_open(arena, &tally[1]);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ac_cache_alloc(second, 12 * MIB, false, &address), AC_OK);
        if (i < 2)
            ck_assert_int_eq(ac_cache_free(second, address), AC_OK);
    }
    give(alloc(10 * MIB));
    uint64_t first = alloc(9 * MIB);
    alloc(MIB); /* beside it: the segment stays */
    submit(0);
    give(first);
    late = address;
    device.before = free_late;
    ck_assert_int_eq(try_alloc(arena, 12 * MIB, &again), AC_OK);
    device.before = NULL;
    ck_assert_uint_eq(late, 0);
    ck_assert_uint_eq(again, address);
    ck_assert_uint_eq(reserved(), 22 * MIB);
    ac_cache_close(second);
}
END_TEST

START_TEST(a_closed_cache_leaves_it_pending) {
    habit(MIB);
    uint64_t a = wait_for_work(MIB);
    ac_cache_close(cache);
    cache = NULL;
    ck_assert_ptr_eq(arena->retired->fence[0].first, ac_page_map_get(a));
    ck_assert_int_eq(now().active[AC_POOL_ALL].current, 1);
    ck_assert_int_eq(now().allocation[AC_POOL_ALL].current, 0);
    finish_work();
}
END_TEST

START_TEST(it_goes_with_its_context) {
    uint64_t address;
    habit(MIB);
    habit(700);
    wait_for_work(MIB);
    wait_for_work(700);
    ck_assert_uint_eq(waiting(), 2);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_int_eq(now().active[AC_POOL_ALL].current, 0);
    ck_assert_int_eq(now().active_bytes[AC_POOL_ALL].current, 0);
    ck_assert_int_eq(now().requested_bytes[AC_POOL_ALL].current, 0);
    ck_assert(!hit(MIB, &address));
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

/* A bucket has room for so many sizes; those that are asked for again and again replace what was
 * not asked for since. */
START_TEST(another_size_takes_its_place) {
    uint64_t size = MIB, rival = MIB;
    const ac_entry_t *bucket = ac_cache_bucket(cache, ac_cache_entry(cache, size));
    habit(size);
    wait_for_work(size);
    for (int i = 0; i < AC_CACHE_WAYS + 1; i++) {
        do
            rival += AC_GRANULE;
        while (ac_cache_bucket(cache, ac_cache_entry(cache, rival)) != bucket);
        for (int k = 0; k < 3; k++)
            put(take(rival));
        end();
    }
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_int_eq(now().active[AC_POOL_ALL].current, 1);
    finish_work();
}
END_TEST

START_TEST(how_much_waits_is_bounded) {
    uint64_t block[100];
    habit(MIB);
    for (int i = 0; i < 100; i++)
        block[i] = take(MIB);
    submit(0);
    for (int i = 0; i < 100; i++)
        put(block[i]);
    ck_assert_uint_eq(waiting(), LIMIT / MIB);
    ck_assert_uint_eq(retired_bytes(arena), 100 * MIB - LIMIT);
    finish_work();
    for (int i = 0; i < 100; i++)
        take(MIB);
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
}
END_TEST

/* --- who may not wait there --- */

START_TEST(not_where_other_contexts_reach_it) {
    habit(MIB);
    uint64_t a = take(MIB);
    submit(0);
    atomic_store(&ac_fence_shared, true);
    put(a);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_ptr_eq(arena->retired->fence[1].first, ac_page_map_get(a));
}
END_TEST

START_TEST(not_during_a_capture) {
    habit(MIB);
    uint64_t a = take(MIB);
    ac_order_capture_begin(7);
    submit(0);
    put(a);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(counters.capture_deferred_frees, 1);
    ac_order_capture_end();
    ac_allocator_release(allocator, 7);
}
END_TEST

START_TEST(not_of_a_shared_segment) {
    bool fresh;
    uint64_t address;
    habit(MIB);
    uint64_t shared = take(MIB), before = wait_for_work(MIB);
    ck_assert_uint_eq(waiting(), 1);
    ck_assert_int_eq(ac_block_taint(shared, &fresh), AC_OK);
    ck_assert_uint_eq(waiting(), 0);
    finish_work();
    ck_assert(!hit(MIB, &address));
    ac_block_info_t out_of_service, serves;
    ck_assert_int_eq(ac_block_find(before, &out_of_service), AC_OK);
    ck_assert_int_eq(ac_block_find(take(MIB), &serves), AC_OK);
    ck_assert_uint_ne(out_of_service.segment_address, serves.segment_address);
    submit(0);
    put(shared);
    ck_assert_uint_eq(waiting(), 0);
}
END_TEST

/* --- what a stream's order protects --- */

static void submit_to(uint64_t stream) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_joins_t joins = {0};
    ac_fence_enter(timeline);
    ac_sole_enter(timeline, stream, &joins);
    fake_submit(&context[0]);
    ac_fence_leave(timeline);
}

/* Wherever it is kept: in an entry, in the loose list, or in an entry of a cache that has no room.  It
 * is withdrawn when a second stream comes, which waits for nothing. */
START_TEST(such_a_free_leans_on_the_stream) {
    uint64_t block[5];
    habit(MIB);
    for (int i = 0; i < 5; i++)
        block[i] = _i == 1 ? alloc(5 * MIB) : take(MIB);
    for (int i = 0; i < 4 && _i == 2; i++)
        put(block[i]);
    submit_to(0x1000);
    if (_i == 3)
        block[4] = alloc(5 * MIB); /* nothing comes after it */
    put(block[4]);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(counted().ordered_frees, _i < 3);
    submit_to(0x2000);
    ck_assert_uint_eq(ac_arena_timeline(arena)->single.join, _i < 3);
    ck_assert_uint_eq(context[0].join_events, 0);
    ac_device_stats_t now;
    ac_allocator_stats(allocator, &now);
    ck_assert_int_ge(now.active[AC_POOL_ALL].current - now.allocation[AC_POOL_ALL].current,
                     _i < 3);
    ac_cache_close(cache);
    cache = NULL;
    fake_context_kill(&context[0]);
    ac_arena_drop(arena); /* and the join event with it */
}
END_TEST

/* --- blocks of sizes that were not asked for --- */

/* The free does not take the lock, and the block leaves with the next request that can have
 * it. */
START_TEST(loose_blocks_go_with_the_next_request) {
    uint64_t block[3], address;
    for (unsigned i = 0; i < 3; i++)
        block[i] = alloc((5 + i) * MIB);
    take(700);
    ac_caches_recall(allocator, cache); /* it knows by now that others raise figures */
    ac_lock(&allocator->lock);
    for (int i = 0; i < 3; i++)
        put(block[i]);
    ac_unlock(&allocator->lock);
    ck_assert_uint_eq(counted().thread_cache_blocks, 3);
    ck_assert_uint_eq(counted().thread_cache_bytes, 18 * MIB);
    ck_assert_int_eq(now().active[AC_POOL_LARGE].current, 0);
    end();
    ck_assert(!hit(5 * MIB, &address));
    take(6000); /* of the other pool */
    ck_assert_uint_eq(cache->loose_count, 0);
    ck_assert_uint_eq(take(19 * MIB), block[0]);
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
    ck_assert_int_eq(ac_cache_free(cache, block[1]), AC_BAD_ADDRESS);
}
END_TEST

/* So are those that wait for work, and the arena has them then. */
START_TEST(what_waits_may_be_loose) {
    uint64_t block[2], address;
    habit(7 * MIB);
    for (int i = 0; i < 2; i++)
        block[i] = take((5 + (uint64_t)i) * MIB);
    submit(0);
    ac_lock(&allocator->lock);
    for (int i = 0; i < 2; i++)
        put(block[i]);
    ac_unlock(&allocator->lock);
    ck_assert_uint_eq(cache->loose_count, 2);
    ck_assert_uint_eq(waiting(), 2);
    ck_assert_uint_eq(counted().fenced_frees, 2);
    ck_assert_int_eq(now().active[AC_POOL_LARGE].current, 2);
    ck_assert_int_eq(now().allocation[AC_POOL_LARGE].current, 0);
    ck_assert_ptr_null(arena->retired->fence[0].first);
    end();
    ck_assert(!hit(5 * MIB, &address));
    take(6000);
    ck_assert_uint_eq(cache->loose_count, 0);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(arena->retired->fence[0].first->address, block[0]);
    ck_assert_int_eq(now().active[AC_POOL_LARGE].current, 2);
    end();
    finish_work();
    ck_assert_uint_eq(take(11 * MIB), block[0]); /* both of them, in one piece */
    ck_assert_int_eq(now().active[AC_POOL_LARGE].current, 1);
}
END_TEST

START_TEST(few_blocks_are_loose) {
    uint64_t block[AC_CACHE_LOOSE + 1];
    for (unsigned i = 0; i <= AC_CACHE_LOOSE; i++)
        block[i] = alloc((200 + i) << 10);
    for (unsigned i = 0; i < AC_CACHE_LOOSE; i++)
        put(block[i]);
    ck_assert_uint_eq(counted().thread_cache_blocks, AC_CACHE_LOOSE);
    put(block[AC_CACHE_LOOSE]);
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
    put(alloc(LIMIT + MIB)); /* nor do they have many bytes */
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
}
END_TEST

START_TEST(loose_blocks_are_taken_back) {
    uint64_t block[2] = {alloc(5 * MIB), alloc(7 * MIB)};
    put(block[0]);
    ck_assert(ac_caches_recall(allocator, NULL));
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
    put(block[1]);
    ck_assert_uint_eq(cache->loose_count, 1);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert_uint_eq(cache->loose_count, 0);
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

/* Whose lock is another one. */
START_TEST(a_free_of_another_device_leaves_them) {
    static fake_device_t far_device;
    static fake_context_t far_context;
    static ac_device_stats_t far_stats;
    static ac_device_counters_t far_counters;
    uint64_t address;
    fake_device_init(&far_device, 64 * MIB);
    far_device.bump = true;
    far_device.next += (uint64_t)1 << 40;
    fake_context_init(&far_context, &far_device);
    ac_allocator_t *far = ac_allocator_create(&settings, &far_stats, &far_counters);
    ac_arena_t *far_arena = ac_arena_create(far, &fake_ops, &far_context);
    ck_assert_int_eq(try_alloc(far_arena, MIB, &address), AC_OK);
    put(alloc(5 * MIB));
    put(address);
    ck_assert_uint_eq(cache->loose_count, 1);
    ck_assert_uint_eq(far_counters.cached_frees, 1);
    ac_arena_drop(far_arena);
}
END_TEST

/* Pages of larger ones may go elsewhere. */
START_TEST(large_blocks_on_pages_are_not_loose) {
    settings.expandable_segments = true;
    settings.page = settings.small_page = 2 * MIB;
    ac_allocator_configure(allocator, &settings);
    put(alloc(AC_RANGE_KEEP + AC_GRANULE));
    ck_assert_uint_eq(cache->loose_count, 0);
}
END_TEST

START_TEST(a_closed_cache_has_no_loose_blocks) {
    put(alloc(5 * MIB));
    ac_cache_close(cache);
    cache = NULL;
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 20 * MIB);
}
END_TEST

/* --- figures --- */

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

/* What a read would show now, without one: reading absorbs. */
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

static void same(const figure_t *want, const ac_stat_t *have, int step, const char *what) {
    for (int i = 0; i < AC_POOL_KINDS; i++) {
        ck_assert_msg(want->now[i] == have[i].current, "step %d, %s: current", step, what);
        ck_assert_msg(want->peak[i] == have[i].peak, "step %d, %s: peak %lld, %lld", step, what,
                      (long long)want->peak[i], (long long)have[i].peak);
        ck_assert_msg(have[i].allocated - have[i].freed == have[i].current, "step %d, %s: sums",
                      step, what);
    }
}

static void read_and_compare(int step) {
    ac_device_stats_t have = now();
    same(&allocated, have.allocation, step, "allocation");
    same(&allocated_bytes, have.allocated_bytes, step, "allocated_bytes");
    same(&active, have.active, step, "active");
    same(&active_bytes, have.active_bytes, step, "active_bytes");
    same(&requested, have.requested_bytes, step, "requested_bytes");
}

static void reset_peaks(void) {
    figure_t *const all[] = {&allocated, &allocated_bytes, &active, &active_bytes, &requested};
    ac_allocator_reset_peak(allocator);
    note_all(); /* it takes blocks back, of which some are ready */
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

/* With one cache no peak is missed and none is made up, whatever waits. */
START_TEST(peaks_are_exact) {
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
    Suite *suite = suite_create("cache_wait");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin_cached, end_cached);
    tcase_add_test(all, it_serves_when_its_work_is_done);
    tcase_add_test(all, of_a_refused_size_it_goes_when_recalled);
    tcase_add_test(all, later_work_is_waited_for_by_later_frees_alone);
    tcase_add_test(all, work_that_is_known_to_be_done_is_not_waited_for);
    tcase_add_test(all, a_burst_takes_no_lock);
    tcase_add_test(all, pairs_beside_work_take_no_lock);
    tcase_add_test(all, recalled_it_is_pending);
    tcase_add_test(all, recalled_it_may_find_a_queue);
    tcase_add_test(all, what_is_ready_is_recalled_to_the_free_memory);
    tcase_add_loop_test(all, a_trim_leaves_it_or_waits_for_it, 0, 2);
    tcase_add_test(all, decay_asks_for_it);
    tcase_add_test(all, short_of_memory_others_wait_for_it);
    tcase_add_test(all, beyond_the_budget_it_is_waited_for_again);
    tcase_add_test(all, a_closed_cache_leaves_it_pending);
    tcase_add_test(all, it_goes_with_its_context);
    tcase_add_test(all, another_size_takes_its_place);
    tcase_add_test(all, how_much_waits_is_bounded);
    tcase_add_test(all, not_where_other_contexts_reach_it);
    tcase_add_test(all, not_during_a_capture);
    tcase_add_test(all, not_of_a_shared_segment);
    tcase_add_loop_test(all, such_a_free_leans_on_the_stream, 0, 4);
    tcase_add_test(all, loose_blocks_go_with_the_next_request);
    tcase_add_test(all, what_waits_may_be_loose);
    tcase_add_test(all, few_blocks_are_loose);
    tcase_add_test(all, loose_blocks_are_taken_back);
    tcase_add_test(all, a_free_of_another_device_leaves_them);
    tcase_add_test(all, large_blocks_on_pages_are_not_loose);
    tcase_add_test(all, a_closed_cache_has_no_loose_blocks);
    tcase_add_loop_test(all, peaks_are_exact, 0, 5);
    tcase_add_test(all, what_waits_is_not_kept_free_memory);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
