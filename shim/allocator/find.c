/* Searches without the device: free memory of the arena, blocks that the order of streams gives to the
 * request, and memory that became ready since the last search.  A search that found nothing notes the
 * arena's count of added memory: until that count moves, another search would find nothing either. */
#include "allocator/request.h"
#include "allocator/supply/medium.h"
#include "failpoint.h"

/* --- the block is the request's --- */

static void handed_out(ac_request_t *request, ac_block_t *block) {
    AC_BLOCK_SET(block, ticket.epoch, ac_fence_handout(&request->arena->timeline));
    request->address = block->address;
    if (request->stream)
        ac_ordered_handed_out(block, request->mempool);
}

/* The arena may have more requests of this kind. */
static inline __attribute__((always_inline)) void conclude(const ac_request_t *request) {
    ac_caches_check_peaks(request->arena->allocator, request->cache);
    if (request->cache && !request->stream &&
        ac_cache_may_expect(request->cache, request->size, true))
        ac_cache_expect(request->cache, request->pool, request->size, true);
}

/* Counts the block as a hit if the request's cache has headroom for it. */
__attribute__((noinline)) static bool serve_as_hit(ac_request_t *request, ac_block_t *block) {
    ac_cache_t *cache = request->cache;
    if (request->stream || block->size != request->size || !ac_block_is_plain(block) || !cache ||
        !cache->owner_arena ||
        !ac_cache_affords(cache, request->size))
        return false;
    ac_cache_serve_cut(cache, block, request->size, request->requested);
    request->address = block->address;
    return true;
}

/* The block was cut out of the free memory. */
static void serve(ac_request_t *request, ac_block_t *block) {
    if (!serve_as_hit(request, block)) {
        ac_segment_reuse(block, request->module, request->requested);
        handed_out(request, block);
        request->arena->allocator->counters->cached_allocs++;
    }
    conclude(request);
}

/* --- the search --- */

static inline ac_fit_t fit_for(const ac_request_t *request) {
    const ac_settings_t *settings = &request->arena->allocator->settings;
    return request->scarce ? ac_size_fit_last(settings, request->size)
                           : ac_size_fit(settings, request->size);
}

/* A slot of a slab; NULL: not for this request, or there is none. */
static ac_block_t *cut_slot(const ac_request_t *request) {
    return request->stream || request->pool != AC_POOL_SMALL || !ac_slab_serves(request->size)
               ? NULL
               : ac_slab_carve(&request->arena->space, request->size);
}

/* --- spared large blocks --- */

static bool any_waits(const ac_request_t *request) {
    return ac_retired_any(request->arena) || (request->cache && ac_cache_waits(request->cache));
}

/* Returns true if the request should ask for, and perhaps wait for, freed memory rather than split the large
 * free block.  Native memory does not move: a block that is split serves no large request again while its
 * parts live.  If requests split large blocks while others wait for work, waiting no longer avoids growth. */
static bool spare(const ac_request_t *request, const ac_block_t *block) {
    const ac_arena_t *arena = request->arena;
    const ac_allocator_t *allocator = arena->allocator;
    if (request->settled || request->stream || block->segment->range || block->size < AC_LARGE ||
        block->size - request->size <= request->size / 8)
        return false;
    uint64_t most = ac_budget(&allocator->settings, AC_BUDGET_IDLE, allocator->high_water);
    return ac_supply_taken(allocator) + ac_supply_least(request->pool, request->size) > most &&
           any_waits(request) && !arena->ops->capturing(arena->context, true);
}

/* Returns false if `spare` would say so of a plain request, without its record. */
static inline bool may_be_spared(const ac_cache_t *cache, const ac_block_t *block) {
    return !block->segment->range && block->size >= AC_LARGE &&
           (ac_retired_any(cache->arena) || ac_cache_waits(cache));
}

bool ac_find_spared(ac_request_t *request) {
    request->settled = true;
    if (!request->spared)
        return false;
    request->seen[0] = 0;
    return ac_find_again(request);
}

/* --- the block of a request --- */

