/* Decides if new pages are half as large (fine.h). */
#include "allocator/supply/fine.h"

#include "allocator/space/range.h"

/* Returns the bytes of the block on the page of a unit, if the page reaches beyond the block and has at most `most`
 * bytes. */
static uint64_t rest_on(const ac_range_t *range, const ac_block_t *block, uint64_t unit, uint64_t most) {
    uint64_t from = ac_block_address(block), to = from + block->size;
    uint64_t begin = ac_range_address(range, ac_range_page_begin(range, unit));
    uint64_t end = ac_range_address(range, ac_range_page_end(range, unit));
    if (end - begin > most || (begin >= from && end <= to))
        return 0;
    return (end < to ? end : to) - (begin > from ? begin : from);
}

/* Returns the bytes of the free block on pages that reach beyond it. */
static uint64_t rests_of(const ac_range_t *range, const ac_block_t *block, uint64_t most) {
    uint64_t first = ac_range_unit(range, ac_block_address(block));
    uint64_t last = ac_range_unit(range, ac_block_address(block) + block->size - 1);
    uint64_t bytes = rest_on(range, block, first, most);
    return last < ac_range_page_end(range, first) ? bytes : bytes + rest_on(range, block, last, most);
}

/* Returns these bytes of all large free blocks, on pages of at most `most` bytes. */
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
    ac_toll_t *toll = &arena->allocator->supply->expand.toll;
    ac_fine_t *fine = &toll->fine;
    uint64_t much = ac_policy_rests(toll, settings, live, reserved);
    if (ac_policy_fine(toll, settings)) {
        if (live / 2 < fine->live)
            return;
        bool still = rests(arena, settings->page / 2) > live / AC_FINE_STILL;
        fine->live = still ? live : 0;
        fine->old = still ? 0 : rests(arena, UINT64_MAX);
    } else if (over && much < UINT64_MAX) {
        fine->looked = reserved + reserved / 64;
        if (rests(arena, UINT64_MAX) > much) {
            fine->live = live;
            fine->page = settings->page;
        }
    }
}
