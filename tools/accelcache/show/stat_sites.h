/* `accelcache stat` by call site alone. */
#ifndef CMD_STAT_SITES_H
#define CMD_STAT_SITES_H

#include "read/history.h"

/* Prints the holders of memory at the peak and at the end, and the blocks that were never freed; `whole`: all of
 * them.  Returns the exit status. */
int cmd_stat_sites(const cmd_history_t *history, const char *source, bool json, bool whole);

#endif
