/* Pinned host memory that the program freed, kept for its next requests.
 *
 * A block is one whole allocation of the driver: nothing is split, so that whatever the driver
 * says of its address is true of the block alone.  Sizes are rounded up by an eighth at most; a
 * block serves requests of its rounded size whose *key* is the same: the context that made it, the
 * function and flags, and the NUMA node.
 *
 * When is it out of reach of the device?  The host may write to it as soon as it is handed out, and
 * any context may have been given its address.  So the order of streams protects nothing here: a
 * freed block waits until all contexts have reached the clock of its free (order/fence.h), unless
 * nothing was submitted anywhere since it was handed out; what a capture may name waits for the
 * session first (order/capture.h).
 *
 *   HELD      the program's
 *   WAITING   freed: in the ledger (order/ledger.h), with a ticket of ALL, or of CAPTURE if a session
 *             of captures may name it
 *   IDLE      free: in its bucket, newest first, and in the queue of all idle ones, oldest first
 *   LEAVING   one thread asks the driver to free it; in no list
 *   GONE      spare, or lost while it was LEAVING: that thread puts it aside
 *
 * Invariants (ac_host_check): every block but GONE ones is in the index, no two overlap; the figures
 * are sums over blocks.
 *
 * Any thread.  The lock is taken by the functions themselves; nothing calls a driver.  `now` is
 * monotonic time in nanoseconds. */
#ifndef AC_HOST_H
#define AC_HOST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/host/host_index.h"
#include "allocator/order/ledger.h"
#include "lock.h"
#include "observe/stats.h"

struct timespec;

typedef struct ac_host_block ac_host_block_t;

typedef enum {
    AC_HOST_GONE,
    AC_HOST_HELD,
    AC_HOST_WAITING,
    AC_HOST_IDLE,
    AC_HOST_LEAVING
} ac_host_state_t;

typedef struct {
    void *owner;   /* the context */
    uint32_t kind; /* which function, with which flags */
    uint32_t node; /* NUMA node of the thread's memory */
} ac_host_key_t;

enum { AC_HOST_BUCKETS = 512 };

typedef struct {
    ac_mutex_t lock;
    ac_host_stats_t *stats;
    ac_host_node_t *root;
    ac_host_block_t *spare;
    ac_ledger_t ledger;        /* WAITING */
    ac_due_queue_t idle_queue; /* IDLE */
    ac_host_block_t *bucket[AC_HOST_BUCKETS];
    uint64_t drained_ns;   /* time of the last drain */
    uint64_t idle;         /* bytes: IDLE */
    _Atomic uint64_t kept; /* that and WAITING */
    uint64_t serial;
    _Atomic uint64_t blocks; /* not GONE: 0 tells that no address is one of ours */
} ac_host_t;

/* Bytes that are kept. */
static inline uint64_t ac_host_kept(const ac_host_t *host) {
    return atomic_load_explicit(&host->kept, memory_order_relaxed);
}

/* A zeroed *host; *stats is borrowed. */
void ac_host_init(ac_host_t *host, ac_host_stats_t *stats);

/* Returns the bytes to request from the driver; 0: `bytes` cannot be rounded. */
uint64_t ac_host_size(uint64_t bytes);

/* Hand out an idle block of exactly `size`.  False: there is none. */
bool ac_host_take(ac_host_t *host, const ac_host_key_t *key, uint64_t size, uint64_t bytes,
                  uint64_t now, uint64_t *address);

/* Returns true if a block of that key and size waits for fences. */
bool ac_host_waits(ac_host_t *host, const ac_host_key_t *key, uint64_t size);

/* Notes that the driver gave `size` bytes for a request of `bytes`. Forgets what it knew about the range.  Returns
 * false if host memory is short: the block is unknown here. */
bool ac_host_add(ac_host_t *host, const ac_host_key_t *key, uint64_t address, uint64_t size,
                 uint64_t bytes);

/* The program frees the block at `address`, all its calls on it have returned.  READY, WAITS,
 * CAPTURED: it is kept.  LEAVES: *block is to be given to the driver, because `keep` is false, the
 * block is tainted, or more than `limit` bytes would be kept even if nothing were idle; _left
 * follows.  NOT_OURS: nothing is known at that address.  BAD: no held block begins there. */
typedef enum {
    AC_HOST_READY,
    AC_HOST_WAITS,
    AC_HOST_DEFERRED,
    AC_HOST_LEAVES,
    AC_HOST_NOT_OURS,
    AC_HOST_BAD
} ac_host_free_t;
ac_host_free_t ac_host_give(ac_host_t *host, uint64_t address, bool keep, uint64_t limit,
                            uint64_t now, ac_host_block_t **block);

/* Take the idle block out that has been so for longest, for the driver; _left follows.  NULL: none
 * is, or none since before `before` (UINT64_MAX: whenever), or no more than `limit` bytes are
 * kept. */
ac_host_block_t *ac_host_leave(ac_host_t *host, uint64_t before, uint64_t limit, uint64_t now);

/* Returns true if _leave may find a block for that age or limit, now or after pending frees became ready. */
bool ac_host_due(ac_host_t *host, uint64_t before, uint64_t limit);

/* The allocation of a block that is LEAVING. */
void *ac_host_leaving(const ac_host_block_t *block, uint64_t *address, uint64_t *size);

/* Notes that the driver freed the block.  Otherwise restores the state from before. */
void ac_host_left(ac_host_t *host, ac_host_block_t *block, bool freed, uint64_t now);

/* The context is gone, and its memory with it. */
void ac_host_owner_gone(ac_host_t *host, const void *owner);

/* Returns the clock that all contexts have to reach until no block waits for fences; 0: none waits.  For one owner
 * it includes blocks of captures, as if their last graph were destroyed now. */
uint64_t ac_host_target(ac_host_t *host, const void *owner);

/* _holds: returns true if a block waits for the session.  _release: its last graph is gone. */
bool ac_host_holds(ac_host_t *host, uint64_t session);
void ac_host_release(ac_host_t *host, uint64_t session, uint64_t now);

/* The block around an address. */
typedef struct {
    uint64_t address, size, requested;
    uint64_t id;    /* of its lifetime: no other block or memory ever has it */
    bool allocated; /* HELD, and the address lies within what was requested */
} ac_host_info_t;

/* False: there is none. */
bool ac_host_find(ac_host_t *host, uint64_t address, ac_host_info_t *info);

/* The driver remembers something about the held block at `address`. */
void ac_host_taint(ac_host_t *host, uint64_t address);

/* The driver freed the block at `address` in a way of its own. */
void ac_host_forget(ac_host_t *host, uint64_t address);

/* Copies the figures of one moment.  Returns false if the lock was not free before `deadline` (CLOCK_REALTIME). */
bool ac_host_figures(ac_host_t *host, const struct timespec *deadline, ac_host_stats_t *stats);

/* Nonzero if an invariant does not hold; `why` gets a word. */
int ac_host_check(ac_host_t *host, const char **why);

#endif
