/* Between the files of the allocator; see allocator.h for the contract. */
#ifndef AC_ALLOCATOR_INT_H
#define AC_ALLOCATOR_INT_H

#include "allocator/space/space.h"
#include "allocator/retired/streams.h"
#include "allocator/cache/thread_cache.h"
#include "allocator/retired/retired.h"
#include "lock.h"

typedef struct ac_ordered ac_ordered_t; /* ordered.c */

/* Of an allocator whose arenas grow by pages (expand.h). */
typedef struct {
    enum { AC_EXPAND_UNKNOWN, AC_EXPAND_ABLE, AC_EXPAND_UNABLE } able; /* what the device is */
    ac_range_support_t support;
    uint64_t remap_ns; /* that moving pages is taken to have cost so far */
    uint64_t ceiling;  /* reserved bytes at which the device had no more; 0: not known */
    uint64_t peerings; /* how often ac_expand_allow was called */
    ac_refused_t refused;
} ac_expand_t;

struct ac_arena {
    ac_allocator_t *allocator;
    const ac_device_ops_t *ops;
    void *context;
    ac_timeline_t timeline;
    union { /* one and the same: space/ is given it whole */
        ac_space_t space;
        struct {
            ac_store_t *store;
            ac_arena_t *itself;
            AC_SPACE_FIELDS
        };
    };
    ac_arena_t *next; /* the allocator's list; records stay for ever */
    bool dead;
    _Atomic int unordered;           /* its streams' order protects nothing; 2: nor did it ever */
    _Atomic uint64_t submitted[2];   /* [1]: to the legacy stream (ac_arena_submitted) */
    ac_ordered_t *ordered;           /* blocks freed in stream order; NULL: never any */
    ac_retired_t retired;            /* freed, and not free yet */
    unsigned growths[AC_POOL_KINDS]; /* calls under way that ask the device for a segment */
    uint64_t coming[AC_POOL_KINDS];  /* bytes of those that no request has a claim to; 0: none */
};

struct ac_allocator {
    ac_mutex_t lock;
    union { /* as in ac_arena */
        ac_store_t store;
        struct {
            AC_STORE_FIELDS
        };
    };
    ac_device_counters_t *counters;
    _Atomic(ac_arena_t *) arenas;
    uint32_t owed_epochs;   /* what was idle for so many is owed; 0: nothing */
    _Atomic bool owes;      /* memory is to go back (trim.h) */
    uint64_t growing;       /* bytes that the device is being asked for */
    unsigned calls;         /* device calls under way that add or give back segments */
    uint64_t changes;       /* such calls that changed what a request may find */
    pthread_cond_t settled; /* a call ended */
    ac_expand_t expand;
    uint64_t async_most[AC_MARKS];     /* peaks of async_bytes */
    ac_cache_t *caches, *spare_caches; /* of threads, for all arenas */
    _Atomic unsigned cache_count;
    ac_mutex_t recall_lock; /* one recall at a time; rank: before `lock` */
    bool syncing;           /* a change of SYNC_MEMOPS is under way (identity.c) */
};

/* --- lost.c --- */

/* Before the device's pages at `address` become a segment: where they are still a segment's, that
 * one's context has ended unseen, and threads may keep blocks of it.  Without the lock. */
void ac_arena_forget_stale(uint64_t address, uint64_t size);

/* ac_segment_add, once what is left of such contexts has gone.  NULL also where it is of another
 * device, whose lock may not be taken here. */
ac_segment_t *ac_arena_add(ac_arena_t *arena, int pool, uint64_t address, uint64_t size);

/* The segment's context has gone: what waits there is forgotten, and the segment with it. */
void ac_arena_lose(ac_segment_t *segment);

/* Take the segment out of service. */
void ac_arena_taint(ac_segment_t *segment);

/* Records of blocks in slabs that the program holds go, unless a thread cannot be kept out of its
 * cache.  Without the lock. */
void ac_allocator_drop_records(ac_allocator_t *allocator);

/* --- thread_cache.c: under the lock, but ac_caches_recall and _drop --- */

/* Before a request of the cache's owner is served centrally (NULL: of a thread without one): the
 * tallies are absorbed as far as a peak depends on them. */
void ac_caches_before(ac_allocator_t *allocator, ac_cache_t *cache, int pool, uint64_t size,
                      uint64_t requested);

/* Before a block is freed centrally: a peak that the only cache has reached would be missed. */
void ac_caches_before_free(ac_allocator_t *allocator);

/* After the request was served centrally. */
void ac_caches_after(ac_cache_t *cache, uint64_t size);

/* Absorb the tallies of all caches; *sum is what they held and did since. */
void ac_caches_absorb(ac_allocator_t *allocator, ac_cache_sum_t *sum);

/* The block, which was released and counted finished, stays in the cache.  False: no room. */
bool ac_cache_keep(ac_cache_t *cache, ac_block_t *block);

/* A block of the size was served from the pool: there may be more such requests, and frees. */
void ac_cache_expect(ac_cache_t *cache, int pool, uint64_t size);

/* Whether the tally has room for a request of the owner, served with `size` bytes of the pool:
 * no peak rises, and nothing has to be absorbed before. */
bool ac_cache_affords(ac_cache_t *cache, int pool, uint64_t size, uint64_t bytes);

/* Then: the block, which was cut (ac_segment_carve), serves it as a hit would.  False: not this
 * one; the caller keeps the block. */
