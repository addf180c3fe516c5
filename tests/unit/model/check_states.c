/* Changes of a block's state: exactly the rows of state.def are legal, and random operations take
 * every one of them. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "oracle.h"
#include "run_suite.h"

static const struct {
    ac_block_state_t from, to;
    const char *name;
} steps[] = {
#define STEP(from, to, text) {AC_BLOCK_##from, AC_BLOCK_##to, #from " to " #to},
#include "allocator/space/state.def"
#undef STEP
};
enum { STEPS = sizeof steps / sizeof steps[0] };

/* --- the table --- */

static unsigned bad;
static ac_block_state_t bad_from, bad_to;

static void note(ac_block_state_t from, ac_block_state_t to) {
    bad++;
    bad_from = from;
    bad_to = to;
}

static bool is_step(ac_block_state_t from, ac_block_state_t to) {
    for (int i = 0; i < STEPS; i++)
        if (steps[i].from == from && steps[i].to == to)
            return true;
    return false;
}

START_TEST(others_are_reported) {
    ac_block_bad_step = note;
    for (int from = 0; from < AC_BLOCK_STATES; from++)
        for (int to = 0; to < AC_BLOCK_STATES; to++) {
            ac_block_t block = {.state = (ac_block_state_t)from};
            bad = 0;
            ac_block_set_state(&block, (ac_block_state_t)to);
            ck_assert_int_eq(block.state, to);
            bool legal = is_step((ac_block_state_t)from, (ac_block_state_t)to);
            ck_assert_uint_eq(bad, legal ? 0 : 1);
            ck_assert(legal || (bad_from == (unsigned)from && bad_to == (unsigned)to));
        }
}
END_TEST

START_TEST(a_bad_step_ends_the_process) {
    pid_t child = fork();
    if (child == 0) {
        ac_block_t block = {.state = AC_BLOCK_FREE};
        ac_block_set_state(&block, AC_BLOCK_MOVING);
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_ne(status, 0); /* by a signal, or by a sanitizer that catches it */
}
END_TEST

START_TEST(blocks_begin_unused) {
    ac_block_t block = {.state = AC_BLOCK_ALLOCATED};
    ac_block_bad_step = note;
    ac_block_init(&block, AC_GRANULE, AC_GRANULE, NULL);
    ck_assert_uint_eq(bad, 1); /* a record that is in use */
    ac_block_blank(&block);
    ac_block_init(&block, AC_GRANULE, AC_GRANULE, NULL);
    ck_assert_uint_eq(bad, 1);
    ck_assert_int_eq(block.state, AC_BLOCK_TRANSIT);
}
END_TEST

/* --- the rows --- */

static uint64_t state;

uint64_t oracle_draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

void oracle_wrong(const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ck_abort_msg("%s", text);
}

static void operate(void) {
    static void (*const often[])(void) = {oracle_free,   oracle_free_on,    oracle_submit,
                                          oracle_record, oracle_wait_event, oracle_complete,
                                          oracle_cache};
    static void (*const seldom[])(void) = {oracle_synchronize, oracle_settle,  oracle_trim,
                                           oracle_taint,       oracle_capture, oracle_stream_gone,
                                           oracle_drop};
    uint64_t dice = oracle_draw(100);
    if (dice < 25)
        oracle_alloc(false);
    else if (dice < 40)
        oracle_alloc_on(false);
    else if (dice < 95)
        often[dice % 2 ? 0 : oracle_draw(sizeof often / sizeof often[0])]();
    else if (oracle_draw(4) == 0)
        seldom[oracle_draw(sizeof seldom / sizeof seldom[0])]();
}

/* Runs each kind of program in one process, because some rows are rare. In some runs device calls
 * fail: pages that cannot be made reachable stay MOVING. */
static void run(uint64_t seed) {
    state = seed * 0x9e3779b97f4a7c15u + 1;
    oracle_begin(seed % 3 == 0, seed % 2);
    oracle.most_caches = ORACLE_CACHES;
    oracle.steady = seed % 4 < 2;
    for (oracle.step = 0; oracle.step < 4000; oracle.step++) {
        if (seed % 3 == 2 && oracle_draw(10) == 0) {
            oracle.broken = true;
            oracle_plan_failure(true);
        }
        operate();
    }
    oracle.device.fail_at = 0;
    oracle_check();
    for (int c = 0; c < ORACLE_CONTEXTS; c++)
        atomic_store(&oracle.context[c]->capturing, false);
    oracle_end();
}

/* Covers a row that the oracle does not reach: a capture may have recorded a freed block. */
static void hold(void) {
    static const ac_settings_t settings = {
        .max_split_size = AC_UNLIMITED, .large_segment_size = 20 << 20, .limit = AC_UNLIMITED};
    static ac_device_stats_t stats;
    static ac_device_counters_t counters;
    static fake_device_t device;
    static fake_context_t context;
    uint64_t address;
    fake_device_init(&device, 64 << 20);
    fake_context_init(&context, &device);
    ac_allocator_t *allocator = ac_allocator_create(&settings, &stats, &counters);
    ac_arena_t *arena = ac_arena_create(allocator, &fake_ops, &context);
    ac_order_capture_begin(1);
    ck_assert_int_eq(ac_arena_alloc(arena, 1 << 20, false, &address), AC_OK);
    fake_submit(&context);
    ac_fence_submitted(ac_arena_timeline(arena));
    ck_assert_int_eq(ac_block_free(address), AC_OK);
    ac_order_capture_end();
    ac_allocator_release(allocator, 1);
    ac_arena_drop(arena);
}

static unsigned missing(void) {
    unsigned left = 0;
    for (int i = 0; i < STEPS; i++)
        left += !ac_block_stepped[steps[i].from][steps[i].to];
    return left;
}

START_TEST(every_row_is_reached) {
    hold();
    for (uint64_t seed = 1; seed <= 200 && missing(); seed++)
        run(seed);
    for (int i = 0; i < STEPS; i++)
        ck_assert_msg(ac_block_stepped[steps[i].from][steps[i].to], "never: %s", steps[i].name);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("states");
    TCase *table = tcase_create("table");
    tcase_add_test(table, others_are_reported);
    tcase_add_test(table, a_bad_step_ends_the_process);
    tcase_add_test(table, blocks_begin_unused);
    suite_add_tcase(suite, table);
    TCase *rows = tcase_create("rows");
    tcase_add_test(rows, every_row_is_reached);
    suite_add_tcase(suite, rows);
    return run_suite(suite);
}
