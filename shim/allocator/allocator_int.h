/* Between the files of the allocator; see allocator.h for the contract. */
#ifndef AC_ALLOCATOR_INT_H
#define AC_ALLOCATOR_INT_H

#include <pthread.h>

#include "allocator/allocator.h"

typedef struct {
    ac_block_t *head, *tail;
    uint64_t bytes;
} ac_pending_t; /* first in, first out; targets never fall along the queue */

enum { AC_HELD_LISTS = 32 };

struct ac_arena {
    ac_allocator_t *allocator;
    const ac_device_ops_t *ops;
    void *context;
    ac_fence_line_t line;
    ac_arena_t *next; /* the allocator's list; records stay for ever */
    bool dead;
    ac_segment_t *segments;
    ac_segment_t *idle_head, *idle_tail;  /* segments with busy == 0, longest idle first */
    unsigned tainted_idle;                /* of them: tainted, to be given back */
    ac_free_index_t index[AC_POOL_KINDS]; /* by pool; [AC_POOL_ALL] is unused */
    ac_pending_t pending[2];              /* [1]: waits for all contexts */
    ac_block_t *held[AC_HELD_LISTS];      /* by episode (held.h) */
    ac_block_t *recent[AC_POOL_KINDS][AC_RECENT]; /* by pool, as the index; NULL: empty */
    unsigned recent_turn[AC_POOL_KINDS];          /* the entry to be replaced next */
};

struct ac_allocator {
    pthread_mutex_t lock;
    ac_settings_t settings;
    ac_device_stats_t *stats;
    ac_device_counters_t *counters;
    _Atomic(ac_arena_t *) arenas;
    uint64_t high_water;    /* most bytes allocated at a time */
    uint64_t growing;       /* bytes that the device is being asked for */
    unsigned calls;         /* device calls under way that add or give back segments */
    uint64_t changes;       /* such calls that changed what a request may find */
    pthread_cond_t settled; /* a call ended */
    ac_block_t *spare_blocks;
    ac_segment_t *spare_segments;
};

/* records.c: host memory for records, under the lock; NULL when short. */
ac_block_t *ac_record_block(ac_allocator_t *allocator);
void ac_record_block_return(ac_allocator_t *allocator, ac_block_t *block);
ac_segment_t *ac_record_segment(ac_allocator_t *allocator);
void ac_record_segment_return(ac_allocator_t *allocator, ac_segment_t *segment);
void *ac_record_memory(size_t bytes);                     /* zeroed, whole pages */
void ac_record_memory_return(void *memory, size_t bytes); /* only what nobody has seen yet */

/* segment.c: all under the lock. */

/* Take over [address, address + size) as a segment of one free block.  NULL when host memory is
 * short: the caller gives the range back. */
ac_segment_t *ac_segment_add(ac_arena_t *arena, int pool, uint64_t address, uint64_t size);

/* Forget an idle segment, or with `lost` any; statistics follow.  The device is not asked. */
void ac_segment_remove(ac_segment_t *segment, bool lost);

/* Hand out the first `size` bytes of the free block `block`; the rest becomes a free block
 * (always split but at the max_split_size limit; whole where a record cannot be had). */
void ac_segment_take(ac_block_t *block, uint64_t size, uint64_t requested);

/* The program gave the block up: it is pending from now on (statistics: allocated falls). */
void ac_segment_release(ac_block_t *block);

/* The pending block is out of reach of the device: coalesce it into the free memory. */
void ac_segment_finish(ac_block_t *block);

/* Its two halves: statistics (active falls), and the free memory.  Between them the block is
 * recent. */
void ac_segment_count_finished(const ac_block_t *block);
void ac_segment_coalesce(ac_block_t *block);

/* Hand out a recent block as it is. */
void ac_segment_reuse(ac_block_t *block, uint64_t requested);

/* recent.c: blocks that were just freed and are ready, kept whole for a request of their very
 * size: the common pattern of a program's steady state costs no split and no search.  They count
 * as free memory wherever it matters: a request that finds nothing, and every trim, coalesces
 * them first.  inactive_split leaves them out.  All under the lock. */

/* Keep the block, which was released (ac_segment_release).  False: not kept, finish it. */
bool ac_recent_keep(ac_block_t *block);

/* A kept block of exactly `size` bytes, NULL if there is none; hand it out. */
ac_block_t *ac_recent_take(ac_arena_t *arena, int pool, uint64_t size);

/* Coalesce all kept blocks. True if there were any. */
bool ac_recent_flush(ac_arena_t *arena);

/* Forget those of a lost segment; NULL: all. */
void ac_recent_forget(ac_arena_t *arena, const ac_segment_t *segment);

/* held.c, under the lock: a block that was released (ac_segment_release) and that a capture under
 * way may have recorded a use of is kept for it.  False: none may, free it. */
bool ac_held_keep(ac_block_t *block);

/* Take a held block out of its list: its context has gone. */
void ac_held_forget(ac_block_t *block);

/* Take a segment out of service. */
void ac_segment_taint(ac_segment_t *segment);

/* allocator.c, under the lock: one of `calls` ended; `changed` if others may find more now. */
void ac_allocator_settle(ac_allocator_t *allocator, bool changed);

#endif
