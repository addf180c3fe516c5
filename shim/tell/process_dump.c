/* Dumps of the process (process_dump.h): their place, their content, and the lock that allows one at
 * a time. */
#include "tell/process_dump.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "track/running.h"
#include "tell/layouts.h"
#include "tell/recording.h"
#include "observe/dump.h"
#include "observe/filter.h"
#include "observe/folder.h"
#include "observe/history.h"
#include "observe/live_file.h"
#include "observe/log.h"
#include "observe/raw.h"
#include "observe/scratch.h"
#include "failpoint.h"
#include "lock.h"

static ac_mutex_t dump_lock = AC_MUTEX(DUMP);
static bool metrics_over; /* true: removed at exit, so none is written; under dump_lock */
bool ac_process_page_shared;
_Atomic bool ac_process_dump_failed;
const char ac_process_filtered[] =
    "the program has put its system calls behind a seccomp filter: no dump is written any more, "
    "the figures are those of its live page";

/* Returns the configured place of the dump. The default name has another extension for metrics. */
static const char *configured_dump(void) {
    const ac_config_t *config = ac_process_config();
    bool usual = !strcmp(config->dump, "accelcache-%p.json");
    return config->dump_format == AC_DUMP_PROMETHEUS && usual ? "accelcache-%p.prom"
                                                              : config->dump;
}

typedef int dump_write_fn(const char *pattern, const char *reason, const ac_dump_more_t *more,
                          char *path, size_t size);

static int write_metrics(const char *pattern, const char *reason, const ac_dump_more_t *more,
                         char *path, size_t size) {
    (void)reason;
    (void)more;
    if (metrics_over)
        return ECANCELED;
    AC_WINDOW(metrics_wanted);
    return ac_dump_write_metrics(pattern, ac_process_config()->dump_interval > 0, path, size);
}

/* The format may have changed while the process runs: an old file of metrics is removed. */
static int write_json(const char *pattern, const char *reason, const ac_dump_more_t *more,
                      char *path, size_t size) {
    ac_dump_remove_metrics();
    return ac_dump_write_from_start(pattern, reason, more, path, size);
}

/* Takes dump_lock if files may be written. Returns 0 or an errno value. */
static int begin_files(void) {
    int state = atomic_load(&ac_state);
    if (state == AC_STATE_INERT)
        return EOPNOTSUPP; /* a fork child has no figures of its own */
    if (state != AC_STATE_EXITING && ac_filter_now()) {
        ac_live_warn(ac_process_filtered);
        return ECANCELED;
    }
    /* The wait is limited: at exit another thread may have been stopped while it wrote, and never
     * release the lock. */
    struct timespec limit = ac_raw_time(CLOCK_REALTIME);
    limit.tv_sec += 5;
    return ac_lock_until(&dump_lock, &limit) ? 0 : ETIMEDOUT;
}

/* Removes the metrics. `last` means at exit: the writer's thread may be about to write them once
 * more, so it must find `metrics_over`. */
static void remove_metrics(bool last) {
    if (begin_files() != 0)
        return;
    ac_dump_remove_metrics();
    metrics_over |= last;
    ac_unlock(&dump_lock);
    AC_WINDOW(metrics_removed);
}

void ac_process_end_metrics(void) {
    remove_metrics(true);
}

static int write_dump(dump_write_fn *write, const char *pattern, const char *reason,
                      const ac_dump_more_t *more, char *path, size_t size) {
    snprintf(path, size, "%s", pattern);
    AC_WINDOW(dump_begins);
    int error = begin_files();
    if (error)
        return error;
    ac_live_gather();
    error = write(pattern, reason, more, path, size);
    ac_unlock(&dump_lock);
    AC_WINDOW(dump_ended);
    return error;
}

int ac_process_dump_with(const char *pattern, const char *reason, const ac_dump_more_t *more,
                         char *path, size_t size) {
    return write_dump(ac_dump_write_from_start, pattern, reason, more, path, size);
}

/* Lists all blocks if the history is on: viewers start at the end of the history and need the blocks
 * of that moment. Otherwise the configured dump lists guarded blocks only, which explain an address
 * that faulted. */
int ac_process_dump(const char *given, const char *reason, char *path, size_t size) {
    if (!given && ac_process_config()->dump_format == AC_DUMP_PROMETHEUS)
        return write_dump(write_metrics, configured_dump(), reason, NULL, path, size);
    dump_write_fn *write = given ? ac_dump_write : write_json;
    bool active = atomic_load(&ac_state) != AC_STATE_INERT;
    bool all = active && ac_history_is_on();
    ac_layouts_t *layouts = all                                    ? ac_layouts_take()
                            : active && !given && ac_is_guarding() ? ac_layouts_take_guarded()
                                                                   : NULL;
    ac_dump_more_t more = {.partial = !all};
    if (layouts) {
        if (all)
            ac_record_snapshot();
        more.layout = layouts->layout;
        more.layouts = layouts->count;
    }
    int error = write_dump(write, given ? given : configured_dump(), reason,
                           all || more.layouts ? &more : NULL, path, size);
    ac_layouts_free(layouts);
    return error;
}

const char *ac_process_remedy(int error, const char *elsewhere) {
    switch (error) {
    case EMFILE:
    case ENFILE:
        return "raise the limit on open files (ulimit -n)";
    case EFBIG:
        return "raise the limit on file sizes (ulimit -f)";
    case ENOMEM:
        return "raise the limit on memory (ulimit -v)";
    default:
        return elsewhere;
    }
}

void ac_process_dump_configured(const char *reason) {
    if (!strcmp(ac_process_config()->dump, "none")) {
        remove_metrics(false); /* a former configuration may have written them */
        atomic_store(&ac_process_dump_failed, false);
        return;
    }
    char *room = ac_scratch_take();
    const char *path = room ? room : configured_dump();
    int error = room ? ac_process_dump(NULL, reason, room, AC_FOLDER_PATH) : ENOMEM;
    atomic_store(&ac_process_dump_failed, error != 0);
    if (error && error != ECANCELED) /* begin_files printed the reason for ECANCELED */
        ac_log_once(
            AC_LOG_WARNING, "cannot write the statistics to %s: %s; %s%s", path, strerror(error),
            ac_process_remedy(error, "free space there, or name another place with "
                                     "ACCEL_ALLOC_CONF=dump:PATH (dump:none for no file)"),
            ac_process_page_shared ? "; `accelcache stat PID` shows them" : "");
    ac_scratch_give(room);
}
