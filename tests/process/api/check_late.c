/* Late frees: frees that wait until no stream captures, and until the work of destroyed streams completes. They
 * concern memory from the driver and segments of private pools. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "simcuda.h"

static CUstream own, other;
static CUgraph graph;

static void make_streams(void) {
    own = new_stream(0);
    other = new_stream(0);
}

static void begin_capture(CUstream stream) {
    ck_assert_int_eq(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
}

static void end_capture(CUstream stream) {
    ck_assert_int_eq(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

/* Returns true if the device has memory at the address. */
static bool exists(const void *pointer) {
    CUdeviceptr base;
    size_t bytes;
    return cuMemGetAddressRange_v2(&base, &bytes, address_of(pointer)) == CUDA_SUCCESS;
}

static long late_frees(void) {
    static const char name[] = "\"late_frees\":";
    char *json;
    ck_assert_int_eq(accel_stats_json(&json), ACCEL_OK);
    const char *at = strstr(json, name);
    ck_assert_ptr_nonnull(at);
    long frees = strtol(at + sizeof name - 1, NULL, 10);
    free(json);
    return frees;
}

/* --- calls that execute late frees --- */

static void by_request(void) {
    ck_assert_int_eq(accel_raw_delete(alloc(512, own)), ACCEL_OK);
}
static void by_free(void) {
    accel_raw_deleter()(&graph); /* not a block of the library */
}
static void by_trim(void) {
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
}
/* Requests 1000 MiB from the driver. The device has 1 GiB, and the late blocks leave too little of it. */
static void by_shortage(void) {
    CUdeviceptr pointer;
    ck_assert_int_eq(cuMemAlloc_v2(&pointer, (size_t)1000 * MIB), CUDA_SUCCESS);
    ck_assert_int_eq(cuMemFree_v2(pointer), CUDA_SUCCESS);
}
/* Turns the cache on, then makes the request of by_shortage. */
static void by_shortage_in_the_cache(void) {
    ck_assert_int_eq(accel_enable(1), ACCEL_OK);
    by_shortage();
}
static void (*const brings[])(void) = {by_request, by_free, by_trim, by_shortage,
                                       by_shortage_in_the_cache};
enum { BRINGS = sizeof brings / sizeof *brings };

/* A deleter reports no failure. Memory from the driver that may be in use is freed after the capture, and cannot
 * be freed twice. */
START_TEST(deleters_in_captures) {
    accel_pointer_info_t info = {.size = sizeof info};
    make_streams();
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    void *block = alloc((size_t)100 * MIB, own), *torch = alloc(2 * MIB, other);
    ck_assert_int_eq(accel_record_stream(block, other), ACCEL_OK);
    ck_assert_int_eq(accel_record_stream(torch, own), ACCEL_OK);
    begin_capture(other);
    accel_raw_deleter()(block);
    accel_torch_free(torch, 2 * MIB, 0, other);
    ck_assert(exists(block) && exists(torch));
    ck_assert_int_eq(late_frees(), 2);
    ck_assert_int_eq(accel_pointer_info(block, &info), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_record_stream(block, own), ACCEL_ERROR_NOT_OURS);
    for (int i = 0; i < 3; i++)
        brings[i](); /* the capture goes on */
    ck_assert(exists(block) && exists(torch));
    end_capture(other);
    ck_assert(exists(block) && exists(torch));
    brings[_i]();
    ck_assert(!exists(block) && !exists(torch));
    ck_assert_int_eq(late_frees(), 2);
    ck_assert_int_ne(accel_raw_delete(block), ACCEL_OK);
}
END_TEST

/* A reset of the context drops its late frees. They do not free the next context's block at the old address. */
START_TEST(contexts_that_end) {
    void *next[4], *block;
    make_streams();
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    block = alloc(2 * MIB, own);
    ck_assert_int_eq(accel_record_stream(block, other), ACCEL_OK);
    begin_capture(other);
    accel_raw_deleter()(block);
    ck_assert_int_eq(late_frees(), 1);
    end_capture(other);
    ck_assert_int_eq(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    bool again = false;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(accel_malloc(&next[i], 2 * MIB), ACCEL_OK);
        again |= next[i] == block;
    }
    by_trim();
    for (int i = 0; i < 4; i++)
        ck_assert(exists(next[i]));
    ck_assert(again); /* otherwise the test shows nothing */
}
END_TEST

