/* The places of guarded blocks (guard_place.h). */
#include "allocator/space/guard_place.h"

#include "allocator/space/records.h"
#include "allocator/space/segment.h"

ac_range_t *ac_guard_add(ac_space_t *space, uint64_t address, uint64_t size) {
    ac_guard_t *guard = ac_record_memory(sizeof *guard);
    ac_guarded_t *record = ac_record_memory(ac_guard_record_bytes(size));
    ac_range_t *range = guard && record
                            ? ac_range_add(space, AC_POOL_LARGE, AC_INDEX_GUARD, address, size)
                            : NULL;
    if (!range) {
        if (guard)
            ac_record_memory_return(guard, sizeof *guard);
        if (record)
            ac_record_memory_return(record, ac_guard_record_bytes(size));
        return NULL;
    }
    guard->record = record;
    range->guard = guard;
    space->guarded = range;
    range->segment->tainted = true;
    return range;
}

/* --- places --- */

typedef struct {
    const ac_range_t *range;
    uint64_t units, step; /* that the block takes; places begin at multiples of it */
    uint64_t found;       /* unit; UINT64_MAX: none */
} search_t;

/* The first place at or behind `from` that has a unit without memory on both sides. */
static void search(search_t *search, uint64_t from) {
    const ac_range_t *range = search->range;
    search->found = UINT64_MAX;
    for (const ac_block_t *block = range->unmapped; block; block = block->list_next) {
        uint64_t begin = ac_range_unit(range, block->address) + 1;
        uint64_t end = ac_range_unit(range, block->address + block->size) - 1;
        begin = begin < from ? from : begin;
        begin = (begin + search->step - 1) / search->step * search->step;
        if (begin < search->found && begin + search->units <= end)
            search->found = begin;
    }
}

/* Whether a block lay there that was freed a short while ago. */
static bool is_recent(const search_t *search, uint64_t now) {
    const ac_guarded_t *record = search->range->guard->record;
    for (uint64_t at = search->found; at < search->found + search->units; at++)
        if (record[at].freed_ns && (now - record[at].freed_ns) / 1000000000 < AC_GUARD_KEEP_S)
            return true;
    return false;
}

bool ac_guard_place(const ac_range_t *range, uint64_t size, uint64_t page, uint64_t now,
                    ac_place_t *place) {
    search_t best = {.range = range,
                     .units = ((size + page - 1) / page * page) >> AC_PAGE_BITS,
                     .step = page >> AC_PAGE_BITS};
    /* The order of choice: the addresses that were used first, if nothing used them for long enough; new addresses;
     * the addresses that were unused for longest. */
    search_t fresh = best;
    search(&best, range->guard->cursor);
    if (best.found == UINT64_MAX)
        search(&best, 0);
    search_t first = best;
    search(&first, 0);
    if (first.found != UINT64_MAX && range->guard->cursor >= range->high &&
        !is_recent(&first, now))
        best = first;
    if (best.found == UINT64_MAX)
        return false;
    if (is_recent(&best, now)) {
        search(&fresh, range->high + 1);
        best = fresh.found != UINT64_MAX ? fresh : best;
    }
    uint64_t from = ac_range_address(range, best.found);
    uint64_t to = from + (best.units << AC_PAGE_BITS);
    *place = (ac_place_t){
        .address = to - size, .from = from, .to = to, .missing = to - from, .run = 0};
    for (ac_block_t *block = range->unmapped; block && !place->block; block = block->list_next)
        if (block->address <= from && from - block->address < block->size)
            place->block = block;
    return true;
}

/* --- blocks --- */

static uint64_t first_unit(const ac_block_t *block) {
    const ac_range_t *range = block->segment->range;
    uint64_t unit = ac_range_unit(range, block->address);
    /* Pages of other blocks do not adjoin, so the pages before it are the block's. */
    while (unit && ac_range_is_mapped(range, unit - 1))
        unit = ac_range_page_begin(range, unit - 1);
    return unit;
}

ac_block_t *ac_guard_carve(ac_block_t *block, uint64_t size) {
    ac_range_t *range = block->segment->range;
    ac_block_t *rest = NULL;
    uint64_t first = ac_range_unit(range, block->address), units = block->size >> AC_PAGE_BITS;
    if (block->size > size) {
        rest = block;
        ac_segment_carve(rest, rest->size - size);
        block = rest->next;
        if (block->state != AC_BLOCK_FREE) { /* host memory was short: it is whole */
            ac_segment_put_back(rest);
            return NULL;
        }
    }
    ac_segment_carve(block, size);
    if (rest)
        ac_segment_put_back(rest);
    for (uint64_t at = first; at < first + units; at++)
        range->guard->record[at] = (ac_guarded_t){.units = 0};
    range->guard->record[first] =
        (ac_guarded_t){.address = block->address, .units = (uint32_t)units};
    range->guard->cursor = first + units + 1;
    return block;
}

ac_guarded_t *ac_guard_record(const ac_block_t *block) {
    return &block->segment->range->guard->record[first_unit(block)];
}

void ac_guard_count(const ac_block_t *block, bool freed) {
    ac_guard_t *guard = block->segment->range->guard;
    guard->held += freed ? -block->size : block->size;
    guard->waiting += freed;
}
