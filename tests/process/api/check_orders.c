/* Stream order of frees that handles alone do not decide: default streams of threads and contexts, memory of destroyed
 * contexts, and blocks that another call frees. */
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define PER_THREAD CU_STREAM_PER_THREAD

/* Runs the body in a thread with device 0's primary context current, and joins the thread. */
static void in_thread(void *(*body)(void *), void *arg) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, body, arg), 0);
    pthread_join(thread, NULL);
}

static void let_go_for_good(CUstream stream) {
    let_go(stream);
    ck_assert_int_eq(cuMemFree_v2(flag), CUDA_SUCCESS);
    flag = 0;
}

static void *ask_per_thread(void *out) {
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    *(void **)out = alloc(MIB, PER_THREAD);
    return NULL;
}

/* Frees the block, then requests 100 blocks of its size. None of them has its address. */
static void *free_and_ask(void *block) {
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    use(*(void **)block, 512, PER_THREAD); /* the thread's own default stream, which is idle */
    ck_assert_int_eq(accel_raw_delete(*(void **)block), ACCEL_OK);
    for (int i = 0; i < 100; i++)
        ck_assert_ptr_ne(alloc(MIB, PER_THREAD), *(void **)block);
    return NULL;
}

/* Handle 2 names another stream in each thread. */
START_TEST(per_thread_in_pools) {
    CUstream other = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *mine = alloc(MIB, PER_THREAD), *theirs, *again;
    hold(PER_THREAD);
    use(mine, MIB, PER_THREAD);
    ck_assert_int_eq(accel_raw_delete(mine), ACCEL_OK);
    in_thread(ask_per_thread, &theirs);
    ck_assert_ptr_ne(theirs, mine);
    again = alloc(MIB, PER_THREAD); /* in this stream's order the block is reusable at once */
    ck_assert_ptr_eq(again, mine);
    let_go_for_good(other);
    ck_assert_int_eq(accel_raw_delete(again), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(theirs), ACCEL_OK);
    end_and_release(pool);
    nothing_left();
}
END_TEST

static size_t reserved(accel_pool_id_t pool) {
    size_t bytes;
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &bytes, NULL), ACCEL_OK);
    return bytes;
}

static void *ask_and_free(void *out) {
    *(void **)out = NULL;
    ask_per_thread(out);
    ck_assert_int_eq(accel_raw_delete(*(void **)out), ACCEL_OK);
    return NULL;
}

static void *ask_hold_and_free(void *out) {
    ask_per_thread(out);
    hold(PER_THREAD);
    use(*(void **)out, MIB, PER_THREAD);
    ck_assert_int_eq(accel_raw_delete(*(void **)out), ACCEL_OK);
    return NULL;
}

