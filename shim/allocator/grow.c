/* The last steps of a request: new memory, and the last resort if there is none. */
#include "allocator/oom.h"
#include "allocator/request.h"
#include "allocator/supply/supply.h"
#include "device/wait.h"
#include "failpoint.h"

/* --- new memory --- */

static bool look(void *arg) {
    return ac_find_added(arg);
}

static void serve(void *arg, ac_block_t *block) {
    ac_find_new(arg, block);
}

/* The budget depends on what is live.  Until the device statistics have the tallies of threads, blocks that
 * these freed into their caches count as live. */
static void take_tallies(const ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    ac_lock(&allocator->lock);
    ac_caches_raise(allocator, request->cache);
    ac_unlock(&allocator->lock);
}

/* Sets how much freed memory may wait rather than rely on a stream's order: none if the device gave nothing. */
static void set_bound(const ac_request_t *request, bool full) {
    ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t left;
    if (full)
        ac_sole_set_bound(&arena->timeline, 0, 0, 0);
    if (full || !ac_sole_may_begin(&arena->timeline) || arena->ops->capturing(arena->context, true))
        return;
    if (arena->ops->memory_free(arena->context, &left) != AC_OK)
        left = 0;
    uint64_t room = ac_allocator_room(allocator);
    take_tallies(request); /* with the request */
    ac_lock(&allocator->lock);
    uint64_t live = allocator->high_water;
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    ac_unlock(&allocator->lock);
    ac_sole_set_bound(&arena->timeline, live, reserved, left < room ? left : room);
}

ac_status_t ac_grow(ac_request_t *request) {
    take_tallies(request);
    ac_sole_lacked(&request->arena->timeline);
    ac_growth_ask_t ask = {.arena = request->arena,
                           .pool = request->pool,
                           .size = request->size,
                           .medium = request->medium,
                           .aside = request->stream != NULL,
                           .shrink = request->shrink,
                           .until = request->target ? 0 : request->soon,
                           .target = request->target,
                           .look = look,
                           .serve = serve,
                           .arg = request};
    ac_status_t status = ac_supply_grow(&ask);
    if (ask.stale_bytes) {
        ac_arena_forget_stale(request->arena->allocator, ask.stale_address, ask.stale_bytes);
        status = ac_supply_adopt(&ask);
    }
    request->changes += ask.changes;
    set_bound(request, status != AC_OK);
    return status;
}

/* --- the device, or the limit, has no more --- */

/* Returns true if other threads have changed since `seen` what this request may find.  Waits until `end`
 * (ns) for memory that another thread has taken out of its lists and not yet given to the driver: it is
 * in neither place. */
static bool others_changed(const ac_request_t *request, uint64_t seen, uint64_t end) {
    ac_allocator_t *allocator = request->arena->allocator;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    int late = 0;
    ac_lock(&allocator->lock);
    while (!late && allocator->calls && !AC_FAILPOINT(leaving_not_awaited) &&
           allocator->changes - request->changes == seen) {
        AC_WINDOW(leaving_awaited);
        late = ac_wait_until(&allocator->settled, &allocator->lock, &until);
    }
    bool changed = allocator->changes - request->changes != seen;
    ac_unlock(&allocator->lock);
    return changed;
}

static uint64_t changes_of_others(const ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    ac_lock(&allocator->lock);
    uint64_t changes = allocator->changes - request->changes;
    ac_unlock(&allocator->lock);
    return changes;
}

/* Gives idle memory back, as far as possible, and tries again; `last`: whatever came of it. */
static ac_status_t retry(ac_request_t *request, const ac_oom_t *oom, bool last, uint64_t *seen) {
    ac_allocator_t *allocator = request->arena->allocator;
    uint64_t freed = ac_oom_give_back(oom);
    *seen = changes_of_others(request);
    if (ac_find_again(request))
        return AC_OK;
    if (!freed && !last)
        return AC_OOM;
    ac_lock(&allocator->lock);
    allocator->stats->num_alloc_retries++;
    allocator->stats->num_sync_all_streams += last;
    ac_unlock(&allocator->lock);
    return ac_grow(request);
}

static bool helps(const ac_request_t *request, const ac_oom_t *oom) {
    return ac_oom_helps(oom, request->size,
                        (request->size + AC_SEGMENT_ALIGN - 1) & ~(AC_SEGMENT_ALIGN - 1));
}

static bool is_expandable(const ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    ac_lock(&allocator->lock);
    bool expandable = allocator->settings.expandable_segments;
    ac_unlock(&allocator->lock);
    return expandable;
}

bool (*_Atomic ac_serve_elsewhere)(void);

/* Returns true if the request is served, and need not wait. */
static bool is_served_elsewhere(ac_request_t *request) {
    bool (*serve)(void) = atomic_load_explicit(&ac_serve_elsewhere, memory_order_acquire);
    if (!serve || !serve())
        return false;
    request->quiet = true;
    return true;
}

/* The number of rounds is bounded, because other threads may run out of memory all the time, too. */
static ac_status_t last_resort(ac_request_t *request) {
    ac_oom_t oom;
    uint64_t seen;
    ac_oom_begin(&oom, request->arena, request->soon);
    request->target = oom.target;
    for (int round = 0; round < AC_REQUEST_ROUNDS; round++) {
        ac_status_t status = retry(request, &oom, false, &seen);
        if (status == AC_OOM && is_served_elsewhere(request))
            return AC_OOM;
        for (bool last = false; status == AC_OOM && !last;) {
            last = !helps(request, &oom) || !ac_oom_wait(&oom) || ac_oom_is_over(&oom);
            status = retry(request, &oom, last, &seen);
        }
        if (status == AC_OOM && is_expandable(request)) {
            request->shrink = true;
            status = ac_grow(request);
        }
        if (status != AC_OOM)
            return status;
        if (!others_changed(request, seen, ac_oom_ends(&oom)))
            break;
    }
    return AC_OOM;
}

ac_status_t ac_full(ac_request_t *request) {
    request->scarce = true;
    if (ac_ready_in_order(request, AC_OTHER_STREAMS) == AC_OK || ac_find_again(request))
        return AC_OK;
    ac_status_t status = last_resort(request);
    if (status == AC_OOM && !request->quiet)
        ac_allocator_count_oom(request->arena->allocator);
    return status;
}
