/* Lanes of a thread's cache (lane.h): the slow paths. */
#include <string.h>

#include "allocator/cache/cache_int.h"
#include "allocator/cache/lane.h"
#include "allocator/carve.h"
#include "allocator/retired/retired.h"
#include "failpoint.h"

/* Number of requests and frees without a lane after which a lane in use is given to another stream. */
enum { LANE_REFUSALS = 64 };

/* --- lanes --- */

static void point_at(ac_lanes_t *lanes, const void *handle, const ac_lane_t *lane) {
    uint64_t hash = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
    lanes->at[hash >> (64 - AC_LANE_BITS)] = (uint16_t)((uintptr_t)lane - (uintptr_t)lanes);
}

/* Makes `at` point to the stream's lane, or to a lane that the stream may take.  Returns false if there is none.
 * Called by the owner. */
static bool look_up(ac_lanes_t *lanes, const void *handle) {
    ac_lane_t *spare = NULL;
    if (ac_lane_of(lanes, handle)->stream == handle)
        return true;
    for (int i = 0; i < AC_LANES; i++) {
        ac_lane_t *lane = &lanes->lane[i];
        if (lane->stream == handle) {
            point_at(lanes, handle, lane);
            return true;
        }
        if (!lane->stream)
            spare = lane;
    }
    if (!spare && ++lanes->refused % LANE_REFUSALS == 0)
        spare = &lanes->lane[lanes->refused / LANE_REFUSALS % AC_LANES];
    if (spare)
        point_at(lanes, handle, spare);
    return spare;
}

static void close_lane(ac_cache_t *cache, ac_lane_t *lane) {
    if (!lane->stream)
        return;
    ac_ordered_lane_end(cache->arena, lane->order.slot);
    *lane = (ac_lane_t){.stream = NULL};
    cache->lanes->count--;
}

void ac_lanes_begin(ac_cache_t *cache, ac_lanes_t *lanes) {
    cache->lanes = lanes;
    if (!lanes)
        return;
    memset(lanes, 0, sizeof *lanes);
}

void ac_lanes_close(ac_cache_t *cache) {
    for (int i = 0; cache->lanes && i < AC_LANES; i++)
        close_lane(cache, &cache->lanes->lane[i]);
}

/* Sets the pool of the lanes, for all caches of the device.  Returns false if they have another pool. */
static bool set_pool(ac_cache_t *cache, unsigned mempool) {
    ac_allocator_t *allocator = cache->arena->allocator;
    if (!allocator->caches->mempool) {
        allocator->caches->mempool = mempool;
        allocator->mempools[mempool].tallied = true;
        ac_caches_raise(allocator, cache);
    }
    if (allocator->caches->mempool != mempool)
        return false;
    cache->arena->retired->mempool = mempool;
    cache->lanes->mempool = mempool;
    return true;
}

/* Gives the stream its lane and stores the current conditions in it.  Returns false if the lane cannot serve. */
static bool renew(ac_cache_t *cache, const ac_lane_ask_t *ask) {
    ac_lane_t *lane = ac_lane_of(cache->lanes, ask->handle);
    ac_ordered_lane_t order;
    bool holds = ac_ordered_lane_holds(cache->arena, &lane->order);
    if (lane->stream &&
        (lane->stream != ask->handle || (!holds && !AC_FAILPOINT(lane_outlives_stream)))) {
        ac_cache_leave_stream(cache, lane->number, true);
        close_lane(cache, lane);
    }
    if (!ac_ordered_lane(cache->arena, ask->stream, &order))
        return false;
    if (lane->stream) /* it has the slot already */
        ac_ordered_lane_end(cache->arena, lane->order.slot);
    else
        cache->lanes->count++;
    lane->stream = ask->handle;
    lane->number = (uint64_t)(lane - cache->lanes->lane + 1) << AC_KEY_STREAM_SHIFT;
    lane->order = order;
    lane->generation = ask->generation;
    if (atomic_load(order.others) == order.item)
        return true;
    /* Work is hidden from the stream until the next submission to it. */
    ac_cache_leave_stream(cache, lane->number, false);
    return false;
}

/* Returns true if the lane serves as soon as the cache can be entered. */
static bool is_ready(ac_cache_t *cache, const ac_lane_ask_t *ask) {
    return cache->lanes && ac_lane_serves(ac_lane_of(cache->lanes, ask->handle), ask->handle) &&
           ac_lanes_are_synced(cache->lanes);
}

static bool open_lane(ac_cache_t *cache, const ac_lane_ask_t *ask) {
    ac_allocator_t *allocator = cache->arena->allocator;
    if (cache->lanes && !look_up(cache->lanes, ask->handle))
        return false;
    if (is_ready(cache, ask))
        return true;
    if (atomic_load(&cache->gate) & AC_GATE_STEPPED)
        return false;
    ac_lock(&allocator->lock);
    bool may = ac_cache_usable(cache) && cache->budget &&
               !(cache->owner_arena & AC_OWNER_STREAM) && ac_ordered_follows(cache->arena);
    if (may && !cache->lanes)
        cache->lanes = ac_carve_table(sizeof *cache->lanes);
    may = may && cache->lanes;
    if (may)
        ac_cache_wake(cache);
    may = may && set_pool(cache, ask->mempool);
    if (may && !ac_lanes_are_synced(cache->lanes)) {
        cache->lanes->syncs = atomic_load(&ac_mempool_syncs);
        if (atomic_load(&allocator->caches->count) == 1)
            ac_caches_raise(allocator, cache);
    }
    may = may && renew(cache, ask);
    ac_caches_check_peaks(allocator, cache);
    ac_unlock(&allocator->lock);
    return may;
}

