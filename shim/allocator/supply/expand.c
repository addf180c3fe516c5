/* Growing by pages (expand.h). */
#include "allocator/policy.h"
#include "allocator/space/guard_place.h"
#include "allocator/space/place.h"
#include "allocator/supply/expand.h"
#include "allocator/supply/fine.h"
#include "allocator/supply/medium.h"
#include "observe/history.h"
#include "failpoint.h"

static uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

/* --- ranges --- */

/* Returns true if the device has pages.  Asks it once. */
bool ac_expand_able(ac_arena_t *arena) {
    ac_allocator_t *allocator = arena->allocator;
    ac_expand_t *expand = &allocator->supply->expand;
    ac_range_support_t support = {0};
    ac_lock(&allocator->lock);
    bool known = expand->able != AC_EXPAND_UNKNOWN, able = expand->able == AC_EXPAND_ABLE;
    ac_unlock(&allocator->lock);
    if (known)
        return able;
    able = arena->ops->range_support &&
           arena->ops->range_support(arena->context, &support) == AC_OK && support.granularity &&
           support.granularity % AC_SEGMENT_ALIGN == 0;
    ac_lock(&allocator->lock);
    if (expand->able == AC_EXPAND_UNKNOWN) {
        expand->able = able ? AC_EXPAND_ABLE : AC_EXPAND_UNABLE;
        expand->support = support;
    }
    able = expand->able == AC_EXPAND_ABLE;
    ac_unlock(&allocator->lock);
    return able;
}

static bool is_small(const ac_growth_t *growth) {
    return growth->ask->pool == AC_POOL_SMALL || growth->ask->medium;
}

static uint64_t page_size(const ac_growth_t *growth) {
    const ac_allocator_t *allocator = growth->ask->arena->allocator;
    const ac_expand_t *expand = &allocator->supply->expand;
    uint64_t least = expand->support.granularity, size = growth->ask->size;
    if (growth->ask->guard)
        return round_up(size, least); /* none is shared with other blocks */
    uint64_t page = is_small(growth) && !growth->whole ? allocator->settings.small_page
                                                       : ac_policy_page(&expand->toll, &allocator->settings, size);
    return growth->ask->shrink || page < least ? least : round_up(page, least);
}

void ac_expand_refuse(ac_allocator_t *allocator, ac_refused_t what) {
    ac_lock(&allocator->lock);
    allocator->supply->expand.refused = what;
    ac_unlock(&allocator->lock);
}

ac_refused_t ac_expand_refused(ac_allocator_t *allocator) {
    ac_lock(&allocator->lock);
    ac_refused_t what = allocator->supply->expand.refused;
    ac_unlock(&allocator->lock);
    return what;
}

/* Returns the free index of the ranges that may serve the request. */
static int index_of(const ac_growth_ask_t *ask) {
    return ask->guard ? AC_INDEX_GUARD : ask->medium ? AC_INDEX_MEDIUM : ask->pool;
}

/* Adds the range.  AC_OOM: host memory is short.  AC_FAILED: the context is gone. */
static ac_status_t add_range(const ac_growth_t *growth, uint64_t address, uint64_t bytes) {
    const ac_growth_ask_t *ask = growth->ask;
    ac_arena_t *arena = ask->arena;
    ac_status_t status = AC_FAILED;
    ac_lock(&arena->allocator->lock);
    if (!arena->dead && ask->guard)
        status = ac_guard_add(&arena->space, address, bytes) ? AC_OK : AC_OOM;
    else if (!arena->dead)
        status = ac_range_add(&arena->space, ask->pool, index_of(ask), address, bytes) ? AC_OK
                                                                                       : AC_OOM;
    ac_unlock(&arena->allocator->lock);
    return status;
}

/* Have the ranges that hold nothing give their addresses back, in all contexts.  Returns bytes. */
static uint64_t give_addresses(ac_allocator_t *allocator) {
    uint64_t bytes = 0;
    for (ac_arena_t *arena = atomic_load(&allocator->arenas); arena; arena = arena->next)
        if (!arena->ops->capturing(arena->context, false))
            bytes += ac_expand_give_addresses(arena);
    return bytes;
}

/* Reserves another range.  Small blocks never need more addresses than the device has memory.  Large blocks need
 * room for a place in one piece.  If addresses are short, the range takes at most half of the available ones:
 * others need some, the driver's own allocations among them. */
