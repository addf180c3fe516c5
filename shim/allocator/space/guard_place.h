/* The places of guarded blocks.  Each block has pages of its own and ends at their end.  The addresses on both
 * sides have no memory, so an access past the end of the pages faults.  Addresses are multiples of AC_GRANULE, so
 * up to AC_GRANULE - 1 bytes lie between the end of the request and the end of the pages.
 *
 * All of them lie in one range of the arena, whose segment is tainted from the beginning: its free memory serves no
 * request, and no thread keeps a block of it.  A freed block gives its pages back after the device is done with it
 * (supply/guard.h). Its addresses stay without memory, because the next block gets addresses behind it.  Addresses
 * serve again AC_GUARD_KEEP_S after the free, or after the range was used up.
 *
 * The allocator's lock guards all of this.  The records of a place belong to the thread that moves its pages, like
 * its units (range.h). */
#ifndef AC_GUARD_PLACE_H
#define AC_GUARD_PLACE_H

#include "allocator/policy.h"
#include "allocator/space/place.h"

/* The range of guarded blocks in a segment of its own; NULL: host memory is short. */
ac_range_t *ac_guard_add(ac_space_t *space, uint64_t address, uint64_t size);

static inline bool ac_segment_is_guarded(const ac_segment_t *segment) {
    return segment->range && segment->range->guard;
}

/* A place for a block of `size` bytes on pages that are multiples of `page`, at the time `now`.
 * False: there is none. */
bool ac_guard_place(const ac_range_t *range, uint64_t size, uint64_t page, uint64_t now,
                    ac_place_t *place);

/* The free block has pages of its own: `size` bytes at its end are in transit, and the rest is
 * free. */
ac_block_t *ac_guard_carve(ac_block_t *block, uint64_t size);

/* The record of a block in a guarded segment, which is not free. */
ac_guarded_t *ac_guard_record(const ac_block_t *block);

/* The program frees the block, or gets it, which its record says by now. */
void ac_guard_count(const ac_block_t *block, bool freed);

#endif
