/* Blocks of sizes that a thread's cache does not keep, on a fake device. */
#include "cache_frame.h"
#include "run_suite.h"

/* The free takes no lock. The block leaves with the next request that can use it. */
START_TEST(loose_blocks_go_with_the_next_request) {
    uint64_t block[3], address;
    for (unsigned i = 0; i < 3; i++)
        block[i] = alloc((5 + i) * MIB);
    take(700);
    ac_caches_recall(allocator, cache); /* the cache knows now that others raise figures */
    ac_lock(&allocator->lock);
    for (int i = 0; i < 3; i++)
        put(block[i]);
    ac_unlock(&allocator->lock);
    ck_assert_uint_eq(counted().thread_cache_blocks, 3);
    ck_assert_uint_eq(counted().thread_cache_bytes, 18 * MIB);
    ck_assert_int_eq(now().active[AC_POOL_LARGE].current, 0);
    end();
    ck_assert(!hit(5 * MIB, &address));
    take(6000); /* a size of the other pool */
    ck_assert_uint_eq(cache->loose_count, 0);
    ck_assert_uint_eq(take(19 * MIB), block[0]);
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
    ck_assert_int_eq(ac_cache_free(cache, block[1]), AC_BAD_ADDRESS);
}
END_TEST

/* A waiting block may be loose. The next request that can take the lock moves it to the arena. */
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
    ck_assert_ptr_null(arena->retired->ledger.fence[0].first);
    end();
    ck_assert(!hit(5 * MIB, &address));
    take(6000);
    ck_assert_uint_eq(cache->loose_count, 0);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_ptr_eq(arena->retired->ledger.fence[0].first, &ac_page_map_get(block[0])->due);
    ck_assert_int_eq(now().active[AC_POOL_LARGE].current, 2);
    end();
    finish_work();
    ck_assert_uint_eq(take(11 * MIB), block[0]); /* both blocks, coalesced */
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
    put(alloc(LIMIT + MIB)); /* their bytes are few, too */
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

/* The other device has another lock. */
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

/* Frees as cudaFree does, but only by the short paths. Returns false if none of them took the block. */
static bool put_short(ac_cache_t *by, uint64_t address) {
    ac_block_t *block = *ac_cache_handed(by, address);
    bool handed = block->address == address;
    ac_give_t given = handed ? ac_cache_give_handed_or_rest(by, address, &block) : AC_GIVE_NONE;
    if (!handed && (block = ac_cache_record(by, address)))
        given = ac_cache_give_found_or_rest(by, address, block);
    if (given == AC_GIVE_KEPT ||
        (given == AC_GIVE_TOUCHED && ac_cache_park_rest(by, block)) ||
        (given == AC_GIVE_REST && ac_cache_loosen_rest(by, block)))
        return true;
    if (given >= AC_GIVE_REST)
        ac_cache_leave(by);
    return false;
}

/* Allocates blocks below the cache's peak, so that the cache hands them out. */
static void stay_below_peaks(ac_cache_t *by) {
    uint64_t block[24];
    for (unsigned i = 0; i < 24; i++)
        ck_assert_int_eq(ac_cache_alloc(by, 9 * MIB + i * AC_GRANULE, false, &block[i]), AC_OK);
    for (unsigned i = 0; i < 24; i++)
        ck_assert_int_eq(ac_cache_free(by, block[i]), AC_OK);
    ac_caches_recall(allocator, by);
}

/* Lets another block take this block's place in `handed`. */
static void forget_handed(uint64_t address) {
    *ac_cache_handed(cache, address) = *ac_cache_handed(cache, take(4096));
}

/* The block is named in `handed` or not, and ready or with pending work. */
START_TEST(the_short_ways_are_as_the_long_one) {
    if (!ac_barrier_is_light()) /* in this case an owner takes the long path */
        return;
    stay_below_peaks(cache);
    ac_sole_settle(ac_arena_timeline(arena), true);
    for (int touched = 0; touched < 2; touched++)
        for (int named = 0; named < 2; named++) {
            ac_device_stats_t before = now();
            uint64_t address = 0, block = take((5 + 2 * (uint64_t)touched + (uint64_t)named) * MIB);
            uint64_t size = ac_cache_record(cache, block)->size;
            if (!named)
                forget_handed(block);
            if (touched)
                submit(0);
            ck_assert(put_short(cache, block));
            ck_assert(!put_short(cache, block)); /* not twice */
            ck_assert_uint_eq(cache->loose_count, 1);
            ck_assert_uint_eq(cache->loose_bytes, size);
            ck_assert_uint_eq(waiting(), touched);
            ck_assert_int_eq(now().allocation[AC_POOL_LARGE].current,
                             before.allocation[AC_POOL_LARGE].current);
            ck_assert_int_eq(now().active[AC_POOL_LARGE].current,
                             before.active[AC_POOL_LARGE].current + touched);
            ck_assert_int_eq(ac_cache_free(cache, block), AC_BAD_ADDRESS);
            end();
            ck_assert(!hit(size, &address));
            take(30000 + size / MIB * AC_GRANULE); /* of a size that is new to the cache */
            ck_assert_uint_eq(cache->loose_count, 0);
            ck_assert_int_eq(arena->retired->ledger.fence[0].first != NULL, touched);
            finish_work();
            take(60000 + size / MIB * AC_GRANULE);
        }
}
END_TEST

/* Two blocks share a place in `handed`. The one that was handed out last is found without the table, the
 * other one by it. */
