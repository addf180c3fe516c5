/* Blocks that a thread's cache gives back when a request of its owner finds no free memory, on a fake
 * device. The program holds little, so the cache matters. */
#include <string.h>

#include "allocator_frame.h"
#include "run_suite.h"

#define LIMIT (64 * MIB) /* so that AC_CACHE_KEPT is kept ready */

static ac_cache_tally_t tally;
static ac_cache_t *cache;

static void begin_cached(void) {
    begin_large();
    settings.thread_cache = LIMIT;
    ac_allocator_configure(allocator, &settings);
    memset(&tally, 0, sizeof tally);
    cache = ac_cache_open(arena, &tally);
    ck_assert_ptr_nonnull(cache);
}

static void end_cached(void) {
    end();
    ac_cache_close(cache);
    end();
    complete(0); /* completes the fence under way */
    ac_fence_poll(ac_arena_timeline(arena), false);
}

static uint64_t take(uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_cache_alloc(cache, bytes, false, &address), AC_OK);
    return address;
}

static void put(uint64_t address) {
    ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
}

/* Makes `bytes` a size that the cache keeps: it is requested twice. */
static void habit(uint64_t bytes) {
    put(take(bytes));
    put(take(bytes));
    ac_caches_recall(allocator, cache);
}

static void finish_work(void) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_fence_close(timeline, false);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    ac_fence_poll(timeline, false);
}

static bool flush(uint64_t size, bool all) {
    const char *why = NULL;
    ac_lock(&allocator->lock);
    bool any = ac_cache_flush(cache, size, size <= 256 << 10 ? 256 << 10 : AC_CACHE_LARGEST, all);
    ac_unlock(&allocator->lock);
    ck_assert_msg(!ac_allocator_check(allocator, &why), "%s", why);
    return any;
}

static bool keeps(uint64_t size) {
    const ac_entry_t *entry = ac_cache_find(cache, size);
    return entry && entry->top;
}