/* Returns the index to search.  Medium blocks may have come together with others since the last time. */
static inline int index_of(ac_request_t *request) {
    const ac_allocator_t *allocator = request->arena->allocator;
    if (request->pool == AC_POOL_SMALL)
        return AC_POOL_SMALL;
    request->medium = request->medium && ac_medium_serves(allocator, request->size);
    if (request->medium)
        return AC_INDEX_MEDIUM;
    return ac_big_serves(allocator, request->pool, request->size) ? AC_INDEX_BIG : AC_POOL_LARGE;
}

/* Searches all indices, the request's own first. */
static ac_block_t *pick_any(ac_request_t *request, const ac_free_index_t *from, const ac_fit_t *fit) {
    ac_block_t *block = NULL;
    for (int i = 0, own = index_of(request); i < AC_INDICES && !block; i++)
        block = ac_free_index_find(&from[(own + i) % AC_INDICES], fit, true);
    return block;
}

/* Returns the request's block from the AC_INDICES indices.  NULL: there is none, or it is spared. */
static inline __attribute__((always_inline)) ac_block_t *
pick(ac_request_t *request, const ac_free_index_t *from, const ac_fit_t *fit) {
    ac_allocator_t *allocator = request->arena->allocator;
    if (request->scarce)
        return pick_any(request, from, fit);
    int index = index_of(request);
    ac_block_t *block = ac_free_index_find(&from[index], fit, false);
    if (!block && index == AC_INDEX_BIG)
        block = ac_free_index_find(&from[AC_POOL_LARGE], fit, false);
    if (block && index == AC_POOL_LARGE &&
        ac_medium_comes_apart(allocator, request->size, block->segment)) {
        allocator->supply->medium.apart = request->medium = true;
        block = ac_free_index_find(&from[AC_INDEX_MEDIUM], fit, false);
    }
    if (block && spare(request, block)) {
        request->spared = true;
        return NULL;
    }
    return block;
}

/* Searches the free memory.  With `scarce`: also what slabs and sealed segments keep. */
static ac_block_t *find_block(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    const ac_fit_t fit = fit_for(request);
    if (request->scarce)
        ac_segments_unseal(&arena->space);
    ac_block_t *block = pick(request, arena->index, &fit);
    if (!block && request->scarce && request->size < AC_SMALL_SEGMENT && ac_slabs_dissolve(&arena->space))
        block = pick_any(request, arena->index, &fit);
    return block;
}

/* Picks a block that waits in the order of a stream, unless a smaller free block serves the request.  So
 * memory that a stream uses again and again stays in large pieces. */
static ac_block_t *pick_ordered(void *arg, const ac_free_index_t *index, const ac_fit_t *fit) {
    ac_request_t *request = arg;
    const ac_arena_t *arena = request->arena;
    ac_block_t *block = pick(request, index, fit);
    bool must = !block || block->size == request->size || request->scarce ||
                request->size >= arena->allocator->settings.max_split_size;
    return !must && ac_free_index_has_better(&arena->index[block->segment->index], request->size, block) ? NULL
                                                                                                  : block;
}

ac_order_request_t ac_find_ordered(ac_request_t *request) {
    return (ac_order_request_t){.stream = *request->stream,
                                .mempool = request->mempool,
                                .module = request->module,
                                .size = request->size,
                                .requested = request->requested,
                                .fit = fit_for(request),
                                .find = pick_ordered,
                                .arg = request};
}

/* Serves the request with memory that the order of streams makes its own. */
static bool search_ordered(ac_request_t *request) {
    if (!request->stream || !request->arena->ordered)
        return false;
    ac_order_request_t ordered = ac_find_ordered(request);
    if (!ac_ordered_serve(request->arena, &ordered))
        return false;
    request->address = ordered.address;
    request->arena->allocator->counters->cached_allocs++;
    ac_caches_check_peaks(request->arena->allocator, request->cache);
    return true;
}

static bool search_free(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    if (request->seen[request->scarce] == arena->added && !AC_FAILPOINT(searched_again))
        return false;
    AC_WINDOW(searched);
    ac_block_t *block = cut_slot(request);
    if (!block && (block = find_block(request)))
        ac_segment_carve(block, request->size);
    request->seen[request->scarce] = arena->added;
    if (block)
        serve(request, block);
    return block;
}