static ac_status_t reserve_range(ac_growth_t *growth) {
    ac_arena_t *arena = growth->ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t least = round_up(growth->ask->size, growth->page);
    uint64_t bytes = round_up(allocator->supply->expand.support.memory, growth->page);
    uint64_t address = 0;
    ac_status_t status;
    bool scarce = false, given = false;
    bool guard = growth->ask->guard;
    if (growth->ask->pool == AC_POOL_LARGE && !growth->ask->medium)
        bytes *= 4;
    if (guard)
        least = AC_GUARD_LEAST * (least + 2 * AC_SEGMENT_ALIGN);
    bytes = bytes < least ? least : bytes;
    if (!guard && ac_expand_refused(allocator) == AC_REFUSED_ADDRESSES)
        bytes = least; /* more were refused */
    for (;;) {
        status = arena->ops->range_reserve(arena->context, bytes, &address);
        if (status == AC_OK && scarce && bytes > least) {
            arena->ops->range_release(arena->context, address, bytes);
            scarce = false;
        } else if (status == AC_OK) {
            ac_status_t added = add_range(growth, address, bytes);
            if (added == AC_OK)
                return AC_OK;
            arena->ops->range_release(arena->context, address, bytes);
            if (added == AC_FAILED)
                return AC_FAILED;
        } else if (status == AC_OOM) {
            scarce = true;
        }
        if (bytes == least && status == AC_OOM && !given) {
            given = true;
            if (give_addresses(allocator))
                continue;
        }
        if (bytes == least || (status != AC_OK && status != AC_OOM))
            break;
        bytes = round_up(bytes / 2, growth->page);
        bytes = bytes < least ? least : bytes;
    }
    if (!guard)
        ac_expand_refuse(allocator, AC_REFUSED_ADDRESSES);
    return AC_UNSUPPORTED;
}

/* --- the plan, under the lock --- */

static bool find_place(ac_growth_t *growth, ac_place_t *best) {
    const ac_growth_ask_t *ask = growth->ask;
    *best = (ac_place_t){0};
    if (ask->guard) {
        const ac_range_t *range = ask->arena->guarded;
        return range && ac_guard_place(range, ask->size,
                                       ask->arena->allocator->supply->expand.support.granularity,
                                       ask->arena->ops->now_ns(), best);
    }
    for (ac_segment_t *s = ask->arena->segments; s; s = s->next) {
        ac_place_t place;
        if (!s->range || s->index != index_of(ask) ||
            !ac_place_find(s->range, ask->size, growth->page, &place))
            continue;
        if (!best->block || place.missing < best->missing)
            *best = place;
    }
    return best->block != NULL;
}

ac_block_t *ac_expand_oldest_hole(ac_arena_t *arena, const ac_hole_pick_t *pick, bool *starved) {
    ac_block_t *oldest = NULL;
    uint64_t first, count;
    if (atomic_load(&arena->timeline.broken))
        return NULL; /* no fence tells when its work ends */
    for (ac_block_t *hole = arena->holes.last; hole; hole = hole->list_prev) {
        if (pick->guarded != ac_segment_is_guarded(hole->segment) ||
            (pick->pool != AC_POOL_ALL && hole->segment->pool != pick->pool) ||
            (oldest && ac_range_hole_age(hole) > ac_range_hole_age(oldest)) ||
            (pick->epochs && ac_range_hole_epochs(hole) <= pick->epochs) ||
            !ac_range_tail(hole, pick->span, pick->pinned, 1, &first, &count))
            continue;
        if (hole->ticket.epoch > pick->reached)
            *starved = true;
        else
            oldest = hole;
    }
    return oldest;
}

/* Returns the hole that pages come out of for a request.  It is the smallest one with `wanted` units, so that
 * larger holes stay in one piece.  If none has enough, it is the one with the most. */
