/* What a request finds without the device: free memory of its arena, blocks that the order of
 * streams makes its own, and what became ready since the last look.
 *
 * A search that found nothing notes how much had been added to the arena's free memory by then:
 * until more is added there is nothing new to be found.  So a request searches once, and once
 * more for each time that something came back. */
#include "allocator/request.h"
#include "allocator/supply/supply.h"
#include "failpoint.h"

/* --- the block is the request's --- */

static void handed_out(ac_request_t *request, ac_block_t *block) {
    AC_BLOCK_SET(block, ticket.epoch, ac_fence_handout(&request->arena->timeline));
    request->address = block->address;
    if (request->stream)
        ac_ordered_handed_out(block, request->mempool);
}

/* Before the figures rise: those of the caches are absorbed where a peak depends on them. */
static void announce(const ac_request_t *request) {
    ac_caches_before(request->arena->allocator, request->cache, request->pool, request->size,
                     request->requested);
}

/* After: there may be more such requests. */
static void conclude(const ac_request_t *request) {
    if (!request->cache)
        return;
    if (!request->stream)
        ac_cache_expect(request->cache, request->pool, request->size);
    ac_caches_after(request->cache, request->size);
}

/* Whether the tally of the request's cache has room for it: then it counts it as a hit, which
 * is little work, and nothing has to be announced. */
static bool is_affordable(const ac_request_t *request) {
    return !request->stream &&
           ac_cache_affords(request->cache, request->pool, request->size, request->requested);
}

/* The block was cut out of the free memory. */
static void serve(ac_request_t *request, ac_block_t *block, bool affordable) {
    ac_cache_t *cache = request->cache;
    if (affordable && ac_cache_serve(cache, block, request->size, request->requested)) {
        request->address = block->address;
        ac_cache_expect(cache, request->pool, request->size);
        return;
    }
    if (affordable)
        announce(request);
    ac_segment_reuse(block, request->requested);
    handed_out(request, block);
    request->arena->allocator->counters->cached_allocs++;
    conclude(request);
}

/* --- the search --- */

static inline ac_fit_t fit_for(const ac_request_t *request) {
    const ac_settings_t *settings = &request->arena->allocator->settings;
    return request->scarce ? ac_size_fit_last(settings, request->size)
                           : ac_size_fit(settings, request->size);
}

ac_order_request_t ac_find_ordered(const ac_request_t *request) {
    return (ac_order_request_t){.stream = *request->stream,
                                .mempool = request->mempool,
                                .pool = request->pool,
                                .size = request->size,
                                .requested = request->requested,
                                .fit = fit_for(request)};
}

/* Memory that the order of streams makes this request's. */
static bool search_ordered(ac_request_t *request) {
    if (!request->stream || !request->arena->ordered)
        return false;
    ac_order_request_t ordered = ac_find_ordered(request);
    if (!ac_ordered_serve(request->arena, &ordered, request->scarce))
        return false;
    request->address = ordered.address;
    request->arena->allocator->counters->cached_allocs++;
    return true;
}

/* A slot of a slab; NULL: not for this request, or there is none. */
static ac_block_t *cut_slot(const ac_request_t *request) {
    return request->stream || request->pool != AC_POOL_SMALL || !ac_slab_serves(request->size)
               ? NULL
               : ac_slab_carve(&request->arena->space, request->size);
}

/* With `scarce`: in the other pool, too, and in what slabs keep. */
static ac_block_t *find_block(const ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    int other = request->pool == AC_POOL_SMALL ? AC_POOL_LARGE : AC_POOL_SMALL;
    ac_fit_t fit = fit_for(request);
    ac_block_t *block = ac_free_index_find(&arena->index[request->pool], &fit, request->scarce);
    if (block || !request->scarce)
        return block;
    block = ac_free_index_find(&arena->index[other], &fit, true);
    if (!block && request->size < AC_SMALL_SEGMENT && ac_slabs_dissolve(&arena->space))
        block = ac_free_index_find(&arena->index[AC_POOL_SMALL], &fit, true);
    return block;
}

static bool search_free(ac_request_t *request, bool affordable) {
    ac_arena_t *arena = request->arena;
    if (request->seen[request->scarce] == arena->added && !AC_FAILPOINT(searched_again))
        return false;
    AC_WINDOW(searched);
    ac_block_t *block = cut_slot(request);
    if (!block && (block = find_block(request)))
        ac_segment_carve(block, request->size);
    request->seen[request->scarce] = arena->added;
    if (block)
        serve(request, block, affordable);
    return block;
}

static bool search(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    if (arena->dead)
        return false;
    bool affordable = is_affordable(request);
    if (!affordable)
        announce(request);
    if (search_ordered(request))
        return true;
    ac_pending_drain(arena);
    return search_free(request, affordable);
}

/* None of what the request's own cache keeps has its size, but put together with what lies beside
 * it may do.  True: there was something. */
static bool flush(const ac_request_t *request) {
    return !request->spare && ac_cache_usable(request->cache) &&
           ac_cache_flush(request->cache, request->size <= AC_SMALL_LIMIT);
}

/* Whether growing is better than that (caches.h). */
static bool is_spare(const ac_request_t *request) {
    const ac_allocator_t *allocator = request->arena->allocator;
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    return request->cache &&
           reserved + ac_supply_least(request->pool, request->size) <= ac_caches_spare(allocator);
}

bool ac_find_first(ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    const ac_settings_t *settings = &allocator->settings;
    ac_lock(&allocator->lock);
    if (request->cache && request->cache->loose_count)
        ac_cache_tidy(request->cache);
    request->size = ac_size_round(settings->divisions, request->requested);
    request->pool = request->size <= settings->small_limit ? AC_POOL_SMALL : AC_POOL_LARGE;
    if (request->pool != ac_pool_kept(request->size))
        request->cache = NULL;
    if (request->cache)
        ac_cache_clear_way(request->cache, request->size);
    bool found = search(request);
    if (!found) {
        request->spare = is_spare(request);
        found = flush(request) && search(request);
    }
    bool crowded = ac_slabs_crowded(&allocator->slots);
    ac_unlock(&allocator->lock);
    if (crowded)
        ac_allocator_drop_records(allocator);
    return found;
}

bool ac_find_again(ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    if (request->scarce)
        ac_caches_recall_lock(allocator, request->cache);
    else
        ac_lock(&allocator->lock);
    flush(request);
    bool found = search(request);
    ac_unlock(&allocator->lock);
    return found;
}

bool ac_find_added(ac_request_t *request) {
    return search(request);
}

void ac_find_new(ac_request_t *request, ac_block_t *block) {
    announce(request);
    ac_block_t *slot = cut_slot(request);
    if (slot)
        block = slot;
    else
        ac_segment_carve(block, request->size);
    ac_segment_reuse(block, request->requested);
    handed_out(request, block);
    conclude(request);
}
