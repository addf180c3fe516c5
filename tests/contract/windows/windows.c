/* windows NAME: runs the test of that WINDOW of shim/failpoints.def twice. It must pass without
 * the fault, and fail by an assertion with it. */
#include "windows.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/order/barrier.h"
#include "allocator/order/sole.h"
#include "failpoint.h"

static const struct {
    const char *name;
    int failpoint;
    void (*test)(void);
} rows[] = {
#define FAILPOINT(number, name, text)
#define WINDOW(number, name, text) {#name, (number), window_##name},
#include "failpoints.def"
#undef WINDOW
#undef FAILPOINT
};
enum { ROWS = sizeof rows / sizeof *rows, ARMED = 8 };

static struct {
    const char *window, *why; /* why: reason if the window must not be reached */
    void (*part)(void);
    _Atomic bool over;
} armed[ARMED];
static unsigned armed_count;

static void reached(const char *window) {
    for (unsigned i = 0; i < armed_count; i++) {
        if (strcmp(armed[i].window, window) || atomic_exchange(&armed[i].over, true))
            continue;
        if (armed[i].why)
            ck_abort_msg("%s: %s", window, armed[i].why);
        armed[i].part();
        return;
    }
}

static void arm(const char *window, void (*part)(void), const char *why) {
    ck_assert_uint_lt(armed_count, ARMED);
    armed[armed_count].window = window;
    armed[armed_count].part = part;
    armed[armed_count].why = why;
    armed_count++;
}

void at_window(const char *window, void (*part)(void)) {
    arm(window, part, NULL);
}

void never_at_window(const char *window, const char *why) {
    arm(window, NULL, why);
}

static pthread_t other;
static void (*others_part)(void);
static _Atomic bool other_done;

static void *run_other(void *unused) {
    others_part();
    atomic_store(&other_done, true);
    return unused;
}

void other_thread(void (*part)(void), bool (*waits)(void)) {
    others_part = part;
    atomic_store(&other_done, false);
    ck_assert_int_eq(pthread_create(&other, NULL, run_other, NULL), 0);
    while (!atomic_load(&other_done) && !(waits && waits()))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

void other_thread_ends(void) {
    ck_assert_int_eq(pthread_join(other, NULL), 0);
}

START_TEST(run) {
    ac_window = reached;
    rows[_i].test();
    for (unsigned i = 0; !ac_failpoint && i < armed_count; i++)
        ck_assert_msg(armed[i].why || atomic_load(&armed[i].over), "window %s was not reached",
                      armed[i].window);
}
END_TEST

/* Runs the row's test, with the fault or without. Returns its result and writes its message to
 * *message. */
static enum test_result result_of(int row, int failpoint, char message[256]) {
    ac_failpoint = failpoint;
    Suite *suite = suite_create(rows[row].name);
    TCase *tests = tcase_create(rows[row].name);
    tcase_add_loop_test(tests, run, row, row + 1);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_FORK);
    srunner_run_all(runner, CK_SILENT);
    TestResult **results = srunner_results(runner);
    enum test_result result = tr_rtype(results[0]);
    snprintf(message, 256, "%s:%d: %s", tr_lfile(results[0]), tr_lno(results[0]),
             tr_msg(results[0]));
    free(results);
    srunner_free(runner);
    return result;
}

/* Returns true if the row can be tested here. Four rows need cache hits that have no barrier of
 * their own. Under ThreadSanitizer no row can be tested, because it reports how the tests read
 * another thread's state. */
static bool applies(const char *name) {
    ac_barrier_setup();
    return !AC_BARRIER_TSAN &&
           (ac_barrier_is_light() ||
            (strcmp(name, "gate_before_busy") && strcmp(name, "recall_beside_owner") &&
             strcmp(name, "rest_given_outside") &&
             strcmp(name, "quarantine_beside_owner")));
}

int main(int argc, char **argv) {
    char message[256];
    int row = 0;
    atomic_store(&ac_sole_eager, true); /* frees of a few bytes rely on a stream's order */
    while (argc == 2 && row < ROWS && strcmp(argv[1], rows[row].name))
        row++;
    if (argc != 2 || row == ROWS) {
        fprintf(stderr, "usage: windows NAME, a WINDOW of shim/failpoints.def\n");
        return 64;
    }
    if (!applies(argv[1]))
        return 77;
    if (result_of(row, 0, message) != CK_PASS) {
        fprintf(stderr, "%s: fails as it is: %s\n", argv[1], message);
        return 1;
    }
    enum test_result result = result_of(row, rows[row].failpoint, message);
    printf("%s: %s\n", argv[1], message);
    if (result == CK_FAILURE)
        return 0;
    fprintf(stderr, "%s: %s\n", argv[1],
            result == CK_PASS ? "the fault is not noticed" : "the fault ends the test");
    return 1;
}
