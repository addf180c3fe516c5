/* Open memory of other processes (track/ipc_views.h): the counts, and threads that open the same
 * block at the same time. */
#include <check.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "track/ipc_views.h"
#include "run_suite.h"

enum { MIB = 1 << 20 };

static const int contexts[2];
static const unsigned char handles[2][AC_IPC_HANDLE] = {{1}, {2}};

static ac_ipc_mapping_t *entered(int context, int handle, bool fresh) {
    bool is_fresh;
    ac_ipc_mapping_t *mapping =
        ac_ipc_enter(&contexts[context], 1, handles[handle], 2 * MIB, &is_fresh);
    ck_assert_ptr_nonnull(mapping);
    ck_assert_int_eq(is_fresh, fresh);
    return mapping;
}

/* Opens as the import does. The driver maps handle 0 of context 0 at 2 MiB, and so on. */
static uint64_t base_of(int context, int handle) {
    return (uint64_t)(2 + 2 * handle + 4 * context) * MIB;
}

static uint64_t opened(int context, int handle, uint64_t offset, uint64_t size, bool fresh) {
    ac_ipc_mapping_t *mapping = entered(context, handle, fresh);
    if (fresh)
        ac_ipc_opened(mapping, base_of(context, handle));
    ck_assert(ac_ipc_view_add(mapping, offset, size));
    return ac_ipc_base(mapping) + offset;
}

/* Returns the number of driver closes that the close needs; -1: the view does not exist. */
static int closed(int context, uint64_t address) {
    ac_ipc_view_t view;
    ac_ipc_mapping_t *mapping = ac_ipc_view_close(&contexts[context], address, &view);
    if (!mapping)
        return -1;
    ck_assert_uint_eq(view.address, address);
    unsigned closes = ac_ipc_leave(mapping);
    if (closes)
        ac_ipc_closed(mapping, false);
    return (int)closes;
}

static ac_ipc_view_t seen(uint64_t address) {
    ac_ipc_view_t view;
    ck_assert_int_eq(ac_ipc_find(address, &view), AC_IPC_VIEW);
    return view;
}

START_TEST(one_open_for_all_views) {
    ac_ipc_view_t view;
    uint64_t a = opened(0, 0, 512, 1000, true), b = opened(0, 0, 4096, 4096, false);
    ck_assert(opened(0, 0, 512, 1000, false) == a && a == 2 * MIB + 512);
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 1);
    ck_assert(seen(a + 999).address == a && seen(a).size == 1000 && seen(b).address == b);
    ck_assert(seen(a).id != seen(b).id && seen(a).base == 2 * MIB && seen(b).bytes == 2 * MIB);
    ck_assert_int_eq(ac_ipc_find(a + 1000, &view), AC_IPC_BETWEEN);
    ck_assert_int_eq(ac_ipc_find(2 * MIB, &view), AC_IPC_BETWEEN);
    ck_assert_int_eq(ac_ipc_find(4 * MIB, &view), AC_IPC_ELSEWHERE);
    ck_assert_int_eq(closed(0, a + 1), -1);
    ck_assert_int_eq(closed(0, a), 0);
    ck_assert_int_eq(closed(0, b), 0);
    ck_assert_int_eq(closed(0, b), -1);
    ck_assert_int_eq(closed(0, a), 1);
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 0);
    ck_assert_int_eq(ac_ipc_find(a, &view), AC_IPC_ELSEWHERE);
}
END_TEST

/* Two lifetimes at one address share a view. It has the size of the newer one and another id. */
START_TEST(later_lifetime_takes_over) {
    uint64_t a = opened(0, 0, 0, 4096, true), inner = opened(0, 0, 2048, 512, false);
    uint64_t id = seen(a).id;
    ck_assert_uint_eq(opened(0, 0, 0, 8192, false), a);
    ck_assert(seen(a + 8000).address == a && seen(a).size == 8192 && seen(a).id != id);
    ck_assert_uint_eq(seen(inner).address, a); /* the newer lifetime is the one at `a` */
    ck_assert(!closed(0, a) && !closed(0, a) && closed(0, inner) == 1);
}
END_TEST

/* The driver refuses to open or close. */
START_TEST(driver_refuses) {
    ac_ipc_view_t view;
    ac_ipc_opened(entered(0, 0, true), 0);
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 0);
    uint64_t a = opened(0, 0, 512, 1000, true);
    ac_ipc_mapping_t *mapping = ac_ipc_view_close(&contexts[0], a, &view);
    ck_assert_uint_eq(ac_ipc_leave(mapping), 1);
    ac_ipc_closed(mapping, true);
    ck_assert(ac_ipc_view_add(mapping, view.address - view.base, view.size));
    ck_assert_uint_eq(seen(a).size, 1000);
    ck_assert_int_eq(closed(0, a), 1);
}
END_TEST

