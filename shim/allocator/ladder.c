/* Requests and frees: the ladder from a cached block to "out of memory".
 *
 * A hit never comes here: cudaMalloc and cudaFree are one function each, with the cache's part inline
 * (thread_cache.h).  A miss that free memory serves calls, from ac_cache_fetch on, each of these once;
 * functions in brackets are inline in a Release build, which links these files as one:
 *   ac_cache_fetch (ac_find_free: lock)               the request, its size and pool
 *   (ac_cache_is_in_way)                              are large blocks in the way?
 *   (cut_at_once, ac_free_index_first)                the block
 *   ac_segment_carve, ac_page_map_set_on              out of the free memory
 *   (ac_cache_affords, ac_cache_serve_cut)            does it count as a hit?
 *   (ac_cache_expect: unlock)                         is the size kept from now on?
 * Each block that the cache gives back on the way is a free of its own.  (The test bench_walk counts them
 * with callgrind in a Release build, which does not see functions that the compiler put into others.)
 *
 * Steps that call the device leave the lock around the call, and search again after it, because memory
 * may have changed.  A search is made only if something was added since the last one (find.c). */
#include "allocator/give_back.h"
#include "allocator/guarded.h"
#include "allocator/request.h"
#include "allocator/space/guard_place.h"
#include "allocator/supply/supply.h"

/* More than the memory of any device. */
#define REQUEST_MOST ((uint64_t)1 << 48)

/* Returns true if a large request gets no new memory now: beside a capture, or at the limit.  At the
 * limit pages may still move. */
static bool is_held_up(const ac_request_t *request) {
    const ac_arena_t *arena = request->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t least = ac_supply_least(request->pool, request->size);
    ac_lock(&allocator->lock);
    bool full = !allocator->settings.expandable_segments &&
                ac_supply_taken(allocator) + least > ac_supply_bound(allocator, AC_UNLIMITED);
    ac_unlock(&allocator->lock);
    return request->pool == AC_POOL_LARGE && (full || arena->ops->capturing(arena->context, true));
}

/* From step 2 on: no free memory serves. */
static ac_status_t serve(ac_request_t *request) {
    ac_arena_t *arena = request->arena;
    request->soon = arena->ops->now_ns() + AC_PATIENCE_NS;
    /* 2. One of the request's own stream, which has to be given an item first. */
    if (ac_ready_in_order(request, AC_OWN_STREAM) == AC_OK)
        return AC_OK;
    /* 3.  A block of which the work is over: asks the device, without waiting. */
    if (ac_ready_ask(request))
        return AC_OK;
    /* Any free block, if the device has no more or a capture may keep it from answering. */
    if (!request->spared && is_held_up(request) && ac_find_any(request))
        return AC_OK;
    /* Blocks of the request's own cache, if they were spared so far. */
    if (ac_find_kept(request))
        return AC_OK;
    /* A block that was spared in order to wait, if the request does not wait. */
    if (request->spared && !ac_ready_waits(request) && ac_find_spared(request))
        return AC_OK;
    /* 4.  Memory that threads keep, ready or waiting; the request asks again after that.  Not if threads
     * may rather have new memory. */
    if (!request->cache_stays && ac_caches_recall(arena->allocator, request->cache) &&
        (ac_find_again(request) || ac_ready_ask(request)))
        return AC_OK;
    /* 5.  A block with work that ends soon: waits while growing would exceed the budget. */
    if (ac_ready_wait(request) || ac_find_spared(request))
        return AC_OK;
    /* 6. New memory.  Threads that miss together share what one of them asks the device for. */
    ac_status_t status = ac_grow(request);
    if (status != AC_OK && request->cache_stays) {
        request->cache_stays = false;
        if (ac_caches_recall(arena->allocator, request->cache) && ac_find_again(request))
            return AC_OK;
    }
    /* 7.  The device has no more: waits for all work, gives idle memory back, and searches every pool to
     * its end. */
    return status == AC_OOM ? ac_full(request) : status;
}

