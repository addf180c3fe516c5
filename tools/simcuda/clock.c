/* Device time: the virtual clock, or wall time.  With wall time, threads complete work when the
 * program does not poll.
 *
 * Threads are started when there first is something for them.  With clock:real a worker completes
 * work that is due, and kernels run in no other thread.  While a worker runs a kernel, another one
 * watches the clock.  A kernel that blocks therefore delays only its own stream.  The host thread
 * runs host functions in the same way.  With clock:virtual, too, no host function runs in a thread
 * of the program: the thread that moves time waits for the host thread.  Workers and the host
 * thread are detached and stop at process exit. */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "race.h"
#include "state.h"

pthread_mutex_t *sim_lock_mutex(void);

static atomic_ullong virtual_now;
static pthread_cond_t changed, worker_wake, spare_wake, host_wake, lent_back;
static unsigned waiters; /* threads in sim_wait */
static bool worker_runs, host_runs;
static bool watched; /* one worker, the watcher, wakes when work is due */
static pthread_t watcher;
static unsigned spares; /* workers that wait for their turn */
static uint64_t worker_until; /* when it looks again; UINT64_MAX: when woken */
static bool stepping;         /* clock:virtual: a thread moves time forward */
static pthread_t stepper;
static sim_work_t *lent; /* clock:virtual: what the host thread runs while the stepper waits */
static void (*lent_body)(sim_work_t *);

enum { SPIN_NS = 30000, SLACK_NS = 20000, GATED_POLL_NS = 50000, LEAST_CALL_NS = 100 };

uint64_t sim_wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sim_now(void) {
    return sim_config.virtual_clock ? atomic_load(&virtual_now) : sim_wall_ns();
}

