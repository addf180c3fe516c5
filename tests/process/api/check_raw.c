/* Streams of threads, guards, raw memory and the program's own allocator, in a program that links the
 * library and uses the simulated device. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

static void *stream_of(int device) {
    accel_stream_t stream;
    ck_assert_int_eq(accel_get_stream(device, &stream), ACCEL_OK);
    return stream.stream;
}

static int64_t active(void) {
    return stats_of(0).active.all.current;
}

START_TEST(what_it_is) {
    ck_assert_int_eq(accel_version(), ACCEL_VERSION);
    ck_assert_str_eq(accel_name(), "accelcache");
    ck_assert_str_eq(accel_get_accelerator(), "cuda");
}
END_TEST

static void *other_thread(void *arg) {
    (void)arg;
    ck_assert_ptr_null(stream_of(1));
    ck_assert_int_eq(accel_set_stream((accel_stream_t){(void *)2, 0}), ACCEL_OK);
    return NULL;
}

START_TEST(streams) {
    CUstream first = new_stream(0), second = new_stream(1);
    pthread_t thread;
    accel_stream_t now = {NULL, 7};
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_set_stream((accel_stream_t){second, 1}), ACCEL_OK);
    ck_assert_int_eq(accel_current_device(), 1); /* the device follows the stream */
    ck_assert_ptr_eq(stream_of(1), second);
    ck_assert_ptr_null(stream_of(0));
    ck_assert_int_eq(accel_set_stream((accel_stream_t){first, 0}), ACCEL_OK);
    ck_assert_int_eq(accel_set_stream((accel_stream_t){second, -1}), ACCEL_OK);
    ck_assert_int_eq(accel_current_device(), 0);
    ck_assert_int_eq(accel_get_stream(-1, &now), ACCEL_OK);
    ck_assert_ptr_eq(now.stream, first);
    ck_assert_int_eq(now.device, 0);
    ck_assert_int_eq(accel_get_stream(2, &now), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_get_stream(0, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_set_stream((accel_stream_t){first, 2}), ACCEL_ERROR_INVALID);
    /* A stream of another device, or an invalid one, changes nothing. */
    ck_assert_int_eq(accel_set_stream((accel_stream_t){first, 1}), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_set_stream((accel_stream_t){&now, 1}), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_current_device(), 0);
    /* Each thread has its own stream. */
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_ptr_eq(stream_of(0), first);
    ck_assert_ptr_eq(stream_of(1), second);
}
END_TEST

