/* Runs a program on the simulated device, in this process. */
#ifndef EXECUTE_H
#define EXECUTE_H

#include "program.h"

/* Returns the exit status: 0 passed, 1 after a line "failed: ..." on stdout. The last
 * line reports the executed operations, the skipped ones, and a hash of everything
 * that the program saw. */
int execute(const program_t *program);

#endif
