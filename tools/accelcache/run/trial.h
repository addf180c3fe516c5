/* One run of a program for a comparison: started with its output captured, then read. */
#ifndef CMD_TRIAL_H
#define CMD_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "read/document.h"

typedef struct {
    bool cached;
    bool as_it_is; /* `conf` says whether memory is cached, and the output is the command's own */
    void (*visit)(const json_t *document, void *arg); /* for each process's; or NULL */
    void *arg;
    char *folder;   /* its dumps, and the files "stdout" and "stderr" */
    int status;     /* as a shell shows it: 128 + number for a signal */
    int64_t wall;   /* ns */
    unsigned dumps; /* processes with statistics */
    int pid;        /* of the program */
    int signal;     /* that ended the program; 0: none did */
    unsigned left;  /* of them: ended by a signal or _exit, with figures of the live page */
    unsigned running; /* of them: outlived the program, with figures so far */
    bool failed;      /* inside */
    cmd_figures_t figures;
} cmd_trial_t;

/* A new folder for the files of runs: run-N in `keep`, with the first free number, or a temporary one if `keep`
 * is NULL.  malloc'd; NULL after a message. */
char *cmd_trial_folder(const char *keep);

/* Run `program` with `command` as its arguments and `conf` as ACCEL_ALLOC_CONF; `input` is its
 * standard input, not used with `as_it_is`.  Files go to trial->folder, which exists.  Processes that end without a
 * dump get one there, and their live pages go.  Returns 0, or -1 after a message.
 * From the first call on SIGINT, SIGTERM and SIGHUP reach the program, and end the
 * comparison: *stopped is then the signal's number, else 0. */
int cmd_trial_run(cmd_trial_t *trial, const char *program, char **command, const char *conf,
                  const char *input, int *stopped);

/* Runs the program as it is, with its own settings, and waits for it: trial->status and wall alone are set.
 * Returns 0, or -1 after a message.  Signals as with cmd_trial_run; SIGQUIT, SIGUSR1 and SIGUSR2 reach the
 * program, too. */
int cmd_trial_plain(cmd_trial_t *trial, const char *program, char **command, const char *conf);

/* Do the files `name` of two trials hold the same bytes? */
bool cmd_trial_same(const cmd_trial_t *a, const cmd_trial_t *b, const char *name);

/* Remove a folder and all in it. */
void cmd_folder_remove(const char *path);

#endif
