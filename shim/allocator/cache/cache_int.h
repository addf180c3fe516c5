/* Between the files of thread caches (thread_cache.h).  Under the lock, but where it says by the
 * owner from inside its cache. */
#ifndef AC_CACHE_INT_H
#define AC_CACHE_INT_H

#include "allocator/cache/caches.h"

/* --- cache_tally.c --- */

/* Lets the cache, whose owner has the lock, be granted headroom again if it rests. */
void ac_cache_wake(ac_cache_t *cache);

/* The cache, whose owner has the lock, does nothing any more: the device statistics have its figures. */
void ac_cache_tally_end(ac_cache_t *cache);

/* Counts blocks that waited and are ready; by the owner from inside, or while it keeps out. */
void ac_cache_count_ready(ac_cache_t *cache, int flow, const ac_cache_wait_t *ready);

/* --- cache_table.c: the owner's cache, or one whose owner keeps out --- */

/* Blocks come, or go, without being allocated or freed: so many of a flow, and their bytes. */
static inline void ac_cache_count_chain(ac_cache_t *cache, int flow, int64_t blocks,
                                        uint64_t bytes) {
    ac_tally_add(&cache->tally->moved_blocks[flow], (uint64_t)blocks);
    ac_tally_add(&cache->tally->moved_bytes[flow], blocks < 0 ? -bytes : bytes);
}

/* The same for blocks of one size. */
static inline void ac_cache_count_moved(ac_cache_t *cache, int64_t blocks, uint64_t size) {
    int flow = ac_cache_flow(size);
    ac_tally_add(&cache->tally->moved_blocks[flow], (uint64_t)blocks);
    ac_tally_add(&cache->tally->moved_bytes[flow], (uint64_t)blocks * size);
}

/* The entry of a key that blocks are kept for, now that one is freed; NULL: not of this one. */
ac_entry_t *ac_cache_keeps(ac_cache_t *cache, uint64_t key);

/* Room for one more block of the key, which was freed, at the price of others if need be.  NULL:
 * it is not kept.  Only of sizes that were asked for: others are more use in one piece. */
ac_entry_t *ac_cache_make_room(ac_cache_t *cache, uint64_t key);

/* Then: the block is one of the entry's. */
void ac_cache_put(ac_cache_t *cache, ac_entry_t *entry, ac_block_t *block);

/* Moves ready blocks of the entry to the free memory, or to the list of their stream, until there is so much
 * room.  Returns true if there were any. */
bool ac_cache_shrink(ac_cache_t *cache, ac_entry_t *entry, int64_t room);

/* Does so for all that entries of the stream with that number keep, and with `forget` removes these. */
void ac_cache_leave_stream(ac_cache_t *cache, uint64_t number, bool forget);

/* By the owner: what is ready in entries of small or of large sizes goes to the free memory.  True:
 * any. */
bool ac_cache_empty(ac_cache_t *cache, int flow);

/* By the owner: ready blocks of large sizes of up to `largest`, in powers of two, go to the free
 * memory, the largest first, until so many bytes have, which the last block may exceed.  True: any. */
bool ac_cache_give_way(ac_cache_t *cache, uint64_t largest, uint64_t bytes);

/* Calls `act` for all entries of small or of large plain sizes, or with AC_FLOWS of streams, that may have
 * blocks.  Returns true if a call did. */
bool ac_cache_each(ac_cache_t *cache, int flow, bool act(ac_cache_t *, ac_entry_t *));

/* --- lease.c --- */

/* The budget begins anew, with nothing in the cache: what was leased is given back. */
void ac_cache_set_budget(ac_cache_t *cache);

/* Room without giving anything back; false: there is none, or with `some` not enough. */
bool ac_cache_lease(ac_cache_t *cache, bool some);

/* Room for so many bytes, as far as there is any to lease.  True: some. */
bool ac_cache_lease_for(ac_cache_t *cache, uint64_t bytes);

/* --- lane.c --- */


/* A cache without lanes, before it is used: `lanes` (NULL: none) may be made of. */
void ac_lanes_begin(ac_cache_t *cache, ac_lanes_t *lanes);

/* Then: there are no lanes. */
void ac_lanes_close(ac_cache_t *cache);

/* Adds what the lanes did since the last time to the figures of their memory pool. */
void ac_lanes_absorb(ac_cache_t *cache);

/* --- cache_wait.c --- */

/* By the owner from inside, or while it keeps out. */
static inline void ac_cache_set_unplaced(ac_cache_t *cache, ac_block_t *block) {
    atomic_store_explicit(&cache->unplaced, block, memory_order_relaxed);
}

/* By the owner, where ac_cache_enter fails.  False: the cache is not to be entered. */
bool ac_cache_enter_long(ac_cache_t *cache);

/* What waits in entries and is ready by now joins the others there, whatever room there is.  As
 * ac_cache_gather. */
void ac_cache_ripen(ac_cache_t *cache);

/* Blocks of the entry that wait, and are ready by now, join the others there: one at least, and
 * more as far as there is room.  True if there were any.  By the owner from inside, or while it
 * keeps out. */
bool ac_cache_gather(ac_cache_t *cache, ac_entry_t *entry);

/* The block, which waits and is in no list of the cache any more, is one of the arena's pending ones
 * from now on, or free memory if it is ready: `reached` is ac_fence_reached. */
void ac_cache_leave_waiting(ac_cache_t *cache, ac_block_t *block, uint64_t reached);

/* Blocks of the entry that wait and are ready go to the free memory, and with `all` the others are
 * the arena's pending ones from now on.  True if there were any. */
bool ac_cache_unpark(ac_cache_t *cache, ac_entry_t *entry, bool all);

#endif
