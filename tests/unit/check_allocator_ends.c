/* The allocator on a fake device, at the edges: contexts that end, concurrent threads, and short host
 * memory. */
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "allocator/supply/supply.h"
#include "allocator_frame.h"
#include "run_suite.h"
#include "short_memory.h"

/* --- contexts that end --- */

START_TEST(a_context_takes_its_memory_along) {
    alloc(3 * MIB);
    uint64_t b = alloc(1000), c = alloc(5 * MIB);
    submit(0);
    give(b);
    give(c);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert_uint_eq(reserved(), 0);
    ck_assert_int_eq(stats.active[AC_POOL_ALL].current, 0);
    ck_assert_int_eq(stats.num_device_free, 0);
    uint64_t address;
    ck_assert_int_eq(try_alloc(arena, 512, &address), AC_FAILED);
    ck_assert_int_eq(ac_arena_alloc(arena, 512, true, &address), AC_BUSY);
    ck_assert_int_eq(ac_block_free(b), AC_NOT_OURS);
}
END_TEST

/* The driver reuses a dead context's addresses before the allocator hears that the context ended. */
START_TEST(addresses_come_back_before_the_news) {
    uint64_t a = alloc(10 * MIB), p = alloc(2 * MIB), q = alloc(30 * MIB), b;
    submit(0);
    give(p); /* pending in a segment that will be lost */
    give(q); /* pending in a segment that stays */
    fake_context_kill(&context[0]);
    ck_assert_int_eq(try_alloc(other, 20 * MIB, &b), AC_OK);
    ck_assert_uint_eq(a, b);
    const char *why = NULL;
    ck_assert_msg(ac_allocator_check(allocator, &why) == 0, "%s", why);
    ck_assert_uint_eq(retired_bytes(arena), 30 * MIB);
    ac_arena_drop(arena);
    ac_block_info_t info;
    ck_assert_int_eq(ac_block_find(b + 7, &info), AC_OK);
    ck_assert_ptr_eq(info.arena, other);
    ck_assert(info.allocated);
    give(b);
    ck_assert_uint_eq(ac_allocator_trim(allocator, true), 20 * MIB);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* The dead context belongs to another allocator, and its lock may not be taken. The memory goes back to
 * the device, and the request fails. */
START_TEST(addresses_of_another_device_go_back) {
    static ac_device_stats_t stats_there;
    static ac_device_counters_t counters_there;
    static fake_context_t late;
    ac_allocator_t *there = ac_allocator_create(&settings, &stats_there, &counters_there);
    fake_context_init(&late, &device);
    ac_arena_t *dead = ac_arena_create(there, &fake_ops, &late);
    uint64_t a, b;
    ck_assert_int_eq(try_alloc(dead, 10 * MIB, &a), AC_OK);
    fake_context_kill(&late);
    uint64_t used = device.used;
    ck_assert_int_eq(try_alloc(other, 10 * MIB, &b), AC_FAILED);
    ck_assert_uint_eq(device.used, used);
    ck_assert_uint_eq(reserved(), 0);
    ck_assert_uint_eq(allocator->supply->growing, 0);
    ck_assert_uint_eq(allocator->calls, 0);
    ac_arena_drop(dead);
    ck_assert_int_eq(try_alloc(other, 10 * MIB, &b), AC_OK);
    ck_assert_uint_eq(a, b);
}
END_TEST

/* Ends the context while the device is giving memory to it. */
static uint64_t drop_meanwhile(void) {
    if (device.used && !arena->dead)
        ac_arena_drop(arena);
    return 0;
}

START_TEST(memory_for_an_ended_context_goes_back) {
    static ac_device_ops_t ops;
    static fake_context_t late;
    uint64_t address;
    ops = fake_ops;
    ops.now_ns = drop_meanwhile;
    fake_context_init(&late, &device);
    arena = ac_arena_create(allocator, &ops, &late);
    ck_assert_int_eq(try_alloc(arena, 3 * MIB, &address), AC_FAILED);
    ck_assert_uint_eq(reserved(), 0);
}
END_TEST

/* The record of an ended context serves another one as if new. It is reused only after device calls for
 * the former context have returned.
 *
 * Otherwise such a call would be taken for one of the next context. */
static bool over_meanwhile;

static void drop_in_free(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != FAKE_SEGMENT_FREE || arena->dead)
        return;
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    over_meanwhile = ac_arena_is_over(arena);
}

