/* Blocks that were freed in the order of a stream, by stream and age (streams.h).
 *
 * Neighbours of one stream are joined at once, at the price of the older one's position, and free
 * memory beside them joins in: what a stream uses again and again stays in large pieces.  What a
 * request leaves of such a block keeps its place in the list.
 *
 * Invariants (ac_ordered_check): a list's positions and fence targets never fall from head to
 * tail; `filled` has a bit for each list that is not empty; its blocks are in its index.  When
 * the stream is not known any more, they wait for fences like others (retired.h). */
#include "allocator/retired/ordered.h"

#include "allocator/budget.h"
#include "allocator/order/retire.h"
#include "allocator/retired/ordered_int.h"
#include "allocator/retired/retired.h"
#include "allocator/retired/streams.h"
#include "allocator/space/mempool.h"
#include "allocator/space/records.h"
#include "allocator/space/segment.h"
#include "allocator/space/slab.h"
#include "device/wait.h"
#include "failpoint.h"

typedef ac_ordered_list_t list_t;

enum { LISTS = AC_ORDER_SLOTS, JOIN_SHARE = 4 };
enum { UNORDERED = 1, UNORDERED_DONE };

_Atomic bool ac_streams_tracked;

/* Arenas with an order, for events that name no arena. */
static _Atomic(ac_arena_t *) tracked[AC_FENCE_LINES];
static _Atomic unsigned tracked_high;

/* --- lists --- */

static unsigned slot_of(const ac_block_t *block) {
    return ac_key_slot(block->ticket.key);
}

static bool later(const ac_block_t *a, const ac_block_t *b) {
    return a->ticket.place != b->ticket.place ? a->ticket.place > b->ticket.place
                                              : a->ticket.epoch > b->ticket.epoch;
}

static void list_insert_after(ac_ordered_t *ordered, ac_block_t *before, ac_block_t *block) {
    unsigned slot = slot_of(block);
    list_t *list = &ordered->list[slot];
    ac_block_set_state(block, AC_BLOCK_RETIRED);
    ac_aged_queue_put_after(&list->queue, before, block);
    ac_free_index_insert(list->index[block->segment->pool], block);
    ordered->filled |= (uint64_t)1 << slot;
}

static void list_insert(ac_ordered_t *ordered, ac_block_t *block) {
    ac_block_t *before = ordered->list[slot_of(block)].queue.last; /* nearly always right */
    while (before && later(before, block))
        before = before->age_prev;
    list_insert_after(ordered, before, block);
}

static void list_remove(ac_ordered_t *ordered, ac_block_t *block) {
    unsigned slot = slot_of(block);
    list_t *list = &ordered->list[slot];
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    ac_free_index_remove(list->index[block->segment->pool], block);
    ac_aged_queue_remove(&list->queue, block);
    if (!list->queue.first)
        ordered->filled &= ~((uint64_t)1 << slot);
}

/* The block waits for a fence, as its ticket says.  hint[all]: a block that waits there no less
 * long; *hint is the block then. */
static void unbind(ac_block_t *block, ac_block_t *hint[2]) {
    ac_arena_t *arena = block->segment->arena;
    list_remove(arena->ordered, block);
    ac_order_exchange(&arena->timeline, &block->ticket);
    ac_retired_insert(block, hint[block->ticket.all]);
    hint[block->ticket.all] = block;
}

void ac_ordered_lost(ac_block_t *block) {
    list_remove(block->segment->arena->ordered, block);
}

static bool alike(const ac_block_t *a, const ac_block_t *b) {
    return b && b->state == AC_BLOCK_RETIRED && b->ticket.key == a->ticket.key &&
           b->ticket.all == a->ticket.all;
}

/* `block` swallows its right neighbour; both are in no list. */
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
    return alike(block, beside) || (beside && beside->state == AC_BLOCK_FREE &&
                                    beside->ticket.epoch <= block->ticket.epoch &&
                                    beside->size / JOIN_SHARE <= block->size);
}

