/* Growing by pages: where a request of an expandable arena finds no free memory that fits, the
 * place in its range that lacks the fewest pages gets them (range.h, place.c).
 *
 * Pages come, in this order,
 *   1. from the device, as long as what is reserved stays within the budget: least(1.10 H,
 *      H + w / 4), with H the high-water mark of allocated bytes and w the bytes that the device
 *      would have created in the time that moving pages has cost so far; or a fixed share of H;
 *   2. out of holes, the one freed first before the others: whole pages side by side from its
 * high end, with one unmapping.  Only where all work that was submitted before the last free in
 *      the hole has completed: taking a page away is no work of a stream, so no stream's order
 *      protects it.  Never pages that are pinned;
 *   3. from the device beyond the budget; beyond the waiting limit (`wait_budget`) only after
 * waiting for holes that are not complete yet, where waiting cannot last for ever.
 *
 * A step plans and claims under the lock, which leaves what it works on in no index and no list
 * that others look at; it asks the device without the lock; and it settles under the lock again,
 * by what the device did: pages that came before a failure stay, as free memory. */
#ifndef AC_EXPAND_H
#define AC_EXPAND_H

#include "allocator/supply/supply.h"

/* Whether the arena's device knows pages; it is asked once. */
bool ac_expand_able(ac_arena_t *arena);

/* What the device would not give where native segments served instead: for the user to be told. */
void ac_expand_refuse(ac_allocator_t *allocator, ac_refused_t what);
ac_refused_t ac_expand_refused(ac_allocator_t *allocator);

/* The context of the arena, which was dropped, has gone: give back what is left of its ranges. */
void ac_expand_bury(ac_arena_t *arena);

/* More may reach the device's memory from now on: tell the device so for all pages. */
void ac_expand_allow(ac_allocator_t *allocator);

#endif
