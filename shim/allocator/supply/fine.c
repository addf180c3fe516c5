/* Whether pages are to be fine (fine.h). */
#include "allocator/supply/fine.h"

#include "allocator/space/range.h"

/* Bytes of the block on the page of a unit, if that reaches beyond it, and has at most so many bytes. */
static uint64_t rest_on(const ac_range_t *range, const ac_block_t *block, uint64_t unit, uint64_t most) {
    uint64_t from = ac_block_address(block), to = from + block->size;
    uint64_t begin = ac_range_address(range, ac_range_page_begin(range, unit));
    uint64_t end = ac_range_address(range, ac_range_page_end(range, unit));
    if (end - begin > most || (begin >= from && end <= to))
        return 0;
    return (end < to ? end : to) - (begin > from ? begin : from);
}

/* Bytes of the free block on pages that reach beyond it. */
static uint64_t rests_of(const ac_range_t *range, const ac_block_t *block, uint64_t most) {
    uint64_t first = ac_range_unit(range, ac_block_address(block));
    uint64_t last = ac_range_unit(range, ac_block_address(block) + block->size - 1);
    uint64_t bytes = rest_on(range, block, first, most);
    return last < ac_range_page_end(range, first) ? bytes : bytes + rest_on(range, block, last, most);
}

/* The same of all, on pages of at most so many bytes. */
static uint64_t rests(const ac_arena_t *arena, uint64_t most) {
    uint64_t bytes = 0;
    for (const ac_segment_t *s = arena->segments; s; s = s->next) {
        if (!s->range || s->index != AC_POOL_LARGE)
            continue;
        for (const ac_block_t *block = s->first; block; block = block->next)
            bytes += block->state == AC_BLOCK_FREE ? rests_of(s->range, block, most) : 0;
    }
    return bytes;
}

void ac_fine_look(ac_arena_t *arena, uint64_t reserved, uint64_t live, bool over) {
    const ac_settings_t *settings = &arena->allocator->settings;
    ac_fine_t *fine = &arena->allocator->supply->expand.fine;
    uint64_t much = live / 100 * AC_FINE_MUCH, little = AC_FINE_LITTLE * settings->page;
    much = much > little ? much : little;
    if (ac_fine_serves(arena->allocator)) {
        if (live / 2 < fine->live)
            return;
        bool grow = rests(arena, settings->page / 2) > live / AC_FINE_STILL;
        fine->live = grow ? live : 0;
        fine->old = grow ? 0 : rests(arena, UINT64_MAX);
        return;
    }
    if (!over || !ac_budget_learns(settings) || settings->page <= settings->small_page ||
        settings->page > AC_FINE_PAGE || reserved < live + much ||
        reserved > live + live / 100 * AC_FINE_MOST || reserved < fine->looked)
        return;
    fine->looked = reserved + reserved / 64;
    if (rests(arena, UINT64_MAX) > fine->old + much) {
        fine->live = live;
        fine->page = settings->page;
    }
}
