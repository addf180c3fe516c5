/* The formats of `accelcache export`, one function for each.  The caller checks `out` for errors. */
#ifndef CMD_EXPORT_H
#define CMD_EXPORT_H

#include "read/stacks.h"

#include <stdio.h>

/* False with *error, malloc'd: it cannot be written in this format.  `moment`: of formats that show one. */
typedef bool cmd_export_fn(const cmd_history_t *history, cmd_moment_t moment, FILE *out, char **error);
cmd_export_fn cmd_export_torch, cmd_export_perfetto, cmd_export_pprof, cmd_export_prometheus,
    cmd_export_folded;

#endif
