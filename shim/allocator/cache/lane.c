/* Lanes of a thread's cache (lane.h): what is not to be done at each request. */
#include <string.h>

#include "allocator/cache/cache_int.h"
#include "allocator/cache/lane.h"
#include "allocator/carve.h"
#include "allocator/retired/retired.h"
#include "failpoint.h"

/* An entry is given to another size that finds it in use so often. */
enum { REFUSALS = 2 };

/* One lane of those in use is given to another stream each time that so many found none. */
enum { LANE_REFUSALS = 64 };

/* --- leaving --- */

/* It was ready, and waits as what is freed now: active again. */
static void count_active(const ac_block_t *block) {
    ac_allocator_t *allocator = block->segment->arena->allocator;
    ac_device_stats_t *s = allocator->stats;
    int pool = block->segment->pool;
    bool *due = &allocator->peaks_due;
    ac_stat_pools_rise(s->active, pool, 1, AC_STAT_UNSEEN_BLOCKS, due);
    ac_stat_pools_rise(s->active_bytes, pool, (int64_t)block->size, AC_STAT_UNSEEN_BYTES, due);
    ac_stat_pools_rise(s->requested_bytes, pool, (int64_t)block->requested, AC_STAT_UNSEEN_BYTES,
                       due);
}

static bool leave_entry(ac_cache_t *cache, const ac_lane_t *lane, ac_lane_entry_t *entry) {
    ac_arena_t *arena = cache->arena;
    bool any = entry->top, holds = any && ac_ordered_lane_holds(arena, &lane->order);
    for (ac_block_t *block; (block = entry->top);) {
        entry->top = block->link;
        cache->room += (int64_t)block->size;
        ac_cache_count_moved(cache, -1, block->size);
        ac_block_uncache(block);
        count_active(block);
        ac_retired_late(block, arena->retired->order, holds ? lane->order.slot : AC_ORDER_NONE,
                        block->ticket.place);
    }
    return any;
}

static bool leave_lane(ac_cache_t *cache, ac_lane_t *lane) {
    bool any = false;
    for (int i = 0; lane->stream && i < AC_LANE_SIZES; i++)
        any |= leave_entry(cache, lane, &lane->entry[i]);
    return any;
}

bool ac_lanes_leave(ac_cache_t *cache) {
    bool any = false;
    for (int i = 0; cache->lanes && cache->lanes->count && i < AC_LANES; i++)
        any |= leave_lane(cache, &cache->lanes->lane[i]);
    return any;
}

/* What the cache keeps of the size for other streams than the lane's may serve there, where an
 * order is proved. */
static void leave_size(ac_cache_t *cache, const ac_lane_t *but, uint64_t size) {
    for (int i = 0; i < AC_LANES; i++) {
        ac_lane_t *lane = &cache->lanes->lane[i];
        ac_lane_entry_t *entry = ac_lane_entry(lane, size);
        if (lane != but && lane->stream && entry->size == size)
            leave_entry(cache, lane, entry);
    }
}

/* --- lanes --- */

static void point_at(ac_lanes_t *lanes, const void *handle, ac_lane_t *lane) {
    uint64_t hash = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
    lanes->at[hash >> (64 - AC_LANE_BITS)] = lane;
}

static void set_up(ac_lanes_t *lanes) {
    for (int i = 0; i < 1 << AC_LANE_BITS; i++)
        lanes->at[i] = &lanes->lane[0];
}

/* By the owner: the stream's lane is the one at its place.  False: it has none, and is to get
 * none. */
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
    *lane = (ac_lane_t){.key = 0};
    cache->lanes->count--;
}

void ac_lanes_begin(ac_cache_t *cache, ac_lanes_t *lanes) {
    cache->lanes = lanes;
    if (!lanes)
        return;
    memset(lanes, 0, sizeof *lanes);
    set_up(lanes);
}

void ac_lanes_close(ac_cache_t *cache) {
    for (int i = 0; cache->lanes && i < AC_LANES; i++)
        close_lane(cache, &cache->lanes->lane[i]);
}

/* The pool of the lanes, for all caches of the device; false: it is another. */
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

