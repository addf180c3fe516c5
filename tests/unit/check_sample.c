/* Selection of the calls that are timed for the library's own time (track/thread.h). Each
 * call of a thread has the same chance, also the slow first one. */
#include <check.h>

#include "track/thread.h"
#include "run_suite.h"

enum { FIRST_NS = 100000, OTHERS_NS = 100, THREADS = 4096 };

static uint64_t clock_ns;

static uint64_t now(void) {
    return clock_ns;
}

/* Adds the estimated and the true cost of the thread's first calls. */
static void call(uint64_t number, int calls, double *estimate, double *cost) {
    ac_thread_t thread = {.calls = ac_sample_phase(number)};
    for (int i = 0; i < calls; i++) {
        clock_ns = 1;
        uint64_t begin = ac_sample_begin(&thread, now);
        clock_ns += i ? OTHERS_NS : FIRST_NS;
        *estimate += begin ? (double)(now() - begin) * AC_SAMPLE : 0;
        *cost += (double)(clock_ns - 1);
    }
}

START_TEST(few_calls_of_many_threads) {
    static const int calls[] = {1, 2, 10, AC_SAMPLE, 10 * AC_SAMPLE};
    double estimate = 0, cost = 0;
    for (uint64_t number = 1; number <= THREADS; number++)
        call(number, calls[_i], &estimate, &cost);
    ck_assert_double_gt(estimate, 0.8 * cost);
    ck_assert_double_lt(estimate, 1.25 * cost);
}
END_TEST

START_TEST(the_first_thread) {
    double estimate = 0, cost = 0;
    call(1, 100 * AC_SAMPLE, &estimate, &cost);
    ck_assert_double_gt(estimate, 100.0 * AC_SAMPLE * OTHERS_NS * 0.8);
    ck_assert_double_lt(estimate, cost * 1.25);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sample");
    TCase *tests = tcase_create("sample");
    tcase_add_loop_test(tests, few_calls_of_many_threads, 0, 5);
    tcase_add_test(tests, the_first_thread);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
