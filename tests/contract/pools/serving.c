/* Requests that the library serves from pools, and the answers of those pools. */
#include <pthread.h>

#include "pools.h"

/* cuda.core (DeviceMemoryResource): it raises the threshold of the device's pool, and names the
 * pool in each request. */
static void cuda_core(void) {
    CUmemoryPool pool;
    CUstream stream = test_stream();
    CUdeviceptr memory[8] = {0};
    MUST(cuDeviceGetMemPool(&pool, 0));
    if (!figure(pool, THRESHOLD))
        set_figure(pool, THRESHOLD, UINT64_MAX);
    EXPECT(figure(pool, THRESHOLD) == UINT64_MAX);
    for (int i = 0; i < 400; i++) {
        CUdeviceptr *slot = &memory[i % 8];
        if (*slot)
            give(*slot, stream);
        *slot = take((size_t)(i * 997 % 300 + 1) << 10, pool, stream);
        EXPECT(pool_of(*slot) == pool);
        use(*slot, stream);
    }
    OURS(taken() == 400);
    OURS(simcuda_calls("cuMemAllocFromPoolAsync") == 0);
    PASSED(NULL, 0);
}

/* numba-cuda (_memory_pool.pyx) keeps the threshold to set it again, Open MPI asks for access, and
 * all kinds of programs look at figures and the switches. */
