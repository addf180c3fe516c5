/* Lanes of threads' caches on a fake device: the blocks that a thread keeps in the order of a stream, their
 * place afterwards, and the figures. */
#include <pthread.h>
#include <string.h>

#include "allocator/cache/lane.h"
#include "allocator/order/barrier.h"
#include "fake_world.h"
#include "run_suite.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
enum { S = 16, T = 20, EVENT = 77, POOL = AC_MEMPOOL_FIRST, CACHES = 2 };

static ac_cache_tally_t tally[CACHES];
static ac_cache_t *cache[CACHES];

static void begin(void) {
    open_world(1, 512 * MIB, fake_settings("thread_cache_mb:8"));
    memset(tally, 0, sizeof tally);
    for (int i = 0; i < CACHES; i++) {
        cache[i] = ac_cache_open(arena, &tally[i]);
        ck_assert_ptr_nonnull(cache[i]);
    }
}

static void end(void) {
    check_world();
    for (int i = 0; i < CACHES; i++)
        ac_cache_close(cache[i]);
    check_world();
    ac_arena_drop(arena); /* drops the unreached fences too */
}

static const void *handle_of(ac_stream_t stream) {
    return (const void *)(uintptr_t)stream;
}

static ac_lane_ask_t asking(ac_stream_t stream) {
    return (ac_lane_ask_t){.handle = handle_of(stream),
                           .stream = stream,
                           .mempool = POOL,
                           .generation = ac_generation_now()};
}

/* Requests without the lock, which another thread may hold. */
static bool hit(int i, ac_stream_t stream, uint64_t bytes, uint64_t *address) {
    ac_take_t taken = ac_lane_take(cache[i], handle_of(stream), bytes, address);
    return taken == AC_TAKE_DUE ? ac_cache_raise(cache[i]) : taken;
}

/* Requests from the cache only. */
static bool found(int i, ac_stream_t stream, uint64_t bytes, uint64_t *address) {
    ac_lane_ask_t ask = asking(stream);
    return hit(i, stream, bytes, address) || ac_lane_take_long(cache[i], &ask, bytes, address);
}

static uint64_t take(int i, ac_stream_t stream, uint64_t bytes) {
    uint64_t address;
    if (!found(i, stream, bytes, &address))
        ck_assert_int_eq(
            ac_arena_alloc_from(arena, AC_MODULE_UNKNOWN, POOL, stream, bytes, false, &address),
            AC_OK);
    return address;
}

static bool kept(int i, ac_stream_t stream, uint64_t address) {
    ac_lane_ask_t ask = asking(stream);
    return ac_lane_give(cache[i], handle_of(stream), address) ||
           ac_lane_give_long(cache[i], &ask, address);
}

static void give(int i, ac_stream_t stream, uint64_t address) {
    if (kept(i, stream, address))
        return;
    ck_assert_int_eq(ac_block_free_on(arena, stream, address), AC_OK);
    ac_arena_stream_is(arena, stream, true);
}

/* Makes the cache keep the size for the stream, with one block. */
static void habit(int i, ac_stream_t stream, uint64_t bytes) {
    for (int k = 0; k < 4; k++)
        give(i, stream, take(i, stream, bytes));
}

static ac_block_t *block_at(uint64_t address) {
    return ac_slab_look(address);
}

static ac_mempool_t figures(void) {
    ac_mempool_t now;
    ac_mempool_figures(allocator, POOL, &now);
    return now;
}

START_TEST(pairs_take_no_lock) {
    habit(0, S, MIB);
    ac_lock(&allocator->lock);
    for (int i = 0; i < 100; i++) {
        uint64_t address;
        ck_assert(ac_lane_take(cache[0], handle_of(S), MIB, &address) == AC_TAKE_SERVED);
        submit(0);
        ck_assert(ac_lane_give(cache[0], handle_of(S), address));
    }
    ac_unlock(&allocator->lock);
}
END_TEST

