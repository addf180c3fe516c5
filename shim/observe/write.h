/* Safe writing to descriptors.  A full disk, a file size limit, a closed pipe or a background terminal must
 * not kill the program by a signal.  Internal to observe/. */
#ifndef AC_WRITE_H
#define AC_WRITE_H

#include <stddef.h>
#include <sys/types.h>

#include "observe/raw.h"

/* Blocks SIGPIPE, SIGXFSZ and SIGTTOU for the calling thread until ac_signals_release, which drops the signals that
 * arose meanwhile.  Both allocate nothing, take no lock and are async-signal-safe. */
typedef struct {
    ac_raw_signals_t mask, pending; /* before the hold */
} ac_signal_hold_t;
void ac_signals_hold(ac_signal_hold_t *hold);
void ac_signals_release(const ac_signal_hold_t *hold);

/* Keeps the three standard descriptor numbers from being given to new descriptors, until ac_low_release with the
 * same `held`.  If the program has closed one of them, its other threads may still print to that number.
 * Both keep errno. */
enum { AC_LOW = 3 };
void ac_low_hold(int held[AC_LOW]);
void ac_low_release(const int held[AC_LOW]);

/* Opens a file for writing, with a descriptor above the three standard numbers.  Returns -1 and errno on failure. */
int ac_open_above(const char *name, int flags, mode_t mode);

/* Moves a descriptor to a number as high as the limit of descriptors allows, with close-on-exec.  A program that
 * closes unknown numbers reuses low ones.  Returns -1, and closes `fd`, if there is no free number. */
int ac_move_up(int fd);

/* Writes all bytes.  Returns 0 or an errno value; errno itself is undefined afterwards. */
int ac_write_all(int fd, const char *data, size_t length);

#endif
