/* Blocks that were freed in the order of a stream (streams.h): which of them a request gets, and
 * when that order ends.  Their lists are in retired.h. */
#include "allocator/retired/ordered.h"

#include "allocator/policy.h"
#include "allocator/order/generation.h"
#include "allocator/order/retire.h"
#include "allocator/retired/ordered_int.h"
#include "allocator/retired/streams.h"
#include "allocator/space/mempool.h"
#include "allocator/space/records.h"
#include "allocator/space/segment.h"
#include "allocator/space/slab.h"
#include "device/wait.h"
#include "failpoint.h"

enum { UNORDERED = 1, UNORDERED_DONE };

_Atomic bool ac_streams_tracked;

/* Arenas with an order, for events that name no arena. */
static _Atomic(ac_arena_t *) tracked[AC_FENCE_LINES];
static _Atomic unsigned tracked_high;

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
    arena->retired->order = &ordered->order;
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
    arena->retired->order = NULL;
    ac_retired_close(arena);
    ac_record_memory_return(ordered, sizeof *ordered);
    ac_cond_broadcast(&arena->allocator->settled); /* for ac_arena_stream_gone */
}

static void pin(ac_ordered_t *ordered, unsigned slot) {
    ordered->pins[slot]++;
    if (!AC_FAILPOINT(stream_not_pinned))
        ordered->pinned |= (uint64_t)1 << slot;
}

static void unpin(ac_allocator_t *allocator, ac_ordered_t *ordered, unsigned slot) {
    if (--ordered->pins[slot])
        return;
    ordered->pinned &= ~((uint64_t)1 << slot);
    ac_cond_broadcast(&allocator->settled);
}

static bool protects(const ac_arena_t *arena) {
    return !atomic_load_explicit(&arena->retired->unordered, memory_order_relaxed) &&
           !atomic_load_explicit(&ac_fence_untracked, memory_order_relaxed);
}

bool ac_ordered_follows(const ac_arena_t *arena) {
    return arena->ordered && protects(arena);
}

unsigned ac_ordered_slot_for(const ac_block_t *block, ac_stream_t stream) {
    ac_arena_t *arena = block->segment->arena;
    if ((!arena->ordered && !ordered_of(arena)) || !protects(arena) || block->segment->tainted ||
        ac_slab_is_slot(block))
        return AC_ORDER_NONE;
    unsigned slot = ac_ordered_slot(arena, stream);
    return slot != AC_ORDER_NONE && ac_retired_has_index(arena, slot) ? slot : AC_ORDER_NONE;
}

/* --- serving --- */

void ac_ordered_handed_out(ac_block_t *block, unsigned mempool) {
    ac_allocator_t *allocator = block->segment->arena->allocator;
    ac_mempool_take(block, mempool);
    /* It is counted, and freed in an order: a cache that knows the stream may take it. */
    bool may = mempool == block->segment->arena->retired->mempool && ac_block_is_plain(block) &&
               !(block->segment->space->number & AC_OWNER_STREAM);
    AC_BLOCK_SET(block, owner_arena, may ? block->segment->space->number | AC_OWNER_STREAM : 0);
    allocator->counters->async_allocs++;
}

/* The request's block, of which work may be under way. */
static void take(ac_arena_t *arena, ac_block_t *block, const ac_order_request_t *request) {
    ac_retired_take(block, request->size, request->module, request->requested);
    arena->ordered->handed_on = true;
}

/* Looks among blocks with a place of at most `until`. */
static ac_block_t *find(const ac_arena_t *arena, unsigned slot, ac_order_request_t *request,
                        uint64_t until) {
    const ac_free_index_t *index = arena->retired->index[slot];
    request->fit.until = until;
    return index ? request->find(request->arg, index, &request->fit) : NULL;
}

static bool serve_from(ac_arena_t *arena, unsigned slot, ac_order_request_t *request,
                       uint64_t until) {
    ac_block_t *block = find(arena, slot, request, until);
    if (!block)
        return false;
    take(arena, block, request);
    ac_ordered_handed_out(block, request->mempool);
    request->address = block->address;
    return true;
}

/* How often others were given something that this stream comes after without being told. */
static uint64_t others(const ac_arena_t *arena, ac_stream_t stream) {
    return atomic_load(&arena->retired->submitted[stream != AC_STREAM_LEGACY]) + 1;
}