/* The deleter frees blocks of the cache while their own stream captures. The graph must not free them. */
START_TEST(deleters_on_capturing_streams) {
    enum { MANY = 300 };
    static void *block[MANY];
    make_streams();
    for (int i = 0; i < MANY; i++)
        block[i] = alloc(MIB, i % 2 ? own : other);
    begin_capture(own);
    for (int i = 0; i < MANY; i++)
        accel_raw_deleter()(block[i]);
    ck_assert_int_eq(late_frees(), MANY / 2);
    ck_assert_int_eq(stats_of(0).allocation.all.current, MANY / 2);
    ck_assert_int_eq(accel_free_async(block[1], other), ACCEL_OK); /* a double free by another call ... */
    end_capture(own);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_malloc_async(&block[1], MIB, other), ACCEL_OK); /* ... and its next owner */
    by_trim();
    ck_assert_int_eq(stats_of(0).allocation.all.current, 1);
    ck_assert_int_eq(accel_raw_delete(block[1]), ACCEL_OK);
    nothing_left();
}
END_TEST

/* --- segments of private pools --- */

static void *let_go_soon(void *arg) {
    (void)arg;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(cuStreamWriteValue32_v2(other, flag, 1, 0), CUDA_SUCCESS);
    return NULL;
}

/* The driver frees memory at once, even if work uses it. The library waits for the work first, but does not wait
 * while a stream captures. */
START_TEST(segments_of_the_driver) {
    pthread_t thread;
    make_streams();
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    accel_pool_id_t pool = open_pool(0);
    void *block = alloc(MIB, own);
    hold(own);
    use(block, MIB, own);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    begin_capture(other);
    end_and_release(pool);
    ck_assert(exists(block));
    ck_assert_int_eq(late_frees(), 1);
    end_capture(other);
    ck_assert_int_eq(pthread_create(&thread, NULL, let_go_soon, NULL), 0);
    for (int i = 0; i < 20 && exists(block); i++)
        by_trim(); /* each waits at most one second, and the thread may be slow to begin */
    ck_assert(!exists(block));
    ck_assert_int_eq(cuStreamQuery(own), CUDA_SUCCESS);
    pthread_join(thread, NULL);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK); /* the memory existed long enough */
}
END_TEST

static int asked, freed;
static char memory[2][2 * MIB];
static void *program_alloc(size_t bytes, int device, void *stream) {
    (void)device;
    (void)stream;
    return bytes <= sizeof *memory && asked < 2 ? memory[asked++] : NULL;
}
static void program_free(void *pointer, size_t bytes, int device, void *stream) {
    (void)pointer;
    (void)bytes;
    (void)device;
    (void)stream;
    freed++;
}

/* The pool calls free_fn for segments of a destroyed stream, after the stream's work has completed. */
START_TEST(segments_of_streams_that_have_gone) {
    const accel_allocator_t functions = {
        .size = sizeof functions, .alloc_fn = program_alloc, .free_fn = program_free};
    accel_pool_id_t pool;
    make_streams();
    ck_assert_int_eq(accel_pool_create(ACCEL_POOL_NO_SPLIT, &functions, &pool), ACCEL_OK);
    begin(pool, 0);
    void *block = alloc(MIB, own), *held = alloc(512, own);
    hold(own);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(cuStreamDestroy_v2(own), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(held), ACCEL_OK);
    begin_capture(other);
    end_and_release(pool);
    ck_assert_int_eq(accel_empty_cache(), ACCEL_OK);
    ck_assert_int_eq(freed, 0);
    end_capture(other);
    let_go(other);
    by_trim();
    ck_assert_int_eq(freed, 2);
}
END_TEST

static void *release_there(void *pool) {
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    end_and_release(*(accel_pool_id_t *)pool);
    return NULL;
}

/* The handle of a default stream names another stream in the thread that releases the pool. */
START_TEST(segments_of_other_threads) {
    const accel_allocator_t functions = {
        .size = sizeof functions, .alloc_fn = program_alloc, .free_fn = program_free};
    pthread_t thread;
    accel_pool_id_t pool;
    make_streams();
    ck_assert_int_eq(accel_pool_create(0, &functions, &pool), ACCEL_OK);
    begin(pool, 0);
    void *block = alloc(MIB, CU_STREAM_PER_THREAD);
    hold(CU_STREAM_PER_THREAD);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, release_there, &pool), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(freed, 0);
    let_go(other);
    by_trim();
    ck_assert_int_eq(freed, 1);
}
END_TEST

/* A destroyed stream leaves idle segments, and the program holds one of its blocks. The idle segments serve no
 * other stream: the pool's next request releases them. */
START_TEST(idle_segments_beside_held_blocks) {
    size_t reserved;
    make_streams();
    accel_pool_id_t pool = open_pool(0);
    void *held = alloc(MIB, own), *idle = alloc(30 * MIB, own), *late = alloc(2 * MIB, own);
    ck_assert_int_eq(accel_raw_delete(idle), ACCEL_OK);
    ck_assert_int_eq(cuStreamDestroy_v2(own), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(late), ACCEL_OK);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(accel_raw_delete(alloc(MIB, other)), ACCEL_OK);
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &reserved, NULL), ACCEL_OK);
    ck_assert_uint_eq(reserved, 4 * MIB); /* the held block's segment, and the other stream's */
    ck_assert_int_eq(accel_raw_delete(held), ACCEL_OK);
    end_and_release(pool);
    nothing_left();
}
END_TEST

