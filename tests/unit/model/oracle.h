/* Oracle for the allocator on the fake device: operations that draw their parameters as numbers,
 * and a judgement of every step. The user supplies the numbers: a generator (check_model.c) or
 * the bytes of a fuzzer (tests/unit/fuzz). One oracle at a time in a process.
 *
 * For each freed range the oracle keeps the earlier work that may touch it. Contract: before this
 * work is done, the range is neither handed out again nor given to the driver.
 *
 * For every "out of memory" the oracle computes the memory that would be left after completing
 * all work and releasing all idle segments. */
#ifndef ORACLE_H
#define ORACLE_H

#include "allocator/allocator_int.h"
#include "fake_device.h"
#include "fake_settings.h"

enum { ORACLE_CONTEXTS = 3, ORACLE_LIVES = 400, ORACLE_HAZARDS = 1 << 14 };
enum { ORACLE_CACHES = 3, ORACLE_SIZES = 8 };
enum { ORACLE_STREAMS = 4, ORACLE_EVENTS = 4, ORACLE_NO_STREAM = -1 }; /* of each context */

typedef struct {
    uint64_t address, size, requested;
    int slot, pool;
    uint64_t born[ORACLE_CONTEXTS]; /* work submitted when it was handed out */
    uint64_t serial;                /* of its lifetime; 0: never requested */
} oracle_live_t;

/* A thread's cache, of the context in `slot` at its opening; `gone`: this context has ended. */
typedef struct {
    ac_cache_t *cache;
    int slot;
    bool gone;
    ac_cache_tally_t tally;
} oracle_cache_t;

typedef struct {
    int64_t now, peak;
} oracle_figure_t;

typedef struct {
    uint64_t address, size;
    int slot;
    uint64_t need[ORACLE_CONTEXTS]; /* work that has to be done first */
    /* For a free in stream order: streams of its context that come after it, and events. */
    uint32_t streams, events;
} oracle_hazard_t;

typedef struct {
    fake_device_t device;
    fake_context_t *context[ORACLE_CONTEXTS];
    ac_arena_t *arena[ORACLE_CONTEXTS];
    struct oracle_opened *opened; /* all contexts so far: late fences name them */
    ac_allocator_t *allocator;
    ac_device_stats_t stats;
    ac_device_counters_t counters;
    ac_settings_t settings;
    oracle_live_t live[ORACLE_LIVES];
    unsigned lives;
    uint64_t serials; /* the last serial so far */
    oracle_hazard_t hazard[ORACLE_HAZARDS];
    unsigned hazards;
    oracle_cache_t cache[ORACLE_CACHES];
    unsigned most_caches;        /* caches open at a time */
    uint64_t size[ORACLE_SIZES]; /* sizes that requests through caches repeat */
    bool steady;                 /* keep a cache open, and request few sizes */
    unsigned waits, gathers;     /* frees that waited in a cache; requests served by them */
    oracle_figure_t blocks[AC_POOL_KINDS], bytes[AC_POOL_KINDS]; /* held by the program */
    bool crowded, unsure;   /* since the last reset of peaks: several caches; another reason */
    unsigned failed_before; /* device.failed then */
    bool was_reset, lock_held;
    bool broken;    /* a device call answered AC_FAILED: more requests may fail than necessary */
    bool untracked; /* the allocator is not told of submitted work */
    unsigned ooms, step;
} oracle_t;

extern oracle_t oracle;

/* --- supplied by the user --- */

/* Returns a number below `below` (> 0). */
uint64_t oracle_draw(uint64_t below);

/* Reports a judgement in printf's form and ends the run. */
_Noreturn void oracle_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- a run --- */

/* Makes fresh contexts on a fresh device. With `bump` the device never reuses an address; with
 * `pages` arenas grow by pages. */
void oracle_begin(bool bump, bool pages);
/* Ends all contexts, and checks that nothing is left. */
void oracle_end(void);
/* Judges the step. Called after each operation. */
void oracle_check(void);

/* --- operations --- */

void oracle_alloc(bool cached_only);
void oracle_free(void);
void oracle_bad_free(void);
/* Requests and frees in the order of a stream, and the program's calls that order streams. */
void oracle_alloc_on(bool cached_only);
void oracle_free_on(void);
void oracle_record(void);
void oracle_wait_event(void);
void oracle_event_seen(void);
void oracle_stream_gone(void); /* another stream gets its key */
void oracle_mark_used(void);
void oracle_submit(void);
void oracle_complete(void);
void oracle_synchronize(void);
void oracle_trim(void);
void oracle_settle(void); /* removes records of slots */
void oracle_taint(void);
/* Another library asks for a block's serial, or for synchronous memory operations. */
void oracle_identify(void);
void oracle_sync(void);
void oracle_drop(void);    /* a context ends, and another one takes its place */
void oracle_capture(void); /* begins or ends a capture */
void oracle_cache(void);   /* opens or closes a cache */
void oracle_configure(void);
void oracle_reset(void); /* of statistics */
/* Lets one of the next three device calls fail. `broken` must be set if AC_FAILED is possible. */
void oracle_plan_failure(bool failed_too);
/* Lets any context touch any memory from now on. */
void oracle_cross(void);

/* --- between the oracle's files --- */

/* Returns the key of a stream. */
static inline uint64_t oracle_key(int slot, int stream) {
    return 16 + 4 * (uint64_t)(slot * ORACLE_STREAMS + stream);
}

/* Makes a request for a stream of the context (or ORACLE_NO_STREAM). */
void oracle_request(int slot, int stream, bool cached_only);
/* Takes a live block from the program, and fills in the work that may touch it. */
oracle_live_t oracle_give_up(oracle_hazard_t *hazard);
void oracle_ordered(fake_context_t *context, uint64_t from, uint64_t to);

/* Returns a cache that may serve the context in `slot`, or free any block (-1); NULL: use
 * none. */
ac_cache_t *oracle_cache_for(int slot);
uint64_t oracle_size_for(const ac_cache_t *cache, uint64_t fresh);
/* Returns the number of blocks that wait in the cache (NULL: 0). */
uint64_t oracle_waiting(const ac_cache_t *cache);
/* Closes all caches, because the context of the slot ends. */
void oracle_caches_gone(int slot);
void oracle_caches_end(void);
/* Returns true if figures may be read now. A read publishes the caches' figures. */
bool oracle_caches_rest(void);
/* Counts a block that the program got (sign 1) or gave up (-1). */
void oracle_count(const oracle_live_t *live, int sign);
void oracle_peaks_reset(void);
void oracle_peaks_check(const ac_device_stats_t *stats);

#endif
