/* The place in a range for a request that no free memory fits.  Under the allocator's lock. */
#ifndef AC_PLACE_H
#define AC_PLACE_H

#include "allocator/space/range.h"

/* A place for a request, and the memory that it lacks there. */
typedef struct {
    ac_block_t *block; /* the first that it takes a part of */
    uint64_t address;  /* of the request's memory */
    uint64_t from, to; /* addresses to claim: whole pages if none are mapped */
    uint64_t missing;  /* bytes of pages that are not mapped */
    uint64_t run;      /* bytes of free or unmapped addresses that it lies in */
} ac_place_t;

/* Over all maximal runs of free or unmapped addresses: the place for `size` bytes that lacks the
 * fewest pages of `page` bytes; among equals that of the smallest run.  Free memory that fits is
 * no place: it needs none.  False: no run is long enough. */
bool ac_place_find(const ac_range_t *range, uint64_t size, uint64_t page, ac_place_t *place);

#endif
