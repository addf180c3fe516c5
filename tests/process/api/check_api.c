/* Tests of every function of accelcache.h, in a program that links the library and uses the simulated device.
 * Check forks for each test, so that no test depends on the setup of another. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"

static bool has_primary(int device) {
    unsigned flags;
    int active;
    ck_assert_int_eq(cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
    return active;
}

START_TEST(devices) {
    CUcontext context;
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK); /* starts nothing */
    ck_assert_int_eq(accel_synchronize_device(-1), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_initialized(), 0);
    ck_assert_int_eq(accel_device_count(), 2);
    ck_assert_int_eq(accel_initialized(), 1);
    ck_assert_int_eq(accel_current_device(), 0);
    ck_assert(!has_primary(0));
    ck_assert_int_eq(accel_exchange_device(0), 0); /* creates device 0's context */
    ck_assert(has_primary(0));
    ck_assert_int_eq(accel_synchronize_device(1), ACCEL_OK);
    ck_assert_int_eq(accel_maybe_exchange_device(1), 0);
    ck_assert_int_eq(accel_current_device(), 1);
    ck_assert_int_eq(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    ck_assert(context && !has_primary(1));
    ck_assert_int_eq(accel_maybe_exchange_device(0), 1);
    ck_assert_int_eq(accel_current_device(), 0);
    ck_assert_int_eq(accel_exchange_device(1), 0);
    ck_assert_int_eq(accel_current_device(), 1);
    ck_assert_int_eq(accel_exchange_device(-1), -2);
    ck_assert_int_eq(accel_current_device(), 1);
    ck_assert_int_eq(accel_exchange_device(0), 1);
    ck_assert_int_eq(accel_exchange_device(0), 0);
    ck_assert_int_eq(accel_maybe_exchange_device(-1), -1);
    ck_assert_int_eq(accel_current_device(), 0);
    ck_assert_int_eq(accel_maybe_exchange_device(1), 0);
    ck_assert_int_eq(accel_current_device(), 1);
    ck_assert_int_eq(accel_exchange_device(7), -2);
    ck_assert_int_eq(accel_set_device(-1), ACCEL_OK); /* changes nothing */
    ck_assert_int_eq(accel_set_device(2), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_current_device(), 1);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_current_device(), 1);
    ck_assert_int_eq(accel_synchronize_device(2), ACCEL_ERROR_INVALID);
}
END_TEST

/* The thread chose a device without a context: raw memory comes from it, and a guard restores it. A change of
 * the context ends the choice. */
START_TEST(chosen_device) {
    accel_guard_t guard;
    accel_pointer_info_t info = ACCEL_POINTER_INFO_INIT;
    void *pointer;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_maybe_exchange_device(7), -2);
    ck_assert_int_eq(accel_maybe_exchange_device(1), 0);
    ck_assert_int_eq(accel_guard_enter(&guard, 0), ACCEL_OK);
    ck_assert_int_eq(accel_current_device(), 0);
    accel_guard_leave(&guard);
    ck_assert_int_eq(accel_current_device(), 1);
    ck_assert(!has_primary(1));
    ck_assert_int_eq(accel_raw_alloc(&pointer, 1000), ACCEL_OK);
    ck_assert_int_eq(accel_pointer_info(pointer, &info), ACCEL_OK);
    ck_assert_int_eq(info.device, 1);
    ck_assert_int_eq(accel_raw_delete(pointer), ACCEL_OK);
    ck_assert_int_eq(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    ck_assert_int_eq(accel_current_device(), 0);
}
END_TEST

