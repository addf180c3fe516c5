/* Entries that became ready, and what the others wait for (ledger.h). */
#include "allocator/order/ledger.h"

#include "allocator/order/retire.h"

/* `reached`: by `all`; 0: not asked yet. */
static bool is_reached(const ac_timeline_t *timeline, const ac_due_t *due, uint64_t reached[2]) {
    bool all = due->ticket.all;
    if (!reached[all])
        reached[all] = ac_fence_reached(timeline, all);
    return ac_due_epoch(due) <= reached[all];
}

bool ac_ledger_drain(ac_ledger_t *ledger, const ac_timeline_t *timeline, const ac_order_t *order,
                     void (*ready)(ac_due_t *due, void *arg), void *arg) {
    uint64_t reached[2] = {0, 0};
    bool any = false;
    for (uint64_t left = ledger->filled; left; left &= left - 1) {
        unsigned slot = (unsigned)__builtin_ctzll(left);
        uint64_t reach = ac_order_reach_of(timeline, order, AC_ORDER_NONE, ac_key_of(slot));
        for (ac_due_t *due; (due = ledger->stream[slot].first) &&
                            (due->ticket.place <= reach || is_reached(timeline, due, reached));
             any = true)
            ready(due, arg);
    }
    for (int all = 0; all < 2; all++)
        for (ac_due_t *due;
             (due = ledger->fence[all].first) && is_reached(timeline, due, reached); any = true)
            ready(due, arg);
    return any;
}

/* Widens the range from *oldest to *newest by what the ends of a queue wait for. */
static void widen(const ac_due_queue_t *queue, bool all, uint64_t *oldest, uint64_t *newest) {
    const ac_due_t *const end[] = {queue->first, queue->last};
    for (int i = 0; i < 2; i++)
        if (end[i] && end[i]->ticket.all == all) {
            uint64_t epoch = ac_due_epoch(end[i]);
            *oldest = epoch < *oldest ? epoch : *oldest;
            *newest = epoch > *newest ? epoch : *newest;
        }
}

bool ac_ledger_targets(const ac_ledger_t *ledger, bool all, uint64_t *oldest, uint64_t *newest) {
    *oldest = UINT64_MAX;
    *newest = 0;
    widen(&ledger->fence[all], all, oldest, newest);
    /* If a stream's queue has entries for one context and for all, those for one context came first.  The
     * oldest of the others is at no end of the queue; the newest stands for it. */
    for (uint64_t left = ledger->filled; left; left &= left - 1)
        widen(&ledger->stream[__builtin_ctzll(left)], all, oldest, newest);
    return *oldest != UINT64_MAX;
}

ac_due_t *ac_ledger_held(ac_ledger_t *ledger, uint64_t session) {
    ac_due_t *due = ledger->capture[session % AC_LEDGER_SESSIONS].first;
    while (due && due->ticket.place != session)
        due = due->next;
    return due;
}

/* --- the checker --- */

static bool is_sorted(const ac_due_t *prev, const ac_due_t *due) {
    return ac_due_epoch(prev) <= ac_due_epoch(due) &&
           (!ac_key_is_stream(due->ticket.key) || prev->ticket.place <= due->ticket.place);
}

static const char *check_queue(ac_ledger_t *ledger, const ac_due_queue_t *queue,
                               void (*visit)(ac_due_t *due, void *arg), void *arg) {
    const ac_due_t *prev = NULL;
    for (ac_due_t *due = queue->first; due; prev = due, due = due->next) {
        if (due->ticket.key == AC_KEY_NONE || ac_ledger_queue(ledger, &due->ticket) != queue)
            return "ticket of another queue";
        if (due->prev != prev)
            return "queue of what waits";
        if (prev && !is_sorted(prev, due))
            return "queue out of order";
        visit(due, arg);
    }
    return queue->last == prev ? NULL : "end of a queue";
}

const char *ac_ledger_check(ac_ledger_t *ledger, void (*visit)(ac_due_t *due, void *arg),
                            void *arg) {
    const char *wrong = NULL;
    uint64_t filled = 0;
    for (unsigned i = 0; i < AC_LEDGER_QUEUES && !wrong; i++)
        wrong = check_queue(ledger, &ledger->queue[i], visit, arg);
    for (unsigned slot = 0; slot < AC_ORDER_SLOTS; slot++)
        filled |= (uint64_t)(ledger->stream[slot].first != NULL) << slot;
    return wrong || filled == ledger->filled ? wrong : "filled";
}
