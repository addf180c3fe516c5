/* The leak report: what the program held when it exited, by device, module and size.
 *
 * Found once, at exit, when no handler or destructor of the program is left to free anything;
 * then it is put into the dump, and said.  Threads that still run may free or take blocks
 * meanwhile: each block shows as it was when it was looked at. */
#ifndef AC_LEAKS_H
#define AC_LEAKS_H

#include "observe/held.h"
#include "observe/json.h"
#include "observe/live.h"

/* Look at all devices of this process.  By one thread, once; allocates, and takes the devices'
 * locks.  A device that cannot be looked at within a second in all, or for want of memory, is
 * left out. */
void ac_leaks_find(ac_held_each_fn *each);

/* One line on stderr, if anything was found: how much, and who asked for most of it. */
void ac_leaks_say(void);

/* Put what was found into a dump of this process, as `leaks`; nothing before _find. */
void ac_leaks_put(json_t *root, bool *failed);

#endif
