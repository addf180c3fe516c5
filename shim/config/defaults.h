/* Defaults of the machine for ACCEL_ALLOC_CONF: the file /etc/accelcache.conf, or the one that
 * ACCEL_CONF_FILE names ("none": no file).  config.c describes its grammar.
 *
 * The file is read when CUDA is used for the first time, by system calls alone (observe/raw.h).  It must
 * neither hang the program nor come from a user without rights over it.  So it must be a regular
 * file, owned by root or by the user of the program, and not writable by others.  A setuid program
 * reads no file.
 *
 * ACCEL_CONF_FILE gives no rights away: ACCEL_ALLOC_CONF in the same environment sets all that a
 * file can. */
#ifndef AC_DEFAULTS_H
#define AC_DEFAULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"

enum { AC_DEFAULTS_TEXT = 16384, AC_DEFAULTS_WHY = sizeof((ac_config_error_t *)NULL)->text };

/* The name of the file; NULL if none is to be read. */
const char *ac_defaults_path(void);

/* Returns true if ACCEL_CONF_STRICT is set and does not mean "no". */
bool ac_defaults_strict(void);

/* Reads at most size - 1 bytes of the file, and appends a NUL.  The text is empty if there is no file and
 * ACCEL_CONF_FILE does not name it.  Returns false if the file was refused; `why` is then the cause and
 * the remedy.  Async-signal-safe but for snprintf; keeps no descriptor. */
bool ac_defaults_read(const char *path, char *text, size_t size, char why[AC_DEFAULTS_WHY]);

#endif
