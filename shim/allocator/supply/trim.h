/* Giving idle segments back to the device.  The driver's own free may wait for all work of the
 * device: so it comes where the device has nothing to do, or where a request would fail; else
 * what is over the budget is owed, and goes back later.  And only what is quiet: the device is
 * done with it (ac_segment_t). */
#ifndef AC_TRIM_H
#define AC_TRIM_H

#include "allocator/allocator_int.h"

/* Whether giving back waits for nothing now.  Where that could give anything, and does wait, it
 * is owed. */
bool ac_trim_may(ac_allocator_t *allocator);

/* Memory is to go back as soon as that waits for nothing.  Takes no lock. */
void ac_trim_owe(ac_allocator_t *allocator);

/* What growing stays within as long as idle segments can go back: 1.08 times the `live` bytes.
 * Under the lock. */
uint64_t ac_trim_budget(const ac_allocator_t *allocator, uint64_t live);

/* Give back idle segments of one arena, longest idle first, until `bytes` are reached. Takes the
 * lock. Returns the bytes given back. */
uint64_t ac_trim_arena(ac_arena_t *arena, uint64_t bytes);

/* The same for all that were idle for `epochs` whole ones (ac_allocator_decay). */
uint64_t ac_trim_aged(ac_arena_t *arena, uint32_t epochs);

/* Give back tainted segments that have become idle. Takes the lock. Returns the bytes. */
uint64_t ac_trim_tainted(ac_arena_t *arena);

/* The same after a free; what cannot go yet is owed.  Takes the lock. */
void ac_trim_leaving(ac_arena_t *arena);

/* Give back idle large segments, longest idle first, as far as `growth` more bytes would exceed
 * gc_threshold x limit.  Takes the lock. */
void ac_trim_garbage(ac_allocator_t *allocator, uint64_t growth);

/* Bytes by which that would be exceeded.  Takes the lock. */
uint64_t ac_trim_garbage_due(ac_allocator_t *allocator, uint64_t growth);

/* Under the lock: move ready blocks of all arenas into the free memory. */
void ac_allocator_drain(ac_allocator_t *allocator);

#endif
