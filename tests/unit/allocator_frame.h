/* What the suites of the allocator begin and end with: two arenas on the fake device. */
#ifndef ALLOCATOR_FRAME_H
#define ALLOCATOR_FRAME_H

#include <check.h>

#include "allocator/allocator_int.h"
#include "fake_device.h"
#include "fake_settings.h"

#define MIB ((uint64_t)1 << 20)

static fake_device_t device;
static fake_context_t context[2];
static ac_arena_t *arena, *other;
static ac_allocator_t *allocator;
static ac_device_stats_t stats;
static ac_device_counters_t counters;
static ac_settings_t settings;

static inline void begin(uint64_t capacity) {
    fake_device_init(&device, capacity);
    settings = fake_settings("thread_cache_mb:0");
    allocator = ac_allocator_create(&settings, &stats, &counters);
    fake_context_init(&context[0], &device);
    fake_context_init(&context[1], &device);
    arena = ac_arena_create(allocator, &fake_ops, &context[0]);
    other = ac_arena_create(allocator, &fake_ops, &context[1]);
}

static inline void begin_large(void) {
    begin((uint64_t)64 << 30);
}

static inline void begin_tight(void) {
    begin(64 * MIB);
}

static inline void end(void) {
    const char *why = NULL;
    ck_assert_msg(ac_allocator_check(allocator, &why) == 0, "%s", why);
    ck_assert_msg(!device.wrong, "%s", device.wrong);
}

static inline ac_status_t try_alloc(ac_arena_t *from, uint64_t bytes, uint64_t *address) {
    return ac_arena_alloc(from, bytes, false, address);
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

/* Afterwards the budget allows for as much. */
static inline void raise_high_water(uint64_t bytes) {
    give(alloc(bytes));
    ac_allocator_trim(allocator, false);
}

static inline void submit(int i) {
    fake_submit(&context[i]);
    ac_fence_submitted(ac_arena_line(i ? other : arena));
}

/* What waits for a fence of its own context. */
static inline uint64_t retired_bytes(const ac_arena_t *of) {
    uint64_t bytes = 0;
    for (const ac_block_t *block = of->retired.fence[0].first; block; block = block->list_next)
        bytes += block->size;
    return bytes;
}

static inline uint64_t reserved(void) {
    ck_assert_uint_eq(ac_allocator_reserved(allocator), device.used);
    return device.used;
}

#endif
