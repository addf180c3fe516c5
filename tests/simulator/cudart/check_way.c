/* The stand-in's way to the driver, observed by a driver that remembers (recorder.c): the
 * sequence of the real runtime, what is asked through which pointer, when it happens, and what
 * becomes of missing pieces.  Each test runs in a process of its own (Check forks), because a
 * process finds its driver once. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "cuda_runtime_min.h"
#include "recorder.h"
#include "run_suite.h"

static void *recorder_symbol(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    ck_assert_ptr_nonnull(library);
    void *symbol = dlsym(library, name);
    ck_assert_ptr_nonnull(symbol);
    return symbol;
}

static size_t recorded(const struct recorded **out) {
    recorder_calls_fn *calls = NULL;
    void *symbol = recorder_symbol("recorder_calls");
    memcpy(&calls, &symbol, sizeof calls);
    return calls(out);
}

static size_t called(const char *name) {
    const struct recorded *r = NULL;
    size_t n = recorded(&r), found = 0;
    for (size_t i = 0; i < n; i++) {
        found += r[i].way == CALLED && strcmp(r[i].name, name) == 0;
    }
    return found;
}

START_TEST(nothing_happens_before_the_first_call) {
    const struct recorded *r = NULL;
    ck_assert_uint_eq(recorded(&r), 0);
    void **module = __cudaRegisterFatBinary(&(struct simrt_fatbin_wrapper){0});
    __cudaRegisterFunction(module, "stub", NULL, "kernel", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(module);
    ck_assert_uint_eq(recorded(&r), 0);
    __cudaUnregisterFatBinary(module);
    ck_assert_uint_eq(recorded(&r), 0);
}
END_TEST

/* The runtime looks up the functions of the list, in its order. The runtime is the stand-in or
 * NVIDIA's. */
START_TEST(lookups_are_those_of_the_real_runtime) {
    static const struct {
        const char *name;
        int version;
        unsigned long long flags;
    } expected[] = {
        {"", 0, 0}, /* a probe */
#define RT_LOOKUP(symbol, name, version, flags) {#name, version, flags},
#include "cudart/lookups.def"
#undef RT_LOOKUP
    };
    enum { EXPECTED = sizeof expected / sizeof *expected };
    const struct recorded *r = NULL;
    int count = 0;
    ck_assert_uint_eq(EXPECTED, 440);
    ck_assert_uint_eq(recorded(&r),
                      0); /* keeps the driver, which NVIDIA's closes when it fails */
    (void)cudaGetDeviceCount(&count);
    size_t n = recorded(&r), i = 0;
    for (; i < EXPECTED; i++) {
        ck_assert_uint_lt(i, n);
        ck_assert_str_eq(r[i].name, expected[i].name);
        ck_assert_int_eq(r[i].version, expected[i].version);
        ck_assert_uint_eq(r[i].flags, expected[i].flags);
        ck_assert(!r[i].status);
        /* the probe, cuInit and cuGetProcAddress twice; the rest through the answer */
        ck_assert_int_eq(r[i].way, i < 4 ? ASKED : ASKED_THROUGH_ITSELF);
    }
    ck_assert_uint_ge(n, i + 2);
    ck_assert_str_eq(r[i].name, "cuDriverGetVersion");
    ck_assert_str_eq(r[i + 1].name, "cuInit");
}
END_TEST

START_TEST(everything_is_asked_once) {
    const struct recorded *r = NULL;
    void *p = NULL;
    ck_assert_int_eq(cudaMalloc(&p, 100), cudaSuccess);
    size_t n = recorded(&r);
    ck_assert_int_eq(cudaFree(p), cudaSuccess);
    ck_assert_int_eq(cudaMalloc(&p, 100), cudaSuccess);
    ck_assert_uint_eq(recorded(&r), n + 2);
    ck_assert_uint_eq(called("cuInit"), 1);
    ck_assert_uint_eq(called("cuDevicePrimaryCtxRetain"), 1);
}
END_TEST

START_TEST(allocation_arrives_at_the_driver) {
    void *p = &p;
    ck_assert_int_eq(cudaMalloc(&p, 0), cudaSuccess);
    ck_assert_ptr_null(p);
    ck_assert_int_eq(cudaFree(NULL), cudaSuccess);
    ck_assert_uint_eq(called("cuMemAlloc_v2"), 0);
    ck_assert_uint_eq(called("cuMemFree_v2"), 0);
    ck_assert_int_eq(cudaMalloc(&p, 4096), cudaSuccess);
    ck_assert_uint_eq((size_t)p, 0x7000);
    ck_assert_int_eq(cudaFree(p), cudaSuccess);
    ck_assert_uint_eq(called("cuMemAlloc_v2"), 1);
    ck_assert_uint_eq(called("cuMemFree_v2"), 1);
    ck_assert_uint_eq(called("cuMemAlloc"), 0);
    ck_assert_int_eq(cudaMalloc(NULL, 4096), cudaErrorInvalidValue);
    ck_assert_uint_eq(called("cuMemAlloc_v2"), 1);
}
END_TEST

