/* What moving pages costs, and how much memory that is worth: the budget beyond which pages are
 * moved rather than created (`page_budget`).
 *
 * By itself it is least(1.10 H, H + w / 4), with H the high-water mark of allocated bytes and w the
 * bytes that the device would have created in the time that moving has cost so far, beyond next to
 * nothing for each request: a program that moves a page now and then does not take more and more
 * memory for it.  Pages that are made for others of another size that go (expand.h) earn nothing: as
 * many would have been made beyond the budget.  With low_memory, or while pages are fine (fine.h), 1.04 H
 * takes the place of 1.10 H: less of such pages lies idle beside blocks.
 *
 * A program whose sizes never repeat moves pages within it for ever.  So what moving costs for each
 * request is looked at over windows of requests: where it is much, again and again, fine pages end, or
 * where there are none the budget rises by a share of H, up to AC_TOLL_MOST; where it is next to nothing
 * for many windows it falls again, and what is beyond it goes back.  Between the two it stays as it is.  A
 * second without a move counts as such a window, too: a program may make no requests any more.  Not with
 * low_memory, nor where `page_budget` is set: what was learned is forgotten.
 *
 * All under the allocator's lock. */
#ifndef AC_TOLL_H
#define AC_TOLL_H

#include "allocator/supply/supply.h"

/* Bytes beyond which a request of `size` moves pages of `page` bytes. */
uint64_t ac_toll_budget(ac_allocator_t *allocator, uint64_t size, uint64_t page);

/* So many pages were moved, out of `runs` places, and `traded` bytes were made as pages of `page`
 * bytes for others that went. */
void ac_toll_charge(ac_allocator_t *allocator, uint64_t runs, uint64_t pages, uint64_t traded,
                    uint64_t page);

/* Bytes that may stay reserved for so many `live` ones; 0: as much as for any program. */
uint64_t ac_toll_kept(const ac_allocator_t *allocator, uint64_t live);

/* The program is about to reset the statistics: its requests are counted on. */
void ac_toll_reset(ac_allocator_t *allocator);

/* Look at the requests since the last look, as far as the statistics have them.  Returns by how much
 * less of the high-water mark may stay reserved, in percent: memory is owed, then. */
unsigned ac_toll_look(ac_allocator_t *allocator);

#endif
