/* Tickets: what freed memory has to wait for, and whether that is over (ticket.h).
 *
 * Nothing here knows of blocks.  Any thread, no lock, no device call, unless said otherwise. */
#ifndef AC_RETIRE_H
#define AC_RETIRE_H

#include "allocator/order/capture.h"
#include "allocator/order/fence.h"
#include "allocator/order/order.h"
#include "allocator/ticket.h"

/* READY: another owner may have the memory now.  BY_ORDER: likewise, because the order of the only
 * stream protects it (sole.h), while the device still works on it.  WAITS: for what the ticket says. */
typedef enum { AC_FREE_READY, AC_FREE_BY_ORDER, AC_FREE_WAITS } ac_free_t;

/* Tells what `bytes` of memory of the timeline's context, which are freed now, have to wait for.  `used` is
 * the memory's ticket while it was allocated.  The program's calls on it have returned.  Called once for
 * each free: an answer BY_ORDER makes the next submission record a join event, whether the memory is used
 * or not.  `ticket` may be NULL if it is enough to know that the memory waits; WAITS may then be the answer
 * for memory that is ready.  _touched: something was submitted since `handout`, the clock of `used`.
 * Without the allocator's lock only a ticket of OWN may be used: one of ALL could come into its
 * list behind a later one, one of CAPTURE after the capture session's list was released. */
ac_free_t ac_order_retire_touched(ac_timeline_t *timeline, uint64_t handout, uint64_t bytes,
                                  ac_ticket_t *ticket);
static inline ac_free_t ac_order_retire(ac_timeline_t *timeline, const ac_ticket_t *used,
                                        uint64_t bytes, ac_ticket_t *ticket) {
    uint64_t handout = atomic_load_explicit(&used->epoch, memory_order_relaxed);
    return ac_fence_untouched(timeline, handout)
               ? AC_FREE_READY
               : ac_order_retire_touched(timeline, handout, bytes, ticket);
}

/* Returns true if one look tells that memory which is freed now waits for a fence of its own context, and
 * sets *target to its clock.  So the free relies on no stream's order (ac_sole_waits), and the last
 * submission came after the handout, is not known to be complete, and was in the present epoch: a
 * submission under way needs no mark (fence.h, rule 2).  False: ac_order_retire has the answer. */
__attribute__((always_inline)) static inline bool
ac_order_awaits_as(ac_timeline_t *timeline, const ac_ticket_t *used, uint64_t bytes,
                   uint64_t *target, bool simple) {
    /* First, for memory that is ready.  A mark from before the other looks does no harm: it is compared
     * with the clock after them. */
    *target = atomic_load_explicit(&timeline->last_submit, memory_order_acquire);
    if (*target < atomic_load_explicit(&used->epoch, memory_order_relaxed) ||
        (!simple && (ac_order_capturing() || !ac_fence_simple())) || atomic_load(&ac_fence_untracked_calls))
        return false;
    return *target > atomic_load_explicit(&timeline->done, memory_order_relaxed) &&
           (*target == ac_fence_now() || AC_FAILPOINT(awaited_by_old_mark)) &&
           (ac_sole_mode(atomic_load(&timeline->single.word)) != AC_SOLE_ONE ||
            ac_sole_waits(timeline, bytes)); /* last: it may end the epoch */
}
static inline bool ac_order_awaits(ac_timeline_t *timeline, const ac_ticket_t *used,
                                   uint64_t bytes, uint64_t *target) {
    return ac_order_awaits_as(timeline, used, bytes, target, false);
}

/* Answers like ac_order_awaits, for a caller whose generation is current: nothing captures, and
 * ac_fence_simple. */
static inline bool ac_order_awaits_alone(ac_timeline_t *timeline, const ac_ticket_t *used,
                                         uint64_t bytes, uint64_t *target) {
    return ac_order_awaits_as(timeline, used, bytes, target, true);
}

/* Makes the ticket of a free in the order of a stream of the context of `from`; it always waits.  The
 * ticket is one of the stream in `slot` of `order`.  It is OWN or ALL if `slot` is AC_ORDER_NONE (the
 * stream is unknown, or its order protects nothing).  The free counts as a submission to both contexts,
 * because the stream may wait for work that no hook saw; not if a capture session may name the memory.
 * The caller holds the lock that guards `order`. */
void ac_order_retire_on(ac_timeline_t *timeline, ac_timeline_t *from, ac_order_t *order,
                        unsigned slot, const ac_ticket_t *used, ac_ticket_t *ticket);

/* Makes the ticket of memory that a thread kept after a free in the order of the stream in `slot`, as
 * place `place` there, and that begins to wait only now.  No capture can have named it: none was open. */
void ac_order_retire_late(ac_timeline_t *timeline, ac_order_t *order, unsigned slot,
                          uint64_t place, ac_ticket_t *ticket);

/* Replaces a ticket of which the key has gone.  A stream's ticket keeps its epoch.  A capture's ticket
 * becomes one of a free at this moment, which may be READY.  The caller holds the lock. */
ac_free_t ac_order_exchange(ac_timeline_t *timeline, ac_ticket_t *ticket);

/* Returns true if memory with this ticket may be used by work that the stream in `slot` of `order` is
 * given from now on; AC_ORDER_NONE: by any work of the timeline's context.  `order` may be NULL.  This is
 * the definition, for single blocks, checks and tests.  The caller holds the lock of `order`. */
bool ac_order_ready(const ac_timeline_t *timeline, const ac_order_t *order, unsigned slot,
                    const ac_ticket_t *ticket);

/* Returns the reach of `key` for the stream in `slot`: never above the truth.  Compare it only with
 * places of tickets that were made for the slot's present stream.  0 for CAPTURE. */
uint64_t ac_order_reach_of(const ac_timeline_t *timeline, const ac_order_t *order, unsigned slot,
                           unsigned key);

#endif
