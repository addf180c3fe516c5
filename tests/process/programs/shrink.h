/* Shortens a failing program. */
#ifndef SHRINK_H
#define SHRINK_H

#include "program.h"

/* Removes operations, threads, devices and settings while `fails` returns true. */
void shrink(program_t *program, bool (*fails)(const program_t *, void *), void *argument);

#endif
