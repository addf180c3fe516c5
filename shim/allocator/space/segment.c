/* Segments and their blocks: split, coalesce, and the statistics of both.  Everything here
 * runs under the allocator's lock and makes no device call. */
#include "allocator/space/segment.h"

#include "allocator/space/lifetime.h"
#include "allocator/space/mempool.h"
#include "allocator/space/range.h"
#include "allocator/space/records.h"
#include "allocator/space/size.h"
#include "allocator/space/slab.h"
#include "observe/history.h"

/* One body serves native segments and those of ranges.  The compiler drops the other kind's code from each. */
#define INLINE static inline __attribute__((always_inline))

#define RISE_BLOCKS(store, name, pool)                                                           \
    ac_stat_pools_rise((store)->stats->name, pool, 1, AC_STAT_UNSEEN_BLOCKS, &(store)->peaks_due)
#define RISE_BYTES(store, name, pool, n)                                                         \
    ac_stat_pools_rise((store)->stats->name, pool, n, AC_STAT_UNSEEN_BYTES, &(store)->peaks_due)

static void note(const ac_store_t *store, ac_event_kind_t kind, uint64_t address, uint64_t size) {
    ac_history_add(store->history,
                   &(ac_event_t){.kind = (uint8_t)kind, .address = address, .bytes = size});
}

static bool beside_others(const ac_block_t *block) {
    return block->prev || block->next;
}

/* Counts one change of the free blocks next to others.  Like PyTorch, it applies the net of a merge once, so that
 * the peak never has a state that did not exist.  It counts native segments only: any part of a range can serve
 * others. */
INLINE void inactive_up(const ac_segment_t *segment, int64_t blocks, uint64_t bytes) {
    ac_device_stats_t *s = segment->space->store->stats;
    if (blocks)
        ac_stat_pools_up(s->inactive_split, segment->pool, blocks);
    ac_stat_pools_up(s->inactive_split_bytes, segment->pool, (int64_t)bytes);
}

INLINE void inactive_down(const ac_segment_t *segment, int64_t blocks, uint64_t bytes) {
    ac_device_stats_t *s = segment->space->store->stats;
    if (blocks)
        ac_stat_pools_down(s->inactive_split, segment->pool, blocks);
    ac_stat_pools_down(s->inactive_split_bytes, segment->pool, (int64_t)bytes);
}

/* The block between two of these has become one of them, with them. */
INLINE void inactive_between(const ac_segment_t *segment, uint64_t bytes) {
    ac_stat_pools_down(segment->space->store->stats->inactive_split, segment->pool, 1);
    inactive_up(segment, 0, bytes);
}

/* `segment` is the block's: it is known, and would be one more line to look at. */
static inline void index_insert(ac_segment_t *segment, ac_block_t *block, bool fresh) {
    ac_block_set_state(block, AC_BLOCK_FREE);
    block->ticket.key = AC_KEY_NONE;
    if (ac_segment_serves(segment))
        ac_free_index_insert(segment->frees, block);
    if (segment->range)
        ac_range_hole_enter(block, fresh);
}

static inline void index_leave(ac_segment_t *segment, ac_block_t *block) {
    if (segment->range)
        ac_range_hole_leave(block);
    if (ac_segment_serves(segment))
        ac_free_index_remove(segment->frees, block);
}

static inline void index_remove(ac_segment_t *segment, ac_block_t *block) {
    index_leave(segment, block);
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
}

void ac_segment_unlist(ac_block_t *block) {
    index_remove(block->segment, block);
}

void ac_segment_enlist(ac_block_t *block) {
    index_insert(block->segment, block, false);
}

