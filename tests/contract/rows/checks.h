/* Helpers of the checks in this folder. Each check runs in a process of its own. It ends by
 * returning (good), or by a function declared here that prints the fault. */
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
CUdeviceptr take_first(void); /* next to memory that stays allocated, which keeps their segment
                                 */

/* Requests memory until `memory` comes back, at most SOME times. */
bool comes_back(CUdeviceptr memory);

/* A number of the library's statistics. */
unsigned long long figure(const char *name);

/* Runs `job` in a child process, with the row `symbol` spoilt by `failpoint` unless that is
 * NULL. Returns TEST_GOOD, TEST_WRONG or TEST_BROKEN. If nothing is spoilt, prints the fault on
 * stderr. */
int checks_run(const char *symbol, const char *name, const char *failpoint,
               void (*job)(const void *argument), const void *argument);

#endif
