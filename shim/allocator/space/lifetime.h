/* What others know of a block: a record next to it, from the first question until its free.
 *
 * A *lifetime* is the time from a request to the free of its block.  The first question that makes the block known
 * (its buffer id, an export, SYNC_MEMOPS) gives the lifetime a serial.  No other lifetime of the process has that
 * serial, so two blocks at one address cannot be confused.
 *
 * The program holds a block with such a record (AC_BLOCK_ALLOCATED). The block belongs to no thread's cache
 * (`owner_arena` is 0): its free takes the allocator's lock and ends the record.  A hit never meets one.  Slots of
 * slabs with a record keep their block record, too.
 *
 * The callers hold the allocator's lock.  Code outside the allocator uses ac_block_identify, ac_block_export and
 * ac_block_find (allocator.h). */
#ifndef AC_LIFETIME_H
#define AC_LIFETIME_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

typedef struct ac_block ac_block_t;
typedef struct ac_store ac_store_t;

typedef struct ac_lifetime ac_lifetime_t;
struct ac_lifetime {
    uint64_t serial;   /* from 1 on */
    uint64_t exported; /* the argument of ac_block_export; 0: other processes do not know the block */
    bool sync;         /* the program set SYNC_MEMOPS, and counts with its segment or its pages */
    ac_lifetime_t *next; /* of spare records */
};

/* Called for each lifetime that is exported.  Called again with a `serial` of 0 at its end, before the block can
 * serve another request; `exported` is the argument of ac_block_export.  Runs under the allocator's lock: it may
 * take a lock of AC_RANK_LEAF, and calls no driver.  Set once, before the first export. */
extern AC_HIDDEN void (*ac_lifetime_notify)(uint64_t exported, uint64_t serial);

/* Returns the record of the allocated block's lifetime, and begins one if it has none.  No thread may be about to
 * take the block into its cache (ac_block_identify). NULL: host memory is short. */
ac_lifetime_t *ac_lifetime_begin(ac_block_t *block);

/* The block is being freed, or lost with its context; it counts nowhere (ac_segment_set_sync). */
void ac_lifetime_end(ac_block_t *block);

#endif
