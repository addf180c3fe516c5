/* Shared by the files that give idle memory back (give_back.c). */
#ifndef AC_GIVE_BACK_H
#define AC_GIVE_BACK_H

#include "allocator/allocator_int.h"
#include "allocator/supply/supply.h"

/* Begins to give memory back: recalls the caches, and adds all that is ready to the free memory.  Returns
 * true if the device is idle, or all work up to `target` (0: none is meant) is over, so that giving back
 * waits for nothing; else a trim is pending.  Takes the lock. */
bool ac_give_back_begin(ac_allocator_t *allocator, uint64_t target);

/* All that is picked goes, whatever `pick->bytes` says, as far as `kept` idle bytes stay.
 * Returns bytes.  Takes the lock. */
uint64_t ac_give_back_except(ac_allocator_t *allocator, const ac_shrink_t *pick, uint64_t kept);

/* Called after a free: gives back exported segments that are idle; for the others a trim is pending.
 * Takes the lock. */
void ac_give_back_leaving(ac_arena_t *arena);

#endif
