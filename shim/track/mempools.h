/* The program's memory pools: which pools the library serves, and why the driver serves the others.
 *
 * A pool has a record with a number.  Handles recur, so the number identifies the pool.  Blocks carry
 * the number (allocator/space/mempool.h) and outlive the pool with it.  The driver keeps every pool,
 * its handle and its settings; it knows only the memory that it served itself.  All functions are
 * thread-safe. */
#ifndef AC_MEMPOOLS_H
#define AC_MEMPOOLS_H

#include "track/context.h"

/* Reason why the driver serves a pool or a request: the counter of live.h that counts it.
 * AC_POOL_OURS: the library serves it. */
typedef unsigned ac_passed_t;
#define AC_POOL_OURS       0u
#define AC_PASSED(counter) ((ac_passed_t)AC_COUNT_passed_async_##counter)

/* Returns the number of the pool that the handle means now.  0: none is known, and *why is the reason
 * (`why` may be NULL). */
unsigned ac_mempool_named(CUmemoryPool handle, ac_passed_t *why);

/* Returns the number of the pool that cuMemAllocAsync uses on the device.  0: none is known, and *why
 * is the reason. */
unsigned ac_mempool_current(CUdevice device, ac_passed_t *why);

/* Called after the program may have set another current pool on the device (negative: on any device). */
void ac_mempool_current_changed(CUdevice device);

/* Returns true if the handle belonged to a destroyed pool and blocks of that pool are still in use. */
bool ac_mempool_is_named(CUmemoryPool handle);

/* Called after the driver made a pool.  `props`: as the program gave them; NULL: imported from
 * another process. */
void ac_mempool_created(CUmemoryPool handle, const CUmemPoolProps *props);

/* Called after the driver returned one of its own pools to the program. */
void ac_mempool_shown(CUmemoryPool handle, const CUmemLocation *location,
                      CUmemAllocationType type);

/* Called before and after the driver's call that destroys a pool.  `number` was looked up before that
 * call: the handle may name a new pool afterwards.  _destroying waits, for at most one second, for a
 * call of the library that uses the handle. */
void ac_mempool_destroying(unsigned number);
void ac_mempool_destroyed(unsigned number, bool done);

/* Return properties of a pool: its device, the reason or AC_POOL_OURS, its handle.  A destroyed pool
 * keeps its handle.  `number` is not 0. */
CUdevice ac_mempool_device(unsigned number);
ac_passed_t ac_mempool_reason(unsigned number);
CUmemoryPool ac_mempool_handle(unsigned number);

/* Returns true if the driver made the pool as the default of its device. */
bool ac_mempool_is_default(unsigned number);

/* Returns true if requests of the pool need no ac_mempool_admit. */
bool ac_mempool_is_open(unsigned number);

/* Returns the allocator that has figures of the pool; NULL: the library never served it. */
ac_allocator_t *ac_mempool_allocator(unsigned number);

/* Leaves the pool's requests to the driver from now on.  The first reason stays. */
void ac_mempool_leave(unsigned number, ac_passed_t reason);

/* Leaves the requests of all pools to the driver, also of later pools. */
void ac_mempools_leave(ac_passed_t reason);

/* _admit is called before a request of `bytes`.  Returns false if the request would exceed the pool's
 * limit.  Otherwise the request counts until the library serves it, or _cancel.  _passed: the driver
 * served it.  While it counts, the number means no other pool.  The number may have changed its
 * meaning before that, so the caller has to look it up once more. */
bool ac_mempool_admit(unsigned number, uint64_t bytes);
void ac_mempool_cancel(unsigned number, uint64_t bytes);
void ac_mempool_passed(unsigned number);

/* Returns the pool's peak over the library and the driver together; `driver` is the driver's own peak.
 * _reset_peak sets it to the current value. */
uint64_t ac_mempool_peak(unsigned number, ac_mark_t mark, uint64_t driver);
void ac_mempool_reset_peak(unsigned number, ac_mark_t mark);

/* Called after the driver may have freed memory of a pool. */
void ac_mempools_given(void);

/* Counts the memory that the driver reserves on the device, for the pools that it serves and for
 * graphs. */
void ac_mempools_look(CUdevice device);

/* If _rely returns true, no pool gives back unused memory until _relied.  It returns false while
 * pools do that.  _growth: bytes that the pool has to reserve in addition for a request of `bytes`.
 * _resides: the pool's memory belongs to the device and to this process. */
bool ac_mempools_rely(void);
void ac_mempools_relied(void);
bool ac_mempool_resides(unsigned number);
uint64_t ac_mempool_growth(unsigned number, uint64_t bytes);

/* Called if requests of the device fail: the driver's pools give back their unused memory.  Returns
 * true if there may be room now. */
bool ac_mempools_yield(CUdevice device);

#endif