START_TEST(opened_as_the_drivers_own_too) {
    uint64_t a = opened(0, 0, 0, 4096, true);
    ac_ipc_native_opened(&contexts[0], a);
    ck_assert_uint_eq(atomic_load(&ac_ipc_natives), 0);
    ck_assert_int_eq(closed(0, a), 0);
    ck_assert_int_eq(closed(0, a), 2);
}
END_TEST

/* The allocation was opened by the driver's own handle, before the token or while another thread
 * opens the token. */
START_TEST(opened_as_the_drivers_own_before) {
    ac_ipc_native_opened(&contexts[0], base_of(0, 0));
    ac_ipc_native_opened(&contexts[1], base_of(0, 0)); /* another one's */
    ac_ipc_mapping_t *mapping = entered(0, 0, true);
    ac_ipc_native_opened(&contexts[0], base_of(0, 0));
    ck_assert_uint_eq(atomic_load(&ac_ipc_natives), 2);
    ac_ipc_opened(mapping, base_of(0, 0));
    ck_assert(ac_ipc_view_add(mapping, 512, 512));
    ck_assert_uint_eq(atomic_load(&ac_ipc_natives), 1);
    ck_assert(!ac_ipc_native_close(&contexts[0], base_of(0, 0)));
    ck_assert_int_eq(closed(0, base_of(0, 0) + 512), 0);
    ck_assert_int_eq(closed(0, base_of(0, 0)), 0);
    ck_assert_int_eq(closed(0, base_of(0, 0)), 3);
    ck_assert(ac_ipc_native_close(&contexts[1], base_of(0, 0)));
    ck_assert(!ac_ipc_native_close(&contexts[1], base_of(0, 0)));
    ac_ipc_native_opened(&contexts[1], base_of(0, 0));
    ac_ipc_context_gone(&contexts[1]);
    ck_assert_uint_eq(atomic_load(&ac_ipc_natives), 0);
}
END_TEST

/* The driver opens an allocation at the same base for two contexts. One context's views are
 * small. */
START_TEST(two_contexts_at_one_base) {
    for (int turn = 0; turn < 2; turn++) {
        ac_ipc_mapping_t *wide = entered(turn, 0, true), *small = entered(!turn, 0, true);
        ac_ipc_opened(wide, 2 * MIB);
        ac_ipc_opened(small, 2 * MIB);
        ck_assert(ac_ipc_view_add(wide, 0, MIB) && ac_ipc_view_add(small, MIB, 512));
        ck_assert_uint_eq(seen(2 * MIB + MIB / 2).address, 2 * MIB);
        ck_assert_uint_eq(seen(3 * MIB + 511).address, 3 * MIB);
        ac_ipc_native_opened(&contexts[turn], 2 * MIB);
        ck_assert_int_eq(closed(!turn, 3 * MIB), 1);
        ck_assert_int_eq(closed(turn, 2 * MIB), 0);
        ck_assert_int_eq(closed(turn, 2 * MIB), 2);
    }
}
END_TEST

/* One handle is open in two contexts at one address. Each context closes its own view, in any
 * order. */
START_TEST(one_address_in_two_contexts) {
    for (int turn = 0; turn < 2; turn++) {
        ac_ipc_view_t view;
        ac_ipc_mapping_t *of[2] = {entered(0, 0, true), entered(1, 0, true)};
        for (int i = 0; i < 2; i++) {
            ac_ipc_opened(of[i], 2 * MIB);
            ck_assert(ac_ipc_view_add(of[i], 512, 512));
        }
        for (int i = 0; i < 2; i++) {
            int context = i == turn;
            ck_assert_ptr_eq(ac_ipc_view_close(&contexts[context], 2 * MIB + 512, &view),
                             of[context]);
            ck_assert_ptr_eq(view.context, &contexts[context]);
            ck_assert_uint_eq(ac_ipc_leave(of[context]), 1);
            ac_ipc_closed(of[context], false);
        }
        ck_assert_int_eq(closed(0, 2 * MIB + 512), -1);
    }
}
END_TEST

/* A new program took the exporter's place, and its driver returned the same handle bytes. */
START_TEST(exporters_are_apart) {
    bool fresh;
    uint64_t a = opened(0, 0, 0, 4096, true);
    ac_ipc_mapping_t *mapping = ac_ipc_enter(&contexts[0], 2, handles[0], 2 * MIB, &fresh);
    ck_assert(fresh);
    ac_ipc_opened(mapping, 64 * MIB);
    ck_assert(ac_ipc_view_add(mapping, 0, 512));
    ck_assert_int_eq(closed(0, 64 * MIB), 1);
    ck_assert_int_eq(closed(0, a), 1);
}
END_TEST

