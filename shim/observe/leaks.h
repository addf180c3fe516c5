/* The leak report: the blocks that the program held when it exited, by device, module and size.
 *
 * The report is made once, at exit, after all handlers and destructors of the program.  It goes into the
 * dump and to stderr.  Threads that still run may allocate and free meanwhile.  Each block appears in the
 * state in which it was visited. */
#ifndef AC_LEAKS_H
#define AC_LEAKS_H

#include "observe/held.h"
#include "observe/json.h"
#include "observe/live.h"

/* Makes the report for all devices of this process.  One thread calls it, once.  It allocates, and takes the
 * devices' locks.  It skips a device if the total time exceeds one second or host memory is short. */
void ac_leaks_find(ac_held_each_fn *each);

/* Prints the amount and the largest holders as one line on stderr, if the program held anything. */
void ac_leaks_say(void);

/* Adds the report to a dump of this process as `leaks`; adds nothing before ac_leaks_find. */
void ac_leaks_put(json_t *root, bool *failed);

#endif
