/* Makes a failing program short. */
#ifndef SHRINK_H
#define SHRINK_H

#include "program.h"

/* Reduces the program while `fails` says so: operations, threads, devices, settings. */
void shrink(program_t *program, bool (*fails)(const program_t *, void *), void *argument);

#endif