static ac_block_t *best_hole(ac_arena_t *arena, const ac_hole_pick_t *pick, uint64_t wanted,
                             bool *starved) {
    uint64_t most = 0, first, count;
    ac_block_t *best = NULL;
    if (atomic_load(&arena->timeline.broken))
        return NULL;
    for (ac_block_t *hole = arena->holes.last; hole; hole = hole->list_prev) {
        uint64_t units = hole->size >> AC_PAGE_BITS;
        if (best && (most == wanted ? hole->size >= best->size || units < wanted : units <= most))
            continue;
        if (pick->guarded != ac_segment_is_guarded(hole->segment) ||
            !ac_range_tail(hole, pick->span, pick->pinned, wanted, &first, &count))
            continue;
        if (hole->ticket.epoch > pick->reached) {
            *starved = true;
        } else if (!best || count > most || (count == most && hole->size < best->size)) {
            best = hole;
            most = count;
        }
    }
    return best;
}

bool ac_expand_claim_run(ac_run_t *run, ac_block_t *hole, const ac_hole_pick_t *pick,
                         uint64_t most, ac_spares_t *spares) {
    *run = (ac_run_t){.range = hole->segment->range,
                      .age = ac_range_hole_age(hole),
                      .quiet = hole->ticket.epoch};
    ac_range_tail(hole, pick->span, pick->pinned, most, &run->first, &run->count);
    uint64_t from = ac_range_address(run->range, run->first);
    run->block = ac_range_claim(hole, from, from + (run->count << AC_PAGE_BITS), spares);
    run->range->calls += run->block != NULL;
    return run->block;
}

void ac_expand_settle_run(const ac_run_t *run, ac_spares_t *spares) {
    if (run->taken)
        ac_range_settle_whole(run->block, false, 0, spares);
    else
        ac_range_put_back(run->block, run->age, run->quiet, spares);
}

/* Note which units of the place lack pages, and when the device is done with the others: its blocks
 * say so until it is claimed. */
static void find_gaps(ac_growth_t *growth, const ac_place_t *place) {
    const ac_range_t *range = growth->range;
    growth->gaps = 0;
    growth->quiet = 0;
    for (const ac_block_t *block = place->block; block && block->address < place->to;
         block = block->next) {
        if (ac_block_has_memory(block)) {
            if (block->ticket.epoch > growth->quiet)
                growth->quiet = block->ticket.epoch;
            continue;
        }
        uint64_t from = block->address, to = block->address + block->size;
        if (growth->gaps < AC_EXPAND_GAPS) {
            growth->gap[growth->gaps].first =
                ac_range_unit(range, from > place->from ? from : place->from);
            growth->gap[growth->gaps].end = ac_range_unit(range, to < place->to ? to : place->to);
        }
        growth->gaps++;
    }
}

/* Finds gap number (*at)++ of the place: units [*first, *end). Returns false if there is none.  Gaps beyond
 * AC_EXPAND_GAPS were not recorded; the search for them starts at *end. */
static bool next_gap(const ac_growth_t *growth, unsigned *at, uint64_t *first, uint64_t *end) {
    const ac_range_t *range = growth->range;
    unsigned number = (*at)++;
    if (number >= growth->gaps)
        return false;
    if (number < AC_EXPAND_GAPS) {
        *first = growth->gap[number].first;
        *end = growth->gap[number].end;
        return true;
    }
    *first = ac_range_same(range, *end, growth->end);
    *end = ac_range_same(range, *first, growth->end);
    return true;
}

/* Claims pages in holes for the gaps of the place, which lack `missing` bytes.  Sets `partial` if one step cannot
 * take all of them.  Returns the bytes that have to come from the device.  The spares that the place left are its
 * own: if the device fails, the place falls into as many parts as before, and a few more. */
static uint64_t collect(ac_growth_t *growth, uint64_t missing) {
    ac_arena_t *arena = growth->ask->arena;
    const unsigned spares = growth->spares.count + AC_CLAIM_SPARES;
    ac_hole_pick_t pick = {.pool = AC_POOL_ALL, .reached = ac_supply_reached(arena)};
    uint64_t rest = 0, end = 0, first; /* units */
    uint64_t without = 0;              /* bytes that no page in a hole fits */
    uint64_t none = 0; /* units for which no hole has a page */
    unsigned gap = 0;
    bool starved = false;
    if (arena->ops->capturing(arena->context, false))
        return missing;
    if (!growth->calm) {
        ac_hole_pick_t any = pick; /* of any size: a page that does not fit can be traded */
        any.reached = UINT64_MAX;
        growth->starved = missing && ac_expand_oldest_hole(arena, &any, &starved);
        return missing;
    }
    while (growth->runs < AC_EXPAND_RUNS &&
           ac_spares_fill(&arena->allocator->store, &growth->spares, spares)) {
        if (!rest && !next_gap(growth, &gap, &first, &end))
            break;
        rest = rest ? rest : end - first;
        pick.span = rest;
        ac_block_t *hole = rest <= none ? NULL : best_hole(arena, &pick, rest, &starved);
        ac_run_t *run = &growth->run[growth->runs];
        if (!hole) {
            without += rest << AC_PAGE_BITS;
            none = rest > none ? rest : none;
            rest = 0;
            continue;
        }
        if (!ac_expand_claim_run(run, hole, &pick, rest, &growth->spares))
            break;
        growth->runs++;
        rest -= run->count;
        missing -= run->count << AC_PAGE_BITS;
    }
    growth->starved = starved && missing;
    growth->partial = growth->runs == AC_EXPAND_RUNS && missing > without;
    return growth->partial ? without : missing;
}

