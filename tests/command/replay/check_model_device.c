/* Tests of the modelled device: the contract of device.h, costs, time, and the three models of
 * work. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "replay/model.h"
#include "run_suite.h"

#define MIB ((uint64_t)1 << 20)
static const ac_device_ops_t *const ops = &cmd_model_ops;
static cmd_costs_t costs;

static cmd_model_t *model_with(cmd_work_t work, uint64_t delay) {
    cmd_costs_default(&costs);
    return cmd_model_new(&costs, 64 * MIB, work, delay, false);
}

static uint64_t take(cmd_model_t *model, uint64_t mib) {
    uint64_t address = 0;
    ck_assert_int_eq(ops->segment_alloc(model, mib * MIB, &address), AC_OK);
    ck_assert_uint_eq(address % AC_SEGMENT_ALIGN, 0);
    return address;
}

static cmd_model_figures_t figures_of(const cmd_model_t *model) {
    cmd_model_figures_t figures;
    cmd_model_figures(model, &figures);
    return figures;
}

START_TEST(segments) {
    cmd_model_t *model = model_with(CMD_WORK_NONE, 0);
    uint64_t a = take(model, 20), b = take(model, 30), c;
    ck_assert(a + 20 * MIB <= b || b + 30 * MIB <= a);
    ck_assert_int_eq(ops->segment_alloc(model, 16 * MIB, &c), AC_OOM);
    ck_assert_int_eq(ops->segment_free(model, a, 2 * MIB), AC_OK);
    ck_assert_uint_eq(take(model, 20), a); /* placed in the first gap that fits */
    ck_assert_uint_eq(figures_of(model).peak, 50 * MIB);
    ck_assert_uint_eq(figures_of(model).call[CMD_CALL_alloc], 4); /* the refused call counts too */
    ck_assert_uint_eq(figures_of(model).call[CMD_CALL_free], 1);
    ck_assert_double_eq_tol(figures_of(model).ns, 4 * 100000 + 200000, 1e-6);
    ck_assert_uint_eq(ops->now_ns(), 600000);
    cmd_model_reset(model);
    ck_assert_uint_eq(figures_of(model).peak, 50 * MIB); /* the segments are still allocated */
    ck_assert_uint_eq(figures_of(model).call[CMD_CALL_alloc], 0);
    ck_assert_ptr_null(cmd_model_misuse(model));
    ck_assert_int_eq(ops->segment_free(model, a + MIB, MIB), AC_FAILED);
    ck_assert_ptr_nonnull(cmd_model_misuse(model));
    cmd_model_free(model);
}
END_TEST

START_TEST(delayed_work) {
    cmd_model_t *model = model_with(CMD_WORK_DELAY, 3);
    void *early, *late;
    cmd_model_operation(model);
    ck_assert_int_eq(ops->fence_record(model, false, &early), AC_OK);
    cmd_model_operation(model);
    ck_assert_int_eq(ops->fence_record(model, false, &late), AC_OK);
    cmd_model_operation(model);
    ck_assert_int_eq(ops->fence_query(model, early), AC_BUSY);
    cmd_model_operation(model); /* three operations after the first */
    ck_assert_int_eq(ops->fence_query(model, early), AC_OK);
    ck_assert_int_eq(ops->fence_query(model, late), AC_BUSY);
    ck_assert_int_eq(ops->fence_wait(model, late, 0), AC_OK);
    ck_assert_uint_eq(figures_of(model).waits, 1);
    ck_assert_int_eq(ops->fence_query(model, late), AC_OK);
    ck_assert_int_eq(ops->fence_wait(model, early, 0), AC_OK); /* completed: no wait */
    ck_assert_uint_eq(figures_of(model).waits, 1);
    ops->fence_release(model, early);
    ops->fence_release(model, late);
    cmd_model_free(model);
}
END_TEST

/* A kernel over 1 MiB takes 5950 ns in this model. */
START_TEST(streams) {
    cmd_model_t *model = model_with(CMD_WORK_STREAMS, 0);
    void *fence, *join;
    cmd_model_kernel(model, 0, MIB);
    cmd_model_kernel(model, 0, MIB);
    cmd_model_kernel(model, 1, MIB); /* in parallel with the first two */
    ck_assert_int_eq(ops->join_record(model, cmd_model_stream_key(1), &join), AC_OK);
    ck_assert_int_eq(ops->fence_record(model, false, &fence), AC_OK);
    ck_assert_int_eq(ops->fence_wait(model, join, 0), AC_OK);
    ck_assert_uint_eq(ops->now_ns(), 5950);
    ck_assert_int_eq(ops->fence_query(model, fence), AC_BUSY);
    ck_assert_int_eq(ops->fence_wait(model, fence, 1000), AC_BUSY); /* the time limit has passed */
    ck_assert_int_eq(ops->fence_wait(model, fence, 0), AC_OK);
    ck_assert_uint_eq(ops->now_ns(), 2 * 5950);
    ops->fence_release(model, fence);

    /* Later work on stream 1 starts after the kernel on stream 0. */
    cmd_model_kernel(model, 0, MIB);
    ck_assert_int_eq(ops->stream_order(model, cmd_model_stream_key(0), cmd_model_stream_key(1)),
                     AC_OK);
    uint64_t before = ops->now_ns();
    cmd_model_kernel(model, 1, MIB);
    cmd_model_synchronise(model);
    ck_assert_uint_gt(ops->now_ns(), before + 5950 + 3000);
    ck_assert_uint_eq(figures_of(model).stream_waits, 1);
    ops->fence_release(model, join);
    cmd_model_free(model);
}
END_TEST

