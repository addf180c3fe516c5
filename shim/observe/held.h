/* Iteration over the blocks that the program holds.  The owner of the blocks calls a visitor for each. */
#ifndef AC_HELD_H
#define AC_HELD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct {
    uint64_t address;
    uint64_t size, requested; /* bytes of the block, and of the request */
    unsigned module;          /* number of the module that made the request (stats.h) */
} ac_held_t;

/* Visits one block.  It runs under the device's lock, so it takes no lock and allocates nothing. */
typedef void ac_held_visit_fn(const ac_held_t *block, void *arg);

/* Calls `visit` for each block of device entry `device` that the program holds.  Returns false if the
 * lock was not free before `deadline` (CLOCK_REALTIME), or if the entry has no owner. */
typedef bool ac_held_each_fn(unsigned device, const struct timespec *deadline,
                             ac_held_visit_fn *visit, void *arg);

#endif
