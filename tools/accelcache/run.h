/* What `run` and `run --compare` share. */
#ifndef CMD_RUN_H
#define CMD_RUN_H

#include <stdbool.h>

typedef struct {
    const char *conf, *dump, *trace, *library; /* as given, NULL: not */
    const char *keep, *input; /* --compare: folder for its files, the program's stdin */
    bool compare, json, simulated;
    bool strict;     /* --compare: outputs that differ have a status of their own */
    int warm_up;     /* --compare: runs before those that count */
    const char *sim; /* ACCEL_SIM, NULL: as in the environment */
    int repeat;
    char **command;
} cmd_run_t;

/* Run `program` with caching off and on, and print the comparison.  All of the environment
 * but ACCEL_ALLOC_CONF is set; `conf` is that string, known to be valid. */
int cmd_run_compare(const cmd_run_t *run, const char *program, const char *conf);

#endif
