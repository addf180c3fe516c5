/* Asking a running process for something (share/control.h).  Not thread-safe. */
#ifndef CMD_CONTROL_H
#define CMD_CONTROL_H

#include <stdbool.h>

#include "observe/live.h"
#include "share/control.h"

/* The live page of the process, as cmd_page_find; the message says if it belongs to another user. */
bool cmd_control_find(int pid, uint64_t space, ac_live_name_t *name, char **error);

/* Asks the process of a live page, and waits for the answer, at most one second.  False: *error is one line with
 * cause and remedy, malloc'd. */
bool cmd_control(const ac_live_name_t *name, ac_control_verb_t verb, const char *text,
                 ac_control_answer_t *answer, char **error);

/* Returns the settings of the process, changed by `change` ("KEY:VALUE,..."); malloc'd. NULL: *error as above. */
char *cmd_control_settings(const ac_live_name_t *name, const char *change, char **error);

#endif