void sim_clock_start(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_cond_init(&worker_wake, &attributes);
    pthread_cond_init(&spare_wake, &attributes);
    pthread_cond_init(&host_wake, &attributes);
    pthread_cond_init(&lent_back, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* The program may cancel its thread in a wait.  The thread would then end with the lock held, and
 * as the stepper. */
static void wait_until(pthread_cond_t *condition, uint64_t until) {
    int cancel;
    struct timespec deadline = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (until == UINT64_MAX)
        pthread_cond_wait(condition, sim_lock_mutex());
    else
        pthread_cond_timedwait(condition, sim_lock_mutex(), &deadline);
    pthread_setcancelstate(cancel, NULL);
}

static void nap(long ns) {
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    nanosleep(&(struct timespec){0, ns}, NULL);
    pthread_setcancelstate(cancel, NULL);
}

static bool start_thread(void *(*body)(void *)) {
    sigset_t all, old;
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes))
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigdelset(&all, SIGSEGV); /* kernels may fault (kernel_fault.c); a blocked SIGSEGV ends the process */
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's signals go to other threads */
    bool started = !pthread_create(&thread, &attributes, body, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static bool leaving(void) {
    return atomic_load(&sim_gate) & SIM_GATE_EXITING;
}

static bool is_watcher(void) {
    return watched && pthread_equal(watcher, pthread_self());
}

static void *worker(SIM_UNUSED void *argument) {
    sim_lock();
    while (!leaving()) {
        if (watched) {
            spares++;
            wait_until(&spare_wake, UINT64_MAX);
            spares--;
            continue;
        }
        watched = true;
        watcher = pthread_self();
        uint64_t now = sim_wall_ns();
        sim_pump(now);
        if (!is_watcher())
            continue;
        worker_until = UINT64_MAX;
        if (sim_effects)
            worker_until = sim_next_due();
        if (sim_has_gated() && worker_until > now + GATED_POLL_NS)
            worker_until = now + GATED_POLL_NS;
        wait_until(&worker_wake, worker_until);
        watched = false;
    }
    sim_unlock();
    return NULL;
}

void sim_clock_hand_over(void) {
    if (!is_watcher())
        return;
    watched = false;
    worker_until = 0; /* the next watcher looks first */
    if (spares)
        pthread_cond_signal(&spare_wake);
    else if (!start_thread(worker))
        watched = true;
}

/* Completes due work in a thread of the program, except kernels: only workers run them. */
static void pump_here(uint64_t now) {
    if (worker_runs)
        sim_pump_no_kernel(now);
    else
        sim_pump(now);
}

static void run_lent(void) {
    lent_body(lent);
    lent = NULL;
    pthread_cond_broadcast(&lent_back);
}

static void *host_thread(SIM_UNUSED void *argument) {
    sim_lock();
    while (!leaving()) {
        sim_work_t *work = sim_host_take();
        if (work)
            sim_host_run(work);
        else if (lent)
            run_lent();
        else
            wait_until(&host_wake, UINT64_MAX);
    }
    sim_unlock();
    return NULL;
}

/* Tells the clock that work is due at `due`.  `effect`: the program can notice it without a driver
 * call. */
void sim_clock_kick(uint64_t due, bool effect) {
    if (sim_config.virtual_clock || !effect)
        return;
    if (!worker_runs) {
        worker_until = 0;
        worker_runs = start_thread(worker);
    } else if (due + SLACK_NS < worker_until) {
        worker_until = due;
        pthread_cond_signal(&worker_wake);
    }
}

void sim_clock_host_kick(void) {
    if (!host_runs)
        host_runs = start_thread(host_thread);
    else
        pthread_cond_signal(&host_wake);
}

/* Only the stepper calls this, so there is one call at a time. */
void sim_clock_host_call(void (*body)(sim_work_t *), sim_work_t *work) {
    lent = work;
    lent_body = body;
    sim_clock_host_kick();
    if (!host_runs)
        run_lent(); /* no thread could be started */
    while (lent == work && !leaving())
        wait_until(&lent_back, UINT64_MAX);
}

void sim_clock_done(void) {
    if (waiters)
        pthread_cond_broadcast(&changed);
}

/* Moves time to the next event.  The lock is held, and may be dropped meanwhile. */
static void step_virtual(void) {
    if (stepping && !pthread_equal(stepper, pthread_self())) {
        waiters++;
        wait_until(&changed, sim_wall_ns() + 1000000);
        waiters--;
        return;
    }
    stepping = true;
    stepper = pthread_self();
    uint64_t due = sim_next_due();
    if (due != UINT64_MAX) {
        if (due > atomic_load(&virtual_now))
            atomic_store(&virtual_now, due);
        sim_pump_next();
    } else {
        /* Only another thread, or a write to host memory, can release this work. */
        sim_unlock();
        nap(GATED_POLL_NS);
        sim_lock();
        atomic_fetch_add(&virtual_now, GATED_POLL_NS);
        sim_pump(atomic_load(&virtual_now));
    }
    stepping = false;
    sim_clock_done();
}

static void step_real(void) {
    uint64_t now = sim_wall_ns(), due = sim_next_due();
    if (due <= now)
        pump_here(now);
    if (due <= now && sim_next_due() != due)
        return;
    if (due <= now)
        due = now + 2 * SPIN_NS; /* a worker is about to take the work */
    if (due - now < SPIN_NS) { /* sleeping would overshoot */
        sim_unlock();
        while (sim_wall_ns() < due)
            ;
        sim_lock();
        return;
    }
    uint64_t until = due == UINT64_MAX ? now + 10000000 : due - SPIN_NS / 2;
    if (sim_has_gated() && until > now + GATED_POLL_NS)
        until = now + GATED_POLL_NS;
    waiters++;
    wait_until(&changed, until);
    waiters--;
    if (sim_has_gated())
        pump_here(sim_wall_ns());
}

static void wait_for(sim_work_t *work, void (*learn)(sim_work_t *)) {
    if (!work)
        return;
    sim_work_ref(work);
    while (work->state != SIM_DONE) {
        if (sim_config.virtual_clock)
            step_virtual();
        else
            step_real();
    }
    if (sim_race_on)
        learn(work);
    sim_work_unref(work);
}

void sim_wait(sim_work_t *work) {
    wait_for(work, sim_race_seen);
}

void sim_wait_reached(sim_work_t *work) {
    wait_for(work, sim_race_reached);
}

/* Lets virtual time pass in queries.  A thread that only polls makes no other calls, so its
 * queries take longer and longer. */
static void polled(bool done) {
    enum { PATIENT = 8, STEPS = 12 };
    sim_thread_t *self = sim_config.virtual_clock ? sim_thread() : NULL;
    if (!self)
        return;
    unsigned polls = self->polls++;
    if (done)
        self->polls = 0;
    else if (polls >= PATIENT)
        self->call_ns += (uint64_t)LEAST_CALL_NS
                         << (polls - PATIENT < STEPS ? polls - PATIENT : STEPS);
}

bool sim_is_done(sim_work_t *work) {
    if (!work)
        return true;
    if (work->state != SIM_DONE && !sim_config.virtual_clock)
        pump_here(sim_wall_ns());
    if (work->state == SIM_DONE && sim_race_on)
        sim_race_seen(work);
    polled(work->state == SIM_DONE);
    return work->state == SIM_DONE;
}

static void advance_virtual(uint64_t ns) {
    sim_lock();
    uint64_t until = atomic_fetch_add(&virtual_now, ns) + ns;
    if (!stepping && (sim_next_due() <= until || sim_has_gated())) {
        stepping = true;
        stepper = pthread_self();
        sim_pump(until);
        stepping = false;
        sim_clock_done();
    }
    sim_unlock();
}

void sim_spend(uint64_t ns) {
    if (sim_config.virtual_clock) {
        advance_virtual(ns);
        return;
    }
    uint64_t until = sim_wall_ns() + ns;
    if (ns > 1000000) {
        uint64_t asleep = ns - 500000;
        nanosleep(
            &(struct timespec){(time_t)(asleep / 1000000000u), (long)(asleep % 1000000000u)},
            NULL);
    }
    while (sim_wall_ns() < until)
        ;
}

void sim_call_bytes(sim_fn_t fn, uint64_t bytes) {
    sim_thread_t *self = sim_cost_per_mib(fn) ? sim_thread() : NULL;
    if (self)
        self->call_ns += (uint64_t)((double)sim_cost_per_mib(fn) * (double)bytes / (1 << 20));
}

void sim_call_pages(sim_fn_t fn, uint64_t pages) {
    sim_thread_t *self = sim_cost_per_page(fn) && pages > 1 ? sim_thread() : NULL;
    if (self)
        self->call_ns += sim_cost_per_page(fn) * (pages - 1);
}

void sim_call_pay(sim_fn_t fn, unsigned traits) {
    uint64_t cost = sim_cost_fixed(fn);
    if (sim_self) {
        cost += sim_self->call_ns;
        sim_self->call_ns = 0;
        if (sim_self->in_host_function)
            return;
    }
    if (sim_config.virtual_clock && cost < LEAST_CALL_NS)
        cost = traits & SIM_LOCKLESS ? cost : LEAST_CALL_NS;
    if (cost)
        sim_spend(cost);
}
