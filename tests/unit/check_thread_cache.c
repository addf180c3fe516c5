/* Thread caches on a fake device: the blocks that they keep and give back, and their figures. */
#include <string.h>

#include "allocator_frame.h"
#include "run_suite.h"

#define LIMIT (8 * MIB)

static ac_cache_tally_t tally[2];
static ac_cache_t *cache;

static void configure(uint64_t most, uint32_t divisions) {
    settings.thread_cache = most;
    settings.divisions[0] = divisions;
    ac_allocator_configure(allocator, &settings);
}

static void begin_cached(void) {
    begin_large();
    configure(LIMIT, 0);
    memset(tally, 0, sizeof tally);
    cache = ac_cache_open(arena, &tally[0]);
    ck_assert_ptr_nonnull(cache);
}

static void end_cached(void) {
    end();
    if (cache)
        ac_cache_close(cache);
    end();
    ck_assert_uint_eq(tally[0].side[0].flow.taken, 0);
}

static uint64_t take(uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_cache_alloc(cache, bytes, false, &address), AC_OK);
    return address;
}

static void put(uint64_t address);

/* Makes `bytes` a size that the cache keeps: it is requested twice. */
static void habit(uint64_t bytes) {
    put(take(bytes));
    put(take(bytes));
    ac_caches_recall(allocator, cache);
}

/* Returns true if the cache alone served the request. */
static bool hit(uint64_t bytes, uint64_t *address) {
    return ac_cache_take(cache, bytes, address, ac_fence_handout) ||
           ac_cache_take_long(cache, bytes, address);
}

