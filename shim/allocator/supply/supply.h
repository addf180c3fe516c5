/* Memory from the device and back to it.  Two kinds behind one interface: native segments, which
 * the driver allocates (native.c), and pages that are mapped into reserved ranges (expand.h).
 *
 * Giving back: the driver's own free may wait for all work of the device.  So memory goes back
 * where the device has nothing to do, or where a request would fail; else what is over the budget
 * is *owed*, and goes back later.  And only what is quiet: the device is done with it
 * (ac_segment_t, ac_range_hole_enter).
 *
 * The caller has recalled the caches of threads before, where what they keep may matter: nothing
 * here looks into them, nor at what is freed and waits.  Functions take the lock themselves unless
 * they say otherwise. */
#ifndef AC_SUPPLY_H
#define AC_SUPPLY_H

#include "allocator/core_int.h"
#include "allocator/policy.h"
#include "allocator/supply/pages.h"

/* Of an allocator whose arenas grow by pages (expand.h). */
typedef struct {
    enum { AC_EXPAND_UNKNOWN, AC_EXPAND_ABLE, AC_EXPAND_UNABLE } able; /* what the device is */
    ac_range_support_t support;
    ac_toll_t toll;
    uint64_t peerings; /* how often ac_expand_allow was called */
    ac_refused_t refused;
} ac_expand_t;

/* What was learned of medium blocks (medium.h). */
typedef struct {
    bool apart;      /* they have memory of their own */
    uint64_t looked; /* reserved bytes at which it is looked next whether they need pages */
    uint64_t grown;  /* native bytes of requests that medium blocks were seen to keep from free memory */
    /* Blocks that were looked at and not paid for yet, and requests of the program at that time. */
    uint64_t owed, requests;
} ac_medium_t;

/* What was learned of big blocks (medium.h). */
typedef struct {
    bool apart;     /* they have native segments of their own */
    uint64_t grown; /* bytes of their requests that smaller blocks were seen to keep from free memory */
    uint64_t least; /* high-water mark by which their segments were sorted last */
    uint64_t together; /* live bytes when that took too many calls; 0: never */
    uint64_t requests; /* of the program, when `trades` began */
    unsigned trades, costly; /* segments made in the place of others; windows in a row with many */
} ac_big_t;

/* Of an allocator. */
struct ac_supply {
    uint32_t owed_epochs; /* what was idle for so many is owed; 0: nothing */
    _Atomic bool owes;    /* memory is to go back (ac_supply_owe) */
    uint64_t growing;     /* bytes that the device is being asked for */
    uint64_t claimed;     /* the same past the allocator, and native segments that leave */
    uint64_t ceiling;     /* reserved bytes at which the device had no more; 0: not known */
    ac_expand_t expand;
    ac_medium_t medium;
    ac_big_t big;
};

/* Of an arena: calls under way that ask the device for a segment, and bytes of those that no
 * request has a claim to, by the index that the segment will have; 0: none. */
struct ac_growths {
    unsigned calls[AC_INDICES];
    uint64_t coming[AC_INDICES];
};

/* --- growing --- */

/* For whom memory is asked.  `serve` and `look` are called under the lock. */
typedef struct {
    ac_arena_t *arena;
    int pool;
    uint64_t size; /* bytes, a multiple of AC_GRANULE */
    bool medium;   /* in memory for such blocks (medium.h) */
    bool guard;    /* on pages of its own (guard.h) */
    bool aside;    /* of a stream: the driver would serve it beside any capture */
    bool shrink;   /* pages of the least size, whatever it costs: before the request fails */
    /* ns: how long it may wait for holes that the device works on; 0: not at all. */
    uint64_t until;
    /* Memory may leave the device when this was reached: out of memory (oom.h); 0: when the
     * device is idle. */
    uint64_t target;
    /* What was added since the last look may serve the request.  True: it did. */
    bool (*look)(void *arg);
    /* The request is served with the free block, of memory that was added for it. */
    void (*serve)(void *arg, ac_block_t *block);
    void *arg;
    uint64_t changes; /* how many of the allocator's `changes` this growth made */
    unsigned index;   /* under which the call that is under way was announced (native.c) */
    bool refused;     /* it was the device that had no more pages, not the limit */
    /* Memory that the device gave and that cannot be added yet: ac_supply_adopt. */
    uint64_t stale_address, stale_bytes; /* bytes; 0: none */
} ac_growth_ask_t;

/* Add memory within the limit.  AC_OK: served.  AC_OOM; AC_BUSY: something captures; AC_FAILED.
 * With `stale_bytes` afterwards the device gave memory whose pages are those of a segment: the
 * context of that one has ended unseen.  The caller forgets it, in all rooms, and calls
 * _adopt, which adds the memory or gives it back: AC_OK or AC_FAILED. */
ac_status_t ac_supply_grow(ac_growth_ask_t *ask);
ac_status_t ac_supply_adopt(ac_growth_ask_t *ask);