START_TEST(a_failure_stays_until_it_is_read) {
    recorder_fail_alloc_fn *fail_alloc = NULL;
    void *symbol = recorder_symbol("recorder_fail_alloc");
    void *p = (void *)0x5;
    memcpy(&fail_alloc, &symbol, sizeof fail_alloc);
    fail_alloc(1);
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaErrorMemoryAllocation);
    ck_assert_ptr_eq(p, (void *)0x5);
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaSuccess);
    ck_assert_int_eq(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorMemoryAllocation);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
}
END_TEST

START_TEST(a_missing_function_fails_alone) {
    void *p = NULL;
    setenv("RECORDER_LACKS", ",cuMemAlloc,", 1);
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaErrorCallRequiresNewerDriver);
    ck_assert_int_eq(cudaFree((void *)0x7000), cudaSuccess);
}
END_TEST

START_TEST(without_cuinit_nothing_works) {
    void *p = NULL;
    int n = 0;
    setenv("RECORDER_LACKS", ",cuInit,", 1);
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaErrorCallRequiresNewerDriver);
    ck_assert_int_eq(cudaGetDeviceCount(&n), cudaErrorCallRequiresNewerDriver);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorCallRequiresNewerDriver);
}
END_TEST

START_TEST(without_driver_version_the_driver_is_insufficient) {
    void *p = NULL;
    setenv("RECORDER_LACKS", ",cuDriverGetVersion,", 1);
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaErrorInsufficientDriver);
    ck_assert_uint_eq(called("cuInit"), 0);
}
END_TEST

/* Without "cuGetProcAddress" the exported one goes on answering. */
START_TEST(without_the_lookup_in_the_lookup) {
    const struct recorded *r = NULL;
    void *p = NULL;
    setenv("RECORDER_LACKS", ",cuGetProcAddress,", 1);
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaSuccess);
    size_t n = recorded(&r), asked = 0;
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_ne(r[i].way, ASKED_THROUGH_ITSELF);
        asked += r[i].way == ASKED;
    }
    ck_assert_uint_eq(asked, 440);
}
END_TEST

/* A driver without cuGetProcAddress_v2: exported names with their suffixes. */
START_TEST(old_driver_by_exported_names) {
    const struct recorded *r = NULL;
    void *p = NULL;
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaSuccess);
    ck_assert_int_eq(cudaFree(p), cudaSuccess);
    size_t n = recorded(&r);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(r[i].way, CALLED);
    }
    ck_assert_uint_eq(called("cuMemAlloc_v2"), 1);
    ck_assert_uint_eq(called("cuMemFree_v2"), 1);
    ck_assert_uint_eq(called("cuMemAlloc"), 0);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorCallRequiresNewerDriver);
}
END_TEST

START_TEST(no_driver_at_all) {
    int n = 7, version = 7;
    void *p = &p;
    ck_assert_int_eq(cudaGetDeviceCount(&n), cudaErrorInsufficientDriver);
    ck_assert_int_eq(n, 7);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInsufficientDriver);
    ck_assert_int_eq(cudaMalloc(&p, 64), cudaErrorInsufficientDriver);
    ck_assert_ptr_eq(p, &p);
    ck_assert_int_eq(cudaDriverGetVersion(&version), cudaSuccess);
    ck_assert_int_eq(version, 0);
    ck_assert_int_eq(cudaRuntimeGetVersion(&version), cudaSuccess);
    ck_assert_int_eq(version / 1000, RT_MAJOR);
}
END_TEST

int main(int argc, char **argv) {
    const char *driver = argc > 1 ? argv[1] : "";
    Suite *suite = suite_create("way to the driver");
    TCase *tests = tcase_create(driver);
    if (strcmp(driver, "recorder") == 0) {
        tcase_add_test(tests, nothing_happens_before_the_first_call);
        tcase_add_test(tests, lookups_are_those_of_the_real_runtime);
        tcase_add_test(tests, everything_is_asked_once);
        tcase_add_test(tests, allocation_arrives_at_the_driver);
        tcase_add_test(tests, a_failure_stays_until_it_is_read);
        tcase_add_test(tests, a_missing_function_fails_alone);
        tcase_add_test(tests, without_cuinit_nothing_works);
        tcase_add_test(tests, without_driver_version_the_driver_is_insufficient);
        tcase_add_test(tests, without_the_lookup_in_the_lookup);
    } else if (strcmp(driver, "original") == 0) {
        tcase_add_test(tests, lookups_are_those_of_the_real_runtime);
    } else if (strcmp(driver, "old") == 0) {
        tcase_add_test(tests, old_driver_by_exported_names);
        tcase_add_test(tests, allocation_arrives_at_the_driver);
    } else if (strcmp(driver, "none") == 0) {
        if (dlopen("libcuda.so.1", RTLD_NOW) != NULL) {
            return 77; /* this machine has a driver: the test needs one without */
        }
        tcase_add_test(tests, no_driver_at_all);
    } else {
        fprintf(stderr, "usage: %s recorder|original|old|none\n", argv[0]);
        return 2;
    }
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