START_TEST(the_second_request_of_a_size_makes_it_kept) {
    uint64_t first = take(0, S, MIB), none;
    give(0, S, first);
    give(0, S, take(0, S, MIB));
    ck_assert_int_eq(block_at(first)->state, AC_BLOCK_RETIRED);
    give(0, S, take(0, S, MIB));
    ck_assert_int_eq(block_at(first)->state, AC_BLOCK_CACHED);
    ck_assert(!hit(0, S, MIB - 4 * KIB, &none));
    ck_assert(!hit(0, T, MIB, &none));
    ck_assert(!hit(1, S, MIB, &none));
    ck_assert(hit(0, S, MIB - 1, &none));
    ck_assert_uint_eq(none, first);
}
END_TEST

START_TEST(every_request_and_free_is_counted) {
    habit(0, S, MIB);
    for (int i = 0; i < 10; i++)
        give(0, S, take(0, S, MIB));
    check_world(); /* absorbs */
    ck_assert_uint_eq(counters.async_allocs, 14);
    ck_assert_uint_eq(counters.async_frees, 14);
    ck_assert_uint_eq(counters.async_same_stream, 13);
    ck_assert_uint_eq(counters.cached_frees, 14);
    ck_assert_uint_eq(counters.ready_frees, 0);
}
END_TEST

/* The block was handed to another stream. No request may take it for memory without work. */
START_TEST(what_was_handed_on_is_not_ready_for_all) {
    uint64_t address, again;
    habit(0, S, MIB);
    submit(0);
    ck_assert(hit(0, S, MIB, &address));
    ck_assert_int_eq(ac_block_free(address), AC_OK);
    ck_assert_int_eq(block_at(address)->state, AC_BLOCK_RETIRED);
    ck_assert_int_eq(ac_arena_alloc(arena, MIB, false, &again), AC_OK);
    ck_assert_uint_ne(again, address);
    check_world();
}
END_TEST

START_TEST(another_stream_does_not_keep_it) {
    uint64_t address;
    habit(0, T, MIB);
    habit(0, S, MIB);
    ck_assert(hit(0, S, MIB, &address));
    ck_assert(!kept(0, T, address));
    give(0, T, address);
    ck_assert_int_eq(block_at(address)->ticket.key, AC_KEY_OWN);
}
END_TEST

START_TEST(new_memory_may_be_freed_on_any) {
    habit(0, S, MIB);
    habit(0, T, MIB);
    uint64_t held = take(0, T, MIB), address = take(0, S, MIB);
    ck_assert_int_eq(ac_arena_alloc_from(arena, AC_MODULE_UNKNOWN, POOL, T, MIB, false, &address),
                     AC_OK);
    ck_assert_int_eq(block_at(address)->ticket.key, AC_KEY_NONE);
    ck_assert(kept(0, S, address));
    give(0, T, held);
}
END_TEST

START_TEST(of_a_destroyed_stream_it_waits_for_a_fence) {
    uint64_t none;
    habit(0, S, MIB);
    uint64_t address = take(0, S, MIB);
    submit(0);
    give(0, S, address);
    ac_arena_stream_gone(arena, S);
    ck_assert(!hit(0, S, MIB, &none)); /* another stream may have the handle now */
    uint64_t little = take(0, S, 512);
    give(0, S, little);
    ck_assert_uint_ne(take(0, S, MIB), address);
    ck_assert_int_eq(block_at(address)->state, AC_BLOCK_RETIRED);
    ck_assert_int_eq(block_at(address)->ticket.key, AC_KEY_OWN);
    check_world();
}
END_TEST