START_TEST(guards) {
    CUstream stream = new_stream(1);
    CUcontext own, now;
    accel_guard_t guard, inner;
    ck_assert_int_eq(accel_guard_enter(&guard, 1), ACCEL_OK);
    ck_assert_int_eq(accel_current_device(), 1);
    accel_guard_leave(&guard);
    ck_assert_int_eq(cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
    ck_assert_int_eq(accel_guard_enter(&guard, 1), ACCEL_OK);
    ck_assert_int_eq(accel_guard_enter_stream(&inner, (accel_stream_t){stream, 1}), ACCEL_OK);
    ck_assert_ptr_eq(stream_of(1), stream);
    accel_guard_leave(&inner);
    accel_guard_leave(&inner);
    ck_assert_ptr_null(stream_of(1));
    ck_assert_int_eq(accel_current_device(), 1);
    accel_guard_leave(&guard);
    /* The program's own context stays current, not the primary one of its device. */
    ck_assert_int_eq(cuCtxGetCurrent(&now), CUDA_SUCCESS);
    ck_assert_ptr_eq(now, own);
    ck_assert_int_eq(accel_guard_enter(&guard, -1), ACCEL_OK);
    accel_guard_leave(&guard);
    ck_assert_int_eq(accel_guard_enter(&guard, 5), ACCEL_ERROR_INVALID);
    accel_guard_leave(&guard);
    ck_assert_int_eq(accel_guard_enter(NULL, 0), ACCEL_ERROR_INVALID);
    {
        ACCEL_GUARD(scoped, 1);
        ck_assert_int_eq(accel_current_device(), 1);
    }
    ck_assert_int_eq(cuCtxGetCurrent(&now), CUDA_SUCCESS);
    ck_assert_ptr_eq(now, own);
}
END_TEST

START_TEST(raw_memory) {
    CUstream stream = new_stream(0);
    void *a, *b, *base, *none = &a;
    size_t bytes;
    ck_assert_int_eq(accel_set_stream((accel_stream_t){stream, 0}), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc(&a, 1000), ACCEL_OK);
    accel_pointer_info_t info = info_of((char *)a + 999);
    ck_assert_ptr_eq(info.base, a);
    ck_assert_uint_eq(info.bytes, 1000);
    ck_assert_uint_eq(info.allocated, 1024);
    ck_assert_int_eq(info.device, 0);
    ck_assert_int_eq(info.ordered, 1);
    ck_assert_ptr_eq(info.stream, stream);
    ck_assert_int_eq(accel_pointer_info((char *)a + 1000, &info), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_pointer_info(&info, &info), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_get_base_allocation((char *)a + 5, &base, &bytes), ACCEL_OK);
    ck_assert_ptr_eq(base, a);
    ck_assert_uint_eq(bytes, 1000);
    ck_assert_int_eq(accel_get_base_allocation(a, NULL, NULL), ACCEL_ERROR_INVALID);

    /* The block follows the order of its stream, on any device. */
    ck_assert_int_eq(accel_raw_alloc_with_stream(&b, MIB, stream), ACCEL_OK);
    use(b, MIB, stream);
    ck_assert_int_eq(accel_set_device(1), ACCEL_OK);
    accel_raw_deleter()(b);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    void *again;
    ck_assert_int_eq(accel_raw_alloc_with_stream(&again, MIB, stream), ACCEL_OK);
    ck_assert_ptr_eq(again, b);
    ck_assert_int_eq(accel_raw_delete(again), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(again), ACCEL_ERROR_DOUBLE_FREE);

    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(NULL), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc(&none, 0), ACCEL_OK);
    ck_assert_ptr_null(none);
    none = &a;
    ck_assert_int_eq(accel_raw_alloc(&none, (size_t)64 << 30), ACCEL_ERROR_DEVICE_MEMORY);
    ck_assert_ptr_eq(none, &a);
    ck_assert_int_eq(accel_raw_alloc(NULL, 1), ACCEL_ERROR_INVALID);
    /* A deleter also frees memory of the other calls. */
    ck_assert_int_eq(accel_malloc(&a, 4096), ACCEL_OK);
    ck_assert_int_eq(info_of(a).ordered, 0);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    /* Many blocks are found, in any order of frees. */
    enum { MANY = 3000 };
    static void *block[MANY];
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(accel_raw_alloc(&block[i], (size_t)i + 1), ACCEL_OK);
    for (int i = 0; i < MANY; i += 3)
        ck_assert_int_eq(accel_raw_delete(block[i]), ACCEL_OK);
    for (int i = 0; i < MANY; i++) {
        if (i % 3 == 0)
            continue;
        accel_pointer_info_t of = info_of(block[i]);
        ck_assert_uint_eq(of.bytes, (size_t)i + 1);
        ck_assert_ptr_eq(of.stream, stream);
        ck_assert_int_eq(accel_raw_delete(block[i]), ACCEL_OK);
    }
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(active(), 0);
}
END_TEST

/* Records work on another stream by a pointer into the block. The order of the block's stream does
 * not cover this work. */
START_TEST(recorded_streams) {
    CUstream own = new_stream(0), other = new_stream(0);
    void *a, *b, *c;
    ck_assert_int_eq(accel_raw_alloc_with_stream(&a, MIB, own), ACCEL_OK);
    hold(other);
    use(a, MIB, other);
    ck_assert_int_eq(accel_record_stream((char *)a + 12345, other), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&b, MIB, own), ACCEL_OK);
    ck_assert_ptr_ne(a, b);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&c, MIB, own), ACCEL_OK);
    ck_assert_ptr_eq(c, b); /* no other stream used that block */
    let_go(own);
    ck_assert_int_eq(accel_raw_delete(c), ACCEL_OK);
}
END_TEST

