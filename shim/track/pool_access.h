/* Access of other devices to a memory pool that the library served before the program set the
 * access.  The driver serves later requests of the pool (mempools.h). */
#ifndef AC_POOL_ACCESS_H
#define AC_POOL_ACCESS_H

#include "track/context.h"

/* Called after the program allowed `other` to reach the pool's memory: makes the pool's blocks
 * in use reachable.  `other` can then reach more than the program asked for: the segments of
 * these blocks, and pages of the device. */
void ac_pool_reach(unsigned number, CUdevice other);

/* Called after a block of the pool was handed out while the program changed the access. */
void ac_pool_reach_again(unsigned number);

/* Called when the number stands for a new pool: nothing reaches it. */
void ac_pool_reach_none(unsigned number);

/* Called after a context was made or retained. */
void ac_pool_reach_from(CUcontext handle);

/* Called after the context ended, before its record serves another context. */
void ac_pool_reach_gone(const ac_context_t *context);

/* Called when the program enables or disables peer access to `peer` in the current context.  If
 * the library enabled it for a pool, the program does not see that: its first call to enable
 * succeeds, and the access stays when it disables it.  _enabled gets the driver's answer and
 * returns the program's.  If _disables returns true, *result is the answer, and the caller does
 * not call the driver. */
CUresult ac_pool_peer_enabled(ac_thread_t *thread, CUcontext peer, CUresult result);
bool ac_pool_peer_disables(ac_thread_t *thread, CUcontext peer, CUresult *result);

#endif
