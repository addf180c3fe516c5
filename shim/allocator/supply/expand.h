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

#include "allocator/allocator_int.h"

typedef struct {
    ac_arena_t *arena;
    int pool;
    uint64_t size; /* bytes, a multiple of AC_GRANULE */
    bool aside;    /* captures are let pass: a request of a stream */
    bool shrink;   /* pages of the least size, whatever it costs: before the request fails */
    /* ns: how long it may wait; 0: not at all. */
    uint64_t until;
    /* Pages may move when this was reached: at the brink (brink.h); 0: when the device is idle.
     */
    uint64_t target;
    /* Called under the lock with a free block that fits. */
    void (*serve)(void *arg, ac_block_t *block);
    void *arg;
} ac_growth_ask_t;

/* The device would not give this, and native segments serve instead (ac_expand_refused). */
void ac_expand_refuse(ac_allocator_t *allocator, ac_refused_t what);

/* AC_OK: it was served.  AC_OOM; AC_BUSY: something captures; AC_FAILED; AC_UNSUPPORTED: this
 * device knows no pages, or gives no addresses.  *changed: others may find more now. */
ac_status_t ac_expand(const ac_growth_ask_t *ask, bool *changed);

/* Give whole pages of complete holes back, oldest first, until `bytes` are reached; those of one
 * pool or (AC_POOL_ALL) both.  Returns bytes. */
uint64_t ac_expand_trim(ac_arena_t *arena, int pool, uint64_t bytes);

/* The same for all holes that were free for `epochs` whole ones (ac_allocator_decay). */
uint64_t ac_expand_trim_aged(ac_arena_t *arena, uint32_t epochs);

/* Wait until all holes are complete, until `until` (ns) at the most; 0: only look. */
void ac_expand_complete(ac_arena_t *arena, uint64_t until);

#endif