void ac_segment_relist(ac_segment_t *segment, unsigned index) {
    unsigned before = segment->index;
    for (ac_block_t *block = segment->first; block; block = block->next) {
        if (block->state == AC_BLOCK_RETIRED && ac_key_is_stream(block->ticket.key)) {
            ac_free_index_t *waiting = segment->space->waiting[ac_key_slot(block->ticket.key)];
            ac_free_index_remove(&waiting[before], block);
            ac_free_index_insert(&waiting[index], block);
        }
        if (block->state != AC_BLOCK_FREE)
            continue;
        ac_segment_set_index(segment, before);
        ac_segment_unlist(block);
        ac_segment_set_index(segment, index);
        ac_segment_enlist(block);
    }
    ac_segment_set_index(segment, index);
}

static void idle_enter(ac_segment_t *segment) {
    ac_space_t *space = segment->space;
    ac_idle_queue_append(&space->idle, segment);
    segment->idle_epoch = space->store->epoch;
    space->tainted_idle += segment->tainted;
}

static void idle_leave(ac_segment_t *segment) {
    ac_space_t *space = segment->space;
    ac_idle_queue_remove(&space->idle, segment);
    space->tainted_idle -= segment->tainted;
}

ac_segment_t *ac_segment_begin(ac_space_t *space, int pool, uint64_t address, uint64_t size) {
    ac_segment_t *segment = ac_record_segment(space->store);
    ac_block_t *block = segment ? ac_record_block(space->store) : NULL;
    if (!block) {
        if (segment)
            ac_record_segment_return(space->store, segment);
        return NULL;
    }
    *segment = (ac_segment_t){.address = address,
                              .size = size,
                              .space = space,
                              .arena = space->arena,
                              .special = !space->arena,
                              .first = block,
                              .pool = (uint8_t)pool};
    ac_segment_set_index(segment, (unsigned)pool);
    ac_block_init(block, address, size, segment);
    return segment;
}

void ac_segment_end(ac_segment_t *segment) {
    ac_store_t *store = segment->space->store;
    ac_record_block_return(store, segment->first);
    ac_record_segment_return(store, segment);
}

/* Enters the new segment into the page map. */
static bool map(const ac_segment_t *segment) {
    if (!ac_page_map_cover_new(segment->address, segment->size, segment->arena))
        return false;
    if (ac_page_map_set(segment->address, segment->first))
        return true;
    ac_page_map_uncover(segment->address, segment->size);
    return false;
}

ac_segment_t *ac_segment_add(ac_space_t *space, int pool, uint64_t address, uint64_t size) {
    ac_store_t *store = space->store;
    ac_segment_t *segment = ac_segment_begin(space, pool, address, size);
    if (segment && space->arena && !map(segment)) {
        ac_segment_end(segment);
        segment = NULL;
    }
    if (!segment)
        return NULL;
    ac_block_t *block = segment->first;
    segment->oversize = size >= store->settings.max_split_size;
    ac_segments_push(&space->segments, segment);
    space->added++;
    AC_BLOCK_SET(block, ticket.epoch, 0);
    index_insert(segment, block, true);
    idle_enter(segment);

    ac_device_stats_t *s = store->stats;
    s->num_device_alloc++;
    ac_stat_pools_up(s->segment, pool, 1);
    ac_stat_pools_up(s->reserved_bytes, pool, (int64_t)size);
    if (segment->oversize)
        ac_stat_up(&s->oversize_segments, 1);
    note(store, AC_EVENT_SEGMENT_ALLOC, address, size);
    return segment;
}

void ac_segment_set_sync(ac_block_t *block, bool on) {
    ac_segment_t *segment = block->segment;
    int by = on - block->lifetime->sync;
    block->lifetime->sync = on;
    if (!segment->range)
        segment->synced += (uint32_t)by;
    for (uint64_t at = block->address; segment->range && at < block->address + block->size;)
        at = ac_range_count_synced(segment->range, at, by);
}

uint32_t ac_segment_synced(const ac_block_t *block, uint64_t address, uint64_t *end) {
    ac_segment_t *segment = block->segment;
    *end = segment->range ? ac_range_count_synced(segment->range, address, 0)
                          : segment->address + segment->size;
    return segment->range ? ac_range_synced(segment->range, address) : segment->synced;
}