/* The block beside `block` leaves its lists and waits for what `block` does. */
static void join(ac_ordered_t *ordered, ac_block_t *beside, const ac_block_t *block) {
    if (beside->state == AC_BLOCK_RETIRED) {
        list_remove(ordered, beside);
        return;
    }
    ac_segment_withdraw(beside);
    beside->ticket = block->ticket;
}

/* The block, whose stream, position and target are set, waits in its list. */
static void bind(ac_ordered_t *ordered, ac_block_t *block) {
    while (joins(block, block->next)) {
        join(ordered, block->next, block);
        join_next(block);
    }
    while (joins(block, block->prev)) {
        join(ordered, block->prev, block);
        block = block->prev;
        join_next(block);
    }
    list_insert(ordered, block);
}

enum { INDEX_BYTES = sizeof(ac_free_index_t) + AC_BINS_BYTES };

static ac_free_index_t *new_index(void) {
    ac_free_index_t *index = ac_record_memory(INDEX_BYTES);
    if (index)
        index->bin = (ac_block_t **)(index + 1);
    return index;
}

static bool have_index(list_t *list, int pool) {
    if (!list->index[pool])
        list->index[pool] = new_index();
    return list->index[pool];
}

/* --- the arena's part --- */

static ac_ordered_t *ordered_of(ac_arena_t *arena) {
    if (arena->ordered || arena->dead)
        return arena->ordered;
    unsigned i = 0;
    ac_arena_t *none = NULL;
    ac_ordered_t *ordered = ac_record_memory(sizeof *ordered);
    if (!ordered)
        return NULL;
    while (i < AC_FENCE_LINES && !atomic_compare_exchange_strong(&tracked[i], &none, arena)) {
        none = NULL;
        i++;
    }
    if (i == AC_FENCE_LINES) {
        ac_record_memory_return(ordered, sizeof *ordered);
        return NULL;
    }
    unsigned high = atomic_load(&tracked_high);
    while (high <= i && !atomic_compare_exchange_weak(&tracked_high, &high, i + 1))
        ;
    arena->ordered = ordered;
    atomic_store(&ac_streams_tracked, true);
    ac_fence_stamp(); /* submissions say so from now on */
    return ordered;
}

ac_arena_t *ac_ordered_next(unsigned *i) {
    while (*i < atomic_load(&tracked_high)) {
        ac_arena_t *arena = atomic_load(&tracked[(*i)++]);
        if (arena)
            return arena;
    }
    return NULL;
}

void ac_ordered_close(ac_arena_t *arena) {
    ac_ordered_t *ordered = arena->ordered;
    if (!ordered)
        return;
    for (unsigned i = 0; i < AC_FENCE_LINES; i++) {
        ac_arena_t *own = arena;
        atomic_compare_exchange_strong(&tracked[i], &own, NULL);
    }
    arena->ordered = NULL;
    for (unsigned slot = 0; slot < LISTS; slot++)
        for (int pool = AC_POOL_SMALL; pool < AC_POOL_KINDS; pool++)
            if (ordered->list[slot].index[pool])
                ac_record_memory_return(ordered->list[slot].index[pool], INDEX_BYTES);
    ac_record_memory_return(ordered, sizeof *ordered);
    pthread_cond_broadcast(&arena->allocator->settled); /* for ac_arena_stream_gone */
}

static void pin(ac_ordered_t *ordered, unsigned slot) {
    ordered->list[slot].pins++;
    if (!AC_FAILPOINT(stream_not_pinned))
        ordered->pinned |= (uint64_t)1 << slot;
}

static void unpin(ac_allocator_t *allocator, ac_ordered_t *ordered, unsigned slot) {
    if (--ordered->list[slot].pins)
        return;
    ordered->pinned &= ~((uint64_t)1 << slot);
    pthread_cond_broadcast(&allocator->settled);
}

bool ac_ordered_follows(const ac_arena_t *arena) {
    return arena->ordered &&
           !atomic_load_explicit(&arena->retired->unordered, memory_order_relaxed) &&
           !atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed);
}

