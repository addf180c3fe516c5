/* Medium blocks: those of the large pool of up to AC_MEDIUM.  One of them keeps a whole page, or a
 * native segment, in its place when the large blocks around it have gone.  So they are kept apart.
 *
 * On pages they get a range of their own, with the pages of small blocks: those of up to
 * AC_MEDIUM_ALWAYS at any time, the others once pages that only they keep have become many.  Not
 * before: pages of two sizes do not always serve one another, which costs programs whose blocks are
 * medium for the most part up to 1 %, as replays show.  Where all pages have one size, all of them at
 * any time.
 *
 * Native memory does not move: what a medium block cut up stays so while it lives.  So they get native
 * segments of their own once large requests were seen to grow for no other reason than medium blocks
 * in free memory, or a medium one met a large free block that was to be spared.  Not before, and not
 * where they are much of what the program holds: what such segments leave free serves no large block.
 * Where these would come to more than a quarter of it they are segments like any other again, until the
 * program has doubled.
 *
 * Big blocks are the other end: a 64th or more of what the program holds at most.  What is smaller,
 * and lives longer, cuts up the segments that they come from.  Once requests for them were seen to
 * grow for that reason by a tenth of what is live, they get native segments of their own, one each,
 * which serve smaller ones only where new memory is not to be had.  Beyond the budget that trades
 * segments for others: where it takes a trade for every 64 requests, again and again, or a smaller one
 * has to grow while much lies idle beside big blocks that live, all segments serve all sizes again
 * until the program has doubled.  Before, where trades are that many and the device has room, an idle one
 * that is not much larger than a smaller request, or than the least big block, serves all sizes rather than
 * go: that saves a trade, but the next big block may have to grow. */
#ifndef AC_MEDIUM_H
#define AC_MEDIUM_H

#include "allocator/space/size.h"
#include "allocator/supply/supply.h"

#define AC_MEDIUM        ((uint64_t)1 << 20)
#define AC_MEDIUM_ALWAYS ((uint64_t)512 << 10)

/* A big block has this share of what the program holds at most. */
enum { AC_BIG_SHARE = 64 };

/* The largest of them, where such memory serves.  Under the lock. */
static inline uint64_t ac_medium_most(const ac_allocator_t *allocator) {
    const ac_settings_t *settings = &allocator->settings;
    bool all = allocator->supply->medium.apart || settings->page <= settings->small_page;
    return all ? AC_MEDIUM : AC_MEDIUM_ALWAYS;
}

/* Whether a request of the large pool is one for such memory: where pages are set and the device gives
 * none, native segments of the large pool serve instead.  Under the lock. */
static inline bool ac_medium_serves(const ac_allocator_t *allocator, uint64_t size) {
    const ac_settings_t *settings = &allocator->settings;
    const ac_expand_t *expand = &allocator->supply->expand;
    if (!settings->expandable_segments)
        return size <= AC_MEDIUM && allocator->supply->medium.apart;
    return size <= ac_medium_most(allocator) && expand->able != AC_EXPAND_UNABLE &&
           expand->refused == AC_REFUSED_NOTHING;
}

/* Whether a request is one for the segments of big blocks.  Under the lock. */
static inline bool ac_big_serves(const ac_allocator_t *allocator, int pool, uint64_t size) {
    return allocator->supply->big.apart && pool == AC_POOL_LARGE && size >= AC_LARGE &&
           size >= allocator->high_water / AC_BIG_SHARE &&
           !allocator->settings.expandable_segments;
}

/* The arena is about to have so many bytes `reserved`, for `live` ones at most: look whether medium
 * blocks are the reason, if that was not done lately.  Under the lock. */
void ac_medium_look(ac_arena_t *arena, uint64_t reserved, uint64_t live);

/* The arena is about to grow by a native segment for a request of `size` bytes, with `live` ones at
 * most: look whether it would not have to, were it not for medium blocks, or for those that are not
 * big, if that was not done lately.  Under the lock. */
void ac_medium_look_native(ac_arena_t *arena, uint64_t size, uint64_t live);

/* The allocator is about to grow: segments that are too small for big blocks by now serve all.
 * Under the lock. */
void ac_big_sort(ac_allocator_t *allocator);

/* The allocator is about to grow beyond the budget: other segments go for that, now or later.
 * Or an idle one serves others in their place.  Under the lock. */
void ac_big_note_trade(ac_allocator_t *allocator);

/* The arena is about to grow beyond the budget, with `live` bytes at most, for a large request of `size`
 * bytes that is not big: an idle segment of big blocks serves all sizes from now on rather than that it goes
 * for a new one.  The smallest that fits, of no more than twice the request or the least big block: the
 * larger ones are hard to come by.  Where trades are many, and half as much as is live is left to be had.
 * False: there is none.  Under the lock. */
bool ac_big_yield(ac_arena_t *arena, uint64_t size, uint64_t live);

/* The allocator is about to grow beyond the budget, with `live` bytes at most, for a large request that
 * is not big.  Where more than a sixth of that lies idle beside big blocks, their segments serve all
 * sizes from now on.  False: so it is, and there may be more to be found.  Under the lock. */
bool ac_big_stays_apart(ac_allocator_t *allocator, uint64_t live);

/* Whether requests of `size` bytes have native segments for medium blocks, or do once one of them spares a
 * large block.  Under the lock. */
bool ac_medium_may_spare(const ac_allocator_t *allocator, uint64_t size);

/* A request of `size` bytes would have to break up a large native block that is to be spared.  Under
 * the lock. */
void ac_medium_note_spared(ac_allocator_t *allocator, uint64_t size);

/* The allocator is about to grow by a native segment of `size` bytes for such blocks, with `live` ones at
 * most.  Where these would then have much of the memory they are no longer kept apart: their segments
 * serve large blocks as well.  False: so it is.  Under the lock. */
bool ac_medium_stays_apart(ac_allocator_t *allocator, uint64_t size, uint64_t live);

/* Bytes of a native segment for such blocks: the least where memory is to be saved, or hardly any is left.
 * Under the lock. */
uint64_t ac_medium_segment(const ac_allocator_t *allocator);

#endif
