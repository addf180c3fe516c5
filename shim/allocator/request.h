/* A request on its way down the ladder (ladder.c), and what each step may do to it. */
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
    ac_cache_t *cache;         /* of the calling thread, if it may keep these blocks; else NULL */
    bool cached_only;          /* free memory or nothing: no call of the device */
    bool quiet;                /* its failure does not count */
    bool cache_stays;          /* what the cache keeps stays there: the device may grow */
    bool medium;               /* it goes to pages of their own (supply/medium.h) */
    bool scarce;               /* the device has no more: any block that fits is right */
    bool spared;               /* a large free block was not split: the request may wait instead */
    bool settled;              /* it does not wait: large blocks are split */
    bool shrink;               /* about to fail: pages of the least size */
    /* Value of `added` of the arena at the last search of its free memory without success, and at the
     * last one with `scarce`; 0: never. */
    uint64_t seen[2];
    uint64_t changes; /* how many of the allocator's `changes` were its own */
    uint64_t soon;    /* ns: until then it waits for work rather than grow */
    uint64_t target;  /* out of memory: of the work that comes first; else 0 */
} ac_request_t;

/* --- find.c: free memory; no call of the device --- */

/* The first step: adds memory that became ready to the free memory, and searches that.  Sets size and
 * pool.  Takes the lock. */
bool ac_find_first(ac_request_t *request);

/* Serves a request of the cache's owner from free memory alone.  `size`: `bytes` in whole granules.  Not
 * `known`: that size has no entry in the cache.  Returns the address; 0 if there is none. */
uint64_t ac_find_free(ac_cache_t *cache, uint64_t size, uint64_t bytes, bool known);

/* Searches after ac_find_free found nothing, but only if nothing waits any more, so that blocks that the
 * cache keeps may go.  Takes the lock. */
bool ac_find_waiting(ac_request_t *request);

/* Searches the free memory again if something was added to it since the last search.  With `scarce` it
 * also takes and searches all caches at once, or their owners would take the memory back in between.
 * Takes the lock. */
bool ac_find_again(ac_request_t *request);

/* Searches all free memory, as before the request fails.  Takes the lock. */
bool ac_find_any(ac_request_t *request);

/* Searches the blocks that the request's own cache keeps ready, as far as it takes. */
bool ac_find_kept(ac_request_t *request);

/* Searches again if a large block was spared: from now on the request splits large blocks.  Takes the
 * lock. */
bool ac_find_spared(ac_request_t *request);

/* Searches what was added, for a request that uses no cache of its own.  The caller holds the lock. */
bool ac_find_added(ac_request_t *request);

/* Serves the request with memory that was just added, of which `block` is free.  The caller holds the
 * lock. */
void ac_find_new(ac_request_t *request, ac_block_t *block);

/* Returns the request in the form that ac_ordered_serve takes. */
ac_order_request_t ac_find_ordered(ac_request_t *request);

/* --- ready.c: freed memory that waits for work; each takes the lock --- */

/* The stream of the memory: the request's own stream needs a device call first; the request's stream
 * waits on the device for any other stream.  AC_OK: served. */
typedef enum { AC_OTHER_STREAMS, AC_OWN_STREAM } ac_whose_t;
ac_status_t ac_ready_in_order(ac_request_t *request, ac_whose_t whose);

/* Asks the device whether work is over, if need be with a fence of this moment.  Returns true if the
 * request is served. */
bool ac_ready_ask(ac_request_t *request);

/* Returns true if growing would exceed the budget now and the request may wait for work. */
bool ac_ready_waits(const ac_request_t *request);

/* Waits for work as long as growing would exceed the budget, until `soon` at most.  Returns true if the
 * request is served. */
bool ac_ready_wait(ac_request_t *request);

/* --- grow.c: new memory --- */

/* Grows within the limit.  AC_OK: served.  AC_OOM; AC_BUSY: something captures; AC_FAILED. */
ac_status_t ac_grow(ac_request_t *request);

/* --- grow.c: the device, or the limit, has no more --- */

/* Serves the request when nothing else is left.  AC_OOM: not even after giving back and waiting. */
ac_status_t ac_full(ac_request_t *request);

#endif
