/* Bytes that call sites hold in one recording and in another. */
#ifndef CMD_CHANGES_H
#define CMD_CHANGES_H

#include "read/sites.h"

typedef struct {
    char *site;                 /* without offsets of code */
    int64_t bytes[2], blocks[2]; /* 0: not there */
} cmd_change_t;

typedef struct {
    cmd_change_t *change; /* no two of one site; the largest differences first */
    size_t count;
    int64_t bytes[2]; /* of all sites */
} cmd_changes_t;

/* False: history[*wrong] does not tell of that moment, and *error is one line, malloc'd. */
bool cmd_changes(const cmd_history_t *const history[2], cmd_moment_t moment, cmd_changes_t *changes, int *wrong,
                 char **error);
/* "new", "gone", "grew", "shrank" or "same". */
const char *cmd_change_word(const cmd_change_t *change);
void cmd_changes_free(cmd_changes_t *changes);

#endif
