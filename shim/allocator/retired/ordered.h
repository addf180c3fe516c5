/* Blocks that were freed in the order of a stream, for the ladder (see streams.h).  Callers hold the
 * allocator's lock. */
#ifndef AC_ORDERED_H
#define AC_ORDERED_H

#include "allocator/core_int.h"
#include "allocator/order/order.h"

/* A request that a block may serve in the order of streams. */
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

/* Notes that the block serves a request which named a stream, from the memory pool. */
void ac_ordered_handed_out(ac_block_t *block, unsigned mempool);

/* Returns true if memory of the arena may be handed on by stream order. */
bool ac_ordered_follows(const ac_arena_t *arena);

/* Hands out a block of the stream itself, or of one that is known to come before it, and counts that. */
bool ac_ordered_serve(ac_arena_t *arena, ac_order_request_t *request);

/* Serves the request by a call of the device.  With `own` from the blocks of its stream, which is given
 * something first; else from another stream's blocks, and the request's stream then waits for that
 * stream.  Returns AC_OK; AC_OOM if there is no block; the device's answer if it refused.  Called and
 * returns with the lock, which is open around that call. */
ac_status_t ac_ordered_wait(ac_arena_t *arena, ac_order_request_t *request, bool own);

/* A stream that has blocks in a thread's cache (cache/lane.h).  While ac_generation does not grow,
 * `position` and `others` are valid, and the stream is that of `slot`. */
typedef struct {
    unsigned slot;
    uint64_t base; /* positions of the stream lie above */
    const _Atomic uint64_t *position;
    const _Atomic uint64_t *others; /* while this ... */
    uint64_t item;                  /* ... is that nothing is hidden (ordered.c) */
} ac_ordered_lane_t;

/* Keeps the stream's slot for blocks that a thread caches, until _lane_end.  Returns false if the
 * stream's order is not known or not to be relied on, or if too many streams are kept. */
bool ac_ordered_lane(ac_arena_t *arena, ac_stream_t stream, ac_ordered_lane_t *lane);
void ac_ordered_lane_end(ac_arena_t *arena, unsigned slot);

/* Returns the number of lanes that keep the slot.  For the checker. */
unsigned ac_ordered_lanes(const ac_arena_t *arena, unsigned slot);

/* Returns true if the lane's stream still has its slot, and its order protects. */
bool ac_ordered_lane_holds(const ac_arena_t *arena, const ac_ordered_lane_t *lane);

/* Returns the slot of `stream` in the block's arena for a free in its order; AC_ORDER_NONE: the block has
 * to wait for a fence. */
unsigned ac_ordered_slot_for(const ac_block_t *block, ac_stream_t stream);

/* Forgets the order of a dead arena without blocks. */
void ac_ordered_close(ac_arena_t *arena);

#endif