static void put(uint64_t address) {
    ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
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

/* --- kept blocks --- */

START_TEST(a_freed_block_serves_its_very_size) {
    uint64_t address;
    put(take(MIB));
    ck_assert(!hit(MIB, &address)); /* one request does not make the cache keep the size */
    habit(MIB);
    habit(3 * MIB);
    uint64_t a = take(3 * MIB), b = take(MIB);
    put(a);
    put(b);
    ck_assert(!hit(2 * MIB, &address));
    ck_assert(hit(3 * MIB - 5, &address));
    ck_assert_uint_eq(address, a);
    ck_assert(hit(MIB, &address));
    ck_assert_uint_eq(address, b);
    ck_assert(!hit(MIB, &address));
    put(a);
    ck_assert(!ac_cache_give_handed(cache, a)); /* not twice */
    ck_assert_int_eq(ac_cache_free(cache, a), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_cache_free(cache, b + AC_GRANULE), AC_BAD_ADDRESS);
    ck_assert_int_eq(ac_cache_free(cache, 4096), AC_NOT_OURS);
}
END_TEST

START_TEST(the_last_freed_is_the_first_to_serve) {
    uint64_t block[4];
    for (int i = 0; i < 4; i++)
        block[i] = take(MIB);
    for (int i = 0; i < 4; i++)
        put(block[i]);
    uint64_t kept = 2; /* LIMIT / 4 / MIB */
    for (uint64_t i = 0; i < kept; i++)
        ck_assert_uint_eq(take(MIB), block[3 - i]);
}
END_TEST

START_TEST(small_blocks_come_several_at_a_time) {
    uint64_t address;
    unsigned hits = 0, in_a_row = 0, most = 0;
    take(1000);
    ck_assert(!hit(1000, &address)); /* one request does not make the cache keep the size */
    for (int i = 0; i < 100; i++) {
        if (hit(1024, &address)) {
            hits++;
            most = ++in_a_row > most ? in_a_row : most;
        } else {
            in_a_row = 0;
            take(1024);
        }
    }
    ck_assert_uint_gt(hits, 80);
    ck_assert_uint_eq(most, 16); /* no more are fetched at a time */
    ck_assert_int_eq(now().allocation[AC_POOL_SMALL].current, 101);
}
END_TEST

START_TEST(what_is_kept_is_bounded) {
    uint64_t block[64], most = 0;
    for (int size = 0; size < 8; size++) {
        for (int i = 0; i < 64; i++)
            block[i] = take((uint64_t)512 << 2 * size);
        for (int i = 0; i < 64; i++) {
            put(block[i]);
            ac_device_counters_t all = counted();
            ck_assert_uint_le(all.thread_cache_bytes - cache->loose_bytes,
                              LIMIT + ((uint64_t)512 << 2 * size));
            ck_assert_uint_le(cache->loose_bytes, LIMIT);
            most = all.thread_cache_blocks > most ? all.thread_cache_blocks : most;
        }
    }
    ck_assert_uint_ge(most, 32);
}
END_TEST

/* The own entry of the last block may belong to another size at the time of its free. */
START_TEST(what_was_handed_out_last_goes_to_its_size) {
    uint64_t size = MIB, rival = MIB, address;
    if (!ac_barrier_is_light()) /* in this case an owner takes the long path */
        return;
    do
        rival += 512;
    while (ac_cache_entry(cache, rival) != ac_cache_entry(cache, size));
    habit(size);
    habit(rival);
    uint64_t a = take(size), b = take(rival);
    put(b);
    ck_assert(hit(rival, &address));
    ck_assert_uint_eq(address, b);
    ck_assert_uint_eq(ac_cache_entry(cache, rival)->size, rival);
    put(a);
    ck_assert_uint_eq(ac_cache_entry(cache, size)->size, size);
    ck_assert(!ac_cache_give_handed(cache, b));
    put(b);
    ck_assert(hit(size, &address));
    ck_assert_uint_eq(address, a);
    ck_assert(hit(rival, &address));
    ck_assert_uint_eq(address, b);
    ck_assert(ac_cache_give_handed(cache, b));
    ck_assert(!ac_cache_give_handed(cache, b));
    put(a);
}
END_TEST

/* Sizes that share an own entry. All sizes of a bucket hit, and change places. */
START_TEST(sizes_of_one_bucket_hit) {
    uint64_t size[AC_CACHE_WAYS], address;
    const ac_entry_t *own = ac_cache_entry(cache, 512);
    unsigned sizes = 0;
    for (uint64_t at = 512; sizes < AC_CACHE_WAYS; at += 512)
        if (ac_cache_entry(cache, at) == own)
            habit(size[sizes++] = at);
    for (unsigned i = 0; i < sizes; i++)
        put(take(size[i]));
    end();
    for (int round = 0; round < 3; round++)
        for (unsigned i = 0; i < sizes; i++) {
            ck_assert(hit(size[i], &address));
            ac_block_info_t info;
            ck_assert_int_eq(ac_block_find(address, &info), AC_OK);
            ck_assert_uint_eq(info.size, size[i]);
            put(address);
            end();
        }
}
END_TEST

/* In a full bucket a size that is requested again takes the entry of a size without blocks. While all have
 * blocks it gets none. */
START_TEST(a_full_bucket_takes_no_more_sizes) {
    uint64_t size[AC_CACHE_WAYS + 1];
    const ac_entry_t *own = ac_cache_entry(cache, 512);
    unsigned sizes = 0;
    for (uint64_t at = 512; sizes <= AC_CACHE_WAYS; at += 512)
        if (ac_cache_entry(cache, at) == own)
            size[sizes++] = at;
    for (unsigned i = 0; i < AC_CACHE_WAYS; i++)
        habit(size[i]);
    for (unsigned i = 0; i < AC_CACHE_WAYS; i++)
        put(take(size[i]));
    for (int i = 0; i < 2; i++)
        put(take(size[AC_CACHE_WAYS]));
    ck_assert_ptr_null(ac_cache_find(cache, size[AC_CACHE_WAYS]));
    for (unsigned i = 0; i < AC_CACHE_WAYS; i++)
        ck_assert_ptr_nonnull(ac_cache_find(cache, size[i]));
    ac_caches_recall(allocator, cache);
    for (int i = 0; i < 2; i++)
        put(take(size[AC_CACHE_WAYS]));
    ck_assert_ptr_nonnull(ac_cache_find(cache, size[AC_CACHE_WAYS]));
}
END_TEST

/* A request of another size leaves the kept blocks alone while there is free memory. */
START_TEST(a_miss_leaves_the_others) {
    uint64_t address;
    habit(MIB);
    habit(3 * MIB);
    put(take(MIB));
    put(take(3 * MIB));
    put(take(2 * MIB));
    for (int i = 0; i < 10; i++) {
        ck_assert(hit(MIB, &address));
        put(address);
        ck_assert(hit(3 * MIB, &address));
        put(address);
    }
}
END_TEST

/* Returns true if the size has an entry that keeps no blocks. */
static bool is_refused(uint64_t size) {
    const ac_entry_t *entry = ac_cache_find(cache, size);
    return entry && entry->size & AC_ENTRY_REFUSED;
}

START_TEST(a_sweep_gives_back_the_largest) {
    uint64_t address, block[LIMIT / MIB + 1];
    habit(64 << 10);
    habit(MIB);
    habit(3 * MIB);
    put(take(64 << 10));
    put(take(3 * MIB));
    for (unsigned i = 0; i < LIMIT / MIB - 2; i++)
        block[i] = take(MIB);
    for (unsigned i = 0; i < LIMIT / MIB - 2; i++) {
        put(block[i]);
        end();
    }
    ck_assert(!hit(3 * MIB, &address));
    ck_assert(is_refused(3 * MIB));
    ck_assert(!is_refused(MIB));
    ck_assert(hit(64 << 10, &address));
    for (unsigned i = 0; i < 4; i++)
        ck_assert(hit(MIB, &address));
}
END_TEST

/* Requests and frees alternate, with no other free in between. A pair of any size hits. */
START_TEST(a_refused_size_comes_back) {
    uint64_t size = _i ? 100 * MIB : 3 * MIB, address;
    habit(size);
    habit(MIB);
    ac_cache_find(cache, size)->size |= AC_ENTRY_REFUSED;
    for (int i = 0; i < 3; i++) {
        put(take(MIB));
        put(take(size));
        ck_assert(!hit(size, &address));
    }
    ck_assert(is_refused(size));
    for (int i = 0; i < 3; i++)
        put(take(size));
    ck_assert(hit(size, &address));
    put(address);
    ck_assert_uint_ge(counted().thread_cache_bytes, size);
}
END_TEST

/* A cache keeps a bounded number of blocks, so that a recall ends soon. */
START_TEST(how_many_are_kept_is_bounded) {
    enum { BLOCKS = 3 * AC_CACHE_BLOCKS, BYTES = 512 };
    static uint64_t block[BLOCKS];
    uint64_t most = 0;
    configure(64 * MIB, 0);
    habit(BYTES);
    for (int i = 0; i < BLOCKS; i++)
        block[i] = take(BYTES);
    for (int i = 0; i < BLOCKS; i++) {
        put(block[i]);
        uint64_t held = ac_cache_tally_held(&tally[0], 0);
        most = held > most ? held : most;
    }
    ck_assert_uint_ge(most, AC_CACHE_BLOCKS);
    ck_assert_uint_le(most, AC_CACHE_BLOCKS + MIB / BYTES + AC_CACHE_LOOSE); /* this many fill its last lease */
}
END_TEST

/* All threads together keep no more than one thread may. A recall frees one thread's blocks for the others. */
START_TEST(threads_share_a_budget) {
    uint64_t block[2 * AC_CACHE_KEPT / MIB];
    configure(1024 * MIB, 0);
    ac_cache_t *second = ac_cache_open(arena, &tally[1]), *const both[] = {cache, second};
    for (int c = 0; c < 2; c++) {
        cache = both[c];
        habit(MIB);
        for (unsigned i = 0; i < AC_CACHE_KEPT / MIB; i++)
            block[i] = take(MIB);
        for (unsigned i = 0; i < AC_CACHE_KEPT / MIB; i++)
            put(block[i]);
        end();
        ck_assert_uint_ge(both[c]->budget, c ? AC_CACHE_OWN : AC_CACHE_KEPT - MIB);
        ck_assert_uint_le(counted().thread_cache_bytes - cache->loose_bytes,
                          AC_CACHE_KEPT + (c + 1) * MIB + c * AC_CACHE_OWN);
    }
    ac_caches_recall(allocator, second);
    ck_assert_uint_eq(allocator->caches->leased, 0);
    for (unsigned i = 0; i < AC_CACHE_KEPT / MIB; i++)
        block[i] = take(MIB);
    for (unsigned i = 0; i < AC_CACHE_KEPT / MIB; i++)
        put(block[i]);
    ck_assert_uint_ge(second->budget, AC_CACHE_KEPT - MIB);
    ac_cache_close(second);
    ck_assert_uint_eq(allocator->caches->leased, 0);
    cache = both[0];
}
END_TEST

/* A program that needs little memory grows before its thread loses kept blocks, unless the device has no
 * more. */
START_TEST(a_small_program_grows) {
    uint64_t address;
    configure(1024 * MIB, 0);
    habit(7 * MIB);
    habit(9 * MIB);
    put(take(7 * MIB));
    put(take(9 * MIB));
    unsigned calls = device.calls[FAKE_SEGMENT_ALLOC];
    device.capacity = _i ? device.used : device.capacity;
    put(take(17 * MIB));
    ck_assert_uint_gt(device.calls[FAKE_SEGMENT_ALLOC], calls);
    ck_assert_int_eq(hit(7 * MIB, &address), !_i);
}
END_TEST

START_TEST(huge_sizes_have_no_cache) {
    uint64_t address;
    const uint64_t sizes[] = {0, UINT64_MAX, UINT64_MAX - 600, (uint64_t)1 << 62,
                              (uint64_t)1 << 48};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ck_assert_int_eq(ac_cache_alloc(cache, sizes[i], false, &address), AC_OOM);
}
END_TEST

START_TEST(only_ready_blocks_are_kept) {
    uint64_t busy = take(MIB), idle, address;
    submit(0);
    idle = take(MIB); /* allocated after the work */
    put(busy);
    ck_assert(!hit(MIB, &address));
    put(idle);
    ck_assert(hit(MIB, &address));
    ck_assert_uint_eq(address, idle);
    ck_assert_uint_eq(counted().fenced_frees, 1);
    fake_complete(&context[0], 1);
}
END_TEST

START_TEST(shared_blocks_are_not_kept) {
    bool fresh;
    uint64_t shared = take(MIB), beside = take(MIB), address;
    put(beside);
    ck_assert_int_eq(ac_block_taint(shared, &fresh), AC_OK);
    ck_assert(!hit(MIB, &address));
    put(shared);
    ck_assert(!hit(MIB, &address));
}
END_TEST

START_TEST(another_arenas_blocks_are_not_kept) {
    uint64_t foreign = 0, address;
    ck_assert_int_eq(try_alloc(other, MIB, &foreign), AC_OK);
    put(foreign);
    ck_assert(!hit(MIB, &address));
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(foreign, &info), AC_OK);
    ck_assert(!info.allocated && info.arena == other);
}
END_TEST

