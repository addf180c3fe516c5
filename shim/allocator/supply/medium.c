/* Which blocks keep pages (medium.h). */
#include "allocator/supply/medium.h"

#include "allocator/budget.h"
#include "allocator/space/range.h"
#include "allocator/space/slab.h"

/* A page, and what medium blocks hold of it; 0 units: none is looked at. */
typedef struct {
    uint64_t first, units;
    uint64_t used;
} page_t;

/* Bytes that lie idle on pages which only medium blocks keep, where these hold less than half. */
static uint64_t page_end(page_t *page) {
    uint64_t bytes = page->units << AC_PAGE_BITS;
    uint64_t idle = page->used && 2 * page->used < bytes ? bytes - page->used : 0;
    *page = (page_t){0};
    return idle;
}

static uint64_t idle_beside_medium(const ac_range_t *range) {
    page_t page = {0};
    uint64_t idle = 0, taken = 0; /* `taken`: up to which unit pages have a large block */
    for (const ac_block_t *block = range->segment->first; block; block = block->next) {
        if (!ac_block_in_use(block) || !ac_block_has_memory(block))
            continue;
        uint64_t first = ac_range_unit(range, block->address);
        uint64_t last = ac_range_unit(range, block->address + block->size - 1);
        if (block->size > AC_MEDIUM) {
            if (first >= page.first + page.units)
                idle += page_end(&page);
            page = (page_t){0};
            taken = ac_range_page_end(range, last);
            continue;
        }
        if (last < taken)
            continue;
        if (last >= page.first + page.units) {
            idle += page_end(&page);
            page.first = ac_range_page_begin(range, last);
            page.units = ac_range_page_end(range, last) - page.first;
        }
        page.used += block->size;
    }
    return idle + page_end(&page);
}

void ac_medium_look(ac_arena_t *arena, uint64_t reserved, uint64_t live) {
    const ac_settings_t *settings = &arena->allocator->settings;
    ac_expand_t *expand = &arena->allocator->supply->expand;
    uint64_t much = live / 50 > ac_budget_floor(settings, AC_BUDGET_PAGES)
                        ? live / 50
                        : ac_budget_floor(settings, AC_BUDGET_PAGES);
    if (expand->medium || settings->page <= settings->small_page || reserved < live + much ||
        reserved < expand->looked)
        return;
    expand->looked = reserved + reserved / 64;
    uint64_t idle = 0;
    for (const ac_segment_t *s = arena->segments; s; s = s->next)
        if (s->range && s->index == AC_POOL_LARGE)
            idle += idle_beside_medium(s->range);
    expand->medium = idle > much;
}
