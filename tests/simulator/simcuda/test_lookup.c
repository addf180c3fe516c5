/* cuGetProcAddress: the runtime's lookups, versions, stream modes, odd arguments. */
#include <dlfcn.h>

#include "sim_test.h"

static void *symbol(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    ck_assert_msg(address != NULL, "%s is not exported", name);
    return address;
}

START_TEST(the_runtime_finds_what_it_asks_for) {
    static const struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *answer;
    } lookups[] = {
#define RT_LOOKUP(symbol, name, version, flags) {#name, version, flags, #symbol},
#include "cudart/lookups.def"
#undef RT_LOOKUP
    };
    ck_assert_uint_eq(sizeof lookups / sizeof *lookups, 439);
    for (size_t i = 0; i < sizeof lookups / sizeof *lookups; i++) {
        void *found = &found;
        CUdriverProcAddressQueryResult status = 77;
        CUresult result = cuGetProcAddress_v2(lookups[i].name, &found, lookups[i].version,
                                              lookups[i].flags, &status);
        ck_assert_msg(result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS, "%s %d %d",
                      lookups[i].name, lookups[i].version, (int)lookups[i].flags);
        ck_assert_msg(found == symbol(lookups[i].answer), "%s %d %d is not %s", lookups[i].name,
                      lookups[i].version, (int)lookups[i].flags, lookups[i].answer);
    }
}
END_TEST

START_TEST(version_and_mode_choose_the_symbol) {
    static const struct {
        const char *name;
        int version;
        cuuint64_t flags;
        const char *answer;
    } rows[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3019, 0, "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, 2, "cuMemAlloc_v2"},
        {"cuMemcpy", 4000, 2, "cuMemcpy"},
        {"cuMemcpy", 6999, 2, "cuMemcpy"},
        {"cuMemcpy", 7000, 2, "cuMemcpy_ptds"},
        {"cuMemcpy", 7000, 1, "cuMemcpy"},
        {"cuMemcpy", 7000, 0, "cuMemcpy"},
        {"cuGetProcAddress", 11999, 0, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
        {"cuCtxSynchronize", 12090, 0, "cuCtxSynchronize"},
        {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
        {"cuStreamBeginCapture", 10000, 2, "cuStreamBeginCapture_ptsz"},
        {"cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *found;
        OK(cuGetProcAddress_v2(rows[i].name, &found, rows[i].version, rows[i].flags, NULL));
        ck_assert_msg(found == symbol(rows[i].answer), "%s %d", rows[i].name, rows[i].version);
        OK(cuGetProcAddress(rows[i].name, &found, rows[i].version, rows[i].flags));
        ck_assert_msg(found == symbol(rows[i].answer), "%s %d", rows[i].name, rows[i].version);
    }
}
END_TEST

START_TEST(odd_arguments) {
    void *found = &found;
    CUdriverProcAddressQueryResult status = 77;
    GIVES(cuGetProcAddress_v2("", &found, 0, 0, &status),
          CUDA_ERROR_NOT_FOUND); /* the runtime's */
    ck_assert_ptr_null(found);
    ck_assert_uint_ne(status, CU_GET_PROC_ADDRESS_SUCCESS);
    found = &found;
    GIVES(cuGetProcAddress_v2(NULL, &found, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGetProcAddress_v2("cuInit", NULL, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGetProcAddress_v2("cuInit", &found, 13000, 3, &status), CUDA_ERROR_INVALID_VALUE);
    ck_assert_ptr_eq(found, &found);
    GIVES(cuGetProcAddress_v2("cuNoSuchThing", &found, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
    ck_assert_ptr_null(found);
    ck_assert_uint_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    GIVES(cuGetProcAddress_v2("cuMemAllocAsync", &found, 11010, 0, &status),
          CUDA_ERROR_NOT_FOUND);
    ck_assert_uint_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    GIVES(cuGetProcAddress_v2("cuMemAllocAsync", &found, 11010, 0, NULL), CUDA_ERROR_NOT_FOUND);
}
END_TEST

START_TEST(a_driver_knows_nothing_newer_than_itself) {
    int version;
    void *found;
    ck_assert_int_eq(simcuda_configure("driver:11040"), 0);
    OK(cuDriverGetVersion(&version));
    ck_assert_int_eq(version, 11040);
    OK(cuGetProcAddress("cuMemAllocAsync", &found, 13000, 0));
    OK(cuGetProcAddress("cuCtxCreate", &found, 13000, 0));
    ck_assert_ptr_eq(found, symbol("cuCtxCreate_v3"));
    GIVES(cuGetProcAddress("cuCtxRecordEvent", &found, 13000, 0), CUDA_ERROR_NOT_FOUND);
    OK(cuGetProcAddress("cuGetProcAddress", &found, 13000, 0));
    ck_assert_ptr_eq(found, symbol("cuGetProcAddress"));
}
END_TEST

START_TEST(export_tables_are_not_offered) {
    static const CUuuid id = {{1, 2, 3}};
    const void *table = &id;
    GIVES(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_FOUND);
    ck_assert_ptr_null(table);
}
END_TEST

START_TEST(calls_that_are_not_simulated_say_so) {
    CUtexref reference;
    start();
    GIVES(cuTexRefCreate(&reference), CUDA_ERROR_NOT_SUPPORTED);
    ck_assert_int_eq(simcuda_supported("cuTexRefCreate"), 0);
    ck_assert_int_eq(simcuda_supported("cuMemAlloc_v2"), 1);
    ck_assert_int_eq(simcuda_supported("cuNoSuchThing"), -1);
    ck_assert_uint_eq(simcuda_calls("cuTexRefCreate"), 1);
}
END_TEST

SUITE_MAIN("lookup", the_runtime_finds_what_it_asks_for, version_and_mode_choose_the_symbol,
           odd_arguments, a_driver_knows_nothing_newer_than_itself, export_tables_are_not_offered,
           calls_that_are_not_simulated_say_so)
