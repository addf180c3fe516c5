/* Idle memory goes back to the driver by itself: idle_trim_ms and keep_free.  The thread that
 * writes dumps (writer.c) is there for this as well, and calls. */
#ifndef AC_DECAY_H
#define AC_DECAY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* Nanoseconds from one ac_decay_step to the next; 0: nothing is to be done. */
int64_t ac_decay_interval(const ac_config_t *config);

/* What is owed (ac_allocator_settle_debt) goes back if that waits for nothing, and if nothing
 * captures.  False: some is owed still.  Calls the driver. */
bool ac_decay_settle(void);

/* An interval has passed.  Calls the driver; does nothing while anything captures. */
void ac_decay_step(void);

#endif