/* Bytes of the least segment for a request. */
static inline uint64_t ac_supply_least(int pool, uint64_t size) {
    return pool == AC_POOL_SMALL ? AC_SMALL_SEGMENT
                                 : (size + AC_SEGMENT_ALIGN - 1) & ~(AC_SEGMENT_ALIGN - 1);
}

/* --- giving back --- */

/* What goes, of what is idle and quiet: first what was idle longest. */
typedef struct {
    uint64_t bytes;  /* so many; AC_UNLIMITED */
    uint32_t epochs; /* only what was idle for so many whole ones (ac_allocator_decay); 0: all */
    bool large;      /* of native segments only those of the large pool */
    bool leaving;    /* tainted segments first, however many */
    bool within;     /* never more than `bytes`: a segment that is larger stays */
} ac_shrink_t;

/* Give back memory of all arenas.  Returns bytes. */
uint64_t ac_supply_shrink(ac_allocator_t *allocator, const ac_shrink_t *pick);

/* Give back tainted segments of the arena.  Returns bytes. */
uint64_t ac_supply_shrink_leaving(ac_arena_t *arena);

/* What is reserved beyond gc_threshold x limit goes back.  Returns bytes. */
uint64_t ac_supply_collect(ac_allocator_t *allocator);

/* Bytes that are reserved beyond the budget. */
uint64_t ac_supply_excess(ac_allocator_t *allocator);

/* Memory is to go back as soon as that waits for nothing.  Takes no lock. */
void ac_supply_owe(ac_allocator_t *allocator);

/* Memory may be owed from now on without a call of ours: it is looked at again and again
 * (ac_allocator_settle_debt).  Takes no lock. */
void ac_supply_watch(void);

/* Under the lock: one of `calls` ended; `changed`: others may find more now. */
void ac_supply_end_call(ac_allocator_t *allocator, bool changed);

/* --- the kinds --- */

/* AC_UNSUPPORTED: the device has no memory of that kind. */
typedef struct {
    ac_status_t (*grow)(ac_growth_ask_t *ask);
    uint64_t (*shrink)(ac_arena_t *arena, const ac_shrink_t *pick);
} ac_supply_kind_t;
extern const ac_supply_kind_t ac_supply_native, ac_supply_pages;

/* The device would not give this, and native segments serve instead (ac_expand_refused). */
void ac_expand_refuse(ac_allocator_t *allocator, ac_refused_t what);

/* The device gave no page: where it cannot be full, for another reason than memory, and a native
 * segment may be had. */
ac_status_t ac_native_grow_instead(ac_growth_ask_t *ask);

/* Bytes that are reserved, or that the device is being asked for.  Under the lock. */
static inline uint64_t ac_supply_taken(const ac_allocator_t *allocator) {
    return (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current +
           allocator->supply->growing;
}

/* The limit, less what the driver gave the program past the allocator or is being asked for.  Under the
 * lock. */
static inline uint64_t ac_supply_limit(const ac_allocator_t *allocator) {
    const ac_device_counters_t *held = allocator->counters;
    uint64_t limit = allocator->settings.limit;
    uint64_t beside = allocator->supply->claimed + held->driver_bytes + held->driver_pool_bytes +
                      held->physical_bytes + held->array_bytes;
    return limit == AC_UNLIMITED ? limit : limit > beside ? limit - beside : 0;
}

/* So many bytes, and no more than the device was seen to have, nor than the limit.  Under the
 * lock. */
static inline uint64_t ac_supply_bound(const ac_allocator_t *allocator, uint64_t bytes) {
    uint64_t ceiling = allocator->supply->ceiling, limit = ac_supply_limit(allocator);
    bytes = ceiling && ceiling < bytes ? ceiling : bytes;
    return limit < bytes ? limit : bytes;
}

/* The high-water mark of allocated bytes, with a request of `size`.  Under the lock. */
static inline uint64_t ac_supply_live(const ac_allocator_t *allocator, uint64_t size) {
    uint64_t live = (uint64_t)allocator->stats->allocated_bytes[AC_POOL_ALL].current + size;
    return live > allocator->high_water ? live : allocator->high_water;
}

/* Requests of the program so far, as the device statistics have them.  Under the lock. */
static inline uint64_t ac_supply_requests(const ac_allocator_t *allocator) {
    return (uint64_t)allocator->stats->allocation[AC_POOL_ALL].allocated;
}

/* Up to which target work on the arena's memory is over. */
uint64_t ac_supply_reached(ac_arena_t *arena);

/* Wait for all work on the arena's memory that was submitted up to now, as long as the request may,
 * and only where nothing keeps it from ending.  False: it did not wait. */
bool ac_supply_wait(const ac_growth_ask_t *ask);

/* Whether giving back waits for nothing now, or for work that was waited for: up to `target`, if
 * not 0.  Where that could give anything, and does wait, it is owed. */
bool ac_supply_may_shrink(ac_allocator_t *allocator, uint64_t target);

#endif
