/* Between pinned.c and the hooks of pinned memory. */
#ifndef AC_PINNED_INT_H
#define AC_PINNED_INT_H

#include "intercept/body.h"
#include "intercept/pinned.h"

/* The one pool of the process; its figures are those of the live page. */
extern AC_HIDDEN ac_host_t ac_pinned;

/* Bytes that may be kept now: 0 where nothing is, and where the host does not say what it has. */
uint64_t ac_pinned_limit(void);

/* What is idle since before `before` goes back to the driver, oldest first, until no more than
 * `limit` bytes are kept; none while anything captures.  Returns bytes. */
uint64_t ac_pinned_give_back(uint64_t before, uint64_t limit);

/* A request for `size` bytes fails for want of memory: give back what is idle; with `wait` after
 * waiting for pending work, where the host would have room then.  False: nothing went back. */
bool ac_pinned_make_room(ac_context_t *context, uint64_t size, bool wait);

#endif
