/* What the checks of these tests are made of.  Each runs in a process of its own, which ends by
 * returning (good), or by one of the functions here that say what was wrong. */
#ifndef ROWS_CHECKS_H
#define ROWS_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

#include "harness.h"
#include "rows_device.h"

enum { MIB = 1 << 20, SOME = 64 };

/* TEST_WRONG: the library did wrong.  TEST_BROKEN: the check does not show what it should. */
void expect(bool good, const char *what);

/* Device 0's primary context, current after set_up. */
extern CUcontext here;
void set_up(void);

CUdeviceptr take(void);
CUdeviceptr take_first(void); /* beside memory that stays, and so does their segment */

/* Asks for memory until `memory` comes back, SOME times at most. */
bool comes_back(CUdeviceptr memory);

/* A number of the library's statistics. */
unsigned long long figure(const char *name);

/* Runs `job` in a child, with the row `symbol` spoilt by `failpoint` unless that is NULL:
 * TEST_GOOD, TEST_WRONG or TEST_BROKEN.  Says what was wrong, on stderr, where nothing is
 * spoilt. */
int checks_run(const char *symbol, const char *name, const char *failpoint,
               void (*job)(const void *argument), const void *argument);

#endif
