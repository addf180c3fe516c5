/* Options of the command line, and names that were mistyped.  Not thread-safe. */
#ifndef CMD_OPTION_H
#define CMD_OPTION_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

/* As getopt_long, but what is wrong is said in one line, with the option that was meant perhaps;
 * '?' is answered then. */
int cmd_option(int argc, char **argv, const char *letters, const struct option *options);

/* Read the options of a subcommand that has none but --json, which sets *json, and --help, which
 * prints `help`.  True: it goes on with argv[optind]; false: *status is how it ends. */
bool cmd_option_json(int argc, char **argv, const char *help, bool *json, int *status);

/* Of names `size` bytes apart, up to a NULL, the one that `text` most likely means; NULL: none. */
const char *cmd_nearest(const char *text, const char *const *names, size_t size);

/* `given` is none of the `count` names, `size` bytes apart: CMD_USAGE after a message that lists
 * them.  `what` is what they name, "kind". */
int cmd_usage_names(const char *what, const char *given, const char *const *names, size_t size,
                    int count);

#endif
