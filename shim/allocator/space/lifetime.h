/* What others were told of a block: a record beside it, from the first question until its free.
 *
 * A *lifetime* is the time from the request that a block serves to its free.  The first question
 * that makes others know the block (its buffer id, an export, SYNC_MEMOPS) gives the lifetime a
 * serial, which no other lifetime of the process ever has: two blocks at one address, one after
 * the other, cannot be taken for each other.
 *
 * A block with such a record is the program's (AC_BLOCK_ALLOCATED) and belongs to no thread's
 * cache (`owner_arena` is 0): its free takes the allocator's lock, where the record ends.  A hit
 * never sees one.  Slots of slabs with a record keep their block record, too.
 *
 * All under the allocator's lock, which the callers hold.  Who is not in the allocator uses
 * ac_block_identify, ac_block_export and ac_block_find (allocator.h). */
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
    uint64_t exported; /* what ac_block_export was given; 0: other processes know nothing of it */
    bool sync;         /* the program set SYNC_MEMOPS, and counts with its segment or its pages */
    ac_lifetime_t *next; /* of spare records */
};

/* Told of each lifetime that is exported, and with a `serial` of 0 of its end, before the block
 * can serve again; `exported` is what ac_block_export was given.  Called with the allocator's
 * lock: it may take a lock of AC_RANK_LEAF, and calls no driver.  Set once, before the first
 * export. */
extern AC_HIDDEN void (*ac_lifetime_notify)(uint64_t exported, uint64_t serial);

/* The record of the allocated block's lifetime, from now on if it has none.  No thread may be about
 * to take the block into its cache (ac_block_identify).  NULL: host memory is short. */
ac_lifetime_t *ac_lifetime_begin(ac_block_t *block);

/* The block is being freed, or lost with its context; it counts nowhere (ac_segment_set_sync). */
void ac_lifetime_end(ac_block_t *block);

#endif