/* Another stream has the handle and the slot of the stream whose order protected the handover. */
START_TEST(of_the_stream_before_it_is_not_kept) {
    habit(0, S, MIB);
    uint64_t address = take(0, S, MIB);
    submit(0);
    ac_arena_stream_gone(arena, S);
    habit(0, S, MIB);
    ck_assert(!kept(0, S, address));
    give(0, S, address);
    ck_assert_int_eq(block_at(address)->state, AC_BLOCK_RETIRED);
    check_world();
}
END_TEST

/* An order proved for a free before the block leaves still holds afterwards. Nothing is proved for a later
 * free. */
START_TEST(an_edge_behind_the_free_serves_another_stream) {
    ac_edge_t edge;
    habit(0, S, MIB);
    habit(0, T, 512);
    uint64_t late = take(0, S, MIB), between, early;
    ck_assert_int_eq(ac_arena_alloc(arena, 512, false, &between), AC_OK);
    ck_assert_int_eq(ac_arena_alloc(arena, MIB, false, &between), AC_OK);
    early = take(0, S, MIB);
    give(0, S, early);
    ac_edge_record_begin(&edge, arena, EVENT, S);
    ac_edge_record_end(&edge, true);
    give(0, S, late);
    ac_edge_of_event(&edge, arena, EVENT);
    ac_edge_joined(&edge, T);
    submit(0);
    ac_caches_recall(allocator, NULL); /* as before a growth */
    ck_assert_uint_eq(take(0, T, MIB), early);
    ck_assert_uint_ne(take(0, T, MIB), late);
    check_world();
    ck_assert_uint_eq(counters.async_event_ordered, 1);
}
END_TEST

START_TEST(recalled_it_serves_its_stream) {
    habit(0, S, MIB);
    uint64_t address = take(0, S, MIB), again;
    submit(0);
    give(0, S, address);
    ck_assert(ac_caches_recall(allocator, NULL));
    ck_assert_int_eq(block_at(address)->state, AC_BLOCK_RETIRED);
    check_world();
    ck_assert_int_eq(ac_arena_alloc_from(arena, AC_MODULE_UNKNOWN, POOL, S, MIB, true, &again),
                     AC_OK);
    ck_assert_uint_eq(again, address);
}
END_TEST

/* A cleared lane returns its blocks to the stream's list.  A request through the lock finds them there. */
START_TEST(a_lane_that_is_cleared_is_empty) {
    uint64_t none, again;
    habit(0, S, MIB);
    habit(0, T, MIB);
    uint64_t address = take(0, S, MIB), held = take(0, T, MIB);
    submit(0);
    give(0, S, address);
    give(0, T, held);
    ac_lane_clear(cache[0], handle_of(S));
    ck_assert_int_eq(block_at(address)->state, AC_BLOCK_RETIRED);
    ck_assert(!hit(0, S, MIB, &none));
    check_world();
    ck_assert_int_eq(ac_arena_alloc_from(arena, AC_MODULE_UNKNOWN, POOL, S, MIB, true, &again),
                     AC_OK);
    ck_assert_uint_eq(again, address);
    ck_assert_int_eq(block_at(held)->state, AC_BLOCK_CACHED); /* other lanes stay */
}
END_TEST

/* A lane serves only in the generation in which its conditions were checked. */
START_TEST(an_answer_is_no_newer_than_its_question) {
    uint64_t address, none;
    habit(0, S, MIB);
    ac_lane_ask_t ask = asking(S);
    ac_generation_grow();
    ck_assert(!ac_lane_take_long(cache[0], &ask, MIB, &none));
    ck_assert(!hit(0, S, MIB, &none));
    ac_lane_ask_t later = asking(S);
    ck_assert(ac_lane_take_long(cache[0], &later, MIB, &address));
    ac_generation_grow();
    ck_assert(!ac_lane_give_long(cache[0], &later, address));
    ck_assert(!ac_lane_give(cache[0], handle_of(S), address));
    give(0, S, address);
}
END_TEST

