/* Blocks that were freed and are not free yet (retired.h). */
#include "allocator/retired/retired.h"

#include "allocator/policy.h"
#include "allocator/order/retire.h"
#include "allocator/space/records.h"
#include "allocator/space/segment.h"
#include "allocator/space/slab.h"

enum { INDEX_BYTES = AC_INDICES * (sizeof(ac_free_index_t) + AC_BINS_BYTES) };

/* --- into the ledger and out of it --- */

static ac_ledger_t *ledger_of(const ac_block_t *block) {
    return &block->segment->arena->retired->ledger;
}

static ac_free_index_t *index_of(const ac_block_t *block) {
    const ac_segment_t *segment = block->segment;
    return &segment->arena->retired->index[ac_key_slot(block->ticket.key)][segment->index];
}

/* Counts what captures hold. */
static void count_held(const ac_block_t *block, int sign) {
    ac_device_counters_t *counters = block->segment->arena->allocator->counters;
    counters->capture_deferred_blocks += (uint64_t)sign;
    counters->capture_deferred_bytes += (uint64_t)sign * block->size;
    block->segment->held += (uint32_t)sign;
}

static void enter(ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_RETIRED);
    if (ac_key_is_stream(block->ticket.key))
        ac_free_index_insert(index_of(block), block);
    else if (block->ticket.key == AC_KEY_CAPTURE)
        count_held(block, 1);
}

void ac_retired_put(ac_block_t *block) {
    ac_ledger_add(ledger_of(block), &block->due);
    enter(block);
}

void ac_retired_remove(ac_block_t *block) {
    ac_ledger_remove(ledger_of(block), &block->due);
    ac_block_take_out(block);
    if (ac_key_is_stream(block->ticket.key))
        ac_free_index_remove(index_of(block), block);
    else if (block->ticket.key == AC_KEY_CAPTURE)
        count_held(block, -1);
}

/* --- neighbours that wait in the order of a stream --- */

bool ac_retired_alike(const ac_block_t *a, const ac_block_t *b) {
    return b && b->state == AC_BLOCK_RETIRED && b->ticket.key == a->ticket.key &&
           b->ticket.all == a->ticket.all;
}

/* `block` takes in its right neighbour; both are in no list. */
static void join_next(ac_block_t *block) {
    ac_segment_t *segment = block->segment;
    const ac_block_t *gone = block->next;
    if (gone->ticket.epoch > block->ticket.epoch)
        AC_BLOCK_SET(block, ticket.epoch, gone->ticket.epoch);
    if (gone->ticket.place > block->ticket.place)
        block->ticket.place = gone->ticket.place;
    AC_BLOCK_SET(block, requested, block->requested + gone->requested);
    segment->busy--;
    ac_stat_pools_down(segment->arena->allocator->stats->active, segment->pool, 1);
    ac_segment_absorb_next(block);
}

/* Returns true if the neighbour becomes part of the block: a similar waiting block, or free memory.  Free
 * memory waits for nothing itself, but memory that a stream uses again and again would otherwise fall to
 * pieces among the streams.  It does not join if most of the result would be withheld from others, or if
 * the device is done with it later than with the block. */
static bool joins(const ac_block_t *block, const ac_block_t *beside) {
    return ac_retired_alike(block, beside) || (beside && beside->state == AC_BLOCK_FREE &&
                                               beside->ticket.epoch <= block->ticket.epoch &&
                                               beside->size / AC_JOIN_SHARE <= block->size);
}

/* Takes `beside` out of its lists; from now on it waits for the same work as `block`. */
static void join(ac_block_t *beside, const ac_block_t *block) {
    if (beside->state == AC_BLOCK_RETIRED) {
        ac_retired_remove(beside);
        return;
    }
    ac_segment_withdraw(beside);
    beside->ticket = block->ticket;
}

static ac_block_t *join_neighbours(ac_block_t *block) {
    while (joins(block, block->next)) {
        join(block->next, block);
        join_next(block);
    }
    while (joins(block, block->prev)) {
        join(block->prev, block);
        block = block->prev;
        join_next(block);
    }
    return block;
}

void ac_retired_join(ac_block_t *block) {
    ac_retired_put(join_neighbours(block));
}

/* --- frees --- */

static uint64_t weight_of(const ac_arena_t *arena, uint64_t size) {
    const ac_allocator_t *allocator = arena->allocator;
    return ac_fence_weight(ac_budget_fence(&allocator->settings, allocator->high_water), size);
}

bool ac_retired_add(ac_block_t *block, const ac_ticket_t *ticket) {
    ac_arena_t *arena = block->segment->arena;
    uint64_t weight = weight_of(arena, block->size);
    block->ticket = *ticket;
    if (ac_key_is_stream(ticket->key)) {
        ac_retired_join(block);
        ac_fence_earn(&arena->timeline, weight);
        return false;
    }
    ac_retired_put(block);
    if (ticket->key == AC_KEY_CAPTURE) {
        arena->allocator->counters->capture_deferred_frees++;
        return false;
    }
    arena->allocator->counters->fenced_frees++;
    ac_fence_want(&arena->timeline, ticket->all, weight);
    return block->segment->tainted;
}

