/* Blocks that wait in a thread's cache, on a fake device: when they become ready, and which list holds them
 * until then. */
#include "cache_frame.h"
#include "run_suite.h"

/* --- when it is ready --- */

START_TEST(it_serves_when_its_work_is_done) {
    uint64_t address;
    habit(MIB);
    uint64_t a = wait_for_work(MIB);
    ck_assert_uint_eq(waiting(), 1);
    ck_assert_ptr_null(arena->retired->ledger.fence[0].first);
    ck_assert(!hit(MIB, &address));
    ac_fence_close(ac_arena_timeline(arena), false);
    ck_assert(!ac_fence_poll(ac_arena_timeline(arena), false));
    ck_assert(!hit(MIB, &address)); /* a fence is under way */
    fake_complete(&context[0], 1);
    ck_assert(!hit(MIB, &address)); /* no thread has noticed yet that the fence is over */
    ck_assert(ac_fence_poll(ac_arena_timeline(arena), false));
    ck_assert(hit(MIB, &address));
    ck_assert_uint_eq(address, a);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(counted().fenced_frees, 1);
}
END_TEST

/* The block is not kept once it is ready. It counts with its own bytes. */
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

/* The pattern that this optimises. The test holds the mutex: a second lock by its owner would never
 * return. */
START_TEST(a_burst_takes_no_lock) {
    enum { BLOCKS = 40 };
    uint64_t block[BLOCKS];
    habit(MIB);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++)
            block[i] = take(MIB);
        submit(0);
        if (round) /* the first round raised peaks */
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

/* Allocates, submits and frees one block at a time while fences keep pace. Once there are enough blocks,
 * neither the lock nor the device is used. */
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

/* Allocates and frees a block. With `beside`, work is submitted in between; otherwise before. */
static void pair_with_work(uint64_t bytes, bool beside) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    uint64_t address = 0;
    for (int step = 0; step < 2; step++)
        if (step == beside) {
            if (ac_fence_full(timeline))
                ac_fence_close(timeline, false);
            submit(0);
            fake_complete(&context[0], atomic_load(&context[0].submitted));
        } else {
            address = take(bytes);
        }
    put(address);
}

/* Runs `pairs` pairs and returns the number of frees that waited. Every `other`th pair has no work on its
 * block; 0: all have. */
static uint64_t pairs_of(uint64_t bytes, int pairs, int other) {
    uint64_t before = counted().fenced_frees;
    for (int i = 1; i <= pairs; i++)
        pair_with_work(bytes, !other || i % other);
    return counted().fenced_frees - before;
}

static uint64_t pairs_with_work(int pairs, int other) {
    return pairs_of(MIB, pairs, other);
}

/* Nearly all frees wait, so handouts may share an epoch with earlier work. Once frees have no work to wait
 * for, the allowance (AC_FENCE_ROUGH) is soon used up, and handouts are exact. Frees that wait only because
 * of a shared epoch do not renew the allowance. */
START_TEST(handouts_beside_work_end_few_epochs) {
    enum { PAIRS = 2048 };
    ac_sole_settle(ac_arena_timeline(arena), true);
    habit(MIB);
    pairs_with_work(PAIRS, 0);
    uint64_t before = ac_fence_now();
    ck_assert_uint_eq(pairs_with_work(PAIRS, 0), PAIRS);
    ck_assert_uint_le(ac_fence_now() - before, PAIRS / 4);
    ck_assert_uint_le(pairs_with_work(PAIRS, 1), 2 * AC_FENCE_ROUGH);
}
END_TEST

/* Handouts also become exact soon if few frees justify a fence, because each waits with many bytes. */
START_TEST(handouts_of_large_blocks_allow_no_more) {
    ac_sole_settle(ac_arena_timeline(arena), true);
    habit(16 * MIB);
    ck_assert_uint_eq(pairs_of(16 * MIB, 200, 0), 200);
    ck_assert_uint_le(pairs_of(16 * MIB, 200, 1), 8);
}
END_TEST

/* A part of the frees waits. The other frees soon stop being treated as waiting. */
START_TEST(handouts_beside_some_work_are_exact) {
    enum { PAIRS = 2048 };
    ac_sole_settle(ac_arena_timeline(arena), true);
    habit(MIB);
    pairs_with_work(PAIRS, 0);
    pairs_with_work(PAIRS, 2);
    ck_assert_uint_eq(pairs_with_work(PAIRS, 2), PAIRS / 2);
    ck_assert_uint_eq(pairs_with_work(PAIRS, 4), PAIRS / 4 * 3);
}
END_TEST

