/* The stream-ordered part of the allocator on a fake device: what random programs hardly meet. */
#include <check.h>
#include <sched.h>
#include <stdlib.h>

#include "allocator/allocator_int.h"
#include "fake_device.h"
#include "fake_settings.h"

#define MIB ((uint64_t)1 << 20)

enum { A = 0x100, B = 0x200 }; /* streams */

static fake_device_t device;
static fake_context_t context[2];
static ac_arena_t *arena[2];
static ac_allocator_t *allocator;
static ac_device_stats_t stats;
static ac_device_counters_t counters;

static void begin(void) {
    ac_settings_t settings = fake_settings("thread_cache_mb:0");
    fake_device_init(&device, 64 * MIB);
    allocator = ac_allocator_create(&settings, &stats, &counters);
    for (int i = 0; i < 2; i++) {
        fake_context_init(&context[i], &device);
        arena[i] = ac_arena_create(allocator, &fake_ops, &context[i]);
    }
}

static void end(void) {
    const char *why = NULL;
    ck_assert_msg(ac_allocator_check(allocator, &why) == 0, "%s", why);
    ck_assert_msg(!device.wrong, "%s", device.wrong);
}

static uint64_t alloc(ac_stream_t stream, uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_arena_alloc_on(arena[0], stream, bytes, false, &address), AC_OK);
    return address;
}

static void give(ac_stream_t stream, uint64_t address) {
    ck_assert_int_eq(ac_block_free_on(arena[0], stream, address), AC_OK);
    ac_arena_stream_is(arena[0], stream, true);
}

static void submit(int i) {
    fake_submit(&context[i]);
    ac_fence_submitted(ac_arena_line(arena[i]));
}

/* --- blocks that wait for their own context, and behind them some that wait for all --- */

START_TEST(what_waits_for_all_contexts_is_waited_for) {
    uint64_t all = 0;
    ck_assert_int_eq(ac_block_free(alloc(A, 64 * MIB)), AC_OK); /* room in the budget */
    ac_allocator_trim(allocator, false);
    uint64_t old = alloc(A, 20 * MIB), young = alloc(A, 20 * MIB);
    device.capacity = 44 * MIB;
    submit(0);
    give(A, old);
    ac_fence_cross();
    submit(1);
    give(A, young);
    ck_assert_int_eq(ac_arena_alloc(arena[0], 40 * MIB, false, &all), AC_OK);
    ck_assert_int_eq(ac_block_free(all), AC_OK);
}
END_TEST

/* --- a stream goes while it is named --- */

static _Atomic bool gone;
static pthread_t goer;

static void *destroy(void *arg) {
    (void)arg;
    ac_arena_stream_gone(arena[0], A);
    atomic_store(&gone, true);
    return NULL;
}

/* Work that keeps to no order comes up in between: the slots are given up, the name is in use. */
static void while_named(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != FAKE_STREAM_ORDER)
        return;
    device.before = NULL;
    ck_assert(ac_arena_unordered(arena[0], true));
    ck_assert_int_eq(pthread_create(&goer, NULL, destroy, NULL), 0);
    for (int i = 0; i < 1000; i++) {
        sched_yield();
        ck_assert_msg(!atomic_load(&gone), "the stream went under a call that names it");
    }
}

START_TEST(a_stream_that_is_named_stays) {
    uint64_t address, old = alloc(A, 40 * MIB);
    submit(0);
    give(A, old);
    device.before = while_named;
    ck_assert_int_eq(ac_arena_alloc_on(arena[0], B, 36 * MIB, false, &address), AC_OK);
    ck_assert_int_eq(pthread_join(goer, NULL), 0);
    ck_assert_int_eq(ac_block_free(address), AC_OK);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("streams");
    TCase *tcase = tcase_create("streams");
    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_test(tcase, what_waits_for_all_contexts_is_waited_for);
    tcase_add_test(tcase, a_stream_that_is_named_stays);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
