/* Internals of thread caches (thread_cache.h).  Callers hold the lock, or are the owner inside its cache
 * where a comment says so. */
#ifndef AC_CACHE_INT_H
#define AC_CACHE_INT_H

#include "allocator/cache/caches.h"

/* --- cache_tally.c --- */

/* Wakes a cache that rests: it may be granted headroom again.  Called by the owner. */
void ac_cache_wake(ac_cache_t *cache);

/* Absorbs the figures of a cache that ends.  Called by the owner. */
void ac_cache_tally_end(ac_cache_t *cache);

/* Counts blocks that waited and are ready now.  Called by the owner inside, or while the owner keeps out. */
void ac_cache_count_ready(ac_cache_t *cache, int flow, const ac_cache_wait_t *ready);

/* --- cache_table.c: called by the owner, or while the owner keeps out --- */

/* Counts blocks of a flow that come (or go, if `blocks` is negative) without an allocation or a free. */
static inline void ac_cache_count_chain(ac_cache_t *cache, int flow, int64_t blocks,
                                        uint64_t bytes) {
    ac_tally_add(&cache->tally->moved_blocks[flow], (uint64_t)blocks);
    ac_tally_add(&cache->tally->moved_bytes[flow], blocks < 0 ? -bytes : bytes);
}

/* Counts blocks of one size that come, or go, without an allocation or a free. */
static inline void ac_cache_count_moved(ac_cache_t *cache, int64_t blocks, uint64_t size) {
    int flow = ac_cache_flow(size);
    ac_tally_add(&cache->tally->moved_blocks[flow], (uint64_t)blocks);
    ac_tally_add(&cache->tally->moved_bytes[flow], (uint64_t)blocks * size);
}

/* Returns the entry for a block of the key that is freed now.  NULL: the key is refused, or has none. */
ac_entry_t *ac_cache_keeps(ac_cache_t *cache, uint64_t key);

/* Makes room for a block of the key that was freed, by a lease or a sweep if needed.  Returns its entry.
 * NULL: the block is not kept; sizes that were not requested repeatedly are more useful coalesced. */
ac_entry_t *ac_cache_make_room(ac_cache_t *cache, uint64_t key);

/* Adds the block to the entry, which has room. */
void ac_cache_put(ac_cache_t *cache, ac_entry_t *entry, ac_block_t *block);

/* Moves ready blocks of the entry to the free memory, or to the list of their stream, until the cache has
 * `room`.  Returns true if there were any. */
bool ac_cache_shrink(ac_cache_t *cache, ac_entry_t *entry, int64_t room);

/* Moves all blocks of the stream with that number to its list.  With `forget`, also removes the entries. */
void ac_cache_leave_stream(ac_cache_t *cache, uint64_t number, bool forget);

/* Moves all ready blocks of small or of large sizes to the free memory.  Returns true if there were any.
 * Called by the owner. */
bool ac_cache_empty(ac_cache_t *cache, int flow);

/* Moves ready blocks of large sizes of up to `largest`, in powers of two, to the free memory, the largest
 * first, until at least `bytes` went.  Returns true if any did.  Called by the owner. */
bool ac_cache_give_way(ac_cache_t *cache, uint64_t largest, uint64_t bytes);

/* Calls `act` for all entries of small or of large plain sizes, or with AC_FLOWS of streams, that may have
 * blocks.  Returns true if a call did. */
bool ac_cache_each(ac_cache_t *cache, int flow, bool act(ac_cache_t *, ac_entry_t *));

/* --- lease.c --- */

/* Resets the budget of an empty cache: gives leases back. */
void ac_cache_set_budget(ac_cache_t *cache);

/* Leases room for the last block.  With `some`, takes less if there is not enough.  Returns true if the cache
 * has room now. */
bool ac_cache_lease(ac_cache_t *cache, bool some);

/* Leases up to `bytes` of room.  Returns true if there was any. */
bool ac_cache_lease_for(ac_cache_t *cache, uint64_t bytes);

/* --- lane.c --- */

/* Gives a cache that is not used yet the memory of `lanes`, cleared.  NULL: it gets some later. */
void ac_lanes_begin(ac_cache_t *cache, ac_lanes_t *lanes);

/* Closes all lanes of the cache. */
void ac_lanes_close(ac_cache_t *cache);

/* Adds what the lanes did since the last call to the figures of their memory pool. */
void ac_lanes_absorb(ac_cache_t *cache);

/* --- cache_wait.c --- */

/* Sets the blocks that are yet to be placed.  Called by the owner inside, or while the owner keeps out. */
static inline void ac_cache_set_unplaced(ac_cache_t *cache, ac_block_t *block) {
    atomic_store_explicit(&cache->unplaced, block, memory_order_relaxed);
}

/* Enters the cache after ac_cache_enter failed.  Returns false if the cache is recalled or gone. */
bool ac_cache_enter_long(ac_cache_t *cache);

/* Moves all waiting blocks that became ready to the ready blocks of their entries, regardless of room.
 * Called by the owner inside, or while the owner keeps out. */
void ac_cache_ripen(ac_cache_t *cache);

/* Moves waiting blocks of the entry that became ready to its ready blocks: at least one, and more while there
 * is room.  Returns true if there were any.  Called by the owner inside, or while the owner keeps out. */
bool ac_cache_gather(ac_cache_t *cache, ac_entry_t *entry);

/* Moves a waiting block, which is in no list of the cache any more, to the ledger, or to the free memory if its
 * epoch is at most `reached`. */
void ac_cache_leave_waiting(ac_cache_t *cache, ac_block_t *block, uint64_t reached);

/* Moves waiting blocks of the entry that became ready to the free memory.  With `all`, moves the others to the
 * ledger.  Returns true if there were any. */
bool ac_cache_unpark(ac_cache_t *cache, ac_entry_t *entry, bool all);

#endif
