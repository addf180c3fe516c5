/* Held blocks (allocator/retired/retired.h) on the fake device: which blocks are held, and their
 * statistics. */
#include <stdlib.h>

#include "fake_world.h"
#include "run_suite.h"

#define MIB ((uint64_t)1 << 20)

static void set_up(void) {
    open_world(2, 64 * MIB, fake_settings("thread_cache_mb:0"));
}

static uint64_t alloc(int i, uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_arena_alloc(arena_of(i), bytes, false, &address), AC_OK);
    return address;
}

/* Completes the context's work, as a synchronisation of the program does. */
static void synchronise(int i) {
    uint64_t now = ac_fence_stamp();
    complete(i);
    ac_fence_synced(ac_arena_timeline(arena_of(i)), now);
}

static void give(uint64_t address) {
    ck_assert_int_eq(ac_block_free(address), AC_OK);
    check_world();
}

static bool served_again(int i, uint64_t address, uint64_t bytes) {
    uint64_t got = 0;
    bool same = ac_arena_alloc(arena_of(i), bytes, true, &got) == AC_OK && got == address;
    if (got)
        ac_block_free(got);
    return same;
}

static void expect_held(uint64_t blocks, uint64_t bytes) {
    check_world();
    ck_assert_uint_eq(counters.capture_deferred_blocks, blocks);
    ck_assert_uint_eq(counters.capture_deferred_bytes, bytes);
}

/* Before the capture, in it, and after it. */
START_TEST(held_while_open) {
    uint64_t a = alloc(0, MIB), b = alloc(0, 2 * MIB), c = alloc(0, 3 * MIB);
    submit(0);
    give(a);
    ac_order_capture_begin(5);
    submit(0);
    give(b);
    expect_held(1, 2 * MIB);
    ck_assert(ac_allocator_holds(allocator, 5));
    ck_assert(!ac_allocator_holds(allocator, 6));
    ac_order_capture_end();
    give(c);
    expect_held(1, 2 * MIB);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 3);
    ck_assert_int_eq(stats.allocation[AC_POOL_ALL].current, 0);
    synchronise(0);
    ck_assert(served_again(0, a, MIB) || served_again(0, c, 3 * MIB));
    ck_assert(!served_again(0, b, 2 * MIB));
    ac_allocator_release(allocator, 6);
    expect_held(1, 2 * MIB);
    ac_allocator_release(allocator, 5);
    expect_held(0, 0);
    ck_assert(!ac_allocator_holds(allocator, 5));
    ac_allocator_trim(allocator, true);
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

/* A released block waits for all work submitted so far: the graph's last launch. */
START_TEST(released_behind_a_fence) {
    uint64_t a = alloc(0, MIB);
    ac_order_capture_begin(1);
    submit(0);
    give(a);
    ac_order_capture_end();
    synchronise(0);
    submit(0); /* the launch of the graph */
    ac_allocator_release(allocator, 1);
    check_world();
    ck_assert(!served_again(0, a, MIB));
    ac_allocator_trim(allocator, false);
    ck_assert_uint_eq(device.used, 20 * MIB);
    synchronise(0);
    ac_allocator_trim(allocator, false);
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

/* The library records no fence for memory that a capture holds. */
START_TEST(released_memory_wants_a_fence) {
    uint64_t held[AC_FENCE_BATCH_WEIGHT];
    for (int i = 0; i < AC_FENCE_BATCH_WEIGHT; i++)
        held[i] = alloc(0, 8192);
    ac_order_capture_begin(1);
    submit(0);
    for (int i = 0; i < AC_FENCE_BATCH_WEIGHT; i++)
        give(held[i]);
    ac_order_capture_end();
    ck_assert(!ac_fence_full(ac_arena_timeline(arena)));
    ac_allocator_release(allocator, 1);
    ck_assert(ac_fence_full(ac_arena_timeline(arena)));
}
END_TEST

/* A capture does not hold memory that no captured work can name: nothing was submitted since the
 * session began, or since the block was handed out. */
START_TEST(untouched_is_not_held) {
    uint64_t a = alloc(0, MIB), b = alloc(1, MIB);
    submit(0);
    submit(1);
    ac_order_capture_begin(1);
    give(a);
    submit(0);
    uint64_t c = alloc(0, MIB);
    give(c);
    give(b); /* of a context with nothing submitted since */
    expect_held(0, 0);
    submit(1);
    b = alloc(1, MIB);
    submit(1); /* this work may have joined the capture */
    give(b);
    expect_held(1, MIB);
    ac_order_capture_end();
    ac_allocator_release(allocator, 1);
    expect_held(0, 0);
}
END_TEST

/* Once every context may reach the memory, work of any context counts. */
START_TEST(shared_across_contexts) {
    atomic_store(&ac_fence_shared, true);
    uint64_t a = alloc(0, MIB);
    ac_order_capture_begin(1);
    submit(1);
    give(a);
    expect_held(1, MIB);
    ac_order_capture_end();
}
END_TEST

/* A context without a capture, with memory that no other context uses; then it begins to
 * capture. */
START_TEST(not_where_nothing_captures) {
    uint64_t a = alloc(1, MIB), b = alloc(1, MIB);
    context[1].bystander = true;
    ac_order_capture_begin(1);
    submit(0);
    submit(1);
    give(a);
    expect_held(0, 0);
    synchronise(1);
    ck_assert(served_again(1, a, MIB));
    ac_fence_capture_begin(ac_arena_timeline(arena_of(1)));
    context[1].bystander = false;
    ac_fence_capture_began();
    submit(1);
    give(b);
    expect_held(1, MIB);
    ac_order_capture_end();
    ac_allocator_release(allocator, 1);
}
END_TEST

START_TEST(not_given_up_for_memory) {
    uint64_t a = alloc(0, 60 * MIB), address;
    ac_order_capture_begin(1);
    submit(0);
    give(a);
    ac_order_capture_end();
    synchronise(0);
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 0);
    ck_assert_int_eq(ac_arena_alloc(arena, 30 * MIB, false, &address), AC_OOM);
    expect_held(1, 60 * MIB);
    ac_allocator_release(allocator, 1);
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 60 * MIB);
    alloc(0, 30 * MIB);
}
END_TEST

