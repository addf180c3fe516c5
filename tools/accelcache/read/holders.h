/* Call sites with the bytes that they hold at the peak, at the end, and that they never free: of a trace, a history,
 * a snapshot or a dump. */
#ifndef CMD_HOLDERS_H
#define CMD_HOLDERS_H

#include "read/stacks.h"

typedef struct {
    char *site; /* as stacks.h */
    int64_t blocks, bytes;
} cmd_holder_t;

typedef struct {
    cmd_holder_t *holder; /* no two of one site; the most bytes first */
    size_t count;
    int64_t blocks, bytes; /* of all of them */
} cmd_holders_t;

/* False: the history does not tell of that moment, and *error is one line, malloc'd. */
bool cmd_holders(const cmd_history_t *history, cmd_moment_t moment, cmd_holders_t *holders, char **error);
void cmd_holders_free(cmd_holders_t *holders);

/* Tables of the largest call sites, at most `most` for each moment that is known, to stdout. */
void cmd_holders_print(const cmd_history_t *history, unsigned most);
/* {peak, end, leaked}: each an object with blocks, bytes and sites, or null if it is not known. */
json_t *cmd_holders_json(const cmd_history_t *history);

#endif
