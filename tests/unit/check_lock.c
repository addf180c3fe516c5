/* Locks, conditions, and the order of locks (lock.h). A permitted lock or wait succeeds, a forbidden one ends the
 * process. */
#include "device/wait.h"
#include "run_suite.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

static ac_mutex_t graphs = AC_MUTEX(GRAPHS), recall = AC_MUTEX(RECALL), leaf = AC_MUTEX(LEAF),
                  other_leaf = AC_MUTEX(LEAF);
static ac_rwlock_t gate = AC_RWLOCK(GATE);
static ac_cond_t never;

START_TEST(ascending_ranks_are_let_through) {
    ac_lock_shared(&gate);
    ac_lock(&graphs);
    ac_lock(&recall);
    ac_lock(&leaf);
    ac_unlock(&graphs); /* locks may be released in any order */
    ac_unlock(&leaf);
    ac_lock(&leaf);
    ac_unlock(&leaf);
    ac_unlock(&recall);
    ac_release(&gate);
    ac_lock(&graphs);
    ac_unlock(&graphs);
}
END_TEST

static void *take_graphs(void *arg) {
    ac_lock(&graphs);
    ac_unlock(&graphs);
    return arg;
}

START_TEST(ranks_of_other_threads_do_not_count) {
    pthread_t other;
    ac_lock(&leaf);
    ck_assert_int_eq(pthread_create(&other, NULL, take_graphs, NULL), 0);
    pthread_join(other, NULL);
    ac_unlock(&leaf);
}
END_TEST

START_TEST(wait_with_the_gate_only) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ac_lock_shared(&gate);
    ac_lock(&leaf);
    ck_assert_int_ne(ac_wait_until(&never, &leaf, &now), 0);
    ac_unlock(&leaf);
    ac_release(&gate);
}
END_TEST

/* --- threads that meet --- */

enum { THREADS = 4, ROUNDS = 20000 };
static long counted;
static bool open;

static void *count(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        ac_lock(&leaf);
        counted++;
        ac_unlock(&leaf);
    }
    return arg;
}

static void in_threads(pthread_t thread[THREADS], void *body(void *)) {
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, body, NULL), 0);
}

static void join(pthread_t thread[THREADS]) {
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
}

START_TEST(one_thread_has_the_lock) {
    pthread_t thread[THREADS];
    counted = 0;
    in_threads(thread, count);
    join(thread);
    ck_assert_int_eq(counted, THREADS * ROUNDS);
    ck_assert(ac_try_lock(&leaf));
    ac_unlock(&leaf);
}
END_TEST

static void *try_for_a_moment(void *arg) {
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 20000000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    errno = ENOENT;
    bool had = ac_try_lock(&leaf) || ac_lock_until(&leaf, &soon);
    ck_assert_int_eq(errno, ENOENT);
    soon.tv_nsec = -1;
    had |= ac_lock_until(&leaf, &soon); /* no time */
    *(bool *)arg = had;
    return NULL;
}

START_TEST(a_lock_is_waited_for_until_the_deadline) {
    pthread_t other;
    bool had = true;
    ac_lock(&leaf);
    ck_assert_int_eq(pthread_create(&other, NULL, try_for_a_moment, &had), 0);
    pthread_join(other, NULL);
    ck_assert(!had);
    ac_unlock(&leaf);
    ck_assert(ac_try_lock(&leaf));
    ac_unlock(&leaf);
}
END_TEST

static void *wait_until_open(void *arg) {
    ac_lock(&leaf);
    counted++;
    while (!open)
        ac_wait(&never, &leaf);
    ac_unlock(&leaf);
    return arg;
}

START_TEST(all_that_wait_look_again) {
    pthread_t thread[THREADS];
    bool all = false;
    counted = 0;
    open = false;
    in_threads(thread, wait_until_open);
    while (!all) {
        ac_lock(&leaf);
        all = counted == THREADS; /* and have released the lock */
        open = all;
        ac_unlock(&leaf);
        sched_yield();
    }
    ac_cond_broadcast(&never);
    join(thread);
}
END_TEST

static void descend(void) {
    ac_lock(&recall);
    ac_lock(&graphs);
}

static void take_equal(void) {
    ac_lock(&leaf);
    ac_lock(&other_leaf);
}

static void gate_inside(void) {
    ac_lock(&recall);
    ac_lock_exclusive(&gate);
}

static void gate_shared_inside(void) {
    ac_lock(&graphs);
    ac_lock_shared(&gate);
}

static void descend_with_limit(void) {
    struct timespec past = {0};
    ac_lock(&recall);
    ac_lock_until(&graphs, &past);
}

static void release_of_another(void) {
    ac_unlock(&graphs);
}

static void wait_with_another(void) {
    struct timespec past = {0};
    ac_lock(&recall);
    ac_lock(&leaf);
    ac_wait_until(&never, &leaf, &past);
}

static void (*const broken[])(void) = {descend,
                                       take_equal,
                                       gate_inside,
                                       gate_shared_inside,
                                       descend_with_limit,
                                       release_of_another,
                                       wait_with_another};
enum { BROKEN = sizeof broken / sizeof broken[0] };

/* Signal that __builtin_trap raises. */
#if defined(__aarch64__)
enum { TRAP = SIGTRAP };
#else
enum { TRAP = SIGILL };
#endif

static ac_cond_t bell;
static _Atomic int heard;

static void *hear(void *arg) {
    uint32_t seen = 0;
    while (atomic_load(&heard) < 2) {
        ac_cond_await(&bell, &seen, NULL);
        atomic_fetch_add(&heard, 1);
    }
    return arg;
}

START_TEST(a_change_before_the_wait_is_seen) {
    uint32_t seen = 0;
    struct timespec past = {0};
    ac_cond_broadcast(&bell);
    ck_assert(!ac_cond_await(&bell, &seen, NULL)); /* at once; otherwise the test times out */
    ck_assert_uint_eq(seen, 1);
    errno = ENOENT;
    ck_assert(ac_cond_await(&bell, &seen, &past)); /* it was the only signal */
    ck_assert_int_eq(errno, ENOENT);

    pthread_t other;
    ck_assert_int_eq(pthread_create(&other, NULL, hear, NULL), 0);
    while (atomic_load(&heard) < 1)
        sched_yield();
    while (!atomic_load(&bell.waiting))
        sched_yield();
    ac_cond_broadcast(&bell);
    pthread_join(other, NULL);
    ck_assert_int_eq(heard, 2);
}
END_TEST

START_TEST(broken_order_ends_the_process) {
    broken[_i]();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("lock");
    TCase *order = tcase_create("order");
    tcase_add_test(order, ascending_ranks_are_let_through);
    tcase_add_test(order, ranks_of_other_threads_do_not_count);
    tcase_add_test(order, wait_with_the_gate_only);
    tcase_add_test(order, one_thread_has_the_lock);
    tcase_add_test(order, a_lock_is_waited_for_until_the_deadline);
    tcase_add_test(order, a_change_before_the_wait_is_seen);
    tcase_add_test(order, all_that_wait_look_again);
    tcase_add_loop_test_raise_signal(order, broken_order_ends_the_process, TRAP, 0, BROKEN);
    suite_add_tcase(suite, order);
    return run_suite(suite);
}
