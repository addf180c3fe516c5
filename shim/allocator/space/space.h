/* Blocks and segments: what space/ knows of an arena (ac_space_t) and of an allocator (ac_store_t), and its
 * functions.  It knows no time, no threads and no device.  Numbers that stand for a moment (`quiet`, a block's
 * clock) come from the caller and are only compared.  The callers hold the allocator's lock. */
#ifndef AC_SPACE_H
#define AC_SPACE_H

#include "allocator/settings.h"
#include "allocator/space/free_index.h"
#include "observe/stats.h"

enum { AC_SLAB_CLASSES = 8 };
typedef struct ac_slab ac_slab_t;

/* Slabs of an arena that have free slots (slab.h). */
typedef struct {
    ac_slab_t *partial[AC_SLAB_CLASSES];
} ac_slabs_t;

/* Host memory of an allocator's slabs, and the records of slots, by bin_next. */
typedef struct {
    ac_slab_t *spare[AC_SLAB_CLASSES];
    ac_block_t *records;
    uint32_t count, left; /* of those; after the last look for some that can go */
} ac_slots_t;

/* Memory pools (mempool.h).  Numbers are 1 to AC_MEMPOOLS - 1; 0 is a request that names no stream. */
enum { AC_MEMPOOLS = 256, AC_MEMPOOL_FIRST = 1 };

/* The free indices of an arena: one for each pool; of ranges for medium blocks, which count for the large pool
 * (supply/medium.h); of ranges that serve only requests that would fail (ac_expand_leave); of native segments for
 * big blocks (supply/medium.h). */
enum { AC_INDEX_MEDIUM = AC_POOL_ALL, AC_INDEX_LEFT = AC_POOL_KINDS, AC_INDEX_BIG, AC_INDICES };

/* Index of segments with free memory in no index (guard_place.h). */
enum { AC_INDEX_GUARD = AC_INDICES };

/* The two high-water marks of a pool. */
typedef enum { AC_MARK_RESERVED, AC_MARK_USED, AC_MARKS } ac_mark_t;

/* Bytes. */
typedef struct {
    uint64_t now[AC_MARKS], most[AC_MARKS]; /* `most`: since the mark was reset */
    uint64_t threshold;                     /* kept in reserve across synchronisations */
    uint64_t limit;                         /* of `used`; 0: none */
    uint64_t claimed;                       /* by requests under way, if there is a limit */
    uint64_t syncs;                         /* synchronisations that `now` takes in */
    bool tallied; /* threads take and give of it without the lock, which comes in later (cache/lane.h) */
} ac_mempool_t;

/* The top names these fields as its own (ac_allocator, ac_arena). */
#define AC_STORE_FIELDS                                                                          \
    ac_settings_t settings;                                                                      \
    ac_device_stats_t *stats;                                                                    \
    int64_t peak_bound;                 /* of bytes allocated, until peaks are due */            \
    bool peaks_due;                     /* cache/cache_tally.c */                                \
    uint32_t epoch;                     /* of ac_allocator_decay */                              \
    uint64_t high_water;                /* most bytes allocated at a time */                     \
    ac_mempool_t mempools[AC_MEMPOOLS]; /* by number */                                          \
    ac_block_t *spare_blocks;           /* by next */                                            \
    ac_block_t *fresh_blocks;           /* [fresh_left]: never used yet */                       \
    unsigned fresh_left, next_chunk;                                                             \
    ac_segment_t *spare_segments;                                                                \
    ac_lifetime_t *spare_lifetimes;                                                              \
    ac_slots_t slots;                                                                            \
    struct ac_history *history; /* where events are noted (observe/history.h); NULL: nowhere */

#define AC_SPACE_FIELDS                                                                          \
    uint16_t number; /* no other arena of the process has it; 0: they ran out */                 \
    ac_segment_t *segments;                                                                      \
    ac_segment_queue_t idle; /* segments with busy == 0, longest idle first */                   \
    unsigned tainted_idle;   /* of them: tainted, to be given back */                            \
    ac_free_index_t index[AC_INDICES];                                                           \
    ac_free_index_t **waiting; /* by stream: AC_INDICES of blocks that wait in its order */     \
    uint64_t added; /* how often memory joined the free blocks of `index` */                     \
    ac_slabs_t slabs;                                                                            \
    ac_block_queue_t holes;       /* free blocks of ranges with whole pages, newest first */     \
    uint32_t hole_age;            /* of the newest, without its epoch */                         \
    struct ac_range *guarded;     /* the range of guarded blocks, or NULL (guard_place.h) */      \
    struct ac_range *lost_ranges; /* the context has gone; their pages have not yet */

/* The part of an allocator that its arenas share. */
struct ac_store {
    AC_STORE_FIELDS
};

/* The blocks of an arena, or of a private pool for one stream.  `arena` and `store` never change. */
struct ac_space {
    ac_store_t *store;
    ac_arena_t *arena; /* for the page map; NULL: its blocks are not there */
    AC_SPACE_FIELDS
};

/* Sets the index of the segment's free blocks. */
static inline void ac_segment_set_index(ac_segment_t *segment, unsigned index) {
    segment->index = (uint8_t)index;
    segment->frees = &segment->space->index[index];
}

/* Returns the pool for which caches of threads keep blocks of a size: a constant for speed, whatever `small_limit`
 * is.  Caches do not keep blocks of another pool. */
static inline int ac_pool_kept(uint64_t size) {
    return size > AC_SMALL_LIMIT ? AC_POOL_LARGE : AC_POOL_SMALL;
}

/* Returns true if caches may keep the block: it is of the pool of its size, and its segment serves requests. */
static inline bool ac_block_is_plain(const ac_block_t *block) {
    const ac_segment_t *segment = block->segment;
    return !segment->tainted && block->size < segment->space->store->settings.max_split_size &&
           segment->pool == ac_pool_kept(block->size);
}

#endif
