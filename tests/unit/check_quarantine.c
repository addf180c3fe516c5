/* The end of the single-stream rule (sole.h): whether the second stream waits, and the use of
 * free memory if it does not. */
#include <stdlib.h>

#include "allocator_frame.h"
#include "run_suite.h"

enum { FIRST_KEY = 0x1000 };

static ac_timeline_t *timeline;
static ac_joins_t joins;
static ac_cache_tally_t tally;
static ac_cache_t *cache; /* NULL: a thread without a cache */

static const uint64_t sizes[] = {512, 4096, 65536, 300000, MIB, 30 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Each test runs in these ways. */
typedef enum { PLAIN, CACHED, PAGED, WAYS } way_t;

static void begin_as(way_t way) {
    begin_large();
    if (way == PAGED) {
        settings.expandable_segments = true;
        settings.page = 20 * MIB;
        settings.small_page = AC_SEGMENT_ALIGN;
    }
    settings.thread_cache = way == CACHED ? 64 * MIB : 0;
    ac_allocator_configure(allocator, &settings);
    cache = way == CACHED ? ac_cache_open(arena, &tally) : NULL;
    timeline = ac_arena_timeline(arena);
    timeline->single.backoff = 0;
}

static void check(void) {
    const char *why = NULL;
    ck_assert_msg(ac_allocator_check(allocator, &why) == 0, "%s", why);
    ck_assert_msg(!device.wrong, "%s", device.wrong);
}

static void all_is_over(void) {
    ac_fence_close(timeline, false);
    fake_complete(&context[0], context[0].submitted);
    ac_fence_poll(timeline, false);
}

static void end_here(void) {
    check();
    all_is_over(); /* returns the device's events */
    if (cache)
        ac_cache_close(cache);
    end();
}

static uint64_t take(uint64_t bytes) {
    uint64_t address = 0;
    ac_status_t status = cache ? ac_cache_alloc(cache, bytes, false, &address)
                               : ac_arena_alloc(arena, bytes, false, &address);
    ck_assert_int_eq(status, AC_OK);
    return address;
}

static void put(uint64_t address) {
    ck_assert_int_eq(cache ? ac_cache_free(cache, address) : ac_block_free(address), AC_OK);
}

static void work_on(unsigned stream) {
    ac_fence_enter(timeline);
    ac_sole_enter(timeline, FIRST_KEY + 16 * stream, &joins);
    fake_submit(&context[0]);
    ac_fence_leave(timeline);
}

static ac_sole_mode_t mode(void) {
    return ac_sole_mode(atomic_load(&timeline->single.word));
}

/* Returns the number of frees that relied on order so far. */
static uint64_t relied(void) {
    ac_device_stats_t now;
    ac_allocator_stats(allocator, &now);
    return counters.ordered_frees;
}

static int64_t pending_bytes(void) {
    ac_device_stats_t now;
    ac_allocator_stats(allocator, &now);
    return now.active_bytes[AC_POOL_ALL].current - now.allocated_bytes[AC_POOL_ALL].current;
}

/* Returns a freed block that relied on the sole stream. Its neighbour stays allocated. */
static uint64_t rely_on_sole(uint64_t bytes) {
    take(bytes);
    uint64_t block = take(bytes);
    work_on(0);
    put(block);
    ck_assert_uint_eq(relied(), 1);
    return block;
}

START_TEST(nothing_early_is_held) {
    uint64_t bytes = sizes[_i % SIZES];
    begin_as((way_t)(_i / SIZES));
    uint64_t block = rely_on_sole(bytes);
    ck_assert_int_eq(pending_bytes(), 0);
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 0);
    ck_assert_int_eq(mode(), AC_SOLE_MANY);
    check();
    int most = bytes > MIB    ? 1
               : bytes == MIB ? 50
                              : 200; /* more than the slots of a slab; within the budget */
    for (int i = 0; i < most; i++)
        ck_assert_uint_ne(take(bytes), block);
    check();
    all_is_over();
    bool back = false;
    for (int i = 0; i < most && !back; i++)
        back = take(bytes) == block;
    ck_assert(back);
    check();
    work_on(2); /* no block waits any more */
    ck_assert_uint_eq(context[0].join_events, 0);
    end_here();
}
END_TEST

