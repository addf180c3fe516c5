/* The order between streams, as far as it is known, as sequence numbers.
 *
 * Each stream that freed memory in its order has a *slot* and a position that grows by one with every
 * such free. "Position p of slot s" stands for all that was submitted to that stream before the free of
 * that number.  The program's own calls prove
 *   seen[t][s]    the newest position of s that comes before all that goes to t from now on,
 *   complete[s]   the newest position of s that the host knows to be complete,
 *   a vector per event: the newest positions that come before the event's newest record.
 * A record takes the vector of a stream (its own position and what it has seen), a wait joins it into
 * another stream: so the order is transitive by itself.
 *
 * An edge that is missing costs reuse; a wrong one costs the user's data.  Hence:
 *   - a call's proof is read before the driver's call and used after it, and only if nothing
 *     happened to the event in between (`version`);
 *   - two records of one event at the same time leave it unknown;
 *   - an event that others may record without our seeing it is *distrusted* while it lives;
 *   - positions are never used twice: after a slot changed hands, a proof about its former stream
 *     says nothing about the new one, and nothing is proved about the former one any more.
 *
 * Invariants (ac_order_check): no two slots in use have the same stream; seen[t][s], complete[s], base[s]
 * and every vector stay at or below pos[s].
 *
 * An order belongs to an arena, and the allocator's lock guards it.  Functions take no lock, except for
 * the distrusted events, which belong to the process. */
#ifndef AC_ORDER_H
#define AC_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AC_ORDER_SLOTS = 64,
    AC_ORDER_NONE = AC_ORDER_SLOTS, /* no slot */
    AC_ORDER_SETS = 128,
    AC_ORDER_WAYS = 8
};

/* A stream, by its key (device.h); 0: none. */
typedef uint64_t ac_stream_t;

/* Tells whether a stream comes after other work than it was told to wait for. */
typedef enum { AC_ORDER_UNKNOWN, AC_ORDER_DEPENDENT, AC_ORDER_INDEPENDENT } ac_order_kind_t;

typedef struct {
    uint64_t at[AC_ORDER_SLOTS];
} ac_order_vector_t;

typedef struct {
    uint64_t event;   /* 0: unused */
    uint64_t version; /* changes whenever the event may have */
    unsigned inside;  /* records that have not returned */
    bool overlapped;  /* there were two at a time */
    bool known;       /* `vector` is that of its newest record */
    ac_order_vector_t vector;
} ac_order_event_t;

typedef struct {
    ac_stream_t stream[AC_ORDER_SLOTS];
    bool used[AC_ORDER_SLOTS];
    uint64_t touched[AC_ORDER_SLOTS];     /* when last asked for */
    _Atomic uint64_t pos[AC_ORDER_SLOTS]; /* threads read it without the lock (cache/lane.h) */
    uint64_t base[AC_ORDER_SLOTS];        /* positions of the present stream lie above */
    uint64_t complete[AC_ORDER_SLOTS];
    ac_order_vector_t seen[AC_ORDER_SLOTS];
    ac_order_kind_t kind[AC_ORDER_SLOTS];
    uint64_t item[AC_ORDER_SLOTS]; /* else: see ac_arena_submitted (streams.h) */
    unsigned high;                 /* slots ever used */
    uint64_t ticks, versions;
    unsigned strays;    /* number of records under way whose event has no entry */
    uint64_t stray_end; /* ... and how many there were */
    ac_order_event_t event[AC_ORDER_SETS][AC_ORDER_WAYS];
} ac_order_t;

/* The proof that a call under way brings if it succeeds. */
typedef struct {
    bool known;
    uint64_t event, version, strays;
    bool stray;
    ac_order_vector_t vector;
} ac_order_mark_t;

/* Returns the slot of `stream`, AC_ORDER_NONE if it has none. */
unsigned ac_order_find(ac_order_t *order, ac_stream_t stream);

/* Returns the slot of `stream`; makes one if needed, in place of the one that was asked for longest ago.
 * Slots with a bit in `busy` stay.  Returns AC_ORDER_NONE if all are busy. */
unsigned ac_order_slot(ac_order_t *order, ac_stream_t stream, uint64_t busy);

/* Frees the slot for another stream: its stream has gone, or is to be treated as gone. */
void ac_order_drop(ac_order_t *order, unsigned slot);

/* Returns the position of a free that just happened on the slot's stream. */
uint64_t ac_order_advance(ac_order_t *order, unsigned slot);

/* Returns the newest position of `from` that comes before all that goes to `to` from now on; UINT64_MAX
 * for the stream itself. */
uint64_t ac_order_reach(const ac_order_t *order, unsigned to, unsigned from);

/* Returns true if position `at` of the present stream of `from` comes before all that goes to `to` from
 * now on. */
bool ac_order_proven(const ac_order_t *order, unsigned to, unsigned from, uint64_t at);

/* Reads what comes before the next work of the slot's stream; call it before the driver's call.  Frees of
 * threads that took no lock have the number one above the position that they find, so reading moves the
 * position on. */
void ac_order_read(ac_order_t *order, unsigned slot, ac_order_vector_t *vector);

/* Notes that `to` waits for all that is in the vector; _completed: that the host knows all of it to be
 * complete. */
void ac_order_join(ac_order_t *order, unsigned to, const ac_order_vector_t *vector);
void ac_order_completed(ac_order_t *order, const ac_order_vector_t *vector);

/* Around a record of `event` on the stream of `slot` (AC_ORDER_NONE: one without a slot). `good`:
 * it succeeded, and was not captured. */
void ac_order_record_begin(ac_order_t *order, uint64_t event, unsigned slot,
                           ac_order_mark_t *mark);
void ac_order_record_end(ac_order_t *order, const ac_order_mark_t *mark, bool good);

/* Around a call that waits for `event`.  They return false if the call proves nothing. */
bool ac_order_look(ac_order_t *order, uint64_t event, ac_order_mark_t *mark);
bool ac_order_still(ac_order_t *order, const ac_order_mark_t *mark);

/* Forgets the event: it was destroyed, or recorded in a way that we do not follow. */
void ac_order_forget(ac_order_t *order, uint64_t event);

/* From _distrust until _trust, at the event's end, only the driver knows when the event is recorded.  For
 * the whole process, any thread, no lock.  _distrust returns true if the event was trusted before.  If
 * host memory for the list is short, all events are distrusted permanently: at its end nothing tells
 * which event was left out. */
bool ac_order_distrust(uint64_t event);
bool ac_order_trust(uint64_t event); /* true if it was distrusted by name */
bool ac_order_distrusts(uint64_t event);

/* Returns nonzero if an invariant does not hold. */
int ac_order_check(const ac_order_t *order);

#endif
