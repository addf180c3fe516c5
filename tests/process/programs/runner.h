/* Runs programs in processes of their own, under the library or plain. */
#ifndef RUNNER_H
#define RUNNER_H

#include "program.h"

typedef struct {
    bool passed;
    unsigned long executed, skipped, late; /* as counted by the program (run_t) */
    unsigned long long hash;
    char said[4000]; /* end of its output */
} outcome_t;

/* Runs the program in a new process. Preloads `library`, if not NULL, after the owners
 * library. `folder` holds the program and its output during the run. */
void runner_run(const program_t *program, const char *library, const char *folder,
                outcome_t *out);

#endif