/* The handle of a destroyed stream may name another stream. */
START_TEST(destroyed_streams) {
    CUstream other = new_stream(0), gone = new_stream(0), next;
    void *a, *b;
    ck_assert_int_eq(accel_raw_alloc_with_stream(&a, MIB, gone), ACCEL_OK);
    hold(gone);
    use(a, MIB, gone);
    ck_assert_int_eq(cuStreamDestroy_v2(gone), CUDA_SUCCESS);
    ck_assert_int_eq(cuStreamCreate(&next, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc_with_stream(&b, MIB, next), ACCEL_OK);
    ck_assert_ptr_ne(a, b);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    let_go(other);
}
END_TEST

/* A free with an invalid stream fails and leaves the block allocated. */
START_TEST(refused_streams) {
    CUstream stream = new_stream(0), gone = new_stream(0);
    CUgraph graph;
    void *a, *b;
    ck_assert_int_eq(accel_malloc_async(&a, MIB, gone), ACCEL_OK);
    ck_assert_int_eq(cuStreamDestroy_v2(gone), CUDA_SUCCESS);
    ck_assert_int_eq(accel_free_async(a, gone), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_free_async((char *)a + 512, gone), ACCEL_ERROR_INTERIOR);
    ck_assert_int_eq(accel_free_async(a, stream), ACCEL_OK);
    ck_assert_int_eq(accel_free_async(a, stream), ACCEL_ERROR_DOUBLE_FREE);

    ck_assert_int_eq(accel_raw_alloc_with_stream(&b, 2 * MIB, stream), ACCEL_OK);
    ck_assert_int_eq(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_ERROR_INVALID);
    cuStreamEndCapture(stream, &graph);
    ck_assert_ptr_eq(info_of(b).stream, stream);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(b), ACCEL_ERROR_DOUBLE_FREE);
}
END_TEST

/* --- the program's own allocator --- */

static struct {
    int init, reset, recorded, begun, ended, released;
    double fraction;
    size_t bytes;
    int device;
    void *stream;
    char memory[4][4096];
    int out;
} own;

static void *own_alloc(size_t bytes, int device, void *stream) {
    (void)device;
    (void)stream;
    return bytes <= sizeof own.memory[0] && own.out < 4 ? own.memory[own.out++] : NULL;
}
static void own_free(void *pointer, size_t bytes, int device, void *stream) {
    ck_assert_ptr_eq(pointer, own.memory[0]);
    own.bytes = bytes;
    own.device = device;
    own.stream = stream;
}
static void own_init(int devices) {
    own.init += devices;
}
static void own_reset(void) {
    own.reset++;
}
static void own_fraction(double fraction, int device) {
    own.fraction = fraction + device;
}
static void *own_base(void *pointer, size_t *bytes) {
    *bytes = sizeof own.memory[0];
    return own.memory[((char *)pointer - own.memory[0]) / (long)sizeof own.memory[0]];
}
static void own_record(void *pointer, void *stream) {
    own.recorded += pointer == own.memory[0] && stream == (void *)2;
}
static void own_begin(int device, accel_pool_id_t pool, accel_stream_filter_t filter, void *arg) {
    own.begun += device == 1 && pool.second == 9 && !filter && arg == &own;
}
static void own_end(int device, accel_pool_id_t pool) {
    own.ended += device == 1 && pool.second == 9;
}
static void own_release(int device, accel_pool_id_t pool) {
    own.released += device == 0 && pool.second == 9;
}

