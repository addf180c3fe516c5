/* Rules for both kinds of memory: whether memory may leave the device now, and pending trims (supply.h). */
#include "allocator/supply/supply.h"

#include "allocator/space/range.h"
#include "failpoint.h"

void ac_supply_end_call(ac_allocator_t *allocator, bool changed) {
    allocator->calls--;
    allocator->changes += changed;
    ac_cond_broadcast(&allocator->settled);
}

uint64_t ac_supply_reached(ac_arena_t *arena) {
    if (AC_FAILPOINT(page_moved_pending))
        return UINT64_MAX;
    return ac_fence_reached(&arena->timeline, atomic_load(&ac_fence_shared));
}

bool ac_supply_wait(const ac_growth_ask_t *ask) {
    ac_arena_t *arena = ask->arena;
    ac_timeline_t *timeline = &arena->timeline;
    bool all = atomic_load(&ac_fence_shared);
    uint64_t now = arena->ops->now_ns();
    if (now >= ask->until || !ac_fence_hopeful(timeline, all) ||
        ac_fence_holding(timeline, all) || ac_fence_close(timeline, all) == AC_UNSUPPORTED)
        return false;
    uint64_t target = ac_fence_now();
    if (ac_fence_wait(timeline, all, target, ask->until - now) == AC_BUSY)
        ac_fence_missed(timeline, target);
    return true;
}

/* --- pending trims --- */

_Atomic bool ac_trim_pending;
void (*ac_trim_notify)(void);
_Atomic uint64_t ac_given_back;

void ac_supply_watch(void) {
    if (!atomic_exchange(&ac_trim_pending, true) && ac_trim_notify)
        ac_trim_notify();
}

void ac_supply_postpone_trim(ac_allocator_t *allocator) {
    if (atomic_exchange(&allocator->supply->trim_pending, true))
        return;
    atomic_store(&ac_trim_pending, true);
    if (ac_trim_notify)
        ac_trim_notify();
}

static bool has_idle(ac_allocator_t *allocator) {
    bool any = false;
    ac_lock(&allocator->lock);
    for (const ac_arena_t *arena = allocator->arenas; arena && !any; arena = arena->next)
        any = arena->idle.first || ac_range_any_whole(&arena->space, true);
    ac_unlock(&allocator->lock);
    return any;
}

bool ac_supply_may_shrink(ac_allocator_t *allocator, uint64_t target) {
    if (!has_idle(allocator))
        return false;
    bool may = ac_fence_calm(target);
    if (!may)
        ac_supply_postpone_trim(allocator);
    return may;
}
