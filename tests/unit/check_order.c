/* The order between streams. One test compares with sets of frees, without positions; others make
 * two calls meet on one event. */
#include <check.h>
#include <pthread.h>
#include <string.h>

#include "allocator/order/order.h"
#include "run_suite.h"

enum { FREES = 512, STREAMS = 90, EVENTS = 3000, STEPS = 2000 };

static ac_order_t order;
static uint64_t state;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* --- the oracle: which frees come before what --- */

typedef struct {
    uint64_t bit[FREES / 64];
} set_t;

static struct {
    ac_stream_t stream;
    unsigned slot;
    uint64_t position;
} freed[FREES];
static unsigned frees;
static set_t before_stream[STREAMS], before_event[EVENTS], seen_by_host;
static ac_stream_t stream_key[STREAMS]; /* changes when a stream is renewed */

static void set_add(set_t *set, unsigned i) {
    set->bit[i / 64] |= (uint64_t)1 << (i % 64);
}

static bool set_has(const set_t *set, unsigned i) {
    return set->bit[i / 64] >> (i % 64) & 1;
}

static void set_join(set_t *to, const set_t *from) {
    for (unsigned i = 0; i < FREES / 64; i++)
        to->bit[i] |= from->bit[i];
}

static void begin(uint64_t seed) {
    memset(&order, 0, sizeof order);
    memset(before_stream, 0, sizeof before_stream);
    memset(before_event, 0, sizeof before_event);
    memset(&seen_by_host, 0, sizeof seen_by_host);
    frees = 0;
    state = seed * 0x9e3779b97f4a7c15u + 1;
    for (unsigned i = 0; i < STREAMS; i++)
        stream_key[i] = 1000 + 4 * i;
}

static void do_free(unsigned stream) {
    unsigned slot = ac_order_slot(&order, stream_key[stream], 0);
    if (frees == FREES || slot == AC_ORDER_NONE)
        return;
    freed[frees].stream = stream_key[stream];
    freed[frees].slot = slot;
    freed[frees].position = ac_order_advance(&order, slot);
    set_add(&before_stream[stream], frees++);
}

static void do_record(unsigned stream, unsigned event) {
    ac_order_mark_t mark;
    ac_order_record_begin(&order, event + 1, ac_order_find(&order, stream_key[stream]), &mark);
    bool good = draw(8) != 0; /* false: failed or captured, content unknown */
    ac_order_record_end(&order, &mark, good);
    memset(&before_event[event], 0, sizeof before_event[event]);
    if (good)
        before_event[event] = before_stream[stream];
}

static void do_wait(unsigned stream, unsigned event) {
    ac_order_mark_t mark;
    if (ac_order_look(&order, event + 1, &mark) && ac_order_still(&order, &mark)) {
        unsigned to = ac_order_slot(&order, stream_key[stream], 0);
        ac_order_join(&order, to, &mark.vector);
    }
    set_join(&before_stream[stream], &before_event[event]);
}

static void do_host(unsigned event) {
    ac_order_mark_t mark;
    if (ac_order_look(&order, event + 1, &mark))
        ac_order_completed(&order, &mark.vector);
    set_join(&seen_by_host, &before_event[event]);
}

static void do_host_stream(unsigned stream) {
    ac_order_vector_t vector;
    unsigned slot = ac_order_find(&order, stream_key[stream]);
    if (slot != AC_ORDER_NONE) {
        ac_order_read(&order, slot, &vector);
        ac_order_completed(&order, &vector);
    }
    set_join(&seen_by_host, &before_stream[stream]);
}

/* The handle is reused at once for another stream. */
static void do_renew(unsigned stream) {
    unsigned slot = ac_order_find(&order, stream_key[stream]);
    if (slot != AC_ORDER_NONE)
        ac_order_drop(&order, slot);
    memset(&before_stream[stream], 0, sizeof before_stream[stream]);
}

/* Checks that every proven order is true. With `exact`, every true order must also be proven. */
static void compare(unsigned streams, bool exact) {
    ck_assert_int_eq(ac_order_check(&order), 0);
    for (unsigned t = 0; t < streams; t++) {
        unsigned to = ac_order_find(&order, stream_key[t]);
        for (unsigned i = 0; i < frees; i++) {
            bool known = set_has(&before_stream[t], i) || set_has(&seen_by_host, i);
            bool proven = to != AC_ORDER_NONE &&
                          ac_order_proven(&order, to, freed[i].slot, freed[i].position);
            /* Check writes a line to a file at each assertion, and this loop makes millions. */
            if (proven && !known)
                ck_abort_msg("free %u taken to come before stream %u", i, t);
            if (exact && to != AC_ORDER_NONE && proven != known)
                ck_abort_msg("free %u not known to come before stream %u", i, t);
        }
    }
}

