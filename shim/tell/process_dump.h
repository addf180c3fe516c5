/* Dumps of the process. */
#ifndef AC_PROCESS_DUMP_H
#define AC_PROCESS_DUMP_H

#include <stdbool.h>
#include <stddef.h>

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

/* Write a dump now; `pattern` NULL: to the configured place.  Returns 0 or an errno value (ECANCELED:
 * the program's own seccomp filter might kill it for writing); the path goes to `path`. */
int ac_process_dump(const char *pattern, const char *reason, char *path, size_t size);

/* The same, and what it may say beyond the live page (observe/dump.h); a relative name is one of
 * the folder that the program was started in. */
struct ac_dump_more;
int ac_process_dump_with(const char *pattern, const char *reason, const struct ac_dump_more *more,
                         char *path, size_t size);

/* The same to the configured place; a failure is said once. */
void ac_process_dump_configured(const char *reason);

#endif
