/* What the checks of these tests are made of.  Each runs in a process of its own, which ends by
 * returning (good), or by one of the functions here that say what was wrong. */
#ifndef ROWS_CHECKS_H
#define ROWS_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

#include "rows_device.h"

#define CU_FN(symbol, name, since, mode, params, args) extern CUresult symbol params;
#include "device/cuda_functions.def"
#undef CU_FN

enum { MIB = 1 << 20, SOME = 64 };

/* WRONG: the library did wrong.  BROKEN: the check does not show what it should. */
enum { GOOD = 0, WRONG = 1, BROKEN = 2 };

__attribute__((noreturn)) void leave_with(int status, const char *what);
void expect(bool good, const char *what);
void must(CUresult result, const char *call);
#define MUST(call) must(call, #call)

/* Device 0's primary context, current after set_up. */
extern CUcontext here;
void set_up(void);

CUstream new_stream(void);
CUdeviceptr take(void);
CUdeviceptr take_first(void); /* beside memory that stays, and so does their segment */

/* Asks for memory until `memory` comes back, SOME times at most. */
bool comes_back(CUdeviceptr memory);

/* A number of the library's statistics. */
unsigned long long figure(const char *name);

/* Runs `job` in a child, with the row `symbol` spoilt by `plant` unless that is NULL: GOOD, WRONG
 * or BROKEN.  Says what was wrong, on stderr, where nothing is spoilt. */
int checks_run(const char *symbol, const char *name, const char *plant,
               void (*job)(const void *argument), const void *argument);

#endif
