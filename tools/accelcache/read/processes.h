/* The processes of this user (for root: of all users) that have a live page: running ones, and ones that ended
 * by a signal or _exit. */
#ifndef CMD_PROCESSES_H
#define CMD_PROCESSES_H

#include <jansson.h>
#include <stdbool.h>

#include "read/document.h"

typedef struct {
    ac_live_name_t name;
    bool alive;
    json_t *document;
} cmd_process_t;

typedef struct {
    cmd_process_t *process; /* running ones first, then the newest */
    unsigned count;
    ac_live_name_t *dead; /* pages of this user that may go, whether they can be shown or not */
    unsigned dead_count;
    bool quiet;      /* before cmd_processes_find: no message of pages that could not be read */
    unsigned unread; /* such pages; of each there was a message, or of all that there are more */
} cmd_processes_t;

/* All but `quiet` is filled in. */
void cmd_processes_find(cmd_processes_t *processes);
void cmd_processes_clear(cmd_processes_t *processes);

/* A process id, digits alone, with a pid namespace behind an @ or without one (0).  False: `text`
 * is none. */
bool cmd_process_read(const char *text, int *pid, uint64_t *space);

/* Text of a process; it belongs to the document. */
const char *cmd_process_start_time(const cmd_process_t *process);
const char *cmd_process_exe(const cmd_process_t *process);
enum { CMD_PROCESS_ID = 40 };
/* Returns its id, with its pid namespace behind an @ if it is not ours. */
char *cmd_process_id(char text[CMD_PROCESS_ID], const cmd_process_t *process);
/* "running" or "killed". */
const char *cmd_process_state(const cmd_process_t *process);

/* An array with an object for each; with `running`, the running ones alone. */
json_t *cmd_processes_json(const cmd_processes_t *processes, bool running);

#endif