/* A late free gives memory back to the cache, and a request that was short of memory gets it. */
START_TEST(memory_of_the_cache) {
    make_streams();
    void *block = alloc((size_t)100 * MIB, own);
    begin_capture(own);
    accel_raw_deleter()(block);
    ck_assert_int_eq(late_frees(), 1);
    end_capture(own);
    by_shortage();
    nothing_left();
}
END_TEST

/* Creates late frees of the driver's memory, which wait for work of `own`. That stream is held. */
static void make_late(void **block, int count, size_t bytes) {
    make_streams();
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    void *held = alloc(512, own);
    for (int i = 0; i < count; i++) {
        block[i] = alloc(bytes, own);
        ck_assert_int_eq(accel_record_stream(block[i], other), ACCEL_OK);
    }
    begin_capture(other);
    for (int i = 0; i < count; i++)
        accel_raw_deleter()(block[i]);
    end_capture(other);
    ck_assert_int_eq(late_frees(), count);
    hold(own);
    use(held, 512, own);
}

/* The driver reports no context IDs. Another context may have the old address, so the library frees nothing late,
 * and the program keeps the block. */
START_TEST(before_contexts_had_numbers) {
    make_streams();
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    void *block = alloc(2 * MIB, own);
    ck_assert_int_eq(accel_record_stream(block, other), ACCEL_OK);
    begin_capture(other);
    accel_raw_deleter()(block);
    ck_assert_int_eq(late_frees(), 0);
    end_capture(other);
    for (int i = 0; i < 3; i++)
        brings[i]();
    ck_assert(exists(block));
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert(!exists(block));
}
END_TEST

/* If a late free fails, the library prints one line on stderr, once. */
START_TEST(late_frees_that_fail) {
    static const char wanted[] = "2097152 bytes of device 0 that were to be freed after other work could not be (";
    static char said[4096];
    void *block[2];
    make_late(block, 2, 2 * MIB);
    let_go(other);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    char path[] = "/tmp/late.XXXXXX"; /* opened like a daemon's log, for appending only */
    int lines = mkstemp(path), end = open(path, O_WRONLY | O_APPEND);
    unlink(path);
    ck_assert(end >= 0 && dup2(end, STDERR_FILENO) == STDERR_FILENO);
    ck_assert_int_eq(simcuda_fail("cuMemFree_v2>=1=999"), 0);
    by_trim();
    simcuda_clear_faults();
    ck_assert_int_ge(read(lines, said, sizeof said - 1), 0);
    const char *line = strstr(said, wanted);
    ck_assert_msg(line && !strstr(line + 1, wanted), "said: %s", said);
    by_trim();
    ck_assert(exists(block[0]) && exists(block[1])); /* not tried again */
}
END_TEST

/* A request or free checks only a few late frees, in turn, so that each is executed at some time. */
START_TEST(few_at_a_time) {
    enum { MANY = 400 };
    static void *block[MANY];
    make_late(block, MANY, 512);
    by_free();
    let_go(other);
    int before = MANY, calls = 0;
    for (; before && calls < 4 * MANY; calls++) {
        int left = 0;
        by_free();
        for (int i = 0; i < MANY; i++)
            left += exists(block[i]);
        ck_assert_int_le(before - left, 4);
        before = left;
    }
    ck_assert_int_eq(before, 0);
    ck_assert_int_ge(calls, MANY / 4);
}
END_TEST

static void free_late(void **block, int count) {
    begin_capture(other);
    for (int i = 0; i < count; i++)
        accel_raw_deleter()(block[i]);
    end_capture(other);
}

static int remaining(void **block, int count) {
    int left = 0;
    for (int i = 0; i < count; i++)
        left += exists(block[i]);
    return left;
}

/* Late frees with running work do not delay the others. */
START_TEST(late_frees_beside_work) {
    enum { MANY = 12 };
    void *done[MANY], *busy[MANY], *held;
    make_late(done, MANY, 512);
    held = alloc(512, own);
    for (int i = 0; i < MANY; i++) {
        busy[i] = alloc(512, other);
        ck_assert_int_eq(accel_record_stream(busy[i], own), ACCEL_OK);
        by_free(); /* the first frees have to wait for the new work */
    }
    let_go(other);
    free_late(busy, MANY);
    hold(own);
    use(held, 512, own);
    for (int i = 0; i < MANY; i++)
        by_free();
    ck_assert_int_eq(remaining(done, MANY), 0);
    ck_assert_int_eq(remaining(busy, MANY), MANY);
    let_go(other);
}
END_TEST

