/* Device statistics as plain memory.  The allocator writes them under its lock; ac_allocator_figures copies
 * figures that match under it.  Another process reads each field by itself from the shared mapping (live.h).
 * Therefore the structures consist only of 64-bit words. */
#ifndef AC_STATS_H
#define AC_STATS_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define AC_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AC_TSAN
#endif
#endif

typedef struct {
    int64_t current;   /* now */
    int64_t peak;      /* highest `current` since the last peak reset */
    int64_t allocated; /* sum of all increases since the last accumulated reset */
    int64_t freed;     /* sum of all decreases; allocated - freed == current until a reset */
} ac_stat_t;

enum { AC_POOL_ALL, AC_POOL_SMALL, AC_POOL_LARGE, AC_POOL_KINDS };

/* Requests and frees by module: the program, or a library that the loader brought in.  The figures only grow;
 * a module holds the difference of sums over all parts of the account.  Module 0: not known, or beyond the
 * others.
 *
 * Arrays instead of an array of structures: a hit reaches each figure with one instruction. */
enum { AC_MODULES = 20, AC_MODULE_UNKNOWN = 0 };
typedef struct {
    uint64_t allocs[AC_MODULES]; /* requests that were served */
    uint64_t alloc_bytes[AC_MODULES], free_bytes[AC_MODULES];
} ac_modules_t;

typedef struct {
#define STAT_COUNT(name, doc)        int64_t name;
#define STAT_POOLS(name, unit, doc)  ac_stat_t name[AC_POOL_KINDS];
#define STAT_SINGLE(name, unit, doc) ac_stat_t name;
#include "observe/stats.def"
    /* Counted under the lock; caches of threads have the rest (ac_cache_tally_t). */
    ac_modules_t modules;
} ac_device_stats_t;

typedef struct {
#define DEVICE_COUNTER(name, unit, doc) uint64_t name;
#include "observe/counters.def"
} ac_device_counters_t;

/* Figures of the process: pinned memory belongs to no device (allocator/host/). */
typedef struct {
#define HOST_STAT(name, unit, doc) ac_stat_t name;
#define HOST_COUNT(name, doc)      int64_t name;
#include "observe/host_stats.def"
} ac_host_stats_t;

static inline void ac_stat_up(ac_stat_t *s, int64_t n) {
    s->current += n;
    s->allocated += n;
    if (s->current > s->peak)
        s->peak = s->current;
}

static inline void ac_stat_down(ac_stat_t *s, int64_t n) {
    s->current -= n;
    s->freed += n;
}

/* Changes `all` and one pool's entry; `pool` is AC_POOL_SMALL or AC_POOL_LARGE. */
static inline void ac_stat_pools_up(ac_stat_t s[AC_POOL_KINDS], int pool, int64_t n) {
    ac_stat_up(&s[AC_POOL_ALL], n);
    ac_stat_up(&s[pool], n);
}

static inline void ac_stat_pools_down(ac_stat_t s[AC_POOL_KINDS], int pool, int64_t n) {
    ac_stat_down(&s[AC_POOL_ALL], n);
    ac_stat_down(&s[pool], n);
}

/* The figures that caches of threads also change (cache_tally.c). */
#define AC_TALLIED(ROW)                                                                          \
    ROW(allocation)                                                                              \
    ROW(allocated_bytes) ROW(active) ROW(active_bytes) ROW(requested_bytes)

/* `current` of a tallied figure may rise this far above its peak before peaks are due.  The rise may include memory
 * that threads freed and the device statistics have not absorbed yet. */
#define AC_STAT_UNSEEN_BYTES ((int64_t)32 << 20)
enum { AC_STAT_UNSEEN_BLOCKS = 8192 };

/* Adds `n` to a tallied figure and to its pool, but not to their peaks.  Sets *due if one is more than
 * `unseen` above its peak. */
