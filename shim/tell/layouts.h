/* Segments and blocks of the process's devices, copied for a document (observe/layout.h). */
#ifndef AC_LAYOUTS_H
#define AC_LAYOUTS_H

#include <time.h>

#include "allocator/allocator.h"
#include "observe/layout.h"
#include "observe/live.h"

typedef struct {
    unsigned count;
    ac_layout_t layout[AC_LIVE_DEVICES];
} ac_layouts_t;

/* Copy those of all devices, a second at the most; what a device does not give until then, or host
 * memory has no room for, is left out.  malloc'd; NULL when memory is short.  Takes allocators'
 * locks one after the other.  Any thread; no device call. */
ac_layouts_t *ac_layouts_take(void);
ac_layouts_t *ac_layouts_take_guarded(void); /* only segments of guarded blocks */

/* Copies what one allocator has into the empty layout, with the stacks that are recorded.  False: the lock was not to
 * be had before `deadline` (CLOCK_REALTIME), or host memory is short. */
bool ac_layout_take(ac_layout_t *layout, ac_allocator_t *allocator,
                    const struct timespec *deadline);
void ac_layouts_free(ac_layouts_t *layouts);

#endif