/* A pool reuses memory that an ended thread or stream left, after the device has completed its work. */
START_TEST(ended_streams_in_pools) {
    enum { TIMES = 40 };
    CUstream other = new_stream(0), stream;
    void *block, *held, *next;
    accel_pool_id_t pool = open_pool(0);
    for (int i = 0; i < TIMES; i++) {
        in_thread(ask_and_free, &block);
        ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    }
    ck_assert_uint_le(reserved(pool), 6 * MIB);
    for (int i = 0; i < TIMES; i++) {
        stream = new_stream(0);
        block = alloc(MIB, stream);
        ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
        ck_assert_int_eq(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    }
    ck_assert_uint_le(reserved(pool), 6 * MIB);

    in_thread(ask_hold_and_free, &held);
    for (int i = 0; i < TIMES; i++) {
        in_thread(ask_and_free, &next);
        ck_assert_ptr_ne(next, held);
    }
    let_go_for_good(other);
    size_t before = reserved(pool);
    in_thread(ask_and_free, &next);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    for (int i = 0; i < TIMES; i++) {
        in_thread(ask_and_free, &next);
        ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    }
    ck_assert_uint_eq(reserved(pool), before);

    /* The block outlives its thread, and its free waits for the device. */
    in_thread(ask_per_thread, &block);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    end_and_release(pool);
    nothing_left();
}
END_TEST

static void *ask_two_per_thread(void *out) {
    ask_per_thread(out);
    return ask_per_thread((void **)out + 1);
}

/* Blocks outlive their stream, or the thread of their default stream. No stream's order protects their frees, so each
 * free waits for all work. Until then, the rest of the segment serves no other stream. */
START_TEST(blocks_outlive_their_stream) {
    enum { TIMES = 4 };
    CUstream stream = new_stream(0), late = new_stream(0), next = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *left[2], *held[2], *other[TIMES];
    if (_i)
        in_thread(ask_two_per_thread, left);
    for (int i = 0; i < 2 && !_i; i++)
        left[i] = alloc(MIB, stream);
    void *free = left[0], *waits = left[1];
    ck_assert_ptr_eq((char *)free + MIB, waits); /* of one segment */
    ck_assert_int_eq(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(free), ACCEL_OK);
    for (int i = 0; i < 2;
         i++) { /* the pool notices that the stream is destroyed and its work has completed */
        held[i] = alloc(MIB, late);
        ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
    }
    hold(late);
    use(waits, MIB, late);
    ck_assert_int_eq(accel_raw_delete(waits), ACCEL_OK);
    for (int i = 0; i < TIMES; i++) {
        other[i] = alloc(MIB, next);
        ck_assert(other[i] != free && other[i] != waits);
    }
    size_t before = reserved(pool);
    let_go_for_good(next);
    for (int i = 0; i < TIMES; i++)
        ck_assert_int_eq(accel_raw_delete(other[i]), ACCEL_OK);
    for (int i = 0; i < TIMES; i++)
        other[i] = alloc(MIB, late);
    ck_assert_uint_le(reserved(pool), before + TIMES * MIB);
    for (int i = 0; i < TIMES; i++)
        ck_assert_int_eq(accel_raw_delete(other[i]), ACCEL_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(accel_raw_delete(held[i]), ACCEL_OK);
    end_and_release(pool);
    nothing_left();
}
END_TEST

START_TEST(per_thread_in_the_cache) {
    CUstream other = new_stream(0);
    void *mine = alloc(MIB, PER_THREAD);
    hold(PER_THREAD);
    use(mine, MIB, PER_THREAD);
    in_thread(free_and_ask, &mine);
    let_go(other);
}
END_TEST

/* The default stream of one context does not order work of another context's. Pools belong to the primary context. */
START_TEST(contexts_of_a_device) {
    CUstream other = new_stream(0);
    CUcontext primary, second;
    ck_assert_int_eq(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
    ck_assert_int_eq(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
    ck_assert_int_eq(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    accel_pool_id_t pool = open_pool(0);
    void *pooled = alloc(MIB, NULL);
    ck_assert_uint_eq(info_of(pooled).pool.second, pool.second);
    hold(NULL);
    use(pooled, MIB, NULL);
    ck_assert_int_eq(accel_raw_delete(pooled), ACCEL_OK);
    ck_assert_int_eq(cuCtxSetCurrent(second), CUDA_SUCCESS);
    void *outside = alloc(MIB, NULL);
    ck_assert_ptr_ne(outside, pooled);
    ck_assert_uint_eq(info_of(outside).pool.second, 0);
    ck_assert_int_eq(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    let_go(other);
    ck_assert_int_eq(accel_raw_delete(outside), ACCEL_OK);
    end_and_release(pool);

    void *plain = alloc(MIB, NULL), *next;
    hold(NULL);
    use(plain, MIB, NULL);
    ck_assert_int_eq(cuCtxSetCurrent(second), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(plain), ACCEL_OK);
    ck_assert_int_eq(accel_malloc(&next, MIB), ACCEL_OK);
    ck_assert_ptr_ne(next, plain);
    ck_assert_int_eq(accel_free(next), ACCEL_OK);
    ck_assert_int_eq(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_alloc(&next, MIB), ACCEL_OK);
    ck_assert_ptr_ne(next, plain);
    let_go_for_good(other);
    ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
    ck_assert_int_eq(cuCtxDestroy_v2(second), CUDA_SUCCESS);
    nothing_left();
}
END_TEST

/* cudaDeviceReset destroys everything on the device, and the API still works. */
START_TEST(resets) {
    new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    accel_checkpoint_t *checkpoint;
    size_t reserved, allocated;
    void *held = alloc(MIB, NULL), *freed = alloc(MIB, NULL), *next;
    ck_assert_int_eq(accel_get_checkpoint_state(0, pool, &checkpoint), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(freed), ACCEL_OK);
    ck_assert_int_eq(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &reserved, &allocated), ACCEL_OK);
    ck_assert_uint_eq(reserved + allocated, 0);
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(held), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(accel_set_checkpoint_pool_state(checkpoint, NULL), ACCEL_ERROR_INVALID);
    accel_release_checkpoint_state(checkpoint);
    for (int i = 0; i < 2; i++) {
        next = alloc(MIB, NULL);
        ck_assert_int_eq(cuMemsetD8_v2(address_of(next), 1, MIB), CUDA_SUCCESS);
        ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
    }
    end_and_release(pool);
    nothing_left();
}
END_TEST

/* The driver serves these blocks: the cache is off, or the context comes from cuCtxCreate. */
static void left_to_the_driver(void) {
    CUstream own, other;
    ck_assert_int_eq(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ck_assert_int_eq(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    unsigned char byte = 0, *block = alloc(3000, own);
    accel_pointer_info_t info = info_of(block + 2999);
    ck_assert_ptr_eq(info.base, block);
    ck_assert_uint_eq(info.bytes, 3000);
    ck_assert(info.ordered && info.stream == own);
    ck_assert_int_eq(accel_pointer_info(block + 3000, &info), ACCEL_ERROR_NOT_OURS);
    ck_assert_int_eq(cuMemsetD8Async(address_of(block), 7, 3000, other), CUDA_SUCCESS);
    ck_assert_int_eq(cuMemcpyDtoHAsync_v2(&byte, address_of(block), 1, other), CUDA_SUCCESS);
    ck_assert_int_eq(accel_record_stream(block + 100, other), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(cuStreamQuery(other), CUDA_SUCCESS); /* the free waited for this stream */
    ck_assert_int_eq(byte, 7);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_ERROR_NOT_OURS);

    /* A synchronisation would break a capture: the block stays allocated until the capture ends. */
    CUgraph graph = NULL;
    block = alloc(3000, own);
    ck_assert_int_eq(accel_record_stream(block, other), ACCEL_OK);
    ck_assert_int_eq(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_ERROR_BUSY);
    ck_assert_int_eq(cuStreamEndCapture(other, &graph), CUDA_SUCCESS);
    ck_assert_ptr_eq(info_of(block).stream, own);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_ERROR_NOT_OURS);
}

START_TEST(memory_of_the_driver) {
    CUcontext second;
    ck_assert_int_eq(accel_set_device(0), ACCEL_OK);
    ck_assert_int_eq(accel_enable(0), ACCEL_OK);
    left_to_the_driver();
    ck_assert_int_eq(accel_enable(1), ACCEL_OK);
    ck_assert_int_eq(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
    left_to_the_driver();
}
END_TEST

/* Other calls may free raw memory too. The next block at the address does not inherit the stream. */
START_TEST(freed_by_other_calls) {
    CUstream own = new_stream(0), other = new_stream(0);
    for (int way = 0; way < 4; way++) {
        void *raw = alloc(MIB, own), *next;
        if (way == 0)
            ck_assert_int_eq(accel_free(raw), ACCEL_OK);
        else if (way == 1)
            ck_assert_int_eq(cuMemFree_v2(address_of(raw)), CUDA_SUCCESS);
        else
            ck_assert_int_eq(accel_free_async(raw, own), ACCEL_OK);
        ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
        ck_assert_int_eq(accel_empty_cache(), ACCEL_OK); /* the next block gets this address too */
        bool ordered = way >= 3;
        if (ordered)
            ck_assert_int_eq(accel_malloc_async(&next, MIB, other), ACCEL_OK);
        else
            ck_assert_int_eq(accel_malloc(&next, MIB), ACCEL_OK);
        ck_assert_ptr_eq(next, raw);
        ck_assert(info_of(next).ordered == ordered && !info_of(next).stream);
        hold(other);
        use(next, MIB, other);
        ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
        raw = alloc(MIB, own);
        ck_assert_ptr_ne(raw, next);
        let_go_for_good(own);
        ck_assert_int_eq(accel_raw_delete(raw), ACCEL_OK);
        nothing_left();
    }
}
END_TEST

/* accel_free and accel_free_async free memory of pools like accel_raw_delete. CUDA's own calls do not. */
START_TEST(pools_freed_by_other_calls) {
    CUstream own = new_stream(0), other = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *first = alloc(MIB, own), *inner = alloc(512, own), *next;
    ck_assert_int_eq(cuMemFree_v2(address_of(first)), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemFree_v2(address_of(inner)), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemFreeAsync(address_of(first), own), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(accel_malloc(&next, 2 * MIB), ACCEL_OK);
    ck_assert_ptr_ne(next, first);
    ck_assert_int_eq(accel_free(next), ACCEL_OK);
    ck_assert_int_eq(accel_free((char *)inner + 1), ACCEL_ERROR_INTERIOR);
    ck_assert_int_eq(accel_free(inner), ACCEL_OK);
    ck_assert_int_eq(accel_free(inner), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_free(first), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(first), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_ptr_eq(alloc(MIB, own), first); /* still the pool's block */
    hold(other);
    use(first, MIB, other);
    ck_assert_int_eq(accel_free_async(first, other), ACCEL_OK);
    next = alloc(MIB, own);
    ck_assert_ptr_ne(next, first);
    let_go_for_good(own);
    ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
    end_and_release(pool);
    nothing_left();
}
END_TEST

/* A green context shares the memory of the primary one: requests go to pools while its view is current. Its default
 * stream differs from the primary's, but has the same handle. */
static CUcontext green_view(void) {
    CUgreenCtx green;
    CUcontext view;
    CUdevResourceDesc desc;
    unsigned long long processors[64]; /* larger than the structure of the ABI */
    ck_assert_int_eq(cuDeviceGetDevResource(0, (CUdevResource *)(void *)processors, 1),
                     CUDA_SUCCESS);
    ck_assert_int_eq(cuDevResourceGenerateDesc(&desc, (CUdevResource *)(void *)processors, 1),
                     CUDA_SUCCESS);
    ck_assert_int_eq(cuGreenCtxCreate(&green, desc, 0, 1), CUDA_SUCCESS);
    ck_assert_int_eq(cuCtxFromGreenCtx(&view, green), CUDA_SUCCESS);
    return view;
}

START_TEST(pools_in_green_contexts) {
    CUcontext primary;
    size_t reserved;
    CUstream own = new_stream(0);
    ck_assert_int_eq(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
    CUcontext view = green_view();
    accel_pool_id_t pool = open_pool(0);
    ck_assert_int_eq(cuCtxSetCurrent(view), CUDA_SUCCESS);
    void *block = alloc(MIB, NULL);
    ck_assert_uint_eq(info_of(block).pool.second, pool.second);
    hold(NULL);
    use(block, MIB, NULL);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    void *next = alloc(MIB, NULL);
    ck_assert_ptr_ne(next, block);
    ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
    let_go_for_good(own);
    block = alloc(MIB, NULL), next = alloc(MIB, NULL); /* the work has completed: both blocks are reusable */
    ck_assert_int_eq(accel_pool_bytes(pool, 0, &reserved, NULL), ACCEL_OK);
    ck_assert_uint_eq(reserved, 2 * MIB);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
    end_and_release(pool);
    nothing_left();
}
END_TEST

/* Memory was freed on the primary context's default stream before the first green context existed. */
START_TEST(pools_before_green_contexts) {
    CUcontext primary;
    CUstream own = new_stream(0);
    ck_assert_int_eq(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
    accel_pool_id_t pool = open_pool(0), rescue = {0, 0};
    void *block = alloc(MIB, NULL), *rescuer = NULL, *next;
    hold(NULL);
    use(block, MIB, NULL);
    ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
    if (_i) { /* through ACCEL_POOL_USE_ON_OOM */
        ck_assert_int_eq(accel_end_allocate_to_pool(0, pool), ACCEL_OK);
        rescue = new_pool(ACCEL_POOL_USE_ON_OOM);
        begin(rescue, 0);
        rescuer = alloc((size_t)600 * MIB, NULL);
        use(rescuer, MIB, NULL);
        ck_assert_int_eq(accel_raw_delete(rescuer), ACCEL_OK);
        ck_assert_int_eq(accel_end_allocate_to_pool(0, rescue), ACCEL_OK);
    }
    ck_assert_int_eq(cuCtxSetCurrent(green_view()), CUDA_SUCCESS);
    if (_i) {
        ck_assert_int_eq(accel_raw_alloc_with_stream(&next, (size_t)500 * MIB, NULL),
                         ACCEL_ERROR_DEVICE_MEMORY);
    } else {
        next = alloc(MIB, NULL);
        ck_assert_ptr_ne(next, block);
        ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
    }
    let_go_for_good(own);
    if (_i) {
        next = alloc((size_t)500 * MIB, NULL);
        ck_assert_ptr_eq(next, rescuer);
        ck_assert_int_eq(accel_raw_delete(next), ACCEL_OK);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(accel_pool_release(rescue), ACCEL_OK);
        begin(pool, 0);
        ck_assert_int_eq(accel_pool_release(pool), ACCEL_OK);
    } else {
        void *blocks[4];
        for (int i = 0; i < 4; i++)
            blocks[i] = alloc(MIB, NULL); /* the work has completed: the block is reusable */
        ck_assert_uint_eq(reserved(pool), 4 * MIB);
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(accel_raw_delete(blocks[i]), ACCEL_OK);
    }
    ck_assert_int_eq(cuCtxSetCurrent(primary), CUDA_SUCCESS);
    end_and_release(pool);
    nothing_left();
}
END_TEST

/* An unknown stream is refused, as by CUDA's calls. The block stays allocated, and nothing becomes slower. */
START_TEST(pools_and_unknown_streams) {
    char *json;
    CUstream own = new_stream(0), gone = new_stream(0);
    accel_pool_id_t pool = open_pool(0);
    void *block = alloc(MIB, own), *plain;
    ck_assert_int_eq(accel_malloc(&plain, MIB), ACCEL_OK);
    ck_assert_int_eq(cuStreamDestroy_v2(gone), CUDA_SUCCESS);
    ck_assert_int_eq(accel_free_async(block, gone), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_record_stream(block, gone), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_record_stream(plain, gone), ACCEL_ERROR_INVALID);
    ck_assert_int_eq(accel_free_async((char *)block + 512, own), ACCEL_ERROR_INTERIOR);
    ck_assert_ptr_eq(info_of(block).stream, own);
    ck_assert_int_eq(accel_free_async(block, own), ACCEL_OK);
    ck_assert_int_eq(accel_free_async(block, own), ACCEL_ERROR_DOUBLE_FREE);
    ck_assert_int_eq(accel_stats_json(&json), ACCEL_OK);
    ck_assert_msg(strstr(json, "\"untracked_submissions\": 0") ||
                      strstr(json, "\"untracked_submissions\":0"),
                  "the stream counts as one with work");
    free(json);
    ck_assert_int_eq(accel_free(plain), ACCEL_OK);
    end_and_release(pool);
    nothing_left();
}
END_TEST

/* The library does not retain the primary context. Only the program does. */
START_TEST(primary_is_not_retained) {
    CUcontext primary;
    unsigned flags;
    int active = 0;
    ck_assert_int_eq(cuInit(0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) { /* the pool forgets the first context */
        ck_assert_int_eq(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
        ck_assert_int_eq(cuCtxSetCurrent(primary), CUDA_SUCCESS);
        accel_pool_id_t pool = open_pool(0);
        void *block = alloc(MIB, NULL);
        ck_assert_uint_eq(info_of(block).pool.second, pool.second);
        ck_assert_int_eq(accel_raw_delete(block), ACCEL_OK);
        end_and_release(pool);
        ck_assert_int_eq(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        ck_assert_int_eq(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
        ck_assert_int_eq(active, 0);
    }
}
END_TEST

int main(void) {
    const TTest *const tests[] = {per_thread_in_pools,
                                  ended_streams_in_pools,
                                  per_thread_in_the_cache,
                                  contexts_of_a_device,
                                  resets,
                                  memory_of_the_driver,
                                  freed_by_other_calls,
                                  pools_freed_by_other_calls,
                                  pools_in_green_contexts,
                                  pools_and_unknown_streams,
                                  primary_is_not_retained,
                                  NULL};
    Suite *suite = suite_of("orders", tests);
    TCase *greens = tcase_create("greens");
    tcase_add_loop_test(greens, pools_before_green_contexts, 0, 2);
    tcase_add_loop_test(greens, blocks_outlive_their_stream, 0, 2);
    suite_add_tcase(suite, greens);
    return run_suite(suite);
}
