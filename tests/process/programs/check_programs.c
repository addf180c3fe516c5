/* Tests of programs as data: their text, the model that keeps them in order, and the shrinker.
 * Other tests run programs on the device. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generate.h"
#include "model.h"
#include "shrink.h"

static const char path[] = "check.program";

static void write_text(const char *text) {
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    fclose(out);
}

/* Returns the number of operations of the text that the model removes. */
static size_t dropped(const char *text) {
    program_t program;
    write_text(text);
    ck_assert(program_read(&program, path));
    size_t count = model_filter(&program);
    program_free(&program);
    return count;
}

static bool same(const op_t *a, const op_t *b) {
    return a->code == b->code && a->thread == b->thread &&
           !memcmp(a->at, b->at, strlen(op_operands(a->code)) * sizeof *a->at);
}

START_TEST(text_comes_back) {
    program_t program, again;
    for (unsigned long seed = 1; seed <= 20; seed++) {
        generate(&program, seed, 500);
        ck_assert_uint_ge(program.count, 500);
        ck_assert(program_write(&program, path, "a note\nof two lines"));
        ck_assert(program_read(&again, path));
        ck_assert_uint_eq(again.count, program.count);
        ck_assert_str_eq(again.conf, program.conf);
        ck_assert_str_eq(again.sim, program.sim);
        ck_assert_uint_eq(again.threads, program.threads);
        ck_assert_uint_eq(again.devices, program.devices);
        ck_assert_uint_eq(again.loose, program.loose);
        for (size_t i = 0; i < program.count; i++)
            ck_assert(same(&again.ops[i], &program.ops[i]));
        ck_assert_uint_eq(model_filter(&again), 0);
        program_free(&program);
        program_free(&again);
    }
}
END_TEST

START_TEST(bad_text_is_refused) {
    static const char *const texts[] = {
        "0 nonsense",        "0 alloc b1",  "0 alloc b1 2 3",
        "9 use c0",          "0 use s1",    "0 drop s1.y",
        "0 alloc b9999 512", "threads 0",   "use c0",
        "0 alloc b1 -4",     "1 syncctx\n", "devices 99",
        "0 drop s",          "0 pool p9 0", "0 allocfrom b1 512 s0 p0",
        "0 drop nul"};
    program_t program;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(texts[i]);
        ck_assert_msg(!program_read(&program, path), "%s", texts[i]);
        program_free(&program);
    }
}
END_TEST

#define TWO_STREAMS "0 stream s0 c0 1\n0 stream s1 c0 1\n0 event e0 c0\n0 alloc b0 512\n"

START_TEST(uses_have_to_be_ordered) {
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 check s0 b0 0\n0 fill s0 b0 0\n"),
                      0);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 check s1 b0 0\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 check s0 b0 0\n0 check s1 b0 0\n"), 0);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 check s0 b0 0\n0 fill s1 b0 0\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 record e0 s0\n0 wait s1 e0\n"
                                          "0 fill s1 b0 0\n"),
                      0);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 record e0 s0\n0 fill s0 b0 0\n0 wait s1 e0\n"
                                          "0 fill s1 b0 0\n"),
                      1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 sync s0\n0 fill s1 b0 0\n"), 0);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 poll s0\n0 fill s1 b0 0\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 fill s0 b0 4\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 host s0\n0 fill s0 b0 4\n"), 0);
}
END_TEST

/* The legacy stream orders work of blocking streams. A free in it orders nothing. */
START_TEST(default_streams_order) {
#define BLOCKING "0 stream s0 c0 0\n0 stream s1 c0 0\n0 alloc b0 512\n0 alloc b1 512\n"
    ck_assert_uint_eq(dropped(BLOCKING "0 fill s0 b0 0\n0 fill null b0 0\n0 fill s1 b0 0\n"), 0);
    ck_assert_uint_eq(dropped(BLOCKING "0 fill s0 b0 0\n0 host null\n0 fill s1 b0 0\n"), 0);
    ck_assert_uint_eq(dropped(BLOCKING "0 fill s0 b0 0\n0 fill s1 b0 0\n"), 1);
    ck_assert_uint_eq(dropped(BLOCKING "0 fill s0 b0 0\n0 host null.z\n0 fill s1 b0 0\n"), 1);
    ck_assert_uint_eq(dropped(BLOCKING "0 fill s0 b0 0\n0 freeasync b1 null\n0 fill s1 b0 0\n"),
                      1);
}
END_TEST