static inline ac_status_t ask(ac_arena_t *arena, ac_cache_t *cache, unsigned module,
                              const ac_stream_t *stream, unsigned mempool, uint64_t bytes,
                              ac_ask_t how, uint64_t *address) {
    ac_request_t request = {.arena = arena,
                            .cache = cache,
                            .module = module,
                            .stream = stream,
                            .mempool = mempool,
                            .requested = bytes,
                            .cached_only = how == AC_ASK_CACHED,
                            .quiet = how == AC_ASK_QUIETLY};
    if (bytes == 0 || bytes >= REQUEST_MOST)
        return AC_OOM;
    /* 1. A free block, also one that became free meanwhile. */
    ac_status_t status = AC_OK;
    if (!ac_find_first(&request))
        status = request.cached_only ? AC_BUSY : serve(&request);
    if (status == AC_OK)
        *address = request.address;
    return status;
}

ac_status_t ac_arena_alloc(ac_arena_t *arena, uint64_t bytes, ac_ask_t how,
                           uint64_t *address) {
    return ac_arena_alloc_for(arena, AC_MODULE_UNKNOWN, bytes, how, address);
}

ac_status_t ac_arena_alloc_for(ac_arena_t *arena, unsigned module, uint64_t bytes,
                               ac_ask_t how, uint64_t *address) {
    return ask(arena, NULL, module, NULL, 0, bytes, how, address);
}

ac_status_t ac_arena_alloc_from(ac_arena_t *arena, unsigned module, unsigned mempool,
                                ac_stream_t stream, uint64_t bytes, ac_ask_t how,
                                uint64_t *address) {
    return ask(arena, NULL, module, &stream, mempool, bytes, how, address);
}

ac_status_t ac_arena_alloc_on(ac_arena_t *arena, ac_stream_t stream, uint64_t bytes,
                              ac_ask_t how, uint64_t *address) {
    return ac_arena_alloc_from(arena, AC_MODULE_UNKNOWN, AC_MEMPOOL_FIRST, stream, bytes,
                               how, address);
}

/* Not inlined, or a hit would pay for its registers. */
__attribute__((noinline)) static ac_status_t miss(ac_cache_t *cache, uint64_t bytes,
                                                  ac_ask_t how, uint64_t *address) {
    return ask(cache->arena, cache, ac_cache_asking(cache), NULL, 0, bytes, how, address);
}

ac_status_t ac_cache_alloc(ac_cache_t *cache, uint64_t bytes, ac_ask_t how,
                           uint64_t *address) {
    ac_take_t taken = ac_cache_take(cache, bytes, address, ac_fence_handout);
    if (__builtin_expect(taken == AC_TAKE_DUE, 0))
        ac_cache_raise(cache);
    return taken || ac_cache_take_long(cache, bytes, address)
               ? AC_OK
               : miss(cache, bytes, how, address);
}

uint64_t ac_cache_fetch(ac_cache_t *cache, uint64_t bytes) {
    uint64_t size = (bytes + AC_GRANULE - 1) & ~(AC_GRANULE - 1), address;
    const ac_entry_t *entry = ac_cache_peek(cache, size);
    if (ac_cache_take_beside(cache, entry, size, bytes, &address))
        return address;
    return bytes && bytes < REQUEST_MOST ? ac_find_free(cache, size, bytes, entry) : 0;
}

uint64_t ac_cache_fetch_ready(ac_cache_t *cache, uint64_t bytes) {
    ac_request_t request = {.arena = cache->arena,
                            .cache = cache,
                            .module = ac_cache_asking(cache),
                            .requested = bytes,
                            .cached_only = true};
    if (bytes == 0 || bytes >= REQUEST_MOST)
        return 0;
    return ac_find_waiting(&request) || ac_ready_ask(&request) ? request.address : 0;
}

static ac_status_t free_without_record(uint64_t address) {
    ac_status_t status = ac_block_free_without_record(address);
    return status == AC_BUSY ? ac_block_free(address) : status;
}

