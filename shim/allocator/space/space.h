/* What the files of space/ know of an arena (ac_space_t) and of an allocator (ac_store_t), and what
 * they offer: where bytes are.  No time, no threads, no device: a number that stands for a moment
 * (`quiet`, a block's clock) comes from the caller and is only compared.
 *
 * All under the allocator's lock, which the callers hold. */
#ifndef AC_SPACE_H
#define AC_SPACE_H

#include "allocator/settings.h"
#include "allocator/space/range.h"
#include "allocator/space/slab.h"
#include "observe/stats.h"

/* The top names these fields as its own (ac_allocator, ac_arena). */
#define AC_STORE_FIELDS                                                                          \
    ac_settings_t settings;                                                                      \
    ac_device_stats_t *stats;                                                                    \
    uint32_t epoch;           /* of ac_allocator_decay */                                        \
    uint64_t high_water;      /* most bytes allocated at a time */                               \
    uint64_t async_bytes;     /* held by requests that named a stream */                         \
    ac_block_t *spare_blocks; /* by list_next */                                                 \
    ac_block_t *fresh_blocks; /* [fresh_left]: never used yet */                                 \
    unsigned fresh_left, next_chunk;                                                             \
    ac_segment_t *spare_segments;                                                                \
    ac_lifetime_t *spare_lifetimes;                                                              \
    ac_slots_t slots;

#define AC_SPACE_FIELDS                                                                          \
    uint16_t number; /* no other arena of the process has it; 0: they ran out */                 \
    ac_segment_t *segments;                                                                      \
    ac_segment_queue_t idle;              /* segments with busy == 0, longest idle first */      \
    unsigned tainted_idle;                /* of them: tainted, to be given back */               \
    ac_free_index_t index[AC_POOL_KINDS]; /* by pool; [AC_POOL_ALL] is unused */                 \
    uint64_t added; /* how often memory joined the free blocks of `index` */                     \
    ac_slabs_t slabs;                                                                            \
    ac_block_queue_t holes;  /* free blocks of ranges with whole pages, newest first */          \
    uint32_t hole_age;       /* of the newest, without its epoch */                              \
    ac_range_t *lost_ranges; /* the context has gone; their pages have not yet */

/* Of an allocator: what its arenas share. */
struct ac_store {
    AC_STORE_FIELDS
};

/* Of an arena.  `arena` and `store` never change. */
struct ac_space {
    ac_store_t *store;
    ac_arena_t *arena; /* for the page map */
    AC_SPACE_FIELDS
};

/* records.c: host memory for records, under the lock; NULL when short. */
ac_block_t *ac_record_block(ac_store_t *store);
/* A record, of no content yet, that the page map names as what starts `size` bytes into `block`.
 */
ac_block_t *ac_record_piece(const ac_block_t *block, uint64_t size);
void ac_record_block_return(ac_store_t *store, ac_block_t *block);
ac_segment_t *ac_record_segment(ac_store_t *store);
void ac_record_segment_return(ac_store_t *store, ac_segment_t *segment);
void *ac_record_memory(size_t bytes);                     /* zeroed, whole pages */
void ac_record_memory_return(void *memory, size_t bytes); /* only what was never published */

/* segment.c: all under the lock. */

/* Take over [address, address + size), no page of which is a segment's, as a segment of one free
 * block.  NULL when host memory is short: the caller gives the range back. */
ac_segment_t *ac_segment_add(ac_space_t *space, int pool, uint64_t address, uint64_t size);

/* A segment of one block, in transit, that nothing knows of so far.  NULL: host memory is short.
 * _end: it never came to be. */
ac_segment_t *ac_segment_begin(ac_space_t *space, int pool, uint64_t address, uint64_t size);
void ac_segment_end(ac_segment_t *segment);

/* Call `visit` for each block of the segment that has memory: of a slab for its slots, and what is
 * left behind them (ac_slab_each). */
void ac_segment_each(const ac_segment_t *segment, ac_slab_visit_fn *visit, void *arg);