START_TEST(run_ahead) {
    cmd_model_t *model = model_with(CMD_WORK_STREAMS, 0);
    for (int i = 0; i < CMD_RUN_AHEAD; i++)
        cmd_model_kernel(model, 0, 0);
    ck_assert_uint_eq(ops->now_ns(), 0);
    cmd_model_kernel(model, 0, 0); /* waits for the end of the first kernel */
    ck_assert_uint_eq(ops->now_ns(), 5000);
    cmd_model_free(model);
}
END_TEST

START_TEST(pages) {
    cmd_model_t *model = model_with(CMD_WORK_NONE, 0);
    ac_range_support_t support;
    uint64_t range, page, second;
    ck_assert_int_eq(ops->range_support(model, &support), AC_OK);
    ck_assert_uint_eq(support.memory, 64 * MIB);
    ck_assert_int_eq(ops->range_reserve(model, 256 * MIB, &range), AC_OK);
    ck_assert_int_eq(ops->page_create(model, 8 * MIB, &page), AC_OK);
    ck_assert_int_eq(ops->page_create(model, 2 * MIB, &second), AC_OK);
    ck_assert_uint_eq(figures_of(model).peak, 10 * MIB);
    double made = figures_of(model).ns;
    ck_assert_double_eq_tol(made, 19000 + 100000 + 8 * 15000 + 193000, 1e-6);
    ck_assert_int_eq(ops->page_map(model, range, 8 * MIB, page), AC_OK);
    ck_assert_int_eq(ops->page_map(model, range + 8 * MIB, 2 * MIB, second), AC_OK);
    ck_assert_int_eq(ops->pages_allow(model, range, 10 * MIB), AC_OK);
    ck_assert_double_eq_tol(figures_of(model).ns - made, 2 * 1500 + 36000 + 2 * 2000, 1e-6);
    ck_assert_ptr_null(cmd_model_misuse(model));

    /* A mapped page outlives its release. */
    ck_assert_int_eq(ops->page_release(model, page), AC_OK);
    cmd_model_reset(model);
    ck_assert_uint_eq(figures_of(model).peak, 10 * MIB);
    ck_assert_int_eq(ops->pages_unmap(model, range, 8 * MIB), AC_OK);
    cmd_model_reset(model);
    ck_assert_uint_eq(figures_of(model).peak, 2 * MIB);
    ck_assert_int_eq(ops->pages_unmap(model, range + 8 * MIB, 2 * MIB), AC_OK);
    ck_assert_int_eq(ops->page_release(model, second), AC_OK);
    ck_assert_int_eq(ops->range_release(model, range, 256 * MIB), AC_OK);
    ck_assert_ptr_null(cmd_model_misuse(model));
    cmd_model_free(model);
}
END_TEST

static struct {
    cmd_model_t *model;
    uint64_t range, page, other;
} m;

static void begin_misuse(void) {
    m.model = model_with(CMD_WORK_NONE, 0);
    ck_assert_int_eq(ops->range_reserve(m.model, 64 * MIB, &m.range), AC_OK);
    ck_assert_int_eq(ops->page_create(m.model, 8 * MIB, &m.page), AC_OK);
    ck_assert_int_eq(ops->page_create(m.model, 2 * MIB, &m.other), AC_OK);
    ck_assert_int_eq(ops->page_map(m.model, m.range, 8 * MIB, m.page), AC_OK);
    ck_assert_ptr_null(cmd_model_misuse(m.model));
}