static void run(unsigned streams, unsigned events, bool renew) {
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned stream = (unsigned)draw(streams), event = (unsigned)draw(events);
        switch (draw(renew ? 12 : 10)) {
        case 0:
        case 1:
            do_free(stream);
            break;
        case 2:
        case 3:
        case 4:
            do_record(stream, event);
            break;
        case 5:
        case 6:
        case 7:
            do_wait(stream, event);
            break;
        case 8:
            if (draw(40) == 0)
                do_host(event);
            break;
        case 9:
            if (draw(40) == 0)
                do_host_stream(stream);
            break;
        default:
            do_renew(stream);
        }
        if (step % 50 == 0)
            compare(streams, streams <= AC_ORDER_SLOTS && events <= 8 && !renew);
    }
}

START_TEST(few_streams_are_followed_exactly) {
    begin((uint64_t)_i + 1);
    run(6, 8, false);
    ck_assert_uint_gt(frees, 50);
}
END_TEST

START_TEST(what_is_forgotten_is_never_wrong) {
    begin((uint64_t)_i + 100);
    switch (_i % 3) {
    case 0:
        run(STREAMS, 8, false); /* more streams than slots */
        break;
    case 1:
        run(6, EVENTS, true); /* more events than entries */
        break;
    default:
        run(STREAMS, 60, true);
    }
}
END_TEST

/* --- calls that meet --- */

enum { A = 4, B = 8, EVENT = 77 };
static unsigned a, b;

static void two_streams(void) {
    begin(1);
    a = ac_order_slot(&order, A, 0);
    b = ac_order_slot(&order, B, 0);
}

static void record(unsigned slot) {
    ac_order_mark_t mark;
    ac_order_record_begin(&order, EVENT, slot, &mark);
    ac_order_record_end(&order, &mark, true);
}

static bool known(void) {
    ac_order_mark_t mark;
    return ac_order_look(&order, EVENT, &mark);
}

START_TEST(a_record_counts_from_its_beginning) {
    ac_order_mark_t mark;
    two_streams();
    ac_order_record_begin(&order, EVENT, a, &mark);
    uint64_t at = ac_order_advance(&order, a); /* possibly after the driver's call */
    ac_order_record_end(&order, &mark, true);
    ck_assert(ac_order_look(&order, EVENT, &mark));
    ac_order_join(&order, b, &mark.vector);
    ck_assert(!ac_order_proven(&order, b, a, at));
    ck_assert(ac_order_proven(&order, a, a, at));
}
END_TEST

START_TEST(two_records_at_a_time_prove_nothing) {
    ac_order_mark_t first, second;
    two_streams();
    ac_order_record_begin(&order, EVENT, a, &first);
    ac_order_record_begin(&order, EVENT, b, &second);
    ac_order_record_end(&order, &first, true);
    ck_assert(!known());
    ac_order_record_end(&order, &second, true);
    ck_assert(!known());
    record(a);
    ck_assert(known());
}
END_TEST

START_TEST(an_event_under_way_proves_nothing) {
    ac_order_mark_t mark;
    two_streams();
    record(a);
    ck_assert(known());
    ac_order_record_begin(&order, EVENT, b, &mark);
    ck_assert(!known());
    ac_order_record_end(&order, &mark, false);
    ck_assert(!known());
}
END_TEST

START_TEST(a_wait_that_meets_a_record_proves_nothing) {
    ac_order_mark_t seen, mark;
    two_streams();
    record(a);
    ck_assert(ac_order_look(&order, EVENT, &seen));
    ck_assert(ac_order_still(&order, &seen));
    ac_order_record_begin(&order, EVENT, b, &mark);
    ck_assert(!ac_order_still(&order, &seen));
    ac_order_record_end(&order, &mark, true);
    ck_assert(!ac_order_still(&order, &seen));
    ck_assert(known());
}
END_TEST

START_TEST(a_forgotten_event_comes_back_new) {
    ac_order_mark_t seen, inside;
    two_streams();
    record(a);
    ck_assert(ac_order_look(&order, EVENT, &seen));
    ac_order_forget(&order, EVENT);
    ck_assert(!known() && !ac_order_still(&order, &seen));
    record(b);
    ck_assert(known() && !ac_order_still(&order, &seen));
    ac_order_record_begin(&order, EVENT, a, &inside);
    ac_order_forget(&order, EVENT); /* recorded elsewhere, possibly before or after */
    ac_order_record_end(&order, &inside, true);
    ck_assert(!known());
}
END_TEST

