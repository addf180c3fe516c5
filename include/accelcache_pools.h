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
 * A private pool serves the raw requests of some streams; its free memory serves no others.  It takes
 * whole segments from the cache (2 MiB, 20 MiB, or the request in units of 2 MiB), divides them,
 * and keeps them until it is released or emptied.  Each device has its own part of a pool.  A reset of the
 * device ends that part, without a call of free_fn.  Requests from a context of cuCtxCreate go to no pool.  Memory of a pool is freed by
 * accel_raw_delete, accel_free or accel_free_async; CUDA's own calls refuse it. */
typedef enum {
    ACCEL_POOL_USE_ON_OOM =
        1,                  /* its free memory serves a raw request from outside before that fails */
    ACCEL_POOL_NO_SPLIT = 2 /* each block is a whole segment */
} accel_pool_flag_t;

/* Makes a pool with one user, and with a number that no other pool of the process ever had.  (The program's
 * own numbers, in accel_pool_retain, go up to INT64_MAX.)  The flags are a sum of accel_pool_flag_t.
 * Segments come from `allocator`, or from the cache if it is NULL. */
accel_status_t accel_pool_create(unsigned flags, const accel_allocator_t *allocator,
                                 accel_pool_id_t *pool);

/* Adds a user.  Makes the pool under that number if it does not exist. */
accel_status_t accel_pool_retain(accel_pool_id_t pool);

/* Removes a user.  After the last user idle segments are returned, and the others when their last block is
 * freed; blocks stay valid.  Then release_pool_fn of the pool's allocator is called, with the thread's current
 * device; if accel_set_allocator set begin_allocate_to_pool_fn, pools that the library did not make are that
 * allocator's, and each call is passed on to its release_pool_fn.  ACCEL_ERROR_BUSY: requests still go to the
 * pool, and nothing has changed.  ACCEL_ERROR_INVALID: the pool does not exist. */
accel_status_t accel_pool_release(accel_pool_id_t pool);

/* Returns the number of users; 0 if the pool does not exist. */
int accel_pool_use_count(accel_pool_id_t pool);

/* Sets the flags of a pool. */
accel_status_t accel_pool_set_flags(accel_pool_id_t pool, unsigned flags);

/* Directs raw requests on the device to the pool until _end, for streams with a nonzero `filter` (NULL: all).  If
 * several pools would take a request, the newest one does.  The pool gets one more user, which stays after _end,
 * and is made if it does not exist.  Any thread calls `filter`, without a lock of the library.  After _end
 * no call of it begins, but one may be under way.  ACCEL_ERROR_BUSY: the pool takes requests of the device
 * already. */
accel_status_t accel_begin_allocate_to_pool(int device, accel_pool_id_t pool,
                                            accel_stream_filter_t filter, void *arg);
accel_status_t accel_end_allocate_to_pool(int device, accel_pool_id_t pool);

/* Returns idle segments of the pool; {0, 0}: accel_empty_cache. */
accel_status_t accel_pool_empty(accel_pool_id_t pool);

/* Reads bytes of the pool on the device: in segments, and in blocks that the program holds.  Outputs may
 * be NULL. */
accel_status_t accel_pool_bytes(accel_pool_id_t pool, int device, size_t *reserved,
                                size_t *allocated);

/* Returns ACCEL_OK if the program holds exactly these `count` blocks of the pool on the device, else
 * ACCEL_ERROR_INVALID. */
accel_status_t accel_pool_check_live(accel_pool_id_t pool, int device, void *const *blocks,
                                     size_t count);

/* The set of blocks of a pool that the program holds on a device, without their contents.  Graphs captured into
 * the pool need these blocks; accel_set_checkpoint_pool_state restores them.  The caller owns *checkpoint
 * until _release.  It does not keep the pool.  ACCEL_ERROR_INVALID: the pool does not exist. */
typedef struct accel_checkpoint accel_checkpoint_t;
accel_status_t accel_get_checkpoint_state(int device, accel_pool_id_t pool,
                                          accel_checkpoint_t **checkpoint);
void accel_release_checkpoint_state(accel_checkpoint_t *checkpoint); /* NULL may be released */

/* Addresses of blocks that accel_set_checkpoint_pool_state changed.  A block in both lists was held
 * before and is held again.  The caller frees both lists with free().  Initialise it with
 * ACCEL_CHECKPOINT_DELTA_INIT. */
typedef struct {
    size_t size;
    void **freed; /* blocks that the program held before */
    size_t freed_count;
    void **allocated; /* blocks that it holds now: all of the checkpoint */
    size_t allocated_count;
} accel_checkpoint_delta_t;
#define ACCEL_CHECKPOINT_DELTA_INIT ACCEL_SIZED(accel_checkpoint_delta_t)

/* Frees every block of the pool on the device that the program holds, and hands out the blocks of the checkpoint
 * again, at their old places.  A checkpoint may be restored any number of times.  `delta` may be NULL.  Waits
 * for streams that accel_record_stream named, except a block's own, for a second at most.  On an error nothing changes: ACCEL_ERROR_INVALID: the pool has gone, or a needed segment
 * was returned or, after the end of its stream, to another one; ACCEL_ERROR_BUSY: work of other streams goes on, or a stream captures. */
accel_status_t accel_set_checkpoint_pool_state(const accel_checkpoint_t *checkpoint,
                                               accel_checkpoint_delta_t *delta);

/* Events of raw memory, and of memory that the cache has from the driver (then `pool` is {0, 0} and `stream`
 * NULL).  Memory that ends with its context causes none. */
typedef enum {
    ACCEL_TRACE_ALLOC,          /* a block was handed out */
    ACCEL_TRACE_FREE_REQUESTED, /* the program freed it */
    ACCEL_TRACE_FREE_COMPLETED, /* it is the allocator's; work may still be pending */
    ACCEL_TRACE_SEGMENT_ALLOC,  /* the cache took a segment from the driver, or a private pool from the cache */
    ACCEL_TRACE_SEGMENT_FREE,   /* it was returned */
    ACCEL_TRACE_SNAPSHOT,       /* accel_snapshot was called */
    ACCEL_TRACE_OOM,            /* a request failed; `address` is the number of free bytes of the device */
    ACCEL_TRACE_SEGMENT_MAP,    /* pages were mapped in an expandable segment */
    ACCEL_TRACE_SEGMENT_UNMAP,  /* pages were unmapped */
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
    /* Text of accel_annotate, else of the context recorder; NULL: none.  Valid until the tracker returns. */
    const char *text;
    uint32_t stack; /* number of the stack in documents of accel_dump, from 1; 0: none */
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
