/* The machine's defaults for ACCEL_ALLOC_CONF: the file /etc/accelcache.conf, or the one that
 * ACCEL_CONF_FILE names ("none": no file).  Its grammar is config.c's.
 *
 * Unlike the rest of config/ this reads a file: when CUDA is used for the first time, never
 * before, and by system calls alone (observe/raw.h).  Whatever lies under the name is read only
 * where it can neither hang the program nor come from a user who has no say in it: a regular file
 * that root or the program's own user owns and others cannot write.  A program with rights that
 * its user lacks (setuid) reads none: the variable does not count there, and the library is not
 * to do more in it than it must.
 *
 * That a variable names the file gives no rights away: ACCEL_ALLOC_CONF in the same environment
 * sets all that a file can.  Tests use it, and who wants other defaults than the machine's. */
#ifndef AC_DEFAULTS_H
#define AC_DEFAULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"

enum { AC_DEFAULTS_TEXT = 16384, AC_DEFAULTS_WHY = sizeof((ac_config_error_t *)NULL)->text };

/* The file's name; NULL: none is to be read. */
const char *ac_defaults_path(void);

/* Read the file: at most size - 1 bytes, and a NUL.  No such file: an empty text, if it is not one
 * that ACCEL_CONF_FILE names.  False: it was refused; `why` is the cause and the remedy.
 * Async-signal-safe but for snprintf; keeps no descriptor. */
bool ac_defaults_read(const char *path, char *text, size_t size, char why[AC_DEFAULTS_WHY]);

#endif
