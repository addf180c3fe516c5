/* Between ordered.c and edges.c: blocks by the streams that they were freed on. */
#ifndef AC_ORDERED_INT_H
#define AC_ORDERED_INT_H

#include "allocator/core_int.h"
#include "allocator/order/order.h"

typedef struct {
    ac_block_queue_t queue;                /* by age_next, oldest first */
    ac_free_index_t *index[AC_POOL_KINDS]; /* made at first need; [AC_POOL_ALL] is unused */
    unsigned pins;                         /* device calls under way with the stream's handle */
} ac_ordered_list_t;

struct ac_ordered {
    ac_order_t order;
    uint64_t filled; /* bit per slot */
    uint64_t pinned;
    bool handed_on; /* memory that work was under way on has a new owner */
    uint64_t last;  /* such work has a clock up to this one; 0: it goes on */
    ac_ordered_list_t list[AC_ORDER_SLOTS];
};

/* The slot of the stream, made if need be; AC_ORDER_NONE: all are busy. */
static inline unsigned ac_ordered_slot(ac_ordered_t *ordered, ac_stream_t stream) {
    return ac_order_slot(&ordered->order, stream, ordered->filled | ordered->pinned);
}

/* Arenas with an order, for events that name no arena: the next from number *i on; NULL: there
 * is none.  Without the lock. */
ac_arena_t *ac_ordered_next(unsigned *i);

#endif
