/* Blocks that others get to know: their lifetimes begin here, and are exported (lifetime.h). */
#include "allocator/allocator_int.h"
#include "allocator/space/lifetime.h"
#include "allocator/supply/pages.h"
#include "device/wait.h"
#include "failpoint.h"

/* Blocks that ask for SYNC_MEMOPS again while they are freed are set back so often. */
enum { TRIES = 4 };

/* Returns true if a thread may take the block into its cache without the lock. */
static bool may_be_taken(const ac_block_t *block) {
    return atomic_load_explicit(&block->owner_arena, memory_order_relaxed) != 0;
}

/* Keeps the block out of all caches.  A thread that looked at it before may be about to take it: it
 * has done so, or not, once all threads were out of their caches.  False: one is not.  Without the
 * lock. */
static bool keep_for_program(ac_allocator_t *allocator, uint64_t address) {
    bool out = ac_caches_freeze_patiently(allocator);
    ac_block_t *block = out ? ac_slab_look(address) : NULL;
    if (block && block->address == address && block->state == AC_BLOCK_ALLOCATED &&
        block->segment->arena->allocator == allocator)
        AC_BLOCK_SET(block, owner_arena, 0);
    ac_caches_thaw(allocator);
    return out;
}

void ac_block_keep_apart(uint64_t address) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    if (ac_allocator_lock_block(address, &block, &allocator) != AC_OK)
        return;
    AC_BLOCK_SET(block, owner_arena, 0);
    ac_unlock(&allocator->lock);
}

ac_status_t ac_block_identify(uint64_t address, uint64_t *serial) {
    for (int i = 0;; i++) {
        ac_block_t *block;
        ac_allocator_t *allocator;
        ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
        if (status != AC_OK)
            return status;
        if (may_be_taken(block) && !AC_FAILPOINT(identified_in_reach)) {
            ac_unlock(&allocator->lock);
            if (i == TRIES || !keep_for_program(allocator, address))
                return AC_OOM;
            continue; /* it may have been freed and handed out meanwhile */
        }
        const ac_lifetime_t *lifetime = ac_lifetime_begin(block);
        bool paged = lifetime && block->segment->range;
        if (paged)
            ac_range_pin(block);
        if (lifetime)
            *serial = lifetime->serial;
        ac_unlock(&allocator->lock);
        if (paged)
            ac_allocator_is_shared(allocator);
        return lifetime ? AC_OK : AC_OOM;
    }
}

ac_status_t ac_block_export(uint64_t address, uint64_t serial, uint64_t exported) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status != AC_OK)
        return status;
    ac_lifetime_t *lifetime = block->lifetime;
    if (!lifetime || lifetime->serial != serial) {
        status = AC_BAD_ADDRESS;
    } else if (lifetime->exported) {
        status = AC_BUSY;
    } else {
        lifetime->exported = exported;
        ac_lifetime_notify(exported, serial);
    }
    ac_unlock(&allocator->lock);
    return status;
}

/* --- pages --- */

/* A block that is allocated has a page under each of its units, none of which moves. */
static ac_status_t show(const ac_block_t *block, uint64_t from, ac_shown_pages_t *shown) {
    ac_range_t *range = block->segment->range;
    uint64_t begin, stop;
    ac_range_pages(block, &begin, &stop);
    if (from % AC_SEGMENT_ALIGN || from >= stop - begin)
        return AC_BAD_ADDRESS;
    uint64_t unit = ac_range_unit(range, begin + from), end = ac_range_unit(range, stop);
    if (ac_range_page_begin(range, unit) != unit)
        return AC_BAD_ADDRESS;
    shown->arena = range->arena;
    shown->range = range;
    shown->from = begin + from;
    for (shown->count = 0; unit < end && shown->count < AC_SHOWN_PAGES; shown->count++) {
        ac_unit_t *page = &range->unit[unit];
        page->flags |= AC_UNIT_SHOWN;
        shown->at[shown->count].page = page->page;
        shown->at[shown->count].bytes = (uint64_t)page->span << AC_PAGE_BITS;
        unit += page->span;
    }
    range->calls++; /* it stays, should the context go meanwhile */
    return AC_OK;
}

ac_status_t ac_pages_show(uint64_t address, uint64_t serial, uint64_t from, ac_shown_pages_t *shown) {
    ac_block_t *block;
    ac_allocator_t *allocator;
    ac_status_t status = ac_allocator_lock_block(address, &block, &allocator);
    if (status != AC_OK)
        return status;
    const ac_lifetime_t *lifetime = block->lifetime;
    bool same =
        lifetime && lifetime->serial == serial && lifetime->exported && block->segment->range;
    status = same ? show(block, from, shown) : AC_BAD_ADDRESS;
    ac_unlock(&allocator->lock);
    return status;
}

