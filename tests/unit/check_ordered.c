/* Blocks that are freed in stream order, one call at a time, on the fake device. */
#include <string.h>

#include "fake_world.h"
#include "run_suite.h"

#define MIB ((uint64_t)1 << 20)
enum { S = 16, T = 20, U = 24, EVENT = 77 };

static void begin(uint64_t limit) {
    ac_settings_t with = fake_settings("");
    with.limit = limit;
    open_world(1, 512 * MIB, with);
}

static uint64_t take(ac_stream_t stream, uint64_t bytes) {
    uint64_t address;
    ck_assert_int_eq(ac_arena_alloc_on(arena, stream, bytes, false, &address), AC_OK);
    check_world();
    return address;
}

/* Frees on the stream after work was submitted. */
static void give(uint64_t address, ac_stream_t stream) {
    submit(0);
    ck_assert_int_eq(ac_block_free_on(arena, stream, address), AC_OK);
    ac_arena_stream_is(arena, stream, true);
    check_world();
}

static void order(ac_stream_t from, ac_stream_t to) {
    ac_edge_t edge;
    ac_edge_record_begin(&edge, arena, EVENT, from);
    ac_edge_record_end(&edge, true);
    ac_edge_of_event(&edge, arena, EVENT);
    ac_edge_joined(&edge, to);
}

static void end(void) {
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    check_world();
    ck_assert_uint_eq(device.live_fences, 0);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 0);
    ck_assert_int_eq(stats.requested_bytes[AC_POOL_ALL].current, 0);
}

START_TEST(neighbours_join_and_are_cut) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB), b = take(S, MIB), c = take(S, MIB), other = take(S, MIB);
    ck_assert_uint_eq(b, a + MIB);
    give(a, S);
    give(c, S);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 4);
    give(b, S); /* three blocks coalesced */
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 2);
    ck_assert_int_eq(stats.active_bytes[AC_POOL_ALL].current, 4 * MIB);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].current, MIB);
    ck_assert_uint_eq(take(S, 2 * MIB + 100), a);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 3);
    ck_assert_uint_eq(take(S, MIB - 512), a + 2 * MIB + 512);
    give(other, T); /* belongs to another stream: not coalesced */
    give(a, S);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 3);
    ck_assert_uint_eq(counters.async_same_stream, 2);
    end();
}
END_TEST

/* A block that is split was requested once. Sums over time count the requests. */
START_TEST(what_is_left_is_not_counted_again) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, 4 * MIB);
    give(a, S);
    for (int i = 0; i < 8; i++)
        ck_assert_uint_eq(take(S, MIB / 2), a + (uint64_t)i * MIB / 2);
    ck_assert_int_eq(stats.requested_bytes[AC_POOL_ALL].allocated, 8 * MIB);
    ck_assert_int_eq(stats.allocated_bytes[AC_POOL_ALL].allocated, 8 * MIB);
    ck_assert_int_eq(stats.requested_bytes[AC_POOL_ALL].peak, 4 * MIB);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].peak, 9); /* and the rest */
    for (int i = 0; i < 8; i++)
        give(a + (uint64_t)i * MIB / 2, S);
    end();
}
END_TEST

/* check_world checks the order of the list. */
START_TEST(what_is_left_keeps_its_place) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB), between = take(S, MIB), b = take(S, 2 * MIB), last = take(S, MIB);
    give(a, S);
    give(b, S);
    ck_assert_uint_eq(take(S, 3 * MIB / 2), b); /* and half a MiB waits behind a */
    give(between, S);
    give(last, S);
    end();
}
END_TEST

START_TEST(a_segment_that_serves_no_more_keeps_no_stream) {
    uint64_t b;
    bool fresh;
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB);
    ck_assert_int_eq(ac_arena_alloc(arena, MIB, true, &b), AC_OK); /* of the same segment */
    give(a, S);
    ck_assert_int_eq(ac_block_taint(b, &fresh), AC_OK);
    check_world();
    ck_assert_uint_ne(take(S, MIB), a);
    end();
}
END_TEST

