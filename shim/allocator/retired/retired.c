/* Freed memory that waits (retired.h), and how much of it is worth waiting for. */
#include "allocator/allocator_int.h"
#include "allocator/budget.h"

/* --- how much --- */

uint64_t ac_pending_share(const ac_allocator_t *allocator) {
    uint64_t live = allocator->high_water;
    return (ac_budget(&allocator->settings, AC_BUDGET_WAIT, live) - live) / 2 + 1;
}

uint32_t ac_pending_weight(uint64_t share, uint64_t bytes) {
    uint64_t weight = bytes * AC_FENCE_BATCH_WEIGHT;
    if (weight < share)
        return 1;
    return weight / share < AC_FENCE_BATCH_WEIGHT ? (uint32_t)(weight / share)
                                                  : AC_FENCE_BATCH_WEIGHT;
}

/* --- the lists --- */

static ac_block_queue_t *queue_of(const ac_block_t *block) {
    ac_retired_t *retired = &block->segment->arena->retired;
    const ac_ticket_t *ticket = &block->ticket;
    return ticket->key == AC_KEY_CAPTURE ? &retired->capture[ticket->place % AC_RETIRED_EPISODES]
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
                      ac_pending_weight(ac_pending_share(arena->allocator), block->size));
}

static void take_out(ac_block_t *block) {
    ac_block_queue_remove(queue_of(block), block);
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    if (block->ticket.key == AC_KEY_CAPTURE)
        count_held(block, -1);
}

void ac_retired_lost(ac_block_t *block) {
    if (ac_key_is_stream(block->ticket.key))
        ac_ordered_lost(block);
    else
        take_out(block);
}

/* --- ready --- */

bool ac_pending_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest) {
    const ac_block_queue_t *queue = &arena->retired.fence[all];
    *oldest = queue->first ? queue->first->ticket.epoch : UINT64_MAX;
    *newest = queue->first ? queue->last->ticket.epoch : 0;
    if (!all && arena->slabs.aside) {
        *oldest = arena->slabs.until < *oldest ? arena->slabs.until : *oldest;
        *newest = arena->slabs.until > *newest ? arena->slabs.until : *newest;
    }
    ac_ordered_targets(arena, all, oldest, newest);
    return *oldest != UINT64_MAX;
}

static bool drain_queues(ac_arena_t *arena) {
    bool any = arena->ordered && ac_ordered_drain(arena);
    if (arena->slabs.aside && arena->slabs.until <= ac_fence_reached(&arena->timeline, false)) {
        ac_slabs_take_back(&arena->space);
        any = true;
    }
    for (int all = 0; all < 2; all++) {
        ac_block_queue_t *queue = &arena->retired.fence[all];
        if (!queue->first)
            continue;
        uint64_t reach = ac_order_reach_of(&arena->timeline, NULL, AC_ORDER_NONE,
                                           all ? AC_KEY_ALL : AC_KEY_OWN);
        for (ac_block_t *block; (block = queue->first) && block->ticket.epoch <= reach;) {
            take_out(block);
            ac_segment_finish(block);
            any = true;
        }
    }
    return any;
}

bool ac_pending_drain(ac_arena_t *arena) {
    const ac_block_queue_t *fence = arena->retired.fence;
    bool waiting = arena->ordered || fence[0].first || fence[1].first || arena->slabs.aside;
    return waiting && drain_queues(arena);
}

void ac_allocator_drain(ac_allocator_t *allocator) {
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        if (!arena->dead)
            ac_pending_drain(arena);
}

/* --- episodes --- */

static ac_block_queue_t *of_episode(ac_arena_t *arena, uint64_t episode) {
    return &arena->retired.capture[episode % AC_RETIRED_EPISODES];
}

static bool holds(ac_arena_t *arena, uint64_t episode) {
    const ac_block_t *block = of_episode(arena, episode)->first;
    while (block && block->ticket.place != episode)
        block = block->list_next;
    return block;
}

bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t episode) {
    bool any = false;
    ac_lock(&allocator->lock);
    for (ac_arena_t *arena = allocator->arenas; arena && !any; arena = arena->next)
        any = holds(arena, episode);
    ac_unlock(&allocator->lock);
    return any;
}

/* Freed as of now. */
static void let_go(ac_block_t *block) {
    ac_ticket_t ticket = block->ticket;
    ac_free_t how = ac_order_exchange(&block->segment->arena->timeline, &ticket);
    take_out(block);
    if (how == AC_FREE_READY) {
        block->ticket = ticket;
        ac_segment_finish(block);
    } else {
        ac_retired_add(block, &ticket);
    }
}

bool ac_retired_let_go(ac_arena_t *arena, uint64_t episode) {
    bool tainted = false;
    for (ac_block_t *block = of_episode(arena, episode)->first, *next; block; block = next) {
        next = block->list_next;
        if (block->ticket.place != episode)
            continue;
        tainted |= block->segment->tainted; /* it may wait for a fence from now on */
        let_go(block);
    }
    return tainted;
}
