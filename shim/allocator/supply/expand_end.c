/* Giving pages back, while their context lives and after it; peers of pages that stay (expand.h). */
#include "allocator/supply/expand.h"

#include "allocator/space/segment.h"

/* --- giving back --- */

static uint64_t units(uint64_t bytes, bool up) {
    return (bytes >> AC_PAGE_BITS) + (up && bytes % AC_SEGMENT_ALIGN);
}

/* Up to AC_EXPAND_RUNS runs of whole pages, as far as `bytes` go. */
static void claim_idle(ac_growth_t *batch, ac_hole_pick_t *pick, uint64_t bytes) {
    ac_arena_t *arena = batch->ask->arena;
    uint64_t found = 0;
    pick->reached = ac_supply_reached(arena);
    batch->runs = 0;
    while (!arena->dead && found < bytes && batch->runs < AC_EXPAND_RUNS &&
           ac_spares_fill(&arena->allocator->store, &batch->spares, 4)) {
        uint64_t most = units(bytes - found, !pick->within);
        if (!most)
            break;
        pick->span = pick->within ? most : 0;
        ac_block_t *hole = ac_expand_oldest_hole(arena, pick, &batch->starved);
        if (!hole)
            break;
        ac_run_t *run = &batch->run[batch->runs];
        if (!ac_expand_claim_run(run, hole, pick, most, &batch->spares))
            break;
        batch->runs++;
        if (run->range->guard)
            run->range->guard->leaving++;
        found += run->count << AC_PAGE_BITS;
    }
}

static void give_back(ac_growth_t *batch) {
    ac_expand_take_away(batch);
    for (unsigned i = 0; i < batch->runs; i++)
        if (batch->run[i].taken)
            ac_expand_release_run(batch, &batch->run[i]);
}

uint64_t ac_expand_give_back(ac_arena_t *arena, ac_hole_pick_t *pick, uint64_t bytes,
                             void (*leaving)(const ac_growth_t *batch)) {
    ac_allocator_t *allocator = arena->allocator;
    ac_growth_ask_t ask = {.arena = arena, .pool = pick->pool};
    ac_growth_t batch;
    uint64_t total = 0, done = 1;
    ac_growth_init(&batch, &ask);
    ac_lock(&allocator->lock);
    while (done && total < bytes && arena->holes.first) {
        claim_idle(&batch, pick, bytes == AC_UNLIMITED ? bytes : bytes - total);
        if (!batch.runs)
            break;
        batch.released = batch.pages_released = 0;
        batch.peerings = allocator->supply->expand.peerings;
        allocator->calls++;
        ac_unlock(&allocator->lock);
        if (leaving)
            leaving(&batch);
        uint64_t begin = arena->ops->now_ns();
        give_back(&batch);
        uint64_t spent = arena->ops->now_ns() - begin;
        ac_lock(&allocator->lock);
        ac_expand_catch_up(&batch);
        for (unsigned i = 0; i < batch.runs; i++) {
            ac_run_t *run = &batch.run[i];
            run->range->calls--;
            if (run->range->guard)
                run->range->guard->leaving--;
            if (arena->dead)
                continue;
            if (run->taken) {
                ac_expand_account(run->range, -(int64_t)(run->count << AC_PAGE_BITS));
                allocator->stats->num_device_free++;
            }
            ac_expand_settle_run(run, &batch.spares);
        }
        done = batch.released;
        total += done;
        allocator->supply->ceiling = 0;
        allocator->counters->driver_frees += batch.pages_released;
        allocator->counters->driver_free_ns += spent;
        ac_supply_end_call(allocator, true);
    }
    ac_spares_return(&allocator->store, &batch.spares);
    if (total) {
        allocator->counters->trims++;
        allocator->counters->trimmed_bytes += total;
        atomic_fetch_add(&ac_given_back, total);
    }
    bool dead = arena->dead;
    ac_unlock(&allocator->lock);
    if (dead)
        ac_expand_bury(arena);
    return total;
}

uint64_t ac_expand_shrink(ac_arena_t *arena, const ac_shrink_t *shrink) {
    ac_hole_pick_t pick = {
        .pool = AC_POOL_ALL, .pinned = true, .within = shrink->within, .epochs = shrink->epochs};
    return ac_expand_give_back(arena, &pick, shrink->bytes, NULL);
}

/* --- leaving pages for native segments --- */

_Atomic bool ac_expand_shared;

bool ac_expand_leave(ac_allocator_t *allocator) {
    ac_settings_t *settings = &allocator->settings;
    bool leaves =
        settings->expandable_segments == AC_PAGES_AUTO && atomic_load(&ac_expand_shared);
    if (!leaves)
        return false;
    settings->expandable_segments = AC_PAGES_OFF;
    settings->exact = settings->frugal;
    allocator->supply->medium = (ac_medium_t){0}; /* it was learned from pages */
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next)
        for (ac_segment_t *s = arena->segments; s; s = s->next)
            if (s->range && !s->range->guard)
                ac_segment_relist(s, AC_INDEX_LEFT); /* no request searches it */
    allocator->counters->left_pages++;
    return true;
}

/* --- the end of a context --- */

static ac_range_t *take_lost(ac_arena_t *arena) {
    ac_lock(&arena->allocator->lock);
    ac_range_t **link = &arena->lost_ranges;
    while (*link && (*link)->calls)
        link = &(*link)->next;
    ac_range_t *range = *link;
    if (range)
        *link = range->next;
    ac_unlock(&arena->allocator->lock);
    return range;
}

