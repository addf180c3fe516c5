/* What freed memory has to wait for, and whether that is over: in tickets (ticket.h).
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

/* Returns whether one look tells that the memory, which is freed now, waits for a fence of its own
 * context, which has to reach *target: the free relies on no stream's order (ac_sole_waits), the last
 * submission comes after the handout, is not known to be complete, and was in the present epoch, so that
 * one that is under way needs no mark (fence.h, (2)).  False: ac_order_retire has the answer. */
__attribute__((always_inline)) static inline bool
ac_order_awaits_as(ac_timeline_t *timeline, const ac_ticket_t *used, uint64_t bytes,
                   uint64_t *target, bool simple) {
    /* First, for those that are ready: a mark from before the other looks would do no harm, since it is
     * compared with the clock after them. */
    *target = atomic_load_explicit(&timeline->last_submit, memory_order_acquire);
    if (*target < atomic_load_explicit(&used->epoch, memory_order_relaxed) ||
        (!simple && (ac_order_capturing() || !ac_fence_simple())) || atomic_load(&ac_fence_strays))
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

/* The same while nothing captures, and ac_fence_simple: the caller's generation is of now. */
static inline bool ac_order_awaits_alone(ac_timeline_t *timeline, const ac_ticket_t *used,
                                         uint64_t bytes, uint64_t *target) {
    return ac_order_awaits_as(timeline, used, bytes, target, true);
}

/* The same for a free in the order of a stream of the context of `from`: it always waits.  The
 * ticket is one of the stream in `slot` of `order`, or OWN or ALL where `slot` is AC_ORDER_NONE (the
 * stream is unknown, or its order protects nothing).  The free counts as a submission to both
 * contexts, because the stream may wait for work that no hook saw; not if a capture session may name
 * the memory.  Under the lock that guards `order`. */
void ac_order_retire_on(ac_timeline_t *timeline, ac_timeline_t *from, ac_order_t *order,
                        unsigned slot, const ac_ticket_t *used, ac_ticket_t *ticket);

/* The same for memory that was freed in the order of the stream in `slot` a while ago, as place
 * `place` there, and is only now to wait.  No capture can have named it: none was open. */
void ac_order_retire_late(ac_timeline_t *timeline, ac_order_t *order, unsigned slot,
                          uint64_t place, ac_ticket_t *ticket);

/* What has to be waited for now in place of a ticket whose key has gone.  A stream's: its epoch
 * stays.  A capture's: as if the memory was freed now, which may be READY.  Under the lock. */
ac_free_t ac_order_exchange(ac_timeline_t *timeline, ac_ticket_t *ticket);

/* The definition, for single blocks, checks and tests: whether memory with this ticket may be
 * used by work that a stream is given from now on, the one of `slot` in `order`; AC_ORDER_NONE:
 * by any work of the timeline's context.  `order` NULL: none is known.  Under its lock. */
bool ac_order_ready(const ac_timeline_t *timeline, const ac_order_t *order, unsigned slot,
                    const ac_ticket_t *ticket);

/* How far `key` is ready for such an asker: never above the truth.  The place of a ticket that
 * was made for the slot's present stream is compared with it, and no other.  0 for CAPTURE. */
uint64_t ac_order_reach_of(const ac_timeline_t *timeline, const ac_order_t *order, unsigned slot,
                           unsigned key);

#endif