/* The stream has its lane, and that is of now.  False: it cannot serve. */
static bool renew(ac_cache_t *cache, const ac_lane_ask_t *ask) {
    ac_lane_t *lane = ac_lane_of(cache->lanes, ask->handle);
    ac_ordered_lane_t order;
    bool holds = ac_ordered_lane_holds(cache->arena, &lane->order);
    if (lane->stream &&
        (lane->stream != ask->handle || (!holds && !AC_FAILPOINT(lane_outlives_stream)))) {
        leave_lane(cache, lane);
        close_lane(cache, lane);
    }
    if (!ac_ordered_lane(cache->arena, ask->stream, &order))
        return false;
    if (lane->stream) /* it has the slot already */
        ac_ordered_lane_end(cache->arena, lane->order.slot);
    else
        cache->lanes->count++;
    lane->stream = ask->handle;
    lane->order = order;
    lane->key = ac_key_of(order.slot);
    lane->others = order.others;
    lane->item = order.item;
    lane->generation = ask->generation;
    if (atomic_load(lane->others) == lane->item)
        return true;
    leave_lane(cache, lane); /* until the stream is given something */
    return false;
}

/* Whether the lane serves as soon as the cache can be entered. */
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
    if (may && !cache->lanes && (cache->lanes = ac_carve_table(sizeof *cache->lanes)))
        set_up(cache->lanes);
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

/* --- the long way --- */

/* For this one block it is that module's turn. */
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

/* There was a request of the size, which none was kept for.  True: the entry is another's, and is to
 * give way.  Inside. */
static bool expect(ac_lane_t *lane, uint64_t size) {
    ac_lane_entry_t *entry = ac_lane_entry(lane, size);
    if (size > AC_LANE_LARGEST)
        return false;
    if ((entry->size & ~(uint64_t)AC_LANE_ONCE) == size)
        entry->size = size;
    else if (!entry->top)
        *entry = (ac_lane_entry_t){.size = size | AC_LANE_ONCE};
    else
        return ++entry->refused >= REFUSALS;
    return false;
}

/* Whether another lane has a block of the size: where an order is proved, that may serve.  Inside. */
static bool others_have(const ac_cache_t *cache, const ac_lane_t *lane, uint64_t size) {
    ac_lanes_t *lanes = cache->lanes;
    for (int i = 0; lanes->count > 1 && i < AC_LANES; i++) {
        const ac_lane_entry_t *entry = ac_lane_entry(&lanes->lane[i], size);
        if (&lanes->lane[i] != lane && entry->size == size && entry->top)
            return true;
    }
    return false;
}

static void clear_way(ac_cache_t *cache, ac_lane_t *lane, uint64_t size, bool gives_way) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lane_entry_t *entry = ac_lane_entry(lane, size);
    ac_lock(&allocator->lock);
    if (ac_cache_usable(cache)) {
        leave_size(cache, lane, size);
        if (gives_way) {
            leave_entry(cache, lane, entry);
            *entry = (ac_lane_entry_t){.size = 0};
        }
        ac_caches_check_peaks(allocator, cache);
    }
    ac_unlock(&allocator->lock);
}

bool ac_lane_take_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t bytes,
                       uint64_t *address) {
    uint64_t size = (bytes + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    if (!open_lane(cache, ask) || !ac_cache_enter_long(cache))
        return false;
    ac_lane_t *lane = ac_lane_of(cache->lanes, ask->handle);
    ac_take_t taken = ac_lane_pop(cache, ask->handle, bytes, address);
    bool gives_way = !taken && expect(lane, size);
    bool others = !taken && others_have(cache, lane, size);
    ac_cache_leave(cache);
    if (gives_way || others)
        clear_way(cache, lane, size, gives_way);
    return taken == AC_TAKE_DUE ? ac_cache_raise(cache) : taken;
}

static bool lease(ac_cache_t *cache) {
    ac_allocator_t *allocator = cache->arena->allocator;
    ac_lock(&allocator->lock);
    bool leased = ac_cache_usable(cache) && (cache->room >= 0 || ac_cache_lease(cache, false));
    ac_unlock(&allocator->lock);
    return leased;
}

bool ac_lane_give_long(ac_cache_t *cache, const ac_lane_ask_t *ask, uint64_t address) {
    ac_block_t *block = *ac_cache_handed(cache, address);
    if (ac_block_address(block) != address)
        block = ac_slab_look(address);
    for (bool full = block && open_lane(cache, ask), kept = false; full && !kept;) {
        if (!ac_cache_enter_long(cache))
            return false;
        ac_cache_free_for(cache, block->module);
        kept = ac_lane_push(cache, block, ask->handle, address);
        full = cache->room < 0;
        ac_cache_leave(cache);
        if (kept)
            return true;
        full = full && lease(cache);
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
        leave_lane(cache, ac_lane_of(cache->lanes, handle));
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