START_TEST(no_more_once_order_is_off) {
    uint64_t none;
    habit(0, S, MIB);
    ac_arena_unordered(arena, true);
    ck_assert(!hit(0, S, MIB, &none));
    ac_lane_ask_t ask = asking(S);
    ck_assert(!ac_lane_take_long(cache[0], &ask, MIB, &none));
}
END_TEST

START_TEST(what_is_hidden_makes_it_leave) {
    uint64_t none, address = take(0, S, MIB);
    give(0, S, address);
    habit(0, S, MIB);
    ac_arena_stream_is(arena, S, false);
    ac_arena_submitted(arena, true);
    ac_generation_grow();
    ac_lane_ask_t ask = asking(S);
    ck_assert(!hit(0, S, MIB, &none));
    ck_assert(!ac_lane_take_long(cache[0], &ask, MIB, &none));
    ck_assert_int_eq(block_at(address)->state, AC_BLOCK_RETIRED);
    ck_assert(ac_key_is_stream(block_at(address)->ticket.key));
    check_world();
}
END_TEST

START_TEST(nothing_is_hidden_by_work_elsewhere) {
    uint64_t address;
    habit(0, S, MIB);
    ac_arena_submitted(arena, true);
    ck_assert(hit(0, S, MIB, &address));
}
END_TEST

START_TEST(it_goes_with_its_context) {
    uint64_t none;
    habit(0, S, MIB);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert(!hit(0, S, MIB, &none));
    ck_assert_uint_eq(figures().now[AC_MARK_USED], 0);
}
END_TEST

START_TEST(a_second_free_is_refused) {
    uint64_t address;
    habit(0, S, MIB);
    ck_assert(hit(0, S, MIB, &address));
    give(0, S, address);
    ck_assert(!kept(0, S, address));
    ck_assert_int_eq(ac_block_free_on(arena, S, address), AC_BAD_ADDRESS);
}
END_TEST

/* Blocks of streams share the budget with plain ones. A sweep takes the largest blocks of both, and refuses
 * their size until a request follows a free directly. */
START_TEST(a_size_that_a_sweep_refused_serves_again) {
    enum { HELD = 8 };
    uint64_t held[HELD], large, again;
    ac_cache_close(cache[1]);
    habit(0, T, 3 * MIB);
    habit(0, S, MIB);
    for (int i = 0; i < HELD; i++)
        held[i] = take(0, S, MIB);
    for (int i = 0; i < HELD; i++)
        give(0, S, held[i]);
    check_world();
    ck_assert(!found(0, T, 3 * MIB, &large));
    ck_assert(found(0, S, MIB, &again));
    give(0, S, again);
    for (int i = 0; i < 2; i++)
        give(0, T, take(0, T, 3 * MIB));
    ck_assert(found(0, T, 3 * MIB, &large));
    give(0, T, large);
    cache[1] = ac_cache_open(arena, &tally[1]);
}
END_TEST

/* One thread keeps many sizes for several streams. Nearly all of them are in the table at a time. */
START_TEST(each_stream_keeps_many_sizes) {
    enum { SIZES = 60, STREAMS = 4 };
    unsigned hits = 0;
    for (int turn = 0; turn < 4; turn++)
        for (uint64_t i = 1; i <= SIZES; i++)
            for (uint64_t k = 0; k < STREAMS; k++)
                give(0, S + 4 * k, take(0, S + 4 * k, i * 512));
    for (uint64_t i = 1; i <= SIZES; i++)
        for (uint64_t k = 0; k < STREAMS; k++) {
            uint64_t address;
            if (!found(0, S + 4 * k, i * 512, &address))
                continue;
            hits++;
            ck_assert(kept(0, S + 4 * k, address));
        }
    ck_assert_uint_ge(hits, SIZES * STREAMS * 9 / 10);
}
END_TEST

