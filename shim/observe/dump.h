/* The JSON dump.  It is built only from a live page.  So a running process, an exiting process and the
 * reader of a dead process's page produce the same document. */
#ifndef AC_DUMP_H
#define AC_DUMP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "observe/layout.h"
#include "observe/live.h"

/* Copies matching figures of a device of this process, under the lock of their writers.  `device` is the entry of
 * ac_live.  Returns false if the lock was not free before `deadline` (CLOCK_REALTIME) or the entry has no owner.
 * The dump then reads the figures without the lock.  NULL: no other thread writes them. */
typedef bool ac_dump_figures_fn(unsigned device, const struct timespec *deadline,
                                ac_device_stats_t *stats, ac_device_counters_t *counters);
extern _Atomic(ac_dump_figures_fn *) ac_dump_figures;

/* Copies matching figures of pinned memory, under the lock of their writers.  Returns false if the lock was not free
 * before `deadline`. */
typedef bool ac_dump_pinned_fn(const struct timespec *deadline, ac_host_stats_t *stats);
extern _Atomic(ac_dump_pinned_fn *) ac_dump_pinned;

/* Returns the document as malloc'd, NUL-terminated text; the caller frees it.  *length does not include the NUL.
 * `reason`: "exit", "signal", "interval", "request", "killed", "running", "out of memory".  NULL: memory is
 * short.  Thread-safe; it does not call CUDA. */
char *ac_dump_text(const ac_live_t *page, const char *reason, size_t *length);

/* A failed request, and the state of its device at that time. */
enum { AC_DUMP_OTHERS = 32 };
typedef struct {
    int ordinal;
    unsigned module; /* number of the requesting module */
    bool async;      /* the request named a stream */
    bool at_limit;   /* refused by a configured limit and not by the device */
    uint64_t bytes;
    uint64_t limit;     /* bytes that may be reserved; UINT64_MAX: no limit */
    uint64_t available; /* bytes that the device reports as free; UINT64_MAX: not known */
    int thread;         /* id of the requesting thread */
    uint32_t stack;     /* of the request (sites.h); 0: not recorded */
    unsigned others;    /* number of other processes with the library that hold memory of the device; may
                         * be larger than the array */
    struct {
        int pid;
        bool here;         /* its pid is of our pid namespace */
        uint64_t reserved; /* bytes */
        char exe[AC_LIVE_EXE];
    } other[AC_DUMP_OTHERS];
} ac_dump_oom_t;

/* Optional contents of a dump in addition to the live page. */
typedef struct ac_dump_more {
    const ac_dump_oom_t *oom; /* NULL: none */
    const ac_layout_t *layout;
    unsigned layouts; /* number of layouts */
    bool partial;     /* the layouts have only segments of guarded blocks */
    bool figures;     /* leave out blocks and the history */
} ac_dump_more_t;
char *ac_dump_text_with(const ac_live_t *page, const char *reason, const ac_dump_more_t *more,
                        size_t *length);

/* Returns the figures of this process as metrics in the text format of Prometheus, without time and reason. */
char *ac_dump_metrics(size_t *length);

/* Copies the figures of a device, or of pinned memory.  They match each other if the writers' lock becomes free
 * before `deadline` (CLOCK_REALTIME). */
void ac_dump_device(const ac_live_t *page, unsigned device, const struct timespec *deadline,
                    ac_device_stats_t *stats, ac_device_counters_t *counters);
void ac_dump_host(const ac_live_t *page, const struct timespec *deadline, ac_host_stats_t *stats);

/* Expands %p pid, %h host, %r rank (empty if unknown), %e program name and %% in `pattern`.  Returns 0
 * or ENAMETOOLONG. */
int ac_dump_path(const char *pattern, const ac_live_t *page, char *path, size_t size);

/* Writes the dump of this process to `pattern` atomically: to a temporary name in the same folder, without fsync,
 * then by a rename.  If the target exists and is not a regular file (a pipe, /dev/stderr, a link), the text is
 * appended, unless another user owns the target (EPERM).  On failure it removes the temporary file and returns
 * an errno value.  `path` (of `size` bytes) receives the expanded name in any case.  `more` may be NULL. */
int ac_dump_write(const char *pattern, const char *reason, const ac_dump_more_t *more, char *path,
                  size_t size);

/* Calls ac_dump_write with a pattern of the configuration.  A relative name refers to the folder in which
 * the program was started. */
int ac_dump_write_from_start(const char *pattern, const char *reason, const ac_dump_more_t *more,
                             char *path, size_t size);

/* Writes the text of ac_dump_metrics to a pattern of the configuration.  A `passing` file is removed when the next
 * file has another name, or by ac_dump_remove_metrics.  The removal affects only the file that this process wrote,
 * not a later file of that name.  The caller makes all calls of both functions under one lock. */
int ac_dump_write_metrics(const char *pattern, bool passing, char *path, size_t size);
void ac_dump_remove_metrics(void);

#endif