static inline void ac_stat_pools_rise(ac_stat_t s[AC_POOL_KINDS], int pool, int64_t n,
                                      int64_t unseen, bool *due) {
    s[AC_POOL_ALL].current += n;
    s[AC_POOL_ALL].allocated += n;
    s[pool].current += n;
    s[pool].allocated += n;
    *due |= s[AC_POOL_ALL].current - s[AC_POOL_ALL].peak > unseen ||
            s[pool].current - s[pool].peak > unseen;
}

/* Blocks that passed through one thread's cache (allocator/cache/thread_cache.h), by pool: small, large.
 * The figures only grow. */
enum { AC_FLOWS = 2 };
typedef struct {
    uint64_t taken, taken_bytes, taken_requested; /* handed out */
    uint64_t given, given_bytes, given_requested; /* freed */
} ac_cache_flow_t;

/* Given blocks that still wait and are therefore active.  Rises and falls. */
typedef struct {
    uint64_t blocks, bytes, requested;
} ac_cache_wait_t;

/* Figures of one pool. */
typedef struct {
    ac_cache_flow_t flow;
    ac_cache_wait_t waiting;
} ac_cache_side_t;

/* The tally of one thread's cache.  The thread alone changes the members above `absorbed`, without a lock.
 * `absorbed` is the part that the device statistics have; it and the next members change under the device's
 * lock.  It consists of 64-bit words alone, since other processes read it. */
typedef struct {
    uint64_t device; /* number of its entry + 1; 0: unused */
    ac_cache_side_t side[AC_FLOWS];
    uint64_t ordered; /* given blocks protected by the order of a stream */
    uint64_t fenced;  /* given blocks that had to wait */
    /* Taken and given blocks in the order of a stream. */
    uint64_t async_taken, async_given;
    ac_cache_flow_t absorbed[AC_FLOWS];
    ac_cache_wait_t waiting_absorbed[AC_FLOWS];
    uint64_t ordered_absorbed, fenced_absorbed, async_taken_absorbed, async_given_absorbed;
    /* Blocks put in without a free, less blocks taken out. */
    uint64_t moved_blocks[AC_FLOWS], moved_bytes[AC_FLOWS];
    /* Changed by the thread alone.  Blocks taken beyond these sums belong to the module `asks`, blocks given
     * beyond them to `frees`.  So a hit counts nothing for a module. */
    ac_modules_t modules;
    uint64_t asks, frees;
} ac_cache_tally_t;

/* Returns the number of blocks of one pool in the cache, waiting ones included. */
static inline uint64_t ac_cache_tally_held(const ac_cache_tally_t *tally, int i) {
    const ac_cache_flow_t *flow = &tally->side[i].flow;
    return __atomic_load_n(&flow->given, __ATOMIC_RELAXED) -
           __atomic_load_n(&flow->taken, __ATOMIC_RELAXED) +
           __atomic_load_n(&tally->moved_blocks[i], __ATOMIC_RELAXED);
}

static inline bool ac_tally_same(const uint64_t *figure, const uint64_t *absorbed) {
    return __atomic_load_n(figure, __ATOMIC_RELAXED) == *absorbed;
}

/* Returns true if the device statistics have all of the tally, to which its thread may be adding.  Compares every
 * figure: an absorption during a hit may have some of the hit's figures and lack others. */
static inline bool ac_cache_tally_absorbed(const ac_cache_tally_t *tally) {
    for (int i = 0; i < AC_FLOWS; i++) {
        const ac_cache_flow_t *flow = &tally->side[i].flow, *absorbed = &tally->absorbed[i];
        const ac_cache_wait_t *waits = &tally->side[i].waiting;
        const ac_cache_wait_t *before = &tally->waiting_absorbed[i];
        if (!ac_tally_same(&flow->taken, &absorbed->taken) ||
            !ac_tally_same(&flow->taken_bytes, &absorbed->taken_bytes) ||
            !ac_tally_same(&flow->taken_requested, &absorbed->taken_requested) ||
            !ac_tally_same(&flow->given, &absorbed->given) ||
            !ac_tally_same(&flow->given_bytes, &absorbed->given_bytes) ||
            !ac_tally_same(&flow->given_requested, &absorbed->given_requested) ||
            !ac_tally_same(&waits->blocks, &before->blocks) ||
            !ac_tally_same(&waits->bytes, &before->bytes) ||
            !ac_tally_same(&waits->requested, &before->requested))
            return false;
    }
    return true;
}