/* Ends the block's lifetime. */
static void end_lifetime(ac_block_t *block) {
    ac_segment_set_sync(block, false);
    ac_lifetime_end(block);
}

/* A context went with blocks in use: they leave the statistics with their segment. */
static void count_lost(ac_block_t *block, void *unused) {
    ac_device_stats_t *s = block->segment->space->store->stats;
    int pool = block->segment->pool;
    (void)unused;
    bool ready = block->state == AC_BLOCK_CACHED && !ac_block_waits_cached(block);
    if (ready || block->state == AC_BLOCK_SLAB || block->state == AC_BLOCK_UNMAPPED ||
        block->state == AC_BLOCK_MOVING)
        return;
    if (block->state == AC_BLOCK_FREE) {
        if (beside_others(block) && !block->segment->special)
            inactive_down(block->segment, 1, block->size);
        return;
    }
    if (block->state == AC_BLOCK_ALLOCATED) {
        if (block->lifetime)
            end_lifetime(block);
        if (block->mempool)
            ac_mempool_give(block);
        ac_stat_pools_down(s->allocation, pool, 1);
        ac_stat_pools_down(s->allocated_bytes, pool, (int64_t)block->size);
        ac_modules_give(&s->modules, block->module, block->size);
        if (block->oversize)
            ac_stat_down(&s->oversize_allocations, 1);
    }
    ac_stat_pools_down(s->active, pool, 1);
    ac_stat_pools_down(s->active_bytes, pool, (int64_t)block->size);
    ac_stat_pools_down(s->requested_bytes, pool, (int64_t)block->requested);
}

void ac_segment_each(const ac_segment_t *segment, ac_block_visit_fn *visit, void *arg) {
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (block->state == AC_BLOCK_SLAB)
            ac_slab_each(block, visit, arg);
        else if (ac_block_has_memory(block))
            visit(block, arg);
}

void ac_segment_remove(ac_segment_t *segment, bool lost) {
    ac_space_t *space = segment->space;
    ac_store_t *store = space->store;
    ac_device_stats_t *s = store->stats;
    if (segment->busy == 0)
        idle_leave(segment);
    if (segment->range)
        ac_range_lose(segment);
    for (ac_block_t *block = segment->first, *next; block; block = next) {
        next = block->next;
        if (block->state == AC_BLOCK_SLAB)
            ac_slab_lose(block, count_lost, NULL);
        if (lost)
            count_lost(block, NULL);
        if (block->state == AC_BLOCK_FREE)
            index_remove(segment, block);
        if (!segment->range && segment->arena)
            ac_page_map_clear(block->address);
        ac_record_block_return(store, block);
    }
    if (!segment->range && segment->arena)
        ac_page_map_uncover(segment->address, segment->size);
    ac_segments_remove(&space->segments, segment);
    if (!lost)
        s->num_device_free++;
    if (!segment->range) {
        ac_stat_pools_down(s->segment, segment->pool, 1);
        ac_stat_pools_down(s->reserved_bytes, segment->pool, (int64_t)segment->size);
        note(store, AC_EVENT_SEGMENT_FREE, segment->address, segment->size);
    }
    if (segment->oversize)
        ac_stat_down(&s->oversize_segments, 1);
    ac_record_segment_return(store, segment);
}

/* --- sealed segments ---
 *
 * A large request with a segment to itself leaves less than a unit over, because the segment was rounded up.  That
 * rest would be the best fit of a small request.  If that block lives long, the segment cannot go back, nor serve a
 * buffer that grew.  In programs with growing buffers this happens to one segment after another.  So the rest
 * serves no request until the segment, or a part of it, is free. */

static void unseal(ac_segment_t *segment) {
    segment->sealed = false;
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (block->state == AC_BLOCK_FREE)
            ac_free_index_insert(segment->frees, block);
}

void ac_segments_unseal(ac_space_t *space) {
    for (ac_segment_t *s = space->segments; s; s = s->next)
        if (s->sealed)
            unseal(s);
}