/* Claim pages in holes that did not fit, of up to `bytes` or a little more.  Returns bytes. */
static uint64_t trade(ac_growth_t *growth, uint64_t bytes) {
    ac_arena_t *arena = growth->ask->arena;
    const unsigned spares = growth->spares.count + AC_CLAIM_SPARES;
    const ac_hole_pick_t pick = {.pool = AC_POOL_ALL, .reached = ac_supply_reached(arena)};
    uint64_t found = 0;
    bool starved = false;
    if (arena->ops->capturing(arena->context, false) || !growth->calm)
        return 0;
    while (found < bytes && growth->runs < AC_EXPAND_RUNS &&
           ac_spares_fill(&arena->allocator->store, &growth->spares, spares)) {
        uint64_t most = (bytes - found + AC_SEGMENT_ALIGN - 1) >> AC_PAGE_BITS;
        ac_block_t *hole = ac_expand_oldest_hole(arena, &pick, &starved);
        ac_run_t *run = &growth->run[growth->runs];
        if (!hole || !ac_expand_claim_run(run, hole, &pick, most, &growth->spares))
            break;
        run->traded = true;
        growth->runs++;
        found += run->count << AC_PAGE_BITS;
    }
    return found;
}

/* Put everything back that was claimed; `filled`: all of the place has pages. */
static void settle(ac_growth_t *growth, bool filled) {
    if (filled)
        ac_range_settle_whole(growth->block, true, growth->quiet, &growth->spares);
    else
        ac_range_settle(growth->block, growth->barred, growth->barred_end, growth->quiet,
                        &growth->spares);
    for (unsigned i = 0; i < growth->runs; i++)
        ac_expand_settle_run(&growth->run[i], &growth->spares);
}

static void end_calls(ac_growth_t *growth) {
    growth->range->calls--;
    for (unsigned i = 0; i < growth->runs; i++)
        growth->run[i].range->calls--;
    ac_spares_return(&growth->ask->arena->allocator->store, &growth->spares);
}

static ac_status_t give_up(ac_growth_t *growth, ac_status_t status) {
    settle(growth, false);
    end_calls(growth);
    growth->runs = 0;
    return status;
}

/* Waiting may make more holes complete, and nothing keeps it from ending. */
static bool may_wait(const ac_growth_t *growth) {
    return growth->starved && !growth->patient;
}

/* Returns the budget beyond which pages of `page` bytes move for the request. */
static uint64_t budget(const ac_growth_ask_t *ask, uint64_t page) {
    ac_allocator_t *allocator = ask->arena->allocator;
    ac_toll_t *toll = &allocator->supply->expand.toll;
    uint64_t live = ac_supply_live(allocator, ask->size);
    ac_policy_learn(toll, &allocator->settings, ac_supply_requests(allocator), 0);
    return ac_supply_bound(allocator, ac_policy_pages(toll, &allocator->settings, live, page));
}

/* AC_OK: claimed.  AC_NOT_OURS: no range has room; AC_UNSUPPORTED: nor does that of guarded blocks,
 * of which there is one.  AC_BUSY: wait first.  AC_OOM: the limit. */
