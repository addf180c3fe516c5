/* Private pools and observers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "simcuda.h"

static const accel_pool_id_t none = {0, 0};

static bool is_of(const void *pointer, accel_pool_id_t pool) {
    accel_pointer_info_t info = info_of(pointer);
    return info.pool.first == pool.first && info.pool.second == pool.second;
}

static size_t reserved(accel_pool_id_t pool) {
    size_t bytes;
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &bytes, NULL), ACCEL_OK);
    return bytes;
}

static int only(void *stream, void *arg) {
    return stream == arg;
}

START_TEST(a_pool) {
    CUstream mine = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = new_pool(0), second = new_pool(0);
    size_t allocated;
    ck_assert(pool.first == 0 && pool.second && second.second != pool.second);
    ck_assert_int_eq(accel_begin_allocate_to_pool(0, pool, only, mine), ACCEL_OK);
    ck_assert_int_eq(accel_begin_allocate_to_pool(0, pool, only, mine), ACCEL_ERROR_BUSY);
    ck_assert_int_eq(accel_begin_allocate_to_pool(0, none, NULL, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_begin_allocate_to_pool(4, pool, NULL, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_use_count(pool), 2);
    void *a = alloc(1000, mine), *b = alloc(3 * MIB, mine), *c = alloc(1000, other);
    ck_assert(is_of(a, pool) && is_of(b, pool) && is_of(c, none));
    ck_assert_uint_eq(reserved(pool), 22 * MIB);
    ck_assert_int_eq(accel_pool_bytes(pool, 0, NULL, &allocated), ACCEL_OK);
    ck_assert_uint_eq(allocated, 1024 + 3 * MIB);
    void *live[] = {b, a};
    ck_assert_int_eq(accel_pool_check_live(pool, 0, live, 2), ACCEL_OK);
    ck_assert_int_eq(accel_pool_check_live(pool, 0, live, 1), ACCEL_ERROR_INVALID);
    void *twice[] = {a, a};
    ck_assert_int_eq(accel_pool_check_live(pool, 0, twice, 2), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_check_live(pool, 2, NULL, 0), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_bytes(pool, 2, NULL, NULL), ACCEL_ERROR_INVALID);
    live[0] = c;
    ck_assert_int_eq(accel_pool_check_live(pool, 0, live, 2), ACCEL_ERROR_INVALID);

    /* The pool's free memory serves no request without a pool, even for this stream and size. */
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_ERROR_INVALID);
    void *d = alloc(3 * MIB, mine);
    ck_assert(is_of(d, none));
    ck_assert((char *)d < (char *)b || (char *)d >= (char *)b + 20 * MIB);
    /* The pool reuses its block. */
    begin(pool, 0);
    void *e = alloc(3 * MIB, mine);
    ck_assert_ptr_eq(e, b);
    /* Both pools accept the request. The newest one serves it. */
    begin(second, 0);
    void *f = alloc(100, mine);
    ck_assert(is_of(f, second));
    ck_assert_int_eq(accel_end_allocate_to_pool(0, second), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_OK);

    /* The pool has three users: its creation and two begins. Blocks outlive the pool. */
    ck_assert_int_eq(accel_pool_use_count(pool), 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(accel_pool_release(pool), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(pool), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_use_count(pool), 0);
    ck_assert(is_of(a, pool));
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(e), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(e), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(d), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(f), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(second), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(second), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).reserved_bytes.all.current, 0);
}
END_TEST

START_TEST(lives_of_pools) {
    accel_pool_id_t graph = {7, 0}, pool;
    ck_assert_int_eq(accel_pool_retain(graph), ACCEL_OK);
    ck_assert_int_eq(accel_pool_retain(graph), ACCEL_OK);
    ck_assert_int_eq(accel_pool_use_count(graph), 2);
    ck_assert_int_eq(accel_pool_release(graph), ACCEL_OK);
    begin(graph, 0);
    ck_assert_int_eq(accel_pool_release(graph), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(graph), ACCEL_ERROR_BUSY);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, graph), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(graph), ACCEL_OK);
    ck_assert_int_eq(accel_pool_retain(none), ACCEL_ERROR_INVALID);
    /* The program chose this ID. No other pool gets it. */
    const accel_pool_id_t mine = {0, 4711}, last = {0, UINT64_MAX};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(accel_pool_retain(i ? last : mine), ACCEL_OK);
        ck_assert_int_eq(accel_pool_release(i ? last : mine), ACCEL_OK);
    }
    ck_assert_uint_eq(new_pool(0).second, 4712);
    /* The largest ID that the program may choose. */
    const accel_pool_id_t half = {0, INT64_MAX};
    ck_assert_int_eq(accel_pool_retain(half), ACCEL_OK);
    for (uint64_t i = 1; i <= 2; i++)
        ck_assert_uint_eq(new_pool(0).second, (uint64_t)INT64_MAX + i);
    ck_assert_int_eq(accel_pool_create(8, NULL, &pool), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_create(0, NULL, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_empty(graph), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_set_flags(graph, 0), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_empty(none), ACCEL_OK);
}
END_TEST

