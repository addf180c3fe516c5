/* The ladder's view of thread caches (thread_cache.h).  Callers hold the allocator's lock, unless a comment
 * says that the function takes it. */
#ifndef AC_CACHES_H
#define AC_CACHES_H

#include "allocator/cache/thread_cache.h"
#include "allocator/core_int.h"
#include "allocator/space/mempool.h"

/* The caches of an allocator. */
struct ac_caches {
    ac_cache_t *first, *spare;
    ac_cache_t *gone;  /* of dead arenas, until their owners close them */
    uint64_t leased;   /* bytes of all budgets */
    ac_cache_t *awake; /* caches that have headroom, or had some recently; a list by awake_next */
    uint64_t raised;        /* changes with each raise of peaks; odd, but 0 at first: never a pointer */
    _Atomic unsigned count; /* caches in the list */
    unsigned mempool;       /* memory pool of the lanes; 0: no lane existed so far */
    bool frozen;            /* set between _freeze and _thaw: a cache that opens is shut */
    ac_mutex_t recall_lock; /* one recall at a time; rank: before the allocator's */
};

/* Absorbs the tallies of all caches that are awake, and raises the peaks to the current figures.
 * `own`: the caller's cache; NULL: none. */
void ac_caches_raise(ac_allocator_t *allocator, ac_cache_t *own);

/* Raises the peaks if they are due.  Called after figures may have risen under the lock. */
static inline void ac_caches_check_peaks(ac_allocator_t *allocator, ac_cache_t *own) {
    if (allocator->peaks_due)
        ac_caches_raise(allocator, own);
}

/* Raises the pool's figures before a block of it is freed, if the program synchronised since the last raise.
 * Those synchronisations apply to the figures from before this free. */
static inline void ac_caches_settle_pool(ac_allocator_t *allocator, unsigned mempool) {
    if (mempool && mempool == allocator->caches->mempool &&
        allocator->mempools[mempool].syncs != atomic_load(&ac_mempool_syncs))
        ac_caches_raise(allocator, NULL);
}

/* Absorbs the tallies of all caches, for a reader of the statistics.  *sum gets what the caches hold, and
 * what they did since the last time. */
void ac_caches_absorb(ac_allocator_t *allocator, ac_cache_sum_t *sum);

/* Adds what modules took from all caches and gave back to them.  Owners may use their caches meanwhile. */
void ac_caches_modules(const ac_allocator_t *allocator, ac_modules_t *modules);

/* Absorbs the tallies of all caches, and resets peaks to the current values. */
void ac_caches_reset_peak(ac_allocator_t *allocator);

/* Keeps the block, which was released and counted finished, in the cache.  Returns false if there is no
 * room. */
bool ac_cache_keep(ac_cache_t *cache, ac_block_t *block);

/* Notes a request of the size, which has no entry.  Returns true if the size was requested recently.  A word
 * has the tags of four sizes, the newest in its lowest bits: the oldest leaves first. */
AC_CACHE_HOT bool ac_cache_was_seen(ac_cache_t *cache, uint64_t size) {
    const uint64_t each = 0x0001000100010001u, hash = size * 0x9e3779b97f4a7c15u;
    uint64_t *word = &cache->seen[hash >> (64 - AC_CACHE_SEEN_BITS)];
    uint64_t tag = (hash >> 32 & 0xffff) | 1; /* 0: none */
    uint64_t differs = *word ^ tag * each;    /* has 0 in the place of the tag */
    if ((differs - each) & ~differs & each << 15)
        return true;
    *word = *word << 16 | tag;
    return false;
}

/* Returns true if the cache may keep the size from now on.  `known` is false if the size has no entry. */
AC_CACHE_HOT bool ac_cache_may_keep(ac_cache_t *cache, uint64_t size, bool known) {
    return size <= AC_CACHE_LARGEST && cache->budget && (known || ac_cache_was_seen(cache, size));
}

/* Calls ac_cache_may_keep if the cache is not NULL and usable.  Returns false otherwise. */
AC_CACHE_HOT bool ac_cache_may_expect(ac_cache_t *cache, uint64_t size, bool known) {
    return ac_cache_usable(cache) && ac_cache_may_keep(cache, size, known);
}

/* Prepares the cache for more requests of the size, after the pool served one and ac_cache_may_keep was
 * true: makes an entry, lets a refused size in again, fetches small blocks. */
void ac_cache_expect(ac_cache_t *cache, int pool, uint64_t size, bool known);

/* Returns whether the cache has, or is granted, headroom for `size` bytes. */
bool ac_cache_obtain(ac_cache_t *cache, uint64_t size);
AC_CACHE_HOT bool ac_cache_affords(ac_cache_t *cache, uint64_t size) {
    const uint32_t never = AC_GATE_RECALLED | AC_GATE_GONE | AC_GATE_RESTS;
    return (!(ac_cache_gate(cache) & never) && cache->headroom >= (int64_t)size) ||
           ac_cache_obtain(cache, size);
}

/* Raises the peaks if the pool of small or large sizes grew by more than AC_CACHE_UNSEEN through the
 * cache. */
void ac_cache_show(ac_cache_t *cache, int flow);

