/* What the files on private pools share: pools.c serves requests and frees, pool_ways.c says which ones, pool_report.c says what is in
 * the pools, checkpoints.c brings a former state of one back. */
#ifndef AC_POOLS_INT_H
#define AC_POOLS_INT_H

#include "api/pool_space.h"
#include "intercept/context.h"
#include "lock.h"

struct ac_pool {
    ac_pool_t *next;
    accel_pool_id_t id;
    const accel_allocator_t *allocator; /* where segments come from; NULL: what raw memory does */
    unsigned flags;
    int users;
    unsigned ways;  /* that are not ended */
    unsigned calls; /* requests under way: the record stays */
    ac_pool_line_t *lines;
};

/* Guards all pools, and what is in them. */
extern ac_mutex_t ac_pools_lock;
extern ac_pool_t *ac_pools;

/* Counts, under the lock, when work of other streams may have come to a block: it was recorded, or freed
 * so that it waits for a fence (ac_pool_block_t.recorded). */
extern uint64_t ac_pools_used_elsewhere;

/* Under the lock: the pool that has users; NULL: there is none. */
ac_pool_t *ac_pool_named(accel_pool_id_t id);

/* No pool. */
#define AC_POOL_NONE {0, 0}

/* Under the lock.  _make: a pool of the id, without users; NULL: host memory is short.  _sweep: the record of
 * a pool that no call can get at any more goes with its last segment. */
ac_pool_t *ac_pool_make(accel_pool_id_t id, unsigned flags, const accel_allocator_t *allocator);
void ac_pool_sweep(ac_pool_t *pool);

/* Under the lock: whether the line's stream was destroyed, or its thread has ended. */
static inline bool ac_pool_line_is_gone(const ac_pool_line_t *line) {
    return line->gone || ac_stream_is_gone(line->stream, line->life);
}

/* Fences of the device's primary context; NULL: it is not in use. */
ac_timeline_t *ac_pool_timeline(int device);

#endif