/* The same stream reuses a block at once. A recorded stream delays that until its work completes. Idle
 * segments of a destroyed stream are released. */
START_TEST(order_in_pools) {
    CUstream mine = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = new_pool(0);
    begin(pool, 0);
    void *a = alloc(MIB, mine);
    hold(other);
    use(a, MIB, other);
    ck_assert_int_eq(accel_record_stream((char *)a + 77, other), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    void *b = alloc(MIB, mine);
    ck_assert_ptr_ne(b, a);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    void *c = alloc(MIB, mine);
    ck_assert_ptr_eq(c, b);
    let_go(mine);
    void *d = alloc(MIB, mine);
    ck_assert_ptr_eq(d, a);
    void *e = alloc(MIB, other);
    ck_assert_uint_eq(reserved(pool), 4 * MIB);
    ck_assert_int_eq(accel_raw_delete(e), ACCEL_OK);
    void *f = alloc(MIB, mine); /* not the other stream's block */
    ck_assert_uint_eq(reserved(pool), 6 * MIB);
    ck_assert_int_eq(accel_raw_delete(d), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(f), ACCEL_OK);
    ck_assert_int_eq(accel_pool_empty(pool), ACCEL_OK);
    ck_assert_uint_eq(reserved(pool), 2 * MIB);
    ck_assert_int_eq(cuStreamDestroy_v2(mine), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_pool_empty(pool), ACCEL_OK);
    ck_assert_uint_eq(reserved(pool), 0);
}
END_TEST

/* A freed block waits for the work of all devices with access to it. */
START_TEST(work_of_another_device) {
    CUcontext first;
    CUstream there = new_stream(1), mine = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *a = alloc(MIB, mine);
    ck_assert_int_eq(cuCtxGetCurrent(&first), CUDA_SUCCESS);
    ck_assert_int_eq(accel_set_device(1), ACCEL_OK);
    ck_assert_int_eq(cuCtxEnablePeerAccess(first, 0), CUDA_SUCCESS);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    hold(there);
    use(a, MIB, there);
    ck_assert_int_eq(accel_record_stream(a, there), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    void *b = alloc(MIB, mine);
    ck_assert_ptr_ne(b, a);
    let_go(mine);
    ck_assert_int_eq(accel_synchronize_device(1), ACCEL_OK);
    void *c = alloc(MIB, mine);
    ck_assert_ptr_eq(c, a);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK);
    end_and_release(pool);
}
END_TEST

/* Several pending blocks get their fence at once after the capture. */
START_TEST(frees_beside_a_capture) {
    CUgraph graph;
    CUstream mine = new_stream(0), other = new_stream(0), captures = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *block[3], *again;
    for (int i = 0; i < 3; i++) {
        block[i] = alloc((size_t)3 * MIB, mine);
        use(block[i], 3 * MIB, other);
        ck_assert_int_eq(accel_record_stream(block[i], other), ACCEL_OK);
    }
    ck_assert_int_eq(cuStreamBeginCapture_v2(captures, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(accel_raw_delete(block[i]), ACCEL_OK);
    ck_assert_int_eq(cuStreamEndCapture(captures, &graph), CUDA_SUCCESS);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    again = alloc((size_t)3 * MIB, mine);
    ck_assert_int_eq(accel_raw_delete(again), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    again = alloc((size_t)18 * MIB, mine);
    ck_assert_uint_eq(reserved(pool), 20 * MIB);
    ck_assert_ptr_eq(again, block[0]);
    ck_assert_int_eq(accel_raw_delete(again), ACCEL_OK);
    end_and_release(pool);
}
END_TEST

/* Free neighbours coalesce, in either order of frees. */
START_TEST(neighbours_in_pools) {
    CUstream stream = new_stream(0);
    accel_pool_id_t pool = new_pool(0);
    static const int order[][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}};
    begin(pool, 0);
    for (int i = 0; i < 4; i++) {
        void *part[3];
        for (int j = 0; j < 3; j++)
            part[j] = alloc((j + 5) * (size_t)MIB, stream); /* 18 of 20 */
        for (int j = 0; j < 3; j++)
            ck_assert_int_eq(accel_raw_delete(part[order[i][j]]), ACCEL_OK);
        ck_assert_uint_eq(reserved(pool), 20 * MIB);
        void *whole = alloc(20 * MIB, stream);
        ck_assert_ptr_eq(whole, part[0]);
        ck_assert_int_eq(accel_raw_delete(whole), ACCEL_OK);
        ck_assert_uint_eq(reserved(pool), 20 * MIB);
    }
}
END_TEST

/* Segments have PyTorch's sizes. The test uses the sizes at which they change. */
START_TEST(sizes_of_segments) {
    static const struct {
        size_t bytes, segment;
    } row[] = {{1, 2 * MIB},
               {512, 2 * MIB},
               {MIB, 2 * MIB},
               {MIB + 512, 20 * MIB},
               {10 * MIB - 512, 20 * MIB},
               {10 * MIB, 10 * MIB},
               {10 * MIB + 512, 12 * MIB}};
    CUstream stream = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        size_t allocated;
        void *block = alloc(row[i].bytes, stream);
        ck_assert_uint_eq(reserved(pool), row[i].segment);
        ck_assert_int_eq(accel_pool_bytes(pool, 0, NULL, &allocated), ACCEL_OK);
        ck_assert_uint_eq(allocated, (row[i].bytes + 511) / 512 * 512);
        ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
        ck_assert_int_eq(accel_pool_bytes(pool, 0, NULL, &allocated), ACCEL_OK);
        ck_assert_uint_eq(allocated, 0);
        ck_assert_int_eq(accel_pool_empty(pool), ACCEL_OK);
        ck_assert_uint_eq(reserved(pool), 0);
    }
}
END_TEST

START_TEST(kinds_of_pools) {
    CUstream stream = new_stream(0);
    accel_pool_id_t whole = new_pool(ACCEL_POOL_NO_SPLIT), rescue = new_pool(0);
    begin(whole, 0);
    void *a = alloc(512, stream), *b = alloc(512, stream);
    ck_assert_uint_eq(reserved(whole), 4 * MIB);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_ptr_eq(alloc(1024, stream), a);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, whole), ACCEL_OK);

    /* The pool holds 600 MiB of 1 GiB, all free. A request for 500 MiB fails without the pool, and succeeds
     * with it. */
    begin(rescue, 0);
    void *c = alloc((size_t)600 * MIB, stream), *d = NULL;
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, rescue), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&d, (size_t)500 * MIB, stream),
                     ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_int_eq(accel_pool_set_flags(rescue, 16), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_pool_set_flags(rescue, ACCEL_POOL_USE_ON_OOM), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&d, (size_t)500 * MIB, stream), ACCEL_OK);
    ck_assert_ptr_eq(d, c);
    ck_assert_int_eq(accel_raw_delete(d), ACCEL_OK);
    /* A pool without users gives its memory back. */
    ck_assert_int_eq(accel_pool_release(rescue), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(rescue), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&d, (size_t)700 * MIB, stream), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(d), ACCEL_OK);
}
END_TEST