/* Sums over tallies of the parts that the device statistics lack. */
typedef struct {
    ac_cache_flow_t flow[AC_FLOWS];
    ac_cache_wait_t waiting[AC_FLOWS]; /* growth; negative if it fell */
    uint64_t ordered, fenced, async_taken, async_given;
    uint64_t held_blocks, held_bytes; /* in the caches now, and ready */
    uint64_t waiting_blocks;          /* not ready */
} ac_cache_sum_t;

/* Adds to a figure that only this thread changes and others may read.  A plain store suffices: no machine with
 * CUDA writes an aligned word in parts. */
static inline void ac_tally_add(uint64_t *figure, uint64_t n) {
#ifdef AC_TSAN
    __atomic_store_n(figure, *figure + n, __ATOMIC_RELAXED);
#else
    *figure += n;
#endif
}

/* Counts a block of `bytes` that the module takes or gives.  The caller alone changes these figures. */
static inline void ac_modules_take(ac_modules_t *modules, unsigned module, uint64_t bytes) {
    ac_tally_add(&modules->allocs[module], 1);
    ac_tally_add(&modules->alloc_bytes[module], bytes);
}

static inline void ac_modules_give(ac_modules_t *modules, unsigned module, uint64_t bytes) {
    ac_tally_add(&modules->free_bytes[module], bytes);
}

/* Sets the module of later blocks that the tally's thread takes (_ask_for) or gives (_free_for).  Charges the blocks
 * since the last call to the former module.  *named: sums of charged blocks, zero at first.  Called by the thread. */
typedef struct {
    uint64_t allocs, alloc_bytes, free_bytes;
} ac_modules_named_t;
void ac_cache_tally_ask_for(ac_cache_tally_t *tally, ac_modules_named_t *named, unsigned module);
void ac_cache_tally_free_for(ac_cache_tally_t *tally, ac_modules_named_t *named, unsigned module);

/* Charges one block of `bytes` that the thread just gave to `module`.  Called after the block was counted as given,
 * so that readers never see more bytes of modules than were given. */
static inline void ac_cache_tally_free_of(ac_cache_tally_t *tally, ac_modules_named_t *named,
                                          unsigned module, uint64_t bytes) {
    uint64_t *figure = &tally->modules.free_bytes[module];
#ifdef AC_TSAN
    __atomic_store_n(figure, *figure + bytes, __ATOMIC_RELEASE);
#else
    __atomic_thread_fence(__ATOMIC_RELEASE); /* no instruction on x86; a release store would take three */
    *figure += bytes;
#endif
    named->free_bytes += bytes;
}

/* Adds the modules of the tally to *to; the tally's thread may be adding to it. */
void ac_cache_tally_modules(const ac_cache_tally_t *tally, ac_modules_t *to);

/* Returns the bytes that all modules hold. */
int64_t ac_modules_bytes(const ac_modules_t *modules);

/* Adds the tally to *sum; with `absorb` it then counts as absorbed. */
void ac_cache_tally_add(ac_cache_tally_t *tally, bool absorb, ac_cache_sum_t *sum);

/* Adds *sum to the device statistics, except to peaks. */
void ac_stats_absorb(ac_device_stats_t *s, ac_device_counters_t *counters,
                     const ac_cache_sum_t *sum);

/* Raises the peaks of the AC_TALLIED figures to their current values. */
void ac_stats_raise(ac_device_stats_t *s);

/* Sets every peak to its current value.  Pre: the lock that guards `s` is held. */
void ac_stats_reset_peak(ac_device_stats_t *s);

/* Sets `allocated`, `freed` and the counts of events to 0. */
void ac_stats_reset_accumulated(ac_device_stats_t *s);

#endif
