/* What the program holds, block by block: who knows the blocks calls a visitor for each. */
#ifndef AC_HELD_H
#define AC_HELD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct {
    uint64_t address;
    uint64_t size, requested; /* bytes; as asked for */
    unsigned module;          /* that asked (stats.h) */
} ac_held_t;

/* Called under the device's lock: it takes no lock and allocates nothing. */
typedef void ac_held_visit_fn(const ac_held_t *block, void *arg);

/* Call `visit` for each block of device entry `device` that the program holds.  False: the lock
 * was not to be had before `deadline` (CLOCK_REALTIME), or the entry has no owner. */
typedef bool ac_held_each_fn(unsigned device, const struct timespec *deadline,
                             ac_held_visit_fn *visit, void *arg);

#endif
