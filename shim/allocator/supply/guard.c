/* Guarded blocks that come and go (guard.h). */
#include "allocator/supply/guard.h"

#include "allocator/space/guard_place.h"
#include "allocator/supply/expand.h"


void (*ac_guard_damaged)(const ac_guard_damage_t *damage);

/* --- what is around a block --- */

typedef struct {
    uint64_t address, bytes;
} part_t;

/* Fills the bytes in front of the block and behind it with the pattern. */
static unsigned parts_of(const ac_guarded_t *record, uint64_t before, part_t part[2]) {
    unsigned count = 0;
    uint64_t end = record->address + record->requested;
    uint64_t to = (end + AC_GRANULE - 1) & ~(AC_GRANULE - 1);
    if (before)
        part[count++] = (part_t){record->address - before, before};
    if (to > end)
        part[count++] = (part_t){end, to - end};
    return count;
}

static uint64_t before_of(uint64_t address, uint64_t pages) {
    return address - pages < AC_GRANULE ? address - pages : AC_GRANULE;
}

/* No other thread can see the block yet. */
static bool mark(const ac_arena_t *arena, const ac_guarded_t *record, uint64_t before) {
    const ac_device_ops_t *ops = arena->ops;
    part_t part[2];
    unsigned count = parts_of(record, before, part);
    bool done = ops->memory_fill && ops->memory_differs;
    for (unsigned i = 0; i < count && done; i++)
        done = ops->memory_fill(arena->context, part[i].address, part[i].bytes, AC_GUARD_BYTE) ==
               AC_OK;
    return done;
}

static void say(const ac_arena_t *arena, const ac_guarded_t *record, int64_t at) {
    const ac_guard_damage_t damage = {.address = record->address,
                                      .requested = record->requested,
                                      .at = at,
                                      .asked_by = record->asked_by,
                                      .freed_by = record->freed_by};
    ac_lock(&arena->allocator->lock);
    arena->allocator->counters->guard_damages++;
    ac_unlock(&arena->allocator->lock);
    if (ac_guard_damaged)
        ac_guard_damaged(&damage);
}

static void inspect(const ac_arena_t *arena, const ac_guarded_t *record, uint64_t pages) {
    part_t part[2];
    unsigned count = parts_of(record, before_of(record->address, pages), part);
    for (unsigned i = 0; i < count; i++) {
        uint64_t first;
        if (arena->ops->memory_differs(arena->context, part[i].address, part[i].bytes,
                                       AC_GUARD_BYTE, &first) != AC_OK ||
            first == part[i].bytes)
            continue;
        uint64_t address = part[i].address + first;
        say(arena, record, (int64_t)(address - record->address));
        return;
    }
}

/* --- memory for a request --- */

static bool no_look(void *unused) {
    (void)unused;
    return false;
}

static void serve(void *arg, ac_block_t *free) {
    ac_guard_ask_t *ask = arg;
    uint64_t pages = free->address;
    ac_block_t *block = ac_guard_carve(free, ask->size);
    if (!block)
        return;
    ac_guarded_t *record = ac_guard_record(block);
    record->requested = ask->requested;
    record->asked_ns = ask->arena->ops->now_ns();
    ask->address = block->address;
    ask->before = before_of(block->address, pages);
    ask->serve(ask->arg, block);
    record->asked_by = block->module;
    ac_guard_count(block, false);
}

/* Bytes of the one page that holds `size` of them; the device's pages are known. */
static uint64_t page_of(const ac_arena_t *arena, uint64_t size) {
    ac_lock(&arena->allocator->lock);
    uint64_t least = arena->allocator->supply->expand.support.granularity;
    ac_unlock(&arena->allocator->lock);
    return (size + least - 1) / least * least;
}