static ac_status_t plan_pages(ac_growth_t *growth) {
    const ac_growth_ask_t *ask = growth->ask;
    ac_allocator_t *allocator = ask->arena->allocator;
    ac_place_t place;
    if (ask->arena->dead)
        return AC_FAILED;
    growth->page = page_size(growth);
    growth->runs = 0;
    growth->traded = growth->owed = 0;
    growth->starved = growth->partial = false;
    growth->barred = growth->barred_end = 0;
    if (!find_place(growth, &place))
        return ask->guard && ask->arena->guarded ? AC_UNSUPPORTED : AC_NOT_OURS;
    if (!ac_spares_fill(&allocator->store, &growth->spares, 8)) {
        ac_spares_return(&allocator->store, &growth->spares);
        return AC_FAILED;
    }
    growth->range = place.block->segment->range;
    find_gaps(growth, &place);
    growth->block = ac_range_claim(place.block, place.from, place.to, &growth->spares);
    if (!growth->block) {
        ac_spares_return(&allocator->store, &growth->spares);
        return AC_FAILED;
    }
    growth->range->calls++;
    growth->first = ac_range_unit(growth->range, place.from);
    growth->end = ac_range_unit(growth->range, place.to + AC_SEGMENT_ALIGN - 1);
    if (growth->range->high < growth->end)
        growth->range->high = growth->end;
    unsigned gap = 0;
    for (uint64_t first, end; next_gap(growth, &gap, &first, &end);)
        if (!ac_range_cover(growth->range, first, end))
            return give_up(growth, AC_FAILED);

    uint64_t reserved = ac_supply_taken(allocator);
    bool over = !ask->guard &&
                (growth->force ||
                 reserved + place.missing > budget(ask, growth->page));
    growth->create = over ? collect(growth, place.missing) : place.missing;
    if (growth->create == 0)
        return AC_OK;
    if (over)
        growth->traded = trade(growth, growth->create);
    reserved -= growth->traded;
    uint64_t live = ac_supply_live(allocator, ask->size);
    if (growth->calm && !ask->guard) { /* else it is pages that may not move yet */
        ac_medium_look(ask->arena, reserved + growth->create, live);
        if (!is_small(growth))
            ac_fine_look(ask->arena, reserved + growth->create, live, over);
    }
    uint64_t limit = ac_supply_limit(allocator);
    uint64_t patience = ac_budget(&allocator->settings, AC_BUDGET_HOLES, live);
    bool full = growth->create > limit || reserved > limit - growth->create;
    if (!full && growth->traded > limit - growth->create - reserved)
        growth->owed = growth->traded - (limit - growth->create - reserved);
    if (may_wait(growth) && (full || growth->force || reserved + growth->create > patience))
        return give_up(growth, AC_BUSY);
    return full ? give_up(growth, AC_OOM) : AC_OK;
}

/* Plans a step like plan_pages.  Beyond the budget, a block of small pages takes a page of large blocks if one can
 * move.  This costs less than to release that page and create a small one. */
static ac_status_t plan(ac_growth_t *growth) {
    const ac_growth_ask_t *ask = growth->ask;
    ac_allocator_t *allocator = ask->arena->allocator;
    growth->whole = false;
    growth->whole = !ask->guard && !ask->shrink && is_small(growth) &&
                    page_size(growth) < allocator->settings.page &&
                    ac_supply_taken(allocator) + page_size(growth) >
                        budget(ask, page_size(growth)) &&
                    ac_range_any_whole(&ask->arena->space, false);
    ac_status_t status = plan_pages(growth);
    if (!growth->whole || (status == AC_OK && !growth->create))
        return status;
    growth->whole = false;
    if (status == AC_OK)
        give_up(growth, AC_OK);
    return plan_pages(growth);
}

/* --- the device's part, without the lock --- */

/* The page is mapped at these units. */
static void lay(ac_range_t *range, uint64_t first, uint64_t count, uint64_t page) {
    ac_unit_t *unit = ac_expand_unit(range, first);
    for (uint64_t i = 0; i < count; i++)
        unit[i] = (ac_unit_t){.back = (uint16_t)i, .flags = AC_UNIT_MAPPED};
    unit->page = page;
    unit->span = (uint16_t)count;
}

static void note(const ac_arena_t *arena, ac_event_kind_t kind, uint64_t address,
                 uint64_t bytes) {
    ac_history_add(arena->allocator->history,
                   &(ac_event_t){.kind = (uint8_t)kind, .address = address, .bytes = bytes});
}

