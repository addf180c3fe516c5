/* Out of memory (oom.h). */
#include "allocator/oom.h"

#include "allocator/give_back.h"
#include "allocator/supply/supply.h"
#include "failpoint.h"

/* A target, over all allocators, that a wait for memory did not see reached: until it is, no
 * request waits again, or each of many would be kept for as long. */
static _Atomic uint64_t stuck;

void ac_oom_begin(ac_oom_t *oom, ac_arena_t *arena, uint64_t soon) {
    ac_allocator_t *allocator = arena->allocator;
    uint64_t now = arena->ops->now_ns();
    ac_caches_recall(allocator, NULL); /* first: what waits there waits for less */
    ac_lock(&allocator->lock);
    uint64_t wait = (uint64_t)(allocator->settings.oom_wait * 1e9);
    ac_unlock(&allocator->lock);
    *oom = (ac_oom_t){.arena = arena, .target = ac_fence_target_all(), .end = now + wait};
    oom->soon = soon ? soon : now + AC_PATIENCE_NS;
    if (oom->soon > oom->end)
        oom->soon = oom->end;
}

uint64_t ac_oom_give_back(const ac_oom_t *oom) {
    ac_allocator_t *allocator = oom->arena->allocator;
    const ac_shrink_t all = {.bytes = AC_UNLIMITED, .leaving = true};
    return ac_give_back_begin(allocator, oom->target) ? ac_supply_shrink(allocator, &all) : 0;
}

static bool is_stuck(ac_timeline_t *timeline) {
    uint64_t target = atomic_load(&stuck);
    return !ac_fence_reached_all(target) && !ac_fence_look(timeline, AC_REACH_ALL, target);
}

bool ac_oom_wait(const ac_oom_t *oom) {
    /* Others may free memory meanwhile. */
    const uint64_t step_ns = 100000000;
    const ac_arena_t *arena = oom->arena;
    ac_timeline_t *timeline = &oom->arena->timeline;
    if (AC_FAILPOINT(fence_dropped_at_oom))
        for (ac_arena_t *each = arena->allocator->arenas; each; each = each->next)
            ac_fence_synced(&each->timeline, oom->target);
    ac_fence_poll(timeline, AC_REACH_ALL);
    if (ac_oom_is_over(oom) || is_stuck(timeline))
        return false;
    uint64_t now = arena->ops->now_ns();
    uint64_t end = ac_fence_holding(timeline, AC_REACH_ALL) ? oom->soon : oom->end;
    if (now >= end) {
        ac_fence_raise(&stuck, oom->target);
        return false;
    }
    uint64_t limit = end - now < step_ns ? end - now : step_ns;
    ac_status_t status = ac_fence_wait(timeline, AC_REACH_ALL, oom->target, limit);
    /* Busy before the limit: something captures. */
    return status == AC_OK || (status == AC_BUSY && arena->ops->now_ns() - now >= limit);
}

/* Whether free memory side by side, with what comes back, is enough; in a segment that others use
 * as well.  Under the lock. */
static bool fits_in(const ac_segment_t *segment, uint64_t size) {
    uint64_t run = 0;
    bool waits = false;
    for (const ac_block_t *block = segment->first; block; block = block->next) {
        bool used = ac_block_in_use(block) || !ac_block_has_memory(block);
        run = used ? 0 : run + block->size;
        waits = !used && (waits || block->state != AC_BLOCK_FREE);
        if (run >= size && waits)
            return true;
    }
    return false;
}

static bool fits(const ac_arena_t *arena, uint64_t size) {
    uint64_t oldest, newest;
    if (size <= AC_SMALL_LIMIT && (ac_pending_targets(arena, AC_REACH_OWN, &oldest, &newest) ||
                                   ac_pending_targets(arena, AC_REACH_ALL, &oldest, &newest)))
        return true;
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        if (!s->tainted && fits_in(s, size))
            return true;
    return false;
}

bool ac_oom_helps(const ac_oom_t *oom, uint64_t size, uint64_t need) {
    ac_arena_t *arena = oom->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t available = AC_UNLIMITED;
    if (need && arena->ops->memory_free(arena->context, &available) != AC_OK)
        available = AC_UNLIMITED;
    uint64_t room = ac_allocator_room(allocator);
    available = room < available ? room : available;
    uint64_t idle = ac_allocator_idle_bytes(allocator);
    if (idle && (need <= available || need - available <= idle))
        return true;
    ac_lock(&allocator->lock);
    bool helps = need && fits(arena, size);
    ac_unlock(&allocator->lock);
    return helps;
}