START_TEST(statistics) {
    CUdeviceptr small, large;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).allocation.all.current, 0);
    ck_assert_int_eq(cuMemAlloc_v2(&small, 100), CUDA_SUCCESS);
    ck_assert_int_eq(cuMemAlloc_v2(&large, 3 * MIB), CUDA_SUCCESS);
    accel_device_stats_t stats = stats_of(0);
    ck_assert_int_eq(stats.allocation.all.current, 2);
    ck_assert_int_eq(stats.allocation.small_pool.current, 1);
    ck_assert_int_eq(stats.allocated_bytes.small_pool.current, 512);
    ck_assert_int_eq(stats.requested_bytes.small_pool.current, 100);
    ck_assert_int_eq(stats.allocated_bytes.large_pool.current, 3 * MIB);
    ck_assert_int_eq(stats.reserved_bytes.all.current, 22 * MIB);
    ck_assert_int_eq(stats.max_split_size, -1);
    ck_assert_int_eq(stats.num_device_alloc, 2);
    ck_assert_int_eq(stats_of(1).allocation.all.current, 0);

    ck_assert_int_eq(cuMemFree_v2(large), CUDA_SUCCESS);
    ck_assert_int_eq(accel_reset_peak_stats(0), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).allocated_bytes.all.peak, 512);
    ck_assert_int_eq(accel_reset_accumulated_stats(0), ACCEL_OK);
    stats = stats_of(0);
    ck_assert_int_eq(stats.allocation.all.allocated, 0);
    ck_assert_int_eq(stats.allocation.all.current, 1);
    ck_assert_int_eq(stats.num_device_alloc, 0);

    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    stats = stats_of(0);
    ck_assert_int_eq(stats.reserved_bytes.all.current, 2 * MIB);
    ck_assert_int_eq(stats.num_sync_all_streams, 1);
    ck_assert_int_eq(stats.num_device_free, 1);
    ck_assert_int_eq(accel_get_device_stats(0, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_device_stats(2, &stats), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_reset_peak_stats(-1), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_reset_accumulated_stats(9), ACCEL_ERROR_INVALID);

    /* A caller built against an older version has a shorter structure. The library writes no byte behind
     * it. */
    struct {
        accel_device_stats_t stats;
        unsigned char canary;
    } older = {.stats = {.size = offsetof(accel_device_stats_t, oversize_segments)}};
    memset(&older.stats.oversize_segments, 0x5a, sizeof older.stats.oversize_segments);
    ck_assert_int_eq(accel_get_device_stats(0, &older.stats), ACCEL_OK);
    ck_assert_int_eq(((unsigned char *)&older.stats.oversize_segments)[0], 0x5a);
    cuMemFree_v2(small);
}
END_TEST

START_TEST(memory_info) {
    size_t free_bytes = 1, total = 2, later;
    CUdeviceptr pointer;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_get_memory_info(0, &free_bytes, &total), ACCEL_OK);
    ck_assert_uint_gt(free_bytes, 0);
    ck_assert_uint_ge(total, free_bytes);
    ck_assert_int_eq(cuMemAlloc_v2(&pointer, 32 * MIB), CUDA_SUCCESS);
    ck_assert_int_eq(accel_get_memory_info(0, &later, &total), ACCEL_OK);
    ck_assert_uint_eq(later, free_bytes - 32 * MIB);
    /* Idle memory of the cache counts as free. */
    ck_assert_int_eq(cuMemFree_v2(pointer), CUDA_SUCCESS);
    ck_assert_int_eq(accel_get_memory_info(0, &later, &total), ACCEL_OK);
    ck_assert_uint_eq(later, free_bytes);
    ck_assert_int_eq(accel_get_memory_info(0, NULL, &total), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_memory_info(5, &later, &total), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_device_memory_info(0, &later, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_device_memory_info(2, &later, &total), ACCEL_ERROR_INVALID);
}
END_TEST

static size_t free_of(accel_status_t (*info)(int, size_t *, size_t *)) {
    size_t available, total;
    ck_assert_int_eq(info(0, &available, &total), ACCEL_OK);
    ck_assert_uint_le(available, total);
    return available;
}