/* A free that needs no fence also earns a part of one. */
START_TEST(frees_of_a_stream_earn_a_fence) {
    begin(AC_UNLIMITED);
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    for (int i = 0; i < AC_FENCE_FIRST; i++) {
        submit(0);
        ck_assert_int_eq(ac_fence_close(timeline, AC_REACH_OWN), AC_OK);
    }
    ck_assert(!ac_fence_credit(timeline));
    for (int i = 0; i < AC_FENCE_BATCH_WEIGHT; i++)
        give(take(S, MIB), S);
    ck_assert(ac_fence_credit(timeline));
    end();
}
END_TEST

/* Free memory between the blocks of a stream is coalesced with them, but not much more than their size. */
START_TEST(free_neighbours_join) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB), b = take(S, MIB), c = take(S, MIB), address;
    ck_assert_int_eq(ac_block_free(b), AC_OK); /* nothing was submitted: free at once */
    check_world();
    give(c, S); /* and b, not the 17 MiB behind it */
    ck_assert_int_eq(stats.active_bytes[AC_POOL_ALL].current, 3 * MIB);
    ck_assert_int_eq(stats.inactive_split_bytes[AC_POOL_ALL].current, 17 * MIB);
    give(a, S); /* all three coalesced */
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 1);
    ck_assert_int_eq(ac_arena_alloc(arena, 17 * MIB, true, &address), AC_OK);
    check_world();
    ck_assert_uint_eq(take(S, 3 * MIB), a);
    ck_assert_uint_eq(counters.async_same_stream, 1);
    give(a, S);
    complete(0);
    ac_fence_synced(ac_arena_timeline(arena), ac_fence_stamp());
    ck_assert_int_eq(ac_arena_alloc(arena, 3 * MIB, true, &address), AC_OK);
    ck_assert_uint_eq(address, a);
    check_world();
    end();
}
END_TEST

/* The placement rules of free memory also apply to blocks that wait in a stream's order. */
START_TEST(a_medium_block_is_not_cut_out_of_a_large_one) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, 200 * MIB);
    give(a, S);
    uint64_t medium = take(S, MIB);
    ck_assert(medium < a || medium >= a + 200 * MIB);
    ck_assert_uint_eq(take(S, 200 * MIB), a);
    end();
}
END_TEST

START_TEST(a_smaller_free_block_comes_first) {
    begin(AC_UNLIMITED);
    uint64_t small = take(S, 2 * MIB), between = take(S, MIB), large = take(S, 10 * MIB), other = take(S, MIB), none;
    give(small, S);
    complete(0);
    ac_fence_synced(ac_arena_timeline(arena), ac_fence_stamp());
    ck_assert_int_eq(ac_arena_alloc(arena, 19 * MIB, true, &none), AC_BUSY); /* considers ready blocks */
    give(large, S);
    ck_assert_uint_eq(take(S, 2 * MIB - 512), small);
    ck_assert_uint_eq(counters.async_same_stream, 0);
    ck_assert_uint_eq(take(S, 9 * MIB), large);
    ck_assert_uint_eq(counters.async_same_stream, 1);
    give(between, S);
    give(other, S);
    end();
}
END_TEST

/* The arena is beyond the budget, and no block is one that another stream could wait for. */
START_TEST(a_request_of_a_stream_waits_before_it_grows_on) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, 60 * MIB), b = take(S, 60 * MIB);
    give(a, S);
    give(b, S);
    ck_assert_uint_eq(counters.fence_waits, 0);
    take(T, 100 * MIB);
    ck_assert_uint_gt(counters.fence_waits, 0);
    ck_assert_uint_le(stats.reserved_bytes[AC_POOL_ALL].peak, 160 * MIB);
    end();
}
END_TEST

/* Some work ends only after a later step of the program. A request waits once for it, not repeatedly, however often
 * the memory before it changes hands, and at most until the work is over. */
