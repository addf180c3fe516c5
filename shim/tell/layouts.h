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

/* Copies segments and blocks of all devices, for at most one second. A device is left out if its lock is not
 * free in that time, or if host memory is short. The caller frees the result with ac_layouts_free; NULL: host
 * memory is short. Takes the allocators' locks one after the other. Any thread; no device call. */
ac_layouts_t *ac_layouts_take(void);
ac_layouts_t *ac_layouts_take_guarded(void); /* of segments with guarded blocks only */

/* Copies segments and blocks of one allocator into the empty layout, with the recorded stacks. Returns false
 * if the lock is not free before `deadline` (CLOCK_REALTIME), or if host memory is short. */
bool ac_layout_take(ac_layout_t *layout, ac_allocator_t *allocator,
                    const struct timespec *deadline);
void ac_layouts_free(ac_layouts_t *layouts);

#endif
