/* Runs a program on the simulated device, in this process. */
#ifndef EXECUTE_H
#define EXECUTE_H

#include "program.h"

/* Exit status: 0 passed, 1 after a line "failed: ..." on stdout.  The last line tells
 * what happened: operations, skipped ones, a hash of all that the program saw. */
int execute(const program_t *program);

#endif
