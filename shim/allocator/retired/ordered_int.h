/* Shared by ordered.c and edges.c: the known order of an arena's streams. */
#ifndef AC_ORDERED_INT_H
#define AC_ORDERED_INT_H

#include "allocator/core_int.h"
#include "allocator/order/order.h"
#include "allocator/retired/retired.h"

struct ac_ordered {
    ac_order_t order;
    unsigned pins[AC_ORDER_SLOTS];  /* device calls under way with the stream's handle */
    uint64_t pinned;                /* bit per slot */
    unsigned lanes[AC_ORDER_SLOTS]; /* of threads, that name the slot ... */
    uint64_t laned;                 /* ... bit per slot */
    bool handed_on;                 /* memory that work was under way on has a new owner */
    uint64_t last;                  /* newest clock of that work; 0: it goes on */
};

/* Returns the slot of the stream and makes it if need be; AC_ORDER_NONE: all are busy. */
static inline unsigned ac_ordered_slot(ac_arena_t *arena, ac_stream_t stream) {
    ac_ordered_t *ordered = arena->ordered;
    return ac_order_slot(&ordered->order, stream,
                         arena->retired->ledger.filled | ordered->pinned | ordered->laned);
}

/* Returns the next arena with an order, from number *i on, for events that name no arena; NULL: there is
 * none.  Called without the lock. */
ac_arena_t *ac_ordered_next(unsigned *i);

#endif