/* Forget an idle segment, or with `lost` any, whose freed blocks wait nowhere any more
 * (ac_arena_lose); statistics follow.  The device is not asked. */
void ac_segment_remove(ac_segment_t *segment, bool lost);

/* Hand out the first `size` bytes of the free block `block`; the rest becomes a free block
 * (always split but at the max_split_size limit; whole where a record cannot be had). */
void ac_segment_take(ac_block_t *block, uint64_t size, uint64_t requested);

/* The program gave the block up: it is in transit from now on (statistics: allocated falls). */
void ac_segment_release(ac_block_t *block);

/* The block, in transit, whose ticket says what it waited for, is out of reach of the device:
 * coalesce it into the free memory. */
void ac_segment_finish(ac_block_t *block);

/* The free block, of a segment in service, is in transit and active again: it is to be waited for
 * together with its neighbours. */
void ac_segment_withdraw(ac_block_t *block);

/* `block` swallows its right neighbour, which is in no index and no list any more. */
void ac_segment_absorb_next(ac_block_t *block);

/* Its two halves: statistics (active falls), and the free memory.  A stream's order may protect the
 * block: the device is done with it when `quiet` was reached (ac_fence_quiet). */
void ac_segment_count_finished(const ac_block_t *block);
void ac_segment_coalesce(ac_block_t *block, uint64_t quiet);

/* The latter for what was free memory before: a slab without blocks, or what none was made of. */
void ac_segment_put_back(ac_block_t *block);

/* Take a free block out of the index, put it back. */
void ac_segment_unlist(ac_block_t *block);
void ac_segment_enlist(ac_block_t *block);

/* The pool that threads' caches keep blocks of a size for: a constant on their way, whatever the
 * small limit is.  What another pool serves they leave alone. */
static inline int ac_pool_kept(uint64_t size) {
    return size > AC_SMALL_LIMIT ? AC_POOL_LARGE : AC_POOL_SMALL;
}

/* Whether caches may have the block: it counts for the pool of its size, whose segment serves. */
static inline bool ac_block_is_plain(const ac_block_t *block) {
    const ac_segment_t *segment = block->segment;
    return !segment->tainted && block->size < segment->space->store->settings.max_split_size &&
           segment->pool == ac_pool_kept(block->size);
}

/* Cut `size` bytes out of the free block, which is in transit then: statistics do not count it. */
void ac_segment_carve(ac_block_t *block, uint64_t size);

/* The same out of the pool's free memory, in a slab where that serves: of a plain request.  It is
 * larger where host memory is short; NULL: there is none. */
ac_block_t *ac_segment_cut(ac_space_t *space, int pool, uint64_t size);

/* Hand out a block in transit as it is. */
void ac_segment_reuse(ac_block_t *block, uint64_t requested);

/* size.c: the size that a request is served with; what may serve it. */
uint64_t ac_size_round(const uint32_t divisions[AC_DIVISION_SLOTS], uint64_t bytes);
ac_fit_t ac_size_fit(const ac_settings_t *settings, uint64_t size);
/* The same where else it would fail. */
ac_fit_t ac_size_fit_last(const ac_settings_t *settings, uint64_t size);

/* Bytes of a native segment for a request of `size` bytes (rounded, not of the small pool) while
 * `reserved` are held: a whole number of such requests, so that equal ones leave nothing over but
 * what the segment is rounded up by. */
typedef enum {
    AC_SNUG_LARGE, /* so many that few segments serve the program */
    AC_SNUG_FEW,   /* beyond the budget: the fewest that leave next to nothing over */
    AC_SNUG_EXACT  /* one */
} ac_snug_t;
uint64_t ac_size_segment(const ac_settings_t *settings, uint64_t size, uint64_t reserved,
                         ac_snug_t snug);

/* Take a segment out of service, none of whose blocks waits in the order of a stream
 * (ac_arena_taint). */
void ac_segment_taint(ac_segment_t *segment);

#endif