START_TEST(a_record_serves_again) {
    ck_assert(!ac_arena_is_over(arena));
    alloc(3 * MIB);
    alloc(100);
    give(alloc(30 * MIB));
    submit(0);
    give(alloc(5 * MIB));
    give(alloc(1000));
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert(ac_arena_is_over(arena));
    fake_context_init(&context[0], &device);
    ck_assert(ac_arena_again(arena));
    ck_assert(!ac_arena_is_over(arena));
    ck_assert(ac_fence_idle(ac_arena_timeline(arena)));
    ck_assert_int_eq(ac_sole_mode(atomic_load(&arena->timeline.single.word)), AC_SOLE_NONE);
    uint64_t a = alloc(3 * MIB), b = alloc(100);
    ck_assert_uint_eq(stats.allocation[AC_POOL_ALL].current, 2);
    submit(0);
    give(a);
    ck_assert_uint_ne(alloc(3 * MIB), a); /* work submitted here may still use it */
    complete(0);
    give(b);
}
END_TEST

START_TEST(a_record_rests_while_the_device_is_asked) {
    over_meanwhile = true;
    give(alloc(60 * MIB));
    device.before = drop_in_free;
    ac_allocator_trim(allocator, false);
    device.before = NULL;
    ck_assert(arena->dead);
    ck_assert(!over_meanwhile); /* the address may belong to the next context now */
    ck_assert(ac_arena_is_over(arena));
}
END_TEST

static void over_in_free(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind == FAKE_SEGMENT_FREE)
        over_meanwhile = ac_arena_is_over(arena);
}

START_TEST(a_record_rests_while_memory_is_made) {
    static ac_device_ops_t ops;
    static fake_context_t late;
    uint64_t address;
    ops = fake_ops;
    ops.now_ns = drop_meanwhile;
    fake_context_init(&late, &device);
    arena = ac_arena_create(allocator, &ops, &late);
    over_meanwhile = true;
    device.before = over_in_free;
    ck_assert_int_eq(try_alloc(arena, 3 * MIB, &address), AC_FAILED);
    device.before = NULL;
    ck_assert(!over_meanwhile);
    ck_assert(ac_arena_is_over(arena));
}
END_TEST

START_TEST(a_record_rests_while_a_call_is_inside) {
    ac_timeline_t *timeline = ac_arena_timeline(arena);
    ac_fence_enter(timeline);
    fake_context_kill(&context[0]);
    ac_arena_drop(arena);
    ck_assert(!ac_arena_is_over(arena));
    ac_fence_leave(timeline);
    ck_assert(ac_arena_is_over(arena));
}
END_TEST

/* --- two threads at the same step --- */

static struct {
    ac_arena_t *arena;
    uint64_t bytes, address;
    fake_kind_t at; /* the second thread starts when the first is inside this call */
    pthread_t thread;
    _Atomic bool started, done;
    _Atomic int status;
    unsigned enough; /* the first thread goes on after this number of device calls */
} second;

static void *second_thread(void *arg) {
    (void)arg;
    atomic_store(&second.status, try_alloc(second.arena, second.bytes, &second.address));
    atomic_store(&second.done, true);
    return NULL;
}

static int64_t retries(void) {
    ac_device_stats_t now;
    ac_allocator_stats(allocator, &now);
    return now.num_alloc_retries;
}

static unsigned asked(void) {
    pthread_mutex_lock(&device.lock);
    unsigned n = device.calls[FAKE_SEGMENT_ALLOC];
    pthread_mutex_unlock(&device.lock);
    return n;
}

