/* The JSON dump: built from a live page and nothing else, so that a running process, an
 * exiting one and the reader of a dead one's page produce the same document. */
#ifndef AC_DUMP_H
#define AC_DUMP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "observe/live.h"

/* How the figures of a device of this process are copied while others write them, so that they
 * match: by the owner of their lock, entry `device` of ac_live.  False: the lock was not to be
 * had before `deadline` (CLOCK_REALTIME), or the entry has no owner; then they are read as they
 * stand.  NULL: no thread writes but the one that dumps. */
typedef bool ac_dump_figures_fn(unsigned device, const struct timespec *deadline,
                                ac_device_stats_t *stats, ac_device_counters_t *counters);
extern _Atomic(ac_dump_figures_fn *) ac_dump_figures;

/* The same for pinned memory. */
typedef bool ac_dump_pinned_fn(const struct timespec *deadline, ac_host_stats_t *stats);
extern _Atomic(ac_dump_pinned_fn *) ac_dump_pinned;

/* The document as text: malloc'd, NUL-terminated, *length without the NUL; the caller frees.
 * `reason`: "exit", "signal", "interval", "request", "killed", "running".  NULL when memory is
 * short.  Thread-safe; no CUDA. */
char *ac_dump_text(const ac_live_t *page, const char *reason, size_t *length);

/* Expand %p pid, %h host, %r rank (0 when unknown), %e program name, %% in `pattern`.  Returns 0
 * or ENAMETOOLONG. */
int ac_dump_path(const char *pattern, const ac_live_t *page, char *path, size_t size);

/* Write the dump of this process to `pattern` atomically (temporary name in the same folder,
 * fsync not needed, rename); a target that exists and is no regular file (a pipe, /dev/stderr,
 * a link) gets the text appended instead, unless another user owns it (EPERM).  On failure the
 * temporary file is removed and an errno value is returned; `path` (of `size` bytes) has the
 * expanded name in any case. */
int ac_dump_write(const char *pattern, const char *reason, char *path, size_t size);

/* The same for a pattern of the configuration: a relative name is one of the folder that the
 * program was started in. */
int ac_dump_write_from_start(const char *pattern, const char *reason, char *path, size_t size);

#endif