/* A small block keeps a segment of 700 MiB alive. The rest of the segment can still be allocated. */
START_TEST(memory_beside_blocks) {
    void *large, *small;
    char message[100];
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    size_t before = free_of(accel_get_memory_info);
    ck_assert_uint_eq(free_of(accel_get_device_memory_info), before);
    ck_assert_int_eq(accel_malloc(&large, 700 * MIB), ACCEL_OK);
    ck_assert_int_eq(accel_free(large), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&small, 16 * MIB), ACCEL_OK);
    ck_assert_ptr_eq(small, large);
    ck_assert_uint_eq(free_of(accel_get_memory_info), before - 16 * MIB);
    ck_assert_uint_eq(free_of(accel_get_device_memory_info), before - 700 * MIB);
    ck_assert_int_eq(accel_malloc(&large, 680 * MIB), ACCEL_OK);
    ck_assert_int_eq(accel_free(large), ACCEL_OK);
    ck_assert_int_eq(
        accel_set_allocator_settings("memory_limit:800M,dump:none", message, sizeof message),
        ACCEL_OK);
    ck_assert_uint_eq(free_of(accel_get_memory_info), 784 * MIB);
    ck_assert_uint_eq(free_of(accel_get_device_memory_info), before - 700 * MIB);
    ck_assert_int_eq(accel_free(small), ACCEL_OK);
    nothing_left();
}
END_TEST

/* --- memory --- */

START_TEST(memory_by_the_api) {
    void *a = NULL, *b, *none = &b;
    ck_assert_int_eq(accel_malloc(&a, MIB), ACCEL_OK); /* the thread has no context yet */
    ck_assert_int_eq(accel_current_device(), 0);
    ck_assert_uint_eq((uintptr_t)a % 512, 0);
    ck_assert_int_eq(stats_of(0).allocation.all.current, 1);
    ck_assert_int_eq(accel_free(a), ACCEL_OK);
    ck_assert_int_eq(accel_free(a), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_free(NULL), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&b, MIB), ACCEL_OK);
    ck_assert_ptr_eq(a, b); /* from the cache */
    ck_assert_int_eq(stats_of(0).num_device_alloc, 1);
    ck_assert_int_eq(cuMemFree_v2(address_of(b)), CUDA_SUCCESS);
    ck_assert_int_eq(accel_malloc(&none, 0), ACCEL_OK);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(accel_malloc(NULL, 1), ACCEL_ERROR_INVALID);
    none = &b;
    ck_assert_int_eq(accel_malloc(&none, (size_t)64 << 30), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_ptr_eq(none, &b); /* outputs are set on success only */
    ck_assert_int_eq(accel_set_device(1), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&a, 512), ACCEL_OK);
    ck_assert_int_eq(stats_of(1).allocation.all.current, 1);
    ck_assert_int_eq(accel_free(a), ACCEL_OK);
}
END_TEST

START_TEST(memory_in_the_order_of_a_stream) {
    CUstream stream;
    void *a, *b;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ck_assert_int_eq(accel_malloc_async(&a, MIB, stream), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).allocation.all.current, 1);
    use(a, MIB, stream);
    ck_assert_int_eq(accel_free_async(a, stream), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).allocation.all.current, 0);
    ck_assert_int_eq(stats_of(0).active.all.current, 1); /* until the stream's work completes */
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc_async(&b, MIB, stream), ACCEL_OK);
    ck_assert_ptr_eq(a, b);
    ck_assert_int_eq(accel_free_async(b, stream), ACCEL_OK);
    ck_assert_int_eq(accel_free_async(NULL, stream), ACCEL_OK);
    ck_assert_int_eq(accel_malloc_async(NULL, 1, stream), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_malloc_async(&a, 0, stream), ACCEL_OK);
    ck_assert_ptr_null(a);
}
END_TEST