/* The order differs from that of the sizes. */
static const uint64_t sizes[] = {8 * MIB, 512 << 10, 16 * MIB, 4 * MIB, 15 * MIB, 6 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Allocates a block of each of the first `count` sizes and frees them. With `work`, work is pending at
 * the free. */
static void free_all(int count, bool work) {
    uint64_t held[SIZES];
    for (int i = 0; i < count; i++)
        habit(sizes[i]);
    for (int i = 0; i < count; i++)
        held[i] = take(sizes[i]);
    if (work)
        submit(0);
    for (int i = 0; i < count; i++)
        put(held[i]);
}

START_TEST(the_largest_goes_and_the_rest_stays) {
    free_all(4, false);
    for (int i = 0; i < 4; i++)
        ck_assert(keeps(sizes[i]));
    ck_assert(!flush(MIB, false)); /* it is within the budget */
    ck_assert(flush(MIB, true));
    ck_assert(!keeps(16 * MIB) && keeps(8 * MIB) && keeps(4 * MIB) && keeps(512 << 10));
    ck_assert(flush(8 * MIB + 512, true)); /* two blocks */
    ck_assert(!keeps(8 * MIB) && !keeps(4 * MIB) && keeps(512 << 10));
    ck_assert(flush(MIB, true));
    ck_assert(!flush(MIB, true));
}
END_TEST

START_TEST(a_program_that_holds_much_gets_all) {
    free_all(4, false);
    allocator->high_water = 2048 * MIB;
    ck_assert(flush(MIB, false));
    for (int i = 0; i < 4; i++)
        ck_assert(!keeps(sizes[i]));
    ck_assert(!flush(MIB, false));
}
END_TEST

START_TEST(small_ones_stay_with_small_ones) {
    habit(4096);
    free_all(4, false);
    put(take(4096));
    ck_assert(flush(4096, true)); /* all these blocks */
    ck_assert(!keeps(4096) && keeps(4 * MIB) && keeps(16 * MIB));
}
END_TEST

START_TEST(what_becomes_ready_beyond_the_budget_goes) {
    free_all(SIZES, true);
    ck_assert_uint_eq(tally.side[1].waiting.blocks, SIZES);
    ck_assert(!flush(MIB, true)); /* the device works on the blocks */
    ck_assert_uint_eq(tally.side[1].waiting.blocks, SIZES);
    finish_work();
    ck_assert(flush(MIB, false));
    ck_assert_uint_eq(tally.side[1].waiting.blocks, 0);
    for (int i = 0; i < SIZES; i++)
        ck_assert(keeps(sizes[i]) == (sizes[i] <= 8 * MIB));
    ck_assert(!flush(MIB, false));
}
END_TEST

/* Small blocks also leave if there are no large ones to give and nothing to lease. */
START_TEST(small_ones_that_become_ready_are_within_the_budget) {
    enum { SIZE = 4096, EACH = MIB / SIZE };
    uint64_t ready[EACH], waits[EACH];
    settings.thread_cache = MIB;
    ac_allocator_configure(allocator, &settings);
    habit(SIZE);
    for (int i = 0; i < EACH; i++) {
        ready[i] = take(SIZE);
        waits[i] = take(SIZE);
    }
    ac_caches_recall(allocator, cache);
    for (int i = 0; i < EACH; i++)
        put(ready[i]);
    submit(0);
    for (int i = 0; i < EACH; i++)
        put(waits[i]);
    ck_assert_uint_eq(tally.side[0].waiting.blocks, EACH);
    finish_work();
    ck_assert(flush(MIB, false)); /* ready blocks join free memory */
    ck_assert_uint_eq(tally.side[0].waiting.blocks, 0);
    ck_assert_uint_eq(ac_cache_tally_held(&tally, 0), EACH);
    ck_assert(!flush(MIB, false));
}
END_TEST

/* All blocks have one size, and each waits for later work than the one before. */
START_TEST(only_what_is_over_becomes_ready) {
    uint64_t held[3], then = 0;
    habit(MIB);
    for (int i = 0; i < 3; i++)
        held[i] = take(MIB);
    for (int i = 0; i < 3; i++) {
        submit(0);
        if (i == 2) {
            ac_fence_close(ac_arena_timeline(arena), false);
            then = atomic_load(&context[0].submitted);
            submit(0);
        }
        put(held[i]);
    }
    fake_complete(&context[0], then);
    ac_fence_poll(ac_arena_timeline(arena), false);
    ck_assert(!flush(512 * MIB, false));
    ck_assert_uint_eq(tally.side[1].waiting.blocks, 1);
    ck_assert_uint_eq(ac_cache_find(cache, MIB)->top->link->link == NULL, 1);
    ck_assert(flush(512 * MIB, true));
    ck_assert(!keeps(MIB));
    ck_assert_uint_eq(tally.side[1].waiting.blocks, 1);
    finish_work();
    uint64_t address;
    ck_assert(ac_cache_take_long(cache, MIB, &address));
    ck_assert_uint_eq(address, held[2]);
    put(address);
}
END_TEST

/* No memory is free, and more is reserved than the limit for taking new memory instead of cached
 * blocks. The program was small so far. */
#define WANTED (8 * MIB + 512)
static uint64_t held[64], large, awaited;
static unsigned count;

static void use_up(void) {
    habit(9 * MIB);
    habit(MIB);
    large = take(9 * MIB);
    awaited = take(MIB);
    for (count = 0; count < 24; count++)
        held[count] = take(WANTED);
    while ((held[count] = ac_cache_fetch(cache, WANTED)))
        count++;
    put(large);
    put(take(MIB)); /* leases room for both */
    ck_assert(keeps(9 * MIB));
    submit(0);
    put(awaited);
    allocator->high_water = 0;
}

static void free_held(void) {
    while (count > 0)
        put(held[--count]);
}

/* While a block waits, the allocator polls the device before it gives up ready blocks of the cache. */
START_TEST(the_device_is_asked_first) {
    uint64_t address;
    use_up();
    ck_assert_uint_eq(ac_cache_fetch(cache, WANTED), 0);
    ck_assert(keeps(9 * MIB));
    finish_work();
    uint64_t ready = take(MIB);
    ck_assert_uint_eq(take(MIB), awaited);
    address = ac_cache_fetch(cache, WANTED);
    ck_assert_uint_ne(address, 0); /* nothing waits */
    ck_assert_uint_eq(address, large);
    put(address);
    put(ready);
    put(awaited);
    free_held();
}
END_TEST

/* A miss may poll by itself. Work that is over at that time is no reason to keep the rest any
 * longer. */
START_TEST(a_miss_asks_the_device) {
    use_up();
    ck_assert_uint_eq(ac_cache_fetch_ready(cache, WANTED), 0);
    ck_assert(keeps(9 * MIB));
    finish_work();
    ck_assert_uint_eq(ac_cache_fetch(cache, WANTED), 0);
    int64_t reserved = stats.reserved_bytes[AC_POOL_ALL].current;
    ck_assert_uint_eq(ac_cache_fetch_ready(cache, WANTED), large);
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_ALL].current, reserved);
    put(large);
    free_held();
}
END_TEST

