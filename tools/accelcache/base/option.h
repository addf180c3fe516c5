/* Options of the command line, and names that were mistyped.  Not thread-safe. */
#ifndef CMD_OPTION_H
#define CMD_OPTION_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One option.  Without `text`, `number`, `real` and `take` it has no value; with one of them and `flag` the value is
 * optional. */
typedef struct {
    const char *name; /* "json" for --json; NULL ends the table */
    char letter;      /* 'j' for -j; 0: it has none */
    bool *flag;       /* set to true */
    const char **text;
    uint64_t *number; /* whole, from `low` to `high` */
    double *real;     /* likewise */
    double low, high;
    const char *expected; /* what a message says about `low` and `high` */
    int (*take)(const char *value, void *arg); /* returns CMD_OK, or an exit status after a message */
    void *arg;
    int (*stop)(void); /* the subcommand ends with what this returns */
} cmd_option_t;

/* Reads the options of a subcommand.  --help and -h print `help`; with NULL they are a row of the table.
 * True: argv[optind] is the first argument.  False: the subcommand ends with *status. */
bool cmd_options(int argc, char **argv, const cmd_option_t *table, const char *help, int *status);
/* Like cmd_options, but options end at the first argument, which is a program with options of its own. */
bool cmd_options_of_command(int argc, char **argv, const cmd_option_t *table, const char *help, int *status);

/* Returns the name that `text` most likely means.  The names are `size` bytes apart and end with NULL; NULL:
 * none. */
const char *cmd_nearest(const char *text, const char *const *names, size_t size);

/* Returns CMD_USAGE after a message that `given` is none of the `count` names, `size` bytes apart.  `what` is
 * what they name, "kind". */
int cmd_usage_names(const char *what, const char *given, const char *const *names, size_t size,
                    int count);

#endif
