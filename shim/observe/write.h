/* Writing to a descriptor that the host cares about: a full disk, a file size limit, a closed
 * pipe or a terminal in the background must not signal the host to death.  Internal to observe/.
 */
#ifndef AC_WRITE_H
#define AC_WRITE_H

#include <stddef.h>
#include <sys/types.h>

#include "observe/raw.h"

/* Between hold and release the calling thread gets no SIGPIPE, SIGXFSZ or SIGTTOU; those that
 * arose in between are dropped.  No allocation, no lock; async-signal-safe. */
typedef struct {
    ac_raw_signals_t mask, pending; /* as they were before */
} ac_signal_hold_t;
void ac_signals_hold(ac_signal_hold_t *hold);
void ac_signals_release(const ac_signal_hold_t *hold);

/* open(2) for writing, never as one of the three standard numbers: where the program has closed
 * one of them, its other threads may print into that number.  -1 and errno on failure. */
int ac_open_above(const char *name, int flags, mode_t mode);

/* Write all of it.  Returns 0 or an errno value; errno is left in any state. */
int ac_write_all(int fd, const char *data, size_t length);

#endif
