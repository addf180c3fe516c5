/* The begin and the end of the allocator's suites: two arenas on the fake device. */
#ifndef ALLOCATOR_FRAME_H
#define ALLOCATOR_FRAME_H

#include "fake_world.h"

#define MIB ((uint64_t)1 << 20)

static inline void begin(uint64_t capacity) {
    open_world(2, capacity, fake_settings("thread_cache_mb:0"));
}

static inline void begin_large(void) {
    begin((uint64_t)64 << 30);
}

static inline void begin_tight(void) {
    begin(64 * MIB);
}

static inline void end(void) {
    check_world();
}

/* Ends a test that left a fence in the first context: completes the context's work and releases the
 * fence first. */
static inline void end_idle(void) {
    complete(0);
    ac_fence_poll(ac_arena_timeline(arena), false);
    end();
}

static inline ac_status_t try_alloc(ac_arena_t *from, uint64_t bytes, uint64_t *address) {
    unsigned module = (unsigned)(bytes / 512 % AC_MODULES); /* so that checks tell modules apart */
    return ac_arena_alloc_for(from, module, bytes, false, address);
}

static inline uint64_t alloc(uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(try_alloc(arena, bytes, &address), AC_OK);
    ck_assert_uint_ne(address, 0);
    return address;
}

static inline void give(uint64_t address) {
    ck_assert_int_eq(ac_block_free(address), AC_OK);
}

/* Raises the high-water mark by `bytes`, so that the budget allows for as much. */
static inline void raise_high_water(uint64_t bytes) {
    give(alloc(bytes));
    ac_allocator_trim(allocator, false);
}

/* Bytes of the retired blocks that wait for a fence of their own context. */
static inline uint64_t retired_bytes(const ac_arena_t *of) {
    uint64_t bytes = 0;
    for (const ac_due_t *due = of->retired->ledger.fence[0].first; due; due = due->next)
        bytes += ac_block_of(due)->size;
    return bytes;
}

static inline uint64_t reserved(void) {
    ck_assert_int_eq(stats.reserved_bytes[AC_POOL_ALL].current, (int64_t)device.used);
    return device.used;
}

#endif
