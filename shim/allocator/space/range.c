/* Ranges and their blocks (range.h). */
#include "allocator/space/range.h"

#include "allocator/space/records.h"
#include "allocator/space/segment.h"
#include "allocator/space/slab.h"

/* --- birth and death --- */

static void unmapped_enter(ac_range_t *range, ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_UNMAPPED);
    ac_blocks_push(&range->unmapped, block);
}

static void unmapped_leave(ac_range_t *range, ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    ac_blocks_remove(&range->unmapped, block);
}

static size_t units_bytes(uint64_t size) {
    return (size_t)(size >> AC_PAGE_BITS) * sizeof(ac_unit_t);
}

ac_range_t *ac_range_add(ac_space_t *space, int pool, int index, uint64_t address,
                         uint64_t size) {
    ac_range_t *range = ac_record_memory(sizeof *range);
    ac_unit_t *unit = ac_record_memory(units_bytes(size));
    ac_segment_t *segment = range && unit ? ac_segment_begin(space, pool, address, size) : NULL;
    if (!segment) {
        if (range)
            ac_record_memory_return(range, sizeof *range);
        if (unit)
            ac_record_memory_return(unit, units_bytes(size));
        return NULL;
    }
    *range = (ac_range_t){.address = address,
                          .size = size,
                          .arena = space->arena,
                          .segment = segment,
                          .unit = unit};
    segment->range = range;
    segment->special = true;
    ac_segment_set_index(segment, (unsigned)index);
    segment->busy = 1; /* never idle: it stays as long as the context */
    ac_segments_push(&space->segments, segment);
    unmapped_enter(range, segment->first);
    return range;
}

void ac_range_forget(ac_range_t *range) {
    if (range->guard) {
        ac_record_memory_return(range->guard->record, ac_guard_record_bytes(range->size));
        ac_record_memory_return(range->guard, sizeof *range->guard);
    }
    ac_record_memory_return(range->unit, units_bytes(range->size));
    ac_record_memory_return(range, sizeof *range);
}

void ac_range_lose(ac_segment_t *segment) {
    ac_range_t *range = segment->range;
    ac_space_t *space = segment->space;
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (ac_block_has_memory(block))
            ac_page_map_clear(block->address);
    for (ac_block_t *block = segment->first; block; block = block->next)
        if (block->state != AC_BLOCK_UNMAPPED)
            ac_range_uncover(block, true);
    ac_stat_pools_down(space->store->stats->reserved_bytes, segment->pool,
                       (int64_t)range->mapped);
    if (space->guarded == range)
        space->guarded = NULL;
    range->segment = NULL;
    range->unmapped = NULL;
    range->next = space->lost_ranges;
    space->lost_ranges = range;
}

/* --- holes --- */

static uint64_t unit_floor(const ac_range_t *range, uint64_t address) {
    return ac_range_unit(range, address);
}

static uint64_t unit_ceil(const ac_range_t *range, uint64_t address) {
    return ac_range_unit(range, address + AC_SEGMENT_ALIGN - 1);
}

static inline bool is_hole(const ac_block_t *block) {
    uint64_t address = ac_block_address(block); /* ranges begin at units */
    return (address + AC_SEGMENT_ALIGN - 1) >> AC_PAGE_BITS < (address + block->size) >>
           AC_PAGE_BITS;
}

void ac_range_hole_enter(ac_block_t *block, bool fresh) {
    ac_space_t *space = block->segment->space;
    if (fresh)
        AC_BLOCK_SET(block, age, (uint64_t)space->store->epoch << 32 | ++space->hole_age);
    if (is_hole(block))
        ac_block_queue_push(&space->holes, block);
}

uint64_t ac_range_hole_keeps(const ac_block_t *block, uint64_t freed) {
    bool large = block->segment->range && block->size / 8 > freed && is_hole(block);
    return large ? ac_range_hole_age(block) : UINT64_MAX;
}

uint32_t ac_range_hole_epochs(const ac_block_t *block) {
    return block->segment->space->store->epoch - (uint32_t)(block->age >> 32);
}

void ac_range_hole_leave(ac_block_t *block) {
    if (is_hole(block))
        ac_block_queue_remove(&block->segment->space->holes, block);
}

