/* The order of locks (lock.h): what a thread may take and wait for is let through, what it may not
 * ends the process. */
#include "device/wait.h"
#include "run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>

static ac_mutex_t graphs = AC_MUTEX(GRAPHS), recall = AC_MUTEX(RECALL), leaf = AC_MUTEX(LEAF),
                  other_leaf = AC_MUTEX(LEAF);
static ac_rwlock_t gate = AC_RWLOCK(GATE);
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

START_TEST(ascending_ranks_are_let_through) {
    ac_lock_shared(&gate);
    ac_lock(&graphs);
    ac_lock(&recall);
    ac_lock(&leaf);
    ac_unlock(&graphs); /* the order of releases is free */
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

/* What __builtin_trap raises. */
#if defined(__aarch64__)
enum { TRAP = SIGTRAP };
#else
enum { TRAP = SIGILL };
#endif

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
    tcase_add_loop_test_raise_signal(order, broken_order_ends_the_process, TRAP, 0, BROKEN);
    suite_add_tcase(suite, order);
    return run_suite(suite);
}