unsigned ac_ordered_slot_for(const ac_block_t *block, ac_stream_t stream, ac_order_t **order) {
    ac_arena_t *arena = block->segment->arena;
    ac_ordered_t *ordered = ordered_of(arena);
    if (!ordered || !ac_ordered_follows(arena) || block->segment->tainted ||
        ac_slab_is_slot(block))
        return AC_ORDER_NONE;
    *order = &ordered->order;
    unsigned slot = ac_ordered_slot(ordered, stream);
    return slot != AC_ORDER_NONE && have_index(&ordered->list[slot], block->segment->pool)
               ? slot
               : AC_ORDER_NONE;
}

void ac_ordered_add(ac_block_t *block, const ac_ticket_t *ticket) {
    block->ticket = *ticket;
    bind(block->segment->arena->ordered, block);
}

/* --- serving --- */

void ac_ordered_handed_out(ac_block_t *block, unsigned mempool) {
    ac_allocator_t *allocator = block->segment->arena->allocator;
    ac_mempool_take(block, mempool);
    /* It is counted, and freed in an order that the cache knows not. */
    AC_BLOCK_SET(block, owner_arena, 0);
    allocator->counters->async_allocs++;
}

/* Cut the block after `size` bytes; what is left takes its place in the list.  Without a record
 * for it the block stays whole. */
static void cut(ac_ordered_t *ordered, ac_block_t *block, uint64_t size, uint64_t requested) {
    ac_segment_t *segment = block->segment;
    ac_allocator_t *allocator = segment->arena->allocator;
    ac_block_t *rest = NULL, *before = block->age_prev;
    if (block->size > size && block->size < allocator->settings.max_split_size)
        rest = ac_record_piece(block, size);
    list_remove(ordered, block);
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
        list_insert_after(ordered, before, rest);
    }
    ac_segment_reuse(block, requested);
    /* Work of the owner before may be older than this: no later free may take the block for one
     * that nothing was submitted to. */
    AC_BLOCK_SET(block, ticket.epoch, 0);
    ordered->handed_on = true;
}

static ac_block_t *find(const ac_ordered_t *ordered, unsigned slot, ac_order_request_t *request,
                        uint64_t until, bool exhaustive) {
    const ac_free_index_t *index = ordered->list[slot].index[request->pool];
    const ac_free_index_t *other =
        ordered->list[slot].index[request->pool == AC_POOL_SMALL ? AC_POOL_LARGE : AC_POOL_SMALL];
    request->fit.until = until;
    ac_block_t *block = index ? ac_free_index_find(index, &request->fit, exhaustive) : NULL;
    if (!block && exhaustive && other)
        block = ac_free_index_find(other, &request->fit, true);
    return block;
}

static bool serve_from(ac_arena_t *arena, unsigned slot, ac_order_request_t *request,
                       uint64_t until, bool exhaustive) {
    ac_block_t *block = find(arena->ordered, slot, request, until, exhaustive);
    if (!block)
        return false;
    cut(arena->ordered, block, request->size, request->requested);
    ac_ordered_handed_out(block, request->mempool);
    request->address = block->address;
    return true;
}

/* How often others were given something that this stream comes after without being told. */
static uint64_t others(const ac_arena_t *arena, ac_stream_t stream) {
    return atomic_load(&arena->retired->submitted[stream != AC_STREAM_LEGACY]) + 1;
}

/* Whether such work may be ordered before a free of the stream and before nothing in it. */
static bool hidden(const ac_arena_t *arena, unsigned slot) {
    const ac_order_t *order = &arena->ordered->order;
    return order->kind[slot] != AC_ORDER_INDEPENDENT &&
           order->item[slot] != others(arena, order->stream[slot]);
}

void ac_arena_submitted(ac_arena_t *arena, bool legacy) {
    atomic_fetch_add(&arena->retired->submitted[legacy], 1);
}

