/* Frees of guarded blocks (space/guard_place.h), between the files of the top. */
#ifndef AC_GUARD_FREES_H
#define AC_GUARD_FREES_H

#include "allocator/allocator.h"

/* Notes that the program frees the guarded block.  The caller holds the lock. */
void ac_guard_note_freed(const ac_block_t *block);

/* Called without the lock, when the block is free or waits: unmaps its pages if the device is done with
 * them; else a trim is pending.  With `wait` it waits for the device, a second at most, and for other
 * threads that are unmapping guarded pages, half a second at most. */
void ac_guard_freed(ac_arena_t *arena, bool wait);

#endif