/* All lanes of a device serve one memory pool. */
START_TEST(another_pool_has_no_lanes) {
    uint64_t address, none;
    habit(0, S, MIB);
    ck_assert(hit(0, S, MIB, &address));
    ac_lane_ask_t ask = asking(T);
    ask.mempool = POOL + 1;
    ck_assert(!ac_lane_give_long(cache[0], &ask, address));
    ck_assert(!ac_lane_take_long(cache[0], &ask, MIB, &none));
    give(0, S, address);
}
END_TEST

/* Lanes serve no request if the settings round sizes up.  A block from that time counts in its pool with the
 * requested bytes. */
START_TEST(rounded_sizes_are_not_kept) {
    const uint64_t bytes = MIB + 4 * KIB, size = 3 * MIB / 2;
    ac_settings_t plain = settings, rounding = fake_settings("thread_cache_mb:8,roundup_power2_divisions:2");
    uint64_t none;
    habit(0, S, size);
    ac_allocator_configure(allocator, &rounding);
    ac_generation_grow(); /* as for any change of settings */
    uint64_t address = take(0, S, bytes), other = take(0, S, bytes);
    ck_assert_uint_eq(block_at(address)->size, size);
    ck_assert(!kept(0, S, address));
    ac_lane_ask_t ask = asking(S);
    ck_assert(!ac_lane_take_long(cache[0], &ask, size, &none));
    ac_allocator_configure(allocator, &plain);
    habit(0, S, size);
    ck_assert(kept(0, S, other));
    ck_assert_uint_eq(figures().now[AC_MARK_USED], bytes);
    give(0, S, address);
    ck_assert_uint_eq(figures().now[AC_MARK_USED], 0);
}
END_TEST

START_TEST(few_large_blocks_are_kept) {
    enum { MANY = 8, KEPT = AC_CACHE_KEPT / AC_KEPT_CHARGE };
    const ac_settings_t more = fake_settings("thread_cache_mb:32");
    const uint64_t LARGE = 16 * MIB;
    uint64_t address[MANY], kept = 0;
    ac_allocator_configure(allocator, &more);
    habit(0, S, LARGE);
    for (int i = 0; i < MANY; i++)
        address[i] = take(0, S, LARGE);
    for (int i = 0; i < MANY; i++)
        give(0, S, address[i]);
    for (int i = 0; i < MANY; i++)
        kept += block_at(address[i])->state == AC_BLOCK_CACHED;
    ck_assert_uint_eq(kept, KEPT);
}
END_TEST

START_TEST(more_streams_than_lanes) {
    enum { STREAMS = 80 };
    uint64_t address[STREAMS];
    for (int turn = 0; turn < 6; turn++) {
        for (uint64_t i = 0; i < STREAMS; i++)
            address[i] = take(0, 1024 + 96 * i, 64 * KIB);
        submit(0);
        for (uint64_t i = 0; i < STREAMS; i++)
            give(0, 1024 + 96 * i, address[i]);
        check_world();
    }
}
END_TEST

/* Two modules request in turn. Blocks of both are freed during one module's turn. */
START_TEST(a_free_counts_for_the_module_that_asked) {
    enum { MODULES = 3, PAIRS = 50 };
    uint64_t held[MODULES], bytes[MODULES] = {0};
    ac_modules_t sum = {.allocs = {0}};
    for (int i = 0; i < PAIRS; i++) {
        for (unsigned m = 1; m < MODULES; m++) {
            ac_cache_ask_for(cache[0], m);
            held[m] = take(0, S, m * MIB);
            bytes[block_at(held[m])->module] += m * MIB; /* 0 if the cache had no block */
        }
        for (unsigned m = 1; m < MODULES; m++)
            give(0, S, held[m]);
    }
    ac_cache_tally_modules(&tally[0], &sum);
    for (unsigned m = 0; m < MODULES; m++) {
        ck_assert_uint_gt(bytes[m], 0);
        ck_assert_uint_eq(sum.alloc_bytes[m] + stats.modules.alloc_bytes[m], bytes[m]);
        ck_assert_uint_eq(sum.free_bytes[m] + stats.modules.free_bytes[m], bytes[m]);
    }
}
END_TEST

