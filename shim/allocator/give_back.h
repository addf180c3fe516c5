/* Between the files that give idle memory back (give_back.c). */
#ifndef AC_GIVE_BACK_H
#define AC_GIVE_BACK_H

#include "allocator/allocator_int.h"
#include "allocator/supply/supply.h"

/* What each of them begins with: caches are recalled, and what is ready joins the free memory. True:
 * the device is idle, or all work up to `target` (0: none is meant) is over, so that giving back
 * waits for nothing; else it is owed.  Takes the lock. */
bool ac_give_back_begin(ac_allocator_t *allocator, uint64_t target);

/* All that is picked goes, whatever `pick->bytes` says, as far as `kept` idle bytes stay.
 * Returns bytes.  Takes the lock. */
uint64_t ac_give_back_except(ac_allocator_t *allocator, const ac_shrink_t *pick, uint64_t kept);

/* After a free: tainted segments that are idle go; what cannot go yet is owed.  Takes the lock. */
void ac_give_back_leaving(ac_arena_t *arena);

#endif
