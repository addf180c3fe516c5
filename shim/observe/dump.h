/* The JSON dump: built from a live page and nothing else, so that a running process, an
 * exiting one and the reader of a dead one's page produce the same document. */
#ifndef AC_DUMP_H
#define AC_DUMP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "observe/layout.h"
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
 * `reason`: "exit", "signal", "interval", "request", "killed", "running",
 * "out of memory".  NULL when memory is
 * short.  Thread-safe; no CUDA. */
char *ac_dump_text(const ac_live_t *page, const char *reason, size_t *length);

/* A request that failed, and what was seen of the device then. */
enum { AC_DUMP_OTHERS = 32 };
typedef struct {
    int ordinal;
    unsigned module; /* that asked: its number */
    bool async;      /* a stream was named */
    bool at_limit;   /* a configured limit refused it, and not the device */
    uint64_t bytes;
    uint64_t limit;     /* bytes that may be reserved; UINT64_MAX: no limit */
    uint64_t available; /* bytes that the device says are free; UINT64_MAX: it does not tell */
    int thread;         /* id of the one that asked */
    uint32_t stack;     /* of it (sites.h); 0: not recorded */
    unsigned others;    /* other processes under the library that hold memory of the device; more
                         * than the array has room for are counted, largest or not */
    struct {
        int pid;
        bool here;         /* in the same pid namespace */
        uint64_t reserved; /* bytes */
        char exe[AC_LIVE_EXE];
    } other[AC_DUMP_OTHERS];
} ac_dump_oom_t;

/* What a dump may say beyond the live page. */
typedef struct ac_dump_more {
    const ac_dump_oom_t *oom; /* NULL: nothing */
    const ac_layout_t *layout;
    unsigned layouts; /* how many */
    bool partial;     /* they have only segments of guarded blocks */
    bool figures;     /* alone: blocks and the history are left out */
} ac_dump_more_t;
char *ac_dump_text_with(const ac_live_t *page, const char *reason, const ac_dump_more_t *more,
                        size_t *length);

/* The same figures of this process as metrics in the text format of Prometheus; no time, no reason. */
char *ac_dump_metrics(size_t *length);

/* The figures of a device, or of pinned memory, in one piece where that can be had until the deadline
 * (CLOCK_REALTIME). */
void ac_dump_device(const ac_live_t *page, unsigned device, const struct timespec *deadline,
                    ac_device_stats_t *stats, ac_device_counters_t *counters);
void ac_dump_host(const ac_live_t *page, const struct timespec *deadline, ac_host_stats_t *stats);

/* Expand %p pid, %h host, %r rank (none when unknown), %e program name, %% in `pattern`.  Returns 0
 * or ENAMETOOLONG. */
int ac_dump_path(const char *pattern, const ac_live_t *page, char *path, size_t size);

/* Write the dump of this process to `pattern` atomically (temporary name in the same folder,
 * fsync not needed, rename); a target that exists and is no regular file (a pipe, /dev/stderr,
 * a link) gets the text appended instead, unless another user owns it (EPERM).  On failure the
 * temporary file is removed and an errno value is returned; `path` (of `size` bytes) has the
 * expanded name in any case.  `more` may be NULL. */
int ac_dump_write(const char *pattern, const char *reason, const ac_dump_more_t *more, char *path,
                  size_t size);

/* The same for a pattern of the configuration: a relative name is one of the folder that the
 * program was started in. */
int ac_dump_write_from_start(const char *pattern, const char *reason, const ac_dump_more_t *more,
                             char *path, size_t size);

/* The same with ac_dump_metrics.  A file that is `passing` goes with the next one of another name, or by
 * _remove_metrics: only the very file that this process wrote, no other that lies there by now.  All
 * calls of both under one lock of the caller. */
int ac_dump_write_metrics(const char *pattern, bool passing, char *path, size_t size);
void ac_dump_remove_metrics(void);

#endif
