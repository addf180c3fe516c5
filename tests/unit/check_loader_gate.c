/* Tests loader_gate.c: which thread waits for which.  A stub counts the waits. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "observe/raw.h"
#include "run_suite.h"

/* Replaces each pause of the gate.  The first pause calls `meanwhile`. */
static unsigned waits;
static void (*meanwhile)(void);

static long pause_once(long number, long time) {
    (void)number;
    (void)time;
    void (*part)(void) = meanwhile;
    meanwhile = NULL;
    waits++;
    if (part)
        part();
    return 0;
}

#define ac_raw_call(number, a, b, time, d) pause_once(number, time)
#include "bind/loader_gate.c"

/* --- another thread, which runs one step at a time --- */

static pthread_t thread;
static pthread_barrier_t turn;
static void (*part_of_other)(void);
static int outer, inner; /* its places */
static uintptr_t self_of_other;

static void *work(void *unused) {
    for (;;) {
        pthread_barrier_wait(&turn);
        if (!part_of_other)
            return unused;
        part_of_other();
        pthread_barrier_wait(&turn);
    }
}

static void other(void (*part)(void)) {
    part_of_other = part;
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
}

static void begin(void) {
    pthread_barrier_init(&turn, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, work, NULL), 0);
    ac_loader_start();
    waits = 0;
}

static void end(void) {
    part_of_other = NULL;
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turn);
}

static void goes_in(void) {
    outer = ac_loader_enter();
}
static void goes_in_again(void) {
    inner = ac_loader_enter();
}
static void comes_out(void) {
    ac_loader_leave(outer);
}
static void comes_out_of_both(void) {
    ac_loader_leave(inner);
    ac_loader_leave(outer);
}
static void names_itself(void) {
    self_of_other = AC_THREAD_POINTER;
}
static void tries(void) {
    outer = ac_loader_try();
}
static void forks_there(void) {
    ac_loader_fork_prepare();
    ac_loader_fork_parent();
}

/* --- a fork while threads are inside --- */

START_TEST(a_fork_waits_for_who_is_inside) {
    other(goes_in);
    ck_assert_uint_eq(waits, 0);
    meanwhile = comes_out;
    ac_loader_fork_prepare();
    ck_assert_uint_eq(waits, 1);
    ac_loader_fork_parent();
    other(goes_in);
    ck_assert_uint_eq(waits, 1); /* the fork is over */
    other(comes_out);
}
END_TEST

START_TEST(it_does_not_wait_for_ever) {
    other(goes_in);
    ac_loader_fork_prepare();
    ck_assert_uint_eq(waits, TURNS + NAPS);
    ac_loader_fork_parent();
    other(comes_out);
}
END_TEST

static void goes_in_again_there(void) {
    unsigned before = waits;
    other(goes_in_again);
    ck_assert_uint_eq(waits, before); /* both would wait for each other */
    other(comes_out_of_both);
}

/* With _i, the thread's first place is taken when it enters, and free later. */
START_TEST(who_is_inside_goes_in_again) {
    other(names_itself);
    _Atomic uintptr_t *first = &inside[first_place(self_of_other)].thread;
    atomic_store(first, _i);
    other(goes_in);
    if (_i)
        atomic_store(first, 0);
    meanwhile = goes_in_again_there;
    ac_loader_fork_prepare();
    ck_assert_uint_eq(waits, 1);
    ac_loader_fork_parent();
}
END_TEST

/* A thread stays inside until it has left its outermost place. */
START_TEST(it_is_inside_until_it_came_out_of_all) {
    int first = ac_loader_enter(), second = ac_loader_enter();
    ac_loader_leave(second);
    other(forks_there);
    ck_assert_uint_eq(waits, TURNS + NAPS);
    ac_loader_leave(first);
    other(forks_there);
    ck_assert_uint_eq(waits, TURNS + NAPS);
}
END_TEST

/* With _i, the forking thread is inside, for example in a signal handler. */
START_TEST(who_forks_does_not_wait_for_itself) {
    int place = _i ? ac_loader_enter() : FREE;
    ac_loader_fork_prepare();
    ac_loader_leave(ac_loader_enter());
    ac_loader_fork_parent();
    ac_loader_leave(place);
    ck_assert_uint_eq(waits, 0);
}
END_TEST

START_TEST(meanwhile_no_other_goes_in) {
    ac_loader_fork_prepare();
    other(tries);
    ck_assert_int_lt(outer, 0);
    other(goes_in);
    ck_assert_uint_eq(waits, NAPS);
    ck_assert_int_ge(outer, 0); /* the wait ended */
    other(comes_out);
    ac_loader_fork_parent();
    other(tries);
    ck_assert_int_ge(outer, 0);
    other(comes_out);
}
END_TEST

/* Threads of the parent are not in the child. */
START_TEST(a_child_waits_for_none_of_them) {
    int place = ac_loader_enter();
    other(goes_in);
    ac_loader_fork_prepare();
    ac_loader_fork_child();
    waits = 0;
    other(tries); /* stands for a thread of the child */
    ck_assert_int_ge(outer, 0);
    other(comes_out);
    ac_loader_fork_prepare();
    ac_loader_fork_parent();
    ck_assert_uint_eq(waits, 0);
    other(forks_there); /* the forking thread is inside as before */
    ck_assert_uint_eq(waits, TURNS + NAPS);
    ac_loader_leave(place);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("loader_gate");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, end);
    tcase_add_test(all, a_fork_waits_for_who_is_inside);
    tcase_add_test(all, it_does_not_wait_for_ever);
    tcase_add_loop_test(all, who_is_inside_goes_in_again, 0, 2);
    tcase_add_test(all, it_is_inside_until_it_came_out_of_all);
    tcase_add_loop_test(all, who_forks_does_not_wait_for_itself, 0, 2);
    tcase_add_test(all, meanwhile_no_other_goes_in);
    tcase_add_test(all, a_child_waits_for_none_of_them);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
