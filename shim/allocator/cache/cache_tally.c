/* The tally of thread caches (thread_cache.h): peaks, and the updates of the device statistics.
 *
 * The device statistics contain the operations under the lock, and the absorbed part of each tally.  An owner's
 * operations since then are only in its tally.
 *
 * The exact peak is that of allocated bytes of all pools, because all budgets are computed from it.  The figure may
 * rise to `peak_bound`.  A cache is granted part of that as *headroom*, which lowers the bound.  Hits take from
 * the headroom, and frees add to it.  When it is used up, the peaks are raised: all awake caches are absorbed.
 *
 *     allocated + sum over the caches that are awake (not absorbed yet + headroom)  <=  peak + E
 *
 * E is 0 with one cache, and max(AC_CACHE_MISSED, peak / AC_CACHE_MISSED_SHARE) with several.  Therefore the
 * peak is never above the true one, and at most E below it.  A raise puts all caches except the caller's to rest.
 * A cache at rest has lost its headroom, and asks for some before its next operation.  The cost of a raise
 * depends on the number of threads that were active since the last one, not on the number of caches.  A cache
 * that ends while others are awake returns its own headroom only.  Otherwise all others would need the lock.
 *
 * The peaks of all other figures follow when all caches are absorbed at once.  Absorbing a single one would show
 * blocks that another thread freed as held.  This is due when a figure rises far above its peak, under the
 * lock (ac_stat_pools_rise) or through a cache (ac_cache_show).
 *
 * A hit may be in progress in another thread during a raise.  It is counted at the next raise, at that thread's
 * next operation, or at the next reading.  So a peak at exactly that moment may lack it.  To count it at once
 * would take a heavy barrier and a wait at each raise. */
#include "allocator/policy.h"
#include "allocator/cache/cache_int.h"
#include "failpoint.h"

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void set_bound(ac_allocator_t *allocator) {
    int64_t peak = allocator->stats->allocated_bytes[AC_POOL_ALL].peak;
    bool exact = atomic_load(&allocator->caches->count) <= 1;
    allocator->peak_bound =
        peak + (exact ? 0 : most(AC_CACHE_MISSED, peak / AC_CACHE_MISSED_SHARE));
    allocator->peaks_due = false;
}

/* --- headroom --- */

static bool is_awake(const ac_cache_t *cache) {
    return !(atomic_load(&cache->gate) & (AC_GATE_RESTS | AC_GATE_GONE));
}

/* Grants headroom to an awake cache, so that it has at least `bytes`.  It grants more, up to half of the rest of the
 * bound.  Returns false if the bound does not leave enough. */
static bool grant(ac_cache_t *cache, int64_t bytes) {
    ac_allocator_t *allocator = cache->arena->allocator;
    int64_t left = allocator->peak_bound - allocator->stats->allocated_bytes[AC_POOL_ALL].current;
    int64_t lacking = bytes - cache->headroom;
    if (lacking <= 0)
        return true;
    if (left < lacking)
        return false;
    int64_t more = most(left / 2, lacking);
    allocator->peak_bound -= more;
    cache->headroom += more;
    return true;
}

bool ac_cache_obtain(ac_cache_t *cache, uint64_t size) {
    if (!ac_cache_usable(cache))
        return false;
    if (!is_awake(cache))
        ac_cache_wake(cache);
    return grant(cache, (int64_t)size);
}

static void lose_headroom(ac_cache_t *cache) {
    cache->headroom = 0;
    cache->unseen[0] = cache->unseen[1] = AC_CACHE_UNSEEN;
}

/* --- raising peaks --- */

/* Puts all awake caches to rest, except `own`, which only loses its headroom.  It comes before any tally is read, so
 * that a block which one thread gave and another took is never counted in both. */
