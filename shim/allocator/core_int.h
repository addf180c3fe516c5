/* Allocators and arenas as the rooms above space/ and order/ see them: what more than one of them
 * uses, and for each room a pointer to its own part, which only that room gives a meaning to.
 * The top makes all parts together (arena.c); they stay as long as the record, which is for ever.
 *
 * Guarded by the allocator's lock, but what is atomic, and what never changes: `allocator`, `ops`,
 * `context`, `counters` and the pointers to parts. */
#ifndef AC_CORE_INT_H
#define AC_CORE_INT_H

#include "allocator/order/fence.h"
#include "allocator/space/space.h"
#include "lock.h"

typedef struct ac_caches ac_caches_t;   /* cache/caches.h */
typedef struct ac_retired ac_retired_t; /* retired/retired.h */
typedef struct ac_ordered ac_ordered_t; /* retired/ordered_int.h */
typedef struct ac_growths ac_growths_t; /* supply/supply.h */
typedef struct ac_supply ac_supply_t;   /* supply/supply.h */

struct ac_arena {
    ac_allocator_t *allocator;
    const ac_device_ops_t *ops;
    void *context;
    ac_timeline_t timeline;
    union { /* one and the same: space/ is given it whole */
        ac_space_t space;
        struct {
            ac_store_t *store;
            ac_arena_t *itself;
            AC_SPACE_FIELDS
        };
    };
    ac_arena_t *next; /* the allocator's list; records stay for ever */
    bool dead;
    ac_ordered_t *ordered; /* blocks freed in stream order; NULL: never any */
    ac_retired_t *retired; /* freed, and not free yet */
    ac_growths_t *growths;
};

struct ac_allocator {
    ac_mutex_t lock;
    union { /* as in ac_arena */
        ac_store_t store;
        struct {
            AC_STORE_FIELDS
        };
    };
    ac_device_counters_t *counters;
    _Atomic(ac_arena_t *) arenas;
    unsigned calls;      /* device calls under way that add or give back segments */
    uint64_t changes;    /* number of device calls that changed what a request may find */
    ac_cond_t settled;   /* a call ended, or one that had a stream's handle */
    bool syncing;        /* a change of SYNC_MEMOPS is under way (identity.c) */
    ac_caches_t *caches; /* of threads, for all arenas */
    ac_supply_t *supply;
};

#endif
