/* Memory for guarded blocks (space/guard_place.h): pages for a request, and their release after the free.  Up to
 * AC_GRANULE bytes on each side of the block have a pattern.  The library checks it after the device is done with
 * the block, before the pages go. */
#ifndef AC_GUARD_H
#define AC_GUARD_H

#include "allocator/core_int.h"
#include "allocator/supply/pages.h"

enum { AC_GUARD_BYTE = 0xa5 };

/* Adds memory for a request of `requested` bytes, rounded to `size`. Calls `serve` under the lock with the block,
 * which is in transit.  AC_GUARD_SHARE: guarded blocks would take more than a quarter of the device, or of the
 * limit, beyond their own bytes. */
typedef struct {
    ac_arena_t *arena;
    uint64_t requested, size; /* bytes */
    bool aside;               /* as in ac_growth_ask_t */
    void (*serve)(void *arg, ac_block_t *block);
    void *arg;
    uint64_t address; /* of the block */
    uint64_t before;  /* bytes in front of it on its pages */
} ac_guard_ask_t;
ac_guard_answer_t ac_guard_grow(ac_guard_ask_t *ask);

/* Gives back pages of freed blocks after the device is done with them.  Waits for nothing.  Returns bytes. */
uint64_t ac_guard_collect(ac_arena_t *arena);

/* Returns true if there are pages without a block that the program holds. */
bool ac_guard_waits(ac_arena_t *arena);

/* Called without a lock for a block with a damaged pattern.  Set once, before any allocator exists.  NULL: the
 * damage is only counted. */
typedef struct {
    uint64_t address, requested; /* bytes */
    int64_t at; /* the first byte that changed: before the block, or from its end on */
    unsigned asked_by, freed_by; /* modules (stats.h) */
} ac_guard_damage_t;
extern AC_HIDDEN void (*ac_guard_damaged)(const ac_guard_damage_t *damage);

#endif
