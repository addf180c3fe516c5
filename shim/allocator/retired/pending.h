/* Freed memory that waits, of all keys (retired.h): what has become ready, and what the rest waits
 * for.  Under the allocator's lock. */
#ifndef AC_PENDING_H
#define AC_PENDING_H

#include "allocator/core_int.h"
#include "allocator/retired/retired.h"

/* Move what has become ready from the lists into the free memory.  True if there was any. */
bool ac_pending_drain_some(ac_arena_t *arena);

/* Whether there is anything to look at. */
static inline bool ac_pending_any(const ac_arena_t *arena) {
    const ac_retired_t *retired = arena->retired;
    return retired->filled || retired->fence[0].first || retired->fence[1].first ||
           arena->slabs.aside;
}

/* Mostly all of it waits for fences of the arena's own context, and the first comes first. */
static inline bool ac_pending_drain(ac_arena_t *arena) {
    const ac_retired_t *retired = arena->retired;
    const ac_block_t *first = retired->fence[AC_REACH_OWN].first;
    bool others = retired->filled || retired->fence[AC_REACH_ALL].first || arena->slabs.aside;
    return (others || (first && first->ticket.epoch <= ac_fence_reached_own(&arena->timeline))) &&
           ac_pending_drain_some(arena);
}

/* The same for all arenas. */
void ac_allocator_drain(ac_allocator_t *allocator);

/* The oldest and newest targets that pending blocks of either kind wait for; false: there are
 * none. */
bool ac_pending_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest);

/* The arena's blocks of the capture session wait for a fence like any that are freed now.  True
 * if one is of a tainted segment. */
bool ac_retired_let_go(ac_arena_t *arena, uint64_t session);

#endif
