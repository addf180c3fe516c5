/* The size that a request is served with, the blocks that may serve it, and the segment that is
 * asked for where there are none.  Arithmetic alone. */
#ifndef AC_SIZE_H
#define AC_SIZE_H

#include "allocator/settings.h"
#include "allocator/space/free_index.h"

uint64_t ac_size_round(const uint32_t divisions[AC_DIVISION_SLOTS], uint64_t bytes);
ac_fit_t ac_size_fit(const ac_settings_t *settings, uint64_t size);
/* The same where else it would fail. */
ac_fit_t ac_size_fit_last(const ac_settings_t *settings, uint64_t size);

/* Bytes of a native segment for a request of `size` bytes (rounded, not of the small pool) while
 * `reserved` are held: a whole number of such requests, so that equal ones leave nothing over but
 * what the segment is rounded up by. */
typedef enum {
    AC_SNUG_LARGE, /* so many that few segments serve the program */
    AC_SNUG_FEW,   /* beyond the budget: the fewest that leave next to nothing over */
    AC_SNUG_EXACT  /* one */
} ac_snug_t;
uint64_t ac_size_segment(const ac_settings_t *settings, uint64_t size, uint64_t reserved,
                         ac_snug_t snug);

#endif
