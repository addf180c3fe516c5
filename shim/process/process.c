/* First use, fork, exit (process.h); dumps on request are writer.c's.
 *
 * Waking takes no lock: one thread wins the right to set things up, and the others' calls go to
 * the driver until it is done.  So a thread that holds the loader's lock (a library constructor
 * that uses CUDA) never waits for one that needs it. */
#include "tell/process_dump.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "allocator/order/barrier.h"
#include "allocator/carve.h"
#include "config/defaults.h"
#include "device/driver.h"
#include "hooks/body.h"
#include "process/control.h"
#include "track/decay.h"
#include "hooks/graph_hooks.h"
#include "hooks/guard.h"
#include "hooks/ipc.h"
#include "process/ipc_serve.h"
#include "bind/loader_gate.h"
#include "bind/objects.h"
#include "process/own_thread.h"
#include "track/pinned.h"
#include "tell/recording.h"
#include "bind/resolve.h"
#include "bind/sandbox.h"
#include "bind/variables.h"
#include "process/writer.h"
#include "observe/dump.h"
#include "observe/filter.h"
#include "observe/folder.h"
#include "observe/leaks.h"
#include "observe/live_file.h"
#include "observe/log.h"
#include "observe/raw.h"
#include "observe/start.h"
#include "observe/trace.h"
#include "share/ipc_fds.h"
#include "share/ipc_socket.h"
#include "lock.h"

AC_START_DATA _Atomic int ac_state = AC_STATE_ASLEEP;
AC_START_DATA _Atomic bool ac_fast_path, ac_enabled, ac_filling, ac_guarding;
AC_START_DATA _Atomic int ac_free_sync;

/* --- the environment --- */

/* Most are short, and stay off the pages that only long ones need. */
AC_START_DATA static char short_text[160];
static char long_text[AC_LIVE_CONF];
AC_START_DATA static const char *conf_text;
AC_START_DATA static bool conf_bad, conf_strict, conf_warned, profiled, sanitized;
AC_START_DATA static ac_config_t from_environment;
AC_START_DATA static const ac_config_t *_Atomic in_force = &from_environment;
static ac_config_error_t conf_error;
static ac_config_warnings_t conf_warnings, defaults_warnings;
AC_START_DATA static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

/* Reads the environment and nothing else: it may run in any process, at any time. */
AC_START static void read_environment(void) {
    const char *text = secure_getenv("ACCEL_ALLOC_CONF");
    const char *injected = secure_getenv("CUDA_INJECTION64_PATH");
    profiled = injected && *injected;
    sanitized = (injected && strstr(injected, "sanitizer")) ||
                secure_getenv("NV_SANITIZER_INJECTION_PORT_BASE");
    ac_config_default(&from_environment);
    conf_strict = ac_config_is_strict(text) || ac_defaults_strict();
    if (!text || !*text)
        return;
    size_t length = strlen(text);
    conf_text = length < sizeof short_text ? short_text : long_text;
    conf_bad = length >= sizeof long_text;
    if (conf_bad) {
        strcpy(conf_error.text, "the string is too long (4095 bytes at most)");
        return;
    }
    memcpy(length < sizeof short_text ? short_text : long_text, text, length + 1);
    ac_config_error_t error;
    ac_config_warnings_t warnings;
    conf_bad = ac_config_parse(conf_text, &from_environment, &error, &warnings) != 0;
    if (conf_bad)
        conf_error = error;
    else if (warnings.count)
        conf_warnings = warnings;
    conf_warned = !conf_bad && warnings.count;
    if (!conf_bad)
        atomic_store(&ac_log_level, from_environment.log_level);
}

AC_START const ac_config_t *ac_process_config(void) {
    pthread_once(&environment_once, read_environment);
    return atomic_load_explicit(&in_force, memory_order_acquire);
}

bool ac_deepbind_strip(void) {
    return ac_process_config()->deepbind == AC_DEEPBIND_STRIP;
}

/* --- changes while running --- */

/* Guards changes of the configuration, and what is derived from it. */
AC_START_DATA static ac_mutex_t config_lock = AC_MUTEX(CONFIG);

