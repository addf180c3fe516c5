/* Memory of private pools, and frees by the CUDA runtime, which the thread cache serves. Each address has
 * one owner. */
#include "api.h"

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaFreeAsync(void *pointer, CUstream stream);

enum { SIZE = 2 * MIB, INVALID_VALUE = 1 };

/* Fills the thread cache: it serves both calls from now on, and has a block of this size. */
static void warm_up(void) {
    static const size_t sizes[] = {1000, SIZE};
    for (int i = 0; i < 16; i++) {
        void *pointer;
        ck_assert_int_eq(cudaMalloc(&pointer, sizes[i % 2]), 0);
        ck_assert_int_eq(cudaFree(pointer), 0);
    }
}

/* Checks that CUDA refused the free, and that the next allocations have other addresses. */
static void refused(void *block, int result) {
    void *pointer[3];
    ck_assert_int_eq(result, INVALID_VALUE);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(cudaMalloc(&pointer[i], SIZE), 0);
        ck_assert_ptr_ne(pointer[i], block);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(cudaFree(pointer[i]), 0);
}

static void refuses_all(void *block) {
    refused(block, cudaFree(block));
    refused(block, cudaFreeAsync(block, NULL));
    refused(block, (int)cuMemFree_v2(address_of(block)));
    refused(block, (int)cuMemFreeAsync(address_of(block), NULL));
}

/* Source of the pool's segments: the cache, or the driver if the cache is off. */
enum { OF_CACHE, OF_DRIVER, SOURCES };

START_TEST(frees_by_the_runtime) {
    warm_up();
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    accel_pool_id_t pool = open_pool(0);
    ck_assert_int_eq(accel_enable(_i != OF_DRIVER), ACCEL_OK);
    /* The pool has segments of 20 MiB and of SIZE. */
    void *large = alloc(SIZE, NULL), *first = alloc(MIB, NULL), *second = alloc(MIB, NULL);
    ck_assert_int_eq(stats_of(0).reserved_bytes.all.current > 0, _i == OF_CACHE);
    refuses_all(large);
    refuses_all(first);
    refuses_all(second);
    ck_assert_int_eq(accel_raw_delete(large), ACCEL_OK);
    ck_assert_int_eq(accel_free(first), ACCEL_OK);
    ck_assert_int_eq(accel_free_async(second, NULL), ACCEL_OK);
    ck_assert_int_eq(cuMemsetD8_v2(address_of(large), 1, SIZE), CUDA_SUCCESS); /* still there */
    end_and_release(pool);
    nothing_left();
    if (_i != OF_CACHE)
        ck_assert_int_ne(cuMemsetD8_v2(address_of(large), 1, SIZE), CUDA_SUCCESS);
}
END_TEST

/* --- segments of the program's allocator, which takes them from the thread cache --- */

static int frees;
static void *cached_alloc(size_t bytes, int device, void *stream) {
    void *pointer;
    (void)device;
    (void)stream;
    return cudaMalloc(&pointer, bytes) ? NULL : pointer;
}
static void cached_free(void *pointer, size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    ck_assert_int_eq(cudaFree(pointer), 0);
    frees++;
}

START_TEST(frees_of_the_programs_segments) {
    const accel_allocator_t functions = {
        .size = sizeof functions, .alloc_fn = cached_alloc, .free_fn = cached_free};
    accel_pool_id_t pool;
    warm_up();
    ck_assert_int_eq(accel_pool_create(0, &functions, &pool), ACCEL_OK);
    begin(pool, 0);
    void *block = alloc(MIB, NULL);
    refuses_all(block);
    ck_assert_int_eq(accel_free(block), ACCEL_OK); /* to the pool */
    ck_assert_ptr_eq(alloc(MIB, NULL), block);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(frees, 0);
    end_and_release(pool);
    ck_assert_int_eq(frees, 1);
    nothing_left();
}
END_TEST

int main(void) {
    const TTest *const tests[] = {frees_of_the_programs_segments, NULL};
    Suite *suite = suite_of("owners", tests);
    TCase *sources = tcase_create("sources");
    tcase_add_loop_test(sources, frees_by_the_runtime, 0, SOURCES);
    suite_add_tcase(suite, sources);
    return run_suite(suite);
}
