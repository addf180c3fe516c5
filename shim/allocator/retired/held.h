/* What is freed while a stream captures.
 *
 * Captured work does not run: the graph made of it does, later and as often as the program
 * launches it.  No fence tells when it is done with the memory, so a block that captured work may
 * name is *held* instead of pending: it waits for an *episode*, a number that stands for all
 * captures from the moment when the first began until none was left.  Whoever follows the graphs
 * (intercept/graphs.h) says when the last one that an episode made has gone; then its blocks go
 * the ordinary way, with a fence of that moment, because the last launch may still run.
 *
 * A block that nothing was submitted beside, in its own lifetime or since the episode began, is
 * named by no captured work and is not held: submissions to a capturing stream count as all
 * others do.  This also decides for contexts that join a capture by an event.
 *
 * Invariants (ac_allocator_check): a held block lies in the list of its arena and episode;
 * segment.held and the counters capture_deferred_blocks and _bytes are sums over these. */
#ifndef AC_HELD_H
#define AC_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/allocator.h"

/* From now on frees are held for `episode` (not 0, larger than all before).  Call before the
 * driver's call that begins the capture.  Not while another episode is open. */
void ac_held_begin(uint64_t episode);

/* Frees go the ordinary way again.  One that still holds its block for the episode is over before
 * the next call of ac_allocator_holds. */
void ac_held_end(void);

extern AC_HIDDEN _Atomic uint64_t ac_held_episode; /* the open one; 0: nothing captures */

static inline bool ac_held_open(void) {
    return atomic_load_explicit(&ac_held_episode, memory_order_acquire) != 0;
}

/* Whether the allocator has a block that waits for the episode. */
bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t episode);

/* No graph of the episode is left: its blocks wait for a fence like any that are freed now. */
void ac_allocator_release(ac_allocator_t *allocator, uint64_t episode);

#endif