/* Copies of the configurations that were in force: readers keep pointers to them for as long as
 * they like.  A program that goes back and forth between a few settings makes a few copies. */
typedef struct ac_kept_config {
    ac_config_t config;
    struct ac_kept_config *next;
} ac_kept_config_t;

/* Under the lock.  NULL when host memory is short. */
static const ac_config_t *keep(const ac_config_t *config) {
    static ac_kept_config_t *all;
    /* Bytes between fields may differ without a meaning: one more copy, no wrong one. */
    for (const ac_kept_config_t *kept = all; kept; kept = kept->next)
        if (memcmp(&kept->config, config, sizeof *config) == 0)
            return &kept->config;
    ac_kept_config_t *kept = ac_carve(sizeof *kept);
    if (!kept)
        return NULL;
    memcpy(&kept->config, config, sizeof *config);
    kept->next = all;
    all = kept;
    return &kept->config;
}

/* The machine's defaults as they stand in their file, once CUDA was used and where there are any.
 * Changes under the lock. */
static char defaults[AC_DEFAULTS_TEXT];
static bool has_defaults, defaults_bad;

/* Put `text` (NULL: empty) into force, over the machine's defaults.  `now`: FIXED keys stay as they
 * are there (NULL: all are free).  Under the lock. */
static bool put_in_force(const char *text, const ac_config_t *now, const bool *enabled,
                         ac_config_error_t *error) {
    static char whole[AC_LIVE_CONF];
    static ac_config_t wanted;
    if (ac_config_merge(has_defaults ? defaults : "", text, whole, sizeof whole, error,
                        &defaults_warnings) != 0 ||
        ac_config_parse(whole, &wanted, error, NULL) != 0)
        return false;
    if (now)
        ac_config_take_fixed(&wanted, now);
    if (enabled)
        wanted.enabled = *enabled;
    const ac_config_t *kept = keep(&wanted);
    if (!kept) {
        snprintf(error->text, sizeof error->text, "host memory is short");
        return false;
    }
    atomic_store(&in_force, kept);
    ac_live_set_conf(whole);
    return true;
}

/* The machine's defaults, at the first use of CUDA.  What the environment gives counts more, if it is
 * good, and so does what the program set through the C API before. */
static void read_defaults(void) {
    static char text[AC_LIVE_CONF]; /* under the lock */
    static ac_config_t plain;       /* as well */
    char why[AC_DEFAULTS_WHY];
    ac_config_error_t error;
    const char *path = ac_defaults_path();
    if (!path)
        return;
    bool good = ac_defaults_read(path, defaults, sizeof defaults, why);
    ac_lock(&config_lock);
    const ac_config_t *now = ac_process_config();
    has_defaults = good && *defaults;
    if (has_defaults) {
        if (now == &from_environment)
            snprintf(text, sizeof text, "%s", conf_text && !conf_bad ? conf_text : "");
        else
            ac_live_conf(ac_live, text);
        /* accel_enable leaves no text. */
        bool by_call =
            ac_config_parse(text, &plain, &error, NULL) == 0 && plain.enabled != now->enabled;
        good = put_in_force(text, NULL, by_call ? &now->enabled : NULL, &error);
        has_defaults = good;
        if (!good)
            snprintf(why, sizeof why, "%s", error.text);
    }
    ac_unlock(&config_lock);
    defaults_bad = !good;
    if (!good)
        ac_log(AC_LOG_ERROR, "%s was not applied: %s (`accelcache config` shows it)", path, why);
}

/* If the user asked for strict settings and one is wrong, lets no request for device memory through. */
static void refuse_wrong_settings(void) {
    static ac_config_t refusing; /* under the lock */
    if (!(conf_bad || defaults_bad) || !(conf_strict || ac_config_is_strict(defaults)))
        return;
    ac_lock(&config_lock);
    refusing = *ac_process_config();
    refusing.enabled = true;
    refusing.memory_limit = 1;
    refusing.view = AC_VIEW_DEVICE; /* a device of one byte would confuse the program */
    const ac_config_t *kept = keep(&refusing);
    if (kept)
        atomic_store(&in_force, kept);
    ac_unlock(&config_lock);
    ac_log(AC_LOG_ERROR,
           kept ? "strict settings: every request for device memory fails until the settings are "
                  "right (`accelcache config` checks them)"
                : "strict settings: host memory is short, wrong settings are not refused");
}