START_TEST(record_stream) {
    CUdeviceptr first, second;
    CUstream stream;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ck_assert_int_eq(cuMemAlloc_v2(&first, MIB), CUDA_SUCCESS);
    ck_assert_int_eq(stats_of(0).allocation.all.current, 1);
    ck_assert_int_eq(cuMemsetD8Async(first, 1, MIB, NULL), CUDA_SUCCESS);
    ck_assert_int_eq(accel_record_stream((void *)(uintptr_t)(first + 512), stream), ACCEL_OK);
    ck_assert_int_eq(cuMemFree_v2(first), CUDA_SUCCESS);
    /* The stream of which the library saw work does not protect it: allocated falls, active stays
     * until a fence says that the other one is done, too. */
    ck_assert_int_eq(stats_of(0).allocation.all.current, 0);
    ck_assert_int_eq(stats_of(0).active.all.current, 1);
    ck_assert_int_eq(cuMemAlloc_v2(&second, MIB), CUDA_SUCCESS);
    ck_assert_int_eq(accel_record_stream((void *)(uintptr_t)0x1000, NULL), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_record_stream(NULL, NULL), ACCEL_OK); /* the address of an allocation of no bytes */
    ck_assert_int_eq(accel_close_ipc_ptr(NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(cuMemFree_v2(second), CUDA_SUCCESS);
    ck_assert_int_eq(accel_record_stream((void *)(uintptr_t)(second + MIB), NULL),
                     ACCEL_ERROR_NOT_OURS);
}
END_TEST

/* The program creates one context more than the library has records for. The library turns its cache off, and
 * every function still answers. */
START_TEST(more_contexts_than_are_kept) {
    enum { KEPT = 256 };
    void *ours, *drivers, *ordered, *ordered_too;
    size_t available, total, less;
    char *json, message[160] = "";
    CUcontext last = NULL;
    CUstream before, stream;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&ours, MIB), ACCEL_OK);
    ck_assert_uint_eq(cuStreamCreate(&before, 1), CUDA_SUCCESS);
    int64_t allocated = stats_of(0).allocated_bytes.all.current;
    for (int i = 0; i < KEPT; i++)
        ck_assert_uint_eq(cuCtxCreate_v2(&last, 0, 0), CUDA_SUCCESS);
    ck_assert_uint_eq(cuStreamCreate(&stream, 1), CUDA_SUCCESS);

    /* The current context has no record. */
    ck_assert_int_eq(accel_current_device(), 0);
    ck_assert_int_eq(accel_malloc(&drivers, MIB), ACCEL_OK);
    ck_assert_int_eq(accel_malloc_async(&ordered, MIB, stream), ACCEL_OK);
    ck_assert_int_eq(accel_malloc_async(&ordered_too, MIB, NULL), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).allocated_bytes.all.current, allocated);
    ck_assert_int_eq(accel_record_stream(drivers, stream), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_record_stream(ours, stream), ACCEL_ERROR_NO_DRIVER);
    ck_assert_int_eq(accel_record_stream(ours, NULL), ACCEL_ERROR_NO_DRIVER);
    ck_assert_int_eq(accel_record_stream(ours, before), ACCEL_OK); /* a stream of a context with a record */
    ck_assert_int_eq(accel_free_async(ordered, stream), ACCEL_OK);
    ck_assert_int_eq(accel_free_async(ordered_too, NULL), ACCEL_OK);
    ck_assert_int_eq(accel_free(drivers), ACCEL_OK);
    ck_assert_int_eq(accel_free_async(ours, stream), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).allocated_bytes.all.current, allocated - MIB);

    /* The first context has a record, but its freed memory is not reused. */
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&drivers, MIB), ACCEL_OK);
    ck_assert_ptr_ne(drivers, ours);
    ck_assert_int_eq(stats_of(0).allocated_bytes.all.current, allocated - MIB);
    ck_assert_int_eq(accel_free(drivers), ACCEL_OK);
    ck_assert_int_eq(accel_free(ours), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_get_memory_info(0, &less, &total), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).reserved_bytes.all.current, 0);
    ck_assert_int_eq(accel_get_memory_info(0, &available, &total), ACCEL_OK);
    ck_assert_uint_gt(available, less);

    /* No setting turns the cache on again. */
    ck_assert_int_eq(
        accel_set_allocator_settings("enabled:true,dump:none", message, sizeof message),
        ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&drivers, 100), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).reserved_bytes.all.current, 0);
    ck_assert_int_eq(accel_free(drivers), ACCEL_OK);
    ck_assert_int_eq(accel_malloc_async(&ordered, MIB, NULL), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).reserved_bytes.all.current, 0);
    ck_assert_int_eq(accel_free_async(ordered, NULL), ACCEL_OK);
    ck_assert_int_eq(accel_reset_peak_stats(0), ACCEL_OK);
    ck_assert_int_eq(accel_reset_accumulated_stats(0), ACCEL_OK);
    ck_assert_int_eq(records_agree(accel_check, message, sizeof message), ACCEL_OK);
    ck_assert_int_eq(accel_stats_json(&json), ACCEL_OK);
    free(json);
}
END_TEST

