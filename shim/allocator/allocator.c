/* Requests and frees: the ladder from a cached block to "out of memory".
 *
 *   1. a free block;
 *   2. one whose fence completed meanwhile (asked, not waited for);
 *   3. new memory while growth is within budget, else waiting, oldest fence first; threads that
 *      miss together share what one of them asks the device for;
 *   4. at "out of memory": the exact size, waiting for the work that was submitted so far where
 *      that helps, giving back idle segments (brink.h), searching every pool to its end.
 *
 * Steps 2 to 4 leave the lock around each device call and search again after it: whatever was
 * seen before may have changed. */
#include "allocator/allocator_int.h"

#include "allocator/supply/brink.h"
#include "allocator/supply/expand.h"
#include "allocator/supply/trim.h"
#include "device/wait.h"
#include "plant.h"

enum { LAST_ROUNDS = 8 };

static bool beyond(const ac_allocator_t *allocator, uint64_t growth, uint64_t limit) {
    return (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current + growth > limit;
}

static uint64_t at_least(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* What a request is, and how far its search has come. */
typedef struct {
    ac_arena_t *arena;
    uint64_t requested, size; /* bytes: asked for, rounded */
    int pool;
    uint64_t address;          /* of the block that was taken */
    uint64_t changes;          /* how many of the allocator's `changes` were its own */
    const ac_stream_t *stream; /* NULL: a plain request */
    ac_cache_t *cache;         /* of the thread that asks; NULL: none */
    bool scarce;               /* the device has no more: any block that fits is right */
    bool shrink;               /* about to fail: pages of the least size */
    uint64_t soon;             /* ns: until then it waits for work rather than grow */
    uint64_t target;           /* of the work that comes first at the brink; 0: not there */
} ac_request_t;

/* The block is the request's. */
static void handed_out(ac_request_t *request, ac_block_t *block) {
    AC_BLOCK_SET(block, ticket.epoch, ac_fence_handout(&request->arena->line));
    request->address = block->address;
    if (request->stream)
        ac_ordered_handed_out(block);
}

static void serve(ac_request_t *request, ac_block_t *block) {
    ac_segment_take(block, request->size, request->requested);
    handed_out(request, block);
}

/* With what is nobody's: it was cut. */
static void serve_cut(ac_request_t *request, ac_block_t *block) {
    ac_segment_reuse(block, request->requested);
    handed_out(request, block);
}

/* A slot of a slab; NULL: not for this request, or there is none. */
static ac_block_t *find_slot(const ac_request_t *request) {
    return request->stream || request->pool != AC_POOL_SMALL || !ac_slab_serves(request->size)
               ? NULL
               : ac_slab_carve(&request->arena->space, request->size);
}

/* Before the request is looked for: the figures that it may raise. Under the lock. */
static void announce(const ac_request_t *request) {
    ac_caches_before(request->arena->allocator, request->cache, request->pool, request->size,
                     request->requested);
}

/* After it was looked for: more for those to come. Under the lock. */
static void conclude(const ac_request_t *request, bool served) {
    if (!request->cache || !served)
        return;
    if (!request->stream)
        ac_cache_expect(request->cache, request->pool, request->size);
    ac_caches_after(request->cache, request->size);
}

/* The blocks that a search looks for. */
static ac_fit_t fit_for(const ac_request_t *request, bool exhaustive) {
    const ac_settings_t *settings = &request->arena->allocator->settings;
    return exhaustive ? ac_size_fit_last(settings, request->size)
                      : ac_size_fit(settings, request->size);
}

static ac_order_request_t ordered_request(const ac_request_t *request, bool exhaustive) {
    return (ac_order_request_t){.stream = *request->stream,
                                .pool = request->pool,
                                .size = request->size,
                                .requested = request->requested,
                                .fit = fit_for(request, exhaustive)};
}

/* Memory that the order of streams makes this request's. */
static bool search_ordered(ac_request_t *request, bool exhaustive) {
    if (!request->stream || !request->arena->ordered)
        return false;
    ac_order_request_t ordered = ordered_request(request, exhaustive);
    if (!ac_ordered_serve(request->arena, &ordered, exhaustive))
        return false;
    request->address = ordered.address;
    request->arena->allocator->counters->cached_allocs++;
    return true;
}

/* `exhaustive`: in both pools, whatever it takes. */
static ac_block_t *find_free(const ac_request_t *request, bool exhaustive) {
    ac_arena_t *arena = request->arena;
    int other = request->pool == AC_POOL_SMALL ? AC_POOL_LARGE : AC_POOL_SMALL;
    ac_fit_t fit = fit_for(request, exhaustive);
    ac_block_t *block = ac_free_index_find(&arena->index[request->pool], &fit, exhaustive);
    if (!block && exhaustive)
        block = ac_free_index_find(&arena->index[other], &fit, true);
    if (!block && exhaustive && request->size < AC_SMALL_SEGMENT &&
        ac_slabs_dissolve(&arena->space))
        block = ac_free_index_find(&arena->index[AC_POOL_SMALL], &fit, true);
    return block;
}

static bool search(ac_request_t *request, bool exhaustive) {
    ac_block_t *block = find_slot(request);
    if (block)
        serve_cut(request, block);
    else if ((block = find_free(request, exhaustive)))
        serve(request, block);
    else
        return false;
    request->arena->allocator->counters->cached_allocs++;
    return true;
}

/* Out of memory that was just added, of which `block` is one. */
static void serve_new(ac_request_t *request, ac_block_t *block) {
    ac_block_t *slot = find_slot(request);
    if (slot)
        serve_cut(request, slot);
    else
        serve(request, block);
}

/* `exhaustive`: what other threads keep is taken and searched in one, or they would have it back
 * in between. */
static bool try_again(ac_request_t *request, bool exhaustive) {
    ac_allocator_t *allocator = request->arena->allocator;
    if (exhaustive)
        ac_caches_recall_lock(allocator, request->cache);
    else
        ac_lock(&allocator->lock);
    announce(request);
    if (ac_cache_usable(request->cache))
        ac_cache_flush(request->cache, true);
    ac_pending_drain(request->arena);
    bool found = search_ordered(request, exhaustive) || search(request, exhaustive);
    conclude(request, found);
    ac_unlock(&allocator->lock);
    return found;
}

/* Bytes of the next segment for a request. */
static uint64_t segment_size(const ac_allocator_t *allocator, const ac_request_t *request,
                             ac_snug_t snug) {
    return request->pool == AC_POOL_SMALL
               ? AC_SMALL_SEGMENT
               : ac_size_segment(&allocator->settings, request->size,
                                 (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current,
                                 snug);
}

/* --- growing --- */

/* What others may have of a segment that is asked for. */
static uint64_t left_over(const ac_request_t *request, uint64_t size) {
    const ac_settings_t *settings = &request->arena->allocator->settings;
    return size < settings->max_split_size ? size - request->size : 0;
}

/* Announce a growth by `size` bytes.  False: the limit does not allow it.  Under the lock. */
static bool reserve(const ac_request_t *request, uint64_t size) {
    ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t limit = allocator->settings.limit;
    uint64_t taken =
        (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current + allocator->growing;
    if (size > limit || taken > limit - size)
        return false;
    allocator->growing += size;
    allocator->calls++;
    arena->growths[request->pool]++;
    arena->coming[request->pool] += left_over(request, size);
    return true;
}

/* Wait as long as others grow by more than they need themselves, for what is left of that.  True:
 * the request was served.  Not for ever: such a call of the device may wait for what the program
 * does only after this request.  Once that took too long nobody waits for what was announced up
 * to then.  Under the lock, which is given up meanwhile. */
static bool share_growth(ac_request_t *request) {
    enum { PATIENCE_NS = 100000000 };
    ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t *coming = &arena->coming[request->pool];
    bool found = false;
    int late = 0;
    if (*coming < request->size)
        return false;
    *coming -= request->size;
    uint64_t end = arena->ops->now_ns() + PATIENCE_NS;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    while (!found && !late && !arena->dead && arena->growths[request->pool]) {
        late = ac_wait_until(&allocator->settled, &allocator->lock, &until);
        if (!arena->dead) {
            ac_pending_drain(arena);
            announce(request);
            found = search(request, false);
        }
    }
    if (late && !found)
        *coming = 0;
    return found;
}

/* One segment of the announced size from the device, and the request's block out of it. */
static ac_status_t grow(ac_request_t *request, uint64_t size) {
    ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t address;
    uint64_t begin = arena->ops->now_ns();
    ac_status_t status = request->stream
                             ? arena->ops->segment_alloc_aside(arena->context, size, &address)
                             : arena->ops->segment_alloc(arena->context, size, &address);
    uint64_t spent = arena->ops->now_ns() - begin;
    if (status == AC_OK)
        ac_arena_forget_stale(address, size);
    AC_WINDOW(grown);

    ac_lock(&allocator->lock);
    allocator->counters->driver_allocs++;
    allocator->counters->driver_alloc_ns += spent;
    ac_segment_t *segment = NULL;
    if (status == AC_OK && (!arena->dead || AC_PLANTED(grown_into_dead)))
        segment = ac_arena_add(arena, request->pool, address, size);
    announce(request);
    if (segment)
        serve_new(request, segment->first);
    conclude(request, segment);
    /* A failure changes what others find only where the announced bytes stood in their way. */
    bool changed = segment || allocator->settings.limit != AC_UNLIMITED;
    request->changes += changed;
    allocator->growing -= size;
    /* Less where others have laid claim to it; the settings may have changed as well. */
    uint64_t *coming = &arena->coming[request->pool], left = left_over(request, size);
    *coming -= *coming < left ? *coming : left;
    if (--arena->growths[request->pool] == 0)
        *coming = 0;
    ac_allocator_settle(allocator, changed);
    ac_unlock(&allocator->lock);
    if (status == AC_OK && !segment) {
        arena->ops->segment_free(arena->context, address);
        return AC_FAILED;
    }
    return status;
}

static bool is_expandable(const ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    ac_lock(&allocator->lock);
    bool expandable = allocator->settings.expandable_segments;
    ac_unlock(&allocator->lock);
    return expandable;
}

/* Whether segments may go back on the way of this request: where that waits for nothing, or where
 * the request would fail and the work before it is over. */
static bool may_trim(const ac_request_t *request) {
    return (request->target && ac_fence_reached_all(request->target)) ||
           ac_trim_may(request->arena->allocator);
}

static void serve_expanded(void *arg, ac_block_t *block) {
    announce(arg);
    serve_new(arg, block);
    conclude(arg, true);
}

/* By pages.  AC_UNSUPPORTED: this arena has none. */
static ac_status_t grow_expandable(ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    const ac_growth_ask_t ask = {.arena = request->arena,
                                 .pool = request->pool,
                                 .size = request->size,
                                 .aside = request->stream != NULL,
                                 .shrink = request->shrink,
                                 .until = request->target ? 0 : request->soon,
                                 .target = request->target,
                                 .serve = serve_expanded,
                                 .arg = request};
    bool changed;
    if (ac_trim_garbage_due(allocator, request->size) && may_trim(request))
        ac_trim_garbage(allocator, request->size);
    ac_status_t status = ac_expand(&ask, &changed);
    ac_lock(&allocator->lock);
    request->changes += changed;
    ac_unlock(&allocator->lock);
    return status;
}

/* A segment of that size, where the limit and the device allow it. */
static ac_status_t grow_by(ac_request_t *request, uint64_t size) {
    ac_allocator_t *allocator = request->arena->allocator;
    ac_lock(&allocator->lock);
    bool may = reserve(request, size);
    ac_unlock(&allocator->lock);
    return may ? grow(request, size) : AC_OOM;
}

/* The device refused pages: where it cannot be full, for another reason than memory, and a native
 * segment may be had. */
static ac_status_t grow_otherwise(ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    ac_lock(&allocator->lock);
    uint64_t size = segment_size(allocator, request, AC_SNUG_EXACT);
    bool full = beyond(allocator, size, allocator->settings.memory / 2);
    ac_unlock(&allocator->lock);
    ac_status_t status = full ? AC_OOM : grow_by(request, size);
    if (!full && status == AC_OK)
        ac_expand_refuse(allocator, AC_REFUSED_PAGES);
    return status;
}

/* Grow within the limit, unless another thread does so for this request too: not while anything
 * captures, when the driver answers each thread differently, and not for a request of a stream,
 * which must not wait.  Beyond the budget, idle segments that are too small are given back first
 * where that waits for nothing, and no more than needed is taken. */
static ac_status_t grow_within(ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    const ac_stat_t *reserved = &allocator->stats->reserved_bytes[AC_POOL_ALL];
    const ac_stat_t *allocated = &allocator->stats->allocated_bytes[AC_POOL_ALL];
    bool shares = !request->stream && !request->arena->ops->capturing(request->arena->context);
    if (is_expandable(request)) {
        ac_status_t status = grow_expandable(request);
        if (status == AC_OOM)
            status = grow_otherwise(request);
        if (status != AC_UNSUPPORTED)
            return status;
    }
    ac_lock(&allocator->lock);
    if (shares && share_growth(request)) {
        ac_unlock(&allocator->lock);
        return AC_OK;
    }
    uint64_t live = at_least(allocator->high_water, (uint64_t)allocated->current + request->size);
    uint64_t cap = ac_trim_budget(allocator, live);
    uint64_t size = segment_size(allocator, request, AC_SNUG_LARGE);
    uint64_t snug = segment_size(allocator, request, AC_SNUG_FEW);
    uint64_t exact = segment_size(allocator, request, AC_SNUG_EXACT);
    uint64_t wanted = (uint64_t)reserved->current + allocator->growing + size;
    ac_unlock(&allocator->lock);

    if ((wanted > cap || ac_trim_garbage_due(allocator, exact)) && may_trim(request)) {
        ac_trim_garbage(allocator, exact);
        if (wanted > cap)
            ac_trim_arena(request->arena, wanted - cap);
    }

    ac_lock(&allocator->lock);
    if (shares && share_growth(request)) { /* others have begun to grow meanwhile */
        ac_unlock(&allocator->lock);
        return AC_OK;
    }
    uint64_t taken = (uint64_t)reserved->current + allocator->growing;
    if (taken + size > cap)
        size = snug;
    ac_unlock(&allocator->lock);
    /* Before it fails, the request takes less: at last no more than it needs. */
    ac_status_t status = grow_by(request, size);
    if (status == AC_OOM && size > snug)
        status = grow_by(request, size = snug);
    return status == AC_OOM && size > exact ? grow_by(request, exact) : status;
}

/* Whether others have changed since `seen` what this request may find.  Memory that another
 * thread has taken out of the books and not yet given to the driver is in neither place: wait for
 * it, until `end` (ns). */
static bool others_changed(ac_request_t *request, uint64_t seen, uint64_t end) {
    ac_allocator_t *allocator = request->arena->allocator;
    const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    int late = 0;
    ac_lock(&allocator->lock);
    while (!late && allocator->calls && !AC_PLANTED(leaving_not_awaited) &&
           allocator->changes - request->changes == seen) {
        AC_WINDOW(leaving_awaited);
        late = ac_wait_until(&allocator->settled, &allocator->lock, &until);
    }
    bool changed = allocator->changes - request->changes != seen;
    ac_unlock(&allocator->lock);
    return changed;
}

/* Give back what is idle, as far as that may be, and try again; `last`: whatever came of it. */
static ac_status_t retry(ac_request_t *request, const ac_brink_t *brink, bool last,
                         uint64_t *seen) {
    ac_allocator_t *allocator = request->arena->allocator;
    uint64_t freed = ac_brink_give_back(brink);
    ac_lock(&allocator->lock);
    *seen = allocator->changes - request->changes;
    ac_unlock(&allocator->lock);
    if (try_again(request, true))
        return AC_OK;
    if (!freed && !last)
        return AC_OOM;
    ac_lock(&allocator->lock);
    allocator->stats->num_alloc_retries++;
    allocator->stats->num_sync_all_streams += last;
    ac_unlock(&allocator->lock);
    return grow_within(request);
}

static bool helps(const ac_request_t *request, const ac_brink_t *brink) {
    uint64_t pages = (request->size + AC_SEGMENT_ALIGN - 1) / AC_SEGMENT_ALIGN;
    return ac_brink_helps(brink, request->size, pages * AC_SEGMENT_ALIGN);
}

/* Everything that could still avoid the failure.  The rounds are bounded for the case that other
 * threads run out of memory all the time as well. */
static ac_status_t last_resort(ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    ac_brink_t brink;
    uint64_t seen;
    ac_brink_begin(&brink, request->arena, request->soon);
    request->target = brink.target;
    for (int round = 0; round < LAST_ROUNDS; round++) {
        ac_status_t status = retry(request, &brink, false, &seen);
        for (bool last = false; status == AC_OOM && !last;) {
            last = !helps(request, &brink) || !ac_brink_wait(&brink) || ac_brink_is_over(&brink);
            status = retry(request, &brink, last, &seen);
        }
        if (status == AC_OOM && is_expandable(request)) {
            request->shrink = true;
            status = grow_within(request);
        }
        if (status != AC_OOM)
            return status;
        bool holds = ac_fence_holding(&request->arena->line, true);
        if (!others_changed(request, seen, holds ? brink.soon : brink.end))
            break;
    }
    ac_lock(&allocator->lock);
    allocator->stats->num_ooms++;
    ac_unlock(&allocator->lock);
    return AC_OOM;
}

/* Whether growing has to wait for pending frees first; their oldest target.  Not where the wait
 * might never end: the program may let go of what it holds only after this request. */
static bool must_wait(ac_request_t *request, bool *all, uint64_t *target) {
    ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    ac_lock(&allocator->lock);
    uint64_t newest;
    *all = false;
    bool pending = ac_pending_targets(arena, *all, target, &newest);
    if (!pending)
        pending = ac_pending_targets(arena, *all = true, target, &newest);
    bool wait = pending && ac_pending_hopeful(arena, *all) &&
                beyond(allocator, segment_size(allocator, request, AC_SNUG_EXACT),
                       ac_pending_budget(allocator));
    ac_unlock(&allocator->lock);
    return wait && !ac_fence_holding(&arena->line, *all);
}

/* The budget is worth a wait, but not any: the fence may stand behind a kernel that never ends, or
 * may not complete before the program goes on.  Where no fence can be recorded the request does not
 * wait: it would wait for later work as well. */
static ac_status_t wait_for(ac_request_t *request, bool all, uint64_t target) {
    ac_arena_t *arena = request->arena;
    uint64_t begin = arena->ops->now_ns();
    if (begin >= request->soon || ac_fence_close(&arena->line, all) == AC_UNSUPPORTED)
        return AC_BUSY;
    ac_status_t status = ac_fence_wait(&arena->line, all, target, request->soon - begin);
    uint64_t spent = arena->ops->now_ns() - begin;
    ac_lock(&arena->allocator->lock);
    if (status == AC_BUSY)
        ac_pending_in_vain(arena, target);
    arena->allocator->counters->fence_waits++;
    arena->allocator->counters->fence_wait_ns += spent;
    ac_unlock(&arena->allocator->lock);
    return status;
}

/* Memory of its own stream that takes a device call; or of another, which its own waits for. */
static ac_status_t order_streams(ac_request_t *request, bool own) {
    ac_allocator_t *allocator = request->arena->allocator;
    if (!request->stream)
        return AC_OOM;
    ac_lock(&allocator->lock);
    ac_order_request_t ordered = ordered_request(request, request->scarce);
    ac_unlock(&allocator->lock);
    ac_status_t status = ac_ordered_wait(request->arena, &ordered, own);
    request->address = ordered.address;
    return status;
}

/* Whether a fence of now is better than growing, if that is possible at all.  Not where memory is
 * hardly worth it and there were many, else each miss of a small program would take one; nor
 * beside a fence that is under way and gets there first. */
static bool must_close(const ac_request_t *request, bool all) {
    ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    ac_lock(&allocator->lock);
    uint64_t size = segment_size(allocator, request, AC_SNUG_EXACT);
    bool worth = ac_fence_credit(&arena->line) || size > allocator->settings.large_segment_size ||
                 beyond(allocator, size, ac_pending_least_budget(allocator)) ||
                 beyond(allocator, size, allocator->settings.limit);
    ac_unlock(&allocator->lock);
    return worth && !ac_fence_under_way(&arena->line, all);
}

/* Once fences have moved: what waited in the cache, or in the queues. */
static bool try_ready(ac_request_t *request) {
    ac_cache_t *cache = request->stream ? NULL : request->cache;
    return (cache && ac_cache_take_long(cache, request->requested, &request->address)) ||
           try_again(request, false);
}

/* Ask the device for what is pending, if need be with a fence of now. */
static bool ask_fences(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    uint64_t oldest, newest;
    ac_lock(&arena->allocator->lock);
    bool pending[2] = {ac_pending_targets(arena, false, &oldest, &newest),
                       ac_pending_targets(arena, true, &oldest, &newest)};
    ac_unlock(&arena->allocator->lock);
    pending[0] |= request->cache && ac_cache_waits(request->cache);
    for (int all = 0; all < 2; all++) {
        if (!pending[all])
            continue;
        if (ac_fence_poll(&arena->line, all) && try_ready(request))
            return true;
        if (!must_close(request, all))
            continue;
        ac_fence_close(&arena->line, all);
        if (ac_fence_poll(&arena->line, all) && try_ready(request))
            return true;
    }
    return false;
}

/* Wait for pending frees as long as that has to come before growing.  True: the request was
 * served. */
static bool wait_pending(ac_request_t *request, bool *waited) {
    bool all;
    uint64_t target;
    while (must_wait(request, &all, &target)) {
        if (order_streams(request, false) == AC_OK)
            return true;
        *waited = wait_for(request, all, target) == AC_OK;
        if (!*waited)
            break; /* capture, or a broken context: growing may still work */
        if (try_again(request, false))
            return true;
    }
    return false;
}

static ac_status_t alloc_slow(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    request->soon = arena->ops->now_ns() + AC_PATIENCE_NS;
    if (order_streams(request, true) == AC_OK || ask_fences(request))
        return AC_OK;
    /* Before anybody waits, or the device is asked: what threads keep for themselves, ready (then
     * there is a second answer to ask for) or not. */
    if (ac_caches_recall(arena->allocator, request->cache) &&
        (try_again(request, false) || ask_fences(request)))
        return AC_OK;
    for (int round = 0; round < LAST_ROUNDS; round++) {
        bool waited = false;
        if (wait_pending(request, &waited))
            return AC_OK;
        /* What others freed meanwhile is with them. */
        if (!waited || !ac_caches_recall(arena->allocator, request->cache))
            break;
    }
    if (try_again(request, false))
        return AC_OK;
    ac_status_t status = grow_within(request);
    request->scarce = status == AC_OOM;
    if (status == AC_OOM && order_streams(request, false) == AC_OK)
        return AC_OK;
    return status == AC_OOM ? last_resort(request) : status;
}

/* Under the lock: of the cache's large blocks none has the size, and whole they are in the way.
 */
static bool search_free(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    bool cache = ac_cache_usable(request->cache);
    ac_pending_drain(arena);
    if (cache && request->size > AC_SMALL_LIMIT)
        ac_cache_flush(request->cache, false);
    return search(request, false) ||
           (cache && ac_cache_flush(request->cache, true) && search(request, false));
}

/* The same for the owner of a cache whose books have room for it: little more than a hit. */
static bool search_affordable(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    ac_cache_t *cache = request->cache;
    if (!ac_cache_affords(cache, request->pool, request->size, request->requested))
        return false;
    ac_pending_drain(arena);
    if (request->pool == AC_POOL_LARGE)
        ac_cache_flush(cache, false);
    ac_block_t *block = ac_segment_cut(&arena->space, request->pool, request->size);
    if (!block)
        return false;
    if (!ac_cache_serve(cache, block, request->size, request->requested)) {
        announce(request);
        serve_cut(request, block);
        arena->allocator->counters->cached_allocs++;
        ac_caches_after(cache, block->size);
    }
    request->address = block->address;
    ac_cache_expect(cache, request->pool, request->size);
    return true;
}

static ac_status_t alloc(ac_request_t *request, bool cached_only, uint64_t *address) {
    ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t bytes = request->requested;
    if (bytes == 0 || bytes >= (uint64_t)1 << 48)
        return AC_OOM;
    ac_lock(&allocator->lock);
    ac_cache_tidy(request->cache);
    request->size = ac_size_round(allocator->settings.divisions, bytes);
    request->pool =
        request->size <= allocator->settings.small_limit ? AC_POOL_SMALL : AC_POOL_LARGE;
    if (request->pool != ac_pool_kept(request->size))
        request->cache = NULL;
    bool found = !arena->dead && !request->stream && search_affordable(request);
    if (!found) {
        announce(request);
        found = !arena->dead && (search_ordered(request, false) || search_free(request));
        conclude(request, found);
    }
    bool crowded = ac_slabs_crowded(&allocator->slots);
    ac_unlock(&allocator->lock);
    if (crowded)
        ac_allocator_drop_records(allocator);
    if (!found) {
        ac_status_t status = cached_only ? AC_BUSY : alloc_slow(request);
        if (status != AC_OK)
            return status;
    }
    *address = request->address;
    return AC_OK;
}

ac_status_t ac_arena_alloc(ac_arena_t *arena, uint64_t bytes, bool cached_only,
                           uint64_t *address) {
    ac_request_t request = {.arena = arena, .requested = bytes};
    return alloc(&request, cached_only, address);
}

ac_status_t ac_cache_alloc(ac_cache_t *cache, uint64_t bytes, bool cached_only,
                           uint64_t *address) {
    if (ac_cache_take(cache, bytes, address, ac_fence_handout) ||
        ac_cache_take_long(cache, bytes, address))
        return AC_OK;
    ac_request_t request = {.arena = cache->arena, .requested = bytes, .cache = cache};
    return alloc(&request, cached_only, address);
}

bool ac_cache_fetch(ac_cache_t *cache, uint64_t bytes, uint64_t *address) {
    if (ac_cache_take_long(cache, bytes, address))
        return true;
    ac_request_t request = {.arena = cache->arena, .requested = bytes, .cache = cache};
    return alloc(&request, true, address) == AC_OK;
}

/* The block was released and has a ticket.  True: its memory is to go back to the device when a
 * fence was reached. */
static bool wait_for_ticket(ac_block_t *block, const ac_ticket_t *ticket) {
    if (ticket->key == AC_KEY_CAPTURE) {
        ac_held_add(block, ticket);
        return false;
    }
    block->segment->arena->allocator->counters->fenced_frees++;
    ac_pending_add(block, ticket);
    return block->segment->tainted;
}

/* `block`: see ac_cache_lock_found; NULL: it is still to be looked for. */
static ac_status_t free_block(ac_cache_t *cache, ac_block_t *block, uint64_t address) {
    ac_allocator_t *allocator = cache ? cache->arena->allocator : NULL;
    if (!block || !ac_cache_lock_found(cache, block, address)) {
        ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
        if (status != AC_OK)
            return status == AC_OOM ? ac_block_free_bare(address) : status;
    }
    ac_block_touch_neighbours(block);
    if (cache && cache->arena->allocator == allocator)
        ac_cache_tidy(cache);         /* another device's lock is not its */
    ac_caches_before_free(allocator); /* first: a hit may have made a peak that ends now */
    ac_arena_t *arena = block->segment->arena;
    ac_ticket_t ticket;
    ac_free_t how = ac_order_retire(&arena->line, &block->ticket, &ticket);
    if (how != AC_FREE_WAITS && ac_cache_take_back(cache, block, how == AC_FREE_LEANS)) {
        ac_unlock(&allocator->lock);
        return AC_OK;
    }
    ac_segment_release(block);
    allocator->counters->cached_frees++;
    bool leaves = false;
    if (how == AC_FREE_WAITS) {
        leaves = wait_for_ticket(block, &ticket);
    } else {
        if (how == AC_FREE_LEANS)
            allocator->counters->ordered_frees++;
        else
            allocator->counters->ready_frees++;
        ac_segment_count_finished(block);
        if (!ac_cache_keep(cache, block))
            ac_segment_coalesce(block, ac_fence_quiet(&arena->line));
    }
    bool leaving = how != AC_FREE_WAITS && arena->tainted_idle;
    ac_unlock(&allocator->lock);
    if (leaving)
        ac_trim_leaving(arena);
    if (leaves)
        ac_trim_owe(allocator);
    return AC_OK;
}

ac_status_t ac_block_free(uint64_t address) {
    return free_block(NULL, NULL, address);
}

ac_status_t ac_cache_free(ac_cache_t *cache, uint64_t address) {
    ac_block_t *block = ac_cache_block(cache, address);
    if (block && ac_cache_give(cache, block, address))
        return AC_OK;
    return free_block(cache, block, address);
}

ac_status_t ac_arena_alloc_on(ac_arena_t *arena, ac_stream_t stream, uint64_t bytes,
                              bool cached_only, uint64_t *address) {
    ac_request_t request = {.arena = arena, .requested = bytes, .stream = &stream};
    return alloc(&request, cached_only, address);
}

ac_status_t ac_block_free_on(ac_arena_t *arena, ac_stream_t stream, uint64_t address) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status == AC_OOM && (status = ac_block_mark_used(address)) == AC_OK) {
        ac_fence_submitted(&arena->line);
        return ac_block_free_bare(address);
    }
    if (status != AC_OK)
        return status;
    ac_arena_t *owner = block->segment->arena;
    uint64_t size = block->size;
    ac_ticket_t ticket, used = block->ticket;
    allocator->counters->cached_frees++;
    allocator->counters->async_frees++;
    ac_caches_before_free(allocator);
    ac_order_t *order = NULL;
    unsigned slot = owner == arena ? ac_ordered_slot_for(block, stream, &order) : AC_ORDER_NONE;
    ac_order_retire_on(&owner->line, &arena->line, order, slot, &used, &ticket);
    ac_segment_release(block);
    bool leaves = false;
    if (ac_key_is_stream(ticket.key)) {
        ac_ordered_add(block, &ticket);
        ac_fence_earn(&arena->line, ac_pending_weight(ac_pending_share(allocator), size));
    } else {
        leaves = wait_for_ticket(block, &ticket);
    }
    ac_unlock(&allocator->lock);
    if (leaves)
        ac_trim_owe(allocator);
    return AC_OK;
}
