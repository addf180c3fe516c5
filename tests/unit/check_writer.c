/* The library's thread (process/writer.h) and pending trims (track/decay.h), on the fake device. Stubs
 * replace the rest of the process. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "device/driver.h"
#include "run_suite.h"
#include "writer_frame.h"

/* --- the process --- */

ac_driver_t ac_driver;
static ac_config_t config;
static const ac_config_t *_Atomic in_force;
static _Atomic unsigned steps; /* steps of the decay */

const ac_config_t *ac_process_config(void) {
    return atomic_load(&in_force);
}

void ac_pinned_decay(const ac_config_t *now) {
    (void)now;
    atomic_fetch_add(&steps, 1);
}

bool ac_cuda_is_capturing(const ac_cuda_context_t *context) {
    (void)context;
    return false;
}

bool ac_cuda_integrated(CUdevice of) {
    (void)of;
    return false;
}

uint64_t ac_cuda_host_left(CUdevice of) {
    (void)of;
    return UINT64_MAX;
}

static void begin_process(void) {
    begin((uint64_t)1 << 30);
    config = (ac_config_t){.enabled = true, .background_trim = true, .dump = "none"};
    atomic_store(&in_force, &config);
    atomic_store(&ac_state, AC_STATE_ACTIVE);
}

static void end_process(void) {
    atomic_store(&ac_state, AC_STATE_EXITING);
    if (has_thread && ac_writer_ask())
        pthread_join(own_thread, NULL);
    end();
}

/* --- pending trims --- */

static unsigned told;

static void count(void) {
    told++;
}

/* While a thread of the program settles, no trim counts as pending. The writer may stop its timer
 * then. */
START_TEST(what_is_owed_still_is_told) {
    owe();
    ac_trim_notify = count;
    ac_decay_synced(true);
    ck_assert(atomic_load(&ac_trim_pending));
    ck_assert_uint_eq(told, 1);
    fake_complete(&context[0], context[0].submitted);
    ac_decay_synced(true);
    ck_assert(!atomic_load(&ac_trim_pending));
    ck_assert_uint_eq(told, 1);
}
END_TEST

/* If memory never goes back, the test's time limit ends the loop. */
START_TEST(what_is_owed_goes_back) {
    ac_writer_start();
    for (int round = 0; round < 20; round++) {
        owe();
        ac_decay_synced(true);
        fake_complete(&context[0], context[0].submitted);
        while (atomic_load(&ac_trim_pending))
            sched_yield();
    }
    ck_assert(has_thread);
}
END_TEST

/* --- settings that change --- */

static void change(const ac_config_t *to) {
    atomic_store(&in_force, to);
    ac_writer_configured();
}

static void wait_for_steps(void) {
    unsigned before = atomic_load(&steps);
    while (atomic_load(&steps) - before < 3)
        sched_yield();
}

/* The period changes from never to a few milliseconds and back, with the thread running for another
 * reason, and without it. */
START_TEST(timer_follows_the_settings) {
    ac_config_t fast = config, slow = config;
    fast.idle_trim_ms = 20;
    ac_config_t off = fast;
    off.enabled = false;
    slow.idle_trim_ms = 86400000;
    config.control = _i == 0;
    ac_writer_start();
    ck_assert(has_thread == (_i == 0));
    change(&slow);
    ck_assert(has_thread);
    change(&fast);
    wait_for_steps();
    change(&off); /* releases the rest too */
    wait_for_steps();
    change(&slow);
    /* A step may be in progress. If steps never stop, the test's time limit ends the loop. */
    for (unsigned before = ~0u; atomic_load(&steps) != before;) {
        before = atomic_load(&steps);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("writer");
    TCase *tests = tcase_create("writer");
    tcase_add_checked_fixture(tests, begin_process, end_process);
    tcase_add_test(tests, what_is_owed_still_is_told);
    tcase_add_test(tests, what_is_owed_goes_back);
    tcase_add_loop_test(tests, timer_follows_the_settings, 0, 2);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
