/* The ring of events: its content after a wrap at any size, readers during writes, switching off and
 * on, and a device without a ring. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "observe/history.h"
#include "observe/live.h"
#include "run_suite.h"
#include "short_memory.h"

static void add(ac_history_t *history, uint64_t n) {
    ac_history_add(history, &(ac_event_t){.kind = (uint8_t)(n % AC_EVENT_KINDS),
                                          .time_ns = (int64_t)(n + 1),
                                          .address = n << 9,
                                          .bytes = n ^ 0x5555555555555555u,
                                          .stream = ~n,
                                          .stack = (uint32_t)n,
                                          .thread = (uint32_t)~n});
}

/* Returns true if all parts of the event come from the same call of `add`. *n: the number of this
 * call. */
static bool is_whole(const ac_event_t *event, uint64_t *n) {
    *n = event->address >> 9;
    return event->kind == *n % AC_EVENT_KINDS && event->time_ns == (int64_t)(*n + 1) &&
           event->bytes == (*n ^ 0x5555555555555555u) && event->stream == ~*n &&
           event->stack == (uint32_t)*n && event->thread == (uint32_t) ~*n;
}

static void begin(size_t events) {
    ac_history_size(events);
    atomic_store(&ac_history_on, true);
}

/* ------------------------------------------------------------------ one thread */

static const size_t sizes[] = {1, 2, 3, 7, 16, 1000, 4096};

START_TEST(the_newest_are_kept) {
    size_t room = sizes[_i];
    uint64_t dropped, n;
    ac_history_t *history = ac_history_of(0);
    ac_event_t event;
    begin(room);
    for (uint64_t i = 0; i < 3 * room + 2; i++) {
        add(history, i);
        ck_assert_uint_eq(ac_history_count(history, &dropped), i + 1);
        uint64_t oldest = i + 1 > room ? i + 1 - room : 0;
        ck_assert(ac_history_get(history, i, &event) && is_whole(&event, &n) && n == i);
        ck_assert(ac_history_get(history, oldest, &event) && is_whole(&event, &n) && n == oldest);
        ck_assert(!oldest || !ac_history_get(history, oldest - 1, &event));
        ck_assert(!ac_history_get(history, i + 1, &event));
    }
    ck_assert_uint_eq(dropped, 0);
}
END_TEST

START_TEST(off_keeps_what_there_is) {
    uint64_t dropped, n;
    ac_history_t *history = ac_history_of(0);
    ac_event_t event;
    ac_history_size(4);
    add(history, 0); /* the history is not on yet */
    ck_assert_uint_eq(ac_history_count(history, &dropped), 0);
    ck_assert(!ac_history_get(history, 0, &event));
    atomic_store(&ac_history_on, true);
    add(history, 0);
    add(history, 1);
    atomic_store(&ac_history_on, false);
    add(history, 7);
    ck_assert_uint_eq(ac_history_count(history, &dropped), 2);
    atomic_store(&ac_history_on, true);
    add(history, 2);
    for (uint64_t i = 0; i < 3; i++)
        ck_assert(ac_history_get(history, i, &event) && is_whole(&event, &n) && n == i);
}
END_TEST

START_TEST(devices_have_their_own) {
    uint64_t dropped;
    ac_event_t event;
    begin(8);
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++)
        for (unsigned k = 0; k <= i; k++)
            add(ac_history_of(i), i);
    for (unsigned i = 0; i < AC_LIVE_DEVICES; i++) {
        ck_assert_uint_eq(ac_history_count(ac_history_of(i), &dropped), i + 1);
        ck_assert(ac_history_get(ac_history_of(i), i, &event));
        ck_assert_uint_eq(event.address, (uint64_t)i << 9);
    }
    ck_assert_ptr_eq(ac_history_of(AC_LIVE_DEVICES + 5), ac_history_of(AC_LIVE_DEVICES - 1));
    add(NULL, 1); /* without a device */
}
END_TEST

START_TEST(an_event_without_a_time_is_of_now) {
    ac_event_t event;
    begin(4);
    ac_history_add(ac_history_of(0), &(ac_event_t){.kind = AC_EVENT_SNAPSHOT});
    ck_assert(ac_history_get(ac_history_of(0), 0, &event));
    ck_assert_int_gt(event.time_ns, 1600000000ll * 1000000000);
}
END_TEST

/* Without host memory each event counts as dropped, and errno is unchanged. Once there is memory, the
 * ring begins. */
