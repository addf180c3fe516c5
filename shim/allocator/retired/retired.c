/* The lists of freed memory that waits (retired.h). */
#include "allocator/retired/retired.h"

#include "allocator/budget.h"
#include "allocator/core_int.h"
#include "allocator/order/retire.h"
#include "allocator/space/records.h"
#include "allocator/space/segment.h"

enum { JOIN_SHARE = 4, INDEX_BYTES = sizeof(ac_free_index_t) + AC_BINS_BYTES };

/* --- lists --- */

static ac_retired_stream_t *stream_of(ac_retired_t *retired, unsigned key) {
    return &retired->stream[ac_key_slot(key)];
}

static ac_block_queue_t *list_of(const ac_block_t *block) {
    ac_retired_t *retired = block->segment->arena->retired;
    const ac_ticket_t *ticket = &block->ticket;
    if (ac_key_is_stream(ticket->key))
        return &stream_of(retired, ticket->key)->list;
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

/* Of two with tickets of one key. */
static bool waits_longer(const ac_block_t *a, const ac_block_t *b) {
    uint64_t one = ac_ticket_place(&a->ticket), other = ac_ticket_place(&b->ticket);
    return one != other ? one > other : a->ticket.epoch > b->ticket.epoch;
}

/* Behind `at` of its list; NULL: first. */
static void put_after(ac_block_t *at, ac_block_t *block) {
    ac_retired_t *retired = block->segment->arena->retired;
    const unsigned key = block->ticket.key;
    ac_block_set_state(block, AC_BLOCK_RETIRED);
    if (ac_key_is_stream(key)) {
        ac_retired_stream_t *stream = stream_of(retired, key);
        retired->filled |= ac_key_bit(key);
        ac_block_queue_put_after(&stream->list, at, block);
        ac_free_index_insert(stream->index[block->segment->pool], block);
        return;
    }
    ac_block_queue_put_after(list_of(block), at, block);
    if (key == AC_KEY_CAPTURE)
        count_held(block, 1);
}

void ac_retired_insert(ac_block_t *block, ac_block_t *hint) {
    ac_block_queue_t *list = list_of(block);
    ac_block_t *at = hint ? hint->list_prev : list->last;
    while (at && waits_longer(at, block))
        at = at->list_prev;
    put_after(at, block);
}

void ac_retired_remove(ac_block_t *block) {
    ac_retired_t *retired = block->segment->arena->retired;
    const unsigned key = block->ticket.key;
    ac_block_take_out(block);
    if (__builtin_expect(key == AC_KEY_OWN, 1)) {
        ac_block_queue_remove(&retired->fence[AC_REACH_OWN], block);
        return;
    }
    if (ac_key_is_stream(key)) {
        ac_retired_stream_t *stream = stream_of(retired, key);
        ac_block_queue_remove(&stream->list, block);
        ac_free_index_remove(stream->index[block->segment->pool], block);
        if (!stream->list.first)
            retired->filled &= ~ac_key_bit(key);
        return;
    }
    ac_block_queue_remove(list_of(block), block);
    if (key == AC_KEY_CAPTURE)
        count_held(block, -1);
}

/* To the end of the list of its key, OWN or ALL. */
static inline void append(ac_block_t *block, ac_block_queue_t *list) {
    const ac_block_t *last = list->last;
    if (last && last->ticket.epoch > block->ticket.epoch)
        AC_BLOCK_SET(block, ticket.epoch, last->ticket.epoch);
    ac_block_set_state(block, AC_BLOCK_RETIRED);
    ac_block_queue_append(list, block);
}

void ac_retired_append_own(ac_block_t *block) {
    block->ticket.ordered = false; /* of its life before */
    append(block, &block->segment->arena->retired->fence[AC_REACH_OWN]);
}

void ac_retired_append(ac_block_t *block, const ac_ticket_t *ticket) {
    block->ticket = *ticket;
    append(block, list_of(block));
    if (block->ticket.key == AC_KEY_CAPTURE)
        count_held(block, 1);
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

/* What is beside the block becomes part of it where it is alike, or free: the latter waits for
 * nothing itself, but memory that a stream uses again and again would else fall to pieces among
 * the streams.  Not where the most of it would be withheld from others, nor where the device is
 * done with it later than with the block. */
static bool joins(const ac_block_t *block, const ac_block_t *beside) {
    return ac_retired_alike(block, beside) || (beside && beside->state == AC_BLOCK_FREE &&
                                               beside->ticket.epoch <= block->ticket.epoch &&
                                               beside->size / JOIN_SHARE <= block->size);
}

/* The block beside `block` leaves its lists and waits for what `block` does. */
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
    block = join_neighbours(block);
    ac_retired_insert(block, NULL);
    for (ac_block_t *b = block->list_next; b && b->ticket.epoch < block->ticket.epoch;
         b = b->list_next)
        AC_BLOCK_SET(b, ticket.epoch, block->ticket.epoch);
}

/* --- in and out --- */

static uint32_t weight_of(const ac_arena_t *arena, uint64_t size) {
    const ac_allocator_t *allocator = arena->allocator;
    return ac_fence_weight(ac_budget_fence(&allocator->settings, allocator->high_water), size);
}

bool ac_retired_add(ac_block_t *block, const ac_ticket_t *ticket) {
    ac_arena_t *arena = block->segment->arena;
    uint64_t size = block->size;
    if (ac_key_is_stream(ticket->key)) {
        block->ticket = *ticket;
        block = join_neighbours(block);
        put_after(stream_of(arena->retired, block->ticket.key)->list.last, block);
        ac_fence_earn(&arena->timeline, weight_of(arena, size));
        return false;
    }
    ac_retired_append(block, ticket);
    if (ticket->key == AC_KEY_CAPTURE) {
        arena->allocator->counters->capture_deferred_frees++;
        return false;
    }
    arena->allocator->counters->fenced_frees++;
    ac_fence_want(&arena->timeline, ticket->all, weight_of(arena, size));
    return block->segment->tainted;
}

void ac_retired_late(ac_block_t *block, ac_order_t *order, unsigned slot, uint64_t place) {
    ac_arena_t *arena = block->segment->arena;
    int pool = block->segment->pool;
    ac_ticket_t ticket;
    bool follows =
        slot != AC_ORDER_NONE && !block->segment->tainted &&
        (arena->retired->stream[slot].index[pool] || ac_retired_make_index(arena, slot, pool));
    ac_order_retire_late(&arena->timeline, order, follows ? slot : AC_ORDER_NONE, place, &ticket);
    uint32_t weight = weight_of(arena, block->size);
    if (!follows) {
        ac_retired_append(block, &ticket);
        ac_fence_want(&arena->timeline, ticket.all, weight);
        return;
    }
    block->ticket = ticket;
    ac_retired_join(block);
    ac_fence_earn(&arena->timeline, weight);
}

void ac_retired_exchange(ac_block_t *block, ac_block_t *hint[2]) {
    ac_arena_t *arena = block->segment->arena;
    bool wanted = ac_key_is_stream(block->ticket.key); /* a fence, when it was freed */
    ac_retired_remove(block);
    if (ac_order_exchange(&arena->timeline, &block->ticket) == AC_FREE_READY) {
        ac_segment_finish(block);
        return;
    }
    bool all = block->ticket.all;
    ac_retired_insert(block, hint[all]);
    hint[all] = block;
    if (!wanted)
        ac_fence_want(&arena->timeline, all, weight_of(arena, block->size));
}

void ac_retired_unorder(ac_segment_t *segment) {
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (block->state == AC_BLOCK_RETIRED && ac_key_is_stream(block->ticket.key))
            ac_retired_exchange(block, (ac_block_t *[2]){NULL, NULL});
}

/* --- in the order of a stream --- */

bool ac_retired_make_index(ac_arena_t *arena, unsigned slot, int pool) {
    ac_free_index_t *index = ac_record_memory(INDEX_BYTES);
    if (index)
        index->bin = (ac_block_t **)(index + 1);
    arena->retired->stream[slot].index[pool] = index;
    return index;
}

void ac_retired_close(ac_arena_t *arena) {
    for (unsigned slot = 0; slot < AC_ORDER_SLOTS; slot++)
        for (int pool = AC_POOL_SMALL; pool < AC_POOL_KINDS; pool++) {
            ac_free_index_t **index = &arena->retired->stream[slot].index[pool];
            if (*index)
                ac_record_memory_return(*index, INDEX_BYTES);
            *index = NULL;
        }
}

void ac_retired_take(ac_block_t *block, uint64_t size, unsigned module, uint64_t requested) {
    ac_segment_t *segment = block->segment;
    ac_allocator_t *allocator = segment->arena->allocator;
    ac_block_t *rest = NULL, *before = block->list_prev;
    if (block->size > size && block->size < allocator->settings.max_split_size)
        rest = ac_record_piece(block, size);
    ac_retired_remove(block);
    if (rest) {
        uint64_t left = block->requested > size ? block->requested - size : 0;
        ac_block_split(block, size, rest);
        rest->ticket = block->ticket;
        AC_BLOCK_SET(rest, requested, left);
        AC_BLOCK_SET(block, requested, block->requested - left);
    }
    ac_segment_count_finished(block); /* the bytes of the rest go on as they are counted */
    if (rest) {
        segment->busy++;
        ac_segment_count_cut(segment);
        put_after(before, rest);
    }
    ac_segment_reuse(block, module, requested);
    /* Work of the owner before may be older than this: no later free may take the block for one
     * that nothing was submitted to. */
    AC_BLOCK_SET(block, ticket.epoch, 0);
}