START_TEST(nothing_is_kept_during_a_capture) {
    uint64_t a = take(MIB), address;
    submit(0); /* captured, maybe */
    ac_order_capture_begin(1);
    submit(0);
    put(a);
    ac_order_capture_end();
    ck_assert(!hit(MIB, &address));
    ck_assert_uint_eq(counters.capture_deferred_frees, 1);
    ac_allocator_release(allocator, 1);
    fake_complete(&context[0], 2);
}
END_TEST

/* --- blocks that return --- */

START_TEST(kept_blocks_are_free_memory) {
    uint64_t block[4];
    for (int i = 0; i < 4; i++)
        block[i] = take(5 * MIB);
    for (int i = 0; i < 4; i++)
        put(block[i]);
    /* No block of this size was freed: the four blocks must coalesce. */
    ck_assert_uint_eq(take(20 * MIB), block[0]);
    ck_assert_int_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    put(block[0]);
    ck_assert_uint_eq(ac_allocator_trim(allocator, false), 20 * MIB);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

START_TEST(others_get_it_before_the_device_is_asked) {
    habit(MIB);
    habit(19 * MIB);
    uint64_t a = take(MIB), b = take(19 * MIB);
    put(a);
    put(b);
    ck_assert_uint_gt(counted().thread_cache_blocks, 0);
    ck_assert_uint_eq(alloc(20 * MIB), a); /* by a thread without a cache */
    ck_assert_int_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    give(a);
    ck_assert_uint_eq(take(20 * MIB), a);
    ac_cache_t *second = ac_cache_open(arena, &tally[1]);
    put(a);
    uint64_t address;
    ck_assert_int_eq(ac_cache_alloc(second, 18 * MIB, false, &address), AC_OK);
    ck_assert_uint_eq(address, a);
    ck_assert_int_eq(device.calls[FAKE_SEGMENT_ALLOC], 1);
    ac_cache_close(second);
}
END_TEST

START_TEST(idle_memory_counts_what_is_kept) {
    uint64_t address;
    habit(2 * MIB);
    uint64_t a = take(2 * MIB);
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 0);
    put(a);
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 20 * MIB);
    ck_assert(hit(2 * MIB, &address)); /* the query took no block from the cache */
    ck_assert_uint_eq(ac_allocator_idle_bytes(allocator), 0);
}
END_TEST

