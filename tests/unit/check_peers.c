/* Peers (track/peers.h): no thread waits without a limit for another thread's driver call. Stubs
 * replace the device and its pages. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "track/ipc_pages.h"
#include "track/peers.h"
#include "run_suite.h"

static ac_context_t context[4] = {
    {.cuda.device = 0}, {.cuda.device = 1}, {.cuda.device = 2}, {.cuda.device = 1}};

/* --- the device: peers with access to device 0, and possible peers --- */

static _Atomic uint64_t may, could, going;

bool ac_cuda_peer_add(CUdevice device, CUdevice peer) {
    uint64_t bit = (uint64_t)!device << peer;
    return !(atomic_fetch_or(&may, bit) & bit);
}

bool ac_cuda_peer_remove(CUdevice device, CUdevice peer) {
    uint64_t bit = (uint64_t)!device << peer;
    atomic_fetch_or(&could, bit);
    return atomic_fetch_and(&may, ~bit) & bit;
}

bool ac_cuda_peers_former(CUdevice device) {
    return !device && atomic_load(&could);
}

void ac_cuda_peers_take_back(CUdevice device) {
    (void)device;
    atomic_store(&going, atomic_load(&could));
}

void ac_cuda_peers_taken(CUdevice device) {
    (void)device;
    atomic_fetch_and(&could, ~atomic_exchange(&going, 0));
}

bool ac_fence_calm(uint64_t target) {
    (void)target;
    return true;
}

ac_allocator_t *ac_device_allocator(CUdevice device) {
    (void)device;
    return NULL;
}

/* --- its pages: their access rights, and a driver call that does not return --- */

static _Atomic uint64_t allowed, taken; /* set by the pages; set by all calls together */
static _Atomic unsigned calls;
static _Atomic bool keep, kept;

void ac_expand_allow(ac_allocator_t *allocator) {
    uint64_t give = atomic_load(&may), take = atomic_load(&going) & ~give;
    (void)allocator;
    atomic_fetch_add(&calls, 1);
    if (atomic_exchange(&keep, false)) {
        atomic_store(&kept, true);
        while (atomic_load(&kept))
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    atomic_store(&allowed, (atomic_load(&allowed) | give) & ~take);
    atomic_fetch_or(&taken, take);
}

void ac_ipc_pages_allow(CUdevice device) {
    (void)device;
}

static pthread_t other;

static void *enable_other(void *unused) {
    ac_peers_enabled(&context[1], &context[0]);
    return unused;
}

static void *disable_other(void *unused) {
    ac_peers_disabled(&context[1], &context[0]);
    return unused;
}

/* Starts another thread and waits until it is in its driver call. */
static void begin_elsewhere(void *(*part)(void *)) {
    atomic_store(&keep, true);
    ck_assert_int_eq(pthread_create(&other, NULL, part, NULL), 0);
    while (!atomic_load(&kept))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void end_elsewhere(void) {
    atomic_store(&kept, false);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
}

START_TEST(another_device_does_not_wait) {
    begin_elsewhere(enable_other);
    ac_peers_enabled(&context[2], &context[0]);
    ck_assert_uint_eq(atomic_load(&allowed), 6);
    ac_peers_enabled(&context[0], &context[1]);
    ac_peers_hold(0, 3, NULL);
    ck_assert_uint_eq(atomic_load(&allowed), 14);
    end_elsewhere();
}
END_TEST

/* The first thread has not yet told all pages. */
START_TEST(a_second_context_tells_as_well) {
    begin_elsewhere(enable_other);
    ac_peers_enabled(&context[3], &context[0]);
    ck_assert_uint_eq(atomic_load(&allowed), 2);
    end_elsewhere();
    unsigned so_far = atomic_load(&calls);
    ac_peers_enabled(&context[1], &context[0]);
    ck_assert_uint_eq(atomic_load(&calls), so_far);
}
END_TEST

START_TEST(who_takes_back_leaves_it_to_a_later_change) {
    ac_peers_enabled(&context[2], &context[0]);
    begin_elsewhere(enable_other);
    ac_peers_disabled(&context[2], &context[0]);
    ac_peers_context_gone(&context[2]);
    ck_assert_uint_eq(atomic_load(&allowed), 4);
    end_elsewhere(); /* a later change */
    ck_assert_uint_eq(atomic_load(&allowed), 2);
    ck_assert_uint_eq(atomic_load(&could), 0);
}
END_TEST

/* The driver does not return from a revoking call. The granting thread waits a second; then the
 * next call follows in the driver. */
START_TEST(who_gives_waits_a_second) {
    ac_peers_enabled(&context[1], &context[0]);
    begin_elsewhere(disable_other);
    unsigned so_far = atomic_load(&calls);
    ac_peers_enabled(&context[2], &context[0]);
    ck_assert_uint_eq(atomic_load(&calls), so_far + 1);
    ck_assert_uint_eq(atomic_load(&allowed), 4);
    end_elsewhere();
    ck_assert_uint_eq(atomic_load(&allowed), 4);
}
END_TEST

static void *let_go_soon(void *unused) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    atomic_store(&kept, false);
    return unused;
}

/* A right that another thread is revoking is granted again, after that call. */
START_TEST(who_gives_comes_after_who_takes) {
    pthread_t third;
    ac_peers_enabled(&context[1], &context[0]);
    begin_elsewhere(disable_other);
    ck_assert_int_eq(pthread_create(&third, NULL, let_go_soon, NULL), 0);
    ac_peers_enabled(&context[1], &context[0]);
    ck_assert_uint_eq(atomic_load(&taken), 2);
    ck_assert_uint_eq(atomic_load(&allowed), 2);
    end_elsewhere();
    ck_assert_uint_eq(atomic_load(&allowed), 2);
    pthread_join(third, NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("peers");
    TCase *tests = tcase_create("peers");
    tcase_set_timeout(tests, 10);
    tcase_add_test(tests, another_device_does_not_wait);
    tcase_add_test(tests, a_second_context_tells_as_well);
    tcase_add_test(tests, who_takes_back_leaves_it_to_a_later_change);
    tcase_add_test(tests, who_gives_waits_a_second);
    tcase_add_test(tests, who_gives_comes_after_who_takes);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