/* Returns true if the pages of guarded blocks may exceed their bytes by one more block. */
static bool affords(ac_arena_t *arena, uint64_t size) {
    ac_allocator_t *allocator = arena->allocator;
    uint64_t more = page_of(arena, size) - size;
    ac_lock(&allocator->lock);
    const ac_range_support_t *support = &allocator->supply->expand.support;
    const ac_range_t *range = arena->guarded;
    uint64_t most = support->memory;
    if (ac_supply_limit(allocator) < most)
        most = ac_supply_limit(allocator);
    if (range)
        more += range->mapped - range->guard->held;
    ac_unlock(&allocator->lock);
    return more <= most / AC_GUARD_MOST;
}

static ac_guard_answer_t answer_of(ac_status_t status) {
    if (status == AC_OOM)
        return AC_GUARD_FULL;
    return status == AC_UNSUPPORTED ? AC_GUARD_ADDRESSES : AC_GUARD_NOT_NOW;
}

ac_guard_answer_t ac_guard_grow(ac_guard_ask_t *ask) {
    ac_arena_t *arena = ask->arena;
    ac_allocator_t *allocator = arena->allocator;
    ac_growth_ask_t growth = {.arena = arena,
                              .pool = AC_POOL_LARGE,
                              .size = ask->size,
                              .guard = true,
                              .aside = ask->aside,
                              .look = no_look,
                              .serve = serve,
                              .arg = ask};
    if (arena->ops->capturing(arena->context, false))
        return AC_GUARD_NOT_NOW;
    if (!ac_expand_able(arena))
        return AC_GUARD_NO_PAGES;
    if (page_of(arena, ask->size) >> AC_PAGE_BITS > AC_UNIT_MOST)
        return AC_GUARD_TOO_LARGE;
    if (!affords(arena, ask->size))
        return AC_GUARD_SHARE;
    ask->address = 0;
    ac_status_t status = ac_supply_pages.grow(&growth);
    if (status != AC_OK)
        return answer_of(status);
    if (!ask->address)
        return AC_GUARD_NOT_NOW;
    const ac_guarded_t record = {.address = ask->address, .requested = ask->requested};
    bool marked = mark(arena, &record, ask->before);
    ac_lock(&allocator->lock);
    const ac_block_t *block = arena->dead ? NULL : ac_page_map_get(ask->address);
    if (block)
        ac_guard_record(block)->marked = marked;
    ac_unlock(&allocator->lock);
    return AC_GUARD_SERVED;
}

/* --- after the free --- */

/* Without the lock: this thread moves the pages, so it owns their records. */
static void leaving(const ac_growth_t *batch) {
    for (unsigned i = 0; i < batch->runs; i++) {
        const ac_run_t *run = &batch->run[i];
        ac_guarded_t *record = &run->range->guard->record[run->first];
        if (!record->address || record->gone)
            continue; /* pages of a request that failed, or that did not go the time before */
        if (record->marked)
            inspect(batch->ask->arena, record, ac_range_address(run->range, run->first));
        record->gone = true;
        ac_lock(&batch->ask->arena->allocator->lock);
        run->range->guard->waiting--;
        ac_unlock(&batch->ask->arena->allocator->lock);
    }
}

/* A request that failed may have left pages without a block. */
bool ac_guard_waits(ac_arena_t *arena) {
    const ac_hole_pick_t any_hole = {
        .pool = AC_POOL_ALL, .pinned = true, .guarded = true, .reached = UINT64_MAX};
    bool starved;
    ac_lock(&arena->allocator->lock);
    const ac_range_t *range = arena->dead ? NULL : arena->guarded;
    bool any =
        range && (range->guard->waiting || ac_expand_oldest_hole(arena, &any_hole, &starved));
    ac_unlock(&arena->allocator->lock);
    return any;
}

uint64_t ac_guard_collect(ac_arena_t *arena) {
    ac_hole_pick_t pick = {.pool = AC_POOL_ALL, .pinned = true, .guarded = true};
    if (!ac_guard_waits(arena))
        return 0;
    /* A pattern that is late must not find its pages gone. */
    if (arena->ops->fills_over && !arena->ops->fills_over(arena->context)) {
        ac_supply_postpone_trim(arena->allocator);
        return 0;
    }
    return ac_expand_give_back(arena, &pick, AC_UNLIMITED, leaving);
}
