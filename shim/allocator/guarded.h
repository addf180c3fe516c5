/* Frees of guarded blocks (space/guard_place.h), between the files of the top. */
#ifndef AC_GUARD_FREES_H
#define AC_GUARD_FREES_H

#include "allocator/allocator.h"

/* Under the lock: the program frees the guarded block. */
void ac_guard_note_freed(const ac_block_t *block);

/* Without it, when the block is free or waits: its pages go when the device is done with them, now
 * or later (owed).  With `wait` that is waited for, a second at the most, and other threads that
 * take such pages away, for half a second. */
void ac_guard_freed(ac_arena_t *arena, bool wait);

#endif
