/* Segments and their blocks: split, coalesce, and the statistics of both.  All under the
 * allocator's lock; no device call. */
#ifndef AC_SEGMENT_H
#define AC_SEGMENT_H

#include "allocator/space/space.h"

/* Take over [address, address + size) as a segment of one free block.  NULL when host memory is
 * short, or a page is a segment's (ac_page_map_is_owned): the caller gives the range back. */
ac_segment_t *ac_segment_add(ac_space_t *space, int pool, uint64_t address, uint64_t size);

/* A segment of one block, in transit, that nothing knows of so far.  NULL: host memory is short.
 * _end: it never came to be. */
ac_segment_t *ac_segment_begin(ac_space_t *space, int pool, uint64_t address, uint64_t size);
void ac_segment_end(ac_segment_t *segment);

/* Call `visit` for each block of the segment that has memory: of a slab for its slots, and what is
 * left behind them (ac_slab_each). */
void ac_segment_each(const ac_segment_t *segment, ac_block_visit_fn *visit, void *arg);

/* Forgets an idle segment; with `lost` any segment without pending frees (ac_arena_lose). Statistics follow.  The
 * device is not called. */
void ac_segment_remove(ac_segment_t *segment, bool lost);

/* The program gave the block up: it is in transit from now on (statistics: allocated falls). */
void ac_segment_release(ac_block_t *block);

/* Coalesces a block, in transit, into the free memory: the device is done with it, as its ticket says. */
void ac_segment_finish(ac_block_t *block);

/* Takes a free block of a segment in service back into transit, active again.  It will wait together with its
 * neighbours. */
void ac_segment_withdraw(ac_block_t *block);

/* A piece was cut off an active block and stays active: one active block more. */
void ac_segment_count_cut(const ac_segment_t *segment);

/* `block` swallows its right neighbour, which is in no index and no list any more. */
void ac_segment_absorb_next(ac_block_t *block);

/* The two halves of ac_segment_finish: statistics (active falls), and the free memory.  If a stream's order
 * protects the block, the device is done with it only after `quiet` (ac_fence_quiet). */
void ac_segment_count_finished(const ac_block_t *block);
void ac_segment_coalesce(ac_block_t *block, uint64_t quiet);

/* Coalesces what was free memory before: a slab without blocks, or memory that became none. */
void ac_segment_put_back(ac_block_t *block);

/* Take a free block out of the index, put it back. */
void ac_segment_unlist(ac_block_t *block);
void ac_segment_enlist(ac_block_t *block);

/* Moves the segment's blocks that are free, or wait in the order of a stream, to another index. */
void ac_segment_relist(ac_segment_t *segment, unsigned index);

/* Splits `size` bytes off the free block.  They are in transit, and statistics do not count them.  The rest becomes
 * a free block, except at the max_split_size limit, or if no record is available. */
void ac_segment_carve(ac_block_t *block, uint64_t size);

/* Splits a block off the pool's free memory for a plain request, in a slab if one serves.  The block is larger if
 * host memory is short.  NULL: there is none. */
ac_block_t *ac_segment_cut(ac_space_t *space, int pool, uint64_t size);

/* Lets the rests of sealed segments serve requests, before one fails. */
void ac_segments_unseal(ac_space_t *space);

/* Hand out a block in transit as it is, to the module of that number (stats.h). */
void ac_segment_reuse(ac_block_t *block, unsigned module, uint64_t requested);

/* The allocated block was handed to another module than it seemed. */
void ac_segment_attribute(ac_block_t *block, unsigned module);

/* Takes a segment out of service; none of its blocks waits in the order of a stream (ac_arena_taint). Meanwhile a
 * hit of another thread may take a block of its cache.  The caller then calls ac_segments_disown for all these
 * segments, while all owners are kept out and caches are empty. */
void ac_segment_taint(ac_segment_t *segment);
void ac_segments_disown(ac_space_t *space);

/* SYNC_MEMOPS is an attribute of what the driver knows as an allocation: a segment, or each page.
 * The block, which has a record, asks for it, or does no more; the driver is the caller's to
 * tell. */
void ac_segment_set_sync(ac_block_t *block, bool on);

/* Returns how many blocks ask for SYNC_MEMOPS in the driver's allocation around `address`, which lies in the block;
 * *end: its end. */
uint32_t ac_segment_synced(const ac_block_t *block, uint64_t address, uint64_t *end);

#endif
