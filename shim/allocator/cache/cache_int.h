/* Between the files of thread caches (thread_cache.h).  Under the lock, but where it says by the
 * owner from inside its cache. */
#ifndef AC_CACHE_INT_H
#define AC_CACHE_INT_H

#include "allocator/cache/caches.h"

/* --- cache_tally.c --- */

/* What may be taken from now on; all tally are absorbed. */
void ac_cache_set_room(ac_cache_t *cache);

/* Whether a side of the tally has room for so much more, if need be from the other one. */
bool ac_cache_has_rooms(ac_cache_t *cache, int flow, int64_t blocks, uint64_t bytes,
                        uint64_t requested);

/* A hit found that a peak may have been reached: before anything else is done.  Takes the lock.
 */
void ac_cache_publish(ac_cache_t *cache);

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
