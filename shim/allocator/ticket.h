/* Tickets: the work that freed memory waits for.
 *
 * A ticket is a *key* and a *place*.  A key is one line of events that come one after the other:
 *   OWN       fences of the memory's own context           place: its epoch (order/fence.h)
 *   ALL       fences of all contexts                       place: its epoch
 *   CAPTURE   the captures of a session (order/capture.h)  place: the session's number
 *   STREAM+s  frees in the order of one stream             place: the free's position (order/order.h)
 * One number tells how far a key is ready for an asker, its *reach*: a ticket is ready if its place is
 * not above the reach.  So waiting memory lies in one queue for each key (order/ledger.h).  A stream's
 * ticket is also ready, for every asker, once fences reach its `epoch`.
 *
 * The law (tests/unit/check_ticket.c): memory with a ticket is ready for an asker exactly when it is not
 * one of a capture, and its place <= the reach of its key, or its epoch <= the reach of OWN (of ALL if
 * `all` is set).  A capture's ticket is never reached: when the last graph of its session has gone, it is
 * exchanged for a ticket of that moment.
 *
 * Ready memory stays ready for work that is submitted later, so an answer may be used late.  The
 * exceptions: a stream is destroyed, stream order is switched off, contexts come to reach each other,
 * work goes unseen, or a capture begins.  The code of these events keeps earlier promises and changes the
 * tickets.
 *
 * A block that the program holds has a ticket as well.  It tells which work may be under way on the
 * block.  Without a key: no work older than its `epoch`, the clock at its handout.  With the key of a
 * stream: it was handed on in the order of streams before that place was reached, and `epoch` is 0.
 *
 * Tickets are made and compared in order/retire.h. */
#ifndef AC_TICKET_H
#define AC_TICKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AC_KEY_NONE, /* no ticket */
    AC_KEY_OWN,
    AC_KEY_ALL,
    AC_KEY_CAPTURE,
    AC_KEY_STREAM /* + slot */
};

typedef struct {
    _Atomic uint64_t epoch; /* read without a lock in blocks that the program holds */
    uint64_t place;         /* CAPTURE and STREAM; of the others `epoch` is the place */
    uint8_t key;
    bool all; /* `epoch` counts in all contexts, not only in the memory's own */
    bool ordered; /* RETIRED: it was freed in the order of a stream */
} ac_ticket_t;

/* A piece of freed memory that waits, embedded in its record: an entry of a ledger (order/ledger.h). */
typedef struct ac_due ac_due_t;
struct ac_due {
    ac_ticket_t ticket;
    ac_due_t *prev, *next;
};

static inline uint64_t ac_due_epoch(const ac_due_t *due) {
    return atomic_load_explicit(&due->ticket.epoch, memory_order_relaxed);
}

static inline unsigned ac_key_of(unsigned slot) {
    return AC_KEY_STREAM + slot;
}

static inline bool ac_key_is_stream(unsigned key) {
    return key >= AC_KEY_STREAM;
}

static inline unsigned ac_key_slot(unsigned key) {
    return key - AC_KEY_STREAM;
}

static inline uint64_t ac_key_bit(unsigned key) {
    return (uint64_t)1 << ac_key_slot(key);
}

/* Returns the ticket's place on the line of its key. */
static inline uint64_t ac_ticket_place(const ac_ticket_t *ticket) {
    return ticket->key == AC_KEY_OWN || ticket->key == AC_KEY_ALL
               ? atomic_load_explicit(&ticket->epoch, memory_order_relaxed)
               : ticket->place;
}

#endif
