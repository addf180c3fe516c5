/* The ledger alone: the blocks that a capture session holds, and the blocks that a stream's
 * order makes ready. */
#include <check.h>

#include "allocator/order/ledger.h"
#include "allocator/order/retire.h"
#include "run_suite.h"

static ac_ledger_t ledger;

static void visit(ac_due_t *due, void *arg) {
    (void)due;
    ++*(unsigned *)arg;
}

static void expect(unsigned count) {
    unsigned seen = 0;
    ck_assert_ptr_null(ac_ledger_check(&ledger, visit, &seen));
    ck_assert_uint_eq(seen, count);
}

/* Sessions share a queue of the ledger. Each finds only its own blocks. */
START_TEST(sessions_that_share_a_queue) {
    enum { SESSIONS = 3, EACH = 2 };
    static ac_due_t due[SESSIONS * EACH];
    for (unsigned i = 0; i < SESSIONS * EACH; i++) {
        due[i].ticket.key = AC_KEY_CAPTURE;
        due[i].ticket.place = 5 + (uint64_t)(i % SESSIONS) * AC_LEDGER_SESSIONS;
        ac_ledger_add(&ledger, &due[i]);
    }
    expect(SESSIONS * EACH);
    for (unsigned i = SESSIONS; i-- > 0;)
        for (unsigned n = 0; n < EACH; n++) {
            ac_due_t *held = ac_ledger_held(&ledger, 5 + (uint64_t)i * AC_LEDGER_SESSIONS);
            ck_assert_ptr_eq(held, &due[i + n * SESSIONS]);
            ac_ledger_remove(&ledger, held);
        }
    ck_assert_ptr_null(ac_ledger_held(&ledger, 5));
    expect(0);
}
END_TEST

static void take(ac_due_t *due, void *arg) {
    ac_ledger_remove(&ledger, due);
    ++*(unsigned *)arg;
}

/* A block at the stream's last completed place is ready, one at the next place is not. */
START_TEST(places_of_a_stream) {
    enum { SLOT = 3, DONE = 7 };
    static ac_timeline_t timeline;
    static ac_order_t order;
    static ac_due_t due[3];
    unsigned taken = 0;
    order.complete[SLOT] = DONE;
    for (unsigned i = 0; i < 3; i++) {
        due[i].ticket.key = ac_key_of(SLOT);
        due[i].ticket.place = DONE - 1 + i;
        due[i].ticket.epoch = 9; /* no fence for it is over */
        ac_ledger_add(&ledger, &due[i]);
    }
    ck_assert(ac_ledger_drain(&ledger, &timeline, &order, take, &taken));
    ck_assert_uint_eq(taken, 2);
    ck_assert(!ac_ledger_drain(&ledger, &timeline, &order, take, &taken));
    ck_assert(ac_ledger_waits(&ledger));
    order.complete[SLOT] = DONE + 1;
    ck_assert(ac_ledger_drain(&ledger, &timeline, &order, take, &taken));
    ck_assert(!ac_ledger_waits(&ledger));
    expect(0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ledger");
    TCase *all = tcase_create("all");
    tcase_add_test(all, sessions_that_share_a_queue);
    tcase_add_test(all, places_of_a_stream);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
