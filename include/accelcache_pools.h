/* accelcache: private pools, checkpoints of pools, and trace trackers.
 *
 * For programs that keep memory of their own for some streams, as CUDA graphs need it.  The rules of
 * accelcache.h about threads, errors and outputs hold here, too. */
#ifndef ACCELCACHE_POOLS_H
#define ACCELCACHE_POOLS_H

#include "accelcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- private pools ---
 *
 * Memory of its own for the raw requests of some streams: what is freed there serves no request
 * from elsewhere.  A pool takes whole segments from the cache (2 MiB, 20 MiB, or the request in units
 * of 2 MiB), divides them, and keeps them until it is released or emptied.  Each device has its own
 * part of a pool, which ends with a reset of the device: its segments go with the device's memory, without a
 * call of free_fn.  Requests from a context that cuCtxCreate made go to no pool.  Memory of a pool is freed by
 * accel_raw_delete, accel_free or accel_free_async; CUDA's own calls refuse it. */
typedef enum {
    ACCEL_POOL_USE_ON_OOM =
        1,                  /* its free memory serves others before a request of theirs fails */
    ACCEL_POOL_NO_SPLIT = 2 /* each block is a whole segment */
} accel_pool_flag_t;

/* A new pool, of a number that no other pool of the process ever had (numbers of the program's own, in
 * accel_pool_retain, count up to INT64_MAX); it has one user.  The flags are a sum
 * of accel_pool_flag_t.  `allocator` (may be NULL: the cache) is where segments come from. */
accel_status_t accel_pool_create(unsigned flags, const accel_allocator_t *allocator,
                                 accel_pool_id_t *pool);

/* One user more.  A pool that does not exist is made, under that number. */
accel_status_t accel_pool_retain(accel_pool_id_t pool);

/* Removes a user.  After the last one idle segments go back, and the others when their last block is
 * freed: blocks stay valid.  Then release_pool_fn of the pool's allocator is called, with the thread's current
 * device; if accel_set_allocator set begin_allocate_to_pool_fn, pools that the library did not make are that
 * allocator's, and each call is passed on to its release_pool_fn.  ACCEL_ERROR_BUSY: requests still go to the
 * pool, and nothing has changed.  ACCEL_ERROR_INVALID: there is no such pool. */
accel_status_t accel_pool_release(accel_pool_id_t pool);

/* Users; 0: there is no such pool. */
int accel_pool_use_count(accel_pool_id_t pool);

/* The flags of a pool from now on. */
accel_status_t accel_pool_set_flags(accel_pool_id_t pool, unsigned flags);

/* Raw requests on the device for streams that `filter` (NULL: all) says nonzero to go to the pool
 * until _end; the newest such pool takes what several would.  The pool gets one user more, which stays
 * when _end was called, and is made where it does not exist.  `filter` is called from any thread, without a lock of the library; no
 * call of it begins after _end returned, but one may still be under way. ACCEL_ERROR_BUSY: the pool
 * takes requests of the device already. */
accel_status_t accel_begin_allocate_to_pool(int device, accel_pool_id_t pool,
                                            accel_stream_filter_t filter, void *arg);
accel_status_t accel_end_allocate_to_pool(int device, accel_pool_id_t pool);

/* Give idle segments of the pool back; {0, 0}: accel_empty_cache. */
accel_status_t accel_pool_empty(accel_pool_id_t pool);

/* Bytes of the pool on the device: in segments, and in blocks that the program holds.  Outputs may be
 * NULL. */
accel_status_t accel_pool_bytes(accel_pool_id_t pool, int device, size_t *reserved,
                                size_t *allocated);

/* ACCEL_OK if the blocks that the program holds of the pool on the device are those `count` ones,
 * and no others; else ACCEL_ERROR_INVALID. */
accel_status_t accel_pool_check_live(accel_pool_id_t pool, int device, void *const *blocks,
                                     size_t count);

