/* Fine pages: half as large as others, if large blocks leave much of their pages.
 *
 * If a block ends within a page and free memory follows, the rest of that page serves only requests that fit there,
 * and cannot move: half a page for each end on average, whatever the size of the block.  In a program with many
 * blocks of a few pages each, and sizes that do not repeat, these rests exceed the budget, and hardly a whole page is
 * free to move.  A large request that grows beyond the budget therefore counts them, if pages may move.  If there are
 * many, new pages for large blocks are half as large from then on, and a smaller budget is enough.  Old pages stay as
 * they are, and are traded if they do not fit (expand.h).
 *
 * This ends if moves become costly (ac_policy_learn), or with a new page size.  It also ends if the program has
 * doubled and half pages have hardly any rests: its new blocks leave none, and rests of old blocks are no reason
 * again.  Requests of many pages get whole ones at any time: their ends weigh little, and cost no more calls. */
#ifndef AC_FINE_H
#define AC_FINE_H

#include "allocator/supply/supply.h"

/* Called before the arena grows to `reserved` bytes for a large request, with `live` bytes at most; `over`: beyond
 * the budget.  Decides if new pages are half as large, unless it did so recently.  Under the lock. */
void ac_fine_look(ac_arena_t *arena, uint64_t reserved, uint64_t live, bool over);

#endif
