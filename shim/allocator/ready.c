/* Freed memory that waits for work: a request asks whether the work is over, and waits for it if growing
 * would exceed the budget.  The lock is left around each call of the device, so what was found before may
 * have changed after it. */
#include "allocator/policy.h"
#include "allocator/request.h"
#include "allocator/supply/supply.h"

ac_status_t ac_ready_in_order(ac_request_t *request, ac_whose_t whose) {
    ac_allocator_t *allocator = request->arena->allocator;
    if (!request->stream)
        return AC_OOM;
    ac_lock(&allocator->lock);
    ac_order_request_t ordered = ac_find_ordered(request);
    ac_status_t status = ac_ordered_wait(request->arena, &ordered, whose == AC_OWN_STREAM);
    ac_caches_check_peaks(allocator, request->cache);
    ac_unlock(&allocator->lock);
    request->address = ordered.address;
    return status;
}

/* --- asking --- */

/* The memory that waits, and the ways in which a request without free memory may get it. */
typedef struct {
    bool waits[2];   /* by reach */
    uint64_t oldest; /* the first target that entries of the ledger wait for, and its reach */
    ac_reach_t reach;
    bool worth;   /* a fence of this moment is better than growing */
    bool exceeds; /* growing would exceed the wait budget */
} ac_look_t;

/* A fence is not worth it if little memory waits and there were many fences, or each miss of a small
 * program would record one.  The caller holds the lock. */
static void look(const ac_request_t *request, ac_look_t *look) {
    ac_arena_t *arena = request->arena;
    const ac_allocator_t *allocator = arena->allocator;
    const ac_settings_t *settings = &allocator->settings;
    uint64_t oldest[2], newest, size = ac_supply_least(request->pool, request->size);
    for (ac_reach_t reach = AC_REACH_OWN; reach <= AC_REACH_ALL; reach++)
        look->waits[reach] = ac_ledger_targets(&arena->retired->ledger, reach, &oldest[reach], &newest);
    look->reach = look->waits[AC_REACH_OWN] ? AC_REACH_OWN : AC_REACH_ALL;
    look->oldest = oldest[look->reach];
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current + size;
    look->exceeds = reserved > ac_budget(settings, AC_BUDGET_WAIT, allocator->high_water);
    look->worth = ac_fence_credit(&arena->timeline) || size > settings->large_segment_size ||
                  reserved > ac_budget_floor(settings, AC_BUDGET_WAIT) ||
                  reserved > ac_supply_limit(allocator);
}

/* Once fences have moved: what waited in the cache, or in the arena. */
static bool try_ready(ac_request_t *request) {
    ac_cache_t *cache = request->stream ? NULL : request->cache;
    return (cache && ac_cache_take_long(cache, request->requested, &request->address)) ||
           ac_find_again(request);
}

bool ac_ready_ask(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    ac_look_t now;
    ac_lock(&arena->allocator->lock);
    look(request, &now);
    ac_unlock(&arena->allocator->lock);
    now.waits[AC_REACH_OWN] |= request->cache && ac_cache_waits(request->cache);
    for (ac_reach_t reach = AC_REACH_OWN; reach <= AC_REACH_ALL; reach++) {
        if (!now.waits[reach])
            continue;
        if (ac_fence_poll(&arena->timeline, reach) && try_ready(request))
            return true;
        /* One that is under way gets there first. */
        if (!now.worth || ac_fence_under_way(&arena->timeline, reach))
            continue;
        ac_fence_close(&arena->timeline, reach);
        if (ac_fence_poll(&arena->timeline, reach) && try_ready(request))
            return true;
    }
    return false;
}

/* --- waiting --- */

/* Returns true if growing has to wait for work first.  Not if the wait might never end, because the
 * program may release its work only after this request.  Nor if the memory could have relied on the order
 * of the only stream: this request grows, and frees rely from then on. */
static bool must_wait(const ac_request_t *request, ac_look_t *now) {
    ac_arena_t *arena = request->arena;
    ac_lock(&arena->allocator->lock);
    look(request, now);
    ac_unlock(&arena->allocator->lock);
    return (now->waits[AC_REACH_OWN] || now->waits[AC_REACH_ALL]) && now->exceeds &&
           !ac_sole_lacks(&arena->timeline) &&
           ac_fence_hopeful(&arena->timeline, now->reach) &&
           !ac_fence_holding(&arena->timeline, now->reach);
}

bool ac_ready_waits(const ac_request_t *request) {
    ac_look_t now;
    return must_wait(request, &now);
}

/* Waits for a bounded time: the fence may stand behind a kernel that never ends, or that needs the
 * program to go on.  If no fence can be recorded the request does not wait, because it would wait for
 * later work as well. */
static ac_status_t wait_for(const ac_request_t *request, const ac_look_t *now) {
    ac_arena_t *arena = request->arena;
    uint64_t begin = arena->ops->now_ns();
    if (begin >= request->soon || ac_fence_close(&arena->timeline, now->reach) == AC_UNSUPPORTED)
        return AC_BUSY;
    ac_status_t status =
        ac_fence_wait(&arena->timeline, now->reach, now->oldest, request->soon - begin);
    uint64_t spent = arena->ops->now_ns() - begin;
    if (status == AC_BUSY)
        ac_fence_missed(&arena->timeline, now->oldest);
    ac_lock(&arena->allocator->lock);
    arena->allocator->counters->fence_waits++;
    arena->allocator->counters->fence_wait_ns += spent;
    ac_unlock(&arena->allocator->lock);
    return status;
}

bool ac_ready_wait(ac_request_t *request) {
    ac_look_t now;
    for (int round = 0; round < AC_REQUEST_ROUNDS; round++) {
        bool waited = false;
        while (must_wait(request, &now)) {
            if (ac_ready_in_order(request, AC_OTHER_STREAMS) == AC_OK)
                return true;
            waited = wait_for(request, &now) == AC_OK;
            if (!waited)
                break; /* capture, or a broken context: growing may still work */
            if (ac_find_again(request))
                return true;
        }
        /* Other threads keep what they freed meanwhile. */
        if (!waited || !ac_caches_recall(request->arena->allocator, request->cache))
            break;
    }
    return false;
}
