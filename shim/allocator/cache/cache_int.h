/* Between the files of thread caches (thread_cache.h).  Under the lock, but where it says by the
 * owner from inside its cache. */
#ifndef AC_CACHE_INT_H
#define AC_CACHE_INT_H

#include "allocator/cache/caches.h"

/* --- cache_tally.c --- */

/* The cache, whose owner has the lock, may be granted room again, if it rests. */
void ac_cache_wake(ac_cache_t *cache);

/* The figures of what waits follow; by the owner from inside, or while it keeps out. */
void ac_cache_count_waiting(ac_cache_t *cache, const ac_block_t *block);
void ac_cache_count_ready(ac_cache_t *cache, int flow, const ac_cache_wait_t *ready);

/* --- cache_wait.c --- */

/* Blocks of the magazine that wait, and are ready by now, join the others there, as far as these
 * may be.  True if there were any.  By the owner from inside, or while it keeps out. */
bool ac_cache_gather(ac_cache_t *cache, ac_magazine_t *magazine);

/* Blocks beside the magazine that are ready go to the free memory, and with `all` the others are
 * the arena's pending ones from now on.  True if there were any. */
bool ac_cache_unpark(ac_cache_t *cache, ac_magazine_t *magazine, bool all);

#endif
