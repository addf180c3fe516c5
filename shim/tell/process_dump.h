/* Between process.c and process_dump.c. */
#ifndef AC_PROCESS_DUMP_H
#define AC_PROCESS_DUMP_H

#include "process/process.h"

/* Whether the live page is one that the command can see; set at activation. */
extern bool ac_process_page_shared;

/* Whether the last dump to the configured place failed: only the live page has the figures then. */
extern _Atomic bool ac_process_dump_failed;

/* Said where the program has a seccomp filter of its own. */
extern const char ac_process_filtered[];

/* What the user can do about a failure to write; `elsewhere`: how to name another place. */
const char *ac_process_remedy(int error, const char *elsewhere);

/* At exit: remove the metrics that were written again and again.  No others are written from then on, by the
 * library's thread either.  Waits five seconds at most, for a thread that writes them just now. */
void ac_process_end_metrics(void);

#endif
