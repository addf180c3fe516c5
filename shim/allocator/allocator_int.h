/* Shared by the files directly in allocator/; see allocator.h for the contract. */
#ifndef AC_ALLOCATOR_INT_H
#define AC_ALLOCATOR_INT_H

#include "allocator/allocator.h"
#include "allocator/policy.h"
#include "allocator/cache/caches.h"
#include "allocator/core_int.h"
#include "allocator/retired/ordered.h"
#include "allocator/retired/retired.h"
#include "allocator/retired/streams.h"
#include "allocator/space/range.h"
#include "allocator/space/segment.h"
#include "allocator/space/size.h"
#include "allocator/space/slab.h"

/* --- lost.c --- */

/* Forgets a segment that has pages which the device gave out again: its context has ended unseen, and
 * threads may keep blocks of it.  Does nothing for a segment of another device, because two allocators'
 * locks are never held together.  Takes the lock. */
void ac_arena_forget_stale(ac_allocator_t *allocator, uint64_t address, uint64_t size);

/* Forgets the segment, and all that waits in it, after its context has gone. */
void ac_arena_lose(ac_segment_t *segment);

/* Takes the segment out of service. */
void ac_arena_taint(ac_segment_t *segment);

/* Drops records of blocks in slabs that the program holds, unless a thread cannot be kept out of its
 * cache.  Called without the lock. */
void ac_allocator_drop_records(ac_allocator_t *allocator);

/* The function that `quarantine` of an arena's timeline points to (quarantine.c, fence.h).  Called
 * without the lock. */
bool ac_arena_quarantine(ac_timeline_t *timeline, uint64_t until);

/* Locks the allocator of the block that is allocated at exactly `address` (address.c).  AC_OK,
 * AC_NOT_OURS, AC_BAD_ADDRESS; AC_OOM: the block has no record, and host memory is short. */
ac_status_t ac_allocator_lock_block(uint64_t address, ac_block_t **found,
                                    ac_allocator_t **locked);

/* Locks like ac_allocator_lock_block, for a block that is about to be freed (identity.c).  If the block
 * asked for SYNC_MEMOPS, first takes that back from the driver, without the lock. */
ac_status_t ac_allocator_lock_to_free(uint64_t address, ac_block_t **found,
                                      ac_allocator_t **locked);

/* Frees a block without a record (address.c).  It cannot wait for its fence in a queue, so the caller
 * waits, for AC_PATIENCE_NS at most.  Returns AC_FAILED if that was not enough, AC_BUSY if the block has
 * a record by now and is freed like any other. */
ac_status_t ac_block_free_without_record(uint64_t address);

#endif