/* Notes that nothing is mapped at these units.  The record of a page stays at its first unit. */
static void lift(ac_range_t *range, uint64_t first, uint64_t count) {
    for (uint64_t at = first; at < first + count; at++)
        ac_expand_unit(range, at)->flags = 0;
}

void ac_expand_take_away(ac_growth_t *growth) {
    ac_arena_t *arena = growth->ask->arena;
    for (unsigned i = 0; i < growth->runs; i++) {
        ac_run_t *run = &growth->run[i];
        uint64_t address = ac_range_address(run->range, run->first);
        uint64_t bytes = run->count << AC_PAGE_BITS;
        run->taken = arena->ops->pages_unmap(arena->context, address, bytes) == AC_OK;
        if (!run->taken)
            continue;
        lift(run->range, run->first, run->count);
        note(arena, AC_EVENT_SEGMENT_UNMAP, address, bytes);
    }
}

/* Returns the unit of the next page that was taken away and has at most `most` units, or NULL. */
static ac_unit_t *next_moved(ac_growth_t *growth, uint64_t most) {
    while (growth->at_run < growth->runs) {
        ac_run_t *run = &growth->run[growth->at_run];
        if (run->taken && !run->traded && growth->at_unit < run->count) {
            ac_unit_t *unit = ac_expand_unit(run->range, run->first + growth->at_unit);
            if (unit->span > most)
                return NULL;
            growth->at_unit += unit->span;
            return unit;
        }
        growth->at_run++;
        growth->at_unit = 0;
    }
    return NULL;
}

void ac_expand_release(ac_growth_t *growth, uint64_t page, uint64_t bytes) {
    ac_arena_t *arena = growth->ask->arena;
    arena->ops->page_release(arena->context, page);
    growth->released += bytes;
    growth->pages_released++;
}

void ac_expand_release_run(ac_growth_t *growth, const ac_run_t *run) {
    for (uint64_t at = run->first; at < run->first + run->count;) {
        ac_unit_t *unit = ac_expand_unit(run->range, at);
        uint64_t span = unit->span;
        ac_expand_release(growth, unit->page, span << AC_PAGE_BITS);
        unit->page = 0;
        unit->span = 0;
        at += span;
    }
}

/* Gets a page for up to `rest` units: a moved one if one fits, else a new one.  *count: its units. */
static ac_status_t get_page(ac_growth_t *growth, uint64_t rest, uint64_t *count, uint64_t *page) {
    ac_arena_t *arena = growth->ask->arena;
    ac_unit_t *unit = next_moved(growth, rest);
    if (unit) {
        *page = unit->page;
        *count = unit->span;
        unit->page = 0;
        unit->span = 0;
        growth->moved += *count << AC_PAGE_BITS;
        growth->pages_moved++;
        return AC_OK;
    }
    uint64_t most = growth->page >> AC_PAGE_BITS;
    *count = rest < most ? rest : most;
    uint64_t bytes = *count << AC_PAGE_BITS;
    if (growth->created + bytes > growth->create)
        return AC_BUSY; /* pages that were counted on could not be taken away */
    ac_status_t status = arena->ops->page_create(arena->context, bytes, page);
    if (status == AC_OK) {
        growth->created += bytes;
        growth->pages_created++;
    }
    return status;
}

static void drop_pages(ac_growth_t *growth, uint64_t first, uint64_t end) {
    ac_range_t *range = growth->range;
    for (uint64_t at = first; at < end;) {
        ac_unit_t *unit = ac_expand_unit(range, at);
        uint64_t count = unit->span;
        ac_expand_release(growth, unit->page, count << AC_PAGE_BITS);
        unit->page = 0;
        unit->span = 0;
        lift(range, at, count);
        at += count;
    }
}

