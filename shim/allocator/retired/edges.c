/* The order of streams, as far as the program's calls prove it (streams.h): a proof is read before the
 * driver's call, and used after it. */
#include "allocator/retired/ordered_int.h"
#include "allocator/retired/streams.h"
#include "failpoint.h"

/* Locks the arena's allocator; NULL: there is no order to know. */
static ac_order_t *lock_order(ac_arena_t *arena) {
    if (!arena)
        return NULL;
    ac_lock(&arena->allocator->lock);
    if (arena->ordered)
        return &arena->ordered->order;
    ac_unlock(&arena->allocator->lock);
    return NULL;
}

static void unlock(ac_arena_t *arena) {
    ac_unlock(&arena->allocator->lock);
}

void ac_edge_record_begin(ac_edge_t *edge, ac_arena_t *arena, uint64_t event,
                          ac_stream_t stream) {
    ac_order_t *order = lock_order(arena);
    edge->arena = order ? arena : NULL;
    if (!order)
        return;
    ac_order_record_begin(order, event, ac_order_find(order, stream), &edge->mark);
    unlock(arena);
}

void ac_edge_record_end(const ac_edge_t *edge, bool good) {
    ac_order_t *order = lock_order(edge->arena);
    if (!order)
        return;
    ac_order_record_end(order, &edge->mark, good);
    unlock(edge->arena);
}

static bool look(ac_edge_t *edge, ac_arena_t *arena, uint64_t event) {
    ac_order_t *order = lock_order(arena);
    if (!order)
        return false;
    if (ac_order_look(order, event, &edge->mark))
        edge->arena = arena;
    unlock(arena);
    return edge->arena;
}

void ac_edge_of_event(ac_edge_t *edge, ac_arena_t *arena, uint64_t event) {
    edge->arena = NULL;
    if (arena) {
        look(edge, arena, event);
        return;
    }
    unsigned i = 0;
    for (ac_arena_t *at; (at = ac_ordered_next(&i));)
        if (look(edge, at, event))
            return;
}

void ac_edge_of_stream(ac_edge_t *edge, ac_arena_t *arena, ac_stream_t stream) {
    ac_order_t *order = lock_order(arena);
    edge->arena = NULL;
    if (!order)
        return;
    unsigned slot = ac_order_find(order, stream);
    if (slot != AC_ORDER_NONE) {
        edge->arena = arena;
        edge->mark.event = 0;
        ac_order_read(order, slot, &edge->mark.vector);
        if (order->kind[slot] != AC_ORDER_INDEPENDENT) /* the free itself is not in the stream */
            edge->mark.vector.at[slot] = 0;
    }
    unlock(arena);
}

void ac_edge_joined(const ac_edge_t *edge, ac_stream_t stream) {
    ac_order_t *order = lock_order(edge->arena);
    if (!order)
        return;
    unsigned to = ac_order_still(order, &edge->mark) || AC_FAILPOINT(joined_without_version)
                      ? ac_ordered_slot(edge->arena, stream)
                      : AC_ORDER_NONE;
    if (to != AC_ORDER_NONE)
        ac_order_join(order, to, &edge->mark.vector);
    unlock(edge->arena);
}

void ac_edge_completed(const ac_edge_t *edge) {
    ac_order_t *order = lock_order(edge->arena);
    if (!order)
        return;
    bool event = edge->mark.event; /* if work goes unseen, the event may be recorded unseen */
    if (!event || (ac_order_still(order, &edge->mark) && !atomic_load(&ac_fence_untracked)))
        ac_order_completed(order, &edge->mark.vector);
    unlock(edge->arena);
}

void ac_event_forget(uint64_t event) {
    unsigned i = 0;
    for (ac_arena_t *arena; (arena = ac_ordered_next(&i));) {
        ac_order_t *order = lock_order(arena);
        if (!order)
            continue;
        ac_order_forget(order, event);
        unlock(arena);
    }
}

bool ac_event_distrust(uint64_t event) {
    bool fresh = ac_order_distrust(event);
    ac_event_forget(event);
    return fresh;
}

bool ac_event_trust(uint64_t event) {
    return ac_order_trust(event);
}

bool ac_arena_stream_asked(ac_arena_t *arena, ac_stream_t stream) {
    ac_lock(&arena->allocator->lock);
    unsigned slot =
        arena->ordered ? ac_order_find(&arena->ordered->order, stream) : AC_ORDER_NONE;
    bool asked = slot == AC_ORDER_NONE || arena->ordered->order.kind[slot] != AC_ORDER_UNKNOWN;
    ac_unlock(&arena->allocator->lock);
    return asked;
}

void ac_arena_stream_is(ac_arena_t *arena, ac_stream_t stream, bool independent) {
    ac_lock(&arena->allocator->lock);
    unsigned slot =
        arena->ordered ? ac_order_find(&arena->ordered->order, stream) : AC_ORDER_NONE;
    if (slot != AC_ORDER_NONE)
        arena->ordered->order.kind[slot] =
            independent ? AC_ORDER_INDEPENDENT : AC_ORDER_DEPENDENT;
    ac_unlock(&arena->allocator->lock);
}