START_TEST(what_is_left_to_give_is_the_block_at_the_address) {
    bool touched = _i & 1, last = _i & 2;
    if (!ac_barrier_is_light())
        return;
    stay_below_peaks(cache);
    ac_sole_settle(ac_arena_timeline(arena), true);
    uint64_t address = take(5 * MIB), beside;
    ac_block_t *block = *ac_cache_handed(cache, address), *rest = NULL;
    do
        beside = take(AC_GRANULE);
    while (ac_cache_handed(cache, beside) != ac_cache_handed(cache, address));
    ac_block_t *other_one = *ac_cache_handed(cache, beside);
    ck_assert_uint_eq(other_one->address, beside);
    if (last)
        ac_cache_note_last(cache, block, ac_cache_entry(cache, block->size));
    else
        *ac_cache_handed(cache, address) = block;
    if (touched)
        submit(0);
    ck_assert_int_eq(ac_cache_give_handed_or_rest(cache, address, &rest),
                     touched ? AC_GIVE_TOUCHED : AC_GIVE_REST);
    ck_assert_ptr_eq(rest, block);
    ck_assert(touched ? ac_cache_park_rest(cache, rest) : ac_cache_loosen_rest(cache, rest));
    ck_assert_int_eq(ac_cache_free(cache, address), AC_BAD_ADDRESS);
    put(beside);
    finish_work();
}
END_TEST

static void *resize(void *record) {
    ((ac_block_t *)record)->size += AC_GRANULE;
    return NULL;
}

/* For the race detector. Its builds have no short paths, so the gate is opened here; nothing is recalled.
 * The record in the address's place may belong to another thread. */
START_TEST(of_a_record_of_another_address_only_that_is_read) {
    static ac_block_t record;
    ac_block_t *rest;
    pthread_t thread;
    uint64_t address = take(5 * MIB);
    forget_handed(address);
    *ac_cache_handed(cache, address) = &record;
    uint32_t gate = atomic_exchange(&cache->gate, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, resize, &record), 0);
    ck_assert_int_eq(ac_cache_give_handed_or_rest(cache, address, &rest), AC_GIVE_NONE);
    pthread_join(thread, NULL);
    atomic_store(&cache->gate, gate);
    put(address);
}
END_TEST

/* The short paths keep at most AC_CACHE_LOOSE blocks, and no block of a size that has an entry: the long
 * path handles these. */
START_TEST(the_short_ways_leave_what_is_kept) {
    uint64_t block[AC_CACHE_LOOSE + 1], address;
    if (!ac_barrier_is_light())
        return;
    stay_below_peaks(cache);
    for (unsigned i = 0; i <= AC_CACHE_LOOSE; i++)
        block[i] = take((200 + i) << 10);
    for (unsigned i = 0; i < AC_CACHE_LOOSE; i++)
        ck_assert(put_short(cache, block[i]));
    ck_assert(!put_short(cache, block[AC_CACHE_LOOSE]));
    put(block[AC_CACHE_LOOSE]);
    habit(7 * MIB); /* its entry exists, without blocks; a hit would leave it otherwise */
    address = take(7 * MIB);
    ac_cache_find(cache, 7 * MIB)->size |= AC_ENTRY_EMPTY;
    ck_assert(!put_short(cache, address));
    ac_block_t *rest;
    ck_assert_int_eq(ac_cache_give_handed_or_rest(cache, address, &rest), AC_GIVE_REST);
    ck_assert(ac_cache_give_untouched(cache, rest));
    ck_assert_uint_eq(take(7 * MIB), address);
}
END_TEST

/* Another thread's cache handed the block out, and the block goes back there. */
START_TEST(the_short_ways_leave_what_another_cache_handed_out) {
    ac_cache_t *other = ac_cache_open(arena, &tally[1]);
    uint64_t block = 0;
    stay_below_peaks(other);
    ck_assert_int_eq(ac_cache_alloc(other, 5 * MIB, false, &block), AC_OK);
    ck_assert_ptr_eq(ac_cache_record(cache, block)->home, other);
    ck_assert(!put_short(cache, block));
    put(block);
    ck_assert_uint_eq(cache->loose_count, 0);
    ck_assert(ac_inbox_has_any(&other->inbox));
    put(take(MIB / 4)); /* this cache keeps the size, so the block is its own from here on */
    ck_assert_int_eq(ac_cache_alloc(other, MIB / 4, false, &block), AC_OK);
    put(take(MIB / 4));
    ck_assert_int_ge(cache->room, 0);
    ck_assert(!put_short(cache, block));
    put(block);
    ck_assert_ptr_eq(ac_cache_record(cache, block)->home, cache);
    ac_cache_close(other);
}
END_TEST

START_TEST(a_closed_cache_has_no_loose_blocks) {
    put(alloc(5 * MIB));
    ac_cache_close(cache);
    cache = NULL;
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 20 * MIB);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache_loose");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin_cached, end_cached);
    tcase_add_test(all, loose_blocks_go_with_the_next_request);
    tcase_add_test(all, what_waits_may_be_loose);
    tcase_add_test(all, few_blocks_are_loose);
    tcase_add_test(all, loose_blocks_are_taken_back);
    tcase_add_test(all, a_free_of_another_device_leaves_them);
    tcase_add_test(all, the_short_ways_are_as_the_long_one);
    tcase_add_loop_test(all, what_is_left_to_give_is_the_block_at_the_address, 0, 4);
    tcase_add_test(all, of_a_record_of_another_address_only_that_is_read);
    tcase_add_test(all, the_short_ways_leave_what_is_kept);
    tcase_add_test(all, the_short_ways_leave_what_another_cache_handed_out);
    tcase_add_test(all, a_closed_cache_has_no_loose_blocks);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
