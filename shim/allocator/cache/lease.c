/* The budget of thread caches, and what they lease of the device's (thread_cache.h). */
#include "allocator/budget.h"
#include "allocator/cache/cache_int.h"

#define LEASE ((uint64_t)1 << 20)

static uint64_t limit_of(const ac_allocator_t *allocator) {
    uint64_t most = allocator->settings.thread_cache;
    return most < AC_CACHE_KEPT ? most : AC_CACHE_KEPT;
}

uint64_t ac_caches_allowance(const ac_allocator_t *allocator, bool waits) {
    uint64_t most = allocator->high_water + 2 * limit_of(allocator);
    uint64_t floor = waits ? ac_budget_floor(&allocator->settings, AC_BUDGET_WAIT) : 0;
    return most > floor ? most : floor;
}

void ac_cache_set_budget(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    uint64_t limit = limit_of(allocator);
    allocator->caches->leased -= cache->leased;
    cache->leased = 0;
    cache->budget = limit < AC_CACHE_OWN ? limit : AC_CACHE_OWN;
    cache->room = (int64_t)cache->budget;
}

bool ac_cache_lease(ac_cache_t *cache, bool some) {
    const ac_allocator_t *allocator = cache->arena->allocator;
    ac_caches_t *caches = allocator->caches;
    uint64_t limit = limit_of(allocator), own = limit < AC_CACHE_OWN ? limit : AC_CACHE_OWN;
    uint64_t more = (uint64_t)-cache->room / LEASE * LEASE + LEASE;
    uint64_t left = caches->leased < limit - own ? limit - own - caches->leased : 0;
    uint64_t held = ac_cache_tally_held(cache->tally, 0) + ac_cache_tally_held(cache->tally, 1);
    if (more > left && some)
        more = left / LEASE * LEASE;
    if (held >= AC_CACHE_BLOCKS || more > left)
        return false;
    caches->leased += more;
    cache->leased += more;
    cache->budget += more;
    cache->room += (int64_t)more;
    return cache->room >= 0;
}
