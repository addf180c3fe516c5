/* An oracle for the allocator on the fake device: operations that choose what they do by drawing
 * numbers, and the judgement of every step.  Its user gives the numbers: a generator
 * (check_model.c) or the bytes of a fuzzer (tests/unit/fuzz).  One at a time in a process.
 *
 * The oracle keeps, for each freed range, the work submitted before the free that may touch
 * it (contract: never handed out again, nor given to the driver, before that work is done), and
 * judges every "out of memory" by what completing everything and giving back all idle segments
 * would have left. */
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
    uint64_t serial;                /* of its lifetime; 0: never asked for */
} oracle_live_t;

/* A thread's cache, of the context in `slot` when it was opened; `gone`: that one has ended. */
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
    uint64_t need[ORACLE_CONTEXTS]; /* the work that has to be done first */
    /* Freed in stream order: streams of its context that come after it, and events. */
    uint32_t streams, events;
} oracle_hazard_t;

typedef struct {
    fake_device_t device;
    fake_context_t *context[ORACLE_CONTEXTS];
    ac_arena_t *arena[ORACLE_CONTEXTS];
    struct oracle_opened *opened; /* every context there was: late fences name them */
    ac_allocator_t *allocator;
    ac_device_stats_t stats;
    ac_device_counters_t counters;
    ac_settings_t settings;
    oracle_live_t live[ORACLE_LIVES];
    unsigned lives;
    uint64_t serials; /* the last that was given */
    oracle_hazard_t hazard[ORACLE_HAZARDS];
    unsigned hazards;
    oracle_cache_t cache[ORACLE_CACHES];
    unsigned most_caches;        /* at a time */
    uint64_t size[ORACLE_SIZES]; /* that requests through caches ask for again */
    bool steady;                 /* a cache stays open, and few sizes are asked for */
    unsigned waits, gathers;     /* frees that waited in a cache; requests that these served */
    oracle_figure_t blocks[AC_POOL_KINDS], bytes[AC_POOL_KINDS]; /* what the program holds */
    bool crowded, unsure;   /* since the last reset of peaks: several caches; something else */
    unsigned failed_before; /* device.failed then */
    bool was_reset, lock_held;
    bool broken;    /* a device call answered AC_FAILED: more requests may fail than need */
    bool untracked; /* work is submitted that the allocator is not told of */
    unsigned ooms, step;
} oracle_t;

extern oracle_t oracle;

/* --- what the user gives --- */

/* A number below `below` (> 0). */
uint64_t oracle_draw(uint64_t below);

/* A judgement, in printf's form; ends the run. */
_Noreturn void oracle_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- a run --- */

/* Fresh contexts on a fresh device; with `bump` it never hands out an address twice; with `pages`
 * arenas grow by them. */
void oracle_begin(bool bump, bool pages);
/* All contexts end; nothing may be left. */
void oracle_end(void);
/* After each operation. */
void oracle_check(void);

/* --- operations --- */

void oracle_alloc(bool cached_only);
void oracle_free(void);
void oracle_bad_free(void);
/* The same in the order of a stream, and what the program says of the order of streams. */
void oracle_alloc_on(bool cached_only);
void oracle_free_on(void);
void oracle_record(void);
void oracle_wait_event(void);
void oracle_event_seen(void);
void oracle_stream_gone(void); /* another one gets its key */
void oracle_mark_used(void);
void oracle_submit(void);
void oracle_complete(void);
void oracle_synchronize(void);
void oracle_trim(void);
void oracle_settle(void); /* records of slots go */
void oracle_taint(void);
/* Another asks who a block is, or wants its memory operations to be synchronous. */
void oracle_identify(void);
void oracle_sync(void);
void oracle_drop(void);    /* a context ends, another one takes its place */
void oracle_capture(void); /* begins or ends one */
void oracle_cache(void);   /* opens or closes one */
void oracle_configure(void);
void oracle_reset(void); /* of statistics */
/* One of the next three device calls fails; `broken` has to be set where AC_FAILED may be. */
void oracle_plan_failure(bool failed_too);
/* From now on any context may touch any memory. */
void oracle_cross(void);

/* --- between the oracle's files --- */

/* The key of a stream. */
static inline uint64_t oracle_key(int slot, int stream) {
    return 16 + 4 * (uint64_t)(slot * ORACLE_STREAMS + stream);
}

/* A request, of a stream (or ORACLE_NO_STREAM) of the context. */
void oracle_request(int slot, int stream, bool cached_only);
/* Takes a live block from the program, with the work that may touch it. */
oracle_live_t oracle_give_up(oracle_hazard_t *hazard);
void oracle_ordered(fake_context_t *context, uint64_t from, uint64_t to);

/* A cache that may serve the context in `slot`, or free anything (-1); NULL: go without. */
ac_cache_t *oracle_cache_for(int slot);
uint64_t oracle_size_for(const ac_cache_t *cache, uint64_t fresh);
/* Blocks that wait in the cache (NULL: none). */
uint64_t oracle_waiting(const ac_cache_t *cache);
/* The context of the slot ends; all caches close. */
void oracle_caches_gone(int slot);
void oracle_caches_end(void);
/* Whether figures may be read now: that publishes what caches did. */
bool oracle_caches_rest(void);
/* The program got the block (sign 1) or has it no more (-1). */
void oracle_count(const oracle_live_t *live, int sign);
void oracle_peaks_reset(void);
void oracle_peaks_check(const ac_device_stats_t *stats);

#endif
