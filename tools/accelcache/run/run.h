/* Common parts of `run`, `run --compare` and the checks of `run`. */
#ifndef CMD_RUN_H
#define CMD_RUN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *conf, *dump, *trace, *library; /* as given, NULL: not */
    const char *keep;                          /* --compare, checks: folder for their files */
    const char *input;                         /* --compare: the program's stdin */
    const char *junit;                         /* checks: the result as JUnit's XML */
    uint64_t max_peak;                         /* bytes; 0: no limit */
    bool fail_on_leak;
    bool compare, json, simulated, record;
    bool strict;     /* --compare: outputs that differ have a status of their own */
    int warm_up;     /* --compare: warm-up runs */
    const char *sim; /* ACCEL_SIM, NULL: as in the environment */
    int repeat;
    char **command;
} cmd_run_t;

/* Run `program` with caching off and on, and print the comparison.  All of the environment
 * but ACCEL_ALLOC_CONF is set; `conf` is that string, known to be valid. */
int cmd_run_compare(const cmd_run_t *run, const char *program, const char *conf);

/* Prints the meaning of each figure of a comparison. */
void cmd_compare_print_measures(void);

/* Run `program` as it is and judge its memory, in the same way.  A program that used no CUDA
 * passes no check. */
int cmd_run_check(const cmd_run_t *run, const char *program, const char *conf);

/* Runs `program` with a trace and stacks (both in `conf`), and ends with three lines: what the cache served, the peak
 * with its largest call site, and the next command.  Returns the program's status, or 1 if nothing was recorded. */
int cmd_run_record(const cmd_run_t *run, const char *program, const char *conf);

/* Runs `program` and ends with one line on the terminal: what the cache served, the peak, and the command that shows
 * more.  Ends as the program did, also by its signal. */
int cmd_run_told(const cmd_run_t *run, const char *program, const char *conf);

#endif
