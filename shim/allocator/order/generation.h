/* What threads remember of contexts, streams and callers is good as long as this has not grown.
 *
 * It grows whenever something that another thread remembers may have become wrong: a context or a
 * stream was destroyed, a context broke, a capture began, contexts came to reach each other, work may go
 * unseen, an object was loaded, the configuration changed, exit began, the cache was switched off.
 * Any thread, no lock. */
#ifndef AC_GENERATION_H
#define AC_GENERATION_H

#include <stdatomic.h>
#include <stdint.h>

#include "device/device.h"

extern AC_HIDDEN _Atomic uint64_t ac_generation;

static inline void ac_generation_grow(void) {
    atomic_fetch_add(&ac_generation, 1);
}

static inline uint64_t ac_generation_now(void) {
    return atomic_load_explicit(&ac_generation, memory_order_acquire);
}

#endif