/* Returns true if the rest behind `size` bytes of the free block should serve no request. */
static inline bool seals(const ac_segment_t *segment, const ac_block_t *block, uint64_t size) {
    return size >= AC_LARGE && block->size - size < AC_SEGMENT_ALIGN && !beside_others(block) && !segment->range &&
           !segment->tainted && ac_policy_whole(size, segment->space->store->high_water);
}

/* Cut the free block after `size` bytes: it is in transit then, and the rest is in its place.
 * False: host memory is short, and nothing has changed. */
INLINE bool split(ac_segment_t *segment, ac_block_t *block, uint64_t size, bool special) {
    ac_store_t *store = segment->space->store;
    uint64_t behind = ac_block_address(block) + size;
    bool mapped = !special || segment->arena, ranged = special && segment->range;
    ac_page_t *page = mapped ? ac_page_map_touch_covered(behind) : NULL;
    if (block->next)
        __builtin_prefetch(block->next);
    ac_block_t *rest = ac_record_block(store);
    if (!rest)
        return false;
    unsigned place = mapped ? ac_page_map_set_on(page, behind, rest) : AC_PLACE_FAR;
    if (place == AC_PLACE_NONE) {
        ac_record_block_return(store, rest);
        return false;
    }
    if (ranged)
        ac_range_hole_leave(block);
    bool served = ac_segment_serves(segment), sealed = seals(segment, block, size);
    ac_block_split(block, size, rest); /* in a range it is as old as the whole was */
    rest->place_alone = (uint8_t)place;
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    ac_block_set_state(rest, AC_BLOCK_FREE);
    if (served && !sealed)
        ac_free_index_replace(segment->frees, block, rest);
    else if (served)
        ac_free_index_remove(segment->frees, block);
    if (sealed)
        segment->sealed = true;
    if (ranged)
        ac_range_hole_enter(rest, false);
    return true;
}

/* The block is the program's from now on. */
static void count_taken(ac_block_t *block, unsigned module, uint64_t requested) {
    ac_segment_t *segment = block->segment;
    ac_store_t *store = segment->space->store;
    int pool = segment->pool;
    int64_t taken = (int64_t)block->size;
    ac_block_set_state(block, AC_BLOCK_ALLOCATED);
    block->home = NULL;
    AC_BLOCK_SET(block, requested, requested);
    block->mempool = 0;
    AC_BLOCK_SET(block, module, (uint8_t)module);
    AC_BLOCK_SET(block, owner_arena, ac_block_is_plain(block) ? segment->space->number : 0);
    block->oversize = block->size >= store->settings.max_split_size;
    segment->allocated++;
    RISE_BLOCKS(store, allocation, pool);
    RISE_BYTES(store, allocated_bytes, pool, taken);
    RISE_BLOCKS(store, active, pool);
    RISE_BYTES(store, active_bytes, pool, taken);
    RISE_BYTES(store, requested_bytes, pool, (int64_t)requested);
    store->peaks_due |= store->stats->allocated_bytes[AC_POOL_ALL].current > store->peak_bound;
    ac_modules_take(&store->stats->modules, module, block->size);
    if (block->oversize)
        ac_stat_up(&store->stats->oversize_allocations, 1);
}

/* `special`: a constant, so that native segments do not pay for the others. */
INLINE void carve(ac_segment_t *segment, ac_block_t *block, uint64_t size, bool special) {
    bool was_inactive = beside_others(block);
    uint64_t whole = block->size;
    bool cut = whole > size && whole < segment->space->store->settings.max_split_size &&
               split(segment, block, size, special);
    if (!cut)
        index_remove(segment, block);
    if (!special && was_inactive && cut)
        inactive_down(segment, 0, size);
    else if (!special && was_inactive)
        inactive_down(segment, 1, whole);
    else if (!special && cut)
        inactive_up(segment, 1, whole - size);
    if (segment->busy++ == 0)
        idle_leave(segment);
    block->mempool = 0; /* of its life before */
}

