/* The end of a suite's main. */
#ifndef RUN_SUITE_H
#define RUN_SUITE_H

#include <check.h>

/* Runs the suite's tests and returns the exit status of main. */
static inline int run_suite_as(Suite *suite, enum fork_status fork) {
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, fork);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

/* Runs each test in a process of its own, or all in this process if the environment has
 * CK_FORK=no. */
static inline int run_suite(Suite *suite) {
    return run_suite_as(suite, CK_FORK_GETENV);
}

#endif
