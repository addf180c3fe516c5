/* One allocator for each device of the process.  Any thread. */
#ifndef AC_DEVICES_H
#define AC_DEVICES_H

#include <stdbool.h>
#include <time.h>

#include "allocator/allocator.h"
#include "device/cuda_abi.h"
#include "observe/held.h"

/* Returns the allocator of the device, which is made at the first call; NULL if it could not be
 * made. */
ac_allocator_t *ac_device_allocator(CUdevice device);

/* Limits the bytes that the process may reserve on the device, in addition to the limits of the
 * settings; 0: no limit. */
void ac_device_set_cap(CUdevice device, uint64_t bytes);

/* Returns true if a device may have a limit. */
bool ac_device_limited(void);

/* Returns the limit of the process on the device, in bytes; AC_UNLIMITED if there is none.
 * `total`: the memory of the device. */
uint64_t ac_device_limit(CUdevice device, uint64_t total);

/* Calls `visit` for every device that has an allocator. */
void ac_device_each(void (*visit)(CUdevice device, ac_allocator_t *allocator, void *arg),
                    void *arg);

/* Copies the figures of a device, all of one moment (dump.h). */
bool ac_device_figures(unsigned device, const struct timespec *deadline, ac_device_stats_t *stats,
                       ac_device_counters_t *counters);

/* Visits the blocks of the device that the program holds (held.h). */
bool ac_device_held(unsigned device, const struct timespec *deadline, ac_held_visit_fn *visit,
                    void *arg);

/* Returns true if an allocator has memory or may get some.  With enabled:false most processes
 * never have any: then nothing waits for work and the library records nothing. */
bool ac_device_any_memory(void);

/* Applies the configuration to the allocators.  Called at activation and after each change. */
void ac_device_configure(void);

#endif