bool ac_cache_serve(ac_cache_t *cache, ac_block_t *block, uint64_t size, uint64_t bytes);

/* Free the block, which is allocated and ready, `leans` by its stream alone, as a hit would where
 * only the lock can.  False: it is not the cache's to take. */
bool ac_cache_take_back(ac_cache_t *cache, ac_block_t *block, bool leans);

/* Lock the allocator of a block that the cache's owner found at `address` without it.  False: it
 * is not there any more. */
bool ac_cache_lock_found(const ac_cache_t *cache, const ac_block_t *block, uint64_t address);

/* Give the large blocks of the cache back to the free memory, those that are ready: once for each
 * large request that misses, which counts against magazines that it finds empty. */
void ac_cache_flush_large(ac_cache_t *cache);

/* Give all back that is ready.  True if there was any. */
bool ac_cache_flush(ac_cache_t *cache);

/* Blocks that the owner gave away without the lock (NULL: none) go to the free memory now. */
void ac_cache_tidy(ac_cache_t *cache);

/* The same for all that the cache holds: what is not ready becomes pending. */
bool ac_cache_leave_all(ac_cache_t *cache);

/* What all caches hold goes back to the free memory.  `own`: the caller's cache, NULL: none or
 * not known.  True if there was any.  Without the lock. */
bool ac_caches_recall(ac_allocator_t *allocator, ac_cache_t *own);

/* The same, and it returns with the lock: no other thread can have taken what
 * came back. */
void ac_caches_recall_lock(ac_allocator_t *allocator, ac_cache_t *own);

/* The same, and all caches learn of peaks and settings that have changed. */
void ac_caches_settle(ac_allocator_t *allocator);

/* Between the two all owners keep out of their caches, and the lock is held.  False: but for one
 * that was in it and did not come out, or may be. */
bool ac_caches_freeze(ac_allocator_t *allocator);
void ac_caches_thaw(ac_allocator_t *allocator);

/* Between them: the caches of the arena hold nothing any more.  Peaks may rise after it. */
void ac_caches_empty(ac_arena_t *arena);

/* The arena is dead: its caches lose what they hold, and serve no more.  Without the lock. */
void ac_caches_drop(ac_arena_t *arena);

/* retired.c, under the lock: the arena's blocks of the episode wait for a fence like any that are
 * freed now.  True if one is of a tainted segment. */
bool ac_retired_let_go(ac_arena_t *arena, uint64_t episode);

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

/* The slot of `stream` in *order for a block that is freed in its order; AC_ORDER_NONE: the block
 * has to be an ordinary pending one. */
unsigned ac_ordered_slot_for(const ac_block_t *block, ac_stream_t stream, ac_order_t **order);

/* The block, which was released, waits with a ticket of such a slot. */
void ac_ordered_add(ac_block_t *block, const ac_ticket_t *ticket);

/* Move what is ready into the free memory. True if there was any. */
bool ac_ordered_drain(ac_arena_t *arena);

/* Fence targets of these blocks that wait for all contexts or (`all` false) for their own:
 * *oldest falls and *newest grows to them. */
void ac_ordered_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest);

/* The block is lost: it leaves its stream's list. */
void ac_ordered_lost(ac_block_t *block);

/* The segment serves no more: its blocks wait for fences. */
void ac_ordered_unbind(ac_segment_t *segment);

/* The arena is dead: no block is left. */
void ac_ordered_close(ac_arena_t *arena);

/* check.c: how many blocks the lists hold; *wrong gets a word. */
uint64_t ac_ordered_check(const ac_arena_t *arena, const char **wrong);

/* --- retired.c: what waits for a fence; under the lock --- */

/* Blocks of so many bytes that are pending are worth a fence: half of what may be within the
 * budget, so that there is an older one to wait for when that is used up. */
uint64_t ac_pending_share(const ac_allocator_t *allocator);

/* What a free adds to that share, of AC_FENCE_BATCH_WEIGHT.  Without the lock as well. */
uint32_t ac_pending_weight(uint64_t share, uint64_t bytes);

/* Move what has become ready from the queues into the free memory.  True if there was any. */
bool ac_pending_drain(ac_arena_t *arena);

/* The same for all arenas. */
void ac_allocator_drain(ac_allocator_t *allocator);

/* The oldest and newest targets that pending blocks of either kind wait for; false: there are
 * none. */
bool ac_pending_targets(const ac_arena_t *arena, bool all, uint64_t *oldest, uint64_t *newest);

/* How long a request waits, in all, for work that could save memory. */
#define AC_PATIENCE_NS ((uint64_t)500000000)

/* quarantine.c: of the timeline of an arena (fence.h). */
bool ac_arena_quarantine(ac_timeline_t *timeline, uint64_t until);

/* address.c: lock the allocator of the block that is allocated at exactly `address`; AC_OK,
 * AC_NOT_OURS, AC_BAD_ADDRESS, AC_OOM: it has no record, and host memory is short. */
ac_status_t ac_allocator_lock_block(uint64_t address, ac_block_t **found,
                                    ac_allocator_t **locked);

/* identity.c: the same before the block is freed: what it asked of the driver is taken back. */
ac_status_t ac_allocator_lock_to_free(uint64_t address, ac_block_t **found,
                                      ac_allocator_t **locked);

/* address.c: free such a block.  It cannot wait for its fence in a queue: so the caller does, where it must,
 * for AC_PATIENCE_NS at the most.  AC_FAILED: that did not do. */
ac_status_t ac_block_free_without_record(uint64_t address);

#endif