/* While free memory relies on a stream's order, each handout gets an exact epoch. */
START_TEST(handouts_in_the_order_of_a_stream_are_exact) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_sole_settle(timeline, true);
    ac_fence_allow_rough(timeline, 2);
    submit(0);
    ck_assert(!ac_fence_untouched(timeline, ac_fence_handout(timeline)));
    uint64_t word = atomic_exchange(&timeline->single.word, AC_SOLE_ONE);
    uint64_t relied = atomic_exchange(&timeline->single.relied, ac_fence_now());
    ck_assert(ac_fence_untouched(timeline, ac_fence_handout(timeline)));
    atomic_store(&timeline->single.relied, relied);
    submit(0);
    ck_assert(!ac_fence_untouched(timeline, ac_fence_handout(timeline)));
    atomic_store(&timeline->single.word, word);
    ac_fence_allow_rough(timeline, 1);
    submit(0);
    ck_assert(!ac_fence_untouched(timeline, ac_fence_handout(timeline)));
    ck_assert(ac_fence_untouched(timeline, ac_fence_handout(timeline)));
}
END_TEST

/* Alternates one block of either pool. Headroom is counted in bytes and serves any pool. */
START_TEST(pools_share_headroom) {
    enum { ROUNDS = 64, SMALL = 8192 };
    put(take(4 * MIB));
    for (int locked = 0; locked < 2; locked++)
        for (int i = 0; i < ROUNDS; i++) {
            if (locked)
                ac_lock(&allocator->lock);
            put(take(i % 2 ? MIB : SMALL)); /* never returns if it takes the lock */
            if (locked)
                ac_unlock(&allocator->lock);
        }
    ac_device_stats_t figures = now();
    ck_assert_int_eq(figures.allocation[AC_POOL_ALL].peak, 1);
    ck_assert_int_eq(figures.active[AC_POOL_ALL].peak, 1);
}
END_TEST

/* --- the place of a waiting block --- */

START_TEST(recalled_it_is_pending) {
    habit(MIB);
    uint64_t a = wait_for_work(MIB), b = wait_for_work(MIB);
    ck_assert(ac_caches_recall(allocator, NULL));
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_ptr_eq(arena->retired->ledger.fence[0].first, &ac_page_map_get(a)->due);
    ck_assert_ptr_eq(arena->retired->ledger.fence[0].last, &ac_page_map_get(b)->due);
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
    ck_assert_ptr_eq(arena->retired->ledger.fence[0].last, &ac_page_map_get(a)->due);
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
    ck_assert_ptr_null(arena->retired->ledger.fence[0].first);
    ck_assert_int_eq(now().active[AC_POOL_ALL].current, 0);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 20 * MIB);
}
END_TEST

/* A walk over the arenas must not rely on a previous walk having seen one. */
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
    ac_allocator_trim(allocator, true); /* returns the fence */
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
    ck_assert_uint_eq(take(18 * MIB), address); /* and its owner goes back too */
}
END_TEST

static ac_cache_t *second;
static uint64_t late;

/* Another thread frees the block while this one waits. */
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
    alloc(MIB); /* keeps the segment in use */
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
    ck_assert_ptr_eq(arena->retired->ledger.fence[0].first, &ac_page_map_get(a)->due);
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

/* --- blocks that may not wait in the cache --- */