START_TEST(settings) {
    char message[256] = "";
    CUdeviceptr pointer, other;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_set_allocator_settings("memory_limit:64M", message, sizeof message),
                     ACCEL_OK);
    ck_assert_int_eq(cuMemAlloc_v2(&pointer, 48 * MIB), CUDA_SUCCESS);
    /* The device has the memory, but the limit refuses the request. */
    accel_device_stats_t before = stats_of(0);
    ck_assert_int_eq(cuMemAlloc_v2(&other, 48 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(stats_of(0).num_ooms, before.num_ooms + 1);

    ck_assert_int_eq(accel_set_allocator_settings("memory_limt:64M", message, sizeof message),
                     ACCEL_ERROR_SETTINGS);
    ck_assert_ptr_nonnull(strstr(message, "memory_limit"));
    ck_assert_int_eq(accel_set_allocator_settings("fence:sync", message, sizeof message),
                     ACCEL_ERROR_SETTINGS);
    ck_assert_ptr_nonnull(strstr(message, "fence"));
    ck_assert_int_eq(accel_set_allocator_settings(NULL, message, sizeof message),
                     ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_set_allocator_settings("", NULL, 0), ACCEL_OK);
    ck_assert_int_eq(cuMemAlloc_v2(&other, 48 * MIB), CUDA_SUCCESS);
}
END_TEST

static int busy_answers;

static accel_status_t busy_at_first(char *message, size_t size) {
    (void)message, (void)size;
    return busy_answers-- > 0 ? ACCEL_ERROR_BUSY : ACCEL_ERROR_INTERNAL;
}

/* A record that is busy for a short time is read again. One that stays busy is an error. */
START_TEST(records_that_are_busy_are_asked_again) {
    busy_answers = 2;
    ck_assert_int_eq(records_agree(busy_at_first, NULL, 0), ACCEL_ERROR_INTERNAL);
    busy_answers = 2 * AGREES_TRIES;
    ck_assert_int_eq(records_agree(busy_at_first, NULL, 0), ACCEL_ERROR_BUSY);
}
END_TEST

START_TEST(documents) {
    char *json = NULL;
    CUdeviceptr pointer;
    char path[64];
    ck_assert_int_eq(accel_stats_json(&json), ACCEL_ERROR_NO_DRIVER);
    ck_assert_int_eq(accel_dump("api-%p.json"), ACCEL_ERROR_NO_DRIVER);
    ck_assert_int_eq(accel_check(NULL, 0), ACCEL_ERROR_NO_DRIVER);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(cuMemAlloc_v2(&pointer, MIB), CUDA_SUCCESS);
    ck_assert_int_eq(records_agree(accel_check, path, sizeof path), ACCEL_OK);
    ck_assert_int_eq(accel_stats_json(&json), ACCEL_OK);
    ck_assert_ptr_nonnull(strstr(json, "\"accelcache-dump\""));
    ck_assert_ptr_nonnull(strstr(json, "\"cuMemAlloc_v2\": 1"));
    free(json);
    ck_assert_int_eq(accel_stats_json(NULL), ACCEL_ERROR_INVALID);

    snprintf(path, sizeof path, "api-%d.json", (int)getpid());
    ck_assert_int_eq(accel_dump("api-%p.json"), ACCEL_OK);
    ck_assert_int_eq(access(path, R_OK), 0);
    unlink(path);
    ck_assert_int_eq(accel_dump("no/such/folder/x.json"), ACCEL_ERROR_IO);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(accel_dump(NULL), ACCEL_ERROR_INVALID); /* dump:none in this test */
    for (int status = ACCEL_OK; status <= ACCEL_ERROR_INTERIOR; status++)
        ck_assert_uint_gt(strlen(accel_status_string((accel_status_t)status)), 0);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {devices, chosen_device,
                                  statistics,
                                  memory_info,
                                  memory_beside_blocks,
                                  memory_by_the_api,
                                  memory_in_the_order_of_a_stream,
                                  record_stream,
                                  more_contexts_than_are_kept,
                                  settings,
                                  records_that_are_busy_are_asked_again,
                                  documents,
                                  NULL};
    return run_tests("api", tests);
}