static _Atomic bool given_up; /* for good: see ac_process_give_up */

static void switch_off(void) {
    atomic_store(&ac_fast_path, false);
    atomic_store(&ac_enabled, false);
}

/* What follows from the configuration in force.  Under the lock. */
static void apply(void) {
    const ac_config_t *config = ac_process_config();
    bool enabled = config->enabled && !sanitized && !atomic_load(&given_up);
    atomic_store(&ac_log_level, config->log_level);
    atomic_store(&ac_enabled, enabled);
    atomic_store(&ac_filling, config->fill != 0);
    atomic_store(&ac_guarding, enabled && config->guard);
    if (atomic_load(&ac_state) != AC_STATE_INERT) { /* a fork child: its parent's locks are taken */
        ac_free_sync_configure();
        ac_device_configure();
    }
    atomic_store(&ac_fast_path, enabled && !profiled);
    if (atomic_load(&given_up)) /* just now */
        switch_off();
}

void ac_process_give_up(const char *why) {
    if (atomic_exchange(&given_up, true))
        return;
    atomic_store(&ac_cuda_pages_stay, true);
    switch_off();
    ac_generation_grow();
    ac_log_once(AC_LOG_WARNING,
                "%s: its work cannot be waited for. The cache is off from now on, requests go to "
                "the driver",
                why);
}

bool ac_process_gave_up(void) {
    return atomic_load(&given_up);
}

bool ac_process_configure(const char *text, ac_config_error_t *error) {
    static ac_config_t wanted; /* under the lock */
    ac_process_config(); /* the environment comes before any call */
    ac_lock(&config_lock);
    const ac_config_t *now = ac_process_config();
    bool running = atomic_load(&ac_state) == AC_STATE_ACTIVE;
    bool done = ac_config_parse(text, &wanted, error, NULL) == 0 &&
                (!running || ac_config_keep_fixed(&wanted, now, error)) &&
                put_in_force(text, running ? now : NULL, NULL, error);
    if (done) {
        apply();
        ac_generation_grow();
    }
    ac_unlock(&config_lock);
    if (done)
        ac_writer_configured();
    return done;
}

bool ac_process_enable(bool enabled) {
    static ac_config_t wanted; /* under the lock */
    ac_lock(&config_lock);
    wanted = *ac_process_config();
    wanted.enabled = enabled;
    const ac_config_t *kept = keep(&wanted);
    if (kept) {
        atomic_store(&in_force, kept);
        apply();
        ac_generation_grow();
    }
    ac_unlock(&config_lock);
    if (kept)
        ac_writer_configured();
    return kept;
}

/* --- fork and exit --- */

static void fork_prepare(void) {
    ac_fds_fork_prepare();
    ac_loader_fork_prepare();
}

static void fork_parent(void) {
    ac_loader_fork_parent();
    ac_fds_fork_parent();
}

/* The child shares no memory and no device with its parent: it must not count into the parent's
 * page, write a dump, or take a lock that another thread held. */
static void forked_child(void) {
    if (atomic_load(&ac_state) == AC_STATE_ASLEEP)
        return;
    atomic_store(&ac_state, AC_STATE_INERT);
    ac_generation_grow();
    config_lock = (ac_mutex_t)AC_MUTEX(CONFIG);
    ac_loader_fork_child();
    ac_fds_fork_child();
    ac_ipc_socket_fork_child();
    ac_ipc_serve_fork_child();
    ac_control_fork_child();
    ac_ipc_table_fork_child();
    ac_ipc_fork_child();
    ac_live_fork_child();
    ac_carve_fork_child();
    ac_thread_fork_child();
    ac_own_thread_fork_child();
    ac_writer_fork_child();
    ac_trace_fork_child();
    ac_recording_fork_child();
}

