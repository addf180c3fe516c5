/* `accelcache stat --growth`: modules with memory that rises from look to look at one process. */
#ifndef CMD_GROWTH_H
#define CMD_GROWTH_H

#include <stdbool.h>
#include <stdint.h>

#include "show/summary.h"

/* Takes documents of one process, in any order.  The exit status, after a message. */
int cmd_growth_of(const cmd_rendered_t *document, unsigned count, bool json);

/* Look `looks` times at a process, or until it ends, with `seconds` between two of them. */
int cmd_growth_watch(int pid, uint64_t space, unsigned looks, double seconds, bool json);

#endif
