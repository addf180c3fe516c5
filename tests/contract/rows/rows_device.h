/* The simulated device of these tests: a libcuda.so.1 with stand-ins for every function that
 * submits work.
 *
 * A function of rows.inc that gives work to a stream ignores its other arguments and returns at
 * once. It submits one work item to the stream that the driver's documentation names. The item
 * stays pending until a thread waits for it. So all rows can be treated alike, including
 * functions that the simulated device does not have. */
#ifndef ROWS_DEVICE_H
#define ROWS_DEVICE_H

#include "simcuda.h"

/* How long work that is submitted from now on lasts: 1000 s at first, longer than any wait. */
void rows_last(uint64_t ns);

/* Items that stand-ins have made so far. */
unsigned rows_works(void);

/* Number of the items from number `first` on that are not complete. Lets no time pass. */
unsigned rows_pending(unsigned first);

/* Returns true if the items from number `first` on begin when item `before` is complete, not
 * earlier. Waits for them. */
int rows_follow(unsigned first, unsigned before);

/* Makes the function `symbol` (NULL: none) return `result` the next `failures` times and do
 * nothing. After that a CU_RETRY function succeeds and does nothing either. rows_asked: number of
 * its calls since. */
void rows_stand_in(const char *symbol, CUresult result, unsigned failures);
unsigned rows_asked(void);

#endif