bool ac_ordered_serve(ac_arena_t *arena, ac_order_request_t *request, bool exhaustive) {
    if (!ac_ordered_follows(arena))
        return false;
    ac_ordered_t *ordered = arena->ordered;
    unsigned slot = ac_order_find(&ordered->order, request->stream);
    if (slot == AC_ORDER_NONE)
        return false;
    ac_device_counters_t *counters = arena->allocator->counters;
    if (!hidden(arena, slot) && serve_from(arena, slot, request, UINT64_MAX, exhaustive)) {
        counters->async_same_stream++;
        return true;
    }
    for (uint64_t left = ordered->filled & ~((uint64_t)1 << slot); left; left &= left - 1) {
        unsigned from = (unsigned)__builtin_ctzll(left);
        uint64_t reach = ac_order_reach(&ordered->order, slot, from);
        if (ordered->list[from].queue.first->ticket.place <= reach &&
            serve_from(arena, from, request, reach, exhaustive)) {
            counters->async_event_ordered++;
            return true;
        }
    }
    return false;
}

/* The smallest block for the request of all streams that this thread can name. */
static ac_block_t *choose(const ac_ordered_t *ordered, ac_order_request_t *request) {
    ac_block_t *best = NULL;
    for (uint64_t left = ordered->filled; left; left &= left - 1) {
        unsigned from = (unsigned)__builtin_ctzll(left);
        ac_stream_t stream = ordered->order.stream[from];
        if (!ordered->order.used[from] || (ac_stream_is_own(stream) && stream != request->stream))
            continue;
        ac_block_t *block = find(ordered, from, request, UINT64_MAX, true);
        if (block && (!best || block->size < best->size))
            best = block;
    }
    return best;
}

/* Whether the block that was taken is there as it was: the context may have gone meanwhile. */
static bool intact(const ac_arena_t *arena, const ac_block_t *block, uint64_t address) {
    return !arena->dead && arena->ordered && ac_page_map_get(address) == block &&
           block->state == AC_BLOCK_ALLOCATED && block->segment->arena == arena;
}

/* The block that `own` asks for, NULL: none. */
static ac_block_t *choose_for(ac_arena_t *arena, ac_order_request_t *request, bool own) {
    ac_ordered_t *ordered = arena->ordered;
    if (!own)
        return choose(ordered, request);
    unsigned slot = ac_order_find(&ordered->order, request->stream);
    return slot == AC_ORDER_NONE ? NULL : find(ordered, slot, request, UINT64_MAX, false);
}

ac_status_t ac_ordered_wait(ac_arena_t *arena, ac_order_request_t *request, bool own) {
    ac_allocator_t *allocator = arena->allocator;
    ac_ordered_t *ordered = ac_ordered_follows(arena) ? arena->ordered : NULL;
    if (ordered && ac_ordered_serve(arena, request, !own))
        return AC_OK;
    ac_block_t *block = ordered ? choose_for(arena, request, own) : NULL;
    if (!block)
        return AC_OOM;
    const ac_block_t was = *block;
    unsigned from = ac_key_slot(was.ticket.key);
    ac_stream_t stream = ordered->order.stream[from];
    ac_order_vector_t proves;
    ac_order_read(&ordered->order, from, &proves); /* before the record: all of it is covered */
    cut(ordered, block, request->size, request->requested);
    uint64_t address = block->address, seen = others(arena, stream);
    pin(ordered, from);
    ac_unlock(&allocator->lock);

    ac_status_t status = own ? arena->ops->stream_touch(arena->context, stream)
                             : arena->ops->stream_order(arena->context, stream, request->stream);

    AC_WINDOW(edge_recorded);
    ac_lock(&allocator->lock);
    if (arena->ordered)
        unpin(allocator, ordered, from);
    if (AC_FAILPOINT(edge_read_after_record))
        ac_order_read(&ordered->order, from, &proves);
    if (!intact(arena, block, address))
        return AC_FAILPOINT(served_of_dead_context) ? AC_OK : AC_FAILED;
    if (status == AC_OK) {
        if (own && was.ticket.place > ordered->order.base[from])
            ordered->order.item[from] = seen;
        unsigned to = own ? AC_ORDER_NONE : ac_ordered_slot(ordered, request->stream);
        if (to != AC_ORDER_NONE)
            ac_order_join(&ordered->order, to, &proves);
        if (own)
            allocator->counters->async_same_stream++;
        else
            allocator->counters->async_waits++;
        ac_ordered_handed_out(block, request->mempool);
        request->address = address;
    } else {
        /* As it was; a stream that has gone meanwhile took its place in the lists along. */
        ac_segment_release(block);
        block->ticket = was.ticket;
        bool known =
            was.ticket.place > ordered->order.base[from] || AC_FAILPOINT(given_to_gone_stream);
        if (known && !block->segment->tainted) {
            bind(ordered, block);
        } else {
            ac_order_exchange(&arena->timeline, &block->ticket);
            ac_retired_insert(block, NULL);
        }
    }
    return status;
}

