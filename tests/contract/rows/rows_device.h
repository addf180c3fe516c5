/* The simulated device of these tests: libcuda.so.1 with stand-ins for all that submits.
 *
 * Every function of rows.inc that gives work to a stream does just that, whatever its other
 * arguments are, and returns at once: one work item on the stream that the driver's documentation
 * says, which lasts so long that it is pending until a thread waits for it.  So all rows can be
 * treated alike, those included that the simulated device does not know. */
#ifndef ROWS_DEVICE_H
#define ROWS_DEVICE_H

#include "simcuda.h"

/* How long work that is submitted from now on lasts: 1000 s at first, longer than any wait. */
void rows_last(uint64_t ns);

/* Items that stand-ins have made so far. */
unsigned rows_works(void);

/* How many of those from number `first` on are not complete.  Lets no time pass. */
unsigned rows_pending(unsigned first);

/* Whether the items from number `first` on begin when item `before` is complete, not earlier.
 * Waits for them. */
int rows_follow(unsigned first, unsigned before);

/* The function `symbol` (NULL: none) answers `result` the next `failures` times, and does
 * nothing; after that a CU_RETRY one succeeds, and does nothing either.  rows_asked: how often
 * it was called since. */
void rows_stand_in(const char *symbol, CUresult result, unsigned failures);
unsigned rows_asked(void);

#endif