START_TEST(own_allocator) {
    accel_allocator_t functions = {sizeof functions, own_alloc,    own_free,   own_init,
                                   own_reset,        own_fraction, own_base,   own_record,
                                   own_begin,        own_end,      own_release};
    accel_allocator_t got = {.size = sizeof got}, empty = {.size = sizeof empty};
    accel_pool_id_t pool = {0, 9};
    void *a, *b;
    ck_assert_int_eq(accel_set_allocator(&empty), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_set_allocator(&functions), ACCEL_OK);
    ck_assert_int_eq(accel_set_allocator(NULL), ACCEL_OK);
    ck_assert_int_eq(accel_set_allocator(&functions), ACCEL_OK);
    ck_assert_int_eq(accel_get_allocator(&got), ACCEL_OK);
    ck_assert_int_eq(memcmp(&got, &functions, sizeof got), 0);
    ck_assert_int_eq(own.init, 0);
    ck_assert_int_eq(accel_set_stream((accel_stream_t){(void *)2, 1}), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc(&a, 100), ACCEL_OK);
    ck_assert_ptr_eq(a, own.memory[0]);
    ck_assert_int_eq(own.init, 2);
    ck_assert_int_eq(accel_set_allocator(NULL), ACCEL_ERROR_BUSY);
    ck_assert_int_eq(accel_raw_alloc(&b, 1 << 20), ACCEL_ERROR_DEVICE_MEMORY);
    accel_pointer_info_t info = info_of((char *)a + 7);
    ck_assert_ptr_eq(info.base, a);
    ck_assert_uint_eq(info.bytes, 100);
    ck_assert_int_eq(info.device, 1);
    ck_assert_int_eq(accel_record_stream(a, (void *)2), ACCEL_OK);
    ck_assert_int_eq(own.recorded, 1);
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    ck_assert_int_eq(own.reset, 1);
    ck_assert_int_eq(accel_set_memory_fraction(0.25, 1), ACCEL_OK);
    ck_assert(own.fraction == 1.25);
    ck_assert_int_eq(accel_begin_allocate_to_pool(1, pool, NULL, &own), ACCEL_OK);
    ck_assert_int_eq(accel_end_allocate_to_pool(1, pool), ACCEL_OK);
    ck_assert_int_eq(own.begun + own.ended, 2);
    /* Other calls of the API do not free the block, and accel_raw_delete still does. */
    ck_assert_int_eq(accel_free_async(a, NULL), ACCEL_ERROR_NOT_OURS);
    ck_assert_uint_eq(own.bytes, 0);
    ck_assert_int_eq(accel_raw_delete(a), ACCEL_OK);
    ck_assert_uint_eq(own.bytes, 100);
    ck_assert_int_eq(own.device, 1);
    ck_assert_ptr_eq(own.stream, (void *)2);
}
END_TEST

static _Atomic int begun, asking, ready;

static void slow_init(int devices) {
    (void)devices;
    atomic_store(&begun, 1);
    while (!atomic_load(&asking))
        sched_yield();
    usleep(20000); /* the other thread is about to request memory */
    atomic_store(&ready, 1);
}

static void *ready_alloc(size_t bytes, int device, void *stream) {
    ck_assert(atomic_load(&ready));
    return own_alloc(bytes, device, stream);
}

static void *ask_beside(void *arg) {
    (void)arg;
    while (!atomic_load(&begun))
        sched_yield();
    atomic_store(&asking, 1);
    alloc(100, NULL);
    return NULL;
}

/* No thread requests memory from the program's functions before their init_fn has returned. */
START_TEST(init_comes_first) {
    const accel_allocator_t functions = {.size = sizeof functions,
                                         .alloc_fn = ready_alloc,
                                         .free_fn = own_free,
                                         .init_fn = slow_init};
    pthread_t thread;
    ck_assert_int_eq(accel_set_allocator(&functions), ACCEL_OK);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, ask_beside, NULL), 0);
    alloc(100, NULL);
    pthread_join(thread, NULL);
    ck_assert_int_eq(own.out, 2);
}
END_TEST

/* Replaces nanosleep. If `hurried` is set, the library's waits end at once. */
static _Atomic int hurried;
int nanosleep(const struct timespec *time, struct timespec *rest) {
    return atomic_load(&hurried) ? 0 : clock_nanosleep(CLOCK_REALTIME, 0, time, rest);
}

static void init_that_waits(int devices) {
    void *pointer;
    (void)devices;
    ck_assert_int_eq(accel_raw_alloc(&pointer, 100), ACCEL_OK); /* its own */
    atomic_store(&begun, 1);
    while (!atomic_load(&asking))
        sched_yield();
    atomic_store(&ready, 1);
}

static void *ask_too_early(void *status) {
    void *pointer = status;
    while (!atomic_load(&begun))
        sched_yield();
    atomic_store(&hurried, 1);
    for (int i = 0; i < 2; i++) { /* the second request does not wait */
        *(accel_status_t *)status = accel_raw_alloc(&pointer, 100);
        atomic_store(&hurried, 0);
        ck_assert_int_eq(*(accel_status_t *)status, ACCEL_ERROR_BUSY);
        ck_assert_ptr_eq(pointer, status);
    }
    atomic_store(&asking, 1);
    return NULL;
}