START_TEST(contexts_are_apart_and_end) {
    ac_ipc_view_t view;
    uint64_t a = opened(0, 0, 0, 4096, true), b = opened(1, 0, 0, 4096, true);
    opened(1, 1, 0, 512, true);
    ac_ipc_mapping_t *inside = entered(1, 1, false), *opening;
    bool fresh;
    const unsigned char other[AC_IPC_HANDLE] = {3};
    opening = ac_ipc_enter(&contexts[1], 1, other, MIB, &fresh);
    ac_ipc_context_gone(&contexts[1]);
    ck_assert_int_eq(ac_ipc_find(b, &view), AC_IPC_ELSEWHERE);
    ck_assert_int_eq(closed(1, b), -1);
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 3); /* calls use two of them */
    ck_assert_uint_eq(ac_ipc_leave(inside), 0);
    ac_ipc_opened(opening, 64 * MIB);
    ck_assert(ac_ipc_view_add(opening, 0, 512));
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 1);
    opened(1, 0, 0, 4096, true); /* another context with the same record */
    ck_assert_int_eq(closed(0, a), 1);
}
END_TEST

/* Many views, like many small blocks. */
START_TEST(many_views) {
    enum { VIEWS = 3000 };
    for (int i = 0; i < VIEWS; i++)
        opened(0, 0, (uint64_t)(i * 7 % VIEWS) * 512, 512, i == 0);
    for (uint64_t i = 0; i < VIEWS; i++)
        ck_assert_uint_eq(seen(2 * MIB + 512 * i + 511).address, 2 * MIB + 512 * i);
    for (uint64_t i = 0; i < VIEWS; i++)
        ck_assert_int_eq(closed(0, 2 * MIB + 512 * (i * 11 % VIEWS)), i == VIEWS - 1);
}
END_TEST

/* ---- threads ---- */

static _Atomic int open_now, opens, wrong;

/* Stub of the driver: at most one open of a handle at a time, and none during a close. */
static void driver(int change) {
    if (atomic_fetch_add(&open_now, change) != (change < 0))
        atomic_store(&wrong, 1);
    if (change > 0)
        atomic_fetch_add(&opens, 1);
    usleep(10);
}

static void *opens_and_closes(void *unused) {
    enum { ROUNDS = 2000 };
    for (int i = 0; i < ROUNDS; i++) {
        bool fresh;
        ac_ipc_view_t view;
        ac_ipc_mapping_t *mapping = ac_ipc_enter(&contexts[0], 1, handles[0], 2 * MIB, &fresh);
        if (fresh) {
            driver(1);
            ac_ipc_opened(mapping, 2 * MIB);
        }
        if (atomic_load(&open_now) != 1 || !ac_ipc_view_add(mapping, 512, 512))
            atomic_store(&wrong, 1);
        mapping = ac_ipc_view_close(&contexts[0], 2 * MIB + 512, &view);
        if (!mapping)
            atomic_store(&wrong, 1);
        else if (ac_ipc_leave(mapping)) {
            driver(-1);
            ac_ipc_closed(mapping, false);
        }
    }
    return unused;
}

START_TEST(threads_share_one_mapping) {
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, opens_and_closes, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    ck_assert(!atomic_load(&wrong) && !atomic_load(&open_now) && atomic_load(&opens) > 0);
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 0);
}
END_TEST

/* Another thread's driver call does not return. After a moment the thread gets a mapping of its
 * own, which the driver counts separately. */
START_TEST(another_threads_call_is_not_waited_for_forever) {
    struct timespec begin, end;
    ac_ipc_mapping_t *slow = entered(0, 0, true);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    ac_ipc_mapping_t *mapping = entered(0, 0, true);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_int_lt(end.tv_sec - begin.tv_sec, 10);
    ck_assert_ptr_ne(mapping, slow);
    ac_ipc_opened(mapping, base_of(0, 0));
    ck_assert(ac_ipc_view_add(mapping, 512, 1000));
    ac_ipc_opened(slow, base_of(0, 0));
    ck_assert(ac_ipc_view_add(slow, 512, 1000));
    ck_assert_int_eq(closed(0, base_of(0, 0) + 512), 1);
    ck_assert_uint_eq(seen(base_of(0, 0) + 512).size, 1000);
    ck_assert_int_eq(closed(0, base_of(0, 0) + 512), 1);
    ck_assert_int_eq(closed(0, base_of(0, 0) + 512), -1);
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 0);
}
END_TEST

/* Pages are closed by the thread that mapped them. When their context ends, each is reported
 * once. */
