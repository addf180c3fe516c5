/* Blocks by address, as calls from outside name them, and their segments. */
#include "allocator/allocator_int.h"
#include "allocator/retired/retired.h"
#include "allocator/space/lay_out.h"
#include "allocator/space/lifetime.h"

#include "allocator/give_back.h"
#include "failpoint.h"

/* Locks the allocator that owns `address`; NULL: none does. */
static ac_arena_t *lock_owner(uint64_t address) {
    ac_arena_t *arena = ac_page_map_owner(address);
    if (!arena)
        return NULL;
    AC_WINDOW(owner_found);
    ac_lock(&arena->allocator->lock);
    if (ac_page_map_owner(address) == arena || AC_FAILPOINT(owner_looked_at_once))
        return arena;
    ac_unlock(&arena->allocator->lock);
    return NULL;
}

static ac_status_t lock_block(uint64_t address, ac_block_t **found, ac_arena_t **owner) {
    ac_arena_t *arena = *owner = lock_owner(address);
    if (!arena)
        return AC_NOT_OURS;
    ac_status_t status = AC_OK;
    *found = ac_page_map_look(address, arena);
    if (!*found || ac_block_is_slab(*found))
        status = ac_slab_get(address, found);
    else if ((*found)->state != AC_BLOCK_ALLOCATED)
        status = AC_BAD_ADDRESS;
    if (status != AC_OK)
        ac_unlock(&arena->allocator->lock);
    return status;
}

ac_status_t ac_allocator_lock_block(uint64_t address, ac_block_t **found,
                                    ac_allocator_t **locked) {
    ac_arena_t *arena;
    ac_status_t status = lock_block(address, found, &arena);
    if (status == AC_OOM) { /* others may have records that they can do without */
        ac_allocator_drop_records(arena->allocator);
        ac_caches_recall(arena->allocator, NULL);
        status = lock_block(address, found, &arena);
    }
    if (status == AC_OK)
        *locked = arena->allocator;
    return status;
}

/* The block around an address, under its owner's lock; in *shown if it has no record.  Slabs are
 * asked first: in them the map would have to look far back. */
static const ac_block_t *around(uint64_t address, ac_block_t *shown) {
    const ac_slab_t *slab = ac_page_map_slab(address);
    return slab ? ac_slab_at(slab->block, address, shown) : ac_page_map_find(address);
}

/* Locks like ac_allocator_lock_block, but needs no record: never AC_OOM. */
static ac_status_t lock_with_record(uint64_t address, ac_block_t *shown,
                                    const ac_block_t **found) {
    ac_arena_t *arena = lock_owner(address);
    if (!arena)
        return AC_NOT_OURS;
    *found = around(address, shown);
    if (*found && (*found)->address == address && (*found)->state == AC_BLOCK_ALLOCATED)
        return AC_OK;
    ac_unlock(&arena->allocator->lock);
    return AC_BAD_ADDRESS;
}

static ac_allocator_t *allocator_of(const ac_block_t *block) {
    return block->segment->arena->allocator;
}

/* Frees the block without a record.  AC_BUSY: work may still use it, which is over after *moment; not asked with
 * `reached`, after a wait for that. */
static ac_status_t free_with_record(ac_block_t *shown, bool reached, ac_moment_t *moment) {
    ac_arena_t *arena = shown->segment->arena;
    *moment = ac_fence_moment(&arena->timeline);
    reached |= ac_fence_is_over(&arena->timeline, *moment);
    /* A graph that is being captured may name it, else. */
    if (!ac_fence_untouched(&arena->timeline, shown->ticket.epoch) &&
        (!reached || ac_order_capturing()))
        return AC_BUSY;
    ac_segment_release(shown);
    AC_BLOCK_SET(shown, ticket.epoch, moment->clock);
    ac_segment_finish(shown);
    arena->allocator->counters->cached_frees++;
    arena->allocator->counters->ready_frees++;
    return AC_OK;
}