START_TEST(a_cache_outlives_its_context) {
    uint64_t address, a = take(MIB);
    put(a);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert(!hit(MIB, &address));
    ck_assert_int_ne(ac_cache_alloc(cache, MIB, false, &address), AC_OK);
    ck_assert_int_eq(ac_cache_free(cache, a), AC_NOT_OURS);
    ck_assert_ptr_null(ac_cache_open(arena, &tally[1]));
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
}
END_TEST

/* A cache may remember the block, and another record may have the address now. */
/* The thread was suspended inside a hit for the whole time. */
START_TEST(a_thread_inside_when_it_ended_is_left_alone) {
    uint64_t address;
    take(512);
    put(take(MIB));
    put(take(MIB)); /* kept, because the size was requested again */
    submit(0);
    atomic_store(&cache->busy, 1);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert_ptr_nonnull(ac_cache_entry(cache, MIB)->top);
    atomic_store(&cache->busy, 0);
    end();
    ck_assert(!ac_caches_recall(allocator, NULL));
    ac_caches_settle(allocator);
    ck_assert(!hit(MIB, &address));
    ck_assert_int_eq(now().active_bytes[AC_POOL_ALL].current, 0);
    ac_cache_close(cache);
    cache = ac_cache_open(other, &tally[0]); /* the same record */
    ck_assert_ptr_null(cache->next);
}
END_TEST

