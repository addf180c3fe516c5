/* Captures, as far as freed memory goes.
 *
 * Captured work does not run.  The graph made of it runs later, as often as the program launches it.  No
 * fence tells when a graph is done with memory, so memory that captured work may name waits for a
 * *capture session*, by number: all captures from the moment when the first began until none was left.
 * track/graphs.h follows the graphs and says when the last one of a session has gone.  The memory then
 * waits for a fence of that moment, because the last launch may still run.
 *
 * Captured work does not name memory if nothing was submitted in its lifetime or since the session began:
 * submissions to a capturing stream count as all others do.  It does not name memory of a context that
 * does not capture either, unless other contexts may use it. */
#ifndef AC_ORDER_CAPTURE_H
#define AC_ORDER_CAPTURE_H

#include "allocator/order/fence.h"

/* Makes memory that is freed from now on wait for `session` (not 0, larger than all before).  Call it
 * before the driver's call that begins the capture, and not while another session is open. */
void ac_order_capture_begin(uint64_t session);

/* Lets frees wait for fences again.  A free that still gets a ticket for the session adds its block to a
 * list before the next call of ac_allocator_holds: both hold the allocator's lock. */
void ac_order_capture_end(void);

extern AC_HIDDEN _Atomic uint64_t ac_order_session; /* the open one; 0: nothing captures */

static inline bool ac_order_capturing(void) {
    return atomic_load_explicit(&ac_order_session, memory_order_acquire) != 0;
}

/* Returns the open session if its captures may have recorded a use of memory of the timeline's context
 * that was handed out at `epoch`; else 0. */
uint64_t ac_order_captured(const ac_timeline_t *timeline, uint64_t epoch);

/* Returns the open session if its captures may have recorded a use of memory that any context may use and
 * that was handed out at `epoch`; else 0. */
uint64_t ac_order_captured_anywhere(uint64_t epoch);

#endif
