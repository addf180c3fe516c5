/* First use, fork, exit (process.h). writer.c makes the dumps on request.
 *
 * Waking takes no lock. One thread wins the right to set things up, and the calls of the others go to
 * the driver until it is done. A thread may hold the loader's lock, for example in a library
 * constructor that uses CUDA. Since waking takes no lock, this thread never waits for a thread that
 * needs the loader's lock. */
#include "process/process.h"

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
#include "tell/process_dump.h"
#include "track/running.h"
#include "lock.h"

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
    ac_tell_fork_child();
}

/* From here on the library makes no CUDA call. Later exit handlers may still free memory. */
AC_START static void exit_began(void) {
    int active = AC_STATE_ACTIVE;
    if (atomic_compare_exchange_strong(&ac_state, &active, AC_STATE_EXITING)) {
        atomic_store(&ac_cuda_quiet, true);
        ac_generation_grow();
    }
}

AC_START static void last_dump(void) {
    static _Atomic bool done;
    /* The state does not identify a child that was made without fork handlers (_Fork, clone). The pid
     * of the page does. */
    if (ac_live->pid != (int32_t)ac_raw_getpid() || atomic_exchange(&done, true))
        return;
    if (ac_process_config()->leak_report != AC_LEAKS_OFF) {
        ac_leaks_find(ac_device_held);
        if (ac_process_config()->leak_report == AC_LEAKS_SAY)
            ac_leaks_say();
    }
    /* Metrics that an interval rewrites describe a running process, so they are removed at exit. */
    const ac_config_t *config = ac_process_config();
    bool going = config->dump_format == AC_DUMP_PROMETHEUS && config->dump_interval > 0 &&
                 strcmp(config->dump, "none") != 0;
    if (going)
        ac_process_end_metrics();
    else
        ac_process_dump_configured("exit");
    /* After a failed dump the page stays, as for a killed process, and `accelcache stat` finds the
     * figures there. ac_live_tidy removes the oldest of many pages. */
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
        /* This comes before any other system call. If the program has a seccomp filter, a system call
         * may kill the process and change its exit status. The page stays, as for a killed process. */
        if (ac_filter_at_exit()) {
            ac_live_warn(ac_process_filtered);
            return;
        }
        ac_ipc_socket_close(); /* the folder is removed later */
        ac_ipc_table_close();
        last_dump();
        ac_trace_close();
    }
    tell_missing_driver();
}

/* Functions of glibc: they register exit handlers that belong to no library. */
int __cxa_atexit(void (*handler)(void *), void *arg, void *library);
int __cxa_at_quick_exit(void (*handler)(void *), void *library);

/* Runs before the C library registers the loader's own exit handler. Handlers that are registered here
 * run after that one. Therefore they run after the destructors of every library, which may free memory
 * too. */
__attribute__((constructor)) AC_START static void loaded(int argc, char **argv) {
    ac_live_arguments(argc, argv);
    ac_process_config();
    ac_log_start();
    ac_folder_start();
    if (ac_thread_watch_main())
        ac_own_thread_main_watched();
    ac_sandbox_start();
    /* A driver that is loaded from the start is found now. Later the loader's lock may be held by a
     * thread that waits for the thread that searches. */
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

/* Opens the trace, once in a process. */
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

/* Finds the kernel's own clock, and bypasses replacements of the C library's function. */
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
    ac_process_read_defaults();
    ac_process_report_settings();
    ac_filter_start();
    if (!pthread_atfork(fork_prepare, fork_parent, forked_child)) /* before there is a page to share */
        ac_loader_start();
    size_t bytes;
    const char *names = ac_hook_names(&bytes);
    int error = ac_process_open_page(names, bytes, AC_HOOK_COUNT);
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
    ac_process_apply();
    ac_tell_start();
    atexit(exit_began);
    at_quick_exit(exit_began);
    ac_tell_started();
}

/* Returns true if the driver of this process was initialised. */
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

/* A process that never initialises CUDA never wakes the library. */
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