static void put_to_rest(ac_caches_t *caches, ac_cache_t *own) {
    for (ac_cache_t *cache = caches->awake; cache; cache = cache->awake_next) {
        cache->was_awake = is_awake(cache);
        if (cache == own)
            lose_headroom(cache);
        else if (cache->was_awake && !AC_FAILPOINT(room_kept))
            atomic_fetch_or(&cache->gate, AC_GATE_RESTS);
    }
}

/* Returns true if the owner may be in a hit that is not counted yet. */
static bool is_in_hit(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->busy, memory_order_acquire) ||
           !ac_cache_tally_absorbed(cache->tally);
}

static uint64_t share_of(const ac_allocator_t *allocator) {
    return ac_budget_fence(&allocator->settings, allocator->high_water);
}

/* Raises the peaks after the tallies were absorbed.  A cache that was just put to rest stays in the list for the next
 * raise, because it may have a hit that is not counted yet. */
static void raise_peaks(ac_allocator_t *allocator, ac_cache_t *own) {
    ac_caches_t *caches = allocator->caches;
    /* Blocks in chains bring no headroom after this, because the new bound does not include it. */
    caches->raised = (caches->raised + 1) | 1;
    ac_stats_raise(allocator->stats);
    uint64_t live = (uint64_t)allocator->stats->allocated_bytes[AC_POOL_ALL].current;
    if (live > allocator->high_water)
        allocator->high_water = live;
    set_bound(allocator);
    if (own) {
        own->live_share = share_of(allocator);
        own->raised = allocator->caches->raised;
    }
    if (caches->mempool)
        ac_mempool_raise(&allocator->store, caches->mempool);
    for (ac_cache_t **at = &caches->awake, *cache; (cache = *at);)
        if (cache == own || cache->was_awake || is_in_hit(cache)) {
            at = &cache->awake_next;
        } else {
            *at = cache->awake_next;
            cache->listed = false;
        }
}

void ac_caches_raise(ac_allocator_t *allocator, ac_cache_t *own) {
    ac_cache_sum_t sum = {.ordered = 0};
    bool any = false;
    put_to_rest(allocator->caches, own);
    /* The caller's cache is absorbed in any case.  An earlier absorption in the middle of a hit may lack part of the
     * hit, and the tally ends with the cache. */
    for (ac_cache_t *cache = allocator->caches->awake; cache; cache = cache->awake_next)
        if (cache == own || !ac_cache_tally_absorbed(cache->tally)) {
            ac_cache_tally_add(cache->tally, true, &sum);
            ac_lanes_absorb(cache);
            any = true;
        }
    if (any)
        ac_stats_absorb(allocator->stats, allocator->counters, &sum);
    raise_peaks(allocator, own);
}

/* Returns true if a figure grew far.  `waiting`: growth of waiting blocks, which are active; negative if they became
 * fewer. */
static inline bool is_far(uint64_t growth, uint64_t waiting, int64_t unseen) {
    return (int64_t)growth > unseen || (int64_t)(growth + waiting) > unseen;
}

void ac_cache_show(ac_cache_t *cache, int flow) {
    const ac_allocator_t *allocator = cache->arena->allocator;
    int64_t share = AC_CACHE_UNSEEN_SHARE * (int64_t)atomic_load(&allocator->caches->count);
    int64_t bytes = most(AC_CACHE_UNSEEN, allocator->stats->allocated_bytes[AC_POOL_ALL].peak / share);
    const ac_cache_tally_t *tally = cache->tally;
    const ac_cache_flow_t *now = &tally->side[flow].flow, *then = &tally->absorbed[flow];
    const ac_cache_wait_t *waits = &tally->side[flow].waiting;
    const ac_cache_wait_t *waited = &tally->waiting_absorbed[flow];
    cache->unseen[flow] = AC_CACHE_UNSEEN;
    if (is_far(now->taken - then->taken - now->given + then->given, waits->blocks - waited->blocks,
               AC_CACHE_UNSEEN_BLOCKS) ||
        is_far(now->taken_bytes - then->taken_bytes - now->given_bytes + then->given_bytes,
               waits->bytes - waited->bytes, bytes) ||
        is_far(now->taken_requested - then->taken_requested - now->given_requested +
                   then->given_requested,
               waits->requested - waited->requested, bytes))
        ac_caches_raise(cache->arena->allocator, cache);
}

