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

/* Between these a new descriptor of the calling thread is none of the three standard numbers: where
 * the program has closed one of them, its other threads may print into that number.  `held` is for
 * _release.  errno is kept. */
enum { AC_LOW = 3 };
void ac_low_hold(int held[AC_LOW]);
void ac_low_release(const int held[AC_LOW]);

/* open(2) for writing, never as one of those.  -1 and errno on failure. */
int ac_open_above(const char *name, int flags, mode_t mode);

/* The descriptor gets a number as high as the limit of descriptors allows, and is closed on exec: a
 * program that closes numbers it does not know gets low ones back.  -1: there is none, and `fd` is
 * closed. */
int ac_move_up(int fd);

/* Write all of it.  Returns 0 or an errno value; errno is left in any state. */
int ac_write_all(int fd, const char *data, size_t length);

#endif
