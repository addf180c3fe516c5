/* Medium blocks (64 KiB to AC_MEDIUM) and big blocks (from 1/64 of the high-water mark) have memory of their own.
 * A small block that lives long keeps the memory around it from large requests.
 *
 * Pages: blocks of up to AC_MEDIUM_PAGES have a range of their own, with the pages of small blocks.  Larger medium
 * blocks join them after medium blocks kept many pages from large ones.
 *
 * Native segments: medium blocks get segments of their own once one would be cut out of a large segment.  So they
 * do after large requests grew that would have fitted without medium blocks.  This does not end.
 *
 * Big blocks get a native segment each, after their requests grew by a tenth of the high-water mark although they
 * would have fitted without smaller blocks.  These segments serve smaller requests only before one fails.  Beyond
 * the budget, they go back to the driver for others.  All segments serve all sizes again if that happens too often,
 * or if much lies idle next to big blocks when a smaller request grows.  This ends when the program has doubled.
 *
 * All functions need the lock. */
#ifndef AC_MEDIUM_H
#define AC_MEDIUM_H

#include "allocator/space/size.h"
#include "allocator/supply/supply.h"

/* Returns the size of the largest medium block.  If all pages have one size, all medium blocks have pages of their
 * own. */
static inline uint64_t ac_medium_most(const ac_allocator_t *allocator) {
    const ac_settings_t *settings = &allocator->settings;
    bool all = !settings->expandable_segments || allocator->supply->medium.apart ||
               settings->page <= settings->small_page;
    return all ? AC_MEDIUM : AC_MEDIUM_PAGES;
}

/* Returns true if a request of the large pool is served from memory for medium blocks.  If the device refuses
 * pages, native segments of the large pool serve instead. */
static inline bool ac_medium_serves(const ac_allocator_t *allocator, uint64_t size) {
    const ac_expand_t *expand = &allocator->supply->expand;
    if (!allocator->settings.expandable_segments)
        return size <= AC_MEDIUM && allocator->supply->medium.apart;
    return size <= ac_medium_most(allocator) && expand->able != AC_EXPAND_UNABLE &&
           expand->refused == AC_REFUSED_NOTHING;
}

/* Returns true if medium blocks should have native segments of their own from now on: a request of `size` bytes
 * would be cut out of a large segment. */
static inline bool ac_medium_comes_apart(const ac_allocator_t *allocator, uint64_t size,
                                         const ac_segment_t *segment) {
    const ac_settings_t *settings = &allocator->settings;
    return size <= AC_MEDIUM && ac_policy_whole(segment->size, allocator->high_water) && !segment->range &&
           !allocator->supply->medium.apart && !settings->expandable_segments &&
           ac_policy_parts(settings, allocator->high_water);
}

/* Returns true if a request is served from segments of big blocks. */
static inline bool ac_big_serves(const ac_allocator_t *allocator, int pool, uint64_t size) {
    return allocator->supply->big.apart && pool == AC_POOL_LARGE && size >= ac_policy_big(allocator->high_water) &&
           !allocator->settings.expandable_segments;
}

/* Called before pages are created, so that `reserved` bytes are held for `live` ones.  Looks whether medium blocks
 * are the reason, unless it did so recently. */
void ac_medium_look(ac_arena_t *arena, uint64_t reserved, uint64_t live);

/* Called before a native segment is added for a request of `size` bytes, while `live` bytes are held at most.
 * Looks whether smaller blocks are the reason, unless it did so recently. */
void ac_medium_look_native(ac_arena_t *arena, uint64_t size, uint64_t live);

/* Called before growth.  Segments that have become too small for big blocks serve all sizes from now on. */
void ac_big_sort(ac_allocator_t *allocator);

/* Counts a growth beyond the budget: other segments go back for it, now or later. */
void ac_big_note_trade(ac_allocator_t *allocator);

/* Called before a large request that is not big grows beyond the budget.  Returns false if more than a sixth of the
 * `live` bytes lies idle next to big blocks.  Their segments then serve all sizes, and the caller searches again. */
bool ac_big_stays_apart(ac_allocator_t *allocator, uint64_t live);

#endif
