/* Freed memory that waits for a capture (order/capture.h): a block that captured work may name is
 * *held* until the last graph of its episode has gone, and then waits for a fence of that moment.
 *
 * Invariants (ac_allocator_check): a held block lies in the list of its arena and episode;
 * segment.held and the counters capture_deferred_blocks and _bytes are sums over these. */
#ifndef AC_HELD_H
#define AC_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/allocator.h"

/* Whether the allocator has a block that waits for the episode. */
bool ac_allocator_holds(ac_allocator_t *allocator, uint64_t episode);

/* No graph of the episode is left: its blocks wait for a fence like any that are freed now. */
void ac_allocator_release(ac_allocator_t *allocator, uint64_t episode);

#endif
