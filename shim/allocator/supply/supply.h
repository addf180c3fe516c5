/* Memory from the device and back to it.  There are two kinds behind one interface: native segments, which the
 * driver allocates (native.c), and pages that are mapped into reserved ranges (expand.h).
 *
 * Giving back: the driver's own free may wait for all work of the device.  So memory goes back only while the
 * device is idle, or before a request fails.  Otherwise memory above the budget is a pending trim.  Memory must be
 * quiet: the device is done with it (ac_segment_t, ac_range_hole_enter).
 *
 * If it matters what thread caches keep, the caller has recalled them: no function here looks into them, nor at
 * pending frees.  Functions take the lock themselves unless they say otherwise. */
#ifndef AC_SUPPLY_H
#define AC_SUPPLY_H

#include "allocator/core_int.h"
#include "allocator/policy.h"
#include "allocator/supply/pages.h"

/* State of an allocator that grows by pages (expand.h). */
typedef struct {
    enum { AC_EXPAND_UNKNOWN, AC_EXPAND_ABLE, AC_EXPAND_UNABLE } able; /* what the device can do */
    ac_range_support_t support;
    ac_toll_t toll;
    uint64_t peerings; /* how often ac_expand_allow was called */
    ac_refused_t refused;
} ac_expand_t;

/* What the allocator learned about medium blocks (medium.h). */
typedef struct {
    bool apart;      /* they have memory of their own */
    uint64_t looked; /* reserved bytes at which it is looked next whether they need pages */
    uint64_t grown;  /* native bytes of requests that medium blocks were seen to keep from free memory */
    /* Visited blocks that no request has paid for yet, and the program's requests at that time. */
    uint64_t owed, requests;
} ac_medium_t;

/* What the allocator learned about big blocks (medium.h). */
typedef struct {
    bool apart;     /* they have native segments of their own */
    uint64_t grown; /* bytes of their requests that smaller blocks were seen to keep from free memory */
    uint64_t least; /* high-water mark by which their segments were sorted last */
    uint64_t together; /* live bytes when that took too many calls; 0: never */
    uint64_t requests; /* of the program, when `trades` began */
    unsigned trades, costly; /* segments made in the place of others; windows in a row with many */
} ac_big_t;

/* State of an allocator. */
struct ac_supply {
    /* a postponed decay: memory that was idle for this many epochs goes back; 0: none */
    uint32_t pending_epochs;
    _Atomic bool trim_pending; /* memory is to go back (ac_supply_postpone_trim) */
    uint64_t growing;     /* bytes that the device is being asked for */
    uint64_t claimed;     /* the same past the allocator, and native segments that leave */
    uint64_t ceiling;     /* reserved bytes at which the device had no more; 0: not known */
    ac_expand_t expand;
    ac_medium_t medium;
    ac_big_t big;
};

/* State of an arena, by the index that a new segment will have: device calls that ask for a segment, and bytes of
 * these segments that no request has claimed. */
struct ac_growths {
    unsigned calls[AC_INDICES];
    uint64_t coming[AC_INDICES];
};

/* --- growing --- */