void ac_pages_return(const ac_shown_pages_t *shown) {
    ac_arena_t *arena = shown->arena;
    ac_range_t *range = shown->range;
    ac_lock(&arena->allocator->lock);
    uint64_t unit = ac_range_unit(range, shown->from);
    for (unsigned i = 0; i < shown->count; i++) {
        range->unit[unit].flags &= ~(uint32_t)AC_UNIT_SHOWN;
        unit += shown->at[i].bytes >> AC_PAGE_BITS;
    }
    range->calls--;
    bool dead = arena->dead;
    ac_unlock(&arena->allocator->lock);
    if (dead)
        ac_expand_bury(arena);
}

/* --- SYNC_MEMOPS --- */

/* Locks the block's allocator when no other change is under way, or that takes too long. */
static ac_status_t lock_in_turn(uint64_t address, ac_block_t **block,
                                ac_allocator_t **allocator) {
    for (bool late = false;;) {
        ac_status_t status = ac_allocator_lock_block(address, block, allocator);
        if (status != AC_OK || !(*allocator)->syncing || late)
            return status;
        uint64_t end = (*block)->segment->arena->ops->now_ns() + AC_FREE_NS;
        const struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
        while ((*allocator)->syncing && !late)
            late = ac_wait_until(&(*allocator)->settled, &(*allocator)->lock, &until);
        ac_unlock(&(*allocator)->lock);
    }
}

/* Returns the block at `address` while it is in that lifetime; else NULL.  The caller holds the lock. */
static ac_block_t *still(const ac_allocator_t *allocator, uint64_t address, uint64_t serial) {
    const ac_arena_t *arena = ac_page_map_owner(address);
    ac_block_t *block = arena && arena->allocator == allocator ? ac_slab_look(address) : NULL;
    return block && block->address == address && block->state == AC_BLOCK_ALLOCATED &&
                   block->lifetime && block->lifetime->serial == serial
               ? block
               : NULL;
}

typedef struct {
    ac_allocator_t *allocator;
    uint64_t address, serial;
    ac_sync_set_fn *set;
    void *arg;
} sync_change_t;

/* Tells the driver about each of its allocations that the block lies in; `least`: number of blocks there
 * that ask for the setting without this change. */
static bool tell_driver(const sync_change_t *change, uint32_t least) {
    uint64_t at = change->address, next = at;
    for (bool more = true; more; at = next) {
        ac_lock(&change->allocator->lock);
        const ac_block_t *block = still(change->allocator, change->address, change->serial);
        bool on = block && ac_segment_synced(block, at, &next) > least;
        more = block && next < block->address + block->size;
        ac_unlock(&change->allocator->lock);
        if (block && !change->set(change->arg, at, on))
            return false;
    }
    return true;
}

static void count_change(const sync_change_t *change, bool on) {
    ac_lock(&change->allocator->lock);
    ac_block_t *block = still(change->allocator, change->address, change->serial);
    if (block)
        ac_segment_set_sync(block, on);
    ac_unlock(&change->allocator->lock);
}

/* A block that asks counts before the driver is told, one that no longer asks only afterwards. */
static bool change_sync(const sync_change_t *change, bool was, bool on) {
    if (on && !was)
        count_change(change, true);
    bool told = tell_driver(change, was && !on);
    if (was != on && told != on)
        count_change(change, false);
    if (!told)
        tell_driver(change, 0);
    return told;
}

ac_status_t ac_block_sync(uint64_t address, bool on, ac_sync_set_fn *set, void *arg) {
    sync_change_t change = {.address = address, .set = set, .arg = arg};
    ac_block_t *block;
    ac_status_t status = ac_block_identify(address, &change.serial);
    if (status == AC_OK)
        status = lock_in_turn(address, &block, &change.allocator);
    if (status != AC_OK)
        return status;
    ac_allocator_t *allocator = change.allocator;
    bool same = block->lifetime && block->lifetime->serial == change.serial;
    bool was = same && block->lifetime->sync;
    allocator->syncing = same;
    ac_unlock(&allocator->lock);
    if (!same)
        return AC_BAD_ADDRESS;
    bool told = change_sync(&change, was, on);
    ac_lock(&allocator->lock);
    allocator->syncing = false;
    ac_cond_broadcast(&allocator->settled);
    ac_unlock(&allocator->lock);
    return told ? AC_OK : AC_FAILED;
}

/* The block is freed whatever the driver says. */
static bool set_back(void *arg, uint64_t address, bool on) {
    ac_arena_t *arena = arg;
    if (!on && arena->ops->sync_memops_off)
        arena->ops->sync_memops_off(arena->context, address);
    return true;
}

ac_status_t ac_allocator_lock_to_free(uint64_t address, ac_block_t **found,
                                      ac_allocator_t **locked) {
    ac_status_t status = ac_allocator_lock_block(address, found, locked);
    for (int i = 0; i < TRIES && status == AC_OK; i++) {
        const ac_lifetime_t *lifetime = (*found)->lifetime;
        if (!lifetime || !lifetime->sync)
            return AC_OK;
        ac_arena_t *arena = (*found)->segment->arena;
        ac_unlock(&(*locked)->lock);
        ac_block_sync(address, false, set_back, arena);
        status = ac_allocator_lock_block(address, found, locked);
    }
    return status;
}