/* The cache gives its blocks up before the allocator reserves more memory. */
START_TEST(then_the_cache_gives_way) {
    use_up();
    int64_t reserved = stats.reserved_bytes[AC_POOL_ALL].current;
    ck_assert_uint_eq(take(WANTED), large);
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_ALL].current, reserved);
    ck_assert_uint_eq(tally.side[1].waiting.blocks, 1); /* the other block stays */
    put(large);
    free_held();
}
END_TEST

/* Large blocks do not help medium requests in arenas that grow by pages. Medium blocks leave without
 * the large ones. */
START_TEST(medium_blocks_go_for_medium_requests) {
    enum { MEDIUM = 200 << 10, COUNT = 10 };
    uint64_t medium[COUNT], whole = 512 << 10, address;
    settings.expandable_segments = true;
    settings.page = 8 * MIB;
    settings.small_page = AC_SEGMENT_ALIGN;
    ac_allocator_configure(allocator, &settings);
    habit(MEDIUM);
    habit(whole);
    address = take(whole);
    for (int i = 0; i < COUNT; i++) /* fills a page of 2 MiB */
        medium[i] = take(MEDIUM);
    put(address);
    for (int i = 0; i < COUNT; i++)
        put(medium[i]);
    ck_assert(keeps(whole) && keeps(MEDIUM));
    allocator->high_water = 0;
    settings.thread_cache =
        0; /* so that no memory may be reserved instead of taking from a cache */
    allocator->settings.thread_cache = 0;
    uint64_t other_size;
    other_size = ac_cache_fetch(cache, 256 << 10);
    ck_assert_uint_ne(other_size, 0);
    ck_assert(keeps(whole));
    put(other_size);
}
END_TEST

/* The context has ended, and the cache does not know it yet. */
START_TEST(a_dead_context_serves_nothing) {
    uint64_t address;
    use_up();
    finish_work();
    take(MIB);
    take(MIB); /* takes the block that waited; none waits now */
    ac_lock(&allocator->lock);
    arena->dead = true;
    ac_unlock(&allocator->lock);
    ck_assert_uint_eq(ac_cache_fetch(cache, WANTED), 0);
    ck_assert(keeps(9 * MIB));
    ac_lock(&allocator->lock);
    arena->dead = false;
    ac_unlock(&allocator->lock);
    address = ac_cache_fetch(cache, WANTED);
    ck_assert_uint_ne(address, 0);
    ck_assert_uint_eq(address, large);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache_flush");
    TCase *all = tcase_create("flush");
    tcase_add_checked_fixture(all, begin_cached, end_cached);
    tcase_add_test(all, the_largest_goes_and_the_rest_stays);
    tcase_add_test(all, a_program_that_holds_much_gets_all);
    tcase_add_test(all, small_ones_stay_with_small_ones);
    tcase_add_test(all, what_becomes_ready_beyond_the_budget_goes);
    tcase_add_test(all, small_ones_that_become_ready_are_within_the_budget);
    tcase_add_test(all, only_what_is_over_becomes_ready);
    tcase_add_test(all, the_device_is_asked_first);
    tcase_add_test(all, a_miss_asks_the_device);
    tcase_add_test(all, then_the_cache_gives_way);
    tcase_add_test(all, a_dead_context_serves_nothing);
    tcase_add_test(all, medium_blocks_go_for_medium_requests);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