START_TEST(without_host_memory) {
    uint64_t dropped, n;
    ac_history_t *history = ac_history_of(0);
    ac_event_t event;
    struct rlimit limit, none;
    if (!memory_can_be_short())
        return;
    begin(AC_HISTORY_MOST);
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
    errno = 77;
    for (uint64_t i = 0; i < 3; i++)
        add(history, i);
    int kept = errno;
    setrlimit(RLIMIT_AS, &limit);
    ck_assert_int_eq(kept, 77);
    ck_assert_uint_eq(ac_history_count(history, &dropped), 0);
    ck_assert_uint_eq(dropped, 3);
    ck_assert(!ac_history_get(history, 0, &event));
    add(history, 9);
    ck_assert(ac_history_get(history, 0, &event) && is_whole(&event, &n) && n == 9);
}
END_TEST

/* ------------------------------------------------------------------ threads */

enum { WRITERS = 3, EVENTS = 30000 };
static _Atomic uint64_t written;
static _Atomic bool over;

static void *write_some(void *arg) {
    for (uint64_t i = 0; i < EVENTS; i++)
        add(ac_history_of(0), (uint64_t)(intptr_t)arg * EVENTS + i);
    atomic_fetch_add(&written, EVENTS);
    return NULL;
}

/* Reads while others write, and checks that each event is whole. */
static void *read_all(void *seen) {
    while (!atomic_load(&over)) {
        uint64_t dropped, n, count = ac_history_count(ac_history_of(0), &dropped);
        uint64_t room = ac_history_room();
        for (uint64_t i = count > room ? count - room : 0; i < count; i++) {
            ac_event_t event;
            if (!ac_history_get(ac_history_of(0), i, &event))
                continue;
            ck_assert_msg(is_whole(&event, &n), "event %llu is of two", (unsigned long long)i);
            ++*(uint64_t *)seen;
        }
    }
    return NULL;
}

START_TEST(readers_beside_writers) {
    pthread_t writer[WRITERS], reader[2];
    uint64_t seen[2] = {0, 0}, dropped, last[WRITERS] = {0}, kept = 0;
    size_t room = sizes[_i];
    begin(room);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&reader[i], NULL, read_all, &seen[i]), 0);
    for (intptr_t i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_create(&writer[i], NULL, write_some, (void *)i), 0);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writer[i], NULL);
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(reader[i], NULL);
    uint64_t count = ac_history_count(ac_history_of(0), &dropped);
    ck_assert_uint_eq(count, atomic_load(&written));
    /* Without writers, all events except dropped ones are there, in the order of each writer. */
    for (uint64_t i = count > room ? count - room : 0; i < count; i++) {
        ac_event_t event;
        uint64_t n;
        if (!ac_history_get(ac_history_of(0), i, &event))
            continue;
        ck_assert(is_whole(&event, &n));
        ck_assert_msg(n >= last[n / EVENTS], "event %llu is out of order", (unsigned long long)i);
        last[n / EVENTS] = n;
        kept++;
    }
    ck_assert_uint_ge(kept + dropped, room < count ? room : count);
    ck_assert_uint_gt(kept, 0);
}
END_TEST

/* Threads that create a device's ring at the same time create one. */
static pthread_barrier_t together;

static void *write_one(void *arg) {
    pthread_barrier_wait(&together);
    add(ac_history_of(0), (uint64_t)(intptr_t)arg);
    return NULL;
}

START_TEST(the_first_event_of_two_threads) {
    pthread_t writer[WRITERS];
    uint64_t dropped;
    begin(64);
    pthread_barrier_init(&together, NULL, WRITERS);
    for (intptr_t i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_create(&writer[i], NULL, write_one, (void *)i), 0);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writer[i], NULL);
    ck_assert_uint_eq(ac_history_count(ac_history_of(0), &dropped), WRITERS);
    unsigned seen = 0;
    for (uint64_t i = 0; i < WRITERS; i++) {
        ac_event_t event;
        uint64_t n;
        ck_assert(ac_history_get(ac_history_of(0), i, &event) && is_whole(&event, &n));
        seen |= 1u << n;
    }
    ck_assert_uint_eq(seen, (1u << WRITERS) - 1);
    ck_assert_uint_eq(dropped, 0);
}
END_TEST

int main(void) {
    enum { SIZES = sizeof sizes / sizeof *sizes };
    Suite *suite = suite_create("history");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, the_newest_are_kept, 0, SIZES);
    tcase_add_test(all, off_keeps_what_there_is);
    tcase_add_test(all, devices_have_their_own);
    tcase_add_test(all, an_event_without_a_time_is_of_now);
    tcase_add_test(all, without_host_memory);
    tcase_add_loop_test(all, readers_beside_writers, 0, SIZES);
    tcase_add_loop_test(all, the_first_event_of_two_threads, 0, 50);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
