/* Whether pages are to be fine (fine.h). */
#include "allocator/supply/fine.h"

#include "allocator/space/range.h"

/* In percent of the live bytes: rests that are much, and what is reserved at most where they may be the
 * reason.  Beyond that it is memory that waits for work. */
enum { MUCH = 4, MOST = 10 };

/* In pages: rests that are little, whatever is live.  A buffer that grows has some, and outgrows them. */
enum { LITTLE = 8 };

/* Larger pages were set for the sake of few calls. */
#define LARGEST ((uint64_t)8 << 20)

/* Bytes of the free block on pages that reach beyond it. */
static uint64_t rests_of(const ac_range_t *range, const ac_block_t *block) {
    uint64_t from = ac_block_address(block), to = from + block->size;
    uint64_t first = ac_range_unit(range, from), last = ac_range_unit(range, to - 1);
    if (ac_range_address(range, ac_range_page_begin(range, first)) < from)
        from = ac_range_address(range, ac_range_page_end(range, first));
    if (ac_range_address(range, ac_range_page_end(range, last)) > to)
        to = ac_range_address(range, ac_range_page_begin(range, last));
    return block->size - (to > from ? to - from : 0);
}

static uint64_t rests(const ac_arena_t *arena) {
    uint64_t bytes = 0;
    for (const ac_segment_t *s = arena->segments; s; s = s->next) {
        if (!s->range || s->index != AC_POOL_LARGE)
            continue;
        for (const ac_block_t *block = s->first; block; block = block->next)
            bytes += block->state == AC_BLOCK_FREE ? rests_of(s->range, block) : 0;
    }
    return bytes;
}

void ac_fine_look(ac_arena_t *arena, uint64_t reserved, uint64_t live, bool over) {
    const ac_settings_t *settings = &arena->allocator->settings;
    ac_fine_t *fine = &arena->allocator->supply->expand.fine;
    uint64_t much = live / 100 * MUCH, little = LITTLE * settings->page;
    much = much > little ? much : little;
    if (fine->live) {
        if (live / 2 >= fine->live)
            fine->live = rests(arena) > much / 2 ? live : 0; /* they are half as large themselves */
        return;
    }
    if (!over || settings->page <= settings->small_page || settings->page > LARGEST ||
        reserved < live + much || reserved > live + live / 100 * MOST || reserved < fine->looked)
        return;
    fine->looked = reserved + reserved / 64;
    if (rests(arena) > much)
        fine->live = live;
}
