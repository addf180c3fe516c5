/* Blocks that were freed and are not free yet: entries of their arena's ledger (order/ledger.h), which
 * the arena's lock guards.
 *
 * A block that was freed in the order of a stream can serve requests before it is ready, so it is in an
 * index by size as well.  Waiting neighbours of one stream join at once and take the newer one's place;
 * free memory next to them joins, too.  So memory that a stream uses again and again stays in large
 * pieces.  When a stream or the last graph of a capture session goes, the tickets of its blocks are
 * exchanged.
 *
 * Invariants (ac_allocator_check): every RETIRED block is in the ledger, and blocks of streams are in
 * their index; no two neighbours could be joined; segment.held and the counters capture_deferred_blocks
 * and _bytes are sums over CAPTURE.
 *
 * Callers hold the allocator's lock, except for functions named ac_allocator_, which take it.  None calls
 * the device. */
#ifndef AC_RETIRED_H
#define AC_RETIRED_H

#include "allocator/core_int.h"
#include "allocator/order/ledger.h"

/* The retired blocks of an arena. */
struct ac_retired {
    ac_ledger_t ledger;
    ac_order_t *order; /* of its streams; NULL: nothing is known yet */
    /* Per stream: AC_INDICES indices of its blocks, as for free blocks.  Made at first need. */
    ac_free_index_t *index[AC_ORDER_SLOTS];
    _Atomic int unordered;         /* its streams' order protects nothing; 2: nor did it ever */
    _Atomic uint64_t submitted[2]; /* [1]: to the legacy stream (ac_arena_submitted) */
    unsigned mempool; /* memory pool of blocks that threads may keep in the order of a stream; 0: none */
};

/* Adds the block, which was freed and is in transit, to the ledger with this ticket, and asks for a
 * fence.  It may become part of a neighbour.  Returns true if its memory goes back to the device when a
 * fence was reached. */
bool ac_retired_add(ac_block_t *block, const ac_ticket_t *ticket);

/* Adds the block with the ticket that it has, in transit, and asks for no fence. */
void ac_retired_put(ac_block_t *block);

/* Retires a block with a ticket of a stream, and joins its neighbours. */
void ac_retired_join(ac_block_t *block);

/* Adds a block in transit that was freed in the order of the stream in `slot` and that a thread kept.
 * AC_ORDER_NONE: that order proves nothing any more.  The statistics count it as active already. */
void ac_retired_late(ac_block_t *block, ac_order_t *order, unsigned slot, uint64_t place);

/* Removes the block from the ledger: it is in transit. */
void ac_retired_remove(ac_block_t *block);

/* Exchanges the ticket of the block after its key has gone. */
void ac_retired_exchange(ac_block_t *block);

/* Exchanges the tickets of all blocks of the segment that wait in the order of a stream: the segment
 * serves no more. */
void ac_retired_unorder(ac_segment_t *segment);

/* Makes the indices for blocks that wait with tickets of the slot.  Returns false if host memory is short. */
bool ac_retired_make_index(ac_arena_t *arena, unsigned slot);

/* Returns true if the slot's indices exist or could be made. */
static inline bool ac_retired_has_index(ac_arena_t *arena, unsigned slot) {
    return arena->retired->index[slot] || ac_retired_make_index(arena, slot);
}

/* Hands `size` bytes of the block, which waits in the order of a stream, to the program; the rest keeps
 * its place.  Without a record for that the block stays whole. */
void ac_retired_take(ac_block_t *block, uint64_t size, unsigned module, uint64_t requested);

/* Frees the indices of a dead arena with an empty ledger. */
void ac_retired_close(ac_arena_t *arena);

/* Returns true if anything waits but for captures. */
static inline bool ac_retired_any(const ac_arena_t *arena) {
    return ac_ledger_waits(&arena->retired->ledger);
}

/* Moves what has become ready to the free memory.  Returns true if there was any. */
bool ac_retired_drain_some(ac_arena_t *arena);

/* Does the work of ac_retired_drain_some, and mostly sees by one look that nothing is ready: nearly all
 * blocks wait for fences of their own context. */
static inline bool ac_retired_drain(ac_arena_t *arena) {
    const ac_ledger_t *ledger = &arena->retired->ledger;
    const ac_due_t *first = ledger->fence[AC_REACH_OWN].first;
    return (ledger->filled || ledger->fence[AC_REACH_ALL].first ||
            (first && ac_due_epoch(first) <= ac_fence_reached_own(&arena->timeline))) &&
           ac_retired_drain_some(arena);
}

/* Drains all arenas.  The caller holds the lock. */
void ac_retired_drain_all(ac_allocator_t *allocator);

/* Exchanges the tickets of the session's blocks: its last graph has gone.  Returns true if one is of a
 * tainted segment. */
bool ac_retired_let_go(ac_arena_t *arena, uint64_t session);

/* Returns true if a block waits for the capture session. */
bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t session);

/* Returns true if the neighbours would have to be one block.  For the checker. */
bool ac_retired_alike(const ac_block_t *a, const ac_block_t *b);

#endif