static void looked_at(void) {
    CUmemoryPool pool = default_pool(0);
    CUstream stream = test_stream();
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemAccess_flags flags;
    int on = 0;
    cuuint64_t before = figure(pool, THRESHOLD);
    set_figure(pool, THRESHOLD, UINT64_MAX);
    CUdeviceptr memory = take(MIB, pool, stream);
    MUST(cuMemPoolGetAccess(&flags, pool, &here));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
    EXPECT(on);
    set_switch(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
    EXPECT(figure(pool, USED) == MIB);
    MUST(cuMemPoolTrimTo(pool, 0));
    give(memory, stream);
    set_figure(pool, THRESHOLD, before);
    EXPECT(figure(pool, THRESHOLD) == before);
    give(take(MIB, NULL, stream), stream);
    give(take(MIB, pool, stream), stream);
    OURS(taken() == 3);
    PASSED(NULL, 0);
}

/* --- figures: a model of the driver's meaning, over random operations --- */

enum { POOLS = 3, BLOCKS = 24 };

typedef struct {
    CUmemoryPool pool;
    cuuint64_t used, used_high, held, held_high, threshold;
} model_t;

static unsigned dice(unsigned sides) {
    static unsigned state = 12345;
    state = state * 1664525 + 1013904223;
    return (state >> 8) % sides;
}

static cuuint64_t larger(cuuint64_t a, cuuint64_t b) {
    return a > b ? a : b;
}

static void come_down(model_t *model, cuuint64_t least) {
    if (model->held > least)
        model->held = larger(model->used, least);
}

static void judge(const model_t *model) {
    EXPECT(figure(model->pool, USED) == model->used);
    EXPECT(figure(model->pool, USED_HIGH) == model->used_high);
    EXPECT(figure(model->pool, THRESHOLD) == model->threshold);
    cuuint64_t held = figure(model->pool, HELD);
    EXPECT(held >= model->used && held <= figure(model->pool, HELD_HIGH));
    OURS(held == model->held); /* the driver alone reserves in steps */
    OURS(figure(model->pool, HELD_HIGH) == model->held_high);
}

static void synchronise(model_t model[POOLS], CUstream stream, CUevent event) {
    unsigned how = dice(3);
    if (how == 0)
        MUST(cuStreamSynchronize(stream));
    else if (how == 1)
        MUST(cuEventSynchronize(event));
    else
        MUST(cuCtxSynchronize());
    for (int i = 0; i < POOLS; i++)
        come_down(&model[i], model[i].threshold);
}

static void figures(void) {
    struct {
        CUdeviceptr at;
        size_t bytes;
        model_t *of;
    } block[BLOCKS] = {{0}};
    model_t model[POOLS] = {
        {.pool = default_pool(0)}, {.pool = pool_plain()}, {.pool = pool_plain()}};
    CUstream stream = test_stream();
    CUevent event;
    MUST(cuEventCreate(&event, 0));
    for (int step = 0; step < 4000; step++) {
        model_t *m = &model[dice(POOLS)];
        unsigned i = dice(BLOCKS), what = dice(40);
        if (what < 3) {
            synchronise(model, stream, event);
        } else if (what == 3) {
            set_figure(m->pool, THRESHOLD, m->threshold = dice(2) ? dice(64) * MIB : 0);
        } else if (what == 4) {
            set_figure(m->pool, USED_HIGH, 0);
            m->used_high = m->used;
        } else if (what == 5) {
            set_figure(m->pool, HELD_HIGH, 0);
            m->held_high = m->held;
        } else if (what == 6) {
            size_t least = dice(2) * dice(32) * MIB;
            MUST(cuMemPoolTrimTo(m->pool, least));
            come_down(m, least);
        } else if (block[i].at) {
            MUST(dice(4) ? cuMemFreeAsync(block[i].at, stream) : cuMemFree_v2(block[i].at));
            block[i].of->used -= (block[i].bytes + UNIT - 1) / UNIT * UNIT;
            block[i].at = 0;
            m = block[i].of;
        } else {
            block[i].bytes = 1 + dice(dice(2) ? 5000 : 3 << 20);
            block[i].at = take(block[i].bytes, m == model ? NULL : m->pool, stream);
            block[i].of = m;
            EXPECT(pool_of(block[i].at) == m->pool);
            m->used += (block[i].bytes + UNIT - 1) / UNIT * UNIT;
            m->used_high = larger(m->used_high, m->used);
            m->held = larger(m->held, m->used);
            m->held_high = larger(m->held_high, m->held);
        }
        judge(m);
    }
    cuuint64_t one = 1;
    GIVES(cuMemPoolSetAttribute(model->pool, USED_HIGH, &one), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemPoolSetAttribute(model->pool, USED, &one), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < POOLS; i++)
        judge(&model[i]);
    PASSED(NULL, 0);
}

/* Requests in a stream of another context go to the driver, so both sides serve one pool in turns. Peaks
 * are those of the sum. The peak of used bytes is exact. */
static void both(void) {
    struct {
        CUdeviceptr at;
        size_t bytes;
        CUstream stream;
    } block[BLOCKS] = {{0}};
    CUmemoryPool pool = pool_plain();
    CUstream stream[2] = {test_stream()};
    CUcontext made;
    cuuint64_t used = 0, high = 0;
    MUST(cuCtxCreate_v2(&made, 0, 0));
    stream[1] = test_stream();
    MUST(cuCtxSetCurrent(context));
    for (int step = 0; step < 3000; step++) {
        unsigned i = dice(BLOCKS), what = dice(30);
        if (what == 0) {
            set_figure(pool, USED_HIGH, 0);
            high = used;
        } else if (what == 1) {
            MUST(cuMemPoolTrimTo(pool, dice(8) * MIB));
        } else if (what < 4) {
            for (int k = 0; k < 2; k++)
                MUST(cuStreamSynchronize(stream[k]));
        } else if (block[i].at) {
            MUST(dice(4) ? cuMemFreeAsync(block[i].at, block[i].stream)
                         : cuMemFree_v2(block[i].at));
            used -= (block[i].bytes + UNIT - 1) / UNIT * UNIT;
            block[i].at = 0;
        } else {
            block[i].bytes = 1 + dice(dice(2) ? 5000 : 3 << 20);
            block[i].stream = stream[dice(8) < 3];
            block[i].at = take(block[i].bytes, pool, block[i].stream);
            used += (block[i].bytes + UNIT - 1) / UNIT * UNIT;
            high = larger(high, used);
        }
        EXPECT(figure(pool, USED) == used && figure(pool, USED_HIGH) == high);
        EXPECT(figure(pool, HELD_HIGH) >= figure(pool, HELD) && figure(pool, HELD) >= used);
    }
    OURS(passed("context") > 100 && taken() > 100);
}

/* From one moment on the driver serves all requests of the pool. */
static void handed_over(void) {
    CUmemoryPool pool = pool_plain();
    CUstream stream = test_stream();
    CUdeviceptr a = take(8 * MIB, pool, stream);
    give(a, stream);
    MUST(cuStreamSynchronize(stream));
    set_switch(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
    a = take(8 * MIB, pool, stream);
    EXPECT(figure(pool, USED_HIGH) == 8 * MIB);
    give(a, stream);
    EXPECT(figure(pool, USED_HIGH) == 8 * MIB);
    EXPECT(figure(pool, HELD_HIGH) ==
           32 * MIB); /* one step of the driver; the library holds nothing by now */
    set_figure(pool, USED_HIGH, 0);
    set_figure(pool, HELD_HIGH, 0);
    EXPECT(figure(pool, USED_HIGH) == 0);
    EXPECT(figure(pool, HELD_HIGH) == figure(pool, HELD));
    PASSED("reuse", 1);
}

/* Idle memory in the library and in the driver: after a trim `least` of their sum is left. */
static void trimmed(void) {
    enum { PART = 64 };
    static const size_t leasts[] = {2 * PART, PART, 0};
    CUmemoryPool pool = pool_plain();
    CUcontext made;
    CUstream stream = test_stream();
    MUST(cuCtxCreate_v2(&made, 0, 0));
    CUstream other = test_stream();
    MUST(cuCtxSetCurrent(context));
    set_figure(pool, THRESHOLD, UINT64_MAX);
    CUdeviceptr a = take(PART * MIB, pool, stream), b = take(PART * MIB, pool, other);
    give(a, stream);
    give(b, other);
    for (int i = 0; i < 2; i++)
        MUST(cuStreamSynchronize(i ? other : stream));
    EXPECT(figure(pool, USED) == 0 && figure(pool, HELD) >= 2 * PART * MIB);
    for (int i = 0; i < 3; i++) {
        MUST(cuMemPoolTrimTo(pool, leasts[i] * MIB));
        EXPECT(figure(pool, HELD) >= leasts[i] * MIB);
        EXPECT(figure(pool, HELD) <= (leasts[i] + PART / 2) * MIB);
    }
    PASSED("context", 1);
}

/* --- the end of a pool --- */

/* Blocks of a destroyed pool still name it, and no new pool gets its handle. After the last block is
 * freed, a new pool may get it. */
static void names(void) {
    enum { POOLS = 8, MORE = 20 };
    CUstream stream = test_stream();
    CUmemoryPool pool[POOLS], other;
    CUdeviceptr memory[POOLS];
    for (int i = 0; i < POOLS; i++) {
        pool[i] = pool_plain();
        memory[i] = take(MIB, pool[i], stream);
        if (i % 2)
            MUST(cuMemPoolDestroy(pool[i]));
    }
    for (int i = 0; i < POOLS; i += 2)
        MUST(cuMemPoolDestroy(pool[i]));
    unsigned long long made = simcuda_live("pools");
    for (int i = 0; i < MORE; i++) {
        other = pool_with(
            i % 2 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE, 0, 0, 0);
        for (int k = 0; k < POOLS; k++)
            EXPECT(pool[k] != other && pool_of(memory[k]) == pool[k]);
        if (i % 3)
            MUST(cuMemPoolDestroy(other));
        else
            made++;
    }
    EXPECT(simcuda_live("pools") == made); /* no other pool remains */
    for (int i = 0; i < POOLS; i++)
        give(memory[i], stream);
    MUST(cuCtxSynchronize());
    bool any = false;
    for (int i = 0; i < POOLS; i++) {
        other = pool_plain();
        for (int k = 0; k < POOLS; k++)
            any |= other == pool[k];
    }
    EXPECT(any);
    PASSED(NULL, 0);
}

static void destroyed(void) {
    enum { OUT = 3 };
    CUstream stream = test_stream();
    CUmemoryPool pool = pool_plain(), second;
    CUdeviceptr memory[OUT], fresh;
    unsigned word = 0;
    default_pool(1); /* made on demand now, so that it does not take a freed place later */
    for (unsigned i = 0; i < OUT; i++) {
        memory[i] = take(MIB, pool, stream);
        MUST(cuMemsetD32Async(memory[i], 70 + i, MIB / 4, stream));
    }
    MUST(cuMemPoolDestroy(pool));
    second = pool_plain();
    EXPECT(second != pool);
    EXPECT(figure(second, USED) == 0 && figure(second, USED_HIGH) == 0);
    fresh = take(2 * MIB, second, stream);
    EXPECT(figure(second, USED) == 2 * MIB);
    EXPECT(pool_of(memory[0]) == pool);
    MUST(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < OUT; i++) {
        MUST(cuMemcpyDtoH_v2(&word, memory[i] + MIB - 4, 4));
        EXPECT(word == 70 + i);
        give(memory[i], stream);
    }
    EXPECT(figure(second, USED) == 2 * MIB);
    give(fresh, stream);
    EXPECT(figure(second, USED) == 0);
    GIVES(cuMemPoolDestroy(default_pool(0)), CUDA_ERROR_INVALID_VALUE);
    give(take(MIB, NULL, stream), stream); /* the default pool is not affected */
    MUST(cuMemPoolDestroy(second));
    GIVES(cuMemPoolDestroy(second), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAllocFromPoolAsync(&fresh, MIB, second, stream), CUDA_ERROR_INVALID_VALUE);
    PASSED("unknown", 1);
}

/* Programs make pools in loops: the library's record of a pool is free again after the pool's last
 * block. */
static void many(void) {
    CUstream stream = test_stream();
    CUdeviceptr last = 0;
    for (int i = 0; i < 1000; i++) {
        CUmemoryPool pool = pool_plain();
        CUdeviceptr memory = take(64 << 10, pool, stream);
        MUST(cuMemPoolDestroy(pool));
        if (last)
            give(last, stream);
        last = memory;
    }
    give(last, stream);
    OURS(taken() == 1000);
    PASSED(NULL, 0);
}

/* --- limits --- */

static void limited(void) {
    CUstream stream = test_stream();
    CUmemoryPool little = pool_with(CU_MEM_HANDLE_TYPE_NONE, 64 * MIB, 0, 0),
                 other = pool_plain();
    CUdeviceptr a = take(30 * MIB, little, stream), b = take(30 * MIB, little, stream), c = 0;
    GIVES(cuMemAllocFromPoolAsync(&c, 30 * MIB, little, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr d = take(100 * MIB, other, stream);
    give(d, stream);
    GIVES(cuMemAllocFromPoolAsync(&c, 30 * MIB, little, stream), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(figure(little, USED) == 60 * MIB);
    give(b, stream);
    b = take(30 * MIB, little, stream);
    OURS(simcuda_calls("cuMemAllocFromPoolAsync") == 0);
    give(a, stream);
    give(b, stream);
    GIVES(cuMemAllocFromPoolAsync(&c, 65 * MIB, little, stream), CUDA_ERROR_OUT_OF_MEMORY);
    PASSED(NULL, 0);
}

static CUmemoryPool shared_pool;

static void *crowd(void *arg) {
    enum { LIMIT = 8, MOST = 12 };
    CUdeviceptr memory[MOST];
    int *got = arg;
    MUST(cuCtxSetCurrent(context));
    CUstream stream = test_stream();
    for (int round = 0; round < 200; round++) {
        int n = 0;
        while (n < MOST &&
               cuMemAllocFromPoolAsync(&memory[n], MIB, shared_pool, stream) == CUDA_SUCCESS)
            n++;
        EXPECT(figure(shared_pool, USED) <= LIMIT * MIB);
        *got += n;
        while (n)
            give(memory[--n], stream);
        MUST(cuStreamSynchronize(stream));
    }
    return NULL;
}

/* Two threads share a limit. Together they never exceed it, and one alone gets all of it. */
static void limited_threads(void) {
    pthread_t thread[2];
    int got[2] = {0};
    shared_pool = pool_with(CU_MEM_HANDLE_TYPE_NONE, 8 * MIB, 0, 0);
    for (int i = 0; i < 2; i++)
        NEED(!pthread_create(&thread[i], NULL, crowd, &got[i]));
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    EXPECT(got[0] + got[1] > 0); /* one thread may end before the other runs */
    EXPECT(figure(shared_pool, USED) == 0);
    got[0] = 0;
    crowd(&got[0]);
    OURS(got[0] == 200 * 8);
    PASSED(NULL, 0);
}

/* --- which pool is the current one --- */

static void current(void) {
    CUstream stream = test_stream();
    CUmemoryPool own = default_pool(0), set = pool_plain(), now;
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUdeviceptr first = take(MIB, NULL, stream);
    MUST(cuDeviceSetMemPool(0, set));
    CUdeviceptr second = take(MIB, NULL, stream);
    EXPECT(pool_of(first) == own && pool_of(second) == set);
    MUST(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, own));
    CUdeviceptr third = take(MIB, NULL, stream);
    EXPECT(pool_of(third) == own);
    MUST(cuDeviceSetMemPool(0, set));
    give(second, stream);
    MUST(cuMemPoolDestroy(set)); /* the device falls back to its default pool */
    MUST(cuDeviceGetMemPool(&now, 0));
    EXPECT(now == own);
    CUdeviceptr fourth = take(MIB, NULL, stream);
    EXPECT(pool_of(fourth) == own);
    EXPECT(figure(own, USED) == 3 * MIB);
    PASSED(NULL, 0);
}

/* --- two streams, two pools: the race detector looks on --- */

static void streams(void) {
    enum { SLOTS = 6 };
    CUmemoryPool pool[2] = {default_pool(0), pool_plain()};
    CUstream stream[2] = {test_stream(), test_stream()};
    CUdeviceptr slot[SLOTS] = {0};
    CUevent event;
    int home[SLOTS] = {0};
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2000; i++) {
        unsigned at = dice(SLOTS);
        if (!slot[at]) {
            home[at] = (int)dice(2);
            slot[at] = take(MIB + dice(2) * MIB, pool[dice(2)], stream[home[at]]);
            use(slot[at], stream[home[at]]);
        } else if (dice(3)) {
            give(slot[at], stream[home[at]]);
            slot[at] = 0;
        } else { /* the other stream uses and frees it */
            MUST(cuEventRecord(event, stream[home[at]]));
            MUST(cuStreamWaitEvent(stream[!home[at]], event, 0));
            use(slot[at], stream[!home[at]]);
            give(slot[at], stream[!home[at]]);
            slot[at] = 0;
        }
    }
    PASSED(NULL, 0);
}

/* --- out of memory: idle memory of each side goes to the other --- */

static void full(void) {
    CUstream stream = test_stream();
    CUmemoryPool exportable = pool_with(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0, 0, 0);
    CUdeviceptr memory, plain;
    set_figure(exportable, THRESHOLD, UINT64_MAX);
    memory = take(160 * MIB, exportable, stream);
    give(memory, stream);
    MUST(cuStreamSynchronize(stream));
    EXPECT(figure(exportable, HELD) >= 160 * MIB);
    plain = 0; /* the device has 256 MiB, and the driver's pools do not yield memory */
    GIVES(cuMemAlloc_v2(&plain, 200 * MIB), served ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    if (served)
        MUST(cuMemFree_v2(plain));
    memory = take(160 * MIB, exportable, stream); /* the cache holds 200 of them */
    give(memory, stream);
    MUST(cuStreamSynchronize(stream));
    if (served)
        give(take(200 * MIB, default_pool(0), stream), stream);
    PASSED("exportable", 2);
}

const case_t serving[] = {{"cuda_core", cuda_core},
                          {"looked_at", looked_at},
                          {"figures", figures},
                          {"destroyed", destroyed},
                          {"names", names},
                          {"both", both},
                          {"handed_over", handed_over},
                          {"trimmed", trimmed},
                          {"many", many},
                          {"limited", limited},
                          {"current", current},
                          {"limited_threads", limited_threads},
                          {"streams", streams},
                          {"full", full}};
const size_t serving_count = sizeof serving / sizeof *serving;