/* Which blocks of a pool the program holds on a device, to be brought back later: what graphs that were
 * captured into the pool find there.  Contents are not part of it.  *checkpoint is the caller's, until
 * _release, and does not keep the pool.  ACCEL_ERROR_INVALID: there is no such pool. */
typedef struct accel_checkpoint accel_checkpoint_t;
accel_status_t accel_get_checkpoint_state(int device, accel_pool_id_t pool,
                                          accel_checkpoint_t **checkpoint);
void accel_release_checkpoint_state(accel_checkpoint_t *checkpoint); /* NULL may be released */

/* What accel_set_checkpoint_pool_state changed, as addresses of blocks.  A block in both lists was held
 * before and is held again.  The caller frees both lists with free().  Initialise it with
 * ACCEL_CHECKPOINT_DELTA_INIT. */
typedef struct {
    size_t size;
    void **freed; /* that the program held, and does not any more */
    size_t freed_count;
    void **allocated; /* that it holds now: all of the checkpoint */
    size_t allocated_count;
} accel_checkpoint_delta_t;
#define ACCEL_CHECKPOINT_DELTA_INIT ACCEL_SIZED(accel_checkpoint_delta_t)

/* Free every block of the pool on the device that the program holds, and hand out those of the checkpoint
 * again, each at its old place.  May be done with one checkpoint as often as one likes.  `delta` may be
 * NULL.  Streams other than a block's own that accel_record_stream named are waited for, for a second at
 * most.  On an error nothing changes: ACCEL_ERROR_INVALID: the pool has gone, or a segment that is needed
 * was given back or, after the end of its stream, to another one; ACCEL_ERROR_BUSY: work of other streams goes on, or a stream captures. */
accel_status_t accel_set_checkpoint_pool_state(const accel_checkpoint_t *checkpoint,
                                               accel_checkpoint_delta_t *delta);

/* What becomes of raw memory, and of the memory that the cache has from the driver: then `pool` is {0, 0} and
 * `stream` NULL.  Memory that ends with its context is not told of. */
typedef enum {
    ACCEL_TRACE_ALLOC,          /* a block was handed out */
    ACCEL_TRACE_FREE_REQUESTED, /* the program freed it */
    ACCEL_TRACE_FREE_COMPLETED, /* it is the allocator's; work may still be pending */
    ACCEL_TRACE_SEGMENT_ALLOC,  /* the cache took a segment from the driver, or a private pool from the cache */
    ACCEL_TRACE_SEGMENT_FREE,   /* it went back */
    ACCEL_TRACE_SNAPSHOT,       /* accel_snapshot was called */
    ACCEL_TRACE_OOM,            /* a request failed; `address` is what the device has free */
    ACCEL_TRACE_SEGMENT_MAP,    /* pages were mapped in an expandable segment */
    ACCEL_TRACE_SEGMENT_UNMAP,  /* they were taken out of it */
    ACCEL_TRACE_USER_DEFINED    /* accel_annotate was called with `text` */
} accel_trace_action_t;

typedef struct {
    accel_trace_action_t action;
    int device;
    uint64_t address;
    size_t bytes;
    void *stream;
    accel_pool_id_t pool;
    uint64_t time_us; /* since the epoch */
    /* What accel_annotate was given, else what the context recorder returned; NULL: none.  A tracker may
     * read it until it returns. */
    const char *text;
    uint32_t stack; /* number of its stack in the documents of accel_dump, from 1 on; 0: none */
} accel_trace_entry_t;

/* A tracker may be called in the middle of any call that allocates, frees or gives memory back, and by threads
 * of the library.  It may call the library, but not destroy a stream or a context. */
typedef void (*accel_trace_tracker_t)(const accel_trace_entry_t *entry, void *arg);
accel_status_t accel_attach_trace_tracker(accel_trace_tracker_t tracker, void *arg);
accel_status_t accel_detach_trace_tracker(accel_trace_tracker_t tracker, void *arg);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
