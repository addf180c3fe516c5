/* Held blocks (held.h). */
#include "allocator/retired/held.h"

#include "allocator/allocator_int.h"
#include "allocator/supply/trim.h"

static ac_block_t **list_of(ac_arena_t *arena, uint64_t episode) {
    return &arena->held[episode % AC_HELD_LISTS];
}

static void count(const ac_block_t *block, int sign) {
    ac_device_counters_t *counters = block->segment->arena->allocator->counters;
    counters->capture_deferred_blocks += (uint64_t)sign;
    counters->capture_deferred_bytes += (uint64_t)sign * block->size;
    block->segment->held += (uint32_t)sign;
}

void ac_held_add(ac_block_t *block, const ac_ticket_t *ticket) {
    ac_arena_t *arena = block->segment->arena;
    ac_block_t **list = list_of(arena, ticket->place);
    ac_block_set_state(block, AC_BLOCK_HELD);
    block->ticket = *ticket;
    block->list_prev = NULL;
    block->list_next = *list;
    if (*list)
        (*list)->list_prev = block;
    *list = block;
    count(block, 1);
    arena->allocator->counters->capture_deferred_frees++;
}

void ac_held_forget(ac_block_t *block) {
    if (block->list_prev)
        block->list_prev->list_next = block->list_next;
    else
        *list_of(block->segment->arena, block->ticket.place) = block->list_next;
    if (block->list_next)
        block->list_next->list_prev = block->list_prev;
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    count(block, -1);
}

static ac_block_t *first_of(ac_arena_t *arena, uint64_t episode) {
    ac_block_t *block = *list_of(arena, episode);
    while (block && block->ticket.place != episode)
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
    ac_ticket_t ticket = block->ticket;
    ac_free_t how = ac_order_exchange(&block->segment->arena->line, &ticket);
    ac_held_forget(block);
    block->ticket = ticket;
    if (how == AC_FREE_READY)
        ac_segment_finish(block);
    else
        ac_pending_add(block, &ticket);
}

void ac_allocator_release(ac_allocator_t *allocator, uint64_t episode) {
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        ac_lock(&allocator->lock);
        ac_block_t *block = *list_of(arena, episode), *next;
        bool owes = false;
        for (; block; block = next) {
            next = block->list_next;
            if (block->ticket.place != episode)
                continue;
            owes |= block->segment->tainted; /* it may be pending from now on */
            let_go(block);
        }
        bool leaving = arena->tainted_idle && !arena->dead;
        ac_unlock(&allocator->lock);
        if (leaving)
            ac_trim_tainted(arena);
        if (owes)
            ac_trim_owe(allocator);
    }
}