ac_status_t ac_block_free_without_record(uint64_t address) {
    for (bool waited = false;; waited = true) {
        ac_block_t shown;
        const ac_block_t *block;
        ac_moment_t moment;
        ac_status_t status = lock_with_record(address, &shown, &block);
        if (status != AC_OK)
            return status;
        ac_arena_t *arena = block->segment->arena;
        bool without_record = block == &shown;
        if (without_record)
            status = free_with_record(&shown, waited, &moment);
        bool leaving = arena->tainted_idle;
        ac_unlock(&arena->allocator->lock);
        if (!without_record)
            return AC_BUSY;
        if (status == AC_OK && leaving)
            ac_give_back_leaving(arena);
        if (status == AC_OK || waited)
            return status == AC_OK ? AC_OK : AC_FAILED;
        /* Once is enough: work that is submitted from now on is not on this block. */
        if (!ac_fence_await(&arena->timeline, moment, AC_PATIENCE_NS))
            return AC_FAILED;
    }
}

ac_status_t ac_block_attribute(uint64_t address, unsigned module) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status != AC_OK)
        return status;
    ac_segment_attribute(block, module);
    ac_unlock(&allocator->lock);
    return AC_OK;
}

ac_status_t ac_block_mark_used(uint64_t address) {
    ac_block_t shown;
    const ac_block_t *block;
    ac_status_t status = lock_with_record(address, &shown, &block);
    if (status != AC_OK)
        return status;
    ac_arena_t *arena = block->segment->arena;
    ac_unlock(&arena->allocator->lock);
    ac_fence_submitted(&arena->timeline);
    return AC_OK;
}

/* Takes blocks of tainted segments out of all caches.  Blocks that owners hand out meanwhile do not
 * return to the cache, or an owner would go on taking them back and handing them out. */
static void take_from_caches(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    AC_WINDOW(tainted);
    bool out = ac_caches_freeze_patiently(allocator);
    if (out) {
        ac_caches_empty(arena);
        if (!AC_FAILPOINT(tainted_beside_hit))
            ac_segments_disown(&arena->space);
        ac_caches_check_peaks(allocator, NULL);
    }
    ac_caches_thaw(allocator);
    if (!out)
        ac_caches_recall(allocator, NULL);
}

/* Under the lock, which is left. */
static void taint(ac_segment_t *segment, bool *fresh) {
    ac_arena_t *arena = segment->arena;
    const ac_block_t *first = segment->first;
    bool idle = first->state == AC_BLOCK_FREE && first->size == segment->size;
    *fresh = !segment->tainted;
    segment->taints++;
    if (*fresh) {
        ac_arena_taint(segment);
        arena->tainted_idle += idle;
    }
    ac_unlock(&arena->allocator->lock);
    if (*fresh)
        take_from_caches(arena);
    if (*fresh && idle)
        ac_give_back_leaving(arena);
}

ac_status_t ac_block_taint(uint64_t address, bool *fresh) {
    ac_block_t shown;
    const ac_block_t *block;
    ac_status_t status = lock_with_record(address, &shown, &block);
    if (status != AC_OK)
        return status;
    *fresh = false;
    if (block->segment->range) {
        ac_range_pin(block);
        ac_unlock(&allocator_of(block)->lock);
    } else {
        taint(block->segment, fresh);
    }
    return AC_OK;
}

ac_status_t ac_address_taint(uint64_t address, bool *fresh) {
    *fresh = false;
    ac_arena_t *arena = lock_owner(address);
    if (!arena)
        return AC_NOT_OURS;
    const ac_slab_t *slab = ac_page_map_slab(address);
    const ac_block_t *block = slab ? slab->block : ac_page_map_find(address);
    if (block && !block->segment->range) {
        taint(block->segment, fresh);
        return AC_OK;
    }
    ac_unlock(&arena->allocator->lock);
    return AC_BAD_ADDRESS;
}

void ac_block_untaint(uint64_t address) {
    ac_block_t shown;
    const ac_block_t *block;
    if (lock_with_record(address, &shown, &block) != AC_OK)
        return;
    ac_segment_t *segment = block->segment;
    if (segment->tainted && --segment->taints == 0 && block->size == segment->size)
        segment->tainted = false; /* nothing is free there that a list would have to have */
    ac_unlock(&allocator_of(block)->lock);
}

ac_status_t ac_block_pin(uint64_t address) {
    ac_block_t shown;
    const ac_block_t *block;
    ac_status_t status = lock_with_record(address, &shown, &block);
    if (status != AC_OK)
        return status;
    bool paged = block->segment->range;
    ac_allocator_t *allocator = allocator_of(block);
    if (paged)
        ac_range_pin(block);
    ac_unlock(&allocator->lock);
    if (paged)
        ac_allocator_is_shared(allocator);
    return AC_OK;
}

