/* The tally of thread caches (thread_cache.h): peaks, and what the device statistics absorb.
 *
 * The device statistics have what was counted under the lock, and what they absorbed of each tally.
 * What an owner did since then is in its tally alone.
 *
 * The exact peak: allocated bytes of all pools, which every budget starts from.  The figure may rise to
 * `peak_bound`.  A cache is granted part of that as *headroom*, which lowers the bound; hits take from
 * it, frees add to it.  When it is used up the peaks are raised: all caches that are awake are absorbed.
 *
 *     allocated + sum over the caches that are awake (not absorbed yet + headroom)  <=  peak + E
 *
 * E is 0 with one cache, and max(AC_CACHE_MISSED, peak / AC_CACHE_MISSED_SHARE) with several.  So the
 * peak is never above the true one, and below it by no more than E.  Raising puts all caches but the
 * caller's to rest: they have lost their headroom, and ask for some before they do anything.  So what
 * raising costs depends on how many threads were active since, not on how many caches there are.  A cache
 * that ends beside others returns its headroom and leaves them theirs, or all would ask for the lock.
 *
 * The peaks of all other figures follow when all caches are absorbed at once: absorbing one alone would
 * show blocks that another thread freed as held.  A figure that rises far above its peak makes that due,
 * under the lock (ac_stat_pools_rise) or through a cache (ac_cache_show).
 *
 * A hit that another thread is in while peaks are raised shows when they are raised again, with its
 * thread's next operation, or in the next reading: a peak of just that moment may lack it.  To see
 * it at once would take a heavy barrier each time, and waiting for it.
 */
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

/* Grants what the cache, which is awake, lacks to have so many bytes, and more, up to half of what the
 * bound leaves.  False: the bound does not leave enough. */
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

/* Puts all caches that are awake to rest, but for `own`, which only loses its headroom.  Before any tally
 * is looked at: what one thread gave and another took is never seen in both. */
static void put_to_rest(ac_caches_t *caches, ac_cache_t *own) {
    for (ac_cache_t *cache = caches->awake; cache; cache = cache->awake_next) {
        cache->was_awake = is_awake(cache);
        if (cache == own)
            lose_headroom(cache);
        else if (cache->was_awake && !AC_FAILPOINT(room_kept))
            atomic_fetch_or(&cache->gate, AC_GATE_RESTS);
    }
}

/* The owner may be in a hit that does not show yet. */
static bool is_in_hit(const ac_cache_t *cache) {
    return atomic_load_explicit(&cache->busy, memory_order_acquire) ||
           !ac_cache_tally_absorbed(cache->tally);
}

static uint64_t share_of(const ac_allocator_t *allocator) {
    return ac_budget_fence(&allocator->settings, allocator->high_water);
}

/* The device statistics have the tallies: peaks follow.  The next raise looks once more at a cache that
 * was put to rest just now, for a hit that did not show yet. */
static void raise_peaks(ac_allocator_t *allocator, ac_cache_t *own) {
    ac_caches_t *caches = allocator->caches;
    /* What is in chains brings no headroom any more: the bound is set as if there were none. */
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
    /* The caller's in any case: what was absorbed in the midst of a hit may lack some of it, and the
     * tally ends with the cache. */
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

/* `waiting`: growth of what waits, which is active.  It may be below 0, if more waited before. */
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

/* Absorbs the cache, which is awake, while the others keep their headroom.  The bound rises by what was
 * granted to the cache: by its headroom, and by what allocated bytes grew by. */
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
    ac_cache_wake(cache); /* now it shows what it did */
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
    if (!ac_cache_tally_absorbed(cache->tally)) /* a hit that was under way */
        ac_caches_raise(allocator, cache);
}

void ac_cache_count_ready(ac_cache_t *cache, int flow, const ac_cache_wait_t *ready) {
    ac_cache_side_t *side = &cache->tally->side[flow];
    ac_tally_add(&side->waiting.blocks, -ready->blocks);
    ac_tally_add(&side->waiting.bytes, -ready->bytes);
    ac_tally_add(&side->waiting.requested, -ready->requested);
}