void ac_retired_late(ac_block_t *block, ac_order_t *order, unsigned slot, uint64_t place) {
    ac_arena_t *arena = block->segment->arena;
    uint64_t weight = weight_of(arena, block->size);
    bool follows = slot != AC_ORDER_NONE && !block->segment->tainted && ac_retired_has_index(arena, slot);
    ac_order_retire_late(&arena->timeline, order, follows ? slot : AC_ORDER_NONE, place,
                         &block->ticket);
    if (follows) {
        ac_retired_join(block);
        ac_fence_earn(&arena->timeline, weight);
    } else {
        ac_retired_put(block);
        ac_fence_want(&arena->timeline, block->ticket.all, weight);
    }
}

void ac_retired_exchange(ac_block_t *block) {
    ac_arena_t *arena = block->segment->arena;
    bool wanted = ac_key_is_stream(block->ticket.key); /* a fence, when it was freed */
    ac_retired_remove(block);
    if (ac_order_exchange(&arena->timeline, &block->ticket) == AC_FREE_READY) {
        ac_segment_finish(block);
        return;
    }
    ac_retired_put(block);
    if (!wanted)
        ac_fence_want(&arena->timeline, block->ticket.all, weight_of(arena, block->size));
}

void ac_retired_unorder(ac_segment_t *segment) {
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (block->state == AC_BLOCK_RETIRED && ac_key_is_stream(block->ticket.key))
            ac_retired_exchange(block);
}

/* --- in the order of a stream --- */

bool ac_retired_make_index(ac_arena_t *arena, unsigned slot) {
    ac_free_index_t *index = ac_record_memory(INDEX_BYTES);
    for (size_t i = 0; index && i < AC_INDICES; i++)
        index[i].bin = (ac_block_t **)(index + AC_INDICES) + i * AC_BINS;
    arena->retired->index[slot] = index;
    return index;
}

void ac_retired_close(ac_arena_t *arena) {
    for (unsigned slot = 0; slot < AC_ORDER_SLOTS; slot++) {
        ac_free_index_t **index = &arena->retired->index[slot];
        if (*index)
            ac_record_memory_return(*index, INDEX_BYTES);
        *index = NULL;
    }
}

/* Cuts `rest`, which goes on waiting in the block's place, off the block. */
static void leave_rest(ac_block_t *block, uint64_t size, ac_block_t *rest) {
    uint64_t left = block->requested > size ? block->requested - size : 0;
    ac_block_split(block, size, rest);
    rest->ticket = block->ticket;
    AC_BLOCK_SET(rest, requested, left);
    AC_BLOCK_SET(block, requested, block->requested - left);
    ac_block_set_state(rest, AC_BLOCK_RETIRED);
    ac_free_index_replace(index_of(block), block, rest);
    ac_ledger_replace(ledger_of(block), &block->due, &rest->due);
    ac_block_take_out(block);
}

void ac_retired_take(ac_block_t *block, uint64_t size, unsigned module, uint64_t requested) {
    ac_segment_t *segment = block->segment;
    ac_block_t *rest = NULL;
    if (block->size > size && block->size < segment->arena->allocator->settings.max_split_size)
        rest = ac_record_piece(block, size);
    if (rest)
        leave_rest(block, size, rest);
    else
        ac_retired_remove(block);
    ac_segment_count_finished(block); /* the bytes of the rest go on as they are counted */
    if (rest) {
        segment->busy++;
        ac_segment_count_cut(segment);
    }
    ac_segment_reuse(block, module, requested);
    /* Work of the owner before may be older than this: no later free may take the block for one
     * that nothing was submitted to. */
    AC_BLOCK_SET(block, ticket.epoch, 0);
}

/* --- what has become ready --- */

static void finish(ac_due_t *due, void *unused) {
    ac_block_t *block = ac_block_of(due);
    (void)unused;
    if (ac_block_is_slab(block)) {
        ac_ledger_remove(ledger_of(block), due);
        ac_slab_take_back(block);
    } else {
        ac_retired_remove(block);
        ac_segment_finish(block);
    }
}

bool ac_retired_drain_some(ac_arena_t *arena) {
    return ac_ledger_drain(&arena->retired->ledger, &arena->timeline, arena->retired->order, finish,
                           NULL);
}

void ac_retired_drain_all(ac_allocator_t *allocator) {
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        if (!arena->dead)
            ac_retired_drain(arena);
}

/* --- capture sessions --- */

bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t session) {
    bool any = false;
    ac_lock(&allocator->lock);
    for (ac_arena_t *arena = allocator->arenas; arena && !any; arena = arena->next)
        any = ac_ledger_held(&arena->retired->ledger, session);
    ac_unlock(&allocator->lock);
    return any;
}

bool ac_retired_let_go(ac_arena_t *arena, uint64_t session) {
    bool tainted = false;
    for (ac_due_t *due; (due = ac_ledger_held(&arena->retired->ledger, session));) {
        ac_block_t *block = ac_block_of(due);
        tainted |= block->segment->tainted; /* it may wait for a fence from now on */
        ac_retired_exchange(block);
    }
    return tainted;
}
