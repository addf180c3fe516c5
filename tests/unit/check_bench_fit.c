/* `accelcache-dev bench` finds the length of its passes with a clock of its own. One pass in which a thread had to
 * wait for a core must not decide. */
#include <check.h>

#include "run_suite.h"
#include "work.h"

enum { PAIR_NS = 20, WAIT_NS = 6000000, TARGET_NS = 10000000 };

static double now;
static int passes, waits; /* the pass that waits for a core; 0: none */

double work_now(void) {
    return now;
}

static double pass(const work_t *w, long pairs) {
    (void)w;
    double took = (double)pairs * PAIR_NS + (++passes == waits ? WAIT_NS : 0);
    now += took;
    return took;
}

START_TEST(a_pass_lasts_as_long_as_asked) {
    const work_t w = {.us = TARGET_NS / 1000};
    waits = _i;
    long pairs = work_fit(&w, pass);
    ck_assert_int_ge(pairs * PAIR_NS, TARGET_NS / 2);
    ck_assert_int_le(pairs * PAIR_NS, 2 * TARGET_NS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bench_fit");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, a_pass_lasts_as_long_as_asked, 0, 20);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
