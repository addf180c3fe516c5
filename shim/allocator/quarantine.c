/* The end of the single-stream rule without a wait of the second stream: free memory that only the
 * home's order protected waits for a fence instead.  What has to be found, and why that is all, is
 * written in single.h.  In the statistics the memory is active again, as if it were freed now. */
#include "allocator/allocator_int.h"
#include "plant.h"

static ac_arena_t *arena_of(ac_fence_line_t *line) {
    return (ac_arena_t *)(void *)((char *)line - offsetof(ac_arena_t, line));
}

/* Whether the program has, or may get, any of the block since `early` without a fence. */
static bool is_early(const ac_block_t *block, uint64_t early, uint64_t reached) {
    ac_block_state_t state = block->state;
    switch (state) {
    case AC_BLOCK_ALLOCATED:
        return (block->ticket.epoch >= early && !AC_PLANTED(early_block_overlooked)) ||
               (ac_key_is_stream(block->ticket.key) && !AC_PLANTED(handed_on_overlooked));
    case AC_BLOCK_SLAB:
        return ac_slab_in_use_since(block, early);
    case AC_BLOCK_ORDERED:
        return block->ticket.all ||
               (block->ticket.epoch > reached && !AC_PLANTED(freed_in_order_overlooked));
    case AC_BLOCK_HELD:   /* its ticket names an episode, no time */
    case AC_BLOCK_MOVING: /* maybe with free memory in it, and for a request */
        return true;
    default:
        return false;
    }
}

static bool any_early(const ac_arena_t *arena, uint64_t reached) {
    uint64_t early = ac_single_early(&arena->line);
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        for (const ac_block_t *block = s->first; block; block = block->next)
            if (is_early(block, early, reached))
                return true;
    return false;
}

/* Those of tainted segments serve nothing, and these go back by their own stamp. */
static void withdraw_free(ac_arena_t *arena, uint64_t reached, uint64_t until) {
    ac_block_t *first = NULL, *last = NULL;
    uint64_t bytes = 0;
    for (const ac_segment_t *s = arena->segments; s; s = s->next) {
        if (s->tainted || s->quiet <= reached)
            continue;
        for (ac_block_t *block = s->first; block; block = block->next) {
            if (block->state != AC_BLOCK_FREE || block->ticket.epoch <= reached)
                continue;
            ac_segment_withdraw(block);
            ac_block_set_state(block, AC_BLOCK_PENDING);
            block->ticket = (ac_ticket_t){.epoch = until, .key = AC_KEY_OWN};
            block->list_next = first;
            first = block;
            last = last ? last : block;
            bytes += block->size;
        }
    }
    if (first)
        ac_pending_insert(arena, first, last, bytes);
}

bool ac_arena_quarantine(ac_fence_line_t *line, uint64_t until) {
    ac_arena_t *arena = arena_of(line);
    ac_allocator_t *allocator = arena->allocator;
    bool out = ac_caches_freeze(allocator) || AC_PLANTED(quarantine_beside_owner);
    uint64_t reached = ac_fence_reached(line, false);
    bool may = out && !arena->dead && !any_early(arena, reached);
    if (may) {
        if (!AC_PLANTED(caches_not_in_quarantine))
            ac_caches_empty(arena);
        if (!AC_PLANTED(slabs_not_in_quarantine))
            ac_slabs_put_aside(&arena->space, reached, until);
        if (!AC_PLANTED(pools_not_in_quarantine))
            withdraw_free(arena, reached, until);
    }
    ac_caches_thaw(allocator);
    return may;
}