/* --- leaving --- */

bool ac_ordered_drain(ac_arena_t *arena) {
    ac_ordered_t *ordered = arena->ordered;
    bool any = false, asked[2] = {false, false};
    uint64_t reached[2] = {0, 0};
    if (!ordered)
        return false;
    for (unsigned slot = 0; slot < LISTS; slot++) {
        ac_block_t *block;
        while ((block = ordered->list[slot].queue.first)) {
            bool all = block->ticket.all;
            bool ready = block->ticket.place <= ordered->order.complete[slot];
            if (!ready && !asked[all]) {
                reached[all] = ac_fence_reached(&arena->timeline, all);
                asked[all] = true;
            }
            if (!ready && block->ticket.epoch > reached[all])
                break;
            list_remove(ordered, block);
            ac_segment_finish(block);
            any = true;
        }
    }
    return any;
}

void ac_ordered_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest) {
    for (unsigned slot = 0; arena->ordered && slot < LISTS; slot++) {
        const list_t *list = &arena->ordered->list[slot];
        const ac_block_t *ends[] = {list->queue.first, list->queue.last};
        /* Where blocks of both kinds wait, those of one context came first: the oldest of the
         * others is in no end, and the newest stands for it. */
        for (int end = 0; end < 2; end++) {
            if (!ends[end] || ends[end]->ticket.all != all)
                continue;
            *oldest = ends[end]->ticket.epoch < *oldest ? ends[end]->ticket.epoch : *oldest;
            *newest = ends[end]->ticket.epoch > *newest ? ends[end]->ticket.epoch : *newest;
        }
    }
}

void ac_ordered_unbind(ac_segment_t *segment) {
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (block->state == AC_BLOCK_RETIRED && ac_key_is_stream(block->ticket.key))
            unbind(block, (ac_block_t *[2]){NULL, NULL});
}

/* Under the lock; the slot may be used for another stream when no call is inside any more. */
static void stream_gone(ac_ordered_t *ordered, unsigned slot) {
    ac_block_t *hint[2] = {NULL, NULL};
    while (ordered->list[slot].queue.last) /* latest first: the others come before it */
        unbind(ordered->list[slot].queue.last, hint);
    ac_order_drop(&ordered->order, slot);
}

/* Whether a call is under way with the stream's handle.  Its slot may have been given up, but
 * serves no other one before that call returned. */
static bool named(const ac_ordered_t *ordered, ac_stream_t stream) {
    for (uint64_t left = ordered->pinned; left; left &= left - 1)
        if (ordered->order.stream[__builtin_ctzll(left)] == stream)
            return true;
    return false;
}

void ac_arena_stream_gone(ac_arena_t *arena, ac_stream_t stream) {
    ac_allocator_t *allocator = arena->allocator;
    ac_lock(&allocator->lock);
    unsigned slot =
        arena->ordered ? ac_order_find(&arena->ordered->order, stream) : AC_ORDER_NONE;
    if (slot != AC_ORDER_NONE)
        stream_gone(arena->ordered, slot);
    while (arena->ordered && named(arena->ordered, stream))
        ac_wait(&allocator->settled, &allocator->lock);
    ac_unlock(&allocator->lock);
}

