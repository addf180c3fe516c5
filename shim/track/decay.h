/* Returns idle memory to the driver from time to time: the settings idle_trim_ms and keep_free.
 * An integrated device shares memory with the host: its idle memory also goes back if the host's
 * memory gets short.  The thread that writes dumps (writer.c) calls ac_decay_step at each
 * interval. */
#ifndef AC_DECAY_H
#define AC_DECAY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* Finds integrated devices, which have no memory but the host's.  Their idle memory goes back when
 * the host's memory gets short.  Called at the first use of CUDA, before ac_decay_interval counts.
 * Calls the driver. */
void ac_decay_start(void);

/* Returns the nanoseconds from one ac_decay_step to the next; 0: there is nothing to do.  Ignores
 * `enabled`: a cache that was switched off may still hold memory, which also goes back. */
int64_t ac_decay_interval(const ac_config_t *config);

/* Does pending trims (ac_allocator_settle_debt), if they wait for nothing.  Does nothing while a
 * stream captures.  Returns false if a trim stays pending.  Calls the driver. */
bool ac_decay_settle(void);

/* Calls ac_decay_settle after a synchronisation of the program.  `whole`: not with one stream
 * alone.  A synchronisation with one stream says little about the others.  With background_trim,
 * the function skips calls of that kind after a failure, for longer after each further one.
 * Thread-safe. */
void ac_decay_synced(bool whole);

/* Called once in each interval.  Calls the driver.  Does nothing while a stream captures. */
void ac_decay_step(void);

#endif