START_TEST(a_record_that_came_back_says_no_address) {
    habit(MIB);
    uint64_t before = take(2 * MIB), a = take(MIB), address;
    put(a);
    ck_assert(hit(MIB, &address));
    ck_assert_uint_eq(address, a);
    const ac_block_t *record = *ac_cache_handed(cache, a);
    ck_assert_ptr_eq(record, ac_page_map_get(a));
    put(a);
    put(before);
    ck_assert(ac_caches_recall(allocator, NULL)); /* all one block again */
    ck_assert_ptr_null(ac_page_map_get(a));
    ck_assert_uint_ne(ac_block_address(record), a);
}
END_TEST

START_TEST(closing_gives_everything_back) {
    for (int i = 0; i < 10; i++)
        put(take(700 * (uint64_t)(i + 1)));
    put(take(MIB));
    ac_cache_close(cache);
    cache = NULL;
    ck_assert_uint_eq(counted().thread_cache_bytes, 0);
    ck_assert_int_eq(now().allocation[AC_POOL_ALL].freed, 11);
    ac_allocator_trim(allocator, false);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* The figures are read while the owner is inside a hit. This is its last hit before it closes the cache. */
START_TEST(closing_absorbs_what_was_read_in_parts) {
    uint64_t address = take(MIB), *bytes = &tally[0].side[1].flow.given_bytes;
    put(address);
    *bytes -= MIB;
    ck_assert_int_eq(now().allocated_bytes[AC_POOL_ALL].current, MIB);
    *bytes += MIB;
    ac_cache_close(cache);
    cache = NULL;
    ck_assert_int_eq(now().allocated_bytes[AC_POOL_ALL].current, 0);
}
END_TEST

/* Another thread then takes memory with the lock. No peak counts the freed block. */
START_TEST(a_peak_lacks_what_was_read_in_parts) {
    uint64_t address = take(MIB), *bytes = &tally[0].side[1].flow.given_bytes, other_address;
    put(address);
    *bytes -= MIB;
    now();
    *bytes += MIB;
    ac_cache_t *second = ac_cache_open(arena, &tally[1]);
    ck_assert_int_eq(ac_cache_alloc(second, MIB, false, &other_address), AC_OK);
    ck_assert_int_eq(ac_cache_free(second, other_address), AC_OK);
    ck_assert_int_eq(now().allocated_bytes[AC_POOL_ALL].peak, MIB);
    ac_cache_close(second);
}
END_TEST

/* --- settings --- */

START_TEST(none_where_the_settings_say_so) {
    uint64_t address, a = take(MIB);
    put(a);
    configure(0, 0);
    ck_assert(!hit(MIB, &address));
    a = take(MIB);
    put(a);
    ck_assert(!hit(MIB, &address));
    ck_assert_uint_eq(counted().thread_cache_blocks, 0);
    ck_assert_ptr_null(ac_cache_open(arena, &tally[1]));
}
END_TEST

START_TEST(sizes_are_rounded_as_elsewhere) {
    ac_block_info_t info;
    configure(LIMIT, 4);
    habit(1100 << 10);
    uint64_t a = take(1100 << 10), address;
    ck_assert_int_eq(ac_block_find(a, &info), AC_OK);
    ck_assert_uint_eq(info.size, 1280 << 10);
    put(a);
    ck_assert(!ac_cache_take(cache, 1280 << 10, &address, ac_fence_handout));
    ck_assert(ac_cache_take_long(cache, 1200 << 10, &address));
    ck_assert_uint_eq(address, a);
    ck_assert(ac_cache_give(cache, ac_slab_look(a), a));
    configure(LIMIT, 0);
    ck_assert_uint_eq(take(1280 << 10), a);
}
END_TEST

/* --- figures --- */

enum { LIVE = 24, STEPS = 4000 };

typedef struct {
    int64_t now, peak;
} figure_t;

static void add(figure_t *all, int pool, int64_t n) {
    figure_t *const one[] = {&all[AC_POOL_ALL], &all[pool]};
    for (int i = 0; i < 2; i++) {
        one[i]->now += n;
        if (one[i]->now > one[i]->peak)
            one[i]->peak = one[i]->now;
    }
}

/* Compares all figures. Without `exact` the peak of all pools may be too low; the peaks of single pools always
 * may. No peak may be too high. */
static void same(const figure_t *want, const ac_stat_t *have, bool exact, int step) {
    for (int i = 0; i < AC_POOL_KINDS; i++) {
        ck_assert_msg(want[i].now == have[i].current, "step %d, current", step);
        ck_assert_msg(have[i].peak >= have[i].current, "step %d: a peak below now", step);
        ck_assert_msg(have[i].peak == want[i].peak ||
                          (have[i].peak < want[i].peak && !(exact && i == AC_POOL_ALL)),
                      "step %d: peak %lld, %lld", step,
                      (long long)want[i].peak, (long long)have[i].peak);
    }
}

/* With one cache no peak of allocated bytes is missed or invented, whichever path serves a request. */
START_TEST(peaks_of_bytes_are_exact) {
    static const uint64_t sizes[] = {512, 700, 1024, 40000, 65536, 70000, 131072, 262144};
    figure_t blocks[3] = {{0}}, bytes[3] = {{0}}, requested[3] = {{0}};
    struct {
        uint64_t address, size, bytes;
    } live[LIVE] = {{0}};
    uint64_t state = 88172645463325252u + (uint64_t)_i;
    for (int step = 0; step < STEPS; step++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        unsigned slot = (unsigned)(state >> 20) % LIVE;
        if (live[slot].address) {
            int pool = live[slot].size > AC_SMALL_LIMIT ? AC_POOL_LARGE : AC_POOL_SMALL;
            put(live[slot].address);
            live[slot].address = 0;
            add(blocks, pool, -1);
            add(bytes, pool, -(int64_t)live[slot].size);
            add(requested, pool, -(int64_t)live[slot].bytes);
        } else {
            uint64_t most = sizes[(state >> 40) % 8];
            uint64_t size = (most + 511) / 512 * 512, want = most - (state >> 50) % 300;
            want = (want + 511) / 512 * 512 == size ? want : most;
            live[slot].address = take(want);
            live[slot].size = size;
            live[slot].bytes = want;
            int pool = size > AC_SMALL_LIMIT ? AC_POOL_LARGE : AC_POOL_SMALL;
            add(blocks, pool, 1);
            add(bytes, pool, (int64_t)size);
            add(requested, pool, (int64_t)want);
        }
        if ((state >> 33) % 200 == 0) {
            ac_allocator_reset_peak(allocator);
            for (int i = 0; i < 3; i++) {
                blocks[i].peak = blocks[i].now;
                bytes[i].peak = bytes[i].now;
                requested[i].peak = requested[i].now;
            }
        }
        if ((state >> 13) % 16)
            continue; /* reading absorbs the tally, so not after each step */
        ac_device_stats_t have = now();
        same(blocks, have.allocation, false, step);
        same(bytes, have.allocated_bytes, true, step);
        same(bytes, have.active_bytes, false, step);
        same(requested, have.requested_bytes, false, step);
    }
}
END_TEST

/* With two caches the figures are ones that a single cache could have had, except for figures that the other
 * has not published. */
START_TEST(peaks_of_two_threads_are_close) {
    ac_cache_t *second = ac_cache_open(arena, &tally[1]);
    uint64_t a = take(4 * MIB), b = 0;
    put(a);
    ac_allocator_reset_peak(allocator); /* recalls, too */
    a = take(4 * MIB);
    put(a);
    ck_assert_int_eq(ac_cache_alloc(second, 2 * MIB, false, &b), AC_OK);
    ck_assert_int_eq(now().allocated_bytes[AC_POOL_ALL].peak, 4 * (int64_t)MIB);
    ck_assert_int_eq(ac_cache_free(second, b), AC_OK);
    for (int i = 0; i < 100; i++) { /* each takes a few small blocks without the lock */
        ck_assert_int_eq(ac_cache_alloc(second, 512, false, &b), AC_OK);
        take(512);
    }
    ck_assert_int_eq(now().allocation[AC_POOL_SMALL].current, 200);
    ck_assert_int_eq(now().allocation[AC_POOL_SMALL].peak, 200);
    ck_assert_uint_eq(counted().thread_caches, 2);
    ac_cache_close(second);
    ck_assert_uint_eq(counted().thread_caches, 2);
}
END_TEST

START_TEST(counters_tell_how_blocks_were_freed) {
    for (int i = 0; i < 10; i++)
        put(take(MIB));
    ac_device_counters_t all = counted();
    ck_assert_uint_eq(all.cached_frees, 10);
    ck_assert_uint_eq(all.ready_frees, 10);
    ck_assert_uint_eq(all.cached_allocs, 9); /* the first block came from the device */
    ck_assert_uint_eq(all.ordered_frees, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("thread_cache");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin_cached, end_cached);
    tcase_add_test(all, a_freed_block_serves_its_very_size);
    tcase_add_test(all, the_last_freed_is_the_first_to_serve);
    tcase_add_test(all, small_blocks_come_several_at_a_time);
    tcase_add_test(all, what_is_kept_is_bounded);
    tcase_add_test(all, what_was_handed_out_last_goes_to_its_size);
    tcase_add_test(all, sizes_of_one_bucket_hit);
    tcase_add_test(all, a_full_bucket_takes_no_more_sizes);
    tcase_add_test(all, a_miss_leaves_the_others);
    tcase_add_test(all, a_sweep_gives_back_the_largest);
    tcase_add_loop_test(all, a_refused_size_comes_back, 0, 2);
    tcase_add_test(all, how_many_are_kept_is_bounded);
    tcase_add_test(all, threads_share_a_budget);
    tcase_add_loop_test(all, a_small_program_grows, 0, 2);
    tcase_add_test(all, huge_sizes_have_no_cache);
    tcase_add_test(all, only_ready_blocks_are_kept);
    tcase_add_test(all, shared_blocks_are_not_kept);
    tcase_add_test(all, another_arenas_blocks_are_not_kept);
    tcase_add_test(all, nothing_is_kept_during_a_capture);
    tcase_add_test(all, kept_blocks_are_free_memory);
    tcase_add_test(all, others_get_it_before_the_device_is_asked);
    tcase_add_test(all, idle_memory_counts_what_is_kept);
    tcase_add_test(all, a_cache_outlives_its_context);
    tcase_add_test(all, a_thread_inside_when_it_ended_is_left_alone);
    tcase_add_test(all, a_record_that_came_back_says_no_address);
    tcase_add_test(all, closing_gives_everything_back);
    tcase_add_test(all, closing_absorbs_what_was_read_in_parts);
    tcase_add_test(all, a_peak_lacks_what_was_read_in_parts);
    tcase_add_test(all, none_where_the_settings_say_so);
    tcase_add_test(all, sizes_are_rounded_as_elsewhere);
    tcase_add_loop_test(all, peaks_of_bytes_are_exact, 0, 5);
    tcase_add_test(all, peaks_of_two_threads_are_close);
    tcase_add_test(all, counters_tell_how_blocks_were_freed);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