/* Returns true if work may come before a free of the stream without being before anything in the stream
 * (streams.h). */
static bool hidden(const ac_arena_t *arena, unsigned slot) {
    const ac_order_t *order = &arena->ordered->order;
    return order->kind[slot] != AC_ORDER_INDEPENDENT &&
           order->item[slot] != others(arena, order->stream[slot]);
}

void ac_arena_submitted(ac_arena_t *arena, bool legacy) {
    atomic_fetch_add(&arena->retired->submitted[legacy], 1);
}

bool ac_ordered_serve(ac_arena_t *arena, ac_order_request_t *request) {
    if (!ac_ordered_follows(arena))
        return false;
    ac_ordered_t *ordered = arena->ordered;
    unsigned slot = ac_order_find(&ordered->order, request->stream);
    if (slot == AC_ORDER_NONE)
        return false;
    ac_device_counters_t *counters = arena->allocator->counters;
    if (!hidden(arena, slot) && serve_from(arena, slot, request, 0)) {
        counters->async_same_stream++;
        return true;
    }
    const ac_retired_t *retired = arena->retired;
    for (uint64_t left = retired->ledger.filled & ~((uint64_t)1 << slot); left; left &= left - 1) {
        unsigned from = (unsigned)__builtin_ctzll(left);
        uint64_t reach =
            ac_order_reach_of(&arena->timeline, &ordered->order, slot, ac_key_of(from));
        if (retired->ledger.stream[from].first->ticket.place <= reach &&
            serve_from(arena, from, request, reach)) {
            counters->async_event_ordered++;
            return true;
        }
    }
    return false;
}

/* --- lanes of threads --- */

/* Half of the slots stay for streams without kept blocks. */
enum { LANED_SLOTS = AC_ORDER_SLOTS / 2 };

bool ac_ordered_lane_holds(const ac_arena_t *arena, const ac_ordered_lane_t *lane) {
    return ac_ordered_follows(arena) && arena->ordered->order.base[lane->slot] == lane->base;
}

bool ac_ordered_lane(ac_arena_t *arena, ac_stream_t stream, ac_ordered_lane_t *lane) {
    static const _Atomic uint64_t nothing;
    ac_ordered_t *ordered = ac_ordered_follows(arena) ? arena->ordered : NULL;
    unsigned slot = ordered ? ac_order_find(&ordered->order, stream) : AC_ORDER_NONE;
    if (slot == AC_ORDER_NONE || ordered->order.kind[slot] == AC_ORDER_UNKNOWN)
        return false;
    uint64_t bit = (uint64_t)1 << slot;
    if (!(ordered->laned & bit) && __builtin_popcountll(ordered->laned) >= LANED_SLOTS)
        return false;
    bool independent = ordered->order.kind[slot] == AC_ORDER_INDEPENDENT;
    *lane = (ac_ordered_lane_t){
        .slot = slot,
        .base = ordered->order.base[slot],
        .position = &ordered->order.pos[slot],
        .others = independent ? &nothing : &arena->retired->submitted[stream != AC_STREAM_LEGACY],
        .item = independent ? 0 : ordered->order.item[slot] - 1};
    ordered->lanes[slot]++;
    ordered->laned |= bit;
    ordered->handed_on = true; /* as it will be, without the lock */
    return true;
}

void ac_ordered_lane_end(ac_arena_t *arena, unsigned slot) {
    ac_ordered_t *ordered = arena->ordered;
    if (ordered && !--ordered->lanes[slot])
        ordered->laned &= ~((uint64_t)1 << slot);
}

unsigned ac_ordered_lanes(const ac_arena_t *arena, unsigned slot) {
    return arena->ordered ? arena->ordered->lanes[slot] : 0;
}

