/* Tickets: made and compared (retire.h). */
#include "allocator/order/retire.h"

#include "allocator/order/capture.h"
#include "failpoint.h"

static void set(ac_ticket_t *ticket, unsigned key, uint64_t epoch, bool all) {
    atomic_store_explicit(&ticket->epoch, epoch, memory_order_relaxed);
    ticket->key = (uint8_t)key;
    ticket->all = all;
    ticket->ordered = false;
}

static uint64_t epoch_of(const ac_ticket_t *ticket) {
    return atomic_load_explicit(&ticket->epoch, memory_order_relaxed);
}

static bool is_captured(const ac_timeline_t *timeline, uint64_t handout, ac_ticket_t *ticket) {
    uint64_t session = ac_order_captured(timeline, handout);
    if (session && ticket) {
        set(ticket, AC_KEY_CAPTURE, 0, false);
        ticket->place = session;
    }
    return session;
}

static ac_free_t wait_for_fence(ac_timeline_t *timeline, ac_ticket_t *ticket) {
    bool all;
    uint64_t target = ac_fence_target(timeline, &all);
    set(ticket, all ? AC_KEY_ALL : AC_KEY_OWN, target, all);
    return AC_FREE_WAITS;
}

static bool is_reached(const ac_timeline_t *timeline, const ac_ticket_t *ticket) {
    return epoch_of(ticket) <= ac_fence_reached(timeline, ticket->all);
}

static bool relies(ac_timeline_t *timeline, uint64_t bytes) {
    return ac_sole_mode(atomic_load(&timeline->single.word)) == AC_SOLE_ONE &&
           !ac_sole_waits(timeline, bytes) && ac_sole_protects(timeline);
}

/* Checks whether the memory is ready before the free relies on order, which costs a join event. */
__attribute__((noinline)) static ac_free_t retire_idle(ac_timeline_t *timeline, uint64_t bytes,
                                                       ac_ticket_t *ticket) {
    wait_for_fence(timeline, ticket);
    if (is_reached(timeline, ticket))
        return AC_FREE_READY;
    return !ticket->all && relies(timeline, bytes) ? AC_FREE_BY_ORDER : AC_FREE_WAITS;
}

__attribute__((noinline)) static ac_free_t retire_rarely(ac_timeline_t *timeline,
                                                         uint64_t handout, uint64_t bytes,
                                                         ac_ticket_t *ticket) {
    if (is_captured(timeline, handout, ticket) || !ticket)
        return AC_FREE_WAITS;
    return retire_idle(timeline, bytes, ticket);
}

ac_free_t ac_order_retire_touched(ac_timeline_t *timeline, uint64_t handout, uint64_t bytes,
                                  ac_ticket_t *ticket) {
    if (__builtin_expect(ac_order_capturing() || ac_fence_spans(), 0))
        return retire_rarely(timeline, handout, bytes, ticket);
    /* While work is known to be pending, a fence of this moment is not reached. */
    bool pending = atomic_load_explicit(&timeline->last_submit, memory_order_relaxed) >
                   atomic_load_explicit(&timeline->done, memory_order_relaxed);
    if (ticket && !pending)
        return retire_idle(timeline, bytes, ticket);
    if (relies(timeline, bytes))
        return AC_FREE_BY_ORDER;
    return ticket ? wait_for_fence(timeline, ticket) : AC_FREE_WAITS;
}

void ac_order_retire_on(ac_timeline_t *timeline, ac_timeline_t *from, ac_order_t *order,
                        unsigned slot, const ac_ticket_t *used, ac_ticket_t *ticket) {
    if (is_captured(timeline, epoch_of(used), ticket)) {
        ticket->ordered = true;
        return;
    }
    ac_fence_submitted(timeline);
    if (from != timeline)
        ac_fence_submitted(from);
    wait_for_fence(timeline, ticket);
    ticket->ordered = true;
    /* The former owner's stream may still use the memory, unless this stream comes after it. */
    bool handed_on = ac_key_is_stream(used->key) && !AC_FAILPOINT(former_owner_forgotten);
    if (slot == AC_ORDER_NONE ||
        (handed_on && !ac_order_proven(order, slot, ac_key_slot(used->key), used->place)))
        return;
    ticket->key = (uint8_t)ac_key_of(slot);
    ticket->place = ac_order_advance(order, slot);
}

void ac_order_retire_late(ac_timeline_t *timeline, ac_order_t *order, unsigned slot,
                          uint64_t place, ac_ticket_t *ticket) {
    ac_fence_submitted(timeline);
    wait_for_fence(timeline, ticket);
    ticket->ordered = true;
    if (slot == AC_ORDER_NONE)
        return;
    ticket->key = (uint8_t)ac_key_of(slot);
    ticket->place = place;
    if (place > order->pos[slot])
        ac_order_advance(order, slot);
}

ac_free_t ac_order_exchange(ac_timeline_t *timeline, ac_ticket_t *ticket) {
    if (AC_FAILPOINT(stream_gone_with_tickets) && ticket->key != AC_KEY_CAPTURE)
        atomic_store(&ticket->epoch, 0);
    if (ticket->key == AC_KEY_CAPTURE) {
        bool ordered = ticket->ordered;
        wait_for_fence(timeline, ticket);
        ticket->ordered = ordered;
        return is_reached(timeline, ticket) || AC_FAILPOINT(graph_gone_with_launches)
                   ? AC_FREE_READY
                   : AC_FREE_WAITS;
    }
    ticket->key = ticket->all ? AC_KEY_ALL : AC_KEY_OWN;
    return AC_FREE_WAITS;
}

bool ac_order_ready(const ac_timeline_t *timeline, const ac_order_t *order, unsigned slot,
                    const ac_ticket_t *ticket) {
    if (ticket->key == AC_KEY_NONE)
        return true;
    if (ticket->key == AC_KEY_CAPTURE)
        return false;
    if (is_reached(timeline, ticket))
        return true;
    if (!order || !ac_key_is_stream(ticket->key))
        return false;
    unsigned from = ac_key_slot(ticket->key);
    return ticket->place > order->base[from] &&
           (ticket->place <= order->complete[from] ||
            (slot != AC_ORDER_NONE && ac_order_proven(order, slot, from, ticket->place)));
}

uint64_t ac_order_reach_of(const ac_timeline_t *timeline, const ac_order_t *order, unsigned slot,
                           unsigned key) {
    if (key == AC_KEY_OWN || key == AC_KEY_ALL)
        return ac_fence_reached(timeline, key == AC_KEY_ALL);
    if (!order || !ac_key_is_stream(key))
        return 0;
    unsigned from = ac_key_slot(key);
    return slot == AC_ORDER_NONE ? order->complete[from] : ac_order_reach(order, slot, from);
}