START_TEST(a_record_without_an_entry_spoils_others) {
    ac_order_mark_t mark[AC_ORDER_WAYS + 2], one;
    uint64_t event[AC_ORDER_WAYS + 2];
    unsigned n = 0;
    two_streams();
    /* Events of one set. All are being recorded. */
    for (uint64_t e = 1; n < AC_ORDER_WAYS + 2; e++)
        if (e * 0x9e3779b97f4a7c15u >> 57 == (uint64_t)EVENT * 0x9e3779b97f4a7c15u >> 57)
            event[n++] = e;
    for (unsigned i = 0; i < AC_ORDER_WAYS + 1; i++)
        ac_order_record_begin(&order, event[i], a, &mark[i]);
    ck_assert(mark[AC_ORDER_WAYS].stray);
    ac_order_record_end(&order, &mark[0], true);
    ac_order_record_begin(&order, event[AC_ORDER_WAYS], b, &one); /* found room in the meantime */
    ac_order_record_end(&order, &one, true);
    ck_assert(!ac_order_look(&order, event[AC_ORDER_WAYS], &one));
    ac_order_record_end(&order, &mark[AC_ORDER_WAYS], true);
    for (unsigned i = 1; i < AC_ORDER_WAYS; i++)
        ac_order_record_end(&order, &mark[i], true);
    ac_order_record_begin(&order, event[0], b, &one);
    ac_order_record_end(&order, &one, true);
    ck_assert(ac_order_look(&order, event[0], &one));
}
END_TEST

START_TEST(a_renewed_stream_is_another_one) {
    two_streams();
    uint64_t old = ac_order_advance(&order, a);
    record(a);
    ac_order_drop(&order, a);
    unsigned again = ac_order_slot(&order, A, 0);
    ck_assert_uint_eq(again, a); /* the same slot, the same key */
    ck_assert(!ac_order_proven(&order, again, a, old));
    uint64_t fresh = ac_order_advance(&order, again);
    ck_assert(ac_order_proven(&order, again, again, fresh));
    ac_order_mark_t mark;
    ck_assert(ac_order_look(&order, EVENT, &mark));
    ac_order_join(&order, b, &mark.vector);
    ck_assert(!ac_order_proven(&order, b, again, fresh));
    ck_assert(!ac_order_proven(&order, b, a, old)); /* true, but unknown here */
}
END_TEST

START_TEST(busy_slots_stay) {
    begin(1);
    for (unsigned i = 0; i < AC_ORDER_SLOTS; i++)
        ck_assert_uint_eq(ac_order_slot(&order, 100 + i, 0), i);
    ck_assert_uint_eq(ac_order_slot(&order, 5, UINT64_MAX), AC_ORDER_NONE);
    ck_assert_uint_eq(ac_order_slot(&order, 5, ~(uint64_t)8), 3);
    ac_order_find(&order, 100); /* used just now: the next oldest goes */
    ck_assert_uint_eq(ac_order_slot(&order, 6, 0), 1);
    ck_assert_uint_eq(ac_order_find(&order, 103), AC_ORDER_NONE);
}
END_TEST

START_TEST(distrust_ends_with_the_event) {
    enum { MANY = 1000 };
    two_streams();
    record(a);
    ck_assert(known());
    ck_assert(ac_order_distrust(EVENT));
    ck_assert(!ac_order_distrust(EVENT));
    ac_order_forget(&order, EVENT);
    record(a);
    ck_assert(!known());
    for (uint64_t e = 1000; e < 1000 + MANY; e++)
        ck_assert(ac_order_distrust(e));
    for (uint64_t e = 1000; e < 1000 + MANY; e++)
        ck_assert(ac_order_distrusts(e) && !ac_order_distrusts(e + MANY));
    for (uint64_t e = 1000; e < 1000 + MANY; e += 2)
        ck_assert(ac_order_trust(e) && !ac_order_trust(e));
    for (uint64_t e = 1000; e < 1000 + MANY; e++)
        ck_assert(ac_order_distrusts(e) == (e & 1));
    ck_assert(ac_order_trust(EVENT));
    record(a);
    ck_assert(known());
}
END_TEST

static void *distrust_some(void *arg) {
    uint64_t first = (uint64_t)(uintptr_t)arg;
    for (int round = 0; round < 200; round++) {
        for (uint64_t e = first; e < first + 40; e++)
            ac_order_distrust(e << 6);
        for (uint64_t e = first; e < first + 40; e++)
            if (!ac_order_distrusts(e << 6) || !ac_order_trust(e << 6))
                return arg;
    }
    return NULL;
}

START_TEST(threads_distrust_side_by_side) {
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, distrust_some, (void *)(100 * (i + 1))),
                         0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(thread[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("order");
    TCase *tests = tcase_create("order");
    tcase_add_loop_test(tests, few_streams_are_followed_exactly, 0, 8);
    tcase_add_loop_test(tests, what_is_forgotten_is_never_wrong, 0, 6);
    tcase_add_test(tests, a_record_counts_from_its_beginning);
    tcase_add_test(tests, two_records_at_a_time_prove_nothing);
    tcase_add_test(tests, an_event_under_way_proves_nothing);
    tcase_add_test(tests, a_wait_that_meets_a_record_proves_nothing);
    tcase_add_test(tests, a_forgotten_event_comes_back_new);
    tcase_add_test(tests, a_record_without_an_entry_spoils_others);
    tcase_add_test(tests, a_renewed_stream_is_another_one);
    tcase_add_test(tests, busy_slots_stay);
    tcase_add_test(tests, distrust_ends_with_the_event);
    tcase_add_test(tests, threads_distrust_side_by_side);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
