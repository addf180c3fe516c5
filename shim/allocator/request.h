/* A request on its way down the ladder (ladder.c), and what its steps may do to it. */
#ifndef AC_REQUEST_H
#define AC_REQUEST_H

#include "allocator/allocator_int.h"

typedef struct {
    ac_arena_t *arena;
    uint64_t requested, size; /* bytes: asked for, rounded */
    int pool;
    uint64_t address;          /* of the block that was taken */
    unsigned mempool;          /* of a request that names a stream */
    unsigned module;           /* that asks (stats.h) */
    const ac_stream_t *stream; /* NULL: a plain request */
    ac_cache_t *cache;         /* of the calling thread, where it may keep such blocks; NULL */
    bool cached_only;          /* free memory or nothing: no call of the device */
    bool quiet;                /* its failure does not count */
    bool cache_stays;          /* what the cache keeps stays there: the device may grow */
    bool medium;               /* it goes to pages of their own (supply/medium.h) */
    bool scarce;               /* the device has no more: any block that fits is right */
    bool spared;               /* a large free block was not split: the request may wait instead */
    bool settled;              /* it does not wait: large blocks are split */
    bool shrink;               /* about to fail: pages of the least size */
    /* What `added` of the arena was when its free memory was last searched without success, the
     * same for a search with `scarce`; 0: never. */
    uint64_t seen[2];
    uint64_t changes; /* how many of the allocator's `changes` were its own */
    uint64_t soon;    /* ns: until then it waits for work rather than grow */
    uint64_t target;  /* out of memory: of the work that comes first; else 0 */
} ac_request_t;

/* --- find.c: free memory; no call of the device --- */

/* The first step: what became ready meanwhile joins the free memory, which is searched.  Sets size
 * and pool.  Takes the lock. */
bool ac_find_first(ac_request_t *request);

/* The same for a request of the cache's owner, from free memory alone.  `size`: `bytes` in whole
 * granules.  Not `known`: that size has no entry in the cache.  Returns the address; 0: there is
 * none. */
uint64_t ac_find_free(ac_cache_t *cache, uint64_t size, uint64_t bytes, bool known);

/* The same behind ac_find_free that found nothing: it searches only where nothing waits any more, so that
 * what the cache keeps may go.  Takes the lock. */
bool ac_find_waiting(ac_request_t *request);

/* The same later: the free memory is searched only if something was added to it since.  With
 * `scarce` every thread's cache is taken and searched in one, or its owner would have it back in
 * between.  Takes the lock. */
bool ac_find_again(ac_request_t *request);

/* Searches all free memory, as before the request fails.  Takes the lock. */
bool ac_find_any(ac_request_t *request);

/* The same in what the request's own cache keeps ready, as far as it takes. */
bool ac_find_kept(ac_request_t *request);

/* Searches again if a large block was spared: from now on the request splits those.  Takes the lock. */
bool ac_find_spared(ac_request_t *request);

/* The same for a request without a cache of its own in use.  Under the lock. */
bool ac_find_added(ac_request_t *request);

/* The request is served with memory that was just added, of which `block` is free.  Under the
 * lock. */
void ac_find_new(ac_request_t *request, ac_block_t *block);

/* Returns the request in the form that ac_ordered_serve takes. */
ac_order_request_t ac_find_ordered(ac_request_t *request);

/* --- ready.c: freed memory that waits for work; each takes the lock --- */

/* Memory of the request's own stream that takes a device call first, or of another stream, which
 * the request's one then waits for on the device.  AC_OK: served. */
typedef enum { AC_OTHER_STREAMS, AC_OWN_STREAM } ac_whose_t;
ac_status_t ac_ready_in_order(ac_request_t *request, ac_whose_t whose);

/* Ask the device whether work is over, if need be with a fence of now.  True: served. */
bool ac_ready_ask(ac_request_t *request);

/* Whether growing would exceed the budget now, and work may be waited for. */
bool ac_ready_waits(const ac_request_t *request);

/* Wait for work as long as growing would exceed the budget, `soon` at the latest.  True: served.
 */
bool ac_ready_wait(ac_request_t *request);

/* --- grow.c: new memory --- */

/* Grow within the limit.  AC_OK: served.  AC_OOM; AC_BUSY: something captures; AC_FAILED. */
ac_status_t ac_grow(ac_request_t *request);

/* --- grow.c: the device, or the limit, has no more --- */

/* AC_OK: served.  AC_OOM: not even after giving back and waiting. */
ac_status_t ac_full(ac_request_t *request);

#endif
