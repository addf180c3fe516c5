/* Random operations against the oracle. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>

#include "oracle.h"
#include "run_suite.h"

enum { STEPS = 3000 };

static uint64_t state;

uint64_t oracle_draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

void oracle_wrong(const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ck_abort_msg("%s", text);
}

static bool pages; /* arenas grow by pages */

static void begin(uint64_t seed, bool bump) {
    state = seed * 0x9e3779b97f4a7c15u + 1;
    oracle_begin(bump, pages);
}

static void with_pages(void) {
    pages = true;
}

static void without_pages(void) {
    pages = false;
}

typedef enum { PLAIN, CROSSED, UNTRACKED, BOTH, MODES } scope_t;

static void one_step(bool rare) {
    static const struct {
        unsigned weight;
        void (*act)(void);
    } common[] = {{21, oracle_free},      {1, oracle_cache},    {9, oracle_free_on},
                  {5, oracle_submit},     {4, oracle_record},   {4, oracle_wait_event},
                  {1, oracle_event_seen}, {8, oracle_complete}, {3, oracle_synchronize},
                  {1, oracle_bad_free},   {1, oracle_settle},   {1, oracle_identify},
                  {1, oracle_sync}},
      seldom[] = {{2, oracle_trim},        {2, oracle_taint},   {1, oracle_drop},
                  {1, oracle_stream_gone}, {2, oracle_capture}, {2, oracle_configure},
                  {2, oracle_reset}};
    uint64_t dice = oracle_draw(100);
    if (dice < 38) {
        if (oracle_draw(3))
            oracle_alloc(oracle_draw(20) == 0);
        else
            oracle_alloc_on(oracle_draw(20) == 0);
        return;
    }
    dice -= 38;
    for (unsigned i = 0; i < sizeof common / sizeof common[0]; i++) {
        if (dice < common[i].weight) {
            common[i].act();
            return;
        }
        dice -= common[i].weight;
    }
    if (!rare || oracle_draw(3)) /* rarely, and only on request */
        return;
    dice = oracle_draw(12);
    for (unsigned i = 0; i < sizeof seldom / sizeof seldom[0]; i++) {
        if (dice < seldom[i].weight) {
            seldom[i].act();
            return;
        }
        dice -= seldom[i].weight;
    }
}

static void run_steps(scope_t mode, bool rare, unsigned fault_every) {
    oracle.untracked = mode == UNTRACKED || mode == BOTH;
    atomic_store(&ac_fence_untracked, oracle.untracked);
    unsigned cross_at =
        mode == CROSSED || mode == BOTH ? (unsigned)oracle_draw(STEPS / 2) : STEPS;
    for (oracle.step = 0; oracle.step < STEPS; oracle.step++) {
        if (oracle.step == cross_at)
            oracle_cross();
        if (fault_every && oracle_draw(fault_every) == 0)
            oracle_plan_failure(false);
        one_step(rare);
        oracle_check();
    }
    for (int c = 0; c < ORACLE_CONTEXTS; c++)
        atomic_store(&oracle.context[c]->capturing, false);
    while (oracle.lives)
        oracle_free();
    oracle.device.fail_at = 0;
    ac_allocator_trim(oracle.allocator, true);
    oracle_check();
    ck_assert_int_eq(oracle.stats.reserved_bytes[AC_POOL_ALL].current, 0);
    oracle_end();
}

static void run_model(uint64_t seed, scope_t mode, bool rare, unsigned fault_every) {
    begin(seed, seed % 3 == 0);
    oracle.most_caches = seed % 2 ? 1 : ORACLE_CACHES;
    run_steps(mode, rare, fault_every);
}

START_TEST(random_plain) {
    run_model(1 + (uint64_t)_i, (scope_t)(_i % MODES), false, 0);
    ck_assert_uint_gt(oracle.ooms, 0); /* the device was small enough to be full */
}
END_TEST

