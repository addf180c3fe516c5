/* What the ladder asks of the caches of threads (thread_cache.h).  Under the allocator's lock, but
 * where it says that a function takes it. */
#ifndef AC_CACHES_H
#define AC_CACHES_H

#include "allocator/cache/thread_cache.h"
#include "allocator/core_int.h"
#include "allocator/space/mempool.h"

/* Of an allocator. */
struct ac_caches {
    ac_cache_t *first, *spare;
    ac_cache_t *gone;  /* of dead arenas, until their owners close them */
    uint64_t leased;   /* bytes, of all budgets */
    ac_cache_t *awake; /* of the list, by awake_next: those that have headroom, or had some lately */
    uint64_t raised;        /* another one with each raise of peaks; odd but at first: no pointer */
    _Atomic unsigned count; /* of the list */
    unsigned mempool;       /* of lanes; 0: there were none so far */
    bool frozen;            /* between _freeze and _thaw: a cache that opens is shut */
    ac_mutex_t recall_lock; /* one recall at a time; rank: before the allocator's */
};

/* Absorbs the tallies of all caches that are awake, and raises the peaks to what the figures are
 * now.  `own`: the caller's cache; NULL: none. */
void ac_caches_raise(ac_allocator_t *allocator, ac_cache_t *own);

/* Raises the peaks if they are due.  Called after figures may have risen under the lock. */
static inline void ac_caches_check_peaks(ac_allocator_t *allocator, ac_cache_t *own) {
    if (allocator->peaks_due)
        ac_caches_raise(allocator, own);
}

/* Before a block of the memory pool is given: what the program's synchronisations since did to its
 * figures, they did to what they were before. */
static inline void ac_caches_settle_pool(ac_allocator_t *allocator, unsigned mempool) {
    if (mempool && mempool == allocator->caches->mempool &&
        allocator->mempools[mempool].syncs != atomic_load(&ac_mempool_syncs))
        ac_caches_raise(allocator, NULL);
}

/* Absorb the tallies of all caches, as who reads the statistics does; *sum is what they held and
 * did since. */
void ac_caches_absorb(ac_allocator_t *allocator, ac_cache_sum_t *sum);

/* Add what modules were handed and gave back in all caches; owners may go on. */
void ac_caches_modules(const ac_allocator_t *allocator, ac_modules_t *modules);

/* The same as _absorb, and peaks begin anew. */
void ac_caches_reset_peak(ac_allocator_t *allocator);

/* The block, which was released and counted finished, stays in the cache.  False: no room. */
bool ac_cache_keep(ac_cache_t *cache, ac_block_t *block);

/* Whether the size, which has no entry, was asked for lately.  From now on it was.  A word has the
 * tags of four sizes, the newest in its lowest bits: they leave by age. */
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

/* Whether the cache may keep the size from now on.  Not `known`: the owner looked, and the size has
 * no entry. */
AC_CACHE_HOT bool ac_cache_may_keep(ac_cache_t *cache, uint64_t size, bool known) {
    return size <= AC_CACHE_LARGEST && cache->budget && (known || ac_cache_was_seen(cache, size));
}

/* The same for a cache that is NULL or not usable, too. */
AC_CACHE_HOT bool ac_cache_may_expect(ac_cache_t *cache, uint64_t size, bool known) {
    return ac_cache_usable(cache) && ac_cache_may_keep(cache, size, known);
}

/* After it: a block of the size was served from the pool, so there may be more such requests, and
 * frees. */
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

/* Whether the owner may be served with blocks as a hit would, and keep them. */
static inline bool ac_cache_owns_any(const ac_cache_t *cache) {
    return ac_cache_usable(cache) && cache->owner_arena;
}

/* Then: the block, which was cut (ac_segment_carve), is of that size and plain, serves it as a hit
 * would. */
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

/* Free the block, which is allocated and ready, `by_order` by its stream alone, as a hit would where
 * only the lock can.  False: it is not the cache's to take. */
bool ac_cache_take_back(ac_cache_t *cache, ac_block_t *block, bool by_order);

/* Lock the allocator of a block that the cache's owner found at `address` without it.  False: it
 * is not there any more. */
bool ac_cache_lock_found(const ac_cache_t *cache, const ac_block_t *block, uint64_t address);

/* Returns the reserved bytes up to which a request grows rather than take back what threads keep: the
 * high-water mark, and twice what threads may keep: blocks that are kept in pieces are in the way of as
 * much again.  If some memory `waits`, at least what a program may hold before it waits.  An `ordered`
 * request, which names a stream, adds what threads may keep to that: the blocks of other streams wait. */
uint64_t ac_caches_allowance(const ac_allocator_t *allocator, bool waits, bool ordered);

/* Whether what threads keep is much beside what the program holds. */
static inline bool ac_cache_weighs(const ac_cache_t *cache) {
    return cache->arena->allocator->high_water <= 32 * AC_CACHE_KEPT;
}

/* A request of such a size finds the large blocks of its cache in its way, and those beside them
 * are the better place for it.  Not so in a small program, where most requests may be such. */
#define AC_CACHE_CLEAR ((uint64_t)8 << 20)

static inline bool ac_cache_is_in_way(const ac_cache_t *cache, uint64_t size) {
    return size > AC_CACHE_CLEAR && !ac_cache_weighs(cache) && ac_cache_usable(cache);
}

/* The owner's request of the size found no free memory: ready blocks go back, small ones or large
 * ones as the size is.  Where the cache weighs (ac_cache_weighs) what is ready beyond its budget, and
 * with `all` so many bytes of the rest, in sizes of up to `largest`; else all that are ready.  True if
 * there was any: it may be called again. */
bool ac_cache_flush(ac_cache_t *cache, uint64_t size, uint64_t largest, bool all);

/* Blocks that the owner gave away without the lock go to the free memory now: where there are any
 * (ac_cache_is_untidy).  With `request` so do those that are to go back to another cache and were not
 * posted yet (inbox.h), which the owner's own request may be served with. */
void ac_cache_tidy(ac_cache_t *cache, bool request);

/* The same for all that the cache holds: what is not ready becomes pending. */
bool ac_cache_leave_all(ac_cache_t *cache);

/* Returns true if a cache other than `own` holds anything. */
bool ac_caches_hold(const ac_allocator_t *allocator, const ac_cache_t *own);

/* What all caches hold goes back to the free memory.  `own`: the caller's cache, NULL: none or
 * not known.  True if there was any.  Without the lock. */
bool ac_caches_recall(ac_allocator_t *allocator, ac_cache_t *own);

/* The same, and it returns with the lock: no other thread can have taken what
 * came back. */
void ac_caches_recall_lock(ac_allocator_t *allocator, ac_cache_t *own);

/* The same, and all caches learn of settings that have changed. */
void ac_caches_settle(ac_allocator_t *allocator);

/* Between the two all owners keep out of their caches, and the lock is held.  False: but for one
 * that was in it and did not come out, or may be. */
bool ac_caches_freeze(ac_allocator_t *allocator);
/* The same, and one that is kept from running is waited for, half a second with naps between. */
bool ac_caches_freeze_patiently(ac_allocator_t *allocator);
void ac_caches_thaw(ac_allocator_t *allocator);

/* Between them: the caches of the arena hold nothing any more. */
void ac_caches_empty(ac_arena_t *arena);

/* The arena is dead: its caches lose what they hold, and serve no more.  Without the lock. */
void ac_caches_drop(ac_arena_t *arena);

#endif
