/* The order of captures that begin and synchronisations of ours (device/cuda_device.h). */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "device/cuda_device.h"
#include "run_suite.h"

START_TEST(one_excludes_the_other) {
    ck_assert(ac_cuda_sync_begin(NULL));
    ac_cuda_sync_end();
    ac_cuda_capture_begin(NULL);
    ck_assert(!ac_cuda_sync_begin(NULL)); /* not yet known to capture */
    ac_cuda_capture_began(NULL, true);
    ck_assert(ac_cuda_is_capturing(NULL));
    ck_assert(!ac_cuda_sync_begin(NULL));
    ac_cuda_capture_ended(NULL);
    ck_assert(!ac_cuda_is_capturing(NULL));
    ck_assert(ac_cuda_sync_begin(NULL));
    ac_cuda_sync_end();
    ac_cuda_capture_begin(NULL);
    ac_cuda_capture_began(NULL, false); /* the driver refused */
    ck_assert(ac_cuda_sync_begin(NULL));
    ac_cuda_sync_end();
}
END_TEST

static bool unseen(void) {
    return true;
}

/* A capture blocks its context, or all contexts if its context is not known. */
START_TEST(a_context_captures) {
    static ac_cuda_context_t one, other;
    ac_cuda_capture_begin(&one);
    ck_assert(ac_cuda_is_capturing(&one) && !ac_cuda_is_capturing(&other));
    ac_cuda_capture_began(&one, true);
    ck_assert(ac_cuda_is_capturing(NULL) && !ac_cuda_sync_begin(&one));
    ck_assert(ac_cuda_sync_begin(&other));
    ac_cuda_sync_end();
    ac_cuda_unseen = unseen;
    ck_assert(ac_cuda_is_capturing(&other));
    ac_cuda_unseen = NULL;
    ac_cuda_capture_unplace(&one);
    ck_assert(ac_cuda_is_capturing(&one) && ac_cuda_is_capturing(&other));
    ac_cuda_capture_ended(NULL);
    ck_assert(!ac_cuda_is_capturing(&one) && !ac_cuda_is_capturing(NULL));
}
END_TEST

static _Atomic bool arrived, leaving;
static double waited; /* seconds that the last capture waited to begin */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *begin_capture(void *arg) {
    double begun = seconds();
    atomic_store(&arrived, true);
    ac_cuda_capture_begin(NULL);
    *(bool *)arg = atomic_load(&leaving);
    waited = seconds() - begun;
    ac_cuda_capture_began(NULL, false);
    return NULL;
}

/* Runs many rounds, because nothing shows when the other thread has reached the gate. */
START_TEST(a_capture_waits_for_a_synchronisation) {
    for (int round = 0; round < 200; round++) {
        pthread_t thread;
        bool after = false;
        atomic_store(&arrived, false);
        atomic_store(&leaving, false);
        ck_assert(ac_cuda_sync_begin(NULL));
        ck_assert_int_eq(pthread_create(&thread, NULL, begin_capture, &after), 0);
        while (!atomic_load(&arrived))
            sched_yield();
        for (int i = 0; i < 20; i++)
            sched_yield();
        atomic_store(&leaving, true);
        ac_cuda_sync_end();
        pthread_join(thread, NULL);
        ck_assert(after || waited > 0.9); /* it waits at most a second for a thread that
                                             sleeps */
    }
}
END_TEST

/* The device may wait for the thread that begins a capture, so the gate lets that thread through
 * after a while. */
START_TEST(but_not_for_ever) {
    pthread_t thread;
    bool after = true;
    atomic_store(&leaving, false);
    ck_assert(ac_cuda_sync_begin(NULL));
    ck_assert_int_eq(pthread_create(&thread, NULL, begin_capture, &after), 0);
    pthread_join(thread, NULL);
    ck_assert(!after);
    ac_cuda_sync_end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gate");
    TCase *t = tcase_create("gate");
    tcase_add_test(t, one_excludes_the_other);
    tcase_add_test(t, a_context_captures);
    tcase_add_test(t, a_capture_waits_for_a_synchronisation);
    tcase_add_test(t, but_not_for_ever);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