START_TEST(not_where_other_contexts_reach_it) {
    habit(MIB);
    uint64_t a = take(MIB);
    submit(0);
    atomic_store(&ac_fence_shared, true);
    put(a);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_ptr_eq(arena->retired->ledger.fence[1].first, &ac_page_map_get(a)->due);
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

/* A graph may use the block. Until the graph is destroyed, no request may get the block, even if the cache
 * is warm and the owner frees it. */
START_TEST(what_a_graph_may_name_does_not_serve) {
    enum { KEPT = 3 };
    uint64_t block[KEPT + 1], got[KEPT + 2];
    const char *why = NULL;
    ac_sole_settle(ac_arena_timeline(arena), _i & 1);
    habit(MIB);
    for (int i = 0; i <= KEPT; i++)
        block[i] = take(MIB);
    for (int i = 0; i < KEPT; i++)
        put(block[i]);
    const uint64_t named = block[KEPT];
    ac_order_capture_begin(7);
    submit(0);
    if (_i & 2)
        ck_assert(!ac_cache_give(cache, ac_page_map_get(named), named));
    put(named);
    finish_work();
    for (int i = 0; i < KEPT + 2; i++) {
        ck_assert_uint_ne(got[i] = take(MIB), named);
        if (i == KEPT)
            ac_order_capture_end();
    }
    ck_assert_msg(!ac_allocator_check(allocator, &why), "%s", why);
    for (int i = 0; i < KEPT + 2; i++)
        put(got[i]);
    ac_allocator_release(allocator, 7);
    finish_work();
    ac_caches_recall(allocator, cache);
    for (int i = 0; i < KEPT + 2 && got[0] != named; i++)
        got[0] = take(MIB);
    ck_assert_uint_eq(got[0], named);
}
END_TEST

/* A capture would retain blocks that its work cannot name. Handouts are exact during a capture. */
START_TEST(handouts_during_a_capture_are_exact) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_sole_settle(timeline, true);
    habit(MIB);
    ac_fence_allow_rough(timeline, AC_FENCE_ROUGH);
    ac_fence_capture_begin(NULL);
    ac_order_capture_begin(7);
    for (int i = 0; i < 8; i++) {
        submit(0);
        put(take(MIB));
    }
    ck_assert_uint_eq(counters.capture_deferred_frees, 0);
    ac_fence_capture_began();
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

/* --- memory that a stream's order protects --- */

static void submit_to(uint64_t stream) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_joins_t joins = {0};
    ac_fence_enter(timeline);
    ac_sole_enter(timeline, stream, &joins);
    fake_submit(&context[0]);
    ac_fence_leave(timeline);
}

/* The free relies on the stream wherever the block is kept: in an entry, in the loose list, or in an entry
 * of a full cache. The reliance ends when a second stream comes, which waits for nothing. */
START_TEST(such_a_free_leans_on_the_stream) {
    uint64_t block[5];
    atomic_store(&ac_sole_eager, true);
    habit(MIB);
    for (int i = 0; i < 5; i++)
        block[i] = _i == 1 ? alloc(5 * MIB) : take(MIB);
    for (int i = 0; i < 4 && _i == 2; i++)
        put(block[i]);
    submit_to(0x1000);
    if (_i == 3)
        block[4] = alloc(5 * MIB); /* nothing comes after it */
    put(block[4]);
    atomic_store(&ac_sole_eager, false);
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
    ac_arena_drop(arena); /* drops the join event too */
}
END_TEST

/* No free memory is left, and a waiting block would have served the request. */
START_TEST(frees_lean_on_the_stream_once_a_request_lacks_them) {
    enum { BLOCKS = 6 }; /* blocks of 3 MiB: two wait within the bound */
    uint64_t block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        block[i] = alloc(3 * MIB);
    submit_to(0x1000);
    put(block[0]);
    ck_assert_uint_eq(counted().fenced_frees, 1);
    int64_t reserved = now().reserved_bytes[AC_POOL_ALL].current;
    alloc(3 * MIB);
    ck_assert_int_gt(now().reserved_bytes[AC_POOL_ALL].current, reserved);
    submit_to(0x1000);
    put(block[1]);
    ck_assert_uint_eq(counted().fenced_frees, 1);
    ck_assert_uint_eq(counted().ordered_frees, 1);
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
    tcase_add_test(all, handouts_beside_work_end_few_epochs);
    tcase_add_test(all, handouts_of_large_blocks_allow_no_more);
    tcase_add_test(all, handouts_beside_some_work_are_exact);
    tcase_add_test(all, handouts_in_the_order_of_a_stream_are_exact);
    tcase_add_test(all, pools_share_headroom);
    tcase_add_test(all, recalled_it_is_pending);
    tcase_add_test(all, recalled_it_may_find_a_queue);
    tcase_add_test(all, what_is_ready_is_recalled_to_the_free_memory);
    tcase_add_loop_test(all, a_trim_leaves_it_or_waits_for_it, 0, 2);
    tcase_add_test(all, decay_asks_for_it);
    tcase_add_test(all, short_of_memory_others_wait_for_it);
    tcase_add_test(all, beyond_the_budget_it_is_waited_for_again);
    tcase_add_test(all, a_closed_cache_leaves_it_pending);
    tcase_add_test(all, it_goes_with_its_context);
    tcase_add_test(all, how_much_waits_is_bounded);
    tcase_add_test(all, not_where_other_contexts_reach_it);
    tcase_add_test(all, not_during_a_capture);
    tcase_add_loop_test(all, what_a_graph_may_name_does_not_serve, 0, 4);
    tcase_add_test(all, handouts_during_a_capture_are_exact);
    tcase_add_test(all, not_of_a_shared_segment);
    tcase_add_loop_test(all, such_a_free_leans_on_the_stream, 0, 4);
    tcase_add_test(all, frees_lean_on_the_stream_once_a_request_lacks_them);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
