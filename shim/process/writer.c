/* The thread that writes dumps on request (writer.h). It also lets idle memory decay, and does postponed
 * trims (decay.h). It starts at activation if dumps, decay or control are configured. Otherwise it starts
 * when a trim is first postponed, or when other settings need it. The signal's handler only wakes it. */
#include "process/writer.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "allocator/allocator.h"
#include "process/control.h"
#include "track/decay.h"
#include "process/own_thread.h"
#include "track/running.h"
#include "tell/process_dump.h"
#include "lock.h"
#include "observe/filter.h"
#include "observe/log.h"
#include "observe/raw.h"
#include "observe/start.h"
#include "failpoint.h"

/* The condition of the thread's sleep. It changes without a lock, in the signal's handler too. */
static ac_cond_t wake;
AC_START_DATA static _Atomic bool started, starting, dump_wanted, owed, asked;
/* True while `debt` runs: a thread that postpones a trim need not wake this one. */
static _Atomic bool collecting;
static int signal_taken;

static void on_signal(int number) {
    (void)number;
    atomic_store(&dump_wanted, true);
    ac_cond_broadcast(&wake);
}

static void add_ns(struct timespec *time, int64_t ns) {
    ns += time->tv_nsec;
    time->tv_sec += (time_t)(ns / 1000000000);
    time->tv_nsec = (long)(ns % 1000000000);
}

