/* Fine pages: half as large as others, where large blocks leave much of their pages.
 *
 * Where a block ends within a page and free memory follows, the rest of that page serves only what fits
 * there, and cannot move: half a page for each such end on average, whatever the size of the block.  In a
 * program that holds many blocks of a few pages each, of sizes that do not repeat, these rests alone come
 * to more than the budget (toll.h), and hardly a page is whole that could move.  So they are counted when a
 * large request grows beyond the budget, and pages may move.  Where they come to much, new pages for large
 * blocks are half as large from then on, and less of a budget is enough.  Pages that are there stay as they
 * are, and are traded where they do not fit (expand.h).
 *
 * It ends where moving comes to cost much (toll.h); with settings that do not watch that, or change the page
 * size; or where the program has doubled and fine pages have hardly any rests: then its new blocks leave none,
 * and those of old ones are no reason again.
 * Requests of many pages, whose ends weigh little, get whole ones at any time: they take no more calls. */
#ifndef AC_FINE_H
#define AC_FINE_H

#include "allocator/budget.h"
#include "allocator/supply/supply.h"

/* All under the lock. */

static inline bool ac_fine_serves(const ac_allocator_t *allocator) {
    const ac_fine_t *fine = &allocator->supply->expand.fine;
    return fine->live && fine->page == allocator->settings.page && ac_budget_learns(&allocator->settings);
}

static inline void ac_fine_end(ac_allocator_t *allocator) {
    allocator->supply->expand.fine.live = 0;
}

/* Bytes of a page for a large request of `size` bytes. */
static inline uint64_t ac_fine_page(const ac_allocator_t *allocator, uint64_t size) {
    uint64_t page = allocator->settings.page;
    return ac_fine_serves(allocator) && size / AC_FINE_MANY < page ? page / 2 : page;
}

/* The arena is about to have so many bytes `reserved` for a large request, with `live` ones at most; `over`:
 * beyond the budget.  Look whether pages are to be fine, if that was not done lately. */
void ac_fine_look(ac_arena_t *arena, uint64_t reserved, uint64_t live, bool over);

#endif