START_TEST(frees_come_last) {
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 free b0\n"), 0);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 free b0\n0 fill s0 b0 0\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 fill s0 b0 0\n0 freeasync b0 s1\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 allocasync b1 512 s0\n0 fill s1 b1 0\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 allocasync b1 512 s0\n0 fill s0 b1 0\n0 free b1\n"),
                      1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 allocasync b1 512 s0\n0 fill s0 b1 0\n0 sync s0\n"
                                          "0 free b1\n"),
                      0);
}
END_TEST

START_TEST(captures_keep_the_rules) {
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 capture s0 2\n0 fill s0 b0 0\n0 endcapture s0 g0\n"
                                          "0 launch g0 s1\n"),
                      0);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 capture s0 2\n0 fill s0 b0 0\n0 endcapture s0 g0\n"
                                          "0 free b0\n0 launch g0 s1\n"),
                      1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 capture s0 0\n0 alloc b1 512\n"), 1);
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 capture s0 2\n0 syncctx\n"), 1);
    /* A stream joined the capture and was not joined back. No operation may follow. */
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 capture s0 2\n0 record e0 s0\n0 wait s1 e0\n"
                                          "0 fill s1 b0 0\n0 endcapture s0 g0\n0 launch g0 s1\n"),
                      2);
}
END_TEST

START_TEST(pools_are_the_devices) {
#define POOL "0 stream s0 c0 1\n0 newctx c2 0\n0 stream s2 c2 1\n0 pool p0 0\n"
    ck_assert_uint_eq(dropped(POOL "0 allocfrom b0 512 p0 s2\n0 fill s2 b0 0\n0 poolask p0\n"
                                   "0 droppool p0\n0 freeasync b0 s2\n"),
                      0);
    ck_assert_uint_eq(dropped(POOL "0 allocfrom b0 512 p1 s0\n0 droppool p1\n0 poolask p1\n"), 3);
    ck_assert_uint_eq(dropped(POOL "0 allocfrom b0 512 p0 s2\n0 fill s0 b0 0\n"), 1);
    ck_assert_uint_eq(dropped(POOL "0 allocfrom b0 512 p0 s2\n0 sync s2\n0 fill s0 b0 0\n"
                                   "0 freeasync b0 s0\n"),
                      0);
    /* A pool outlives a created context, but not the primary one. */
    ck_assert_uint_eq(dropped(POOL "0 allocfrom b0 512 p0 s2\n0 sync s2\n0 dropctx c2\n"
                                   "0 fill s0 b0 0\n0 freeasync b0 s0\n"),
                      0);
    ck_assert_uint_eq(dropped(POOL "0 allocfrom b0 512 p0 s2\n0 sync s2\n0 reset c0 0\n"
                                   "0 freeasync b0 s2\n0 droppool p0\n"),
                      2);
    /* Another context still uses memory that the reset would destroy. */
    ck_assert_uint_eq(dropped(POOL "0 allocfrom b0 512 p0 s2\n0 freeasync b0 s2\n0 reset c0 0\n"),
                      1);
}
END_TEST