START_TEST(pages_outlive_their_context) {
    ac_ipc_left_t left;
    const void *context;
    uint64_t base, bytes;
    ac_ipc_mapping_t *mapping[2];
    for (int i = 0; i < 2; i++) {
        mapping[i] = entered(0, i, true);
        ac_ipc_on_pages(mapping[i], i);
        ac_ipc_opened(mapping[i], base_of(0, i));
        ck_assert(ac_ipc_view_add(mapping[i], 512, 4096));
    }
    opened(1, 1, 0, 4096, true); /* a native view of the driver */
    ck_assert(seen(base_of(0, 1) + 512).on_pages && !seen(base_of(1, 1)).on_pages);
    ck_assert(seen(base_of(0, 1) + 512).context == &contexts[0]);
    base = 0;
    ck_assert(ac_ipc_next_of(1, &context, &base, &bytes) && base == base_of(0, 1));
    ck_assert(context == &contexts[0] && bytes == 2 * MIB);
    ck_assert(!ac_ipc_next_of(1, &context, &base, &bytes));
    /* A mapping that was closed before is not reported: the caller unmapped it. */
    ck_assert_int_eq(closed(0, base_of(0, 0) + 512), 1);
    ck_assert(!ac_ipc_next_left(&left));
    /* The context ends while a thread is inside. The mapping is then reported after the thread has
     * left. */
    ck_assert_ptr_eq(entered(0, 1, false), mapping[1]);
    ac_ipc_context_gone(&contexts[0]);
    ac_ipc_context_gone(&contexts[1]);
    ck_assert(!ac_ipc_next_left(&left));
    ck_assert_uint_eq(ac_ipc_leave(mapping[1]), 0);
    ck_assert(ac_ipc_next_left(&left));
    ck_assert(left.context == &contexts[0] && left.base == base_of(0, 1));
    ck_assert(left.bytes == 2 * MIB && left.owner == 1 && !left.target);
    ck_assert(!ac_ipc_next_left(&left));
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 0);
}
END_TEST

/* A closed mapping whose pages cannot go yet is no longer found. The next open makes a new one. */
START_TEST(pages_are_taken_away_later) {
    ac_ipc_left_t left;
    ac_ipc_mapping_t *mapping = entered(0, 0, true);
    ac_ipc_on_pages(mapping, 1);
    ac_ipc_opened(mapping, base_of(0, 0));
    ck_assert_uint_eq(ac_ipc_leave(mapping), 1);
    ac_ipc_postponed(mapping);
    ck_assert(!ac_ipc_next_left(&left));
    ac_ipc_closed(mapping, false);
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 1);
    ac_ipc_view_t view;
    ck_assert_int_eq(ac_ipc_find(base_of(0, 0), &view), AC_IPC_BETWEEN);
    ac_ipc_mapping_t *other = entered(0, 0, true);
    ac_ipc_opened(other, base_of(0, 1));
    for (int i = 0; i < 3; i++) {
        ck_assert(ac_ipc_next_left(&left));
        ck_assert(left.context == &contexts[0] && left.base == base_of(0, 0));
        ck_assert(left.bytes == 2 * MIB && left.owner == 1 && left.target);
        ck_assert(!ac_ipc_next_left(&left));
        if (i < 2)
            ac_ipc_left_again(&(ac_ipc_left_t){&contexts[0], base_of(0, 0), 2 * MIB, 1, true});
    }
    ck_assert_uint_eq(ac_ipc_leave(other), 1);
    ac_ipc_closed(other, false);
    ck_assert(!ac_ipc_next_left(&left));
    ck_assert_uint_eq(atomic_load(&ac_ipc_mappings), 0);
    ck_assert_int_eq(ac_ipc_find(base_of(0, 0), &view), AC_IPC_ELSEWHERE);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_views");
    TCase *cases = tcase_create("ipc_views");
    tcase_add_test(cases, one_open_for_all_views);
    tcase_add_test(cases, later_lifetime_takes_over);
    tcase_add_test(cases, driver_refuses);
    tcase_add_test(cases, opened_as_the_drivers_own_too);
    tcase_add_test(cases, opened_as_the_drivers_own_before);
    tcase_add_test(cases, two_contexts_at_one_base);
    tcase_add_test(cases, one_address_in_two_contexts);
    tcase_add_test(cases, exporters_are_apart);
    tcase_add_test(cases, contexts_are_apart_and_end);
    tcase_add_test(cases, many_views);
    tcase_add_test(cases, threads_share_one_mapping);
    tcase_add_test(cases, another_threads_call_is_not_waited_for_forever);
    tcase_add_test(cases, pages_outlive_their_context);
    tcase_add_test(cases, pages_are_taken_away_later);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