/* A request for new memory.  `serve` and `look` are called under the lock. */
typedef struct {
    ac_arena_t *arena;
    int pool;
    uint64_t size; /* bytes, a multiple of AC_GRANULE */
    bool medium;   /* in memory for medium blocks (medium.h) */
    bool guard;    /* on pages of its own (guard.h) */
    bool aside;    /* of a stream: the driver would serve it during any capture */
    bool shrink;   /* pages of the least size, whatever it costs: before the request fails */
    /* ns: how long it may wait for holes that the device works on; 0: not at all. */
    uint64_t until;
    /* Memory may leave the device when this was reached: out of memory (oom.h); 0: when the
     * device is idle. */
    uint64_t target;
    /* Serves the request with memory that was added since the last look.  Returns true if it did. */
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

/* Adds memory within the limit and serves the request.  AC_BUSY: a stream captures.  If `stale_bytes` is set
 * afterwards, the device gave memory whose pages belong to a segment: the context of that segment ended unseen.
 * The caller forgets the segment in all rooms, then calls _adopt, which adds the memory or gives it back: AC_OK or
 * AC_FAILED. */
ac_status_t ac_supply_grow(ac_growth_ask_t *ask);
ac_status_t ac_supply_adopt(ac_growth_ask_t *ask);

/* Returns the bytes of the smallest segment for a request. */
static inline uint64_t ac_supply_least(int pool, uint64_t size) {
    return pool == AC_POOL_SMALL ? AC_SMALL_SEGMENT
                                 : (size + AC_SEGMENT_ALIGN - 1) & ~(AC_SEGMENT_ALIGN - 1);
}

/* --- giving back --- */

/* Which idle and quiet memory goes back, longest idle first. */
typedef struct {
    uint64_t bytes;  /* so many; AC_UNLIMITED */
    uint32_t epochs; /* only memory idle for this many whole epochs (ac_allocator_decay); 0: all */
    bool large;      /* only native segments of the large pool */
    bool leaving;    /* tainted segments first, however many */
    bool within;     /* never more than `bytes`: a segment that is larger stays */
} ac_shrink_t;

/* Gives back memory of all arenas.  Returns bytes. */
uint64_t ac_supply_shrink(ac_allocator_t *allocator, const ac_shrink_t *pick);

/* Gives back tainted segments of the arena.  Returns bytes. */
uint64_t ac_supply_shrink_leaving(ac_arena_t *arena);

/* Gives back memory beyond gc_threshold x limit.  Returns bytes. */
uint64_t ac_supply_collect(ac_allocator_t *allocator);

/* Returns the bytes that are reserved beyond the budget. */
uint64_t ac_supply_excess(ac_allocator_t *allocator);

/* Makes a trim pending, also for pages of guarded blocks: until giving back waits for nothing.  Takes no lock. */
void ac_supply_postpone_trim(ac_allocator_t *allocator);

/* Watches for pending trims from now on: the library calls ac_allocator_settle_debt regularly.  Takes no lock. */
void ac_supply_watch(void);

/* Notes the end of one of `calls`. `changed`: requests of others may find more now.  Under the lock. */
void ac_supply_end_call(ac_allocator_t *allocator, bool changed);

/* --- the kinds --- */

/* A kind of memory.  AC_UNSUPPORTED: the device does not have it. */
typedef struct {
    ac_status_t (*grow)(ac_growth_ask_t *ask);
    uint64_t (*shrink)(ac_arena_t *arena, const ac_shrink_t *pick);
} ac_supply_kind_t;
extern const ac_supply_kind_t ac_supply_native, ac_supply_pages;

/* Notes what the device refused, so that native segments serve instead (ac_expand_refused). */
void ac_expand_refuse(ac_allocator_t *allocator, ac_refused_t what);

/* Called when the device gave no page.  Grows by a native segment if the device is not full, and refused for
 * another reason. */
ac_status_t ac_native_grow_instead(ac_growth_ask_t *ask);

/* Returns the bytes that are reserved or requested from the device.  Under the lock. */
static inline uint64_t ac_supply_taken(const ac_allocator_t *allocator) {
    return (uint64_t)allocator->stats->reserved_bytes[AC_POOL_ALL].current +
           allocator->supply->growing;
}

/* Returns the limit, less the memory that the driver gave the program directly or is asked for.  Under the lock. */
static inline uint64_t ac_supply_limit(const ac_allocator_t *allocator) {
    const ac_device_counters_t *held = allocator->counters;
    uint64_t limit = allocator->settings.limit;
    uint64_t beside = allocator->supply->claimed + held->driver_bytes + held->driver_pool_bytes +
                      held->physical_bytes + held->array_bytes;
    return limit == AC_UNLIMITED ? limit : limit > beside ? limit - beside : 0;
}

/* Returns `bytes`, at most the limit and the most that the device was seen to have.  Under the lock. */
static inline uint64_t ac_supply_bound(const ac_allocator_t *allocator, uint64_t bytes) {
    uint64_t ceiling = allocator->supply->ceiling, limit = ac_supply_limit(allocator);
    bytes = ceiling && ceiling < bytes ? ceiling : bytes;
    return limit < bytes ? limit : bytes;
}

/* Returns the high-water mark of allocated bytes, with a request of `size`. Under the lock. */
static inline uint64_t ac_supply_live(const ac_allocator_t *allocator, uint64_t size) {
    uint64_t live = (uint64_t)allocator->stats->allocated_bytes[AC_POOL_ALL].current + size;
    return live > allocator->high_water ? live : allocator->high_water;
}

/* Returns the number of requests so far that the device statistics include.  Under the lock. */
static inline uint64_t ac_supply_requests(const ac_allocator_t *allocator) {
    return (uint64_t)allocator->stats->allocation[AC_POOL_ALL].allocated;
}

/* Returns the target up to which work on the arena's memory is over. */
uint64_t ac_supply_reached(ac_arena_t *arena);

/* Waits for all work on the arena's memory that was submitted so far, as long as the request may.  Returns false if
 * it did not wait, because the wait might never end. */
bool ac_supply_wait(const ac_growth_ask_t *ask);

/* Returns true if giving back waits for nothing, or only for work up to `target` (0: none) that is over.  If it
 * would wait, the trim is pending. */
bool ac_supply_may_shrink(ac_allocator_t *allocator, uint64_t target);

#endif
