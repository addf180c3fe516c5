/* What has become ready of freed memory that waits, and what that waits for (pending.h). */
#include "allocator/retired/pending.h"

#include "allocator/order/retire.h"
#include "allocator/retired/ordered.h"
#include "allocator/space/segment.h"
#include "allocator/space/slab.h"

void ac_retired_lost(ac_block_t *block) {
    if (ac_key_is_stream(block->ticket.key))
        ac_ordered_lost(block);
    else
        ac_retired_remove(block);
}

/* --- ready --- */

bool ac_pending_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest) {
    const ac_block_queue_t *queue = &arena->retired->fence[all];
    *oldest = queue->first ? queue->first->ticket.epoch : UINT64_MAX;
    *newest = queue->first ? queue->last->ticket.epoch : 0;
    if (!all && arena->slabs.aside) {
        *oldest = arena->slabs.until < *oldest ? arena->slabs.until : *oldest;
        *newest = arena->slabs.until > *newest ? arena->slabs.until : *newest;
    }
    ac_ordered_targets(arena, all, oldest, newest);
    return *oldest != UINT64_MAX;
}

bool ac_pending_drain_some(ac_arena_t *arena) {
    bool any = arena->ordered && ac_ordered_drain(arena);
    if (arena->slabs.aside && arena->slabs.until <= ac_fence_reached(&arena->timeline, false)) {
        ac_slabs_take_back(&arena->space);
        any = true;
    }
    for (int all = 0; all < 2; all++) {
        ac_block_queue_t *queue = &arena->retired->fence[all];
        if (!queue->first)
            continue;
        uint64_t reach = ac_order_reach_of(&arena->timeline, NULL, AC_ORDER_NONE,
                                           all ? AC_KEY_ALL : AC_KEY_OWN);
        for (ac_block_t *block; (block = queue->first) && block->ticket.epoch <= reach;) {
            ac_retired_remove(block);
            ac_segment_finish(block);
            any = true;
        }
    }
    return any;
}

void ac_allocator_drain(ac_allocator_t *allocator) {
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        if (!arena->dead)
            ac_pending_drain(arena);
}

/* --- capture sessions --- */

static ac_block_queue_t *of_session(ac_arena_t *arena, uint64_t session) {
    return &arena->retired->capture[session % AC_RETIRED_SESSIONS];
}

static bool holds(ac_arena_t *arena, uint64_t session) {
    const ac_block_t *block = of_session(arena, session)->first;
    while (block && block->ticket.place != session)
        block = block->list_next;
    return block;
}

bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t session) {
    bool any = false;
    ac_lock(&allocator->lock);
    for (ac_arena_t *arena = allocator->arenas; arena && !any; arena = arena->next)
        any = holds(arena, session);
    ac_unlock(&allocator->lock);
    return any;
}

/* Freed as of now. */
static void let_go(ac_block_t *block) {
    ac_ticket_t ticket = block->ticket;
    ac_free_t how = ac_order_exchange(&block->segment->arena->timeline, &ticket);
    ac_retired_remove(block);
    if (how == AC_FREE_READY) {
        block->ticket = ticket;
        ac_segment_finish(block);
    } else {
        ac_retired_add(block, &ticket);
    }
}

bool ac_retired_let_go(ac_arena_t *arena, uint64_t session) {
    bool tainted = false;
    for (ac_block_t *block = of_session(arena, session)->first, *next; block; block = next) {
        next = block->list_next;
        if (block->ticket.place != session)
            continue;
        tainted |= block->segment->tainted; /* it may wait for a fence from now on */
        let_go(block);
    }
    return tainted;
}
