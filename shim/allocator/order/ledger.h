/* The ledger: memory that was freed and is not free yet, whatever kind of memory it is.
 *
 * There is one queue for each key of tickets (ticket.h).  An entry of a queue waits at least as long
 * as the one before it, so one look at the first entry tells whether any is ready:
 *
 *   OWN, ALL   by epoch
 *   STREAM     by place
 *   CAPTURE    in the order of the frees; sessions share a queue if their numbers are equal modulo
 *              AC_LEDGER_SESSIONS
 *
 * Invariants (ac_ledger_check): every entry has a ticket of its queue's key; places (but those of
 * CAPTURE) and epochs never fall from a queue's first entry to its last; `filled` has a bit for each
 * stream with entries.
 *
 * The lock of the owner guards a ledger.  No function calls the device. */
#ifndef AC_LEDGER_H
#define AC_LEDGER_H

#include "allocator/list.h"
#include "allocator/order/fence.h"
#include "allocator/order/order.h"
#include "allocator/ticket.h"

enum { AC_LEDGER_SESSIONS = 32, AC_LEDGER_QUEUES = 2 + AC_LEDGER_SESSIONS + AC_ORDER_SLOTS };

typedef AC_QUEUE_TYPE(ac_due_t) ac_due_queue_t;
AC_QUEUE(ac_due_queue, ac_due_queue_t, ac_due_t, )

typedef struct {
    union {
        struct {
            ac_due_queue_t fence[2]; /* [1]: of all contexts */
            ac_due_queue_t capture[AC_LEDGER_SESSIONS], stream[AC_ORDER_SLOTS];
        };
        ac_due_queue_t queue[AC_LEDGER_QUEUES];
    };
    uint64_t filled; /* bit per stream */
} ac_ledger_t;

/* Returns the queue of the ticket's key. */
static inline ac_due_queue_t *ac_ledger_queue(ac_ledger_t *ledger, const ac_ticket_t *ticket) {
    if (ac_key_is_stream(ticket->key))
        return &ledger->stream[ac_key_slot(ticket->key)];
    return ticket->key == AC_KEY_CAPTURE ? &ledger->capture[ticket->place % AC_LEDGER_SESSIONS]
                                         : &ledger->fence[ticket->all];
}

static inline void ac_due_raise(ac_due_t *due, uint64_t epoch) {
    if (ac_due_epoch(due) < epoch)
        atomic_store_explicit(&due->ticket.epoch, epoch, memory_order_relaxed);
}

/* Adds `due` behind `at`, which is in the queue of its ticket and waits no longer than it; NULL: first. */
static inline void ac_ledger_put_after(ac_ledger_t *ledger, ac_due_t *at, ac_due_t *due) {
    if (ac_key_is_stream(due->ticket.key))
        ledger->filled |= ac_key_bit(due->ticket.key);
    ac_due_queue_put_after(ac_ledger_queue(ledger, &due->ticket), at, due);
}

/* Adds `due` with its ticket.  It takes on the epoch of the entry before it if its own is lower; so do
 * entries of a stream that come behind it. */
static inline void ac_ledger_add(ac_ledger_t *ledger, ac_due_t *due) {
    ac_due_t *at = ac_ledger_queue(ledger, &due->ticket)->last;
    if (ac_key_is_stream(due->ticket.key))
        while (at && at->ticket.place > due->ticket.place) /* a thread kept it for a while */
            at = at->prev;
    if (at)
        ac_due_raise(due, ac_due_epoch(at));
    ac_ledger_put_after(ledger, at, due);
    for (at = due->next; at && ac_due_epoch(at) < ac_due_epoch(due); at = at->next)
        ac_due_raise(at, ac_due_epoch(due));
}

static inline void ac_ledger_remove(ac_ledger_t *ledger, ac_due_t *due) {
    ac_due_queue_t *queue = ac_ledger_queue(ledger, &due->ticket);
    ac_due_queue_remove(queue, due);
    if (ac_key_is_stream(due->ticket.key) && !queue->first)
        ledger->filled &= ~ac_key_bit(due->ticket.key);
}

/* Puts `other`, which has the ticket of `due`, in its place. */
static inline void ac_ledger_replace(ac_ledger_t *ledger, ac_due_t *due, ac_due_t *other) {
    ac_due_queue_t *queue = ac_ledger_queue(ledger, &due->ticket);
    ac_due_queue_put_after(queue, due, other);
    ac_due_queue_remove(queue, due);
}

/* Returns true if anything waits for fences or in the order of a stream. */
static inline bool ac_ledger_waits(const ac_ledger_t *ledger) {
    return ledger->filled || ledger->fence[0].first || ledger->fence[1].first;
}

/* Calls `ready`, which removes it, for each entry that has become ready.  `timeline`: of the memory's
 * context, or NULL if all of it waits for all contexts.  `order`: of the context's streams, or NULL.
 * Returns true if there was any. */
bool ac_ledger_drain(ac_ledger_t *ledger, const ac_timeline_t *timeline, const ac_order_t *order,
                     void (*ready)(ac_due_t *due, void *arg), void *arg);

/* Sets *oldest and *newest to the epochs at the ends of what waits for its own context, or for `all`
 * contexts.  Returns false if nothing waits. */
bool ac_ledger_targets(const ac_ledger_t *ledger, bool all, uint64_t *oldest, uint64_t *newest);

/* Returns the first entry that waits for the capture session, or NULL. */
ac_due_t *ac_ledger_held(ac_ledger_t *ledger, uint64_t session);

/* Calls `visit` for each entry.  Returns NULL, or the invariant that does not hold. */
const char *ac_ledger_check(ac_ledger_t *ledger, void (*visit)(ac_due_t *due, void *arg),
                            void *arg);

#endif
