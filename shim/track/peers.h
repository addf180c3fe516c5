/* Peer access: which contexts may reach the memory of which others, as far as the program enabled
 * it.  For memory of cuMemAlloc the driver keeps track of that itself.  A page has a list of the
 * devices that may use it: the functions below change that list.
 *
 * Any thread, without locks.  A thread that takes access back never waits for another thread.  A
 * thread that grants access waits, for at most one second, for a thread that takes access back. */
#ifndef AC_PEERS_H
#define AC_PEERS_H

#include "track/context.h"

/* Called after the driver enabled the access: `from` may reach present and later memory of `to`. */
void ac_peers_enabled(const ac_context_t *from, const ac_context_t *to);

/* Keeps the access of the device `peer` to memory of `device` permanently.  There are two reasons:
 * a pool, or memory of another process that was opened, by which the driver enables the access,
 * too.  `allocator`: of `device`; NULL if it has none. */
void ac_peers_hold(CUdevice device, CUdevice peer, ac_allocator_t *allocator);

/* Called after the driver disabled the access.  A device loses access to pages if no other context
 * of it has access, and if no work is under way that may use it.  Otherwise a later change takes
 * the access back. */
void ac_peers_disabled(const ac_context_t *from, const ac_context_t *to);

/* Called after the context ended, before its record serves another context.  Removes its pairs. */
void ac_peers_context_gone(const ac_context_t *context);

#endif
