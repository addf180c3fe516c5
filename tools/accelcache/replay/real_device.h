/* The driver's device for replays: the operations of device.h as the library has them, counted
 * and timed. */
#ifndef CMD_REAL_DEVICE_H
#define CMD_REAL_DEVICE_H

#include <stddef.h>

#include "replay/model.h"

extern const ac_device_ops_t cmd_real_ops;

/* The primary context of device 0, of the libcuda.so.1 that the loader finds.  The context for
 * cmd_real_ops; or NULL, and `why` gets one line.  Once in a process. */
void *cmd_real_open(char *why, size_t size, uint64_t *memory);

/* True if the driver is the simulated one. */
bool cmd_real_simulated(void);

/* Counts since the last call: calls, the time spent in them, and most bytes taken. */
void cmd_real_figures(cmd_model_figures_t *figures);

#endif