/* --- the pool's figures; their peaks may miss blocks in lanes --- */

START_TEST(figures_follow_hits) {
    habit(0, S, MIB);
    ck_assert_uint_eq(figures().now[AC_MARK_USED], 0);
    ac_mempool_reset(allocator, POOL, AC_MARK_USED);
    ac_mempool_reset(allocator, POOL, AC_MARK_RESERVED);
    uint64_t address = take(0, S, MIB);
    ck_assert_uint_eq(figures().now[AC_MARK_USED], MIB);
    give(0, S, address);
    ck_assert_uint_eq(figures().now[AC_MARK_USED], 0);
    ck_assert_uint_eq(figures().most[AC_MARK_USED], MIB);
    ck_assert_uint_eq(figures().now[AC_MARK_RESERVED], MIB);
    ac_mempool_synced();
    ck_assert_uint_eq(figures().now[AC_MARK_RESERVED], 0);
    ac_mempool_synced();
    address = take(0, S, MIB);
    ck_assert_uint_eq(figures().now[AC_MARK_RESERVED], MIB);
    give(0, S, address);
    ck_assert_uint_eq(figures().now[AC_MARK_RESERVED], MIB);
}
END_TEST

/* Two threads hold blocks at a time, taken without the lock. */
START_TEST(a_peak_of_two_threads_is_seen) {
    habit(0, S, MIB);
    habit(1, T, MIB);
    uint64_t most = figures().most[AC_MARK_USED], one, other;
    ck_assert_uint_eq(most, MIB);
    one = take(0, S, MIB);
    other = take(1, T, MIB);
    give(0, S, one);
    give(1, T, other);
    ck_assert_uint_eq(figures().most[AC_MARK_USED], 2 * MIB);
}
END_TEST

/* Compares random requests and frees of two threads on three streams with sums. */
START_TEST(figures_are_those_of_a_model) {
    enum { HELD = 24, STEPS = 4000 };
    static const uint64_t sizes[] = {4 * KIB, 64 * KIB, 100 * KIB, MIB};
    uint64_t random = 88172645463325252u + (uint64_t)_i, used = 0, most = 0, requests = 0;
    uint64_t at[HELD] = {0}, size[HELD] = {0}, seen = 0;
    for (int step = 0; step < STEPS; step++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        unsigned which = random % HELD, i = random >> 8 & 1;
        ac_stream_t stream = S + 4 * (random >> 16 & 1);
        if (at[which]) {
            if (random >> 24 & 7)
                give((int)i, stream, at[which]);
            else
                ck_assert_int_eq(ac_block_free(at[which]), AC_OK);
            used -= size[which];
            at[which] = 0;
        } else {
            size[which] = sizes[random >> 32 & 3];
            at[which] = take((int)i, stream, size[which]);
            used += size[which];
            requests++;
        }
        most = used > most ? used : most;
        if ((random >> 40 & 7) == 0)
            submit(0);
        if ((random >> 40 & 63) == 1)
            complete(0);
        if ((random >> 40 & 127) == 2)
            ac_mempool_synced();
        if ((random >> 40 & 255) == 3)
            ac_caches_recall(allocator, cache[i]);
        if ((random >> 40 & 31) != 4)
            continue;
        ac_mempool_t now = figures();
        ck_assert_uint_eq(now.now[AC_MARK_USED], used);
        seen = used > seen ? used : seen;
        ck_assert_uint_ge(now.most[AC_MARK_USED], seen);
        ck_assert_uint_le(now.most[AC_MARK_USED], most);
        ck_assert_uint_ge(now.now[AC_MARK_RESERVED], used);
        check_world();
        ck_assert_uint_eq(counters.async_allocs, requests);
        ck_assert_uint_eq((uint64_t)stats.allocated_bytes[AC_POOL_ALL].current, used);
    }
}
END_TEST

