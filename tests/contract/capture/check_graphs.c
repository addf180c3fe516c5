/* Capture sessions and links (track/graphs.h), without blocks or a driver: which session is
 * released, and when. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "track/graphs.h"
#include "run_suite.h"

enum { SESSIONS = 8192 };

/* Calls that the memory behind the sessions received. */
static uint64_t open, newest, lost;
static bool holding[SESSIONS], empty, unseen;
static unsigned released[SESSIONS], releases;

static void on_begin(uint64_t session) {
    ck_assert_uint_eq(open, 0);
    ck_assert_uint_gt(session, newest);
    open = newest = session;
    holding[session] = !empty;
}

static void on_end(void) {
    ck_assert_uint_ne(open, 0);
    open = 0;
}

static bool on_holds(uint64_t session) {
    return holding[session];
}

static void on_release(uint64_t session) {
    ck_assert_uint_ne(session, open);
    released[session]++;
    releases++;
    holding[session] = false;
}

static bool on_unseen(void) {
    return unseen;
}

static void on_lost(void) {
    lost++;
}

static void set_up(void) {
    static const ac_graphs_memory_t memory = {on_begin,   on_end,    on_holds,
                                              on_release, on_unseen, on_lost};
    ac_graphs_setup(&memory);
}

static void tear_down(void) {
    ck_assert_int_eq(ac_graphs_check(), 0);
}

/* Names of graphs and executable graphs. Both kinds use the same numbers on purpose. */
#define NONE ((ac_holder_t){AC_HOLDER_NONE, 0})
#define G(n) AC_GRAPH(0x1000 + 16 * (n))
#define X(n) AC_EXEC(0x1000 + 16 * (n))

/* Runs a capture that yields `graph`. Returns the session's number. */
static uint64_t capture(ac_holder_t graph) {
    ac_graphs_capture_began();
    uint64_t session = newest;
    ac_graphs_capture_ended(graph);
    return session;
}

static void destroy(ac_holder_t holder) {
    ac_graphs_left(ac_graphs_leaving(holder), holder, true);
}

#define HELD(session) ck_assert_uint_eq(released[session], 0)
#define FREE(session) ck_assert_uint_eq(released[session], 1)

START_TEST(the_graph_goes) {
    uint64_t e = capture(G(1));
    HELD(e);
    destroy(X(1)); /* of the same number, another kind */
    HELD(e);
    destroy(G(1));
    FREE(e);
}
END_TEST

START_TEST(no_graph_came) {
    uint64_t e = capture(NONE);
    FREE(e);
}
END_TEST

START_TEST(executable_outlives_graph) {
    uint64_t e = capture(G(1));
    ac_graphs_inherit(X(1), G(1), false);
    ac_graphs_inherit(X(2), G(1), false);
    destroy(G(1));
    destroy(X(2));
    HELD(e);
    destroy(X(1));
    FREE(e);
}
END_TEST

START_TEST(clones_and_children) {
    uint64_t a = capture(G(1)), b = capture(G(2));
    ac_graphs_inherit(G(3), G(1), false); /* a clone */
    destroy(G(1));
    ac_graphs_inherit(G(2), G(3), false); /* a child */
    destroy(G(3));
    ac_graphs_inherit(X(1), G(2), false);
    destroy(G(2));
    HELD(a);
    HELD(b);
    destroy(X(1));
    FREE(a);
    FREE(b);
}
END_TEST

START_TEST(update_replaces) {
    uint64_t a = capture(G(1)), b = capture(G(2));
    ac_graphs_inherit(X(1), G(1), false);
    destroy(G(1));
    ac_graphs_inherit(X(1), G(2), false); /* it failed: X(1) may now hold memory of both
                                             graphs */
    HELD(a);
    ac_graphs_inherit(X(1), G(2), true);
    FREE(a);
    destroy(G(2));
    HELD(b);
    ac_graphs_inherit(X(1), G(9), true); /* by a graph without memory */
    FREE(b);
}
END_TEST

START_TEST(update_with_the_same) {
    uint64_t e = capture(G(1));
    ac_graphs_inherit(X(1), G(1), false);
    ac_graphs_inherit(X(1), G(1), true);
    destroy(G(1));
    HELD(e);
    destroy(X(1));
    FREE(e);
}
END_TEST