START_TEST(an_early_block_is_held) {
    uint64_t bytes = sizes[_i % SIZES];
    begin_as((way_t)(_i / SIZES));
    uint64_t block = rely_on_sole(bytes), taken[256];
    unsigned n = 0;
    while ((taken[n++] = take(bytes)) != block)
        ck_assert_uint_lt(n, 256);
    ac_allocator_drop_records(allocator); /* with or without a record */
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 1);
    ck_assert_int_eq(mode(), AC_SOLE_JOINING);
    ck_assert_int_eq(pending_bytes(), 0);
    /* Once no early block is held, the next stream does not wait. */
    while (n)
        put(taken[--n]);
    if (_i % 2)
        work_on(0);
    work_on(2);
    ck_assert_uint_eq(context[0].join_events, 1);
    ck_assert_int_eq(mode(), AC_SOLE_MANY);
    check();
    end_here();
}
END_TEST

/* A block allocated before the first free that relied on order is not early, whatever happens to
 * it later. */
START_TEST(old_blocks_are_not_early) {
    uint64_t old[20];
    begin_as((way_t)_i);
    for (int i = 0; i < 20; i++)
        old[i] = take(sizes[i % SIZES]);
    for (int i = 0; i < 10; i++) {
        work_on(0);
        put(old[i]);
        work_on(0);
    }
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 0);
    check();
    work_on(2);
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 0);
    end_here();
}
END_TEST

/* Work that relied on order is over. Blocks that were handed out before its end are not early. */
START_TEST(work_that_is_over_makes_no_block_early) {
    begin_as((way_t)_i);
    uint64_t old = take(MIB);
    rely_on_sole(4096);
    take(4096);
    work_on(0);
    put(take(MIB));
    work_on(0); /* after the join event */
    fake_complete(&context[0], 2);
    put(old); /* relies on work that is not over */
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 0);
    check();
    end_here();
}
END_TEST

/* A second sole stream follows. Blocks handed out between the two are not early. */
START_TEST(another_sole) {
    begin_as((way_t)_i);
    rely_on_sole(MIB);
    all_is_over();
    uint64_t stamp = ac_fence_stamp();
    fake_complete(&context[0], context[0].submitted);
    ac_fence_synced(timeline, stamp);
    work_on(1);
    uint64_t old = take(3 * MIB);
    take(MIB);
    work_on(1);
    put(old);
    work_on(2);
    ck_assert_uint_eq(context[0].join_events, 0);
    check();
    end_here();
}
END_TEST

START_TEST(while_a_stream_captures) {
    begin_as(PLAIN);
    uint64_t block = rely_on_sole(MIB);
    ac_fence_capture_begin(NULL);
    context[0].capturing = true;
    ac_fence_capture_began();
    work_on(1);
    ck_assert_int_eq(mode(), AC_SOLE_JOINING);
    ck_assert_int_eq(pending_bytes(), 0);
    context[0].capturing = false;
    work_on(2);
    ck_assert_int_eq(mode(), AC_SOLE_MANY);
    ck_assert_int_gt(pending_bytes(), 0);
    ck_assert_uint_ne(take(MIB), block);
    end_here();
}
END_TEST

/* A graph may use a block that is held for it. */
START_TEST(what_is_held_for_a_graph_is_early) {
    begin_as((way_t)_i);
    rely_on_sole(MIB);
    uint64_t used = take(4096);
    ac_order_capture_begin(7);
    work_on(0);
    put(used);
    ac_order_capture_end();
    ck_assert_uint_eq(counters.capture_deferred_blocks, 1);
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 1);
    ac_allocator_release(allocator, 7);
    end_here();
}
END_TEST

/* A free in stream order is not work. The freed block is still early. */
START_TEST(what_was_freed_in_order_is_early) {
    uint64_t block, again;
    begin_as(PLAIN);
    block = rely_on_sole(MIB);
    while (take(MIB) != block)
        ;
    ck_assert_int_eq(ac_block_free_on(arena, 48, block), AC_OK);
    ac_arena_stream_is(arena, 48, true);
    if (_i) {
        ck_assert_int_eq(ac_arena_alloc_on(arena, 48, MIB, false, &again), AC_OK);
        ck_assert_uint_eq(again, block);
    }
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 1);
    end_here();
}
END_TEST

