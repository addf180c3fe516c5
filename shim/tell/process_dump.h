/* Dumps of the process. */
#ifndef AC_PROCESS_DUMP_H
#define AC_PROCESS_DUMP_H

#include <stdbool.h>
#include <stddef.h>

/* True if the `accelcache` command can see the live page; set at activation. */
extern bool ac_process_page_shared;

/* True if the last dump to the configured place failed. Then only the live page has the figures. */
extern _Atomic bool ac_process_dump_failed;

/* Message for a program that has a seccomp filter of its own. */
extern const char ac_process_filtered[];

/* Returns the advice for a failed write; `elsewhere` is the advice that names another place. */
const char *ac_process_remedy(int error, const char *elsewhere);

/* Removes, at exit, the metrics file that an interval rewrites. Afterwards no thread writes metrics, not
 * even the library's own thread. Waits for at most five seconds if a thread is writing a dump. */
void ac_process_end_metrics(void);

/* Writes a dump to `pattern`, or to the configured place if it is NULL. Returns 0 or an errno value; `path`
 * gets the path. ECANCELED: the program's own seccomp filter might kill the process for writing. */
int ac_process_dump(const char *pattern, const char *reason, char *path, size_t size);

/* Writes a dump to `pattern`, with the additions of `more` (observe/dump.h). A relative name is relative to
 * the folder in which the program was started. Returns and stores the same values as ac_process_dump. */
struct ac_dump_more;
int ac_process_dump_with(const char *pattern, const char *reason, const struct ac_dump_more *more,
                         char *path, size_t size);

/* Writes a dump to the configured place. The first failure prints a warning. */
void ac_process_dump_configured(const char *reason);

#endif
