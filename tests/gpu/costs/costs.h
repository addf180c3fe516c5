/* gpu_costs: what driver calls cost on this machine's device.
 *
 *   gpu_costs calls [PASSES]     the calls that a cache makes or saves, by size
 *   gpu_costs hooks [PASSES]     short calls, to be compared with and without a preloaded library
 *   gpu_costs device             what is measured: name of the device, version of the driver
 *
 * One JSON object a line on stdout:
 *   {"call": "cuMemMap", "kind": "", "bytes": 2097152, "ns": [time per call of each pass]}
 * `kind` is empty where the figure is the plain cost of the call, which belongs into a table of
 * costs; otherwise it says what is special ("pool miss").  `bytes` is 0 where size has no part.
 *
 * costs.c         command line, series of figures
 * costs_device.c  the driver, found at run time; clock
 * costs_calls.c   `calls`
 * costs_hooks.c   `hooks`, from the rows of costs_hooks.def
 *
 * Calls are timed in batches, so that reading the clock is no part of the figure, while the
 * device is idle: no call has work to wait for.  Exit status 0 done, 1 a call failed, 2 wrong
 * usage, 77 no driver or no device. */
#ifndef COSTS_H
#define COSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness.h"

/* ---- costs_device.c ---- */
typedef struct {
#define DRIVER(symbol) symbol##_fn *symbol;
#include "costs_driver.def"
#undef DRIVER
} costs_driver_t;

extern costs_driver_t cu;
extern CUcontext costs_context;
extern CUfunction costs_noop; /* a kernel that does nothing */
extern bool costs_pools, costs_vmm;

/* Load the driver, make the context of device 0 current.  False: no driver or no device. */
bool costs_open(char *name, size_t room, int *version);

/* Nanoseconds of the clock by which driver calls take time: the simulated device's, where its
 * clock is not the machine's. */
double costs_clock(void);
/* Of the machine's clock, always. */
double costs_wall(void);

/* ---- costs.c ---- */
enum { COSTS_PASSES = 101 };

/* Invariant: `count` <= COSTS_PASSES. */
typedef struct {
    const char *call, *kind;
    uint64_t bytes;
    unsigned count;
    double ns[COSTS_PASSES];
} costs_series_t;

/* `calls` calls took `ns` together. */
void costs_add(costs_series_t *series, double ns, unsigned calls);
void costs_print(const costs_series_t *series);

/* `calls` times `call`, in which `i` counts. */
#define TIMED(series, calls, call)                                                               \
    do {                                                                                         \
        double timed_from = costs_clock();                                                       \
        for (unsigned i = 0; i < (calls); i++)                                                   \
            MUST(call);                                                                          \
        costs_add(series, costs_clock() - timed_from, calls);                                    \
    } while (0)

void costs_calls(unsigned passes);
void costs_hooks(unsigned passes);

#endif