/* Pages for the units [first, end), none of which has one. */
static ac_status_t fill(ac_growth_t *growth, uint64_t first, uint64_t end) {
    ac_arena_t *arena = growth->ask->arena;
    ac_range_t *range = growth->range;
    uint64_t at = first;
    ac_status_t status = AC_OK;
    while (at < end && status == AC_OK) {
        uint64_t count, page;
        status = get_page(growth, end - at, &count, &page);
        if (status != AC_OK)
            break;
        status = arena->ops->page_map(arena->context, ac_range_address(range, at),
                                      count << AC_PAGE_BITS, page);
        if (status != AC_OK) {
            ac_expand_release(growth, page, count << AC_PAGE_BITS);
            break;
        }
        lay(range, at, count, page);
        at += count;
    }
    if (at == first)
        return status;
    uint64_t address = ac_range_address(range, first), bytes = (at - first) << AC_PAGE_BITS;
    ac_status_t allowed = arena->ops->pages_allow(arena->context, address, bytes);
    if (allowed == AC_OK) {
        growth->laid += bytes;
        note(arena, AC_EVENT_SEGMENT_MAP, address, bytes);
        return status;
    }
    if (arena->ops->pages_unmap(arena->context, address, bytes) == AC_OK) {
        drop_pages(growth, first, at);
    } else {
        growth->barred = address;
        growth->barred_end = address + bytes;
        growth->laid += bytes;
    }
    return allowed;
}

/* Releases the traded pages.  If some could not be taken away, the limit has less room for new ones. */
static void release_traded(ac_growth_t *growth) {
    for (unsigned i = 0; i < growth->runs; i++) {
        const ac_run_t *run = &growth->run[i];
        if (run->traded && run->taken)
            ac_expand_release_run(growth, run);
        else if (run->traded)
            growth->traded -= run->count << AC_PAGE_BITS;
    }
    uint64_t over = growth->traded < growth->owed ? growth->owed - growth->traded : 0;
    growth->create -= over < growth->create ? over : growth->create;
}

static ac_status_t carry_out(ac_growth_t *growth) {
    ac_status_t status = AC_OK;
    unsigned gap = 0;
    growth->at_run = 0;
    growth->at_unit = 0;
    ac_expand_take_away(growth);
    release_traded(growth);
    for (uint64_t first, end; status == AC_OK && next_gap(growth, &gap, &first, &end);)
        status = fill(growth, first, end);
    for (ac_unit_t *unit; (unit = next_moved(growth, UINT64_MAX));) {
        ac_expand_release(growth, unit->page, (uint64_t)unit->span << AC_PAGE_BITS);
        unit->page = 0;
        unit->span = 0;
    }
    return status;
}

/* --- a step --- */

void ac_expand_account(ac_range_t *range, int64_t bytes) {
    ac_device_stats_t *stats = range->arena->allocator->stats;
    range->mapped += (uint64_t)bytes;
    if (bytes > 0)
        ac_stat_pools_up(stats->reserved_bytes, range->segment->pool, bytes);
    else if (bytes < 0)
        ac_stat_pools_down(stats->reserved_bytes, range->segment->pool, -bytes);
}

/* The records follow what the device did: first what went, so that no peak shows a page twice. */
static void account_all(ac_growth_t *growth) {
    ac_allocator_t *allocator = growth->ask->arena->allocator;
    ac_device_counters_t *counters = allocator->counters;
    for (unsigned i = 0; i < growth->runs; i++)
        if (growth->run[i].taken) {
            ac_expand_account(growth->run[i].range,
                              -(int64_t)(growth->run[i].count << AC_PAGE_BITS));
            allocator->stats->num_device_free++;
        }
    ac_expand_account(growth->range, (int64_t)growth->laid);
    allocator->stats->num_device_alloc += growth->laid > 0;
    counters->driver_allocs += growth->pages_created;
    counters->driver_frees += growth->pages_released;
    counters->pages_moved += growth->pages_moved;
}

/* Ends a step: the announced bytes are recorded by now, or the device refused them. */
static void finish(ac_growth_t *growth, uint64_t announced, ac_status_t status) {
    ac_allocator_t *allocator = growth->ask->arena->allocator;
    uint64_t traded = growth->traded < growth->created ? growth->traded : growth->created;
    ac_policy_charge(&allocator->supply->expand.toll, growth->runs, growth->pages_moved, traded, growth->page);
    if (status == AC_OOM)
        allocator->supply->ceiling = ac_supply_taken(allocator) - announced;
    else if (growth->created)
        allocator->supply->ceiling = 0;
    allocator->supply->growing -= announced;
    growth->ask->changes++;
    ac_supply_end_call(allocator, true);
}

/* The free block around `address` is the request's, unless host memory was too short to
 * record it. */
