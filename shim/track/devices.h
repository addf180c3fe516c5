/* One allocator for each device of the process.  Any thread. */
#ifndef AC_DEVICES_H
#define AC_DEVICES_H

#include <stdbool.h>
#include <time.h>

#include "allocator/allocator.h"
#include "device/cuda_abi.h"
#include "observe/held.h"

/* One allocator per device ordinal; NULL if it could not be made. */
ac_allocator_t *ac_device_allocator(CUdevice device);

/* The most bytes to reserve on the device, beside what the settings say; 0: no limit. */
void ac_device_set_cap(CUdevice device, uint64_t bytes);

/* Whether there may be a limit on any device. */
bool ac_device_limited(void);

/* The most bytes that the process may hold on the device, which has `total`; AC_UNLIMITED. */
uint64_t ac_device_limit(CUdevice device, uint64_t total);

/* Call `visit` for every device that has an allocator. */
void ac_device_each(void (*visit)(CUdevice device, ac_allocator_t *allocator, void *arg),
                    void *arg);

/* The figures of a device, of one moment (dump.h). */
bool ac_device_figures(unsigned device, const struct timespec *deadline, ac_device_stats_t *stats,
                       ac_device_counters_t *counters);

/* What the program holds of a device, block by block (held.h). */
bool ac_device_held(unsigned device, const struct timespec *deadline, ac_held_visit_fn *visit,
                    void *arg);

/* Whether any allocator has memory, or may get some.  With enabled:false mostly none ever had: then
 * nothing waits for work, and nothing is to be recorded. */
bool ac_device_any_memory(void);

/* Settings of the allocators from the configuration (at activation and when it changes). */
void ac_device_configure(void);

#endif