/* --- threads --- */

enum { ROUNDS = 20000 };
static _Atomic bool over;

/* Uses the thread's own blocks on a stream that all threads share, and now and then a block from another
 * thread. */
static void *use(void *arg) {
    int i = (int)(intptr_t)arg;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t one = take(i, S, 64 * KIB), other = take(i, round % 7 ? S : T, MIB);
        give(i, S, one);
        if (round % 5)
            give(i, round % 7 ? S : T, other);
        else
            ck_assert_int_eq(ac_block_free(other), AC_OK);
    }
    return NULL;
}

static void *take_all_back(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        ac_caches_recall(allocator, NULL);
        ac_mempool_synced();
        figures();
        complete(0);
    }
    return NULL;
}

START_TEST(threads_beside_recalls) {
    pthread_t thread[CACHES], recalling;
    atomic_store(&over, false);
    ck_assert_int_eq(pthread_create(&recalling, NULL, take_all_back, NULL), 0);
    for (intptr_t i = 0; i < CACHES; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, use, (void *)i), 0);
    for (int i = 0; i < CACHES; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&over, true);
    pthread_join(recalling, NULL);
    check_world();
    ck_assert_uint_eq(figures().now[AC_MARK_USED], 0);
    ck_assert_uint_eq(counters.async_allocs, 2 * CACHES * ROUNDS);
    ck_assert_int_eq(stats.allocation[AC_POOL_ALL].current, 0);
}
END_TEST

static bool barrier_is_light(void) {
    ac_barrier_setup();
    return ac_barrier_is_light();
}

int main(void) {
    Suite *suite = suite_create("lane");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, end);
    if (barrier_is_light()) { /* otherwise no hit takes the short path */
        tcase_add_test(all, pairs_take_no_lock);
        tcase_add_test(all, each_stream_keeps_many_sizes);
        tcase_add_test(all, the_second_request_of_a_size_makes_it_kept);
        tcase_add_test(all, what_was_handed_on_is_not_ready_for_all);
        tcase_add_test(all, another_stream_does_not_keep_it);
        tcase_add_test(all, nothing_is_hidden_by_work_elsewhere);
        tcase_add_test(all, a_second_free_is_refused);
    }
    tcase_add_test(all, every_request_and_free_is_counted);
    tcase_add_test(all, a_free_counts_for_the_module_that_asked);
    tcase_add_test(all, new_memory_may_be_freed_on_any);
    tcase_add_test(all, of_a_destroyed_stream_it_waits_for_a_fence);
    tcase_add_test(all, of_the_stream_before_it_is_not_kept);
    tcase_add_test(all, an_edge_behind_the_free_serves_another_stream);
    tcase_add_test(all, recalled_it_serves_its_stream);
    tcase_add_test(all, no_more_once_order_is_off);
    tcase_add_test(all, what_is_hidden_makes_it_leave);
    tcase_add_test(all, it_goes_with_its_context);
    if (!AC_BARRIER_TSAN) { /* under ThreadSanitizer no hit takes the short path, and lanes belong to it */
        tcase_add_test(all, a_size_that_a_sweep_refused_serves_again);
        tcase_add_test(all, another_pool_has_no_lanes);
    }
    tcase_add_test(all, a_lane_that_is_cleared_is_empty);
    tcase_add_test(all, an_answer_is_no_newer_than_its_question);
    tcase_add_test(all, rounded_sizes_are_not_kept);
    tcase_add_test(all, few_large_blocks_are_kept);
    tcase_add_test(all, more_streams_than_lanes);
    tcase_add_test(all, figures_follow_hits);
    tcase_add_test(all, a_peak_of_two_threads_is_seen);
    tcase_add_test(all, threads_beside_recalls);
    tcase_add_loop_test(all, figures_are_those_of_a_model, 0, 8);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
