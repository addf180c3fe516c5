/* Asking a running process for something (share/control.h).  Not thread-safe. */
#ifndef CMD_CONTROL_H
#define CMD_CONTROL_H

#include <stdbool.h>

#include "observe/live.h"
#include "share/control.h"

/* The live page of the process, as cmd_page_find; one of another user is named as such. */
bool cmd_control_find(int pid, uint64_t space, ac_live_name_t *name, char **error);

/* Ask the process of a live page, and wait for the answer a second at the most.  False: *error is
 * one line with cause and remedy, malloc'd. */
bool cmd_control(const ac_live_name_t *name, ac_control_verb_t verb, const char *text,
                 ac_control_answer_t *answer, char **error);

/* The settings of the process with those of `change` ("KEY:VALUE,...") in place of its own; malloc'd.
 * NULL: *error as above. */
char *cmd_control_settings(const ac_live_name_t *name, const char *change, char **error);

#endif
