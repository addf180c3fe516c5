/* What freed memory has to wait for, and whether that is over: in tickets (ticket.h).
 *
 * Nothing here knows of blocks.  Any thread, no lock, no device call, unless said otherwise. */
#ifndef AC_RETIRE_H
#define AC_RETIRE_H

#include "allocator/order/fence.h"
#include "allocator/order/order.h"
#include "allocator/ticket.h"

/* READY: another owner may have the memory now.  LEANS: so, because the order of the only stream
 * protects it (sole.h), but the device is done with it later.  WAITS: there is a ticket. */
typedef enum { AC_FREE_READY, AC_FREE_LEANS, AC_FREE_WAITS } ac_free_t;

/* What memory of the timeline's context that is freed now has to wait for; `used` is its ticket
 * up to now.  The program's calls on it have returned.  Once per free; who is told LEANS and does
 * not use the memory has cost a join event, and no more.  `ticket` NULL: WAITS is all that is
 * asked for, and may be said of what is ready.  _touched: something was submitted since
 * `handout`.
 * Without the allocator's lock only a ticket of OWN may be used: one of ALL could come into its
 * list behind a later one, one of CAPTURE after the capture session's list was released. */
ac_free_t ac_order_retire_touched(ac_timeline_t *timeline, uint64_t handout, ac_ticket_t *ticket);
static inline ac_free_t ac_order_retire(ac_timeline_t *timeline, const ac_ticket_t *used,
                                        ac_ticket_t *ticket) {
    uint64_t handout = atomic_load_explicit(&used->epoch, memory_order_relaxed);
    return ac_fence_untouched(timeline, handout)
               ? AC_FREE_READY
               : ac_order_retire_touched(timeline, handout, ticket);
}

/* The same in the order of a stream of the context of `from`: there is always a ticket.  It is
 * one of the stream in `slot` of `order`; AC_ORDER_NONE: none of which anything is known, or
 * whose order protects anything.  The stream may wait for work that was not seen: that counts as
 * a submission, to both contexts, but for what a capture names.  Under the lock of `order`. */
void ac_order_retire_on(ac_timeline_t *timeline, ac_timeline_t *from, ac_order_t *order,
                        unsigned slot, const ac_ticket_t *used, ac_ticket_t *ticket);

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