ac_arena_t *ac_block_arena(uint64_t address) {
    return ac_page_map_owner(address);
}

ac_status_t ac_block_find(uint64_t address, ac_block_info_t *info) {
    ac_arena_t *arena = lock_owner(address);
    if (!arena)
        return AC_NOT_OURS;
    /* A segment's blocks leave no gap, but for pages of a range that are under way. */
    ac_block_t shown;
    const ac_block_t *block = around(address, &shown);
    if (!block) {
        ac_unlock(&arena->allocator->lock);
        return AC_NOT_OURS;
    }
    *info = (ac_block_info_t){.arena = arena,
                              .address = block->address,
                              .size = block->size,
                              .requested = block->requested,
                              .segment_address = block->segment->address,
                              .segment_size = block->segment->size,
                              .allocated = block->state == AC_BLOCK_ALLOCATED,
                              .module = block->module,
                              .async = block->state == AC_BLOCK_ALLOCATED && block->mempool,
                              .mempool = block->state == AC_BLOCK_ALLOCATED ? block->mempool : 0,
                              .paged = block->segment->range != NULL};
    const ac_lifetime_t *lifetime = info->allocated ? block->lifetime : NULL;
    if (lifetime) {
        info->serial = lifetime->serial;
        info->exported = lifetime->exported;
        info->sync = lifetime->sync;
    }
    if (info->paged && info->allocated)
        ac_range_pages(block, &info->pages_begin, &info->pages_end);
    ac_unlock(&arena->allocator->lock);
    return AC_OK;
}

/* A block that was freed in the order of a stream stays the program's until that stream gets there: as
 * long as any work of the context is not known to be over. */
static bool may_be_used(const ac_block_t *block) {
    const ac_timeline_t *timeline = &block->segment->arena->timeline;
    ac_block_state_t state = block->state;
    bool ordered = state == AC_BLOCK_RETIRED ? block->ticket.ordered
                                             : state == AC_BLOCK_CACHED &&
                                                   (block->owner_arena & AC_OWNER_STREAM);
    return state == AC_BLOCK_ALLOCATED ||
           (ordered && atomic_load(&timeline->last_submit) > atomic_load(&timeline->done));
}

ac_status_t ac_block_reaches(uint64_t address, uint64_t bytes, const ac_block_t **found) {
    ac_arena_t *arena = lock_owner(address);
    if (!arena)
        return AC_NOT_OURS;
    ac_block_t shown;
    const ac_block_t *block = around(address, &shown);
    bool held = block && block->state == AC_BLOCK_ALLOCATED;
    bool fits = block && may_be_used(block) &&
                ac_block_spans(block, held ? block->requested : block->size, address, bytes);
    *found = fits && held && block != &shown ? block : NULL;
    ac_unlock(&arena->allocator->lock);
    return fits ? AC_OK : AC_BAD_ADDRESS;
}

bool ac_block_starts(uint64_t address, uint64_t bytes, const ac_block_t **found) {
    const ac_block_t *block = *found = ac_slab_look(address);
    return block && ac_block_address(block) == address && ac_block_has(block, address, bytes);
}

static uint64_t stream_of(const ac_block_t *block) {
    const ac_order_t *order = block->segment->arena->retired->order;
    return order ? order->stream[ac_key_slot(block->ticket.key)] : 0;
}

bool ac_allocator_lay_out(ac_allocator_t *allocator, const struct timespec *deadline,
                          ac_layout_t *layout) {
    layout->segments = layout->blocks = 0;
    if (!ac_lock_until(&allocator->lock, deadline))
        return false;
    ac_retired_drain_all(allocator);
    for (ac_arena_t *arena = atomic_load(&allocator->arenas); arena; arena = arena->next) {
        layout->now_ns = arena->ops->now_ns();
        for (const ac_segment_t *s = arena->dead ? NULL : arena->segments; s; s = s->next)
            ac_segment_lay_out(s, stream_of, layout);
    }
    ac_unlock(&allocator->lock);
    return layout->segments <= layout->segment_room && layout->blocks <= layout->block_room;
}