__attribute__((noinline)) static void carve_special(ac_segment_t *segment, ac_block_t *block,
                                                    uint64_t size) {
    carve(segment, block, size, true);
}

void ac_segment_carve(ac_block_t *block, uint64_t size) {
    ac_segment_t *segment = block->segment;
    if (segment->special)
        carve_special(segment, block, size);
    else
        carve(segment, block, size, false);
}

ac_block_t *ac_segment_cut(ac_space_t *space, int pool, uint64_t size) {
    bool slot = pool == AC_POOL_SMALL && ac_slab_serves(size);
    ac_block_t *block = slot ? ac_slab_carve(space, size) : NULL;
    if (block)
        return block;
    ac_fit_t fit = ac_size_fit(&space->store->settings, size);
    block = ac_free_index_find(&space->index[pool], &fit, false);
    if (block)
        ac_segment_carve(block, size);
    return block;
}

void ac_segment_reuse(ac_block_t *block, unsigned module, uint64_t requested) {
    count_taken(block, module, requested); /* busy, and next to its neighbours as before */
}

void ac_segment_attribute(ac_block_t *block, unsigned module) {
    ac_modules_t *modules = &block->segment->space->store->stats->modules;
    modules->allocs[block->module]--;
    modules->alloc_bytes[block->module] -= block->size;
    ac_modules_take(modules, module, block->size);
    AC_BLOCK_SET(block, module, (uint8_t)module);
}

void ac_segment_release(ac_block_t *block) {
    ac_store_t *store = block->segment->space->store;
    ac_device_stats_t *s = store->stats;
    int pool = block->segment->pool;
    if (block->lifetime)
        end_lifetime(block);
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    block->ticket.key = AC_KEY_NONE;
    block->segment->allocated--;
    if (block->mempool)
        ac_mempool_give(block);
    ac_stat_pools_down(s->allocation, pool, 1);
    ac_stat_pools_down(s->allocated_bytes, pool, (int64_t)block->size);
    ac_modules_give(&s->modules, block->module, block->size);
    if (block->oversize)
        ac_stat_down(&s->oversize_allocations, 1);
    block->oversize = false;
}

/* The record of a block that another one took in. */
static inline void discard(const ac_segment_t *segment, ac_block_t *block, bool special) {
    if (!special || segment->arena)
        ac_page_map_clear_at(ac_block_address(block), block->place);
    ac_record_block_return(segment->space->store, block);
}

void ac_segment_absorb_next(ac_block_t *block) {
    discard(block->segment, ac_block_merge(block), false);
}

