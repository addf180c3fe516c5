/* Shared by the suites that have a fresh device in each test: the device, and a kernel that
 * writes. The clock is virtual, so runs repeat. */
#ifndef EXTRA_H
#define EXTRA_H

#include "sim_test.h"

#define MIB (1ull << 20)

static CUcontext extra_ctx __attribute__((unused));
static CUfunction extra_kernel __attribute__((unused));

/* stamp(pointer, value): writes the value to the 32-bit word that the pointer names. */
static void extra_stamp(const simcuda_launch_t *launch) {
    CUdeviceptr address;
    unsigned value;
    memcpy(&address, launch->params[0], sizeof address);
    memcpy(&value, launch->params[1], sizeof value);
    unsigned *word = simcuda_host(address);
    if (word)
        *word = value;
}

/* Run by Check in the test's own process, before it. */
static void extra_start(void) {
    static const simcuda_access_t access = {
        .param = 0, .count_param = -1, .bytes = 4, .writes = 1};
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_kernel_t kernel = {.name = "stamp",
                                            .fn = extra_stamp,
                                            .duration_ns = 10000,
                                            .param_count = 2,
                                            .param_bytes = sizes,
                                            .access_count = 1,
                                            .access = &access};
    CUmodule module;
    ck_assert_int_eq(simcuda_register_kernel(&kernel), 0);
    extra_ctx = start();
    OK(cuModuleLoadData(&module, "stand-in"));
    OK(cuModuleGetFunction(&extra_kernel, module, "stamp"));
}

static inline CUresult extra_launch(CUstream stream, CUdeviceptr address, unsigned value) {
    void *params[] = {&address, &value};
    return cuLaunchKernel(extra_kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static inline unsigned extra_word(CUdeviceptr address) {
    const unsigned *word = simcuda_host(address);
    ck_assert_ptr_nonnull(word);
    return *word;
}

static inline CUstream extra_stream(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* The part of a suite that another process plays: the same test, without a fork. */
static inline int extra_part(const TTest *test) {
    Suite *suite = suite_create("other process");
    TCase *tests = tcase_create("other process");
    tcase_add_checked_fixture(tests, extra_start, NULL);
    tcase_add_test(tests, test);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    if (failed)
        srunner_print(runner, CK_NORMAL);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static inline Suite *extra_suite(const char *name, TCase **tests) {
    Suite *suite = suite_create(name);
    *tests = tcase_create(name);
    tcase_add_checked_fixture(*tests, extra_start, NULL);
    suite_add_tcase(suite, *tests);
    return suite;
}

#endif
