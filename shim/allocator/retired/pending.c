/* What has become ready of freed memory that waits, and what that waits for (pending.h). */
#include "allocator/retired/pending.h"

#include "allocator/order/retire.h"
#include "allocator/retired/ordered.h"
#include "allocator/space/segment.h"
#include "allocator/space/slab.h"

/* --- ready --- */

/* Widen the range from *oldest to *newest by what the end of a list waits for. */
static void widen(const ac_block_t *end, bool all, uint64_t *oldest, uint64_t *newest) {
    if (!end || end->ticket.all != all)
        return;
    *oldest = end->ticket.epoch < *oldest ? end->ticket.epoch : *oldest;
    *newest = end->ticket.epoch > *newest ? end->ticket.epoch : *newest;
}

static void widen_by(const ac_block_queue_t *list, bool all, uint64_t *oldest, uint64_t *newest) {
    widen(list->first, all, oldest, newest);
    widen(list->last, all, oldest, newest);
}

bool ac_pending_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest) {
    const ac_retired_t *retired = arena->retired;
    *oldest = UINT64_MAX;
    *newest = 0;
    widen_by(&retired->fence[all], all, oldest, newest);
    if (!all && arena->slabs.aside) {
        *oldest = arena->slabs.until < *oldest ? arena->slabs.until : *oldest;
        *newest = arena->slabs.until > *newest ? arena->slabs.until : *newest;
    }
    /* Where blocks of both kinds wait in a stream's list, those of one context came first: the
     * oldest of the others is in no end, and the newest stands for it. */
    for (uint64_t left = retired->filled; left; left &= left - 1)
        widen_by(&retired->stream[__builtin_ctzll(left)].list, all, oldest, newest);
    return *oldest != UINT64_MAX;
}

/* How far fences are, asked for once where it matters. */
typedef struct {
    const ac_timeline_t *timeline;
    bool asked[2];
    uint64_t epoch[2];
} fences_t;

static bool is_reached(fences_t *fences, const ac_ticket_t *ticket) {
    bool all = ticket->all;
    if (!fences->asked[all])
        fences->epoch[all] = ac_order_reach_of(fences->timeline, NULL, AC_ORDER_NONE,
                                               all ? AC_KEY_ALL : AC_KEY_OWN);
    fences->asked[all] = true;
    return ticket->epoch <= fences->epoch[all];
}

/* `reach`: of the list's key, if that is a stream's. */
static bool drain(ac_block_queue_t *list, uint64_t reach, fences_t *fences) {
    bool any = false;
    for (ac_block_t *block; (block = list->first); any = true) {
        if (ac_ticket_place(&block->ticket) > reach && !is_reached(fences, &block->ticket))
            break;
        ac_retired_remove(block);
        ac_segment_finish(block);
    }
    return any;
}

bool ac_pending_drain_some(ac_arena_t *arena) {
    ac_retired_t *retired = arena->retired;
    fences_t fences = {.timeline = &arena->timeline};
    bool any = false;
    for (uint64_t left = retired->filled; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        uint64_t reach = ac_order_reach_of(&arena->timeline, ac_ordered_order(arena),
                                           AC_ORDER_NONE, ac_key_of(slot));
        any |= drain(&retired->stream[slot].list, reach, &fences);
    }
    if (arena->slabs.aside && arena->slabs.until <= ac_fence_reached(&arena->timeline, false)) {
        ac_slabs_take_back(&arena->space);
        any = true;
    }
    for (int all = 0; all < 2; all++)
        any |= drain(&retired->fence[all], 0, &fences);
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

bool ac_retired_let_go(ac_arena_t *arena, uint64_t session) {
    bool tainted = false;
    for (ac_block_t *block = of_session(arena, session)->first, *next; block; block = next) {
        next = block->list_next;
        if (block->ticket.place != session)
            continue;
        tainted |= block->segment->tainted; /* it may wait for a fence from now on */
        ac_retired_exchange(block, (ac_block_t *[2]){NULL, NULL});
    }
    return tainted;
}