START_TEST(overlapping_captures_are_one_session) {
    ac_graphs_capture_began();
    uint64_t e = newest;
    ac_graphs_capture_began();
    ck_assert_uint_eq(newest, e);
    ac_graphs_capture_ended(G(1));
    destroy(G(1)); /* while the other capture goes on: later frees are held, too */
    HELD(e);
    ac_graphs_capture_began();
    ac_graphs_capture_ended(NONE);
    ac_graphs_capture_ended(G(2));
    ck_assert_uint_eq(open, 0);
    HELD(e);
    destroy(G(2));
    FREE(e);
}
END_TEST

START_TEST(overlapping_and_gone_before_the_end) {
    ac_graphs_capture_began();
    uint64_t e = newest;
    ac_graphs_capture_began();
    ac_graphs_capture_ended(G(1));
    destroy(G(1));
    ac_graphs_capture_ended(NONE);
    FREE(e);
}
END_TEST

START_TEST(nothing_held_nothing_followed) {
    empty = true;
    uint64_t e = capture(G(1));
    ac_graphs_inherit(X(1), G(1), false);
    destroy(G(1));
    destroy(X(1));
    HELD(e);
    ck_assert_uint_eq(releases, 0);
    ck_assert_uint_eq(lost, 0);
}
END_TEST

START_TEST(refused_destruction) {
    uint64_t e = capture(G(1));
    ac_holder_t leaving = ac_graphs_leaving(G(1));
    ac_graphs_left(leaving, G(1), false);
    HELD(e);
    destroy(G(1));
    FREE(e);
}
END_TEST

/* While the driver destroys a graph, another graph may already have its handle. */
START_TEST(handle_comes_back) {
    uint64_t a = capture(G(1));
    ac_holder_t leaving = ac_graphs_leaving(G(1));
    uint64_t b = capture(G(1));
    ac_graphs_left(leaving, G(1), true);
    FREE(a);
    HELD(b);
    destroy(G(1));
    FREE(b);
}
END_TEST

START_TEST(launched_into_a_capture) {
    uint64_t a = capture(G(1));
    ac_graphs_inherit(X(1), G(1), false);
    destroy(G(1));
    ac_graphs_launched(X(1)); /* outside a capture: no effect */
    ac_graphs_capture_began();
    uint64_t b = newest;
    ac_graphs_launched(X(1));
    ac_graphs_capture_ended(G(2));
    destroy(X(1));
    HELD(a);
    destroy(G(2));
    FREE(a);
    FREE(b);
}
END_TEST

START_TEST(launched_into_a_capture_that_holds_nothing) {
    uint64_t a = capture(G(1));
    empty = true;
    ac_graphs_capture_began();
    ac_graphs_launched(X(1)); /* unknown */
    ac_graphs_inherit(X(1), G(1), false);
    ac_graphs_launched(X(1));
    ac_graphs_capture_ended(G(2));
    destroy(X(1));
    destroy(G(1));
    HELD(a);
    destroy(G(2));
    FREE(a);
}
END_TEST

START_TEST(launched_into_a_capture_that_failed) {
    uint64_t a = capture(X(1));
    ac_graphs_capture_began();
    ac_graphs_launched(X(1));
    ac_graphs_capture_ended(NONE);
    HELD(a);
    destroy(X(1));
    FREE(a);
}
END_TEST

/* Bodies of conditional nodes are captured into and go with the graph around them. */
START_TEST(inner_graphs) {
    ac_graphs_inside(G(2), G(1));
    ac_graphs_inside(G(3), G(2));
    uint64_t e = capture(G(3));
    ac_graphs_inherit(X(1), G(1), false);
    destroy(G(1));
    HELD(e);
    destroy(X(1));
    FREE(e);
    uint64_t later = capture(G(2)); /* the handle is another graph's now */
    destroy(G(2));
    FREE(later);
}
END_TEST

START_TEST(moved_child) {
    uint64_t e = capture(G(2));
    ac_graphs_inherit(G(1), G(2), false);
    ac_graphs_inside(G(2), G(1)); /* the child's ownership goes to its parent */
    HELD(e);
    destroy(G(1));
    FREE(e);
}
END_TEST