/* --- segments of the program's own allocator --- */

static struct {
    size_t bytes;
    int allocs, frees, refuse;
} source;
static void *source_alloc(size_t bytes, int device, void *stream) {
    CUdeviceptr pointer;
    (void)device;
    (void)stream;
    source.bytes = bytes;
    if (source.refuse && source.refuse--)
        return NULL;
    source.allocs++;
    return cuMemAlloc_v2(&pointer, bytes) ? NULL : (void *)(uintptr_t)pointer;
}
static void source_free(void *pointer, size_t bytes, int device, void *stream) {
    ck_assert(bytes == source.bytes && device == 0);
    (void)stream;
    source.frees++;
    cuMemFree_v2(address_of(pointer));
}

START_TEST(pool_with_an_allocator) {
    CUstream stream = new_stream(0);
    accel_allocator_t functions = {
        .size = sizeof functions, .alloc_fn = source_alloc, .free_fn = source_free};
    accel_pool_id_t pool;
    ck_assert_int_eq(accel_pool_create(0, &functions, &pool), ACCEL_OK);
    begin(pool, 0);
    void *a = alloc(25 * MIB + 1, stream);
    ck_assert_uint_eq(source.bytes, 26 * MIB);
    ck_assert_int_eq(source.allocs, 1);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_int_eq(source.frees, 0);
    /* The source refuses: the pool returns its free memory and asks again. */
    source.refuse = 1;
    void *b = NULL;
    ck_assert_int_eq(accel_raw_alloc_with_stream(&b, 20 * MIB, stream), ACCEL_OK);
    ck_assert_int_eq(source.allocs, 1); /* of the free 26 */
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    end_and_release(pool);
    ck_assert_int_eq(source.frees, 1);
}
END_TEST

