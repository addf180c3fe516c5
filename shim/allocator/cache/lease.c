/* The budget of thread caches, and their leases from the device's budget (thread_cache.h). */
#include "allocator/policy.h"
#include "allocator/cache/cache_int.h"

#define LEASE ((uint64_t)1 << 20)

static uint64_t limit_of(const ac_allocator_t *allocator) {
    uint64_t most = allocator->settings.thread_cache;
    return most < AC_CACHE_KEPT ? most : AC_CACHE_KEPT;
}

uint64_t ac_caches_allowance(const ac_allocator_t *allocator, bool waits, bool ordered) {
    uint64_t floor = ac_budget_floor(&allocator->settings, AC_BUDGET_WAIT);
    uint64_t live = ordered && allocator->high_water < floor ? floor : allocator->high_water;
    uint64_t most = live + 2 * limit_of(allocator);
    return waits && most < floor ? floor : most;
}

void ac_cache_set_budget(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    uint64_t limit = limit_of(allocator);
    allocator->caches->leased -= cache->leased;
    cache->leased = 0;
    cache->narrow = false;
    cache->budget = limit < AC_CACHE_OWN ? limit : AC_CACHE_OWN;
    cache->room = (int64_t)cache->budget;
}

/* Returns the bytes that the cache may still lease. */
static uint64_t left_for(const ac_cache_t *cache) {
    const ac_allocator_t *allocator = cache->arena->allocator;
    uint64_t limit = limit_of(allocator), own = limit < AC_CACHE_OWN ? limit : AC_CACHE_OWN;
    uint64_t leased = allocator->caches->leased;
    uint64_t held = ac_cache_tally_held(cache->tally, 0) + ac_cache_tally_held(cache->tally, 1);
    return held < AC_CACHE_BLOCKS && leased < limit - own ? limit - own - leased : 0;
}

static void lease(ac_cache_t *cache, uint64_t more) {
    cache->arena->allocator->caches->leased += more;
    cache->leased += more;
    cache->budget += more;
    cache->room += (int64_t)more;
}

bool ac_cache_lease(ac_cache_t *cache, bool some) {
    uint64_t more = (uint64_t)-cache->room / LEASE * LEASE + LEASE, left = left_for(cache);
    if (more > left && some)
        more = left / LEASE * LEASE;
    if (!left || more > left)
        return false;
    lease(cache, more);
    return cache->room >= 0;
}

bool ac_cache_lease_for(ac_cache_t *cache, uint64_t bytes) {
    uint64_t more = (bytes + LEASE - 1) / LEASE * LEASE, left = left_for(cache) / LEASE * LEASE;
    more = more < left ? more : left;
    lease(cache, more);
    return more;
}
