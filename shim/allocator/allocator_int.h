/* Between the files of the top; see allocator.h for the contract. */
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

/* The device gave memory whose pages are a segment's: that one's context has ended unseen, and
 * threads may keep blocks of it.  It is forgotten, unless it is of another device, whose lock may
 * not be taken beside this one's.  Takes the lock. */
void ac_arena_forget_stale(ac_allocator_t *allocator, uint64_t address, uint64_t size);

/* The segment's context has gone: what waits there is forgotten, and the segment with it. */
void ac_arena_lose(ac_segment_t *segment);

/* Take the segment out of service. */
void ac_arena_taint(ac_segment_t *segment);

/* Records of blocks in slabs that the program holds go, unless a thread cannot be kept out of its
 * cache.  Without the lock. */
void ac_allocator_drop_records(ac_allocator_t *allocator);

/* quarantine.c: what `quarantine` of an arena's timeline points to (fence.h).  Without the lock. */
bool ac_arena_quarantine(ac_timeline_t *timeline, uint64_t until);

/* address.c: lock the allocator of the block that is allocated at exactly `address`; AC_OK,
 * AC_NOT_OURS, AC_BAD_ADDRESS, AC_OOM: it has no record, and host memory is short. */
ac_status_t ac_allocator_lock_block(uint64_t address, ac_block_t **found,
                                    ac_allocator_t **locked);

/* identity.c: the same for a block that is about to be freed.  SYNC_MEMOPS, if it asked for that, is
 * taken back from the driver first, without the lock. */
ac_status_t ac_allocator_lock_to_free(uint64_t address, ac_block_t **found,
                                      ac_allocator_t **locked);

/* address.c: free such a block.  It cannot wait for its fence in a queue: so the caller does, where
 * it must, for AC_PATIENCE_NS at the most.  AC_FAILED: that did not do.  AC_BUSY: it has a record by
 * now, and is freed like any other. */
ac_status_t ac_block_free_without_record(uint64_t address);

#endif
