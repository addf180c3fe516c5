/* The settings that tests of the allocator begin with: the product's own, but for a larger budget,
 * and without caches per thread. */
#ifndef FAKE_SETTINGS_H
#define FAKE_SETTINGS_H

#include "allocator/allocator.h"

static inline ac_settings_t fake_settings(void) {
    return (ac_settings_t){.max_split_size = AC_UNLIMITED,
                           .wait_budget = 0.25,
                           .oom_wait = 30000000000,
                           .large_segment_size = (uint64_t)20 << 20,
                           .limit = AC_UNLIMITED};
}

#endif