static bool search(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    if (arena->dead)
        return false;
    if (search_ordered(request))
        return true;
    ac_retired_drain(arena);
    return search_free(request);
}

/* Flushes blocks of the request's own cache.  None has its size, but coalesced with their neighbours they
 * may serve it.  Flushes as much as the request takes; for a medium request medium blocks alone. */
static bool flush(const ac_request_t *request, bool all) {
    uint64_t largest = request->medium ? ac_medium_most(request->arena->allocator) : AC_CACHE_LARGEST;
    return !request->cache_stays && !request->arena->dead && ac_cache_usable(request->cache) &&
           ac_cache_flush(request->cache, request->size, largest, all);
}

static bool search_flushed(ac_request_t *request, bool all) {
    bool found = false;
    while (!found && flush(request, all))
        found = search_free(request);
    return found;
}

/* Returns true if growing is better than to take what threads keep (caches.h). */
static bool may_grow(const ac_request_t *request, bool waits) {
    const ac_allocator_t *allocator = request->arena->allocator;
    uint64_t reserved = (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current;
    bool keeps = request->cache || (request->stream && allocator->caches->mempool);
    return keeps && reserved + ac_supply_least(request->pool, request->size) <=
                        ac_caches_allowance(allocator, waits, request->stream);
}

static void leave(ac_allocator_t *allocator) {
    bool crowded = ac_slabs_crowded(&allocator->slots);
    ac_unlock(&allocator->lock);
    if (crowded)
        ac_allocator_drop_records(allocator);
}

/* Prepares what is common to all ways of serving the request. */
static inline void set_out(ac_request_t *request) {
    const ac_allocator_t *allocator = request->arena->allocator;
    const ac_settings_t *settings = &allocator->settings;
    request->size = ac_size_round(settings->divisions, request->requested);
    request->pool = request->size <= settings->small_limit ? AC_POOL_SMALL : AC_POOL_LARGE;
    request->medium =
        request->pool == AC_POOL_LARGE && ac_medium_serves(allocator, request->size);
    if (request->pool != ac_pool_kept(request->size))
        request->cache = NULL;
}

/* Leaves the lock, which the caller took. */
static bool find_first(ac_request_t *request) {
    if (request->cache && ac_cache_is_untidy(request->cache, true))
        ac_cache_tidy(request->cache, true);
    set_out(request);
    if (request->cache && ac_cache_is_in_way(request->cache, request->size))
        ac_cache_flush(request->cache, request->size, AC_CACHE_LARGEST, true);
    bool found = search(request);
    if (!found) {
        bool waits = any_waits(request); /* then the device is asked first (ready.c) */
        request->cache_stays = may_grow(request, waits);
        found = search_flushed(request, !waits);
    }
    leave(request->arena->allocator);
    return found;
}

bool ac_find_waiting(ac_request_t *request) {
    ac_lock(&request->arena->allocator->lock);
    set_out(request);
    if (!any_waits(request))
        return find_first(request);
    request->cache_stays = may_grow(request, true);
    ac_unlock(&request->arena->allocator->lock);
    return false;
}

bool ac_find_first(ac_request_t *request) {
    ac_lock(&request->arena->allocator->lock);
    return find_first(request);
}

/* --- the same without a request's record, which is most of what a search takes --- */

__attribute__((noinline)) static uint64_t find_rest(ac_cache_t *cache, uint64_t bytes) {
    ac_request_t request = {.arena = cache->arena,
                            .cache = cache,
                            .module = ac_cache_asking(cache),
                            .requested = bytes,
                            .cached_only = true};
    return find_first(&request) ? request.address : 0;
}

/* The block, which was cut, does not count as a hit. */
__attribute__((noinline)) static void serve_rest(ac_cache_t *cache, int pool, uint64_t size,
                                                 uint64_t bytes, ac_block_t *block) {
    ac_request_t request = {.arena = cache->arena,
                            .cache = cache,
                            .module = ac_cache_asking(cache),
                            .pool = pool,
                            .size = size,
                            .requested = bytes};
    ac_segment_reuse(block, request.module, bytes);
    handed_out(&request, block);
    cache->arena->allocator->counters->cached_allocs++;
    conclude(&request);
}

/* Returns the block that search_free would split, unless it may be spared; else NULL. */
static inline ac_block_t *cut_at_once(const ac_cache_t *cache, int pool, uint64_t size) {
    ac_arena_t *arena = cache->arena;
    const ac_allocator_t *allocator = arena->allocator;
    const ac_settings_t *settings = &allocator->settings;
    ac_block_t *block;
    AC_WINDOW(searched);
    if (ac_slab_serves(size) && pool == AC_POOL_SMALL &&
        (block = ac_slab_carve(&arena->space, size)))
        return block;
    if (ac_big_serves(allocator, pool, size))
        return NULL;
    uint64_t below = ac_size_below(settings, size, ac_size_below_last(settings, size));
    bool medium = pool == AC_POOL_LARGE && ac_medium_serves(allocator, size);
    block = ac_free_index_first(&arena->index[medium ? AC_INDEX_MEDIUM : pool], size, below);
    if (!block || may_be_spared(cache, block) ||
        (pool == AC_POOL_LARGE && ac_medium_comes_apart(allocator, size, block->segment)))
        return NULL;
    ac_segment_carve(block, size);
    return block;
}

uint64_t ac_find_free(ac_cache_t *cache, uint64_t size, uint64_t bytes, bool known) {
    ac_arena_t *arena = cache->arena;
    ac_allocator_t *allocator = arena->allocator;
    const ac_settings_t *settings = &allocator->settings;
    ac_lock(&allocator->lock);
    uint32_t gate = ac_cache_gate(cache);
    if (gate & AC_GATE_STEPPED) {
        size = ac_size_round(settings->divisions, bytes);
        known = known || size != ac_size_up(bytes, AC_GRANULE);
    }
    int pool = ac_pool_kept(size);
    /* The cache has to be able to keep the block. */
    if ((gate & (AC_GATE_RECALLED | AC_GATE_GONE)) || !cache->owner_arena || arena->dead ||
        (settings->small_limit != AC_SMALL_LIMIT &&
         (size <= settings->small_limit) != (pool == AC_POOL_SMALL)) ||
        size >= settings->max_split_size)
        return find_rest(cache, bytes);
    if (ac_cache_is_untidy(cache, true))
        ac_cache_tidy(cache, true);
    if (ac_cache_is_in_way(cache, size))
        ac_cache_flush(cache, size, AC_CACHE_LARGEST, true);
    ac_retired_drain(arena);
    ac_block_t *block = cut_at_once(cache, pool, size);
    if (!block)
        return find_rest(cache, bytes);
    uint64_t address = ac_block_address(block);
    if (block->size == size && ac_cache_affords(cache, size)) {
        ac_cache_serve_cut(cache, block, size, bytes);
        if (ac_cache_may_keep(cache, size, known))
            ac_cache_expect(cache, pool, size, known);
    } else {
        serve_rest(cache, pool, size, bytes, block);
    }
    leave(allocator);
    return address;
}

bool ac_find_again(ac_request_t *request) {
    ac_allocator_t *allocator = request->arena->allocator;
    if (request->scarce)
        ac_caches_recall_lock(allocator, request->cache);
    else
        ac_lock(&allocator->lock);
    flush(request, false);
    bool found = search(request);
    ac_unlock(&allocator->lock);
    return found;
}

bool ac_find_any(ac_request_t *request) {
    request->scarce = true;
    bool found = ac_find_again(request);
    request->scarce = false;
    return found;
}

bool ac_find_kept(ac_request_t *request) {
    if (!request->cache)
        return false;
    ac_lock(&request->arena->allocator->lock);
    /* Otherwise it was flushed before the device was asked. */
    bool found = ac_cache_weighs(request->cache) && search_flushed(request, true);
    ac_unlock(&request->arena->allocator->lock);
    return found;
}

bool ac_find_added(ac_request_t *request) {
    return search(request);
}

void ac_find_new(ac_request_t *request, ac_block_t *block) {
    ac_block_t *slot = cut_slot(request);
    if (slot)
        block = slot;
    else
        ac_segment_carve(block, request->size);
    ac_segment_reuse(block, request->module, request->requested);
    handed_out(request, block);
    conclude(request);
}