START_TEST(work_that_does_not_end_is_waited_for_once) {
    begin(AC_UNLIMITED);
    settings = allocator->settings;
    settings.wait_budget = 0;
    ac_allocator_configure(allocator, &settings);
    uint64_t a = take(S, 120 * MIB), small = take(S, MIB);
    device.endless = true;
    for (int i = 0; i < 8; i++) {
        give(small, S);
        take(T, 24 * MIB);
        small = take(S, MIB);
    }
    ck_assert_uint_eq(counters.fence_waits, 1);
    device.endless = false;
    complete(0);
    give(small, S);
    give(a, S);
    take(T, 150 * MIB);
    ck_assert_uint_eq(counters.fence_waits, 2);
    end();
}
END_TEST

/* If no event can be recorded, a wait would be endless. No request of a stream waits. */
START_TEST(no_request_of_a_stream_waits_without_end) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, 60 * MIB), b = take(S, 60 * MIB);
    device.no_fences = true;
    give(a, S);
    give(b, S);
    take(T, 100 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_SYNCHRONIZE], 0);
    end();
}
END_TEST

/* Large blocks are kept for large requests. They serve a small request before it fails or waits for work that may
 * never end. */
START_TEST(a_large_block_of_the_stream_is_better_than_none) {
    begin(64 * MIB);
    settings = allocator->settings;
    settings.exact = true;
    ac_allocator_configure(allocator, &settings);
    uint64_t a = take(S, 64 * MIB);
    give(a, S);
    ck_assert_uint_eq(take(S, MIB), a);
    ck_assert_uint_eq(device.calls[FAKE_WAIT] + device.calls[FAKE_SYNCHRONIZE], 0);
    ck_assert_uint_eq(counters.async_same_stream, 1);
    end();
}
END_TEST

START_TEST(only_what_is_proven_changes_streams) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB), address;
    give(take(T, MIB), T);
    give(a, S);
    ck_assert_uint_ne(take(T, MIB), a);
    ck_assert_uint_ne(take(T, MIB), a);
    order(S, T);
    ck_assert_uint_eq(take(T, MIB), a);
    ck_assert_uint_eq(counters.async_event_ordered, 1);
    ck_assert_int_eq(ac_arena_alloc(arena, MIB, true, &address), AC_OK);
    ck_assert_uint_ne(address, a);
    end();
}
END_TEST

/* A block that changed hands early is freed on a stream that is not known to come after its former owner. */
START_TEST(an_early_block_stays_behind_its_past) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB);
    give(take(U, MIB), U);
    give(a, S);
    ck_assert_uint_eq(take(S, MIB), a);
    give(a, U);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_ne(take(U, MIB), a);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_ne(take(S, MIB), a);
    end();
}
END_TEST

START_TEST(an_early_block_knows_no_quiet_life) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB), address;
    give(a, S);
    ck_assert_uint_eq(take(S, MIB), a);
    ck_assert_int_eq(ac_block_free(a), AC_OK); /* no work was submitted in its second life */
    check_world();
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ac_arena_alloc(arena, MIB, true, &address), AC_OK);
        ck_assert_uint_ne(address, a);
    }
    end();
}
END_TEST

START_TEST(what_the_host_saw_is_free_for_all) {
    ac_edge_t edge;
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB), b = take(T, MIB);
    give(a, S);
    ac_edge_of_stream(&edge, arena, S);
    give(b, T);
    ac_edge_completed(&edge);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 2);
    uint64_t address;
    ck_assert_int_eq(ac_arena_alloc(arena, 19 * MIB, true, &address), AC_BUSY);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 1); /* T's */
    check_world();
    end();
}
END_TEST

START_TEST(a_wait_is_inserted_before_the_limit_is_passed) {
    begin(4 * MIB);
    uint64_t a = take(S, 3 * MIB);
    give(a, S);
    unsigned waits = device.calls[FAKE_WAIT] + device.calls[FAKE_SYNCHRONIZE];
    ck_assert_uint_eq(take(T, 3 * MIB), a);
    ck_assert_uint_eq(device.calls[FAKE_STREAM_ORDER], 1);
    ck_assert_uint_eq(device.calls[FAKE_WAIT] + device.calls[FAKE_SYNCHRONIZE], waits);
    ck_assert_uint_eq(counters.async_waits, 1);
    give(a, S); /* a free of its former stream, which is also known to come before T */
    end();
}
END_TEST

