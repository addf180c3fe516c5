/* Fixture of the suites of thread caches: a cache on the fake device, and pending device work. */
#ifndef CACHE_FRAME_H
#define CACHE_FRAME_H

#include <string.h>

#include "allocator_frame.h"

#define LIMIT (64 * MIB)

static ac_cache_tally_t tally[2];
static ac_cache_t *cache;

static inline void begin_cached(void) {
    begin_large();
    settings.thread_cache = LIMIT;
    ac_allocator_configure(allocator, &settings);
    memset(tally, 0, sizeof tally);
    cache = ac_cache_open(arena, &tally[0]);
    ck_assert_ptr_nonnull(cache);
}

static inline void end_cached(void) {
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

static inline uint64_t take(uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_cache_alloc(cache, bytes, false, &address), AC_OK);
    return address;
}

static inline void put(uint64_t address) {
    ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
}

/* Returns true if the cache alone served the request. */
static inline bool hit(uint64_t bytes, uint64_t *address) {
    return ac_cache_take(cache, bytes, address, ac_fence_handout) ||
           ac_cache_take_long(cache, bytes, address);
}

static inline ac_device_stats_t now(void) {
    ac_device_stats_t figures;
    ac_allocator_stats(allocator, &figures);
    return figures;
}

static inline ac_device_counters_t counted(void) {
    struct timespec deadline = {.tv_sec = INT32_MAX};
    ac_device_stats_t figures;
    ac_device_counters_t all;
    ck_assert(ac_allocator_figures(allocator, &deadline, &figures, &all));
    return all;
}

static inline uint64_t waiting(void) {
    return tally[0].side[0].waiting.blocks + tally[0].side[1].waiting.blocks;
}

/* Makes `bytes` a size that the cache keeps: it is requested twice. */
static inline void habit(uint64_t bytes) {
    put(take(bytes));
    put(take(bytes));
    ac_caches_recall(allocator, cache);
}

/* Returns a block that was freed while work was pending. */
static inline uint64_t wait_for_work(uint64_t bytes) {
    uint64_t address = take(bytes);
    submit(0);
    put(address);
    return address;
}

/* Completes the work and lets the allocator learn of it. */
static inline void finish_work(void) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_fence_close(timeline, false);
    fake_complete(&context[0], atomic_load(&context[0].submitted));
    ac_fence_poll(timeline, false);
}

#endif
