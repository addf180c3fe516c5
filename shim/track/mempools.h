/* The program's memory pools: which of them are served here, and why the others are not.
 *
 * A pool has a record with a number.  Handle values recur, so the number says which pool is
 * meant: blocks carry it (allocator/space/mempool.h), and outlive the pool with it.  The driver
 * keeps every pool, its handle and its settings; of its memory it knows only what it served
 * itself.  All functions are thread-safe. */
#ifndef AC_MEMPOOLS_H
#define AC_MEMPOOLS_H

#include "track/context.h"

/* Why requests of a pool, or one request, are the driver's: the counter of live.h that counts
 * them.  AC_POOL_OURS: they are not. */
typedef unsigned ac_passed_t;
#define AC_POOL_OURS       0u
#define AC_PASSED(counter) ((ac_passed_t)AC_COUNT_passed_async_##counter)

/* The number of the pool that the handle means now; 0: none is known, which *why explains (NULL:
 * not asked). */
unsigned ac_mempool_named(CUmemoryPool handle, ac_passed_t *why);

/* The number of the pool that cuMemAllocAsync uses on the device; 0 likewise. */
unsigned ac_mempool_current(CUdevice device, ac_passed_t *why);

/* The program may have set another one, on the device (negative: on any). */
void ac_mempool_current_changed(CUdevice device);

/* Returns true if the handle is that of a destroyed pool whose blocks are still in use. */
bool ac_mempool_is_named(CUmemoryPool handle);

/* The driver made a pool.  `props`: as asked for; NULL: imported from another process. */
void ac_mempool_created(CUmemoryPool handle, const CUmemPoolProps *props);

/* The driver showed the program one of its own pools. */
void ac_mempool_shown(CUmemoryPool handle, const CUmemLocation *location,
                      CUmemAllocationType type);

/* The pool was destroyed.  `number` is the handle's of before the driver's call: it may mean a new
 * pool by now.  Waits, a second at the most, for a call of ours that names it. */
void ac_mempool_destroying(unsigned number);
void ac_mempool_destroyed(unsigned number, bool done);

/* Of a pool: a device, AC_POOL_OURS or a reason, and a handle, which is also answered when the
 * pool was destroyed.  `number` is not 0. */
CUdevice ac_mempool_device(unsigned number);
ac_passed_t ac_mempool_reason(unsigned number);
CUmemoryPool ac_mempool_handle(unsigned number);

/* Whether it is the pool that the driver made for the device. */
bool ac_mempool_is_default(unsigned number);

/* Whether requests of the pool need not be announced (_admit). */
bool ac_mempool_is_open(unsigned number);

/* The allocator that has figures of the pool; NULL: none was ever served here. */
ac_allocator_t *ac_mempool_allocator(unsigned number);

/* The pool's requests are the driver's from now on.  The first reason stays. */
void ac_mempool_leave(unsigned number, ac_passed_t reason);

/* The same of all pools, those to come too. */
void ac_mempools_leave(ac_passed_t reason);

/* Before a request of `bytes`; false: it would exceed the pool's limit.  Else it counts until it is
 * served here, or _cancel.  _passed: the driver has served it.  While it counts the number means no
 * other pool; it may mean one since it was found, so that it has to be found once more. */
bool ac_mempool_admit(unsigned number, uint64_t bytes);
void ac_mempool_cancel(unsigned number, uint64_t bytes);
void ac_mempool_passed(unsigned number);

/* Returns the pool's peak over the library and the driver together; `driver` is the driver's own peak.
 * _reset_peak sets it to the current value. */
uint64_t ac_mempool_peak(unsigned number, ac_mark_t mark, uint64_t driver);
void ac_mempool_reset_peak(unsigned number, ac_mark_t mark);

/* Called after the driver may have freed memory of a pool. */
void ac_mempools_given(void);

/* Counts what the driver reserves on the device, for the pools that it serves and for graphs. */
void ac_mempools_look(CUdevice device);

/* Between _rely, which may be false, and _relied no pool gives back what it does not use.  _growth: bytes that the
 * pool then has to reserve more for a request of `bytes`.  _resides: the pool's memory is the device's, and not
 * another process's. */
bool ac_mempools_rely(void);
void ac_mempools_relied(void);
bool ac_mempool_resides(unsigned number);
uint64_t ac_mempool_growth(unsigned number, uint64_t bytes);

/* Requests of the device fail: the driver's pools give back what they hold and do not use.  True:
 * there may be room now. */
bool ac_mempools_yield(CUdevice device);

#endif
