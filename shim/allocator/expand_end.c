/* Pages that go: given back while their context lives, and after it; and who may reach those that
 * stay (expand.h). */
#include "allocator/expand_int.h"

/* --- giving back --- */

void ac_expand_complete(ac_arena_t *arena, uint64_t until) {
    bool all = atomic_load(&ac_fence_crossed);
    pthread_mutex_lock(&arena->allocator->lock);
    bool any = !arena->dead && arena->holes;
    pthread_mutex_unlock(&arena->allocator->lock);
    if (!any)
        return;
    uint64_t now = until ? arena->ops->now_ns() : 0;
    if (now < until) {
        uint64_t target = ac_fence_now();
        bool in_vain = ac_fence_wait(&arena->line, all, target, until - now) == AC_BUSY;
        pthread_mutex_lock(&arena->allocator->lock);
        if (in_vain)
            ac_pending_in_vain(arena, target);
        pthread_mutex_unlock(&arena->allocator->lock);
        return;
    }
    ac_fence_close(&arena->line, all);
    ac_fence_poll(&arena->line, all);
}

/* Up to AC_EXPAND_RUNS runs of whole pages, as far as `bytes` go. */
static void claim_idle(ac_growth_t *batch, ac_hole_pick_t *pick, uint64_t bytes) {
    ac_arena_t *arena = batch->ask->arena;
    uint64_t found = 0;
    pick->reached = ac_expand_reached(arena);
    batch->runs = 0;
    while (!arena->dead && found < bytes && batch->runs < AC_EXPAND_RUNS &&
           ac_spares_fill(arena->allocator, &batch->spares, 4)) {
        ac_block_t *hole = ac_expand_oldest_hole(arena, pick, &batch->starved);
        if (!hole)
            break;
        ac_run_t *run = &batch->run[batch->runs];
        uint64_t most = UINT64_MAX;
        if (bytes != AC_UNLIMITED)
            most = (bytes - found + batch->page - 1) / batch->page;
        if (!ac_expand_claim_run(run, hole, pick, most, &batch->spares))
            break;
        batch->runs++;
        found += run->count << AC_PAGE_BITS;
    }
}

static void give_back(ac_growth_t *batch) {
    ac_expand_take_away(batch);
    for (unsigned i = 0; i < batch->runs; i++) {
        ac_run_t *run = &batch->run[i];
        for (uint64_t at = run->first; run->taken && at < run->first + run->count;) {
            ac_unit_t *unit = ac_expand_unit(run->range, at);
            uint64_t span = unit->span;
            ac_expand_release(batch, unit->page, span << AC_PAGE_BITS);
            unit->page = 0;
            unit->span = 0;
            at += span;
        }
    }
}

/* Of the holes that `pick` names, until `bytes` are reached. */
static uint64_t trim(ac_arena_t *arena, ac_hole_pick_t *pick, uint64_t bytes) {
    ac_allocator_t *allocator = arena->allocator;
    const ac_growth_ask_t ask = {.arena = arena, .pool = pick->pool};
    ac_growth_t batch;
    uint64_t total = 0, done = 1;
    if (arena->ops->capturing(arena->context))
        return 0;
    ac_growth_init(&batch, &ask);
    pthread_mutex_lock(&allocator->lock);
    batch.page = allocator->settings.page ? allocator->settings.page : AC_SEGMENT_ALIGN;
    while (done && total < bytes && arena->holes) {
        claim_idle(&batch, pick, bytes == AC_UNLIMITED ? bytes : bytes - total);
        if (!batch.runs)
            break;
        batch.released = batch.pages_released = 0;
        allocator->calls++;
        pthread_mutex_unlock(&allocator->lock);
        uint64_t begin = arena->ops->now_ns();
        give_back(&batch);
        uint64_t spent = arena->ops->now_ns() - begin;
        pthread_mutex_lock(&allocator->lock);
        for (unsigned i = 0; i < batch.runs; i++) {
            ac_run_t *run = &batch.run[i];
            run->range->calls--;
            if (arena->dead)
                continue;
            if (run->taken) {
                ac_expand_account(run->range, -(int64_t)(run->count << AC_PAGE_BITS));
                allocator->stats->num_device_free++;
            }
            ac_range_settle_whole(run->block, !run->taken, &batch.spares);
        }
        done = batch.released;
        total += done;
        allocator->expand.ceiling = 0;
        allocator->counters->driver_frees += batch.pages_released;
        allocator->counters->driver_free_ns += spent;
        ac_allocator_settle(allocator, true);
    }
    ac_spares_return(allocator, &batch.spares);
    if (total) {
        allocator->counters->trims++;
        allocator->counters->trimmed_bytes += total;
    }
    bool dead = arena->dead;
    pthread_mutex_unlock(&allocator->lock);
    if (dead)
        ac_expand_bury(arena);
    return total;
}

uint64_t ac_expand_trim(ac_arena_t *arena, int pool, uint64_t bytes) {
    return trim(arena, &(ac_hole_pick_t){.pool = pool, .pinned = true}, bytes);
}

uint64_t ac_expand_trim_aged(ac_arena_t *arena, uint32_t epochs) {
    ac_expand_complete(arena, 0);
    return trim(arena, &(ac_hole_pick_t){.pool = AC_POOL_ALL, .pinned = true, .epochs = epochs},
                AC_UNLIMITED);
}

/* --- the end of a context --- */

static ac_range_t *take_lost(ac_arena_t *arena) {
    pthread_mutex_lock(&arena->allocator->lock);
    ac_range_t **link = &arena->lost_ranges;
    while (*link && (*link)->calls)
        link = &(*link)->next;
    ac_range_t *range = *link;
    if (range)
        *link = range->next;
    pthread_mutex_unlock(&arena->allocator->lock);
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

/* --- peers --- */

/* The first page at or above `from` in any range; the lock may be dropped to wait for threads
 * that work on it.  False: there is none. */
static bool next_page(ac_arena_t *arena, uint64_t from, uint64_t *address, uint64_t *bytes) {
    bool found = false;
    for (ac_segment_t *s = arena->segments; s; s = s->next) {
        const ac_range_t *range = s->range;
        if (!range || ac_range_address(range, range->high) <= from)
            continue;
        uint64_t at = from > range->address ? ac_range_unit(range, from) : 0;
        while (at < range->high && !range->unit[at].span)
            at++;
        if (at == range->high || (found && ac_range_address(range, at) > *address))
            continue;
        *address = ac_range_address(range, at);
        *bytes = (uint64_t)range->unit[at].span << AC_PAGE_BITS;
        found = true;
    }
    return found;
}

void ac_expand_allow(ac_allocator_t *allocator) {
    pthread_mutex_lock(&allocator->lock);
    for (ac_arena_t *arena = allocator->arenas; arena; arena = arena->next) {
        uint64_t address = 0, bytes = 0;
        for (;;) {
            /* Pages that are under way meanwhile are told by who moves them. */
            while (allocator->calls)
                pthread_cond_wait(&allocator->settled, &allocator->lock);
            if (arena->dead || !next_page(arena, address + bytes, &address, &bytes))
                break;
            pthread_mutex_unlock(&allocator->lock);
            arena->ops->pages_allow(arena->context, address, bytes);
            pthread_mutex_lock(&allocator->lock);
        }
    }
    pthread_mutex_unlock(&allocator->lock);
}
