/* Tickets: made and compared (retire.h). */
#include "allocator/order/retire.h"

#include "allocator/order/capture.h"
#include "plant.h"

static void set(ac_ticket_t *ticket, unsigned key, uint64_t epoch, bool all) {
    atomic_store_explicit(&ticket->epoch, epoch, memory_order_relaxed);
    ticket->key = (uint8_t)key;
    ticket->all = all;
}

static uint64_t epoch_of(const ac_ticket_t *ticket) {
    return atomic_load_explicit(&ticket->epoch, memory_order_relaxed);
}

static bool is_captured(const ac_fence_line_t *line, uint64_t handout, ac_ticket_t *ticket) {
    uint64_t episode = ac_order_captured(line, handout);
    if (episode && ticket) {
        set(ticket, AC_KEY_CAPTURE, 0, false);
        ticket->place = episode;
    }
    return episode;
}

static ac_free_t wait_for_fence(ac_fence_line_t *line, ac_ticket_t *ticket) {
    bool all;
    uint64_t target = ac_fence_target(line, &all);
    set(ticket, all ? AC_KEY_ALL : AC_KEY_OWN, target, all);
    return AC_FREE_WAITS;
}

static bool is_reached(const ac_fence_line_t *line, const ac_ticket_t *ticket) {
    return epoch_of(ticket) <= ac_fence_reached(line, ticket->all);
}

static bool leans(ac_fence_line_t *line) {
    return ac_single_mode(atomic_load(&line->single.word)) == AC_SINGLE_ONE &&
           ac_single_protects(line);
}

/* Maybe ready: that is looked at before the free leans, which costs a turn. */
__attribute__((noinline)) static ac_free_t retire_idle(ac_fence_line_t *line,
                                                       ac_ticket_t *ticket) {
    wait_for_fence(line, ticket);
    if (is_reached(line, ticket))
        return AC_FREE_READY;
    return !ticket->all && leans(line) ? AC_FREE_LEANS : AC_FREE_WAITS;
}

__attribute__((noinline)) static ac_free_t retire_rarely(ac_fence_line_t *line, uint64_t handout,
                                                         ac_ticket_t *ticket) {
    if (is_captured(line, handout, ticket) || !ticket)
        return AC_FREE_WAITS;
    return retire_idle(line, ticket);
}

ac_free_t ac_order_retire_touched(ac_fence_line_t *line, uint64_t handout, ac_ticket_t *ticket) {
    if (__builtin_expect(ac_order_capturing() || ac_fence_spans(), 0))
        return retire_rarely(line, handout, ticket);
    /* Where work is known to be pending a fence of now is not reached. */
    bool pending = atomic_load_explicit(&line->last_submit, memory_order_relaxed) >
                   atomic_load_explicit(&line->done, memory_order_relaxed);
    if (ticket && !pending)
        return retire_idle(line, ticket);
    if (leans(line))
        return AC_FREE_LEANS;
    return ticket ? wait_for_fence(line, ticket) : AC_FREE_WAITS;
}

void ac_order_retire_on(ac_fence_line_t *line, ac_fence_line_t *from, ac_order_t *order,
                        unsigned slot, const ac_ticket_t *used, ac_ticket_t *ticket) {
    if (is_captured(line, epoch_of(used), ticket))
        return;
    ac_fence_submitted(line);
    if (from != line)
        ac_fence_submitted(from);
    wait_for_fence(line, ticket);
    /* The owner before may still be at work where this stream does not come after it. */
    bool handed_on = ac_key_is_stream(used->key) && !AC_PLANTED(former_owner_forgotten);
    if (slot == AC_ORDER_NONE ||
        (handed_on && !ac_order_proven(order, slot, ac_key_slot(used->key), used->place)))
        return;
    ticket->key = (uint8_t)ac_key_of(slot);
    ticket->place = ac_order_advance(order, slot);
}

ac_free_t ac_order_exchange(ac_fence_line_t *line, ac_ticket_t *ticket) {
    if (ticket->key == AC_KEY_CAPTURE) {
        wait_for_fence(line, ticket);
        return is_reached(line, ticket) ? AC_FREE_READY : AC_FREE_WAITS;
    }
    ticket->key = ticket->all ? AC_KEY_ALL : AC_KEY_OWN;
    return AC_FREE_WAITS;
}

bool ac_order_ready(const ac_fence_line_t *line, const ac_order_t *order, unsigned slot,
                    const ac_ticket_t *ticket) {
    if (ticket->key == AC_KEY_NONE)
        return true;
    if (ticket->key == AC_KEY_CAPTURE)
        return false;
    if (is_reached(line, ticket))
        return true;
    if (!order || !ac_key_is_stream(ticket->key))
        return false;
    unsigned from = ac_key_slot(ticket->key);
    return ticket->place > order->base[from] &&
           (ticket->place <= order->complete[from] ||
            (slot != AC_ORDER_NONE && ac_order_proven(order, slot, from, ticket->place)));
}

uint64_t ac_order_reach_of(const ac_fence_line_t *line, const ac_order_t *order, unsigned slot,
                           unsigned key) {
    if (key == AC_KEY_OWN || key == AC_KEY_ALL)
        return ac_fence_reached(line, key == AC_KEY_ALL);
    if (!order || !ac_key_is_stream(key))
        return 0;
    unsigned from = ac_key_slot(key);
    return slot == AC_ORDER_NONE ? order->complete[from] : ac_order_reach(order, slot, from);
}