static ac_status_t serve(const ac_growth_ask_t *ask, ac_block_t *block, uint64_t address) {
    if (!block || block->state != AC_BLOCK_FREE || block->size < ask->size ||
        address - block->address >= block->size)
        return AC_FAILED;
    ask->serve(ask->arg, block);
    return AC_OK;
}

/* Carries out the plan.  Called with the lock, which is open meanwhile. */
static ac_status_t step(ac_growth_t *growth) {
    const ac_growth_ask_t *ask = growth->ask;
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    uint64_t announced = growth->create;
    growth->laid = growth->created = growth->released = growth->moved = 0;
    growth->pages_created = growth->pages_moved = growth->pages_released = 0;
    growth->peerings = allocator->supply->expand.peerings;
    allocator->supply->growing += announced;
    allocator->calls++;
    ac_unlock(&allocator->lock);

    uint64_t begin = arena->ops->now_ns();
    ac_status_t status = carry_out(growth);
    uint64_t spent = arena->ops->now_ns() - begin;

    growth->ask->refused |= status == AC_OOM;
    ac_lock(&allocator->lock);
    ac_expand_catch_up(growth);
    allocator->counters->driver_alloc_ns += spent;
    if (arena->dead) {
        end_calls(growth);
        finish(growth, announced, status);
        return AC_FAILED;
    }
    account_all(growth);
    uint64_t address = growth->block->address;
    settle(growth, status == AC_OK);
    if (status == AC_OK)
        status = serve(ask, ac_page_map_find(address), address);
    end_calls(growth);
    finish(growth, announced, status);
    return status;
}

static bool is_calm(const ac_growth_ask_t *ask, bool look) {
    if (AC_FAILPOINT(page_moved_pending))
        return true;
    ac_moment_t moment = ask->target ? (ac_moment_t){ask->target, true} : ac_fence_moment(NULL);
    return look ? ac_fence_calm(ask->target) : ac_fence_is_over(NULL, moment);
}

/* See that the holes' work is known to be over: once without waiting, once with it. */
static void be_patient(ac_growth_t *growth, bool wait) {
    ac_timeline_t *timeline = &growth->ask->arena->timeline;
    bool all = atomic_load(&ac_fence_shared);
    if (!wait || !ac_supply_wait(growth->ask)) {
        ac_fence_close(timeline, all);
        ac_fence_poll(timeline, all);
    }
    growth->calm = is_calm(growth->ask, true);
    growth->patient = wait;
}

static ac_status_t grow(ac_growth_ask_t *ask) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    ac_growth_t growth;
    ac_status_t status;
    bool polled = false, oom = false;
    ac_growth_init(&growth, ask);
    ask->refused = false;
    if (!ac_expand_able(arena))
        return AC_UNSUPPORTED;
    /* During a capture, a plain request fails like one of the driver's. */
    if (!ask->aside && arena->ops->capturing(arena->context, true))
        return AC_BUSY;
    growth.calm = is_calm(ask, false);
    for (int round = 0; round < AC_REQUEST_ROUNDS; round++) {
        ac_lock(&allocator->lock);
        if (round == 0 && ask->look(ask->arg)) {
            ac_unlock(&allocator->lock);
            return AC_OK;
        }
        status = plan(&growth);
        bool claimed = status == AC_OK;
        if (claimed && growth.starved && !polled)
            status = give_up(&growth, AC_BUSY);
        else if (claimed)
            status = step(&growth);
        bool dead = arena->dead, learned = allocator->supply->expand.toll.share;
        ac_unlock(&allocator->lock);
        if (dead)
            ac_expand_bury(arena);
        if (learned)
            ac_supply_watch();
        if (status == AC_NOT_OURS) {
            status = reserve_range(&growth);
            if (status != AC_OK)
                return status;
        } else if (status == AC_BUSY && growth.starved && !growth.patient) {
            be_patient(&growth, polled);
            polled = true;
        } else if (status == AC_BUSY && claimed && growth.partial && growth.pages_moved) {
            round--; /* each round lacks fewer pages, so this ends */
        } else if (status == AC_OOM && claimed && !oom) {
            growth.force = oom = true; /* the rest out of holes, as far as they go */
        } else {
            if (growth.starved)
                ac_supply_postpone_trim(allocator);
            return status;
        }
    }
    return status;
}

const ac_supply_kind_t ac_supply_pages = {.grow = grow, .shrink = ac_expand_shrink};
