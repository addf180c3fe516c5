/* Common parts of the C API's suites: short names for calls, each of which must succeed, and the
 * driver's functions. */
#ifndef API_H
#define API_H

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "accelcache.h"
#include "accelcache_pools.h"
#include "accelcache_torch.h"
#include "agrees.h"
#include "driver.h"
#include "run_suite.h"

enum { MIB = 1 << 20 };

/* Creates a stream of the device, and makes the device current. */
static inline CUstream new_stream(int device) {
    CUstream stream;
    ck_assert_int_eq(accel_set_device(device), ACCEL_OK);
    ck_assert_int_eq(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

static inline accel_device_stats_t stats_of(int device) {
    accel_device_stats_t stats = {.size = sizeof stats};
    ck_assert_int_eq(accel_get_device_stats(device, &stats), ACCEL_OK);
    return stats;
}

static inline accel_pointer_info_t info_of(const void *pointer) {
    accel_pointer_info_t info = {.size = sizeof info};
    ck_assert_int_eq(accel_pointer_info(pointer, &info), ACCEL_OK);
    return info;
}

static inline CUdeviceptr address_of(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

/* Allocates raw memory on the current device. */
static inline void *alloc(size_t bytes, void *stream) {
    void *pointer = NULL;
    ck_assert_int_eq(accel_raw_alloc_with_stream(&pointer, bytes, stream), ACCEL_OK);
    return pointer;
}

/* Starts a history of the newest `most` entries; 0 stops it. */
static inline accel_status_t record(size_t most) {
    accel_history_t history = ACCEL_HISTORY_INIT;
    history.enabled = most > 0;
    history.most = most;
    return accel_record_history(&history);
}

static inline accel_pool_id_t new_pool(unsigned flags) {
    accel_pool_id_t pool;
    ck_assert_int_eq(accel_pool_create(flags, NULL, &pool), ACCEL_OK);
    return pool;
}

/* Routes all raw requests of the device to the pool. */
static inline void begin(accel_pool_id_t pool, int device) {
    ck_assert_int_eq(accel_begin_allocate_to_pool(device, pool, NULL, NULL), ACCEL_OK);
}

static inline accel_pool_id_t open_pool(int device) {
    accel_pool_id_t pool = new_pool(0);
    begin(pool, device);
    return pool;
}

/* Ends the routing of requests to the pool, and releases its two users. */
static inline void end_and_release(accel_pool_id_t pool) {
    ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(accel_pool_release(pool), ACCEL_OK);
}

/* Submits work to the stream that writes to the memory. */
static inline void use(void *pointer, size_t bytes, CUstream stream) {
    ck_assert_int_eq(cuMemsetD8Async(address_of(pointer), 1, bytes, stream), CUDA_SUCCESS);
}

/* Called at the end of a test. Checks that the program holds nothing on device 0, and that all
 * records agree. */
static inline void nothing_left(void) {
    char message[160] = "";
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    ck_assert_msg(records_agree(accel_check, message, sizeof message) == ACCEL_OK, "%s", message);
    ck_assert_int_eq(stats_of(0).allocation.all.current, 0);
}

/* hold blocks a stream of device 0 until let_go, which takes another stream. */
static CUdeviceptr flag;
static inline void hold(CUstream stream) {
    if (!flag)
        ck_assert_int_eq(cuMemAlloc_v2(&flag, 512), CUDA_SUCCESS);
    ck_assert_int_eq(cuMemsetD32_v2(flag, 0, 1), CUDA_SUCCESS);
    ck_assert_int_eq(cuStreamSynchronize(NULL), CUDA_SUCCESS); /* before `stream` waits */
    ck_assert_int_eq(cuStreamWaitValue32_v2(stream, flag, 1, 0), CUDA_SUCCESS);
}
static inline void let_go(CUstream stream) {
    ck_assert_int_eq(cuStreamWriteValue32_v2(stream, flag, 1, 0), CUDA_SUCCESS);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
}

/* --- worker threads that run during a test, until stop --- */

enum { WORKERS = 3 };
static _Atomic bool over;
static pthread_t workers[WORKERS];

/* Starts the workers. `work` receives its first random number. */
static inline void start(void *(*work)(void *)) {
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    for (size_t i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&workers[i], NULL, work, (void *)(uintptr_t)(i + 1)), 0);
}

static inline void stop(void) {
    atomic_store(&over, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], NULL);
}

static inline size_t next_random(size_t *random) {
    return *random = *random * 6364136223846793005u + 1442695040888963407u;
}

/* Makes a suite of the tests, each in its own process. run_tests is the work of main. */
static inline Suite *suite_of(const char *name, const TTest *const *tests) {
    Suite *suite = suite_create(name);
    TCase *all = tcase_create(name);
    for (; *tests; tests++)
        tcase_add_test(all, *tests);
    suite_add_tcase(suite, all);
    return suite;
}
static inline int run_tests(const char *name, const TTest *const *tests) {
    return run_suite(suite_of(name, tests));
}

#endif
