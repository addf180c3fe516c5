/* `accelcache stat` by call site alone. */
#ifndef CMD_STAT_SITES_H
#define CMD_STAT_SITES_H

#include "read/history.h"

/* To stdout: who held the memory at the peak, at the end, and what was never freed; `whole`: all of them.  Returns
 * the exit status. */
int cmd_stat_sites(const cmd_history_t *history, const char *source, bool json, bool whole);

#endif
