/* The settings of programs that are started here: the machine's defaults (config/defaults.h) and
 * the environment's ACCEL_ALLOC_CONF over them. */
#ifndef CMD_SETTINGS_H
#define CMD_SETTINGS_H

#include "config/config.h"
#include "config/defaults.h"
#include "observe/live.h"

typedef struct {
    const char *string;            /* ACCEL_ALLOC_CONF; NULL: not set */
    const char *file;              /* that is applied; NULL: none, or refused */
    const char *refused;           /* a file that is not applied */
    char why[AC_DEFAULTS_WHY];     /* why it is not */
    ac_config_t config;            /* in force */
    ac_config_error_t error;       /* of the string: `text` is empty if it is good */
    ac_config_warnings_t warnings; /* of the string */
    ac_config_warnings_t warnings_of_file;
    char from_file[AC_LIVE_CONF];  /* "key:value," of what the file gives */
} cmd_settings_t;

void cmd_settings_read(cmd_settings_t *settings);

/* Returns the source of a key's value: a file's name, "ACCEL_ALLOC_CONF", NULL for the default. */
const char *cmd_settings_source(const cmd_settings_t *settings, const char *key);

#endif