bool ac_range_tail(const ac_block_t *hole, uint64_t span, bool pinned, uint64_t most,
                   uint64_t *first, uint64_t *count) {
    const ac_range_t *range = hole->segment->range;
    uint64_t low = unit_ceil(range, hole->address);
    uint64_t at = unit_floor(range, hole->address + hole->size);
    *count = 0;
    while (at > low && *count < most) {
        uint64_t begin = ac_range_page_begin(range, at - 1);
        const ac_unit_t *unit = &range->unit[begin];
        bool whole = begin >= low && begin + unit->span == at;
        unsigned barred = pinned ? AC_UNIT_SHOWN : AC_UNIT_SHOWN | AC_UNIT_PINNED;
        bool fits = !*count || *count + unit->span <= most;
        if (whole && fits && (!span || unit->span <= span) && !(unit->flags & barred)) {
            *first = begin;
            *count += unit->span;
        } else if (*count) {
            break;
        }
        at = begin; /* skips a page that lies partly outside of the hole, too */
    }
    return *count;
}

bool ac_range_any_whole(const ac_space_t *space, bool guarded) {
    uint64_t first, count;
    for (const ac_block_t *hole = space->holes.first; hole; hole = hole->list_next)
        if ((guarded || !hole->segment->range->guard) &&
            ac_range_tail(hole, 0, true, 1, &first, &count))
            return true;
    return false;
}

/* --- moving --- */

bool ac_spares_fill(ac_store_t *store, ac_spares_t *spares, unsigned count) {
    while (spares->count < count) {
        ac_block_t *block = ac_record_block(store);
        if (!block)
            return false;
        block->list_next = spares->first;
        spares->first = block;
        spares->count++;
    }
    return true;
}

static ac_block_t *spare_take(ac_spares_t *spares) {
    ac_block_t *block = spares->first;
    spares->first = block->list_next;
    spares->count--;
    return block;
}

static void spare_give(ac_spares_t *spares, ac_block_t *block) {
    ac_block_set_state(block, AC_BLOCK_UNUSED);
    AC_BLOCK_SET(block, address, ac_block_address(block) | 1); /* as ac_record_block_return */
    block->list_next = spares->first;
    spares->first = block;
    spares->count++;
}

void ac_spares_return(ac_store_t *store, ac_spares_t *spares) {
    while (spares->count)
        ac_record_block_return(store, spare_take(spares));
}

/* Cut the block, which is in no index or list, after `size` bytes; both parts stay so. */
static ac_block_t *cut(ac_block_t *block, uint64_t size, ac_spares_t *spares) {
    ac_block_t *rest = spare_take(spares);
    ac_block_split(block, size, rest);
    return rest;
}

/* `block` swallows its right neighbour; neither is in an index, a list or the page map. */
static void swallow(ac_block_t *block, ac_spares_t *spares) {
    spare_give(spares, ac_block_merge(block));
}

/* Take a free or unmapped block out of the lists.  Returns which of the two it was. */
static ac_block_state_t open_leave(ac_block_t *block) {
    ac_block_state_t was = block->state;
    if (was == AC_BLOCK_UNMAPPED)
        unmapped_leave(block->segment->range, block);
    else
        ac_segment_unlist(block);
    return was;
}

static void open_enter(ac_block_t *block, ac_block_state_t to) {
    if (to == AC_BLOCK_UNMAPPED)
        unmapped_enter(block->segment->range, block);
    else
        ac_segment_enlist(block);
}

/* Take it out for one that becomes part of a MOVING block: its address finds nothing. */
static void open_take(ac_block_t *block) {
    if (open_leave(block) == AC_BLOCK_FREE)
        ac_page_map_clear(block->address);
}

/* Cut the open block in two, each in its lists.  False: host memory is short. */
static bool divide(ac_block_t *block, uint64_t address, ac_spares_t *spares) {
    if (block->state == AC_BLOCK_FREE && !ac_page_map_set(address, spares->first))
        return false;
    ac_block_state_t was = open_leave(block);
    ac_block_t *rest = cut(block, address - block->address, spares);
    open_enter(block, was);
    open_enter(rest, was);
    return true;
}

ac_block_t *ac_range_claim(ac_block_t *block, uint64_t from, uint64_t to, ac_spares_t *spares) {
    ac_block_t *last = block;
    while (last->address + last->size < to)
        last = last->next;
    if (last->address + last->size > to && !divide(last, to, spares))
        return NULL;
    if (block->address < from) {
        ac_block_state_t was = open_leave(block);
        ac_block_t *rest = cut(block, from - block->address, spares);
        open_enter(block, was);
        block = rest;
    } else {
        open_take(block);
    }
    while (block->address + block->size < to) {
        open_take(block->next);
        swallow(block, spares);
    }
    ac_block_set_state(block, AC_BLOCK_MOVING);
    block->segment->busy++;
    return block;
}

/* Whole units that the block touches. */
static uint64_t first_unit(const ac_block_t *block) {
    return unit_floor(block->segment->range, block->address);
}

static uint64_t last_unit(const ac_block_t *block) {
    return unit_ceil(block->segment->range, block->address + block->size);
}