/* From here on: no CUDA of our own.  Later exit handlers may still free memory. */
AC_START static void exit_began(void) {
    int active = AC_STATE_ACTIVE;
    if (atomic_compare_exchange_strong(&ac_state, &active, AC_STATE_EXITING)) {
        atomic_store(&ac_cuda_quiet, true);
        ac_generation_grow();
    }
}

AC_START static void last_dump(void) {
    static _Atomic bool done;
    /* The page's pid: a child made without fork handlers (_Fork, clone) has our state as well. */
    if (ac_live->pid != (int32_t)ac_raw_getpid() || atomic_exchange(&done, true))
        return;
    if (ac_process_config()->leak_report != AC_LEAKS_OFF) {
        ac_leaks_find(ac_device_held);
        if (ac_process_config()->leak_report == AC_LEAKS_SAY)
            ac_leaks_say();
    }
    /* Metrics that were written again and again are those of a process that runs. */
    const ac_config_t *config = ac_process_config();
    bool going = config->dump_format == AC_DUMP_PROMETHEUS && config->dump_interval > 0 &&
                 strcmp(config->dump, "none") != 0;
    if (going)
        ac_process_end_metrics();
    else
        ac_process_dump_configured("exit");
    /* After a failure the figures stay where `accelcache stat` finds them, as those of a killed process
     * do; ac_live_tidy removes the oldest of many. */
    if (!atomic_load(&ac_process_dump_failed))
        ac_live_close();
}

AC_START static void tell_missing_driver(void) {
    if (atomic_load(&ac_state) == AC_STATE_ASLEEP &&
        atomic_load(&ac_driver_wanted) == (int)ac_raw_getpid() && !ac_resolve_driver("cuInit"))
        ac_log_once(AC_LOG_WARNING,
                    "the program asked for a CUDA driver and found none (libcuda.so.1): nothing "
                    "was cached; install NVIDIA's driver, name its folder in LD_LIBRARY_PATH, or try "
                    "`accelcache run --sim`");
}

AC_START static void process_over(void *unused) {
    (void)unused;
    exit_began();
    if (atomic_load(&ac_state) == AC_STATE_EXITING) {
        /* Before any other system call.  Behind a filter of the program's own each of them may
         * kill the process, and change its exit status: the page stays as that of a killed
         * process. */
        if (ac_filter_at_exit()) {
            ac_live_warn(ac_process_filtered);
            return;
        }
        ac_ipc_socket_close(); /* before the folder goes */
        ac_ipc_table_close();
        last_dump();
        ac_trace_close();
    }
    tell_missing_driver();
}

/* glibc's: exit handlers that belong to no library. */
int __cxa_atexit(void (*handler)(void *), void *arg, void *library);
int __cxa_at_quick_exit(void (*handler)(void *), void *library);

/* Runs before the C library registers the loader's own exit handler: what is registered here is
 * run after it, and so after the destructors of every library, which may free memory too. */
__attribute__((constructor)) AC_START static void loaded(int argc, char **argv) {
    ac_live_arguments(argc, argv);
    ac_process_config();
    ac_log_start();
    ac_folder_start();
    ac_thread_watch_main();
    ac_sandbox_start();
    /* A driver that is there from the start is found now: later the loader's lock may be held by
     * a thread that waits for the one that asks. */
    if (ac_driver_is_before()) {
        ac_current_goes_unseen();
        atomic_store(&ac_graph_unseen, true);
        ac_streams_unseen();
    }
    ac_variables_start();
    __cxa_atexit(process_over, NULL, NULL);
    __cxa_at_quick_exit(process_over, NULL);
}

/* --- waking --- */

