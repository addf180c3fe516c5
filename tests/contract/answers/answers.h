/* Shared by the programs of this folder: symbolic printing of addresses and results, children that may crash.  Everything is printed so that a run without and a run
 * with the library can be compared line by line: no address, no handle, no time. */
#ifndef ANSWERS_H
#define ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { POISON = 0xa5 };
#define POISONED ((uint64_t)0xa5a5a5a5a5a5a5a5u)

/* Runs `body(arg)` in a child process and prints its output, and a line if it crashed, hung or failed. Returns
 * 0 if it ended with status 0. */
int in_child(const char *name, void (*body)(const void *), const void *arg);

/* A case of a program; `title` is the name of the running one. */
typedef struct {
    const char *name;
    void (*run)(void);
} answers_case_t;
extern const char *title;

/* Runs every case in its own child process. Returns nonzero if one did not end with status 0. */
int in_children(const answers_case_t *cases, size_t count);

/* Returns "ok" or the number of the error. */
const char *code(CUresult result);

/* Prints a line with the case, the call and its result. Returns the result. */
CUresult say_answer(const char *what, CUresult result);

#endif