START_TEST(a_wait_that_cannot_be_had_leaves_all_as_it_was) {
    begin(4 * MIB);
    uint64_t a = take(S, 3 * MIB);
    give(a, S);
    device.fail_with[FAKE_STREAM_ORDER] = AC_FAILED;
    device.fail_at = device.total_calls + 3; /* the third call, after close and poll, is the wait */
    uint64_t b = take(T, 3 * MIB);           /* the host waits for it */
    ck_assert_uint_eq(device.failed, 1);
    ck_assert_uint_eq(b, a);
    ck_assert_uint_eq(counters.async_waits, 0);
    end();
}
END_TEST

START_TEST(nothing_changes_hands_where_order_protects_nothing) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB);
    give(a, S);
    ac_arena_unordered(arena, true);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_ne(take(S, MIB), a);
    end();
}
END_TEST

/* Without events the device is polled once, for a moment, whether the order is still needed. The next poll comes
 * after the requested point is reached. */
START_TEST(what_order_protected_is_asked_for_without_events) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB);
    submit(0);
    give(a, S);
    ck_assert_uint_eq(take(S, MIB), a);
    device.no_fences = true;
    device.endless = _i;
    ck_assert_int_eq(ac_arena_unordered(arena, false), !_i);
    ck_assert_uint_eq(device.calls[FAKE_SYNCHRONIZE], 1);
    ck_assert_int_eq(ac_arena_unordered(arena, false), !_i);
    ck_assert_uint_eq(device.calls[FAKE_SYNCHRONIZE], 1);
    complete(0);
    ac_fence_synced(ac_arena_timeline(arena), ac_fence_stamp());
    ck_assert(ac_arena_unordered(arena, false));
    end();
}
END_TEST

START_TEST(a_stream_that_goes_leaves_its_blocks_behind) {
    begin(AC_UNLIMITED);
    uint64_t a = take(S, MIB);
    give(a, S);
    ac_arena_stream_gone(arena, S);
    check_world();
    ck_assert_uint_ne(take(S, MIB), a);
    complete(0);
    ac_fence_synced(ac_arena_timeline(arena), ac_fence_stamp());
    uint64_t address;
    ck_assert_int_eq(ac_arena_alloc(arena, 19 * MIB, true, &address), AC_BUSY);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 1); /* its own fence freed it */
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ordered");
    TCase *tests = tcase_create("ordered");
    tcase_add_test(tests, neighbours_join_and_are_cut);
    tcase_add_test(tests, what_is_left_is_not_counted_again);
    tcase_add_test(tests, what_is_left_keeps_its_place);
    tcase_add_test(tests, a_segment_that_serves_no_more_keeps_no_stream);
    tcase_add_test(tests, frees_of_a_stream_earn_a_fence);
    tcase_add_test(tests, free_neighbours_join);
    tcase_add_test(tests, a_medium_block_is_not_cut_out_of_a_large_one);
    tcase_add_test(tests, a_smaller_free_block_comes_first);
    tcase_add_test(tests, a_request_of_a_stream_waits_before_it_grows_on);
    tcase_add_test(tests, work_that_does_not_end_is_waited_for_once);
    tcase_add_test(tests, no_request_of_a_stream_waits_without_end);
    tcase_add_test(tests, a_large_block_of_the_stream_is_better_than_none);
    tcase_add_test(tests, only_what_is_proven_changes_streams);
    tcase_add_test(tests, an_early_block_stays_behind_its_past);
    tcase_add_test(tests, an_early_block_knows_no_quiet_life);
    tcase_add_test(tests, what_the_host_saw_is_free_for_all);
    tcase_add_test(tests, a_wait_is_inserted_before_the_limit_is_passed);
    tcase_add_test(tests, a_wait_that_cannot_be_had_leaves_all_as_it_was);
    tcase_add_test(tests, nothing_changes_hands_where_order_protects_nothing);
    tcase_add_loop_test(tests, what_order_protected_is_asked_for_without_events, 0, 2);
    tcase_add_test(tests, a_stream_that_goes_leaves_its_blocks_behind);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
