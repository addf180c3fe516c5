/* What the memory pools of the driver API have of a device's memory here.  A pool has a number;
 * a block that serves a request of it carries the number (block.h), and counts in the pool's
 * figures until the program frees it.
 *
 * `used` is the sum of the requests, each rounded up to AC_GRANULE as the driver rounds.
 * `reserved` is what a pool of the driver would hold: it grows with `used`, and a synchronisation
 * of the program brings it down to the release threshold, or to `used` where that is more.  It
 * says nothing of segments, which all pools and plain requests share.
 *
 * All under the allocator's lock, but ac_mempool_synced. */
#ifndef AC_MEMPOOL_H
#define AC_MEMPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Numbers are 1 to AC_MEMPOOLS - 1; 0 is a request that names no stream. */
enum { AC_MEMPOOLS = 256, AC_MEMPOOL_FIRST = 1 };

/* The two high-water marks of a pool. */
typedef enum { AC_MARK_RESERVED, AC_MARK_USED, AC_MARKS } ac_mark_t;

/* Bytes. */
typedef struct {
    uint64_t now[AC_MARKS], most[AC_MARKS]; /* `most`: since the mark was reset */
    uint64_t threshold;                     /* kept in reserve across synchronisations */
    uint64_t limit;                         /* of `used`; 0: none */
    uint64_t claimed;                       /* where there is a limit: by requests under way */
    uint64_t syncs;                         /* synchronisations that `now` takes in */
} ac_mempool_t;

struct ac_store;
struct ac_block;

/* The program synchronised a stream, an event or a context.  Any thread. */
void ac_mempool_synced(void);

/* The figures of the moment. */
ac_mempool_t *ac_mempool_settle(struct ac_store *store, unsigned number);

/* The block, which is allocated, serves a request of the pool (not 0) from now on; and no more. */
void ac_mempool_take(struct ac_block *block, unsigned number);
void ac_mempool_give(const struct ac_block *block);

/* What of the block counts in the pool. */
uint64_t ac_mempool_bytes(const struct ac_block *block);

/* The same for a request of so many bytes. */
uint64_t ac_mempool_round(uint64_t bytes);

/* Idle bytes that pools with a release threshold are to find again, without pool `but` (0: all). */
uint64_t ac_mempool_kept(struct ac_store *store, unsigned but);

#endif