/* The smallest block for the request of all streams that this thread can name. */
static ac_block_t *choose(const ac_arena_t *arena, ac_order_request_t *request) {
    const ac_ordered_t *ordered = arena->ordered;
    ac_block_t *best = NULL;
    for (uint64_t left = arena->retired->ledger.filled; left; left &= left - 1) {
        unsigned from = (unsigned)__builtin_ctzll(left);
        ac_stream_t stream = ordered->order.stream[from];
        if (!ordered->order.used[from] || (ac_stream_is_own(stream) && stream != request->stream))
            continue;
        ac_block_t *block = find(arena, from, request, 0);
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
    if (!own)
        return choose(arena, request);
    unsigned slot = ac_order_find(&arena->ordered->order, request->stream);
    return slot == AC_ORDER_NONE ? NULL : find(arena, slot, request, 0);
}

/* The block that was taken waits as before; `known`: its stream has not gone. */
static void wait_again(ac_block_t *block, const ac_ticket_t *was, bool known) {
    ac_segment_release(block);
    block->ticket = *was;
    if (known && !block->segment->tainted) {
        ac_retired_join(block);
        return;
    }
    ac_order_exchange(&block->segment->arena->timeline, &block->ticket);
    ac_retired_put(block);
}

ac_status_t ac_ordered_wait(ac_arena_t *arena, ac_order_request_t *request, bool own) {
    ac_allocator_t *allocator = arena->allocator;
    ac_ordered_t *ordered = ac_ordered_follows(arena) ? arena->ordered : NULL;
    if (ordered && ac_ordered_serve(arena, request))
        return AC_OK;
    ac_block_t *block = ordered ? choose_for(arena, request, own) : NULL;
    if (!block)
        return AC_OOM;
    const ac_ticket_t was = block->ticket;
    unsigned from = ac_key_slot(was.key);
    ac_stream_t stream = ordered->order.stream[from];
    ac_order_vector_t proves;
    ac_order_read(&ordered->order, from, &proves); /* before the record: all of it is covered */
    take(arena, block, request);
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
    bool known = was.place > ordered->order.base[from]; /* the stream has not gone meanwhile */
    if (status != AC_OK) {
        wait_again(block, &was, known || AC_FAILPOINT(given_to_gone_stream));
        return status;
    }
    if (own) {
        if (known)
            ordered->order.item[from] = seen;
        allocator->counters->async_same_stream++;
    } else {
        unsigned to = ac_ordered_slot(arena, request->stream);
        if (to != AC_ORDER_NONE)
            ac_order_join(&ordered->order, to, &proves);
        allocator->counters->async_waits++;
    }
    ac_ordered_handed_out(block, request->mempool);
    request->address = address;
    return AC_OK;
}

/* --- leaving --- */

/* The slot may serve another stream once no call is inside any more.  The caller holds the lock. */
static void stream_gone(ac_arena_t *arena, unsigned slot) {
    const ac_due_queue_t *queue = &arena->retired->ledger.stream[slot];
    while (queue->first)
        ac_retired_exchange(ac_block_of(queue->first));
    ac_order_drop(&arena->ordered->order, slot);
    ac_generation_grow(); /* last: threads look at their lanes again, and find that the stream has gone */
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
        stream_gone(arena, slot);
    while (arena->ordered && named(arena->ordered, stream))
        ac_wait(&allocator->settled, &allocator->lock);
    ac_unlock(&allocator->lock);
}

static void all_gone(ac_arena_t *arena) {
    for (unsigned slot = 0; arena->ordered && slot < AC_ORDER_SLOTS; slot++)
        if (arena->ordered->order.used[slot])
            stream_gone(arena, slot);
}

/* Returns true if work up to `clock` is over.  With `wait` it waits, unless the program may hold that
 * work or an earlier wait did not see it reached.  Without it, it waits two milliseconds if events of the
 * device tell nothing (fence:sync), once until that is reached. */
static bool is_over(ac_arena_t *arena, uint64_t clock, bool wait) {
    ac_timeline_t *timeline = &arena->timeline;
    bool all = atomic_load(&ac_fence_shared);
    bool may = ac_fence_hopeful(timeline, all) && !ac_fence_holding(timeline, all);
    if (!wait || !may) {
        may &= ac_fence_close(timeline, all) == AC_UNSUPPORTED;
        ac_fence_poll(timeline, all);
        if (!may || ac_fence_is_over(timeline, (ac_moment_t){clock, all}))
            return ac_fence_is_over(timeline, (ac_moment_t){clock, all});
    }
    uint64_t limit = wait ? AC_PATIENCE_NS : AC_MOMENT_NS;
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
    ac_generation_grow(); /* before `last`: what lanes of threads hand out until then is older */
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
