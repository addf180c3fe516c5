/* Held blocks (held.h). */
#include "allocator/retired/held.h"

#include "allocator/allocator_int.h"
#include "allocator/order/generation.h"

_Atomic uint64_t ac_held_episode;
static _Atomic uint64_t open_since; /* as if handed out when it began */

void ac_held_begin(uint64_t episode) {
    atomic_store(&open_since, ac_fence_stamp() + 1);
    atomic_store(&ac_held_episode, episode);
    ac_generation_grow(); /* frees that take the short way do not look */
}

void ac_held_end(void) {
    atomic_store(&ac_held_episode, 0);
}

static ac_block_t **list_of(ac_arena_t *arena, uint64_t episode) {
    return &arena->held[episode % AC_HELD_LISTS];
}

static void count(const ac_block_t *block, int sign) {
    ac_device_counters_t *counters = block->segment->arena->allocator->counters;
    counters->held_blocks += (uint64_t)sign;
    counters->held_bytes += (uint64_t)sign * block->size;
    block->segment->held += (uint32_t)sign;
}

bool ac_held_keep(ac_block_t *block) {
    ac_arena_t *arena = block->segment->arena;
    uint64_t episode = atomic_load_explicit(&ac_held_episode, memory_order_acquire);
    if (!episode)
        return false;
    uint64_t since = atomic_load(&open_since);
    if (ac_fence_untouched(&arena->line, block->clock > since ? block->clock : since))
        return false;
    ac_block_t **list = list_of(arena, episode);
    ac_block_set_state(block, AC_BLOCK_HELD);
    AC_BLOCK_SET(block, clock, episode);
    block->list_prev = NULL;
    block->list_next = *list;
    if (*list)
        (*list)->list_prev = block;
    *list = block;
    count(block, 1);
    arena->allocator->counters->held_frees++;
    return true;
}

void ac_held_forget(ac_block_t *block) {
    if (block->list_prev)
        block->list_prev->list_next = block->list_next;
    else
        *list_of(block->segment->arena, block->clock) = block->list_next;
    if (block->list_next)
        block->list_next->list_prev = block->list_prev;
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    count(block, -1);
}

static ac_block_t *first_of(ac_arena_t *arena, uint64_t episode) {
    ac_block_t *block = *list_of(arena, episode);
    while (block && block->clock != episode)
        block = block->list_next;
    return block;
}

bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t episode) {
    bool any = false;
    ac_lock(&allocator->lock);
    for (ac_arena_t *arena = allocator->arenas; arena && !any; arena = arena->next)
        any = first_of(arena, episode) != NULL;
    ac_unlock(&allocator->lock);
    return any;
}

/* Freed as of now.  Targets never fall along a queue: this one is read under the same lock as
 * those of all others. */
static void let_go(ac_block_t *block) {
    ac_arena_t *arena = block->segment->arena;
    bool all;
    uint64_t target = ac_fence_target(&arena->line, &all);
    ac_held_forget(block);
    if (target <= ac_fence_reached(&arena->line, all)) {
        AC_BLOCK_SET(block, clock, target);
        ac_segment_finish(block);
        return;
    }
    ac_pending_add(block, target, all);
}

bool ac_held_let_go(ac_arena_t *arena, uint64_t episode) {
    bool tainted = false;
    for (ac_block_t *block = *list_of(arena, episode), *next; block; block = next) {
        next = block->list_next;
        if (block->clock != episode)
            continue;
        tainted |= block->segment->tainted; /* it may be pending from now on */
        let_go(block);
    }
    return tainted;
}