START_TEST(fresh_handle_of_an_inner_graph) {
    ac_graphs_inside(G(2), G(1));
    ac_graphs_fresh(G(2)); /* its node was destroyed without a call that the library sees */
    uint64_t e = capture(G(2));
    destroy(G(1));
    HELD(e);
    destroy(G(2));
    FREE(e);
}
END_TEST

START_TEST(lineage_unseen) {
    uint64_t a = capture(G(1));
    unseen = true;
    destroy(G(1));
    HELD(a);
    ck_assert_uint_eq(lost, 1);
    uint64_t b = capture(NONE); /* certainly not a graph */
    FREE(b);
}
END_TEST

/* More links than the table holds: the memory of the rest stays held, and all else is
 * correct. */
START_TEST(overflow) {
    enum { MANY = 4200 };
    for (unsigned i = 0; i < MANY; i++)
        capture(G(i));
    ck_assert_uint_eq(lost, MANY - 4096);
    for (unsigned i = 0; i < MANY; i++)
        destroy(G(i));
    ck_assert_uint_eq(releases, 4096);
    for (unsigned e = 1; e <= MANY; e++)
        ck_assert_uint_eq(released[e], e <= 4096);
    uint64_t e = capture(G(1));
    destroy(G(1));
    FREE(e);
}
END_TEST

START_TEST(overflow_of_one_session) {
    enum { MANY = 4200 };
    uint64_t e = capture(G(0));
    for (unsigned i = 0; i < MANY; i++)
        ac_graphs_inherit(X(i), G(0), false);
    ck_assert_uint_eq(lost, 1);
    for (unsigned i = 0; i < MANY; i++)
        destroy(X(i));
    destroy(G(0));
    HELD(e);
    e = capture(G(1)); /* there is room again */
    destroy(G(1));
    FREE(e);
}
END_TEST

START_TEST(overflow_while_capturing) {
    for (unsigned i = 0; i < 4096; i++)
        capture(G(i));
    ac_graphs_capture_began();
    uint64_t e = newest;
    ac_graphs_capture_began();
    ac_graphs_capture_ended(G(8000));
    ck_assert_uint_eq(lost, 1);
    destroy(G(0));
    ac_graphs_capture_ended(G(8001)); /* room again, but too late for this session */
    destroy(G(8000));
    destroy(G(8001));
    HELD(e);
    ck_assert_uint_eq(lost, 1);
}
END_TEST

START_TEST(pruned) {
    for (unsigned i = 0; i < 4096; i++)
        capture(G(i));
    memset(holding, 0, sizeof holding); /* the contexts went */
    ac_graphs_prune();
    uint64_t e = capture(G(1));
    destroy(G(1));
    FREE(e);
    ck_assert_uint_eq(lost, 0);
    ck_assert_uint_eq(releases, 1);
}
END_TEST

/* At overflow, sessions that hold nothing make room. */
START_TEST(pruned_at_overflow) {
    for (unsigned i = 0; i < 4096; i++)
        capture(G(i));
    holding[7] = false;
    uint64_t e = capture(G(5000));
    ck_assert_uint_eq(lost, 0);
    destroy(G(5000));
    FREE(e);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graphs");
    TCase *t = tcase_create("graphs");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, the_graph_goes);
    tcase_add_test(t, no_graph_came);
    tcase_add_test(t, executable_outlives_graph);
    tcase_add_test(t, clones_and_children);
    tcase_add_test(t, update_replaces);
    tcase_add_test(t, update_with_the_same);
    tcase_add_test(t, overlapping_captures_are_one_session);
    tcase_add_test(t, overlapping_and_gone_before_the_end);
    tcase_add_test(t, nothing_held_nothing_followed);
    tcase_add_test(t, refused_destruction);
    tcase_add_test(t, handle_comes_back);
    tcase_add_test(t, launched_into_a_capture);
    tcase_add_test(t, launched_into_a_capture_that_holds_nothing);
    tcase_add_test(t, launched_into_a_capture_that_failed);
    tcase_add_test(t, inner_graphs);
    tcase_add_test(t, moved_child);
    tcase_add_test(t, fresh_handle_of_an_inner_graph);
    tcase_add_test(t, lineage_unseen);
    tcase_add_test(t, overflow);
    tcase_add_test(t, overflow_of_one_session);
    tcase_add_test(t, overflow_while_capturing);
    tcase_add_test(t, pruned);
    tcase_add_test(t, pruned_at_overflow);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
