/* Random programs in good order. */
#ifndef GENERATE_H
#define GENERATE_H

#include "program.h"

/* The program of the seed, of about so many operations; the same one every time. */
void generate(program_t *program, unsigned long seed, size_t operations);

#endif