START_TEST(contexts_end) {
#define CREATED                                                                                  \
    "threads 2\n0 stream s0 c0 1\n0 newctx c2 0\n0 use c2\n0 alloc b0 512\n"                     \
    "0 stream s2 c2 1\n0 event e2 c2\n"
    /* The context's own work may still run. Work of other contexts may not. */
    ck_assert_uint_eq(dropped(CREATED "0 fill s2 b0 2\n0 dropctx c2\n"), 0);
    ck_assert_uint_eq(dropped(CREATED "0 use c0\n0 alloc b1 512\n0 copy s0 b1 b0\n"
                                      "0 dropctx c2\n"),
                      1);
    /* Its objects end with the context. */
    ck_assert_uint_eq(dropped(CREATED "0 dropctx c2\n0 use c0\n0 free b0\n0 record e2 s0\n"
                                      "0 sync s2\n"),
                      3);
    /* The context is current in another thread. */
    ck_assert_uint_eq(dropped(CREATED "1 use c2\n0 dropctx c2\n1 stale\n1 syncctx\n1 use c0\n"
                                      "1 stale\n1 syncctx\n"),
                      2);
    ck_assert_uint_eq(dropped("0 stream s0 c0 1\n0 alloc b0 512\n0 fill s0 b0 2\n0 reset c0 1\n"
                              "0 fill s0 b0 2\n0 alloc b0 512\n0 reset c0 0\n"),
                      1);
}
END_TEST

START_TEST(unseen_work_is_found_first) {
    ck_assert_uint_eq(dropped(TWO_STREAMS "0 alloc b1 512\n0 unseen s0 b0 b1\n0 find\n"
                                          "0 unseen s0 b0 b1\n0 unseen s1 b0 b1\n"),
                      2);
}
END_TEST

/* Fails if s1 is destroyed after b0 was filled on it, in a thread other than the first. */
static bool fails(const program_t *program, void *argument) {
    unsigned *runs = argument;
    bool filled = false;
    ++*runs;
    for (size_t i = 0; i < program->count; i++) {
        const op_t *op = &program->ops[i];
        filled |= op->code == OP_FILL && op->at[0] == 1 && op->at[1] == 0 && op->thread;
        if (filled && op->code == OP_DROP && op->at[0] == 1 &&
            strstr(program->conf, "fence:sync"))
            return true;
    }
    return false;
}

START_TEST(shrinking_leaves_what_is_needed) {
    static const char mine[] = "threads 4\ndevices 2\nconf memory_limit:64M,fence:sync\n"
                               "sim driver:12020\n0 stream s1 c0 0\n0 alloc b0 512\n";
    program_t program, other;
    unsigned runs = 0;
    write_text(mine);
    ck_assert(program_read(&program, path));
    generate(&other, 7, 300); /* inserts another program, on other objects */
    for (size_t i = 0; i < other.count; i++)
        if (other.ops[i].code == OP_EVENT || other.ops[i].code == OP_ADVANCE ||
            other.ops[i].code == OP_SYNC)
            program_add(&program, other.ops[i]);
    program_add(&program, (op_t){OP_FILL, 3, {1, 0, 0}});
    program_add(&program, (op_t){OP_INFO, 2, {0}});
    program_add(&program, (op_t){OP_DROP, 0, {1}});
    ck_assert(fails(&program, &runs));
    shrink(&program, fails, &runs);
    ck_assert_uint_eq(program.count, 4);
    ck_assert_uint_eq(program.devices, 1);
    ck_assert_str_eq(program.conf, "fence:sync");
    ck_assert_str_eq(program.sim, "");
    ck_assert(fails(&program, &runs));
    ck_assert_uint_lt(runs, 1000);
    program_free(&program);
    program_free(&other);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("programs");
    TCase *all = tcase_create("programs");
    tcase_add_test(all, text_comes_back);
    tcase_add_test(all, bad_text_is_refused);
    tcase_add_test(all, uses_have_to_be_ordered);
    tcase_add_test(all, default_streams_order);
    tcase_add_test(all, frees_come_last);
    tcase_add_test(all, captures_keep_the_rules);
    tcase_add_test(all, pools_are_the_devices);
    tcase_add_test(all, contexts_end);
    tcase_add_test(all, unseen_work_is_found_first);
    tcase_add_test(all, shrinking_leaves_what_is_needed);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    unlink(path);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