/* Runs in the first thread, inside its device call: lets the second thread run as far as it can. */
static void meanwhile(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != second.at || atomic_exchange(&second.started, true))
        return;
    unsigned before = asked();
    ck_assert_int_eq(pthread_create(&second.thread, NULL, second_thread, NULL), 0);
    while (!atomic_load(&second.done) && (retries() == 0 || asked() < before + second.enough))
        sched_yield();
}

START_TEST(memory_on_its_way_back_is_waited_for) {
    uint64_t a = alloc(60 * MIB);
    give(a);
    second.arena = other;
    second.bytes = 40 * MIB;
    second.at = FAKE_SEGMENT_FREE;
    second.enough = 1;
    device.before = meanwhile;
    ac_allocator_trim(allocator, false); /* counted neither by the allocator nor by the driver */
    ck_assert(atomic_load(&second.started));
    pthread_join(second.thread, NULL);
    ck_assert_int_eq(atomic_load(&second.status), AC_OK);
    ck_assert_int_eq(stats.num_ooms, 0);
}
END_TEST

static void *driver_is_full(void *unused) {
    ac_allocator_trim_for(allocator, 0, AC_UNLIMITED);
    second.bytes = atomic_load(&ac_given_back) - second.bytes;
    atomic_store(&second.done, true);
    return unused;
}

/* Runs in the first thread. Its memory is counted neither by the allocator nor yet by the driver. */
static void full_meanwhile(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != FAKE_SEGMENT_FREE || atomic_exchange(&second.started, true))
        return;
    ck_assert_int_eq(pthread_create(&second.thread, NULL, driver_is_full, NULL), 0);
    /* Measured by the clock, because the second thread waits half a second for this one. */
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!atomic_load(&second.done) &&
             (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 100);
}

/* A driver call that lacks memory is repeated after another thread gave some back. */
START_TEST(memory_on_its_way_back_counts_for_the_driver) {
    give(alloc(60 * MIB));
    second.bytes = atomic_load(&ac_given_back);
    device.before = full_meanwhile;
    ac_allocator_trim(allocator, false);
    pthread_join(second.thread, NULL);
    ck_assert_uint_eq(second.bytes, 60 * MIB);
}
END_TEST

/* Idle memory goes back for a driver call only if the call lacks memory: device memory, or host memory
 * on a device that shares it. Short host memory alone does not mean that the device is short. */
START_TEST(what_a_call_of_the_driver_lacks) {
    give(alloc(60 * MIB));
    uint64_t most = device.capacity - device.used;
    ck_assert_uint_eq(ac_allocator_trim_for(allocator, most / 2, AC_UNLIMITED), 0);
    ck_assert_uint_eq(ac_allocator_trim_for(allocator, most + 61 * MIB, MIB), 0);
    ck_assert_uint_eq(ac_allocator_trim_for(allocator, most / 2, MIB), 60 * MIB);
    give(alloc(60 * MIB));
    ck_assert_uint_eq(ac_allocator_trim_for(allocator, most + 60 * MIB, MIB), 60 * MIB);
    give(alloc(60 * MIB));
    ck_assert_uint_eq(ac_allocator_trim_for(allocator, most, AC_UNLIMITED), 60 * MIB);
}
END_TEST

START_TEST(the_limit_holds_for_two) {
    settings.limit = 60 * MIB;
    ac_allocator_configure(allocator, &settings);
    second.arena = arena;
    second.bytes = 2 * MIB;
    second.at = FAKE_SEGMENT_ALLOC;
    device.before = meanwhile;
    uint64_t a = alloc(58 * MIB + 1); /* 60 MiB: all memory */
    pthread_join(second.thread, NULL);
    ck_assert_uint_le(reserved(), 60 * MIB);
    ck_assert_int_eq(atomic_load(&second.status), AC_OOM);
    give(a);
}
END_TEST

/* --- host memory --- */