/* `block`: see ac_cache_lock_found; NULL: not found yet. */
static ac_status_t free_block(ac_cache_t *cache, ac_block_t *block, uint64_t address) {
    ac_allocator_t *allocator = cache ? cache->arena->allocator : NULL;
    if (!block || !ac_cache_lock_found(cache, block, address)) {
        ac_status_t status = ac_allocator_lock_to_free(address, &block, &allocator);
        if (status != AC_OK)
            return status == AC_OOM ? free_without_record(address) : status;
    }
    ac_block_touch_neighbours(block);
    if (cache && cache->arena->allocator == allocator && /* another device's lock is not its */
        ac_cache_is_untidy(cache, false))
        ac_cache_tidy(cache, false);
    ac_arena_t *arena = block->segment->arena;
    ac_ticket_t ticket;
    ac_free_t how = ac_order_retire(&arena->timeline, &block->ticket, block->size, &ticket);
    if (how != AC_FREE_WAITS && ac_cache_take_back(cache, block, how == AC_FREE_BY_ORDER)) {
        ac_unlock(&allocator->lock);
        return AC_OK;
    }
    ac_caches_settle_pool(allocator, block->mempool);
    bool guarded = ac_segment_is_guarded(block->segment);
    if (guarded)
        ac_guard_note_freed(block);
    ac_segment_release(block);
    allocator->counters->cached_frees++;
    bool leaves = false;
    if (how == AC_FREE_WAITS) {
        leaves = ac_retired_add(block, &ticket);
    } else {
        if (how == AC_FREE_BY_ORDER)
            allocator->counters->ordered_frees++;
        else
            allocator->counters->ready_frees++;
        ac_segment_count_finished(block);
        if (!ac_cache_keep(cache, block))
            ac_segment_coalesce(block, ac_fence_quiet(&arena->timeline));
    }
    bool leaving = how != AC_FREE_WAITS && arena->tainted_idle;
    ac_unlock(&allocator->lock);
    if (leaving)
        ac_give_back_leaving(arena);
    if (guarded)
        ac_guard_freed(arena, true);
    else if (leaves)
        ac_supply_postpone_trim(allocator);
    return AC_OK;
}

ac_status_t ac_block_free(uint64_t address) {
    return free_block(NULL, NULL, address);
}

ac_status_t ac_cache_free_missed(ac_cache_t *cache, uint64_t address) {
    return free_block(cache, ac_cache_block(cache, address), address);
}

ac_status_t ac_cache_free(ac_cache_t *cache, uint64_t address) {
    ac_block_t *block = ac_cache_block(cache, address);
    if (block && ac_cache_give(cache, block, address))
        return AC_OK;
    return free_block(cache, block, address);
}

ac_status_t ac_block_free_on(ac_arena_t *arena, ac_stream_t stream, uint64_t address) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_to_free(address, &block, &allocator);
    if (status == AC_OOM && (status = ac_block_mark_used(address)) == AC_OK) {
        ac_fence_submitted(&arena->timeline);
        return free_without_record(address);
    }
    if (status != AC_OK)
        return status;
    ac_arena_t *owner = block->segment->arena;
    ac_ticket_t ticket, used = block->ticket;
    ac_caches_settle_pool(allocator, block->mempool);
    allocator->counters->cached_frees++;
    allocator->counters->async_frees++;
    bool guarded = ac_segment_is_guarded(block->segment);
    if (guarded)
        ac_guard_note_freed(block);
    unsigned slot = owner == arena ? ac_ordered_slot_for(block, stream) : AC_ORDER_NONE;
    ac_order_retire_on(&owner->timeline, &arena->timeline, owner->retired->order, slot, &used,
                       &ticket);
    ac_segment_release(block);
    bool leaves = ac_retired_add(block, &ticket);
    ac_caches_check_peaks(allocator, NULL); /* free neighbours of the block may wait with it */
    ac_unlock(&allocator->lock);
    if (guarded)
        ac_guard_freed(owner, false);
    else if (leaves)
        ac_supply_postpone_trim(allocator);
    return AC_OK;
}