/* A trim waits for one late free and only queries the others. */
START_TEST(one_wait_for_many) {
    enum { MANY = 8 };
    void *block[MANY];
    make_late(block, 1, 512);
    simcuda_reset_calls();
    by_trim();
    unsigned long long calls = simcuda_calls_total();
    for (int i = 1; i < MANY; i++) {
        block[i] = alloc(512, other);
        ck_assert_int_eq(accel_record_stream(block[i], own), ACCEL_OK);
    }
    free_late(&block[1], MANY - 1);
    simcuda_reset_calls();
    by_trim();
    ck_assert_uint_lt(simcuda_calls_total(), 2 * calls);
    ck_assert_int_eq(remaining(block, MANY), MANY);
    let_go(other);
}
END_TEST

/* The program's allocator calls the driver under its own lock. */
static pthread_mutex_t program_lock;
static void *locked_alloc(size_t bytes, int device, void *stream) {
    CUdeviceptr pointer;
    (void)device;
    (void)stream;
    ck_assert_int_eq(pthread_mutex_lock(&program_lock), 0);
    CUresult result = cuMemAlloc_v2(&pointer, bytes);
    pthread_mutex_unlock(&program_lock);
    return result == CUDA_SUCCESS ? (void *)(uintptr_t)pointer : NULL;
}
static void locked_free(void *pointer, size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream;
    freed++;
    ck_assert_int_eq(pthread_mutex_lock(&program_lock), 0); /* EDEADLK if this thread held the lock */
    ck_assert_int_eq(cuMemFree_v2(address_of(pointer)), CUDA_SUCCESS);
    pthread_mutex_unlock(&program_lock);
}

/* No driver call of the program calls its free_fn. The cache is on if _i is 1. */
START_TEST(locks_of_the_program) {
    const accel_allocator_t functions = {
        .size = sizeof functions, .alloc_fn = locked_alloc, .free_fn = locked_free};
    pthread_mutexattr_t checks;
    accel_pool_id_t pool;
    pthread_mutexattr_init(&checks);
    pthread_mutexattr_settype(&checks, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&program_lock, &checks);
    make_streams();
    ck_assert_int_eq(accel_enable(_i), ACCEL_OK);
    ck_assert_int_eq(accel_pool_create(ACCEL_POOL_NO_SPLIT, &functions, &pool), ACCEL_OK);
    begin(pool, 0);
    void *block = alloc((size_t)100 * MIB, own);
    hold(own);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(cuStreamDestroy_v2(own), CUDA_SUCCESS);
    end_and_release(pool);
    ck_assert_int_eq(late_frees(), 1);
    let_go(other);
    ck_assert_ptr_null(locked_alloc((size_t)1000 * MIB, 0, NULL));
    ck_assert_int_eq(freed, 0);
    by_trim();
    ck_assert_int_eq(freed, 1);
    by_shortage();
}
END_TEST

/* A pool's request that would otherwise fail waits for work on another stream's segment. The driver frees such a
 * segment at once. */
START_TEST(requests_wait_for_late_frees) {
    make_streams();
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    accel_pool_id_t pool = open_pool(0);
    void *block = alloc((size_t)600 * MIB, own);
    use(block, 64 * MIB, own);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(cuStreamQuery(own), CUDA_ERROR_NOT_READY);
    block = alloc((size_t)600 * MIB, other);
    ck_assert_int_eq(late_frees(), 1);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    end_and_release(pool);
}
END_TEST

/* The argument "old" selects a driver older than CUDA 12. */
int main(int argc, char **argv) {
    const TTest *const old[] = {before_contexts_had_numbers, NULL};
    const TTest *const tests[] = {deleters_on_capturing_streams,
                                  contexts_that_end,
                                  memory_of_the_cache,
                                  few_at_a_time,
                                  late_frees_beside_work,
                                  one_wait_for_many,
                                  late_frees_that_fail,
                                  segments_of_the_driver,
                                  segments_of_streams_that_have_gone,
                                  segments_of_other_threads,
                                  idle_segments_beside_held_blocks,
                                  requests_wait_for_late_frees,
                                  NULL};
    if (argc == 2 && !strcmp(argv[1], "old"))
        return run_suite(suite_of("late", old));
    Suite *suite = suite_of("late", tests);
    TCase *loops = tcase_create("loops");
    tcase_add_loop_test(loops, deleters_in_captures, 0, BRINGS);
    tcase_add_loop_test(loops, locks_of_the_program, 0, 2);
    suite_add_tcase(suite, loops);
    return run_suite(suite);
}
