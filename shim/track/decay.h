/* Idle memory goes back to the driver by itself: idle_trim_ms, keep_free, and on
 * devices that share it with the host when its memory gets short.  The thread that
 * writes dumps (writer.c) is there for this as well, and calls. */
#ifndef AC_DECAY_H
#define AC_DECAY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* Look for devices whose memory is the host's: idle memory of these goes back when the host's gets
 * short.  At the first use of CUDA, before ac_decay_interval counts.  Calls the driver. */
void ac_decay_start(void);

/* Nanoseconds from one ac_decay_step to the next; 0: nothing is to be done.  The same where the cache
 * is off: what is left of one that was switched off goes as well. */
int64_t ac_decay_interval(const ac_config_t *config);

/* What is owed (ac_allocator_settle_debt) goes back if that waits for nothing, and if nothing
 * captures.  False: some is owed still.  Calls the driver. */
bool ac_decay_settle(void);

/* The same after a synchronisation of the program.  One with a stream alone (not `whole`) says
 * little of the others, so that it tries the less often the longer they go on.  Thread-safe. */
void ac_decay_synced(bool whole);

/* An interval has passed.  Calls the driver; does nothing while anything captures. */
void ac_decay_step(void);

#endif
