/* The lists of freed memory that waits (retired.h). */
#include "allocator/retired/retired.h"

#include "allocator/budget.h"
#include "allocator/core_int.h"

static ac_block_queue_t *queue_of(const ac_block_t *block) {
    ac_retired_t *retired = block->segment->arena->retired;
    const ac_ticket_t *ticket = &block->ticket;
    return ticket->key == AC_KEY_CAPTURE ? &retired->capture[ticket->place % AC_RETIRED_SESSIONS]
                                         : &retired->fence[ticket->all];
}

/* What captures hold. */
static void count_held(const ac_block_t *block, int sign) {
    ac_device_counters_t *counters = block->segment->arena->allocator->counters;
    counters->capture_deferred_blocks += (uint64_t)sign;
    counters->capture_deferred_bytes += (uint64_t)sign * block->size;
    block->segment->held += (uint32_t)sign;
}

void ac_retired_append(ac_block_t *block, const ac_ticket_t *ticket) {
    block->ticket = *ticket;
    ac_block_queue_t *queue = queue_of(block);
    if (ticket->key == AC_KEY_CAPTURE)
        count_held(block, 1);
    else if (queue->last && queue->last->ticket.epoch > ticket->epoch)
        AC_BLOCK_SET(block, ticket.epoch, queue->last->ticket.epoch);
    ac_block_set_state(block, AC_BLOCK_RETIRED);
    ac_block_queue_append(queue, block);
}

void ac_retired_insert(ac_block_t *block, ac_block_t *hint) {
    ac_block_queue_t *queue = queue_of(block);
    ac_block_t *at = hint ? hint->list_prev : queue->last;
    while (at && at->ticket.epoch > block->ticket.epoch)
        at = at->list_prev;
    ac_block_set_state(block, AC_BLOCK_RETIRED);
    ac_block_queue_put_after(queue, at, block);
}

void ac_retired_add(ac_block_t *block, const ac_ticket_t *ticket) {
    ac_arena_t *arena = block->segment->arena;
    ac_retired_append(block, ticket);
    if (ticket->key != AC_KEY_CAPTURE)
        ac_fence_want(&arena->timeline, ticket->all,
                      ac_fence_weight(ac_budget_fence(&arena->allocator->settings,
                                                      arena->allocator->high_water),
                                      block->size));
}

void ac_retired_remove(ac_block_t *block) {
    ac_block_queue_remove(queue_of(block), block);
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    if (block->ticket.key == AC_KEY_CAPTURE)
        count_held(block, -1);
}