/* The init_fn waits for a thread that waits for init_fn. The thread's request fails after a limit. */
START_TEST(init_that_never_ends) {
    const accel_allocator_t functions = {.size = sizeof functions,
                                         .alloc_fn = own_alloc,
                                         .free_fn = own_free,
                                         .init_fn = init_that_waits};
    pthread_t thread;
    accel_status_t status = ACCEL_OK;
    ck_assert_int_eq(accel_set_allocator(&functions), ACCEL_OK);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, ask_too_early, &status), 0);
    alloc(100, NULL);
    pthread_join(thread, NULL);
    ck_assert_int_eq(status, ACCEL_ERROR_BUSY);
    alloc(100, NULL); /* init_fn has returned */
    ck_assert_int_eq(own.out, 3);
}
END_TEST

/* --- statistics of memory freed in stream order --- */

static size_t largest(void) {
    size_t bytes;
    ck_assert_int_eq(accel_cache_info(0, &bytes), ACCEL_OK);
    return bytes;
}

/* Checks each way in which the program can learn that the work has completed. */
START_TEST(freed_memory_is_active_until_its_work_is_known_to_be_over) {
    CUstream stream = new_stream(0);
    void *block[7];
    ck_assert_int_eq(accel_raw_delete(alloc(700 * MIB, stream)), ACCEL_OK); /* one segment for all */
    ck_assert_uint_eq(largest(), 700 * MIB);
    for (int way = 0; way < 3; way++) {
        uint64_t left = 700 * MIB;
        for (int i = 0; i < 7; i++) { /* no size comes twice: the thread keeps none */
            uint64_t bytes = i < 6 ? 100 * MIB + 512 * (uint64_t)(8 * way + i + 1) : left;
            block[i] = alloc(bytes, stream);
            use(block[i], 99 * MIB, stream);
            left -= bytes;
        }
        for (int i = 0; i < 7; i++)
            ck_assert_int_eq(accel_raw_delete(block[i]), ACCEL_OK);
        ck_assert_int_eq(stats_of(0).active_bytes.all.current, 700 * MIB);
        ck_assert_uint_eq(largest(), 700 * MIB); /* a request waits for it */
        if (way == 0)
            ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
        else if (way == 1)
            ck_assert_int_eq(cuStreamSynchronize(stream), CUDA_SUCCESS);
        else
            ck_assert_int_eq(cuCtxSynchronize(), CUDA_SUCCESS);
        ck_assert_int_eq(active(), 0);
        ck_assert_int_eq(stats_of(0).active_bytes.all.current, 0);
        ck_assert_int_eq(stats_of(0).requested_bytes.all.current, 0);
        ck_assert_uint_eq(largest(), 700 * MIB);
    }
    nothing_left();
}
END_TEST

/* Frees blocks with pending work, so that the thread cache keeps them, and requests the sizes
 * again. */
START_TEST(freed_memory_in_a_cache_is_no_longer_active) {
    CUstream stream = new_stream(0), other = new_stream(0);
    CUdeviceptr block[40];
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 40; i++)
            ck_assert_int_eq(cuMemAlloc_v2(&block[i], i % 2 ? MIB : 1000), CUDA_SUCCESS);
        for (int i = 0; i < 40; i++)
            use((void *)(uintptr_t)block[i], 1000, i % 4 < 2 ? stream : other);
        for (int i = 0; i < 40; i++)
            ck_assert_int_eq(cuMemFree_v2(block[i]), CUDA_SUCCESS);
        ck_assert_int_gt(active(), 0);
        ck_assert_int_eq(cuCtxSynchronize(), CUDA_SUCCESS);
        ck_assert_int_eq(active(), 0);
        ck_assert_int_eq(stats_of(0).requested_bytes.all.current, 0);
        ck_assert(records_agree(accel_check, NULL, 0) == ACCEL_OK);
    }
    nothing_left();
}
END_TEST

/* --- copies, peers, other processes --- */