static struct {
    int begun, ended, released, device;
    accel_pool_id_t pool;
} told;
static void begin_fn(int device, accel_pool_id_t pool, accel_stream_filter_t filter, void *arg) {
    (void)device, (void)pool, (void)filter, (void)arg, told.begun++;
}
static void end_fn(int device, accel_pool_id_t pool) {
    (void)device, (void)pool, told.ended++;
}
static void release_fn(int device, accel_pool_id_t pool) {
    told.released++;
    told.device = device;
    told.pool = pool;
    ck_assert_int_eq(accel_pool_use_count(pool), 0); /* no lock is held */
}

/* The pool's own allocator is told when the last user releases the pool, and not earlier. */
START_TEST(release_is_told) {
    accel_allocator_t functions = ACCEL_ALLOCATOR_INIT;
    accel_pool_id_t pool;
    functions.alloc_fn = source_alloc;
    functions.free_fn = source_free;
    functions.release_pool_fn = release_fn;
    ck_assert_int_eq(accel_pool_create(0, &functions, &pool), ACCEL_OK);
    ck_assert_int_eq(accel_pool_retain(pool), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(pool), ACCEL_OK);
    ck_assert_int_eq(told.released, 0);
    ck_assert_int_eq(accel_set_device(1), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(pool), ACCEL_OK);
    ck_assert_int_eq(told.released, 1);
    ck_assert_int_eq(told.device, 1);
    ck_assert_uint_eq(told.pool.second, pool.second);
    ck_assert_int_eq(accel_pool_release(pool), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(told.released, 1);
}
END_TEST

/* The pools belong to the program's allocator. The library forwards begin, end and release. */
START_TEST(program_has_pools) {
    const accel_pool_id_t theirs = {7, 9};
    accel_allocator_t functions = ACCEL_ALLOCATOR_INIT;
    accel_pool_id_t ours;
    functions.alloc_fn = source_alloc;
    functions.free_fn = source_free;
    functions.begin_allocate_to_pool_fn = begin_fn;
    functions.end_allocate_to_pool_fn = end_fn;
    ck_assert_int_eq(accel_set_allocator(&functions), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(theirs), ACCEL_ERROR_INVALID); /* no function to call */
    functions.release_pool_fn = release_fn;
    ck_assert_int_eq(accel_set_allocator(&functions), ACCEL_OK);
    ck_assert_int_eq(accel_begin_allocate_to_pool(0, theirs, NULL, NULL), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, theirs), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(theirs), ACCEL_OK);
    ck_assert(told.begun == 1 && told.ended == 1 && told.released == 1 && told.device == 0);
    accel_torch_release_pool(1, theirs);
    ck_assert(told.released == 2 && told.device == 1 && told.pool.first == 7);
    /* A pool of the library takes segments from the program's allocator, and tells it of the pool's end. */
    ck_assert_int_eq(accel_pool_create(0, NULL, &ours), ACCEL_OK);
    ck_assert_int_eq(accel_pool_release(ours), ACCEL_OK);
    ck_assert(told.released == 3 && told.pool.second == ours.second);
}
END_TEST

/* --- observers --- */

static struct {
    int calls, device;
    size_t bytes, limit, available;
    void *spare;
} seen;

static void on_oom(int device, size_t bytes, size_t limit, size_t available, void *arg) {
    ck_assert_ptr_eq(arg, &seen);
    seen.calls++;
    seen.device = device;
    seen.bytes = bytes;
    seen.limit = limit;
    seen.available = available;
    void *pointer; /* an observer may allocate, and its failure is not reported again */
    ck_assert_int_ne(accel_malloc(&pointer, bytes), ACCEL_OK);
}