static void count_cuda(ac_cuda_event_t event) {
    static const unsigned counter[] = {
        [AC_CUDA_FENCE_CTX] = AC_COUNT_fences_ctx,
        [AC_CUDA_FENCE_STREAMS] = AC_COUNT_fences_streams,
        [AC_CUDA_FENCE_LEGACY] = AC_COUNT_fences_legacy,
        [AC_CUDA_FENCE_SYNC] = AC_COUNT_fences_sync,
        [AC_CUDA_FENCE_QUERY] = AC_COUNT_fence_queries,
        [AC_CUDA_JOIN] = AC_COUNT_join_events,
        [AC_CUDA_STICKY] = AC_COUNT_internal_failures,
    };
    ac_count(ac_thread_tls, counter[event]);
}

static uint64_t number_of_thread(void) {
    return ac_thread_tls ? ac_thread_tls->number : 0;
}

static bool is_unseen(void) {
    return ac_fence_is_unseen();
}

static void report_configuration(void) {
    const ac_config_t *config = ac_process_config();
    atomic_store(&ac_log_level, config->log_level);
    if (conf_bad)
        ac_log(AC_LOG_ERROR, "ACCEL_ALLOC_CONF was not applied, the defaults hold: %s",
               conf_error.text);
    for (unsigned i = 0; conf_warned && i < conf_warnings.count; i++)
        ac_log(AC_LOG_WARNING, "ACCEL_ALLOC_CONF: %s", conf_warnings.text[i]);
    for (unsigned i = 0; has_defaults && i < defaults_warnings.count; i++)
        ac_log(AC_LOG_WARNING, "%s: %s", ac_defaults_path(), defaults_warnings.text[i]);
    if (sanitized && config->enabled)
        ac_log(AC_LOG_WARNING, "compute-sanitizer is attached: the cache is off");
    if (config->fence == AC_FENCE_CTX && !ac_driver.cuCtxRecordEvent)
        ac_log(AC_LOG_WARNING,
               "fence:ctx needs a driver of CUDA 12.5 or later: fence:streams holds");
}

/* Changes of the configuration wait: what they write to the page would be lost while it is copied
 * to its file. */
static int open_page(void) {
    static char conf[AC_LIVE_CONF]; /* under the lock */
    ac_lock(&config_lock);
    bool changed = ac_process_config() != &from_environment;
    if (changed) /* before CUDA was used */
        ac_live_conf(ac_live, conf);
    size_t bytes;
    const char *names = ac_hook_names(&bytes);
    int error = ac_live_open(changed ? conf : conf_text, names, bytes, AC_HOOK_COUNT);
    ac_unlock(&config_lock);
    return error;
}

/* Once. */
static void open_trace(void) {
    static char path[AC_FOLDER_PATH];
    int other, error = ac_trace_open(ac_process_config()->trace, path, sizeof path, &other);
    if (error)
        ac_log(AC_LOG_WARNING, "cannot record allocations to %s: %s; %s", path, strerror(error),
               ac_process_remedy(error, "free space there, or name another file with "
                             "ACCEL_ALLOC_CONF=trace:PATH"));
    else if (other)
        ac_log(
            AC_LOG_WARNING,
            "process %d records to the file that trace names: this one records to %s; with %%p "
            "in the name each process has its own",
            other, path);
}

/* Under the kernel's name for it, past whatever stands in for the C library's. */
static void find_clock(void) {
#if defined(__aarch64__)
    static const char name[] = "__kernel_clock_gettime";
#else
    static const char name[] = "__vdso_clock_gettime";
#endif
    ac_object_t object = ac_object_by_soname("linux-vdso.so");
    void *found = object.dynamic ? ac_object_symbol(&object, name) : NULL;
    ac_raw_clock_fn *clock;
    memcpy(&clock, &found, sizeof clock);
    atomic_store(&ac_raw_clock, clock);
}