START_TEST(copies) {
    CUstream stream = new_stream(0);
    void *here, *there;
    unsigned char first[64], second[64] = {0};
    for (int i = 0; i < 64; i++)
        first[i] = (unsigned char)(i * 7);
    ck_assert_int_eq(accel_raw_alloc(&here, 64), ACCEL_OK);
    ck_assert_int_eq(accel_set_device(1), ACCEL_OK);
    ck_assert_int_eq(accel_raw_alloc(&there, 64), ACCEL_OK);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_copy_data(here, first, 64), ACCEL_OK);
    ck_assert_int_eq(accel_memcpy_async(there, 1, here, 0, 64, stream, 0), ACCEL_OK);
    ck_assert_int_eq(cuStreamSynchronize(stream), CUDA_SUCCESS);
    ck_assert_int_eq(accel_copy_data(second, there, 64), ACCEL_OK);
    ck_assert_int_eq(memcmp(first, second, 64), 0);
    ck_assert_int_eq(accel_enable_peer_access(0, 1), ACCEL_OK);
    ck_assert_int_eq(accel_enable_peer_access(0, 1), ACCEL_OK);
    ck_assert_int_eq(accel_enable_peer_access(1, 1), ACCEL_OK);
    ck_assert_int_eq(accel_enable_peer_access(0, 2), ACCEL_ERROR_INVALID);
    first[0] = 99;
    ck_assert_int_eq(accel_copy_data(here, first, 64), ACCEL_OK);
    ck_assert_int_eq(accel_memcpy_async(there, 1, here, 0, 64, stream, 1), ACCEL_OK);
    ck_assert_int_eq(cuStreamSynchronize(stream), CUDA_SUCCESS);
    ck_assert_int_eq(accel_copy_data(second, there, 64), ACCEL_OK);
    ck_assert_int_eq(second[0], 99);
    ck_assert_int_eq(accel_memcpy_async(NULL, 0, here, 0, 64, stream, 0), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_memcpy_async(here, 9, here, 0, 64, stream, 0), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_memcpy_async(NULL, 0, NULL, 0, 0, stream, 0), ACCEL_OK);
    ck_assert_int_eq(accel_copy_data(NULL, here, 1), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_raw_delete(here), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(there), ACCEL_OK);
}
END_TEST

/* The other process reads the byte behind the handle, and writes the next one. */
static int importer(int in, int out) {
    accel_ipc_handle_t handle;
    unsigned char byte = 0;
    void *pointer, *again;
    if (read(in, &handle, sizeof handle) != sizeof handle)
        return 2;
    if (accel_get_ipc_ptr(&handle, &pointer) != ACCEL_OK ||
        accel_get_ipc_ptr(&handle, &again) != ACCEL_OK || again != pointer)
        return 3;
    if (accel_copy_data(&byte, pointer, 1) != ACCEL_OK || byte != 42)
        return 4;
    byte = 43;
    if (accel_copy_data((char *)pointer + 1, &byte, 1) != ACCEL_OK)
        return 5;
    if (accel_close_ipc_ptr(again) != ACCEL_OK || accel_close_ipc_ptr(pointer) != ACCEL_OK ||
        accel_close_ipc_ptr(pointer) == ACCEL_OK)
        return 6;
    return write(out, &byte, 1) == 1 ? 0 : 7;
}

START_TEST(sharing) {
    int down[2], up[2], status;
    void *pointer;
    unsigned char bytes[2] = {42, 0};
    accel_ipc_handle_t handle;
    ck_assert(pipe(down) == 0 && pipe(up) == 0);
    pid_t child = fork(); /* before CUDA is used */
    if (!child)
        _exit(importer(down[0], up[1]));
    ck_assert_int_eq(accel_raw_alloc(&pointer, 4096), ACCEL_OK);
    ck_assert_int_eq(accel_copy_data((char *)pointer + 100, bytes, 2), ACCEL_OK);
    ck_assert_int_eq(accel_share_ipc_handle((char *)pointer + 100, NULL), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_share_ipc_handle(&handle, &handle), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_share_ipc_handle((char *)pointer + 100, &handle), ACCEL_OK);
    ck_assert_int_eq(write(down[1], &handle, sizeof handle), sizeof handle);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(accel_copy_data(bytes, (char *)pointer + 100, 2), ACCEL_OK);
    ck_assert_int_eq(bytes[1], 43);
    ck_assert_int_eq(accel_raw_delete(pointer), ACCEL_OK);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {what_it_is,
                                  streams,
                                  guards,
                                  raw_memory,
                                  recorded_streams,
                                  destroyed_streams,
                                  refused_streams,
                                  own_allocator,
                                  init_comes_first,
                                  init_that_never_ends,
                                  freed_memory_is_active_until_its_work_is_known_to_be_over,
                                  freed_memory_in_a_cache_is_no_longer_active,
                                  copies,
                                  sharing,
                                  NULL};
    return run_tests("raw", tests);
}
