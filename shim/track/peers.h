/* Which contexts may reach the memory of which others, as far as the program said so by enabling
 * peer access.  For memory of cuMemAlloc the driver keeps track of that itself.  A page has a list of
 * the devices that may use it: the functions below change that list.
 *
 * Any thread, without locks.  A thread that takes a right back waits for no other one.  A thread that
 * gives a right waits, a second at the most, for one that takes some back. */
#ifndef AC_PEERS_H
#define AC_PEERS_H

#include "track/context.h"

/* The driver did so: `from` may reach the memory of `to`, what there is of it and what is to come. */
void ac_peers_enabled(const ac_context_t *from, const ac_context_t *to);

/* The device `peer` reaches memory of `device` for other reasons, and goes on to do so: a pool, or
 * memory of another process that was opened, by which the driver enables it, too.  `allocator` of
 * `device`, NULL: it has none. */
void ac_peers_hold(CUdevice device, CUdevice peer, ac_allocator_t *allocator);

/* It may not any more.  Rights on pages go when no other context of its device has them, as soon as
 * no work is under way that may use them: at once, or with a later change. */
void ac_peers_disabled(const ac_context_t *from, const ac_context_t *to);

/* The context has ended, and all that it was part of.  Before its record serves again. */
void ac_peers_context_gone(const ac_context_t *context);

#endif
