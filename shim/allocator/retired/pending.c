/* Freed memory that waits for a fence: the queues of an arena, and how much of it is worth
 * waiting for. */
#include "allocator/allocator_int.h"

/* --- how much --- */

uint64_t ac_pending_least_budget(const ac_allocator_t *allocator) {
    return 6 * allocator->settings.large_segment_size;
}

uint64_t ac_pending_budget(const ac_allocator_t *allocator) {
    uint64_t live = allocator->high_water;
    uint64_t least = ac_pending_least_budget(allocator);
    live += (uint64_t)((double)live * allocator->settings.wait_budget);
    return live > least ? live : least;
}

uint64_t ac_pending_share(const ac_allocator_t *allocator) {
    return (ac_pending_budget(allocator) - allocator->high_water) / 2 + 1;
}

uint32_t ac_pending_weight(uint64_t share, uint64_t bytes) {
    uint64_t weight = bytes * AC_FENCE_EPOCH;
    if (weight < share)
        return 1;
    return weight / share < AC_FENCE_EPOCH ? (uint32_t)(weight / share) : AC_FENCE_EPOCH;
}

/* --- the queues --- */

void ac_pending_queue(ac_block_t *block, const ac_ticket_t *ticket) {
    ac_pending_t *queue = &block->segment->arena->pending[ticket->all];
    uint64_t target = ticket->epoch;
    if (queue->tail && queue->tail->ticket.epoch > target)
        target = queue->tail->ticket.epoch;
    ac_block_set_state(block, AC_BLOCK_PENDING);
    AC_BLOCK_SET(block, ticket.epoch, target);
    block->ticket.key = ticket->key;
    block->ticket.all = ticket->all;
    block->list_next = NULL;
    if (queue->tail)
        queue->tail->list_next = block;
    else
        queue->head = block;
    queue->tail = block;
    queue->bytes += block->size;
}

void ac_pending_add(ac_block_t *block, const ac_ticket_t *ticket) {
    ac_arena_t *arena = block->segment->arena;
    ac_pending_queue(block, ticket);
    ac_fence_want(&arena->line, ticket->all,
                  ac_pending_weight(ac_pending_share(arena->allocator), block->size));
}

void ac_pending_insert(ac_arena_t *arena, ac_block_t *first, ac_block_t *last, uint64_t bytes) {
    ac_pending_t *queue = &arena->pending[false];
    ac_block_t **at = &queue->head;
    while (*at && (*at)->ticket.epoch <= first->ticket.epoch)
        at = &(*at)->list_next;
    last->list_next = *at;
    if (!*at)
        queue->tail = last;
    *at = first;
    queue->bytes += bytes;
}

void ac_pending_forget(ac_segment_t *segment) {
    for (int all = 0; all < 2; all++) {
        ac_pending_t *queue = &segment->arena->pending[all];
        ac_block_t *kept = NULL;
        for (ac_block_t *block = queue->head, *next; block; block = next) {
            next = block->list_next;
            if (block->segment != segment) {
                kept = block;
                continue;
            }
            queue->bytes -= block->size;
            ac_block_set_state(block, AC_BLOCK_TRANSIT);
            if (kept)
                kept->list_next = next;
            else
                queue->head = next;
        }
        queue->tail = kept;
    }
}

bool ac_pending_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest) {
    const ac_pending_t *queue = &arena->pending[all];
    *oldest = queue->head ? queue->head->ticket.epoch : UINT64_MAX;
    *newest = queue->head ? queue->tail->ticket.epoch : 0;
    if (!all && arena->slabs.aside) {
        *oldest = arena->slabs.until < *oldest ? arena->slabs.until : *oldest;
        *newest = arena->slabs.until > *newest ? arena->slabs.until : *newest;
    }
    ac_ordered_targets(arena, all, oldest, newest);
    return *oldest != UINT64_MAX;
}

bool ac_pending_hopeful(const ac_arena_t *arena, bool all) {
    return ac_fence_reached(&arena->line, all) >= arena->overdue || ac_fence_idle(&arena->line);
}

void ac_pending_in_vain(ac_arena_t *arena, uint64_t target) {
    if (arena->overdue < target)
        arena->overdue = target;
}

static bool drain_queues(ac_arena_t *arena) {
    bool any = arena->ordered && ac_ordered_drain(arena);
    if (arena->slabs.aside && arena->slabs.until <= ac_fence_reached(&arena->line, false)) {
        ac_slabs_take_back(&arena->space);
        any = true;
    }
    for (int all = 0; all < 2; all++) {
        ac_pending_t *queue = &arena->pending[all];
        if (!queue->head)
            continue;
        uint64_t reached = ac_fence_reached(&arena->line, all);
        while (queue->head && queue->head->ticket.epoch <= reached) {
            ac_block_t *block = queue->head;
            queue->head = block->list_next;
            if (!queue->head)
                queue->tail = NULL;
            queue->bytes -= block->size;
            ac_block_set_state(block, AC_BLOCK_TRANSIT);
            ac_segment_finish(block);
            any = true;
        }
    }
    return any;
}

bool ac_pending_drain(ac_arena_t *arena) {
    bool waiting =
        arena->ordered || arena->pending[0].head || arena->pending[1].head || arena->slabs.aside;
    return waiting && drain_queues(arena);
}

void ac_allocator_drain(ac_allocator_t *allocator) {
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        if (!arena->dead)
            ac_pending_drain(arena);
}