void ac_expand_bury(ac_arena_t *arena) {
    for (ac_range_t *range; (range = take_lost(arena));) {
        for (uint64_t at = 0; at < range->high; at++) {
            ac_unit_t *unit = ac_expand_unit(range, at);
            if (!unit->span)
                continue;
            if (unit->flags & AC_UNIT_MAPPED)
                arena->ops->pages_unmap(arena->context, ac_range_address(range, at),
                                        (uint64_t)unit->span << AC_PAGE_BITS);
            arena->ops->page_release(arena->context, unit->page);
        }
        arena->ops->range_release(arena->context, range->address, range->size);
        ac_range_forget(range);
    }
}

/* --- addresses --- */

static ac_segment_t *empty_range(ac_arena_t *arena) {
    ac_segment_t *segment = arena->segments;
    while (segment && !(segment->range && !segment->range->guard && !segment->range->calls &&
                        !segment->range->mapped))
        segment = segment->next;
    return segment;
}

uint64_t ac_expand_give_addresses(ac_arena_t *arena) {
    uint64_t bytes = 0;
    ac_lock(&arena->allocator->lock);
    for (ac_segment_t *segment; !arena->dead && (segment = empty_range(arena));) {
        bytes += segment->size;
        ac_segment_remove(segment, true);
    }
    ac_unlock(&arena->allocator->lock);
    if (bytes)
        ac_expand_bury(arena);
    return bytes;
}

/* --- peers ---
 *
 * A new mapping reaches all devices that are peers at that time.  When a peer comes, the device's own table of
 * peers changes first, then `peerings` grows.  Two threads share the pages that exist by then: ac_expand_allow
 * handles the pages under blocks that no thread moves.  A thread that moves a part of a range handles the pages of
 * its part, if `peerings` grew since it claimed the part.  Neither waits for the other, whose device call may last
 * as long as a kernel. */

typedef struct {
    uint64_t address[64], bytes[64];
    unsigned count;
} pages_t;

/* Adds pages of the units [*at, end) while there is room, and moves *at on.  Under the lock. */
static void gather(pages_t *pages, const ac_range_t *range, uint64_t *at, uint64_t end) {
    while (*at < end && pages->count < 64) {
        if (!ac_range_is_mapped(range, *at)) {
            ++*at;
            continue;
        }
        uint64_t begin = ac_range_page_begin(range, *at);
        *at = ac_range_page_end(range, *at);
        pages->address[pages->count] = ac_range_address(range, begin);
        pages->bytes[pages->count++] = (*at - begin) << AC_PAGE_BITS;
    }
}

/* Lets peers reach the pages.  The lock is open meanwhile: the device refuses a page that left, and another page in
 * its place does no harm. */
static void allow(ac_arena_t *arena, pages_t *pages) {
    ac_unlock(&arena->allocator->lock);
    for (unsigned i = 0; i < pages->count; i++)
        arena->ops->pages_allow(arena->context, pages->address[i], pages->bytes[i]);
    pages->count = 0;
    ac_lock(&arena->allocator->lock);
}

static void allow_units(const ac_range_t *range, uint64_t at, uint64_t end) {
    pages_t pages = {.count = 0};
    while (at < end && !range->arena->dead) {
        gather(&pages, range, &at, end);
        allow(range->arena, &pages);
    }
}

void ac_expand_catch_up(ac_growth_t *growth) {
    ac_arena_t *arena = growth->ask->arena;
    const ac_expand_t *expand = &arena->allocator->supply->expand;
    while (growth->peerings != expand->peerings && !arena->dead) {
        growth->peerings = expand->peerings;
        if (growth->range)
            allow_units(growth->range, growth->first, growth->end);
        for (unsigned i = 0; i < growth->runs; i++) {
            const ac_run_t *run = &growth->run[i];
            if (!run->taken)
                allow_units(run->range, run->first, run->first + run->count);
        }
    }
}

/* The range of the arena that begins next behind `address`; NULL: there is none. */
static ac_range_t *next_range(const ac_arena_t *arena, uint64_t address) {
    ac_range_t *next = NULL;
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        if (s->range && s->range->address > address &&
            (!next || s->range->address < next->address))
            next = s->range;
    return next;
}

/* Pages from unit *at on that no thread moves, in address order. */
static void gather_settled(pages_t *pages, const ac_range_t *range, uint64_t *at) {
    for (const ac_block_t *block = range->segment->first; block; block = block->next) {
        uint64_t first = ac_range_unit(range, block->address);
        uint64_t end = ac_range_unit(range, block->address + block->size - 1) + 1;
        if (end <= *at || !ac_block_has_memory(block))
            continue;
        *at = first > *at ? first : *at;
        gather(pages, range, at, end);
        if (pages->count == 64)
            break;
    }
}

static void allow_range(ac_range_t *range) {
    ac_arena_t *arena = range->arena;
    pages_t pages = {.count = 0};
    uint64_t at = 0;
    range->calls++; /* it stays, should the context go meanwhile */
    while (!arena->dead) {
        gather_settled(&pages, range, &at);
        if (!pages.count)
            break;
        allow(arena, &pages);
    }
    range->calls--;
}

void ac_expand_allow(ac_allocator_t *allocator) {
    if (!allocator)
        return;
    ac_lock(&allocator->lock);
    allocator->supply->expand.peerings++;
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        uint64_t address = 0;
        for (ac_range_t *range; !arena->dead && (range = next_range(arena, address));) {
            address = range->address;
            allow_range(range);
        }
        if (!arena->lost_ranges)
            continue;
        ac_unlock(&allocator->lock);
        ac_expand_bury(arena);
        ac_lock(&allocator->lock);
    }
    ac_unlock(&allocator->lock);
}