void ac_segment_count_finished(const ac_block_t *block) {
    ac_device_stats_t *s = block->segment->space->store->stats;
    int pool = block->segment->pool;
    ac_stat_pools_down(s->active, pool, 1);
    ac_stat_pools_down(s->active_bytes, pool, (int64_t)block->size);
    ac_stat_pools_down(s->requested_bytes, pool, (int64_t)block->requested);
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Coalesces the block with its free neighbours. */
INLINE void join(ac_segment_t *segment, ac_block_t *block, uint64_t quiet, bool special) {
    bool ranged = special && segment->range;
    ac_free_index_t *index = segment->frees;
    bool serves = ac_segment_serves(segment);
    ac_block_t *next = block->next, *prev = block->prev;
    uint64_t age = UINT64_MAX, freed = block->size;
    int joined = 0;
    if (next && next->state == AC_BLOCK_FREE) {
        joined++;
        quiet = later(quiet, next->ticket.epoch);
        if (ranged) {
            age = ac_range_hole_keeps(next, freed);
            ac_range_hole_leave(next);
        }
        ac_block_merge(block);
    } else {
        next = NULL;
    }
    if (prev && prev->state == AC_BLOCK_FREE) {
        joined++;
        quiet = later(quiet, prev->ticket.epoch);
        if (ranged) {
            if (ac_range_hole_keeps(prev, freed) < age)
                age = ac_range_hole_keeps(prev, freed);
            ac_range_hole_leave(prev);
        }
        ac_block_merge(prev);
        discard(segment, block, special);
        block = prev;
        if (next && serves)
            ac_free_index_remove(index, next);
        if (serves)
            ac_free_index_replace(index, block, block);
    } else {
        ac_block_set_state(block, AC_BLOCK_FREE);
        block->ticket.key = AC_KEY_NONE;
        if (next && serves)
            ac_free_index_replace(index, next, block);
        else if (serves)
            ac_free_index_insert(index, block);
    }
    if (next) {
        ac_block_set_state(next, AC_BLOCK_TRANSIT);
        discard(segment, next, special);
    }
    AC_BLOCK_SET(block, ticket.epoch, quiet);
    if (!special && beside_others(block) && joined <= 1)
        inactive_up(segment, 1 - joined, freed);
    else if (!special && beside_others(block))
        inactive_between(segment, freed);
    else if (!special && joined)
        inactive_down(segment, joined, block->size - freed);
    if (ranged) {
        ac_range_hole_enter(block, true);
        if (age != UINT64_MAX)
            ac_range_hole_set_age(block, age);
    }
    if (--segment->busy == 0)
        idle_enter(segment);
}

__attribute__((noinline)) static void join_special(ac_segment_t *segment, ac_block_t *block,
                                                   uint64_t quiet) {
    join(segment, block, quiet, true);
}

__attribute__((noinline)) static void join_native(ac_segment_t *segment, ac_block_t *block,
                                                  uint64_t quiet) {
    join(segment, block, quiet, false);
}

void ac_segment_coalesce(ac_block_t *block, uint64_t quiet) {
    ac_segment_t *segment = block->segment;
    segment->quiet = later(segment->quiet, quiet);
    segment->space->added++;
    if (segment->sealed)
        unseal(segment);
    if (ac_slab_is_slot(block))
        ac_slab_coalesce(block);
    else if (segment->special)
        join_special(segment, block, quiet);
    else
        join_native(segment, block, quiet);
}

void ac_segment_put_back(ac_block_t *block) {
    ac_segment_coalesce(block, block->segment->quiet);
}

void ac_segment_finish(ac_block_t *block) {
    note(block->segment->space->store, AC_EVENT_READY, ac_block_address(block), block->size);
    ac_segment_count_finished(block);
    ac_segment_coalesce(block, block->ticket.epoch);
}

void ac_segment_withdraw(ac_block_t *block) {
    ac_segment_t *segment = block->segment;
    ac_store_t *store = segment->space->store;
    index_remove(segment, block);
    if (beside_others(block) && !segment->special)
        inactive_down(segment, 1, block->size);
    if (segment->busy++ == 0)
        idle_leave(segment);
    AC_BLOCK_SET(block, requested, 0);
    RISE_BLOCKS(store, active, segment->pool);
    RISE_BYTES(store, active_bytes, segment->pool, (int64_t)block->size);
}

void ac_segment_count_cut(const ac_segment_t *segment) {
    RISE_BLOCKS(segment->space->store, active, segment->pool);
}

/* Takes all blocks of the segment out of the caches' ownership. */
static void disown(ac_segment_t *segment) {
    for (ac_block_t *block = segment->first; block; block = block->next) {
        AC_BLOCK_SET(block, owner_arena, 0);
        if (block->state == AC_BLOCK_SLAB)
            ac_slab_disown(block);
    }
}

void ac_segments_disown(ac_space_t *space) {
    for (ac_segment_t *s = space->segments; s; s = s->next)
        if (s->tainted)
            disown(s);
}

void ac_segment_taint(ac_segment_t *segment) {
    disown(segment);
    for (ac_block_t *block = segment->first; block; block = block->next) {
        if (block->state == AC_BLOCK_FREE)
            index_leave(segment, block);
        else if (block->state == AC_BLOCK_SLAB)
            ac_slab_taint(block);
    }
    segment->tainted = true; /* after: index_leave looks at it */
    segment->sealed = false;
}
