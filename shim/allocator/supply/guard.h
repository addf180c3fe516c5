/* Guarded blocks that come and go (space/guard_place.h): memory for a request on pages of its own, and what
 * becomes of it after its free.
 *
 * What lies around the block on its pages, up to AC_GRANULE bytes on each side, has a pattern.  It is
 * looked at before the pages go, when the device is done with them. */
#ifndef AC_GUARD_H
#define AC_GUARD_H

#include "allocator/core_int.h"
#include "allocator/supply/pages.h"

enum { AC_GUARD_BYTE = 0xa5 };

/* Add memory for a request of `requested` bytes, of `size` with rounding; `serve` is called under the
 * lock with the block, in transit.  AC_GUARD_SHARE where guarded blocks would take more than a quarter
 * of the device, or of the limit, beyond their own bytes. */
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

/* Pages of blocks that are free go, where the device is done with them.  Returns bytes.  Waits for
 * nothing. */
uint64_t ac_guard_collect(ac_arena_t *arena);

/* Whether there are pages that are no block's which the program holds. */
bool ac_guard_waits(ac_arena_t *arena);

/* A block whose surroundings were written to.  Set once, before any allocator is made; NULL: it is only
 * counted.  Called without a lock. */
typedef struct {
    uint64_t address, requested; /* bytes */
    int64_t at; /* the first byte that changed: before the block, or from its end on */
    unsigned asked_by, freed_by; /* modules (stats.h) */
} ac_guard_damage_t;
extern AC_HIDDEN void (*ac_guard_damaged)(const ac_guard_damage_t *damage);

#endif