/* Returns true if the owner may be served as by a hit, and may keep blocks. */
static inline bool ac_cache_owns_any(const ac_cache_t *cache) {
    return ac_cache_usable(cache) && cache->owner_arena;
}

/* Serves the owner with the block as a hit would.  The block was carved (ac_segment_carve), has that size and
 * is plain; ac_cache_owns_any and ac_cache_affords were true. */
AC_CACHE_HOT void ac_cache_serve_cut(ac_cache_t *cache, ac_block_t *block, uint64_t size,
                                     uint64_t bytes) {
    size_t flow = (size_t)ac_cache_flow(size);
    ac_cache_side_t *side = &cache->tally->side[flow];
    block->home = cache;
    block->segment->allocated++;
    ac_cache_note_last(cache, block, ac_cache_entry(cache, size));
    ac_cache_hand_out(cache, side, block, cache->asks, size, bytes, ac_fence_handout);
    ac_tally_add(&cache->tally->moved_blocks[flow], 1);
    ac_tally_add(&cache->tally->moved_bytes[flow], size);
    cache->headroom -= (int64_t)size; /* there is so much (ac_cache_affords) */
    if (__builtin_expect((cache->unseen[flow] -= AC_CACHE_WEIGHT(size)) < 0, 0))
        ac_cache_show(cache, (int)flow);
}

/* Frees the block, which is allocated and ready, as a hit would.  `by_order`: ready for its stream alone.
 * Returns false if the cache may not have it. */
bool ac_cache_take_back(ac_cache_t *cache, ac_block_t *block, bool by_order);

/* Locks the allocator of a block that the cache's owner found at `address` without the lock.  Returns false,
 * unlocked, if the block is not there any more. */
bool ac_cache_lock_found(const ac_cache_t *cache, const ac_block_t *block, uint64_t address);

/* Returns the reserved bytes up to which a request grows rather than take back what threads keep: the
 * high-water mark, and twice what threads may keep: blocks that are kept in pieces are in the way of as
 * much again.  If some memory `waits`, at least what a program may hold before it waits.  An `ordered`
 * request, which names a stream, adds what threads may keep to that: the blocks of other streams wait. */
uint64_t ac_caches_allowance(const ac_allocator_t *allocator, bool waits, bool ordered);

/* Returns true if thread caches may hold a large share of the program's memory: more than 1/32 of its
 * high-water mark. */
static inline bool ac_cache_weighs(const ac_cache_t *cache) {
    return cache->arena->allocator->high_water <= 32 * AC_CACHE_KEPT;
}

/* A request that is larger should be carved from coalesced free memory.  Cached large blocks prevent
 * coalescing, so they are flushed first.  A small program skips this: most of its requests may be that large. */
#define AC_CACHE_CLEAR ((uint64_t)8 << 20)

static inline bool ac_cache_is_in_way(const ac_cache_t *cache, uint64_t size) {
    return size > AC_CACHE_CLEAR && !ac_cache_weighs(cache) && ac_cache_usable(cache);
}

/* Gives ready blocks back, after a request of the size found no free memory: small blocks for a small size,
 * else large ones.  If the cache weighs (ac_cache_weighs), only blocks beyond its budget go, and with `all`
 * also `size` bytes of the rest, in sizes of up to `largest`.  Returns true if any block went: a caller may
 * call again. */
bool ac_cache_flush(ac_cache_t *cache, uint64_t size, uint64_t largest, bool all);

/* Moves loose and unplaced blocks to the free memory, if there are any (ac_cache_is_untidy).  With `request`,
 * also moves blocks that were to be posted to another cache (inbox.h): they may serve the owner's request. */
void ac_cache_tidy(ac_cache_t *cache, bool request);

/* Moves all blocks of the cache to the free memory, or to the ledger if they wait.  Returns true if there
 * were any. */
bool ac_cache_leave_all(ac_cache_t *cache);

/* Returns true if a cache other than `own` holds anything. */
bool ac_caches_hold(const ac_allocator_t *allocator, const ac_cache_t *own);

/* Recalls all caches: their blocks go to the free memory, or to the ledger if they wait.  `own`: the caller's
 * cache; NULL: none, or not known.  Returns true if there were any blocks.  Takes the lock. */
bool ac_caches_recall(ac_allocator_t *allocator, ac_cache_t *own);

/* Recalls all caches, and returns with the lock: no other thread can take the blocks before the caller. */
void ac_caches_recall_lock(ac_allocator_t *allocator, ac_cache_t *own);

/* Recalls all caches after settings changed, so that the caches use the new ones.  Takes the lock. */
void ac_caches_settle(ac_allocator_t *allocator);

/* Keeps all owners out of their caches until _thaw, and takes the lock.  Returns false if an owner did not
 * come out, or may not have: _thaw is due all the same. */
bool ac_caches_freeze(ac_allocator_t *allocator);
/* Freezes caches, and waits up to half a second for owners that are kept from running. */
bool ac_caches_freeze_patiently(ac_allocator_t *allocator);
void ac_caches_thaw(ac_allocator_t *allocator);

/* Empties the caches of the arena, between _freeze and _thaw. */
void ac_caches_empty(ac_arena_t *arena);

/* Called when the arena is dead: its caches forget their blocks and serve nothing any more.  Takes the lock. */
void ac_caches_drop(ac_arena_t *arena);

#endif
