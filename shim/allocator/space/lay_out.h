/* Copying segments and blocks (observe/layout.h). */
#ifndef AC_LAY_OUT_H
#define AC_LAY_OUT_H

#include "allocator/space/space.h"
#include "observe/layout.h"

/* The key of the stream in whose order a block waits. */
typedef uint64_t ac_stream_named_fn(const ac_block_t *block);

/* Adds the segment and its blocks to the layout, as far as it has room, and counts them.  Under the lock.
 * Owners of caches may take and give blocks meanwhile: each is shown as it was at some moment of the call. */
void ac_segment_lay_out(const ac_segment_t *segment, ac_stream_named_fn *stream_of,
                        ac_layout_t *layout);

#endif
