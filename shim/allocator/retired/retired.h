/* Freed memory that is not free yet: blocks with a ticket (ticket.h), in a list for each key,
 * sorted by what they wait for.  Whether they are ready is asked once for a list, and decided by
 * its end.
 *
 *   OWN, ALL   a queue each, by epoch
 *   CAPTURE    a queue for sessions that share a number modulo AC_RETIRED_SESSIONS; when the
 *              last graph of one has gone, its tickets are exchanged
 *   STREAM     ordered.c; when the stream goes, its blocks wait for fences with their epochs
 *
 * Invariants (ac_allocator_check): every RETIRED block lies in the list of its key; segment.held
 * and the counters capture_deferred_blocks and _bytes are sums over CAPTURE.  All under the
 * allocator's lock, which ac_allocator_ functions take themselves; no device call. */
#ifndef AC_RETIRED_H
#define AC_RETIRED_H

#include "allocator/space/block.h"

enum { AC_RETIRED_SESSIONS = 32 };

/* Of an arena. */
struct ac_retired {
    ac_block_queue_t fence[2]; /* [1]: of all contexts */
    ac_block_queue_t capture[AC_RETIRED_SESSIONS];
    _Atomic int unordered;         /* its streams' order protects nothing; 2: nor did it ever */
    _Atomic uint64_t submitted[2]; /* [1]: to the legacy stream (ac_arena_submitted) */
};

/* The block, which was freed and is in transit, waits with this ticket of OWN, ALL or CAPTURE, and
 * a fence is wanted.  The epoch may not be lower than those in the list: the ticket was made under
 * the same lock. */
void ac_retired_add(ac_block_t *block, const ac_ticket_t *ticket);

/* The same for a block that waited elsewhere, and wanted its fence there: it may have to wait for
 * a later one, as the last of the list does. */
void ac_retired_append(ac_block_t *block, const ac_ticket_t *ticket);

/* The same with the block's own ticket, in its place and no other.  `hint`: a block of the list
 * that waits no less long; NULL: the last. */
void ac_retired_insert(ac_block_t *block, ac_block_t *hint);

/* Whether a block waits for the capture session.  Takes the lock (pending.c). */
bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t session);

/* The block, with a ticket of OWN, ALL or CAPTURE, leaves its list and is in transit. */
void ac_retired_remove(ac_block_t *block);

#endif