bool ac_cache_raise(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    ac_cache_wake(cache); /* another thread may have raised the peaks just now */
    if (!ac_cache_is_gone(cache) && !grant(cache, 0))
        ac_caches_raise(allocator, cache);
    ac_unlock(&allocator->lock);
    return true;
}

/* --- the end of a cache --- */

/* Absorbs an awake cache, while the others keep their headroom.  The bound rises by the bytes that were granted to the
 * cache: its headroom, and the growth of allocated bytes. */
static void settle(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    const ac_stat_t *allocated = &allocator->stats->allocated_bytes[AC_POOL_ALL];
    ac_cache_sum_t sum = {.ordered = 0};
    int64_t before = allocated->current;
    ac_cache_tally_add(cache->tally, true, &sum);
    ac_stats_absorb(allocator->stats, allocator->counters, &sum);
    allocator->peak_bound += cache->headroom + allocated->current - before;
    lose_headroom(cache);
}

void ac_cache_tally_end(ac_cache_t *cache) {
    const ac_cache_t *awake = cache->arena->allocator->caches->awake;
    ac_cache_wake(cache); /* absorbs operations that were not counted */
    if (cache->lanes || !awake || (awake == cache && !cache->awake_next))
        ac_caches_raise(cache->arena->allocator, cache);
    else
        settle(cache);
}

void ac_caches_absorb(ac_allocator_t *allocator, ac_cache_sum_t *sum) {
    *sum = (ac_cache_sum_t){.ordered = 0};
    put_to_rest(allocator->caches, NULL);
    for (ac_cache_t *cache = allocator->caches->first; cache; cache = cache->next) {
        ac_cache_tally_add(cache->tally, true, sum);
        ac_lanes_absorb(cache);
    }
    ac_stats_absorb(allocator->stats, allocator->counters, sum);
    raise_peaks(allocator, NULL);
}

void ac_caches_modules(const ac_allocator_t *allocator, ac_modules_t *modules) {
    const ac_cache_t *lists[] = {allocator->caches->first, allocator->caches->gone};
    for (int i = 0; i < 2; i++)
        for (const ac_cache_t *cache = lists[i]; cache; cache = cache->next)
            ac_cache_tally_modules(cache->tally, modules);
}

void ac_caches_reset_peak(ac_allocator_t *allocator) {
    ac_cache_sum_t sum;
    ac_caches_absorb(allocator, &sum);
    ac_stats_reset_peak(allocator->stats);
    set_bound(allocator);
}

void ac_cache_wake(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    if (is_awake(cache) || ac_cache_is_gone(cache))
        return;
    lose_headroom(cache);
    cache->raised = allocator->caches->raised;
    cache->share = cache->live_share = share_of(cache->arena->allocator);
    if (!cache->listed) {
        cache->awake_next = allocator->caches->awake;
        allocator->caches->awake = cache;
        cache->listed = true;
    }
    atomic_fetch_and(&cache->gate, ~(uint32_t)AC_GATE_RESTS);
    if (!ac_cache_tally_absorbed(cache->tally)) /* a hit that was in progress */
        ac_caches_raise(allocator, cache);
}

void ac_cache_count_ready(ac_cache_t *cache, int flow, const ac_cache_wait_t *ready) {
    ac_cache_side_t *side = &cache->tally->side[flow];
    ac_tally_add(&side->waiting.blocks, -ready->blocks);
    ac_tally_add(&side->waiting.bytes, -ready->bytes);
    ac_tally_add(&side->waiting.requested, -ready->requested);
}