START_TEST(gone_with_the_context) {
    uint64_t a[2] = {alloc(0, MIB), alloc(1, MIB)};
    ac_order_capture_begin(1);
    for (int i = 0; i < 2; i++) {
        submit(i);
        give(a[i]);
    }
    ac_order_capture_end();
    expect_held(2, 2 * MIB);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    expect_held(1, MIB);
    ac_allocator_release(allocator, 1);
    expect_held(0, 0);
}
END_TEST

/* A segment that leaves service goes back when its held block is released. */
START_TEST(tainted) {
    bool fresh;
    uint64_t a = alloc(0, 30 * MIB);
    ck_assert_int_eq(ac_block_taint(a, &fresh), AC_OK);
    ac_order_capture_begin(1);
    submit(0);
    give(a);
    ac_order_capture_end();
    synchronise(0);
    ck_assert_uint_eq(device.used, 30 * MIB);
    ac_allocator_release(allocator, 1);
    check_world();
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

/* Sessions that share a list, in any order, with neighbours that coalesce. */
START_TEST(many_sessions) {
    enum { MANY = 400 };
    static uint64_t block[MANY];
    for (int i = 0; i < MANY; i++)
        block[i] = alloc(0, 4096);
    for (int i = 0; i < MANY; i++) {
        ac_order_capture_begin((uint64_t)i / 4 + 1);
        submit(0);
        give(block[i * 7 % MANY]);
        ac_order_capture_end();
    }
    expect_held(MANY, (uint64_t)MANY * 4096);
    for (uint64_t e = 1; e <= MANY / 4; e++) {
        uint64_t one = e * 37 % (MANY / 4) + 1;
        ck_assert(ac_allocator_holds(allocator, one));
        ac_allocator_release(allocator, one);
        expect_held(MANY - 4 * e, (MANY - 4 * e) * 4096);
    }
    ck_assert_uint_eq(counters.capture_deferred_frees, MANY);
    synchronise(0);
    ac_allocator_trim(allocator, false);
    ck_assert_uint_eq(device.used, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("held");
    TCase *t = tcase_create("held");
    tcase_add_checked_fixture(t, set_up, check_world);
    tcase_add_test(t, held_while_open);
    tcase_add_test(t, released_behind_a_fence);
    tcase_add_test(t, released_memory_wants_a_fence);
    tcase_add_test(t, untouched_is_not_held);
    tcase_add_test(t, shared_across_contexts);
    tcase_add_test(t, not_where_nothing_captures);
    tcase_add_test(t, not_given_up_for_memory);
    tcase_add_test(t, gone_with_the_context);
    tcase_add_test(t, tainted);
    tcase_add_test(t, many_sessions);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