static int failures;
static void on_failure(int device, size_t bytes, size_t limit, size_t available, void *arg) {
    (void)bytes;
    (void)arg;
    failures += device == 0 && limit && available;
}

static struct {
    int calls;
    accel_trace_entry_t last;
} traced;

static void on_entry(const accel_trace_entry_t *entry, void *arg) {
    (void)arg;
    traced.calls += entry->action == ACCEL_TRACE_OOM;
    traced.last = *entry;
}

static void *give_nothing(size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    return NULL;
}
static void take_nothing(void *pointer, size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    ck_assert_ptr_null(pointer);
}
static int inits;
static void on_init(int devices) {
    inits += devices;
}

/* The observer gets one call per failed request, with the device's free memory. It gets none if a pool serves
 * the request. */
START_TEST(failures_are_told_once) {
    const accel_allocator_t nothing = {.size = sizeof nothing,
                                       .alloc_fn = give_nothing,
                                       .free_fn = take_nothing,
                                       .init_fn = on_init};
    size_t available, total;
    accel_pool_id_t empty;
    void *pointer;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    accel_pool_id_t pool = new_pool(ACCEL_POOL_USE_ON_OOM);
    begin(pool, 0);
    void *block = alloc(600 * MIB, NULL);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(accel_attach_oom_observer(on_failure, NULL), ACCEL_OK);
    ck_assert_int_eq(accel_attach_trace_tracker(on_entry, NULL), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc(&pointer, 2048 * (size_t)MIB), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert(failures == 1 && traced.calls == 1);
    ck_assert_uint_eq(traced.last.pool.second, pool.second);
    ck_assert_int_eq(cuMemGetInfo_v2(&available, &total), CUDA_SUCCESS);
    ck_assert_uint_gt(traced.last.address, 0);
    ck_assert_uint_le(traced.last.address, available);
    ck_assert_int_eq(accel_raw_alloc(&pointer, (size_t)1 << 60), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert(failures == 2 && traced.calls == 2);
    ck_assert_int_eq(stats_of(0).num_ooms, 2);
    block = alloc(600 * MIB, NULL);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_OK);

    void *saved = alloc(600 * MIB, NULL);
    ck_assert_ptr_eq(saved, block);
    ck_assert(failures == 2 && traced.calls == 2 && stats_of(0).num_ooms == 2);
    ck_assert_int_eq(traced.last.action, ACCEL_TRACE_ALLOC);
    ck_assert_int_eq(accel_raw_alloc(&pointer, 600 * MIB), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert(failures == 3 && traced.calls == 3 && stats_of(0).num_ooms == 3);
    ck_assert_int_eq(accel_raw_delete(saved), ACCEL_OK);

    /* The pool's memory comes from the program's functions. */
    ck_assert_int_eq(accel_pool_create(0, &nothing, &empty), ACCEL_OK);
    ck_assert_int_eq(inits, 2);
    ck_assert_int_eq(accel_pool_create(8, &nothing, &pool), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(inits, 2); /* none was made */
    ck_assert_int_eq(accel_pool_create(0, &nothing, &pool), ACCEL_OK);
    ck_assert_int_eq(inits, 4); /* each pool's own */
    ck_assert_int_eq(accel_pool_release(pool), ACCEL_OK);
    begin(empty, 0);
    ck_assert_int_eq(accel_raw_alloc(&pointer, 100), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert(failures == 4 && traced.calls == 4);
    ck_assert_uint_eq(traced.last.pool.second, empty.second);
    end_and_release(empty);
}
END_TEST

START_TEST(out_of_memory) {
    void *pointer;
    double fraction = 0;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_attach_oom_observer(NULL, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_attach_oom_observer(on_oom, &seen), ACCEL_OK);
    ck_assert_int_eq(accel_get_memory_fraction(&fraction, 0), ACCEL_OK);
    ck_assert(fraction == 1);
    ck_assert_int_eq(accel_set_memory_fraction(0.25, 0), ACCEL_OK);
    ck_assert_int_eq(accel_set_memory_fraction(1.5, 0), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_set_memory_fraction(0.5, 5), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_memory_fraction(&fraction, 0), ACCEL_OK);
    ck_assert(fraction == 0.25);
    ck_assert_int_eq(accel_malloc(&pointer, 300 * MIB), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_uint_eq(seen.bytes, 300 * MIB);
    ck_assert_uint_eq(seen.limit, 256 * MIB);
    ck_assert_uint_gt(seen.available, 900 * MIB);
    /* The observer and the counter also see a request larger than the device. */
    ck_assert_int_eq(accel_malloc(&pointer, (size_t)1 << 42), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_int_eq(seen.calls, 2);
    ck_assert_uint_eq(seen.bytes, (size_t)1 << 42);
    /* The request and the observer's own request count once each. */
    ck_assert_int_eq(stats_of(0).num_ooms, 4);
    seen.calls = 1;
    /* Other settings keep the observer. */
    ck_assert_int_eq(accel_set_allocator_settings("dump:none", NULL, 0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&pointer, 300 * MIB), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_int_eq(seen.calls, 2);
    ck_assert_int_eq(accel_detach_oom_observer(on_oom, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_detach_oom_observer(on_oom, &seen), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&pointer, 300 * MIB), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_int_eq(seen.calls, 2);
    ck_assert_int_eq(accel_set_memory_fraction(1, 0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&pointer, 300 * MIB), ACCEL_OK);
    ck_assert_int_eq(accel_free(pointer), ACCEL_OK);
}
END_TEST

/* The program holds half of the device, and another half does not fit. After a free it does, from the cache.
 * The earlier failure harms no work. */
START_TEST(out_of_memory_and_again) {
    void *half, *other;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&half, 600 * MIB), ACCEL_OK);
    int64_t asked = stats_of(0).num_device_alloc;
    ck_assert_int_eq(accel_malloc(&other, 600 * MIB), ACCEL_ERROR_DEVICE_MEMORY);
    use(half, 600 * MIB, NULL);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_free(half), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&other, 600 * MIB), ACCEL_OK);
    ck_assert_ptr_eq(other, half);
    ck_assert_int_eq(stats_of(0).num_device_alloc, asked);
    ck_assert_int_eq(accel_free(other), ACCEL_OK);
    nothing_left();
}
END_TEST

/* A request of a pool for which there is only memory that work still uses waits as `oom_wait` says: with 0 the
 * device is asked, again and again it is while one waits. */
START_TEST(out_of_memory_and_no_wait) {
    enum { A_FEW = 500 };
    void *pointer = NULL;
    CUstream own = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *block = alloc(600 * MIB, own);
    hold(other);
    use(block, 600 * MIB, other);
    ck_assert_int_eq(accel_record_stream(block, other), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(accel_set_allocator_settings("dump:none,oom_wait:0", NULL, 0), ACCEL_OK);
    simcuda_reset_calls();
    ck_assert_int_eq(accel_raw_alloc_with_stream(&pointer, 600 * MIB, own),
                     ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_uint_le(simcuda_calls_total(), A_FEW);
    let_go(own);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&pointer, 600 * MIB, own), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(pointer), ACCEL_OK);
    end_and_release(pool);
}
END_TEST

static int on_shortage(int device, void *arg) {
    void **spare = arg;
    ck_assert_int_eq(device, 0);
    seen.calls++;
    if (!*spare)
        return 0;
    ck_assert_int_eq(accel_free(*spare), ACCEL_OK);
    *spare = NULL;
    return 1;
}

/* A failing request searches for memory once, even if a pool might serve it. */
START_TEST(fails_after_one_search) {
    CUstream mine = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = new_pool(ACCEL_POOL_USE_ON_OOM);
    void *pointer, *nothing = NULL;
    begin(pool, 0);
    ck_assert_int_eq(accel_raw_delete(alloc(MIB, mine)), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_OK);
    void *held = alloc(600 * MIB, mine);
    ck_assert_int_eq(accel_add_free_callback(on_shortage, &nothing), ACCEL_OK);
    for (int i = 1; i <= 2; i++) {
        ck_assert_int_eq(accel_raw_alloc_with_stream(&pointer, 600 * MIB, i == 1 ? mine : other),
                         ACCEL_ERROR_DEVICE_MEMORY);
        ck_assert_int_eq(seen.calls, i);
        ck_assert_int_eq(stats_of(0).num_ooms, i);
    }
    ck_assert_int_eq(accel_raw_delete(held), ACCEL_OK);
}
END_TEST

/* A pool that serves others does so before the request waits for freed memory that work still uses. */
START_TEST(pools_serve_before_a_wait) {
    enum { A_FEW = 500 };
    CUstream mine = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = new_pool(ACCEL_POOL_USE_ON_OOM);
    begin(pool, 0);
    void *kept = alloc(500 * MIB, mine);
    ck_assert_int_eq(accel_raw_delete(kept), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_OK);
    void *busy = alloc(400 * MIB, other);
    hold(other);
    use(busy, MIB, other);
    ck_assert_int_eq(accel_raw_delete(busy), ACCEL_OK);
    simcuda_reset_calls();
    ck_assert_ptr_eq(alloc(450 * MIB, mine), kept);
    ck_assert_uint_le(simcuda_calls_total(), A_FEW);
    ck_assert_int_eq(stats_of(0).num_ooms, 0);
    ck_assert_int_eq(accel_raw_delete(kept), ACCEL_OK);
    let_go(mine);
}
END_TEST

START_TEST(free_callbacks) {
    void *pointer;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&seen.spare, 100 * MIB), ACCEL_OK);
    pointer = seen.spare;
    ck_assert_int_eq(accel_add_free_callback(on_shortage, &seen.spare), ACCEL_OK);
    void *again;
    ck_assert_int_eq(accel_malloc(&again, 100 * MIB), ACCEL_OK);
    ck_assert_ptr_eq(again, pointer); /* idle memory of the program, no new memory */
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_int_eq(accel_remove_free_callback(on_shortage, &seen.spare), ACCEL_OK);
    ck_assert_int_eq(accel_remove_free_callback(on_shortage, &seen.spare), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_free(again), ACCEL_OK);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(accel_add_free_callback(on_shortage, &i), ACCEL_OK);
    ck_assert_int_eq(accel_add_free_callback(on_shortage, NULL), ACCEL_ERROR_BUSY);
}
END_TEST

START_TEST(on_and_off) {
    void *pointer;
    ck_assert_int_eq(accel_is_enabled(), 1);
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    ck_assert_int_eq(accel_is_enabled(), 0);
    ck_assert_int_eq(accel_malloc(&pointer, MIB), ACCEL_OK);
    ck_assert_int_eq(stats_of(0).reserved_bytes.all.current, 0);
    ck_assert_int_eq(accel_free(pointer), ACCEL_OK);
    ck_assert_int_eq(accel_enable(1), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&pointer, MIB), ACCEL_OK);
    ck_assert_int_gt(stats_of(0).reserved_bytes.all.current, 0);
    ck_assert_int_eq(accel_free(pointer), ACCEL_OK);
}
END_TEST

/* --- threads: pools and history change while other threads allocate --- */

enum { ROUNDS = 400 };

static void *work(void *arg) {
    size_t random = (size_t)(uintptr_t)arg;
    void *block[8] = {NULL};
    CUstream stream = new_stream(0);
    while (!atomic_load(&over)) {
        next_random(&random);
        void **at = &block[random >> 33 & 7];
        if (*at && random >> 50 & 1)
            accel_record_stream(*at, NULL);
        if (*at)
            ck_assert_int_eq(accel_raw_delete(*at), ACCEL_OK);
        *at = *at ? NULL : alloc((size_t)512 << (random >> 40) % 12, stream);
    }
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(accel_raw_delete(block[i]), ACCEL_OK);
    return NULL;
}

START_TEST(threads) {
    start(work);
    for (int i = 0; i < ROUNDS; i++) {
        accel_pool_id_t pool = new_pool(i % 4);
        begin(pool, 0);
        ck_assert_int_eq(record(i % 3 ? 100 : 0), ACCEL_OK);
        char *text = NULL;
        if (i % 50 == 0)
            ck_assert_int_eq(accel_snapshot(i % 100 ? none : pool, &text), ACCEL_OK);
        free(text);
        end_and_release(pool);
    }
    stop();
    nothing_left();
}
END_TEST

int main(void) {
    const TTest *const tests[] = {a_pool,
                                  lives_of_pools,
                                  order_in_pools,
                                  work_of_another_device,
                                  frees_beside_a_capture,
                                  neighbours_in_pools,
                                  sizes_of_segments,
                                  kinds_of_pools,
                                  pool_with_an_allocator,
                                  release_is_told,
                                  program_has_pools,
                                  failures_are_told_once,
                                  out_of_memory,
                                  out_of_memory_and_again,
                                  out_of_memory_and_no_wait,
                                  fails_after_one_search,
                                  pools_serve_before_a_wait,
                                  free_callbacks,
                                  on_and_off,
                                  threads,
                                  NULL};
    return run_tests("pools", tests);
}
