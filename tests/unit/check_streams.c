/* The stream-ordered part of the allocator on a fake device: cases that random programs rarely
 * reach. */
#include <sched.h>
#include <stdlib.h>

#include "fake_world.h"
#include "run_suite.h"

#define MIB ((uint64_t)1 << 20)

enum { A = 0x100, B = 0x200 }; /* streams */

static void begin(void) {
    open_world(2, 64 * MIB, fake_settings("thread_cache_mb:0"));
}

static uint64_t alloc(ac_stream_t stream, uint64_t bytes) {
    uint64_t address = 0;
    ck_assert_int_eq(ac_arena_alloc_on(arena, stream, bytes, false, &address), AC_OK);
    return address;
}

static void give(ac_stream_t stream, uint64_t address) {
    ck_assert_int_eq(ac_block_free_on(arena, stream, address), AC_OK);
    ac_arena_stream_is(arena, stream, true);
}

/* --- blocks that wait for their own context, followed by blocks that wait for all --- */

START_TEST(what_waits_for_all_contexts_is_waited_for) {
    uint64_t all = 0;
    ck_assert_int_eq(ac_block_free(alloc(A, 64 * MIB)), AC_OK); /* room in the budget */
    ac_allocator_trim(allocator, false);
    uint64_t old = alloc(A, 20 * MIB), young = alloc(A, 20 * MIB);
    device.capacity = 44 * MIB;
    submit(0);
    give(A, old);
    ac_fence_share();
    submit(1);
    give(A, young);
    ck_assert_int_eq(ac_arena_alloc(arena, 40 * MIB, false, &all), AC_OK);
    ck_assert_int_eq(ac_block_free(all), AC_OK);
}
END_TEST

/* --- a stream is destroyed while it is being named --- */

static _Atomic bool gone;
static pthread_t goer;

static void *destroy(void *arg) {
    (void)arg;
    ac_arena_stream_gone(arena, A);
    atomic_store(&gone, true);
    return NULL;
}

/* Unordered work comes meanwhile. The slots are given up while the name is in use. */
static void while_named(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != FAKE_STREAM_ORDER)
        return;
    device.before = NULL;
    ck_assert(ac_arena_unordered(arena, true));
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
    ck_assert_int_eq(ac_arena_alloc_on(arena, B, 36 * MIB, false, &address), AC_OK);
    ck_assert_int_eq(pthread_join(goer, NULL), 0);
    ck_assert_int_eq(ac_block_free(address), AC_OK);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("streams");
    TCase *tcase = tcase_create("streams");
    tcase_add_checked_fixture(tcase, begin, check_world);
    tcase_add_test(tcase, what_waits_for_all_contexts_is_waited_for);
    tcase_add_test(tcase, a_stream_that_is_named_stays);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
