/* The JSON dump: built from a live page and nothing else, so that a running process, an
 * exiting one and the reader of a dead one's page produce the same document. */
#ifndef AC_DUMP_H
#define AC_DUMP_H

#include <stddef.h>

#include "observe/live.h"

/* The document as text: malloc'd, NUL-terminated, *length without the NUL; the caller frees.
 * `reason`: "exit", "signal", "interval", "request", "killed", "running".  NULL when memory is
 * short.  Thread-safe; no CUDA. */
char *ac_dump_text(const ac_live_t *page, const char *reason, size_t *length);

/* Expand %p pid, %h host, %r rank (0 when unknown), %e program name, %% in `pattern`.  Returns 0
 * or ENAMETOOLONG. */
int ac_dump_path(const char *pattern, const ac_live_t *page, char *path, size_t size);

/* Write the dump of this process to `pattern` atomically (temporary name in the same folder,
 * fsync not needed, rename); a target that exists and is no regular file (a pipe, /dev/stderr,
 * a link) gets the text appended instead, unless it is a stranger's (EPERM).  On failure the
 * temporary file is removed and an errno value is returned; `path` (of `size` bytes) has the
 * expanded name in any case. */
int ac_dump_write(const char *pattern, const char *reason, char *path, size_t size);

#endif
