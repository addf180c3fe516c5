/* Access of other devices to memory of a pool that was served here before the program asked for it.
 * What is asked for later is the driver's (mempools.h). */
#ifndef AC_POOL_ACCESS_H
#define AC_POOL_ACCESS_H

#include "track/context.h"

/* The program allowed `other` to reach the pool's memory: its blocks that are out are made so.
 * More becomes reachable than the program asked for: their segments, and pages of the device. */
void ac_pool_reach(unsigned number, CUdevice other);

/* A block of the pool was handed out while the program did that. */
void ac_pool_reach_again(unsigned number);

/* The number stands for a new pool. */
void ac_pool_reach_none(unsigned number);

/* A context was made, or retained. */
void ac_pool_reach_from(CUcontext handle);

/* The context has ended.  Before its record serves again. */
void ac_pool_reach_gone(const ac_context_t *context);

/* The program enables or disables peer access to `peer` in the context that is current.  Where it
 * is enabled on behalf of a pool, the program does not see that: the first enabling succeeds, and
 * what it disables stays.  _enabled: `result` is the driver's answer; returns the program's.
 * _disables: true: *result is the answer, and the driver must not be asked. */
CUresult ac_pool_peer_enabled(ac_thread_t *thread, CUcontext peer, CUresult result);
bool ac_pool_peer_disables(ac_thread_t *thread, CUcontext peer, CUresult *result);

#endif