START_TEST(random_everything) {
    run_model(100 + (uint64_t)_i, (scope_t)(_i % MODES), true, 0);
}
END_TEST

START_TEST(random_faults) {
    run_model(200 + (uint64_t)_i, (scope_t)(_i % MODES), true, 20);
    ck_assert_uint_gt(oracle.device.failed, 0);
}
END_TEST

/* A hit made a peak. A free with the lock ended it before it was published. */
START_TEST(random_short_peaks) {
    static const struct {
        uint64_t seed;
        scope_t mode;
        bool rare;
    } runs[] = {{45, PLAIN, false}, {161, CROSSED, true}, {161, PLAIN, false}};
    run_model(runs[_i].seed, runs[_i].mode, runs[_i].rare, 0);
}
END_TEST

/* The typical use of caches: work, and few sizes of blocks that wait for it in a
 * cache. */
START_TEST(random_steady) {
    begin(400 + (uint64_t)_i, _i % 2);
    oracle.most_caches = _i % 4 ? 1 : ORACLE_CACHES;
    oracle.steady = true;
    bool rare = _i % 3 == 2, faults = _i > 8;
    run_steps(PLAIN, rare, faults ? 20 : 0);
    /* Otherwise no cache may exist most of the time, or each may be nearly empty. */
    if (!rare && !faults && oracle.most_caches == 1) {
        ck_assert_uint_gt(oracle.waits, 5);
        ck_assert_uint_gt(oracle.gathers, 0);
    }
}
END_TEST

START_TEST(random_without_fences) {
    begin(300 + (uint64_t)_i, false);
    oracle.device.no_fences = true;
    for (oracle.step = 0; oracle.step < STEPS; oracle.step++) {
        one_step(true);
        oracle_check();
    }
    oracle_end();
}
END_TEST

/* --- chaos: a fixed program, failing each device call once, in every way --- */

static void short_program(uint64_t seed) {
    state = seed;
    unsigned steps = pages ? 80 : 250; /* each step makes more calls */
    for (oracle.step = 0; oracle.step < steps; oracle.step++) {
        one_step(false);
        if (oracle.step % 40 == 39)
            oracle_trim();
        oracle_check();
    }
    while (oracle.lives)
        oracle_free();
    ac_allocator_trim(oracle.allocator, true);
    oracle_check();
}

START_TEST(every_call_fails_once) {
    static const ac_status_t ways[] = {AC_OOM, AC_BUSY, AC_UNSUPPORTED, AC_FAILED};
    for (unsigned n = 1;; n++) {
        begin(7, false);
        oracle.device.fail_at = n;
        oracle.broken = ways[_i] == AC_FAILED;
        for (int k = 0; k < FAKE_KINDS; k++)
            if (fake_may_answer((fake_kind_t)k, ways[_i]))
                oracle.device.fail_with[k] = ways[_i];
        short_program(0x1234567);
        bool over = oracle.device.total_calls < n;
        oracle_end();
        if (over) {
            ck_assert_uint_gt(n, 40);
            break;
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("model");
    for (int i = 0; i < 2; i++) {
        TCase *tests = tcase_create(i ? "pages" : "model");
        tcase_add_checked_fixture(tests, i ? with_pages : without_pages, NULL);
        tcase_set_timeout(tests, 60);
        tcase_add_loop_test(tests, random_plain, 0, 8);
        tcase_add_loop_test(tests, random_everything, 0, 12);
        tcase_add_loop_test(tests, random_faults, 0, 8);
        tcase_add_loop_test(tests, random_short_peaks, 0, 3);
        tcase_add_loop_test(tests, random_steady, 0, 12);
        tcase_add_loop_test(tests, random_without_fences, 0, 2);
        tcase_add_loop_test(tests, every_call_fails_once, 0, 4);
        suite_add_tcase(suite, tests);
    }
    return run_suite(suite);
}
