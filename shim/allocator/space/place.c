/* The place in a range for a request that no free memory fits (place.h).
 *
 * A run without unmapped blocks is one free block, and an earlier search refused it.  So the search visits only
 * unmapped blocks and their neighbours, which are few.  Candidates begin where a free block begins, or end where
 * one ends; or they begin or end at an end of the run; or with its first or last whole page if pages are cut.  Any
 * other place could be shifted to one of these without lacking more. */
#include "allocator/space/place.h"

static bool is_open(const ac_block_t *block) {
    return block && (block->state == AC_BLOCK_FREE || block->state == AC_BLOCK_UNMAPPED);
}

typedef struct {
    const ac_range_t *range;
    uint64_t size;
    uint32_t span; /* units of a page */
    uint64_t run;  /* bytes of the current run */
    ac_place_t *best;
} search_t;

static uint64_t end_of(const ac_block_t *block) {
    return block->address + block->size;
}

/* Pages are aligned within the range.  At the ends of an unmapped block they may be cut, if smaller pages lie next
 * to it. */
static uint64_t page_floor(const search_t *search, const ac_block_t *block, uint64_t address) {
    uint32_t unit = (uint32_t)ac_range_unit(search->range, address);
    uint64_t floor = ac_range_address(search->range, unit / search->span * search->span);
    return floor > block->address ? floor : block->address;
}

static uint64_t page_ceil(const search_t *search, const ac_block_t *block, uint64_t address) {
    uint32_t span = search->span;
    uint32_t unit = (uint32_t)ac_range_unit(search->range, address + AC_SEGMENT_ALIGN - 1);
    uint64_t ceil = ac_range_address(search->range, (uint64_t)((unit + span - 1) / span) * span);
    return ceil < end_of(block) ? ceil : end_of(block);
}

static bool better(const search_t *search, uint64_t missing) {
    const ac_place_t *best = search->best;
    return !best->block || missing < best->missing ||
           (missing == best->missing && search->run < best->run);
}

/* The place [address, address + size) from `first` on, if it is the best so far. */
static void consider(search_t *search, ac_block_t *first, uint64_t address) {
    uint64_t end = address + search->size;
    ac_place_t place = {.address = address, .from = address, .to = end, .run = search->run};
    while (end_of(first) <= address)
        first = first->next;
    place.block = first;
    for (const ac_block_t *block = first; block->address < end; block = block->next) {
        if (block->state == AC_BLOCK_UNMAPPED) {
            uint64_t from =
                block->address < address ? page_floor(search, block, address) : block->address;
            uint64_t to = end_of(block) > end ? page_ceil(search, block, end) : end_of(block);
            place.missing += to - from;
            place.from = from < place.from ? from : place.from;
            place.to = to > place.to ? to : place.to;
            if (!better(search, place.missing))
                return;
        }
        if (end_of(block) >= end)
            break;
    }
    if (better(search, place.missing))
        *search->best = place;
}

static void visit_run(search_t *search, ac_block_t *first) {
    uint64_t begin = first->address, end = begin, mapped = 0;
    for (const ac_block_t *block = first; is_open(block); block = block->next) {
        end = end_of(block);
        mapped += block->state == AC_BLOCK_FREE ? block->size : 0;
    }
    search->run = end - begin;
    if (search->run < search->size)
        return;
    /* If all that is mapped here were of use it would still not be enough. */
    if (mapped < search->size && !better(search, search->size - mapped))
        return;
    consider(search, first, begin);
    for (ac_block_t *block = first; is_open(block); block = block->next) {
        uint64_t from = block->address, to = end_of(block);
        if (block->state == AC_BLOCK_UNMAPPED) {
            from = page_ceil(search, block, from);
            to = page_floor(search, block, to);
            if (from == block->address && to == end_of(block))
                continue;
        }
        if (end - from >= search->size)
            consider(search, block, from);
        if (to - begin >= search->size)
            consider(search, first, to - search->size);
    }
    consider(search, first, end - search->size);
}

bool ac_place_find(const ac_range_t *range, uint64_t size, uint64_t page, ac_place_t *place) {
    search_t search = {
        .range = range, .size = size, .span = (uint32_t)(page >> AC_PAGE_BITS), .best = place};
    place->block = NULL;
    for (const ac_block_t *block = range->unmapped; block; block = block->list_next) {
        ac_block_t *first = (ac_block_t *)block;
        if (is_open(first->prev))
            first = first->prev;
        if (first != block && is_open(first->prev))
            continue; /* a run that another unmapped block begins */
        visit_run(&search, first);
    }
    return place->block != NULL;
}
