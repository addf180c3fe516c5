/* Blocks that were freed in the order of a stream, for the ladder (streams.h says what they are).
 * All under the allocator's lock. */
#ifndef AC_ORDERED_H
#define AC_ORDERED_H

#include "allocator/core_int.h"
#include "allocator/order/order.h"

/* A request that may be served so. */
typedef struct {
    ac_stream_t stream;
    unsigned mempool, module;
    uint64_t size, requested; /* bytes, rounded and as asked for */
    ac_fit_t fit;
    /* Returns the block for the request out of the AC_INDICES indices of a stream.  NULL: there is none. */
    ac_block_t *(*find)(void *arg, const ac_free_index_t *index, const ac_fit_t *fit);
    void *arg;
    uint64_t address; /* of the block that was taken */
} ac_order_request_t;

/* The block serves a request that named a stream, of the memory pool. */
void ac_ordered_handed_out(ac_block_t *block, unsigned mempool);

/* Whether memory may be handed on by stream order here. */
bool ac_ordered_follows(const ac_arena_t *arena);

/* Hands out a block of the stream itself, or of one that is known to come before it, and counts that. */
bool ac_ordered_serve(ac_arena_t *arena, ac_order_request_t *request);

/* The same with a call of the device: with `own` of the stream itself, which has to be given
 * something first; else of any other stream, which the request's one then waits for. AC_OK;
 * AC_OOM: there is none; anything else: the device would not.  Called and returns with the lock,
 * which is open around that call. */
ac_status_t ac_ordered_wait(ac_arena_t *arena, ac_order_request_t *request, bool own);

/* A stream whose blocks a thread keeps (cache/lane.h).  As long as ac_generation does not grow:
 * `position` and `others` are there, and the stream is that of `slot`. */
typedef struct {
    unsigned slot;
    uint64_t base; /* positions of the stream lie above */
    const _Atomic uint64_t *position;
    const _Atomic uint64_t *others; /* while this ... */
    uint64_t item;                  /* ... is that nothing is hidden (ordered.c) */
} ac_ordered_lane_t;

/* A thread may keep blocks of the stream: its slot serves no other until _lane_end.  False: its
 * order is not known, or is not to be relied on, or too many streams are kept so. */
bool ac_ordered_lane(ac_arena_t *arena, ac_stream_t stream, ac_ordered_lane_t *lane);
void ac_ordered_lane_end(ac_arena_t *arena, unsigned slot);

/* Returns the number of lanes that keep the slot.  For the checker. */
unsigned ac_ordered_lanes(const ac_arena_t *arena, unsigned slot);

/* Whether the lane's stream still has its slot, and its order protects. */
bool ac_ordered_lane_holds(const ac_arena_t *arena, const ac_ordered_lane_t *lane);

/* The slot of `stream` there for a block that is freed in its order; AC_ORDER_NONE: the block has
 * to wait for a fence. */
unsigned ac_ordered_slot_for(const ac_block_t *block, ac_stream_t stream);

/* The arena is dead: no block is left. */
void ac_ordered_close(ac_arena_t *arena);

#endif
