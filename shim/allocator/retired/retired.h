/* Freed memory that is not free yet: blocks with a ticket (ticket.h), in one list for each key,
 * sorted by what they wait for.  Whether they are ready is asked once for a list, and decided by
 * its end.
 *
 *   OWN, ALL   by epoch
 *   CAPTURE    one list for sessions that share a number modulo AC_RETIRED_SESSIONS; when the
 *              last graph of one has gone, its tickets are exchanged
 *   STREAM     by position; when the stream goes, its tickets are exchanged.  These blocks can
 *              serve requests before they are ready, and so are in an index by size as well.
 *              Neighbours of one stream are joined at once, at the price of the older one's
 *              position, and free memory beside them joins in: what a stream uses again and
 *              again stays in large pieces
 *
 * Invariants (ac_allocator_check): every RETIRED block lies in the list of its key, and those of
 * streams in their index; places and epochs never fall from a list's head to its tail; `filled`
 * has a bit for each stream whose list is not empty; no two neighbours could be joined;
 * segment.held and the counters capture_deferred_blocks and _bytes are sums over CAPTURE.  All
 * under the allocator's lock, which ac_allocator_ functions take themselves; no device call. */
#ifndef AC_RETIRED_H
#define AC_RETIRED_H

#include "allocator/order/order.h"
#include "allocator/space/space.h"

enum { AC_RETIRED_SESSIONS = 32 };

/* Of a stream: oldest first, and by size. */
typedef struct {
    ac_block_queue_t list;
    ac_free_index_t *index[AC_POOL_KINDS]; /* made at first need; [AC_POOL_ALL] is unused */
} ac_retired_stream_t;

/* Of an arena. */
struct ac_retired {
    ac_block_queue_t fence[2]; /* [1]: of all contexts */
    ac_block_queue_t capture[AC_RETIRED_SESSIONS];
    ac_retired_stream_t stream[AC_ORDER_SLOTS];
    uint64_t filled;               /* bit per stream */
    _Atomic int unordered;         /* its streams' order protects nothing; 2: nor did it ever */
    _Atomic uint64_t submitted[2]; /* [1]: to the legacy stream (ac_arena_submitted) */
    unsigned mempool; /* whose blocks threads may keep in the order of a stream; 0: of none */
};

/* The block, which was freed and is in transit, waits with this ticket, and a fence is wanted.  It
 * may become part of a neighbour.  The epoch may not be lower than those in the list: the ticket
 * was made under the same lock.  True: the memory goes back to the device when a fence was
 * reached. */
bool ac_retired_add(ac_block_t *block, const ac_ticket_t *ticket);

/* The same with a ticket of OWN or ALL for a block that waited elsewhere, and wanted its fence
 * there: it may have to wait for a later one, as the last of the list does. */
void ac_retired_append(ac_block_t *block, const ac_ticket_t *ticket);
void ac_retired_append_own(ac_block_t *block); /* by its own ticket, of OWN */

/* The same with the block's own ticket, in its place and no other.  `hint`: a block of the list
 * that waits no less long; NULL: the last. */
void ac_retired_insert(ac_block_t *block, ac_block_t *hint);

/* The same with a ticket of a stream: what is beside it joins, and those of a later place wait for
 * no earlier epoch. */
void ac_retired_join(ac_block_t *block);

/* The block, in transit, was freed in the order of the stream in `slot` (AC_ORDER_NONE: that order
 * proves nothing any more) and its thread kept it: it waits like any other from now on.  It is
 * active in the statistics already. */
void ac_retired_late(ac_block_t *block, ac_order_t *order, unsigned slot, uint64_t place);

/* The block leaves its list and is in transit. */
void ac_retired_remove(ac_block_t *block);

/* The key of the block's ticket has gone: it waits for what the ticket is exchanged for.
 * hint[all]: as above, and the block from then on. */
void ac_retired_exchange(ac_block_t *block, ac_block_t *hint[2]);

/* The same for all blocks of the segment that wait in the order of a stream: it serves no more. */
void ac_retired_unorder(ac_segment_t *segment);

/* An index for blocks of the pool that wait with tickets of the slot, where there is none; false:
 * host memory is short. */
bool ac_retired_make_index(ac_arena_t *arena, unsigned slot, int pool);

/* The block, which waits in the order of a stream, is the program's from now on, as far as `size`
 * bytes go; the rest keeps its place.  Without a record for that it stays whole. */
void ac_retired_take(ac_block_t *block, uint64_t size, unsigned module, uint64_t requested);

/* The arena is dead: its lists are empty. */
void ac_retired_close(ac_arena_t *arena);

/* Whether a block waits for the capture session.  Takes the lock (pending.c). */
bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t session);

/* check.c: whether the neighbours would have to be one block. */
bool ac_retired_alike(const ac_block_t *a, const ac_block_t *b);

#endif
