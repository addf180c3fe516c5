/* The end of the single-stream rule without a wait of the second stream: free memory that only the sole
 * stream's order protected waits for a fence instead.  sole.h tells which memory the walk has to find,
 * and proves that this is all.  In the statistics the memory is active again, as if it were freed now. */
#include "allocator/allocator_int.h"
#include "failpoint.h"

static ac_arena_t *arena_of(ac_timeline_t *timeline) {
    return (ac_arena_t *)(void *)((char *)timeline - offsetof(ac_arena_t, timeline));
}

/* Whether the program has, or may get, any of the block since `early` without a fence. */
static bool is_early(const ac_block_t *block, uint64_t early, uint64_t reached) {
    ac_block_state_t state = block->state;
    switch (state) {
    case AC_BLOCK_ALLOCATED:
        return (block->ticket.epoch >= early && !AC_FAILPOINT(early_block_overlooked)) ||
               (ac_key_is_stream(block->ticket.key) && !AC_FAILPOINT(handed_on_overlooked));
    case AC_BLOCK_CACHED: /* freed in the order of a stream that may be a second one */
        return ac_key_is_stream(block->ticket.key) && !AC_FAILPOINT(lane_overlooked);
    case AC_BLOCK_RETIRED:
        if (block->ticket.key == AC_KEY_CAPTURE)
            return true; /* its ticket names a capture session, no time */
        return ac_key_is_stream(block->ticket.key) &&
               (block->ticket.all ||
                (block->ticket.epoch > reached && !AC_FAILPOINT(freed_in_order_overlooked)));
    default:
        return ac_block_is_moving(block) || ac_slab_in_use_since(block, early);
    }
}

static bool any_early(const ac_arena_t *arena, uint64_t reached) {
    uint64_t early = ac_sole_early(&arena->timeline);
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        for (const ac_block_t *block = s->first; block; block = block->next)
            if (is_early(block, early, reached))
                return true;
    return false;
}

static ac_ticket_t ticket_of(uint64_t until) {
    return (ac_ticket_t){.epoch = until, .key = AC_KEY_OWN};
}

static void put_aside(ac_block_t *slab, void *until) {
    slab->ticket = ticket_of(*(const uint64_t *)until);
    ac_ledger_add(&slab->segment->arena->retired->ledger, &slab->due);
}

/* Blocks of tainted segments serve nothing, and go back by their own stamp. */
static void withdraw_free(ac_arena_t *arena, uint64_t reached, uint64_t until) {
    for (const ac_segment_t *s = arena->segments; s; s = s->next) {
        if (s->tainted || s->quiet <= reached)
            continue;
        for (ac_block_t *block = s->first; block; block = block->next) {
            if (block->state != AC_BLOCK_FREE || block->ticket.epoch <= reached)
                continue;
            ac_segment_withdraw(block);
            block->ticket = ticket_of(until);
            ac_retired_put(block);
        }
    }
}

bool ac_arena_quarantine(ac_timeline_t *timeline, uint64_t until) {
    ac_arena_t *arena = arena_of(timeline);
    ac_allocator_t *allocator = arena->allocator;
    bool out = ac_caches_freeze(allocator) || AC_FAILPOINT(quarantine_beside_owner);
    uint64_t reached = ac_fence_reached(timeline, false);
    bool may = out && !arena->dead && !any_early(arena, reached);
    if (may) {
        if (!AC_FAILPOINT(caches_not_in_quarantine))
            ac_caches_empty(arena);
        if (!AC_FAILPOINT(slabs_not_in_quarantine))
            ac_slabs_put_aside(&arena->space, reached, put_aside, &until);
        if (!AC_FAILPOINT(pools_not_in_quarantine))
            withdraw_free(arena, reached, until);
        ac_caches_check_peaks(allocator, NULL);
    }
    ac_caches_thaw(allocator);
    return may;
}