static bool before(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* Sleeps until there is work, or until `due` (NULL: no limit). The next check for other threads comes
 * `look_ns` from now (0: none). Returns true if that time ran out. `seen` is the number of changes of `wake`
 * that the thread has handled. */
static bool sleep_until(const struct timespec *due, int64_t look_ns, uint32_t *seen) {
    struct timespec until = ac_raw_time(CLOCK_MONOTONIC);
    add_ns(&until, look_ns);
    bool look = look_ns && (!due || before(&until, due));
    return ac_cond_await(&wake, seen, look ? &until : due) && look;
}

/* A repeated task. */
typedef struct {
    int64_t interval; /* 0: never */
    struct timespec next;
} ac_timer_t;

static void timer_start(ac_timer_t *timer, int64_t interval) {
    timer->interval = interval;
    timer->next = ac_raw_time(CLOCK_MONOTONIC);
    add_ns(&timer->next, interval);
}

static bool timer_is_due(ac_timer_t *timer) {
    struct timespec now = ac_raw_time(CLOCK_MONOTONIC);
    if (!timer->interval || before(&now, &timer->next))
        return false;
    timer->next = now;
    add_ns(&timer->next, timer->interval);
    return true;
}

/* The timers are set before the thread starts, because the program may change the settings before its first
 * turn. `debt` runs while a trim is pending, and slows down while the device works. */
static ac_timer_t dump, decay, debt;
enum { DEBT_FIRST_NS = 10000000, DEBT_LAST_NS = 1000000000 };

/* Returns the time of the next timer; NULL: no timer runs. */
static const struct timespec *first_timer(void) {
    const ac_timer_t *const timers[] = {&dump, &decay, &debt};
    const struct timespec *first = NULL;
    for (int i = 0; i < 3; i++)
        if (timers[i]->interval && (!first || before(&timers[i]->next, first)))
            first = &timers[i]->next;
    return first;
}

static void begin_to_collect(void) {
    if (!atomic_exchange(&owed, false) || debt.interval)
        return;
    atomic_store(&collecting, true);
    timer_start(&debt, DEBT_FIRST_NS);
}

static void do_pending_trim(void) {
    int64_t interval = debt.interval * 2 < DEBT_LAST_NS ? debt.interval * 2 : DEBT_LAST_NS;
    if (!atomic_load(&ac_trim_pending) || ac_decay_settle()) {
        AC_WINDOW(debt_settled);
        atomic_store(&collecting, false);
        if (atomic_load(&ac_trim_pending) &&
            !AC_FAILPOINT(pending_looked_at_once)) /* postponed by a thread that read `collecting` as true */
            atomic_store(&owed, true);
        interval = 0;
    }
    timer_start(&debt, interval);
    begin_to_collect();
}

/* Follows the interval of the current settings, by which a step counts epochs. */
static void follow_settings(void) {
    const ac_config_t *config = ac_process_config();
    int64_t interval = ac_decay_interval(config);
    if (interval != decay.interval && (config->enabled || decay.interval))
        timer_start(&decay, interval);
}

static void *writer(void *arg) {
    int64_t look_ns = 0;
    uint32_t seen = 0;
    bool quiet = false;
    (void)arg;
    for (;;) {
        look_ns = ac_own_thread_look_ns(look_ns, quiet);
        quiet = sleep_until(first_timer(), look_ns, &seen);
        int state = atomic_load(&ac_state);
        if (state == AC_STATE_EXITING || state == AC_STATE_INERT)
            return NULL;
        if (state != AC_STATE_ACTIVE) { /* the thread that started this one sets it soon */
            ac_cond_broadcast(&wake);
            sched_yield();
            continue;
        }
        if (look_ns && ac_own_thread_alone())
            return ac_own_thread_end();
        if (atomic_exchange(&dump_wanted, false))
            ac_process_dump_configured("signal");
        if (atomic_exchange(&asked, false))
            ac_control_run();
        if (timer_is_due(&dump))
            ac_process_dump_configured("interval");
        follow_settings();
        if (timer_is_due(&decay))
            ac_decay_step();
        begin_to_collect();
        if (timer_is_due(&debt))
            do_pending_trim();
    }
}

static void take_signal(void) {
    struct sigaction now, ours;
    int number = ac_process_config()->dump_signal;
    if (!number || sigaction(number, NULL, &now) != 0)
        return;
    if (now.sa_handler != SIG_DFL) {
        ac_log(AC_LOG_INFO, "signal %d belongs to the program: it will not write a dump", number);
        return;
    }
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = on_signal;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    if (sigaction(number, &ours, NULL) == 0)
        signal_taken = number;
}

/* Starts the thread, once in a process. Returns 0 or an errno value. */
static int start(void) {
    if (atomic_exchange(&starting, true))
        return 0;
    int error = ac_own_thread_start(writer);
    if (!error)
        atomic_store(&started, true);
    return error;
}

/* Returns true if the thread runs, and starts it if needed. It is not started behind a filter that may kill
 * the process for making a thread. */
static bool is_there(void) {
    return atomic_load(&started) || (!ac_filter_now() && start() == 0 && atomic_load(&started));
}

/* Wakes the thread for a pending trim.  Without a thread the program's next synchronisation does the trim. */
static void trim_postponed(void) {
    if (atomic_load(&ac_state) != AC_STATE_ACTIVE || !ac_process_config()->background_trim ||
        atomic_load(&collecting))
        return;
    if (!is_there())
        return;
    atomic_store(&owed, true);
    ac_cond_broadcast(&wake);
}

void ac_writer_start(void) {
    const ac_config_t *config = ac_process_config();
    bool dumps =
        strcmp(config->dump, "none") != 0 && (config->dump_signal || config->dump_interval > 0);
    ac_trim_notify = trim_postponed;
    int64_t interval = config->enabled ? ac_decay_interval(config) : 0;
    if (!dumps && !interval && !config->control)
        return;
    timer_start(&dump, dumps ? (int64_t)(config->dump_interval * 1e9) : 0);
    timer_start(&decay, interval);
    int error = start();
    if (error) {
        ac_log_once(
            AC_LOG_WARNING,
            "no thread for dumps on request%s: %s; raise the limit on memory or processes "
            "(ulimit -v, -u). Exit writes the dump as usual, and `accelcache stat PID` shows "
            "the figures at any time",
            interval ? ", nor for idle_trim_ms and keep_free" : "", strerror(error));
        return;
    }
    if (strcmp(config->dump, "none") != 0)
        take_signal();
}

void ac_writer_configured(void) {
    const ac_config_t *config = ac_process_config();
    if (atomic_load(&ac_state) != AC_STATE_ACTIVE)
        return;
    bool wanted = config->enabled && ac_decay_interval(config);
    if (wanted ? is_there() : atomic_load(&started))
        ac_cond_broadcast(&wake);
}

bool ac_writer_ask(void) {
    if (!atomic_load(&started))
        return false;
    atomic_store(&asked, true);
    ac_cond_broadcast(&wake);
    return true;
}

void ac_writer_thread_ended(bool is_main) {
    if (is_main)
        ac_own_thread_main_ended();
    if (ac_own_thread_main_has_ended() && atomic_load(&started))
        ac_cond_broadcast(&wake);
}

void ac_writer_fork_child(void) {
    struct sigaction now;
    atomic_store(&started, false);
    if (signal_taken && sigaction(signal_taken, NULL, &now) == 0 && now.sa_handler == on_signal)
        signal(signal_taken, SIG_DFL);
}
