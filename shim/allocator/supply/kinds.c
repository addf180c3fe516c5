/* Which kind of memory comes and goes (supply.h). */
#include "allocator/supply/supply.h"

#include "allocator/policy.h"
#include "allocator/supply/guard.h"
#include "allocator/supply/medium.h"

uint64_t ac_supply_excess(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    uint64_t budget =
        ac_policy_kept(&allocator->supply->expand.toll, &allocator->settings, allocator->high_water);
    ac_unlock(&allocator->lock);
    return reserved > budget ? reserved - budget : 0;
}

/* --- giving back --- */

uint64_t ac_supply_shrink(ac_allocator_t *allocator, const ac_shrink_t *pick) {
    static const ac_supply_kind_t *const kinds[] = {&ac_supply_native, &ac_supply_pages};
    uint64_t freed = 0;
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        if (pick->leaving)
            freed += ac_supply_shrink_leaving(arena);
        freed += ac_guard_collect(arena);
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds && freed < pick->bytes;
             kind++) {
            ac_shrink_t rest = *pick;
            if (pick->bytes != AC_UNLIMITED)
                rest.bytes -= freed;
            freed += kinds[kind]->shrink(arena, &rest);
        }
    }
    return freed;
}

/* Returns the bytes beyond gc_threshold x limit, with `growth` more.  Under the lock. */
static uint64_t garbage(const ac_allocator_t *allocator, uint64_t growth) {
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    return ac_budget_garbage(&allocator->settings, reserved + growth);
}

uint64_t ac_supply_collect(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    const ac_shrink_t pick = {.bytes = garbage(allocator, 0), .large = true};
    ac_unlock(&allocator->lock);
    return pick.bytes ? ac_supply_shrink(allocator, &pick) : 0;
}

/* --- growing --- */

/* The device gave no pages, and has memory for the request. */
static bool is_refused(const ac_growth_ask_t *ask, ac_status_t status) {
    uint64_t available = AC_UNLIMITED;
    const ac_arena_t *arena = ask->arena;
    if (status != AC_OOM || !ask->refused)
        return false;
    return arena->ops->memory_free(arena->context, &available) != AC_OK ||
           ac_supply_least(ask->pool, ask->size) <= available;
}

ac_status_t ac_supply_grow(ac_growth_ask_t *ask) {
    ac_allocator_t *allocator = ask->arena->allocator;
    ac_lock(&allocator->lock);
    bool left = ac_expand_leave(allocator);
    bool expandable = allocator->settings.expandable_segments;
    ac_big_sort(allocator);
    const ac_shrink_t pick = {.bytes = garbage(allocator, ac_supply_least(ask->pool, ask->size)),
                              .large = true};
    ac_unlock(&allocator->lock);
    if (left)
        ac_supply_postpone_trim(allocator);
    if (pick.bytes && ac_supply_may_shrink(allocator, ask->target))
        ac_supply_shrink(allocator, &pick);
    if (!expandable)
        return ac_supply_native.grow(ask);
    ac_status_t status = ac_supply_pages.grow(ask);
    /* Others may have had the memory and given it back: only a second refusal tells. */
    if (is_refused(ask, status))
        status = ac_supply_pages.grow(ask);
    if (status == AC_UNSUPPORTED)
        return ac_supply_native.grow(ask);
    if (!is_refused(ask, status))
        return status;
    status = ac_native_grow_instead(ask);
    if (status == AC_OK || ask->stale_bytes)
        ac_expand_refuse(allocator, AC_REFUSED_PAGES);
    return status;
}