/* A block's part of units that it shares with others is theirs to cover. */
static void own_units(const ac_block_t *block, uint64_t *first, uint64_t *end) {
    const ac_range_t *range = block->segment->range;
    *first = unit_ceil(range, block->address);
    *end = unit_floor(range, block->address + block->size);
}

bool ac_range_cover(const ac_range_t *range, uint64_t first, uint64_t end) {
    return ac_page_map_cover(ac_range_address(range, first), (end - first) << AC_PAGE_BITS,
                             range->arena);
}

void ac_range_uncover(const ac_block_t *moving, bool all) {
    const ac_range_t *range = moving->segment->range;
    uint64_t end = last_unit(moving);
    for (uint64_t at = first_unit(moving), next; at < end; at = next) {
        next = ac_range_same(range, at, end);
        if (all || !ac_range_is_mapped(range, at))
            ac_page_map_uncover(ac_range_address(range, at), (next - at) << AC_PAGE_BITS);
    }
}

/* Returns the end of the part that begins at `address`: all of it is mapped, or nothing. */
static uint64_t part_end(const ac_block_t *block, uint64_t address, bool *mapped) {
    const ac_range_t *range = block->segment->range;
    uint64_t at = unit_floor(range, address);
    *mapped = ac_range_is_mapped(range, at);
    uint64_t address_end = ac_range_address(range, ac_range_same(range, at, last_unit(block)));
    uint64_t block_end = block->address + block->size;
    return address_end < block_end ? address_end : block_end;
}

static bool is_unmapped(const ac_block_t *block) {
    return block && block->state == AC_BLOCK_UNMAPPED;
}

static void settle_unmapped(ac_block_t *block, ac_spares_t *spares) {
    ac_range_t *range = block->segment->range;
    ac_block_set_state(block, AC_BLOCK_TRANSIT);
    block->segment->busy--;
    if (is_unmapped(block->next)) {
        unmapped_leave(range, block->next);
        swallow(block, spares);
    }
    if (is_unmapped(block->prev)) {
        block = block->prev;
        unmapped_leave(range, block);
        swallow(block, spares);
    }
    unmapped_enter(range, block);
}

void ac_range_settle_whole(ac_block_t *moving, bool mapped, uint64_t quiet, ac_spares_t *spares) {
    if (!mapped) {
        uint64_t first, end;
        own_units(moving, &first, &end);
        ac_page_map_uncover(ac_range_address(moving->segment->range, first), (end - first)
                                                                                 << AC_PAGE_BITS);
        settle_unmapped(moving, spares);
    } else if (ac_page_map_set(moving->address, moving)) {
        ac_block_set_state(moving, AC_BLOCK_TRANSIT);
        ac_segment_coalesce(moving, quiet);
    }
    /* Host memory is short, and this part cannot be freed: it stays as it is until the context ends. */
}

static bool is_free(const ac_block_t *block) {
    return block && block->state == AC_BLOCK_FREE;
}

void ac_range_put_back(ac_block_t *moving, uint64_t age, uint64_t quiet, ac_spares_t *spares) {
    ac_block_t *hole = is_free(moving->prev) ? moving->prev : moving;
    if (is_free(moving->prev) && ac_range_hole_age(moving->prev) > age)
        age = ac_range_hole_age(moving->prev);
    if (is_free(moving->next) && ac_range_hole_age(moving->next) > age)
        age = ac_range_hole_age(moving->next);
    ac_range_settle_whole(moving, true, quiet, spares);
    if (is_free(hole))
        ac_range_hole_set_age(hole, age);
}

void ac_range_settle(ac_block_t *moving, uint64_t barred, uint64_t end, uint64_t quiet,
                     ac_spares_t *spares) {
    ac_segment_t *segment = moving->segment;
    for (;;) {
        bool mapped = false, stays = barred < end && moving->address == barred;
        uint64_t to = stays ? end : part_end(moving, moving->address, &mapped);
        if (barred < end && moving->address < barred && to > barred)
            to = barred;
        ac_block_t *rest = NULL;
        if (to < moving->address + moving->size) {
            rest = cut(moving, to - moving->address, spares);
            ac_block_set_state(rest, AC_BLOCK_MOVING);
            segment->busy++;
        }
        if (!stays)
            ac_range_settle_whole(moving, mapped, quiet, spares);
        if (!rest)
            return;
        moving = rest;
    }
}

/* --- what others see --- */

void ac_range_pin(const ac_block_t *block) {
    ac_range_t *range = block->segment->range;
    uint64_t end = last_unit(block);
    for (uint64_t at = first_unit(block); at < end; at = ac_range_page_end(range, at))
        range->unit[ac_range_page_begin(range, at)].flags |= AC_UNIT_PINNED;
}

