/* gpu_costs: measures the cost of driver calls on this machine's device.
 *
 *   gpu_costs calls [PASSES]     the calls that a cache makes or saves, by size
 *   gpu_costs hooks [PASSES]     short calls, to be compared with and without a preloaded library
 *   gpu_costs device             prints the device's name and the driver's version
 *
 * The program prints one JSON object per line on stdout:
 *   {"call": "cuMemMap", "kind": "", "bytes": 2097152, "ns": [time per call of each pass]}
 * `kind` is empty for the plain cost of a call, which belongs into a table of costs.  Otherwise it
 * names the special case ("pool miss").  `bytes` is 0 if the call has no size.
 *
 * costs.c         command line, series of figures
 * costs_device.c  the driver, found at run time; clock
 * costs_calls.c   `calls`
 * costs_hooks.c   `hooks`, from the rows of costs_hooks.def
 *
 * Calls are timed in batches, so that reading the clock adds little.  The device is idle, so that
 * no call waits for work.
 *
 * Exit status: 0 done, 1 a call failed, 2 wrong usage, 77 no driver or no device. */
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

/* Loads the driver and makes the context of device 0 current.  Returns false if there is no driver
 * or no device. */
bool costs_open(char *name, size_t room, int *version);

/* Returns nanoseconds of the clock for driver calls: the simulated device's clock if it is loaded,
 * else the machine's. */
double costs_clock(void);
/* Returns nanoseconds of the machine's clock, even on the simulated device. */
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

/* Adds one figure to the series: `calls` calls took `ns` nanoseconds in total. */
void costs_add(costs_series_t *series, double ns, unsigned calls);
void costs_print(const costs_series_t *series);

/* Makes `call` `calls` times and adds the time to the series.  `i` counts inside `call`. */
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