static void set_up(void) {
    int version = 0;
    find_clock();
    read_defaults();
    report_configuration();
    refuse_wrong_settings();
    ac_filter_start();
    if (!pthread_atfork(fork_prepare, fork_parent, forked_child)) /* before there is a page to share */
        ac_loader_start();
    int error = open_page();
    ac_process_page_shared = !error;
    if (error)
        ac_log(AC_LOG_WARNING,
               "no shared page for live statistics in %s: %s; %s. Until then `accelcache stat "
               "PID` does not see this program; exit writes the dump as usual, a signal or _exit "
               "leaves no figures",
               ac_live_dir(), strerror(error),
               error == EEXIST ? "remove what lies there under this program's name"
                               : ac_process_remedy(error, "free space there, or name a writable folder "
                                               "with ACCEL_LIVE_DIR"));
    else
        ac_live_tidy();
    if (ac_live_dir_missing())
        ac_log(AC_LOG_WARNING,
               "ACCEL_LIVE_DIR names %.200s, which is no folder: live statistics, and what other "
               "processes need to open IPC handles, go to %s",
               ac_live_dir_missing(), ac_live_dir());
    if (ac_live_strayed)
        ac_log(
            AC_LOG_WARNING,
            "another user holds the name of this user's folder in %s: live statistics go to %s, "
            "and those of killed processes stay there until `accelcache stat --remove`",
            ac_live_dir(), ac_live_file.home);
    if (ac_driver.cuDriverGetVersion(&version) == CUDA_SUCCESS)
        ac_live->driver_version = (uint32_t)version;
    open_trace();
    ac_recording_start();
    ac_cuda_count = count_cuda;
    ac_cuda_thread = number_of_thread;
    ac_cuda_unseen = is_unseen;
    atomic_store(&ac_dump_figures, ac_device_figures);
    ac_lock(&config_lock);
    apply();
    ac_unlock(&config_lock);
    ac_pinned_start();
    ac_graph_hooks_setup();
    ac_ipc_setup();
    ac_guard_setup();
    ac_thread_setup();
    ac_barrier_setup();
    atexit(exit_began);
    at_quick_exit(exit_began);
    ac_decay_start();
    ac_writer_start();
    ac_control_start();
}

/* Whether the driver of this process was initialised. */
static bool driver_ready(void) {
    AC_START_DATA static _Atomic bool bound, hopeless;
    const char *missing = NULL;
    CUcontext current;
    if (atomic_load(&hopeless))
        return false;
    if (!atomic_load(&bound)) {
        if (!ac_resolve_driver("cuInit"))
            return false; /* not loaded yet */
        if (!ac_driver_bind(ac_resolve_driver, &missing)) {
            ac_log_once(AC_LOG_WARNING,
                        "this driver lacks %s: the cache is off; update NVIDIA's driver",
                        missing);
            atomic_store(&hopeless, true);
            return false;
        }
        atomic_store(&bound, true);
    }
    return ac_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS;
}

bool ac_process_active(void) {
    int asleep = AC_STATE_ASLEEP;
    ac_process_config();
    if (!atomic_compare_exchange_strong(&ac_state, &asleep, AC_STATE_WAKING))
        return asleep == AC_STATE_ACTIVE;
    if (!driver_ready()) {
        atomic_store(&ac_state, AC_STATE_ASLEEP);
        return false;
    }
    set_up();
    atomic_store(&ac_state, AC_STATE_ACTIVE);
    return true;
}

static void tell_failed_start(CUresult result) {
    if (result == CUDA_ERROR_NO_DEVICE)
        ac_log_once(AC_LOG_WARNING,
                    "the driver has no CUDA device for this program (cuInit answers %d): nothing "
                    "is cached; look at nvidia-smi and CUDA_VISIBLE_DEVICES",
                    (int)result);
    else
        ac_log_once(AC_LOG_WARNING,
                    "the CUDA driver does not start (cuInit answers %d): nothing is cached; "
                    "`accelcache doctor` looks for the reason",
                    (int)result);
}

/* A process that never initialises CUDA never wakes. */
CUresult cuInit(unsigned flags) {
    ac_driver_open();
    cuInit_fn *real = AC_REAL(cuInit);
    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    CUresult result = real(flags);
    if (result != CUDA_SUCCESS && atomic_load(&ac_state) == AC_STATE_ASLEEP)
        tell_failed_start(result);
    ac_thread_t *thread = result == CUDA_SUCCESS && ac_is_active() ? ac_thread_get() : NULL;
    ac_count(thread, AC_COUNT_HOOKS + AC_HOOK_cuInit);
    return result;
}