/* The queue stays in order: blocks that wait for later work stay behind. */
START_TEST(the_queue_stays_in_order) {
    begin_as(PLAIN);
    uint64_t old[6];
    for (int i = 0; i < 6; i++)
        old[i] = take((uint64_t)(i + 2) * MIB);
    uint64_t block = rely_on_sole(MIB);
    while (take(MIB) != block)
        ;
    work_on(1);
    for (int i = 0; i < 3; i++) {
        put(old[i]);
        work_on(0);
    }
    for (int i = 3; i < 6; i++)
        put(old[i]);
    put(block);
    check();
    fake_complete(&context[0], 1);
    all_is_over();
    ck_assert_uint_ne(take(MIB), 0);
    check();
    ck_assert_int_eq(pending_bytes(), 0);
    end_here();
}
END_TEST

static void third_works(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != FAKE_RECORD)
        return;
    device.before = NULL;
    work_on(2);
}

/* Another thread records the join event meanwhile. The memory waits for this fence. */
START_TEST(a_third_stream_beside_the_record) {
    begin_as((way_t)_i);
    uint64_t block = rely_on_sole(MIB);
    device.before = third_works;
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 0);
    ck_assert_int_eq(mode(), AC_SOLE_MANY);
    ck_assert_int_gt(pending_bytes(), 0);
    ck_assert_uint_ne(take(MIB), block);
    ck_assert_uint_eq(device.calls[FAKE_RECORD], 1);
    fake_complete(&context[0], 2); /* the third stream's work was submitted before the record */
    ck_assert(ac_fence_poll(timeline, false));
    while (take(MIB) != block)
        ;
    end_here();
}
END_TEST

/* Slabs set aside: they fill up, become empty, become known to others, or end with their
 * context. */
START_TEST(slabs_aside) {
    uint64_t old[40];
    begin_as(PLAIN);
    for (int i = 0; i < 40; i++)
        old[i] = take(4096);
    work_on(0);
    for (int i = 0; i < 20; i++)
        put(old[i]);
    work_on(1);
    ck_assert_uint_eq(context[0].join_events, 0);
    check();
    for (int i = 20; i < 40; i++) {
        put(old[i]);
        if (i == 30 && _i == 1) {
            bool fresh;
            ck_assert_int_eq(ac_block_taint(old[39], &fresh), AC_OK);
        }
        check();
    }
    if (_i == 2) {
        fake_context_kill(&context[0]);
        ac_arena_drop(arena);
        return;
    }
    all_is_over();
    check();
    ck_assert_uint_ne(take(4096), 0);
    check();
    ck_assert_int_eq(pending_bytes(), 0);
    end_here();
}
END_TEST

/* The only cache tracks the distance to the peaks. */
START_TEST(peaks_stay_true) {
    begin_as(CACHED);
    uint64_t block = rely_on_sole(30 * MIB);
    for (int i = 0; i < 4; i++)
        put(take(4096));
    work_on(1);
    ac_device_stats_t now;
    ac_allocator_stats(allocator, &now);
    int64_t active = now.active_bytes[AC_POOL_ALL].current;
    ck_assert_int_ge(active, (int64_t)(60 * MIB));
    ck_assert_int_eq(now.active_bytes[AC_POOL_ALL].peak, active);
    for (int i = 0; i < 100; i++) {
        take(4096);
        ac_allocator_stats(allocator, &now);
        ck_assert_int_eq(now.active_bytes[AC_POOL_ALL].peak,
                         now.active_bytes[AC_POOL_ALL].current);
    }
    ck_assert_uint_ne(block, 0);
    end_here();
}
END_TEST

int main(void) {
    atomic_store(&ac_sole_eager, true);
    Suite *suite = suite_create("quarantine");
    TCase *tests = tcase_create("quarantine");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, nothing_early_is_held, 0, SIZES * WAYS);
    tcase_add_loop_test(tests, an_early_block_is_held, 0, SIZES * WAYS);
    tcase_add_loop_test(tests, old_blocks_are_not_early, 0, WAYS);
    tcase_add_loop_test(tests, work_that_is_over_makes_no_block_early, 0, WAYS);
    tcase_add_loop_test(tests, another_sole, 0, WAYS);
    tcase_add_test(tests, while_a_stream_captures);
    tcase_add_loop_test(tests, what_is_held_for_a_graph_is_early, 0, WAYS);
    tcase_add_loop_test(tests, what_was_freed_in_order_is_early, 0, 2);
    tcase_add_test(tests, the_queue_stays_in_order);
    tcase_add_loop_test(tests, a_third_stream_beside_the_record, 0, WAYS);
    tcase_add_loop_test(tests, slabs_aside, 0, 3);
    tcase_add_test(tests, peaks_stay_true);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
