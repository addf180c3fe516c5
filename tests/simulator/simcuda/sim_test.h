/* Shared by the simulator's own tests: the driver API by linking, shorthands for a context, and
 * work of known duration. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "run_suite.h"
#include "simcuda.h"

#define GIVES(call, wanted) ck_assert_uint_eq((call), (CUresult)(wanted))
#define OK(call)            GIVES(call, CUDA_SUCCESS)

static inline CUcontext start(void) {
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

/* A kernel without a body; it lasts kernel_us or what simcuda_set_kernel_ns said. */
static inline CUfunction nothing_kernel(void) {
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n"
                                 ".visible .entry nothing() { ret; }"));
    OK(cuModuleGetFunction(&function, module, "nothing"));
    return function;
}

static inline CUresult run(CUfunction function, CUstream stream) {
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static inline CUevent mark(CUstream stream) {
    CUevent event;
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    return event;
}

/* Milliseconds between two events, rounded. */
static inline int between(CUevent first, CUevent second) {
    float ms;
    OK(cuEventElapsedTime(&ms, first, second));
    return (int)(ms + (ms < 0 ? -0.5f : 0.5f));
}

static inline Suite *suite_of(const char *name, const TTest *const *tests, size_t count) {
    Suite *suite = suite_create(name);
    TCase *group = tcase_create(name);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(group, tests[i]);
    suite_add_tcase(suite, group);
    return suite;
}

#define SUITE_MAIN(name, ...)                                                                    \
    int main(void) {                                                                             \
        const TTest *const tests[] = {__VA_ARGS__};                                              \
        return run_suite(suite_of(name, tests, sizeof tests / sizeof *tests));                   \
    }

#endif
