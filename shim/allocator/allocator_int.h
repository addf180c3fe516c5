/* Between the files of the allocator; see allocator.h for the contract. */
#ifndef AC_ALLOCATOR_INT_H
#define AC_ALLOCATOR_INT_H

#include <pthread.h>

#include "allocator/range.h"
#include "allocator/streams.h"

typedef struct {
    ac_block_t *head, *tail;
    uint64_t bytes;
} ac_pending_t; /* first in, first out; targets never fall along the queue */

typedef struct ac_ordered ac_ordered_t; /* ordered.c */
enum { AC_HELD_LISTS = 32 };

/* Of an allocator whose arenas grow by pages (expand.h). */
typedef struct {
    enum { AC_EXPAND_UNKNOWN, AC_EXPAND_ABLE, AC_EXPAND_UNABLE } able; /* what the device is */
    ac_range_support_t support;
    uint64_t remap_ns; /* that moving pages is taken to have cost so far */
    uint64_t ceiling;  /* reserved bytes at which the device had no more; 0: not known */
} ac_expand_t;

struct ac_arena {
    ac_allocator_t *allocator;
    const ac_device_ops_t *ops;
    void *context;
    ac_fence_line_t line;
    ac_arena_t *next; /* the allocator's list; records stay for ever */
    bool dead;
    _Atomic int unordered;         /* its streams' order protects nothing; 2: nor did it ever */
    _Atomic uint64_t submitted[2]; /* [1]: to the legacy stream (ac_arena_submitted) */
    ac_ordered_t *ordered;         /* blocks freed in stream order; NULL: never any */
    ac_segment_t *segments;
    ac_segment_t *idle_head, *idle_tail;  /* segments with busy == 0, longest idle first */
    unsigned tainted_idle;                /* of them: tainted, to be given back */
    ac_free_index_t index[AC_POOL_KINDS]; /* by pool; [AC_POOL_ALL] is unused */
    ac_pending_t pending[2];              /* [1]: waits for all contexts */
    uint64_t overdue;                     /* a target up to which waiting took too long */
    ac_block_t *held[AC_HELD_LISTS];      /* by episode (held.h) */
    ac_block_t *recent[AC_POOL_KINDS][AC_RECENT]; /* by pool, as the index; NULL: empty */
    unsigned recent_turn[AC_POOL_KINDS];          /* the entry to be replaced next */
    ac_block_t *holes;       /* of its ranges: free blocks with whole pages, by age_next */
    uint64_t hole_age;       /* of the newest */
    ac_range_t *lost_ranges; /* the context has gone; their pages have not yet */
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
    ac_expand_t expand;
    uint64_t async_bytes, async_most[AC_MARKS]; /* held by requests that named a stream */
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

/* `block` swallows its right neighbour, which is in no index and no list any more. */
void ac_segment_absorb_next(ac_block_t *block);

/* Its two halves: statistics (active falls), and the free memory.  Between them the block is
 * recent. */
void ac_segment_count_finished(const ac_block_t *block);
void ac_segment_coalesce(ac_block_t *block);

/* Take a free block out of the index, put it back. */
void ac_segment_unlist(ac_block_t *block);
void ac_segment_enlist(ac_block_t *block);

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

/* ordered.c: blocks freed in the order of a stream.  All under the lock, but ac_ordered_wait. */

/* A request that may be served so. */
typedef struct {
    ac_stream_t stream;
    int pool;
    uint64_t size, requested; /* bytes, rounded and as asked for */
    ac_fit_t fit;
    uint64_t address; /* of the block that was taken */
} ac_order_request_t;

/* The block serves a request that named a stream. */
void ac_ordered_handed_out(ac_block_t *block);

/* Hand out a block of the stream itself, or of one that is known to come before it, and say so in
 * the counters.  `exhaustive`: whatever it takes to find one. */
bool ac_ordered_serve(ac_arena_t *arena, ac_order_request_t *request, bool exhaustive);

/* The same with a call of the device: with `own` of the stream itself, which has to be given
 * something first; else of any other stream, which the request's one then waits for. AC_OK;
 * AC_OOM: there is none; anything else: the device would not.  Takes the lock. */
ac_status_t ac_ordered_wait(ac_arena_t *arena, ac_order_request_t *request, bool own);

/* The block, which was released, was freed on `stream` and waits for fence `target`.  False: it
 * has to be an ordinary pending block. */
bool ac_ordered_keep(ac_block_t *block, ac_stream_t stream, uint64_t target, bool all);

/* Move what is ready into the free memory. True if there was any. */
bool ac_ordered_drain(ac_arena_t *arena);

/* Fence targets of these blocks that wait for all contexts or (`all` false) for their own:
 * *oldest falls and *newest grows to them. */
void ac_ordered_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest);

/* The segment is lost, or serves no more: its blocks leave their streams' lists. */
void ac_ordered_forget(ac_segment_t *segment);
void ac_ordered_unbind(ac_segment_t *segment);

/* The arena is dead: no block is left. */
void ac_ordered_close(ac_arena_t *arena);

/* check.c: how many blocks the lists hold; *wrong gets a word. */
uint64_t ac_ordered_check(const ac_arena_t *arena, const char **wrong);

/* allocator.c, under the lock: the oldest and newest targets that pending blocks of either kind
 * wait for; false: there are none. */
bool ac_pending_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest);

/* allocator.c: lock the allocator of the block that is allocated at exactly `address`; AC_OK,
 * AC_NOT_OURS, AC_BAD_ADDRESS. */
ac_status_t ac_allocator_lock_block(uint64_t address, ac_block_t **found,
                                    ac_allocator_t **locked);

/* allocator.c, under the lock: the released block waits for fence `target`, which may not be
 * lower than those of the queue: read it under the same lock. */
void ac_pending_add(ac_block_t *block, uint64_t target, bool all);

/* allocator.c, under the lock: one of `calls` ended; `changed` if others may find more now. */
void ac_allocator_settle(ac_allocator_t *allocator, bool changed);

#endif