/* --- slow paths --- */

/* Changes the cache's module label to that of the block, for this one call. */
bool ac_lane_push_other(ac_cache_t *cache, ac_block_t *block, const void *stream, uint64_t address) {
    uint32_t module, turn = cache->frees, label = block->label - ac_lane_label(0);
    if (cache->others <= 0 || !ac_cache_is_of_other(cache, label, &module))
        return false;
    uint64_t size = block->size;
    cache->frees = label;
    bool kept = ac_lane_push(cache, block, stream, address);
    cache->frees = turn;
    if (kept)
        ac_cache_tally_free_of(cache->tally, &cache->named, module, size);
    return kept;
}

/* Makes an entry for the key, or lets its refused entry serve again.  Takes the lock. */
static void expect(ac_cache_t *cache, uint64_t key, bool known) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    if (ac_cache_usable(cache) && cache->lanes)
        ac_cache_expect(cache, AC_POOL_LARGE, key, known);
    ac_caches_check_peaks(allocator, cache);
    ac_unlock(&allocator->lock);
}

/* Returns true if the cache, which has no block for the key, should keep some.  Inside. */
static bool wants(ac_cache_t *cache, uint64_t key, const ac_entry_t *entry) {
    return entry ? entry->size & AC_ENTRY_REFUSED : ac_cache_may_keep(cache, key, false);
}

bool ac_lane_take_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t bytes,
                       uint64_t *address) {
    uint64_t size = (bytes + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    if (!open_lane(cache, ask) || !ac_cache_enter_long(cache))
        return false;
    uint64_t key = size | ac_lane_of(cache->lanes, ask->handle)->number;
    const ac_entry_t *entry = ac_cache_find(cache, key);
    ac_take_t taken = ac_lane_pop(cache, ask->handle, bytes, address);
    bool wanted = !taken && wants(cache, key, entry);
    ac_cache_leave(cache);
    if (wanted)
        expect(cache, key, entry);
    return taken == AC_TAKE_DUE ? ac_cache_raise(cache) : taken;
}

/* Makes room for one more block of the key, if necessary by giving back other blocks.  Returns false if there is no
 * room.  Takes the lock. */
static bool make_room(ac_cache_t *cache, uint64_t key) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    bool made = ac_cache_usable(cache) && cache->lanes && ac_cache_make_room(cache, key);
    ac_caches_check_peaks(allocator, cache);
    ac_unlock(&allocator->lock);
    return made;
}

/* Returns the key, in the stream's lane, of the block that is allocated at `address`; 0 if there is none.  Called
 * inside. */
static uint64_t key_of(const ac_cache_t *cache, const ac_block_t *block, const void *handle,
                       uint64_t address) {
    bool lies = ac_cache_lies_at(block, address) && block->state == AC_BLOCK_ALLOCATED;
    return lies ? block->size | ac_lane_of(cache->lanes, handle)->number : 0;
}

bool ac_lane_give_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t address) {
    ac_block_t *block = *ac_cache_handed(cache, address);
    if (ac_block_address(block) != address)
        block = ac_slab_look(address);
    for (bool full = block && open_lane(cache, ask), kept = false; full && !kept;) {
        if (!ac_cache_enter_long(cache))
            return false;
        uint64_t key = key_of(cache, block, ask->handle, address);
        const ac_entry_t *entry = key ? ac_cache_keeps(cache, key) : NULL;
        if (entry)
            ac_cache_free_for(cache, block->module);
        kept = entry && ac_lane_push(cache, block, ask->handle, address);
        full = entry && !kept && cache->room < 0 &&
               ac_lane_comes_after(ac_lane_of(cache->lanes, ask->handle), block);
        ac_cache_leave(cache);
        full = full && make_room(cache, key);
        if (kept)
            return true;
    }
    return false;
}

void ac_lane_clear(ac_cache_t *cache, const void *handle) {
    ac_allocator_t *allocator = cache->arena->allocator;
    if (!cache->lanes || !look_up(cache->lanes, handle) ||
        ac_lane_of(cache->lanes, handle)->stream != handle)
        return;
    ac_lock(&allocator->lock);
    if (ac_cache_usable(cache))
        ac_cache_leave_stream(cache, ac_lane_of(cache->lanes, handle)->number, false);
    ac_caches_check_peaks(allocator, cache);
    ac_unlock(&allocator->lock);
}

/* --- the pool's figures (cache_tally.c) --- */

void ac_lanes_absorb(ac_cache_t *cache) {
    ac_lanes_t *lanes = cache->lanes;
    if (!lanes || !lanes->mempool)
        return;
    uint64_t now = __atomic_load_n(&lanes->net, __ATOMIC_RELAXED);
    cache->arena->allocator->mempools[lanes->mempool].now[AC_MARK_USED] += now - lanes->absorbed;
    lanes->absorbed = now;
}