static void all_gone(ac_arena_t *arena) {
    for (unsigned slot = 0; arena->ordered && slot < AC_ORDER_SLOTS; slot++)
        if (arena->ordered->order.used[slot])
            stream_gone(arena->ordered, slot);
}

/* Whether what has that clock is over.  With `wait` it is waited for, unless the program holds it
 * or an earlier wait did not see it reached.  Without it a moment suffices to ask a device whose
 * events tell nothing (fence:sync), once until that is reached. */
static bool is_over(ac_arena_t *arena, uint64_t clock, bool wait) {
    enum { MOMENT_NS = 2000000 };
    ac_timeline_t *timeline = &arena->timeline;
    bool all = atomic_load(&ac_fence_shared);
    bool may = ac_fence_hopeful(timeline, all) && !ac_fence_holding(timeline, all);
    if (!wait || !may) {
        may &= ac_fence_close(timeline, all) == AC_UNSUPPORTED;
        ac_fence_poll(timeline, all);
        if (!may || ac_fence_reached(timeline, all) >= clock)
            return ac_fence_reached(timeline, all) >= clock;
    }
    uint64_t limit = wait ? AC_PATIENCE_NS : MOMENT_NS;
    if (ac_fence_wait(timeline, all, clock, limit) != AC_BUSY)
        return true;
    ac_fence_missed(timeline, clock);
    return false;
}

bool ac_arena_unordered(ac_arena_t *arena, bool wait) {
    ac_allocator_t *allocator = arena->allocator;
    if (atomic_load_explicit(&arena->retired->unordered, memory_order_acquire) == UNORDERED_DONE)
        return true;
    ac_lock(&allocator->lock);
    atomic_store(&arena->retired->unordered, UNORDERED);
    ac_ordered_t *ordered = arena->ordered;
    bool handed_on = ordered && ordered->handed_on;
    if (handed_on && !ordered->last)
        ordered->last = ac_fence_now();
    uint64_t last = handed_on ? ordered->last : 0;
    all_gone(arena);
    ac_unlock(&allocator->lock);
    if (handed_on && !is_over(arena, last, wait))
        return false;
    atomic_store(&arena->retired->unordered, UNORDERED_DONE);
    return true;
}

void ac_streams_unordered(void) {
    unsigned i = 0;
    for (ac_arena_t *arena; (arena = ac_ordered_next(&i));)
        ac_arena_unordered(arena, true);
}

void ac_streams_unseen(void) {
    ac_fence_unseen();
    ac_streams_unordered();
}

/* --- the checker --- */

uint64_t ac_ordered_check(const ac_arena_t *arena, const char **wrong) {
    const ac_ordered_t *ordered = arena->ordered;
    uint64_t blocks = 0;
    for (unsigned slot = 0; ordered && slot < LISTS; slot++) {
        const list_t *list = &ordered->list[slot];
        const ac_block_t *prev = NULL;
        const ac_block_t *block = list->queue.first;
        for (; block; prev = block, block = block->age_next) {
            blocks++;
            if (block->state != AC_BLOCK_RETIRED || block->ticket.key != ac_key_of(slot))
                *wrong = "block in a list of another stream";
            if (block->age_prev != prev || (prev && later(prev, block)) ||
                (prev && prev->ticket.epoch > block->ticket.epoch))
                *wrong = "a stream's list out of order";
            if (block->ticket.place > ordered->order.pos[slot] ||
                block->ticket.place <= ordered->order.base[slot])
                *wrong = "position of another stream";
            if (block->segment->tainted || alike(block, block->next))
                *wrong = "block that should have been joined, or taken out";
        }
        if (list->queue.last != prev)
            *wrong = "a stream's list without its end";
        if ((ordered->filled >> slot & 1) != (list->queue.first != NULL))
            *wrong = "mark of a stream's list";
    }
    if (ordered && ac_order_check(&ordered->order))
        *wrong = "order of streams";
    return blocks;
}
