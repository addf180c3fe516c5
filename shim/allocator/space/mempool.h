/* The figures of the driver API's memory pools for one device.  A pool has a number.  A block that serves a request
 * of the pool has the number (block.h), and counts in the pool's figures until the program frees it.
 *
 * `used` is the sum of the requests, each rounded up to AC_GRANULE as the driver rounds.  `reserved` is what a pool
 * of the driver would hold.  It grows with `used`. A synchronisation of the program lowers it to the release
 * threshold, or to `used` if that is more.  Segments do not matter for it: all pools and plain requests share them.
 *
 * Blocks that threads take and give without the lock join `used` when their tallies are absorbed.  The marks and
 * `reserved` may miss changes between two such moments, up to what threads keep.
 *
 * All under the allocator's lock, except synchronisations. */
#ifndef AC_MEMPOOL_H
#define AC_MEMPOOL_H

#include "allocator/space/space.h"

/* The program synchronised a stream, an event or a context; how often it did.  Any thread. */
extern AC_HIDDEN _Atomic uint64_t ac_mempool_syncs;
void ac_mempool_synced(void);

/* The figures of the moment. */
ac_mempool_t *ac_mempool_settle(ac_store_t *store, unsigned number);

/* Raises the peaks of a pool that is `tallied`, once all that threads did with it is in `now`. */
void ac_mempool_raise(ac_store_t *store, unsigned number);

/* The block, which is allocated, serves a request of the pool (not 0) from now on; and no more. */
void ac_mempool_take(ac_block_t *block, unsigned number);
void ac_mempool_give(const ac_block_t *block);

/* Returns the bytes of the block that count in the pool. */
uint64_t ac_mempool_bytes(const ac_block_t *block);

/* Returns the bytes of a request that count in the pool. */
uint64_t ac_mempool_round(uint64_t bytes);

/* Idle bytes that pools with a release threshold are to find again, without pool `but` (0: all). */
uint64_t ac_mempool_kept(ac_store_t *store, unsigned but);

#endif
