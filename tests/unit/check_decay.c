/* Idle memory goes back after a while, on the fake device. The tests advance the epochs. */
#include "allocator_frame.h"
#include "run_suite.h"

enum { EPOCHS = 4 };

static uint64_t pass(unsigned epochs) {
    uint64_t freed = 0;
    while (epochs--)
        freed += ac_allocator_decay(allocator, EPOCHS);
    return freed;
}

START_TEST(idle_for_so_long_and_no_sooner) {
    uint64_t a = alloc(30 * MIB), b = alloc(1000);
    pass(100);
    ck_assert_uint_eq(reserved(), 32 * MIB); /* in use */
    give(a);
    ck_assert_uint_eq(pass(EPOCHS), 0);
    ck_assert_uint_eq(pass(1), 30 * MIB);
    give(b);
    ck_assert_uint_eq(pass(EPOCHS), 0);
    ck_assert_uint_eq(pass(1), 2 * MIB);
    ck_assert_uint_eq(reserved(), 0);
    ck_assert_uint_eq(counters.trimmed_bytes, 32 * MIB);
}
END_TEST

/* The memory in occasional use stays; the surplus goes. */
START_TEST(high_water_of_recent_use_stays) {
    uint64_t a = alloc(40 * MIB), b = alloc(50 * MIB);
    give(a);
    give(b);
    for (int i = 0; i < 10; i++) {
        give(alloc(50 * MIB));
        pass(EPOCHS);
    }
    ck_assert_uint_eq(reserved(), 50 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_SEGMENT_ALLOC], 2);
}
END_TEST

/* A partly used segment counts as used. */
START_TEST(parts_do_not_go) {
    uint64_t a = alloc(8 * MIB), b = alloc(8 * MIB);
    ck_assert_uint_eq(device.count, 1);
    give(a);
    ck_assert_uint_eq(pass(20), 0);
    give(b);
    ck_assert_uint_eq(pass(EPOCHS + 1), 16 * MIB);
}
END_TEST

/* Pending work keeps memory, and no thread waits for it. The idle time begins when the work is
 * done. */
START_TEST(pending_work_is_not_waited_for) {
    uint64_t a = alloc(30 * MIB);
    submit(0);
    give(a);
    ck_assert_uint_eq(pass(20), 0);
    ck_assert_uint_eq(device.calls[FAKE_WAIT] + device.calls[FAKE_SYNCHRONIZE], 0);
    fake_complete(&context[0], context[0].submitted);
    ck_assert_uint_eq(pass(1), 0); /* notices that the work is done: idle from now on */
    ck_assert_uint_eq(pass(EPOCHS), 0);
    ck_assert_uint_eq(pass(1), 30 * MIB);
    ck_assert_uint_eq(device.calls[FAKE_WAIT] + device.calls[FAKE_SYNCHRONIZE], 0);
}
END_TEST

/* Blocks in a thread's cache age, too. */
START_TEST(thread_caches_age) {
    static ac_cache_tally_t tally;
    uint64_t address;
    settings.thread_cache = 64 * MIB;
    ac_allocator_configure(allocator, &settings);
    ac_cache_t *cache = ac_cache_open(arena, &tally);
    ck_assert_int_eq(ac_cache_alloc(cache, 30 * MIB, false, &address), AC_OK);
    ck_assert_int_eq(ac_cache_free(cache, address), AC_OK);
    ck_assert_uint_eq(pass(1), 0);
    ck_assert_uint_eq(pass(EPOCHS + 1), 30 * MIB);
    ck_assert_uint_eq(reserved(), 0);
    ac_cache_close(cache);
}
END_TEST

START_TEST(nothing_goes_while_something_captures) {
    give(alloc(30 * MIB));
    context[0].capturing = true;
    ck_assert_uint_eq(pass(20), 0);
    ck_assert_uint_eq(reserved(), 30 * MIB);
    context[0].capturing = false;
    ck_assert_uint_eq(pass(EPOCHS + 1), 30 * MIB);
}
END_TEST

START_TEST(every_arena_decays) {
    uint64_t a = alloc(30 * MIB), b;
    ck_assert_int_eq(try_alloc(other, 30 * MIB, &b), AC_OK);
    give(a);
    give(b);
    ck_assert_uint_eq(pass(EPOCHS + 1), 60 * MIB);
    ac_arena_drop(arena);
    ck_assert_uint_eq(pass(20), 0);
}
END_TEST

/* The count of epochs may overflow. Memory in use in every epoch still stays. */
START_TEST(epochs_overflow) {
    allocator->epoch = UINT32_MAX - 2;
    give(alloc(30 * MIB));
    ck_assert_uint_eq(pass(EPOCHS), 0);
    ck_assert_uint_eq(pass(1), 30 * MIB);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("decay");
    TCase *tests = tcase_create("decay");
    tcase_add_checked_fixture(tests, begin_large, end);
    tcase_add_test(tests, idle_for_so_long_and_no_sooner);
    tcase_add_test(tests, high_water_of_recent_use_stays);
    tcase_add_test(tests, parts_do_not_go);
    tcase_add_test(tests, pending_work_is_not_waited_for);
    tcase_add_test(tests, thread_caches_age);
    tcase_add_test(tests, nothing_goes_while_something_captures);
    tcase_add_test(tests, every_arena_decays);
    tcase_add_test(tests, epochs_overflow);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