void ac_range_pages(const ac_block_t *block, uint64_t *begin, uint64_t *end) {
    const ac_range_t *range = block->segment->range;
    *begin = ac_range_address(range, ac_range_page_begin(range, first_unit(block)));
    *end = ac_range_address(range, ac_range_page_end(range, last_unit(block) - 1));
}

uint64_t ac_range_count_synced(ac_range_t *range, uint64_t address, int by) {
    uint64_t unit = ac_range_unit(range, address);
    range->unit[ac_range_page_begin(range, unit)].synced += (uint32_t)by;
    return ac_range_address(range, ac_range_page_end(range, unit));
}

uint32_t ac_range_synced(const ac_range_t *range, uint64_t address) {
    return range->unit[ac_range_page_begin(range, ac_range_unit(range, address))].synced;
}

uint64_t ac_range_idle_bytes(const ac_range_t *range) {
    uint64_t bytes = 0;
    for (const ac_block_t *block = range->segment->first; block;) {
        const ac_block_t *first = block;
        while (block && !ac_block_in_use(block) && ac_block_has_memory(block))
            block = block->next;
        if (block == first) {
            block = block->next;
            continue;
        }
        uint64_t end = block ? block->address : range->address + range->size;
        uint64_t from = unit_ceil(range, first->address), to = unit_floor(range, end);
        for (uint64_t at = from; at < to; at++)
            if (range->unit[at].span && at + range->unit[at].span <= to)
                bytes += (uint64_t)range->unit[at].span << AC_PAGE_BITS;
    }
    return bytes;
}

/* --- the checker --- */

static const char *check_units(const ac_range_t *range, const ac_block_t *block) {
    bool unmapped = block->state == AC_BLOCK_UNMAPPED;
    if (unmapped && (block->address % AC_SEGMENT_ALIGN || block->size % AC_SEGMENT_ALIGN))
        return "unmapped part of a unit";
    uint64_t first = first_unit(block), end = last_unit(block);
    if (unmapped && end > range->high)
        end = range->high;
    for (uint64_t at = first; at < end; at++) {
        if ((bool)(range->unit[at].flags & AC_UNIT_MAPPED) == unmapped)
            return "a block and the pages below it";
        if ((ac_page_map_owner(ac_range_address(range, at)) != NULL) == unmapped)
            return "pages in the page map";
    }
    return NULL;
}

static const char *check_lists(const ac_range_t *range) {
    int64_t unmapped = 0, holes = 0;
    for (const ac_block_t *block = range->segment->first; block; block = block->next) {
        unmapped += block->state == AC_BLOCK_UNMAPPED;
        holes += block->state == AC_BLOCK_FREE && is_hole(block);
        if (is_unmapped(block) && is_unmapped(block->next))
            return "unmapped neighbours";
    }
    for (const ac_block_t *block = range->unmapped; block; block = block->list_next)
        unmapped -= block->state == AC_BLOCK_UNMAPPED && block->segment == range->segment;
    for (const ac_block_t *block = range->segment->space->holes.first; block;
         block = block->list_next)
        if (block->segment == range->segment)
            holes -= block->state == AC_BLOCK_FREE && is_hole(block);
    return unmapped ? "list of unmapped blocks" : holes ? "list of holes" : NULL;
}

uint64_t ac_range_check(const ac_range_t *range, const char **wrong) {
    uint64_t mapped = 0;
    *wrong = check_lists(range);
    for (const ac_block_t *block = range->segment->first; block && !*wrong; block = block->next)
        if (block->state != AC_BLOCK_MOVING)
            *wrong = check_units(range, block);
    if (range->calls)
        return range->mapped; /* another thread works on the pages */
    uint64_t units = range->size >> AC_PAGE_BITS, covered = 0;
    for (const ac_block_t *block = range->segment->first; block && !*wrong; block = block->next) {
        if (block->state == AC_BLOCK_UNMAPPED)
            continue;
        for (uint64_t at = first_unit(block); at < last_unit(block); at++) {
            if (at < covered)
                continue; /* a unit that two blocks share, or of a page that was counted */
            const ac_unit_t *unit = &range->unit[at];
            if (!unit->span || at + unit->span > units) {
                *wrong = "pages overlap, or leave units out";
                break;
            }
            covered = at + unit->span;
            for (uint64_t i = at; i < covered; i++)
                if (range->unit[i].back != i - at || (i > at && range->unit[i].span))
                    *wrong = "units of a page";
            mapped += (uint64_t)unit->span << AC_PAGE_BITS;
        }
    }
    if (!*wrong && mapped != range->mapped)
        *wrong = "bytes of pages";
    return mapped;
}
