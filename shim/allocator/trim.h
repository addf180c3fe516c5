/* Giving idle segments back to the device. */
#ifndef AC_TRIM_H
#define AC_TRIM_H

#include "allocator/allocator_int.h"

/* Give back idle segments of one arena, longest idle first, until `bytes` are reached. Takes the
 * lock. Returns the bytes given back. */
uint64_t ac_trim_arena(ac_arena_t *arena, uint64_t bytes);

/* The same for all that were idle for `epochs` whole ones (ac_allocator_decay). */
uint64_t ac_trim_aged(ac_arena_t *arena, uint32_t epochs);

/* Give back tainted segments that have become idle. Takes the lock. Returns the bytes. */
uint64_t ac_trim_tainted(ac_arena_t *arena);

/* Give back idle large segments, longest idle first, as far as `growth` more bytes would exceed
 * gc_threshold x limit.  Takes the lock. */
void ac_trim_garbage(ac_allocator_t *allocator, uint64_t growth);

/* Under the lock: move ready blocks of all arenas into the free memory. */
void ac_allocator_drain(ac_allocator_t *allocator);

#endif
