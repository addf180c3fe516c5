/* The request that failed for want of memory, of a dump that was written then (the key oom_dump). */
#ifndef CMD_FAILURE_H
#define CMD_FAILURE_H

#include <jansson.h>

/* A sentence: which code asked for how much of which device, and what refused it.  malloc'd; NULL: no request failed. */
char *cmd_failure_text(const json_t *document);

#endif