START_TEST(misuse) {
    ac_status_t status = AC_OK;
    switch (_i) {
    case 0: /* over the middle of another page */
        status = ops->page_map(m.model, m.range + 4 * MIB, 2 * MIB, m.other);
        break;
    case 1: /* half a page */
        status = ops->pages_unmap(m.model, m.range, 4 * MIB);
        break;
    case 2: /* a range with a hole */
        status = ops->pages_allow(m.model, m.range, 16 * MIB);
        break;
    case 3: /* more than the size of the page */
        status = ops->page_map(m.model, m.range + 16 * MIB, 4 * MIB, m.other);
        break;
    case 4: /* outside all ranges */
        status = ops->page_map(m.model, m.range + 63 * MIB, 2 * MIB, m.other);
        break;
    case 5: /* a range that has a page */
        status = ops->range_release(m.model, m.range, 64 * MIB);
        break;
    case 6:
        status = ops->page_release(m.model, 77);
        break;
    default: /* a page that was released before */
        ops->page_release(m.model, m.other);
        status = ops->page_release(m.model, m.other);
    }
    ck_assert_int_eq(status, AC_FAILED);
    ck_assert_ptr_nonnull(cmd_model_misuse(m.model));
    cmd_model_free(m.model);
}
END_TEST

START_TEST(cost_files) {
    char path[] = "costs-XXXXXX", *error = NULL;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(fd, "w");
    fputs("call,ns_fixed,ns_per_mib,ns_per_page,source\n# a comment\n"
          "cuMemAlloc,7,2.5,0,\"mine, measured\"\ncuMemUnmap,1,2,3\n",
          file);
    fclose(file);
    cmd_costs_default(&costs);
    ck_assert_msg(cmd_costs_read(&costs, path, &error), "%s", error);
    ck_assert_double_eq(costs.alloc.fixed, 7);
    ck_assert_double_eq(costs.alloc.per_mib, 2.5);
    ck_assert_double_eq(costs.unmap.per_page, 3);
    ck_assert_double_eq(costs.free.fixed, 200000); /* not in the table: unchanged */

    static const char *const bad[] = {"cuMemAlloc\n", "cuMemAlloc,1,2\n", "cuMemAlloc,-1,2,3\n",
                                      "cuMemAlloc,1,x,3\n", "cuNothing,1,2,3\n"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        file = fopen(path, "w");
        fprintf(file, "\n%s", bad[i]);
        fclose(file);
        ck_assert(!cmd_costs_read(&costs, path, &error));
        ck_assert_ptr_nonnull(strstr(error, "line 2"));
        free(error);
    }
    remove(path);
    ck_assert(!cmd_costs_read(&costs, path, &error));
    free(error);
}
END_TEST

/* Tables in the simulated device's format may omit the cost per page, and may name calls that
 * the model does not make. */
START_TEST(measured_tables) {
    char path[] = "costs-XXXXXX", *error = NULL;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(fd, "w");
    fputs("function,ns_fixed,ns_per_mib,ns_per_page,source\n# a comment\n"
          "cuMemCreate,7,20,\"a GPU, today\"\ncuLaunchKernel,3,0,\"a GPU\"\n"
          "cuMemSetAccess,5,4\ncuMemUnmap,50,4,30,\"2 GPUs, today\"\ncuMemMap,5,0,30\n",
          file);
    fclose(file);
    cmd_costs_default(&costs);
    ck_assert_msg(cmd_costs_read(&costs, path, &error), "%s", error);
    ck_assert_double_eq(costs.create.fixed, 7);
    ck_assert_double_eq(costs.create.per_mib, 20);
    ck_assert_double_eq(costs.create_least.fixed, 7);
    ck_assert_double_eq(costs.create_least.per_mib, 20);
    ck_assert_double_eq(costs.allow.per_mib, 4);
    ck_assert_double_eq(costs.allow.per_page, 0);
    ck_assert_double_eq(costs.unmap.per_page, 30);
    ck_assert_double_eq(costs.unmap.fixed, 20); /* 50 less the first page's 30 */
    ck_assert_double_eq(costs.map.fixed, 0);
    ck_assert_double_eq(costs.free.fixed, 200000); /* not in the table: unchanged */

    static const char *const bad[] = {"cuMemAlloc\n",        "cuMemAlloc,1\n",
                                      "cuMemAlloc,1,2,-3\n", "cuMemAlloc,-1,2\n",
                                      "cuMemAlloc,1,x,y\n",  "operation,1,2,\"no call\"\n"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        file = fopen(path, "w");
        fprintf(file, "function,ns_fixed,ns_per_mib,source\n%s", bad[i]);
        fclose(file);
        ck_assert(!cmd_costs_read(&costs, path, &error));
        ck_assert_ptr_nonnull(strstr(error, "line 2"));
        free(error);
    }
    remove(path);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("modelled device");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, segments);
    tcase_add_test(tests, delayed_work);
    tcase_add_test(tests, streams);
    tcase_add_test(tests, run_ahead);
    tcase_add_test(tests, pages);
    tcase_add_test(tests, cost_files);
    tcase_add_test(tests, measured_tables);
    suite_add_tcase(suite, tests);
    TCase *wrong = tcase_create("misuse");
    tcase_add_checked_fixture(wrong, begin_misuse, NULL);
    tcase_add_loop_test(wrong, misuse, 0, 8);
    suite_add_tcase(suite, wrong);
    return run_suite(suite);
}