START_TEST(host_memory_runs_short) {
    if (!memory_can_be_short())
        return;
    enum { MANY = 40000 };
    uint64_t *address = calloc(MANY, sizeof *address);
    struct rlimit all, none;
    give(alloc(512));
    getrlimit(RLIMIT_AS, &all);
    none = all;
    none.rlim_cur = 4096; /* no further page */
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
    unsigned n = 0;
    ac_status_t status;
    while ((status = try_alloc(arena, n % 3 ? 512 : 100 * 1024, &address[n])) == AC_OK)
        ck_assert_uint_lt(++n, MANY);
    int failed = ac_allocator_check(allocator, NULL);
    setrlimit(RLIMIT_AS, &all);
    ck_assert_int_eq(status, AC_FAILED); /* the caller goes to the driver */
    ck_assert_int_eq(failed, 0);
    reserved(); /* all device memory is accounted for */
    for (unsigned i = 0; i < n; i++)
        give(address[i]);
    alloc(20 * MIB); /* the allocator goes on working */
    free(address);
}
END_TEST

static struct rlimit all_memory;

/* Uses up all records while the device is called, and makes host memory too short for more. */
static void use_up_records(void *arg, fake_kind_t kind) {
    (void)arg;
    if (kind != FAKE_SEGMENT_FREE)
        return;
    struct rlimit none = all_memory;
    uint64_t address;
    device.before = NULL;
    none.rlim_cur = 4096;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
    while (try_alloc(arena, 100 * 1024, &address) == AC_OK)
        ;
    device.fail_at = device.total_calls + 1;
}

/* The device does not take a segment back. The allocator keeps it, even if host memory is short. */
START_TEST(a_refused_segment_needs_no_memory) {
    if (!memory_can_be_short())
        return;
    uint64_t a = alloc(60 * MIB);
    alloc(100 * 1024);
    give(a);
    getrlimit(RLIMIT_AS, &all_memory);
    device.fail_with[FAKE_SEGMENT_FREE] = AC_BUSY;
    device.before = use_up_records;
    ac_allocator_trim(allocator, false);
    setrlimit(RLIMIT_AS, &all_memory);
    ck_assert_uint_eq(device.failed, 1);
    reserved();
    ck_assert_uint_eq(alloc(60 * MIB), a);
}
END_TEST

START_TEST(an_arena_needs_a_line) {
    static fake_context_t many[AC_FENCE_LINES];
    unsigned n = 0;
    for (; n < AC_FENCE_LINES; n++) {
        fake_context_init(&many[n], &device);
        if (!ac_arena_create(allocator, &fake_ops, &many[n]))
            break;
    }
    ck_assert_uint_eq(n, AC_FENCE_LINES - 2);
    fake_context_kill(&context[1]);
    ac_arena_drop(other);
    ck_assert_ptr_nonnull(ac_arena_create(allocator, &fake_ops, &many[n]));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("allocator_ends");
    TCase *large = tcase_create("large"), *tight = tcase_create("tight");
    tcase_add_checked_fixture(large, begin_large, end);
    tcase_add_checked_fixture(tight, begin_tight, end);
    tcase_add_test(large, host_memory_runs_short);
    tcase_add_test(large, a_refused_segment_needs_no_memory);
    tcase_add_test(tight, a_context_takes_its_memory_along);
    tcase_add_test(tight, addresses_come_back_before_the_news);
    tcase_add_test(tight, addresses_of_another_device_go_back);
    tcase_add_test(tight, memory_for_an_ended_context_goes_back);
    tcase_add_test(tight, a_record_serves_again);
    tcase_add_test(tight, a_record_rests_while_the_device_is_asked);
    tcase_add_test(tight, a_record_rests_while_memory_is_made);
    tcase_add_test(tight, a_record_rests_while_a_call_is_inside);
    tcase_add_test(tight, memory_on_its_way_back_is_waited_for);
    tcase_add_test(tight, memory_on_its_way_back_counts_for_the_driver);
    tcase_add_test(tight, what_a_call_of_the_driver_lacks);
    tcase_add_test(tight, the_limit_holds_for_two);
    tcase_add_test(tight, an_arena_needs_a_line);
    suite_add_tcase(suite, large);
    suite_add_tcase(suite, tight);
    return run_suite(suite);
}
