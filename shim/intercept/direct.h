/* Physical memory and arrays that the program makes, as events of the history from their beginning to their
 * end (observe/beside.h).  Called by hooks after the driver's call went well; nothing while the history is
 * off, or where `thread` is NULL. */
#ifndef AC_DIRECT_H
#define AC_DIRECT_H

#include "intercept/context.h"
#include "intercept/thread.h"
#include "observe/history.h"

/* cuMemCreate; memory of the host is none of a device's. */
void ac_direct_physical(ac_thread_t *thread, CUmemGenericAllocationHandle handle, uint64_t bytes,
                        const CUmemLocation *location, const void *caller);
void ac_direct_mapped(ac_thread_t *thread, CUdeviceptr address, uint64_t bytes,
                      CUmemGenericAllocationHandle handle);
void ac_direct_retained(ac_thread_t *thread, CUmemGenericAllocationHandle handle);

/* An array or a mipmapped one. */
void ac_direct_array(ac_thread_t *thread, uint64_t handle, uint64_t bytes, const void *caller);

/* Its arrays have gone with it. */
void ac_direct_context_gone(const ac_context_t *context);

/* The address for a call on mapped memory: AC_UNOWNED, which the driver refuses, for memory that the
 * program did not map. */
CUdeviceptr ac_direct_address(CUdeviceptr address, uint64_t bytes);

#endif
