/* Generator of random programs, which the model accepts. */
#ifndef GENERATE_H
#define GENERATE_H

#include "program.h"

/* Generates the program of a seed, with about this number of operations. A seed
 * always gives one program. */
void generate(program_t *program, unsigned long seed, size_t operations);

#endif
