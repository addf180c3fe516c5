/* An allocator on the fake device, for suites written with Check: one device, up to two contexts
 * with an arena each.  One world in a process; the suite's fixture opens it.  allocator_frame.h
 * adds the short words for memory. */
#ifndef FAKE_WORLD_H
#define FAKE_WORLD_H

#include <check.h>
#include <string.h>

#include "allocator/allocator_int.h"
#include "fake_device.h"
#include "fake_settings.h"

static fake_device_t device;
static fake_context_t context[2];
static ac_arena_t *arena, *other; /* of context[0] and context[1]; NULL: that one is not opened */
static ac_allocator_t *allocator;
static ac_device_stats_t stats;
static ac_device_counters_t counters;
static ac_settings_t settings; /* that it was opened with */

static inline void open_world(int contexts, uint64_t capacity, ac_settings_t with) {
    settings = with;
    memset(&stats, 0, sizeof stats); /* an allocator takes peaks for its own */
    memset(&counters, 0, sizeof counters);
    fake_device_init(&device, capacity);
    allocator = ac_allocator_create(&settings, &stats, &counters);
    for (int i = 0; i < contexts; i++) {
        fake_context_init(&context[i], &device);
        *(i ? &other : &arena) = ac_arena_create(allocator, &fake_ops, &context[i]);
        ck_assert_ptr_nonnull(i ? other : arena);
    }
}

/* Checks that the allocator's records agree with each other, and that the device saw no
 * misuse. */
static inline void check_world(void) {
    const char *why = NULL;
    ck_assert_msg(ac_allocator_check(allocator, &why) == 0, "%s", why);
    ck_assert_msg(!device.wrong, "%s", device.wrong);
}

static inline ac_arena_t *arena_of(int i) {
    return i ? other : arena;
}

/* Submits work to context i that nothing else counts. The test completes it. */
static inline void submit(int i) {
    fake_submit(&context[i]);
    ac_fence_submitted(ac_arena_timeline(arena_of(i)));
}

/* Completes all work of context i without telling the library. */
static inline void complete(int i) {
    fake_complete(&context[i], atomic_load(&context[i].submitted));
}

#endif
