/* The asymmetric barrier: two threads never both miss each other's store, whichever barrier the
 * kernel offers. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "allocator/order/barrier.h"
#include "no_membarrier.h"
#include "run_suite.h"

/* Both sides begin each round together: store, barrier, load. If other processes keep the
 * processors busy, fewer rounds fit into the time. */
enum { ROUNDS = 10000, MOST_SECONDS = 5, EAGER = 1000, COLD = 32 };
static _Alignas(64) _Atomic int mine;
static _Alignas(64) _Atomic int theirs;
static _Alignas(64) _Atomic unsigned started[2];
static _Alignas(64) _Atomic unsigned ended[2];
static _Atomic bool over; /* this round is over */
static int saw_theirs;

/* Stores to cache lines that the other side holds. They delay the store to `mine` behind them. */
static struct { _Alignas(64) _Atomic int line; } cold[COLD];

static void touch_cold(void) {
    for (int i = 0; i < COLD; i++)
        atomic_store_explicit(&cold[i].line, 1, memory_order_relaxed);
}

static void meet(_Atomic unsigned count[2], int side, unsigned round) {
    atomic_store(&count[side], round);
    for (unsigned spins = 0; atomic_load(&count[!side]) < round; spins++)
        if (spins > EAGER)
            sched_yield();
}

static int64_t seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static void *busy_side(void *arg) {
    (void)arg;
    for (unsigned round = 1; !atomic_load(&over); round++) {
        (void)atomic_load(&theirs); /* near at hand, while `mine` is the other side's */
        meet(started, 0, round);
        touch_cold();
        atomic_store_explicit(&mine, 1, memory_order_relaxed);
        ac_barrier_light();
        saw_theirs = atomic_load_explicit(&theirs, memory_order_relaxed);
        meet(ended, 0, round);
    }
    return NULL;
}

/* Returns the number of rounds in which both sides missed. */
static unsigned race(void) {
    pthread_t thread;
    unsigned missed = 0;
    atomic_store(&mine, 0);
    atomic_store(&theirs, 0);
    atomic_store(&over, false);
    for (int side = 0; side < 2; side++) {
        atomic_store(&started[side], 0);
        atomic_store(&ended[side], 0);
    }
    ck_assert_int_eq(pthread_create(&thread, NULL, busy_side, NULL), 0);
    int64_t limit = seconds() + MOST_SECONDS;
    for (unsigned round = 1; !atomic_load(&over); round++) {
        touch_cold();
        meet(started, 1, round);
        atomic_store_explicit(&theirs, 1, memory_order_relaxed);
        ck_assert(ac_barrier_heavy());
        int saw_mine = atomic_load_explicit(&mine, memory_order_relaxed);
        if (round == ROUNDS || seconds() > limit)
            atomic_store(&over, true);
        meet(ended, 1, round);
        missed += !saw_mine && !saw_theirs;
        atomic_store(&mine, 0);
        atomic_store(&theirs, 0);
    }
    pthread_join(thread, NULL);
    return missed;
}

START_TEST(before_anything_is_known) {
    ck_assert(!atomic_load(&ac_barrier_kernel));
    ck_assert_uint_eq(race(), 0);
}
END_TEST

START_TEST(with_what_the_kernel_has) {
    ac_barrier_setup();
    ac_barrier_setup();
    ck_assert_uint_eq(race(), 0);
}
END_TEST

static void *idle_thread(void *arg) {
    while (!atomic_load((_Atomic bool *)arg))
        usleep(1000);
    return NULL;
}

/* The process already has several threads at setup. The first heavy barrier registers. */
START_TEST(registered_late) {
    _Atomic bool stop = false;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, idle_thread, &stop), 0);
    ac_barrier_setup();
    errno = 4711;
    ck_assert(ac_barrier_heavy());
    ck_assert_int_eq(errno, 4711);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(race(), 0);
}
END_TEST

START_TEST(a_fork_child_goes_on) {
    ac_barrier_setup();
    ck_assert(ac_barrier_heavy());
    pid_t child = fork();
    if (child == 0)
        _exit(ac_barrier_heavy() ? 0 : 1);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

START_TEST(refused_from_the_beginning) {
    if (!refuse_membarrier(ENOSYS))
        return; /* nested filters are forbidden here */
    ac_barrier_setup();
    ck_assert(!atomic_load(&ac_barrier_kernel));
    ck_assert_uint_eq(race(), 0);
}
END_TEST

START_TEST(refused_later) {
    ac_barrier_setup();
    if (!atomic_load(&ac_barrier_kernel) || !refuse_membarrier(ENOSYS))
        return;
    errno = 4711;
    ck_assert(!ac_barrier_heavy());
    ck_assert_int_eq(errno, 4711);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("barrier");
    TCase *tcase = tcase_create("barrier"); /* each test runs in a process of its own */
    tcase_set_timeout(tcase, 60);           /* slow if other processes use the processors */
    tcase_add_test(tcase, before_anything_is_known);
    tcase_add_test(tcase, with_what_the_kernel_has);
    tcase_add_test(tcase, registered_late);
    tcase_add_test(tcase, a_fork_child_goes_on);
    tcase_add_test(tcase, refused_from_the_beginning);
    tcase_add_test(tcase, refused_later);
    suite_add_tcase(suite, tcase);
    return run_suite_as(suite, CK_FORK);
}
