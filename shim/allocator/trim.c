/* Idle memory goes back on demand: of the program, and for a call of the driver that was out of
 * memory. */
#include "allocator/oom.h"
#include "allocator/supply/expand.h"
#include "device/wait.h"
#include "failpoint.h"

/* The first arena that lives, NULL: none does. */
static ac_arena_t *any_arena(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    ac_arena_t *arena = allocator->arenas;
    while (arena && arena->dead)
        arena = arena->next;
    ac_unlock(&allocator->lock);
    return arena;
}

/* Waits for memory that other threads have taken out of their lists and not yet given to the driver.
 * Giving it does not wait for the device, so half a second is enough. */
static void await_others(const ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    uint64_t end = arena->ops->now_ns() + AC_PATIENCE_NS;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    int late = 0;
    ac_lock(&allocator->lock);
    while (!late && allocator->calls && !AC_FAILPOINT(trim_not_awaited)) {
        AC_WINDOW(leaving_awaited);
        late = ac_wait_until(&allocator->settled, &allocator->lock, &until);
    }
    ac_unlock(&allocator->lock);
}

static uint64_t trim(const ac_oom_t *oom, bool wait) {
    ac_allocator_t *allocator = oom->arena->allocator;
    uint64_t freed = ac_oom_give_back(oom);
    for (bool more = wait; more && ac_oom_helps(oom, 0, 0);) {
        more = ac_oom_wait(oom); /* also false if the work ended between two steps */
        if (ac_oom_is_over(oom) || oom->arena->ops->capturing(oom->arena->context, true))
            freed += ac_oom_give_back(oom);
    }
    if (wait) {
        await_others(oom->arena);
        ac_lock(&allocator->lock);
        allocator->stats->num_sync_all_streams++;
        ac_unlock(&allocator->lock);
    }
    return freed;
}

uint64_t ac_allocator_trim(ac_allocator_t *allocator, bool wait) {
    ac_arena_t *arena = any_arena(allocator);
    ac_oom_t oom;
    if (!arena)
        return 0;
    ac_oom_begin(&oom, arena, 0);
    return trim(&oom, wait);
}

uint64_t ac_allocator_trim_addresses(ac_allocator_t *allocator) {
    uint64_t bytes = 0;
    for (ac_arena_t *arena = atomic_load(&allocator->arenas); arena; arena = arena->next)
        if (!arena->ops->capturing(arena->context, false))
            bytes += ac_expand_give_addresses(arena);
    atomic_fetch_add(&ac_given_back, bytes);
    return bytes;
}

/* Returns true if memory that comes back after a wait could make the call succeed: it lacks memory of
 * this device, and idle memory is enough.  The last sixteenth counts as used: drivers round, and keep
 * some for themselves. */
static bool may_help(const ac_arena_t *arena, uint64_t need, uint64_t host_left) {
    uint64_t available;
    if (!need || arena->ops->memory_free(arena->context, &available) != AC_OK)
        return true;
    uint64_t room = ac_allocator_room(arena->allocator);
    available = room < available ? room : available;
    uint64_t least = host_left < available ? host_left : available;
    return need > least - least / 16 &&
           need <= available + ac_allocator_idle_bytes(arena->allocator);
}

uint64_t ac_allocator_trim_for(ac_allocator_t *allocator, uint64_t need, uint64_t host_left) {
    ac_arena_t *arena = any_arena(allocator);
    ac_oom_t oom;
    if (!arena)
        return 0;
    ac_oom_begin(&oom, arena, 0);
    await_others(arena);
    return may_help(arena, need, host_left) ? trim(&oom, true) : 0;
}
