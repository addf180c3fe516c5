/* Stream-ordered allocation and memory pools: cuda.h, "Stream Ordered Memory Allocator". */
#include "extra.h"

static uint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = UINT64_MAX;
    OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static CUmemoryPool default_pool(void) {
    CUmemoryPool pool;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    return pool;
}

static CUmemoryPool new_pool(size_t max_size) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                            .maxSize = max_size};
    CUmemoryPool pool;
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static void set_flag(CUmemoryPool pool, CUmemPool_attribute attribute, int value) {
    OK(cuMemPoolSetAttribute(pool, attribute, &value));
}

/* Memory is usable by work of the same stream at once, and its contents last until the free. */
START_TEST(ordered_in_one_stream) {
    CUstream s = extra_stream();
    CUdeviceptr p;
    OK(cuMemAllocAsync(&p, 1000, s));
    OK(extra_launch(s, p, 77));
    unsigned back = 0;
    OK(cuMemcpyDtoHAsync_v2(&back, p, sizeof back, s));
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(back, 77);
    ck_assert_uint_eq(p % 512, 0);
}
END_TEST

/* Work of another stream that nothing orders behind the allocation runs before it: a fault. */
START_TEST(use_before_allocation_faults) {
    CUstream s = extra_stream(), other = extra_stream();
    CUdeviceptr busy, p;
    OK(cuMemAlloc_v2(&busy, 4));
    for (int i = 0; i < 5; i++)
        OK(extra_launch(s, busy, 1));
    OK(cuMemAllocAsync(&p, 64, s));
    OK(extra_launch(other, p, 2));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(use_after_free_faults) {
    CUstream s = extra_stream(), other = extra_stream();
    CUdeviceptr busy, p;
    OK(cuMemAlloc_v2(&busy, 4));
    OK(cuMemAllocAsync(&p, 64, s));
    OK(cuStreamSynchronize(s));
    for (int i = 0; i < 5; i++)
        OK(extra_launch(other, busy, 1));
    OK(cuMemFreeAsync(p, s));
    OK(extra_launch(other, p, 2));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* An event makes the same order legal. */
START_TEST(event_orders_streams) {
    CUstream s = extra_stream(), other = extra_stream();
    CUevent e;
    CUdeviceptr busy, p;
    OK(cuEventCreate(&e, 0));
    OK(cuMemAlloc_v2(&busy, 4));
    OK(extra_launch(s, busy, 1));
    OK(cuMemAllocAsync(&p, 64, s));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(other, e, 0));
    OK(extra_launch(other, p, 5));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(p), 5);
}
END_TEST

START_TEST(same_stream_reuses_at_once) {
    CUstream s = extra_stream(), other = extra_stream();
    CUdeviceptr a, b, c;
    OK(cuMemAllocAsync(&a, 4096, s));
    OK(extra_launch(s, a, 1));
    OK(cuMemFreeAsync(a, s));
    OK(cuMemAllocAsync(&c, 4096, other));
    ck_assert_uint_ne(c, a); /* the free is pending */
    OK(cuMemAllocAsync(&b, 4096, s));
    ck_assert_uint_eq(b, a);
    OK(extra_launch(s, b, 2));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(b), 2);
}
END_TEST

/* A smaller reuse of a pending block: the old block's pending work stays legal. */
START_TEST(split_reuse_keeps_pending_work_legal) {
    CUstream s = extra_stream();
    CUdeviceptr a, b;
    OK(cuMemAllocAsync(&a, 8192, s));
    OK(extra_launch(s, a + 8188, 1));
    OK(cuMemFreeAsync(a, s));
    OK(cuMemAllocAsync(&b, 512, s));
    ck_assert_uint_eq(b, a);
    OK(cuCtxSynchronize());
    CUdeviceptr base;
    size_t size;
    OK(cuMemGetAddressRange_v2(&base, &size, b));
    ck_assert_uint_eq(base, b);
    ck_assert_uint_eq(size, 512);
}
END_TEST

START_TEST(other_stream_reuses_completed) {
    CUmemoryPool pool = default_pool();
    cuuint64_t keep = UINT64_MAX;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CUstream s = extra_stream(), other = extra_stream();
    CUdeviceptr a, b;
    OK(cuMemAllocAsync(&a, 4096, s));
    OK(cuMemFreeAsync(a, s));
    OK(cuStreamSynchronize(s));
    set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
    OK(cuMemAllocAsync(&b, 4096, other));
    ck_assert_uint_ne(b, a);
    OK(cuMemFreeAsync(b, other));
    OK(cuStreamSynchronize(other));
    set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 1);
    CUstream third = extra_stream();
    OK(cuMemAllocAsync(&b, 4096, third));
    ck_assert_uint_eq(b, a);
}
END_TEST

/* If the pool may not grow, it waits for another stream's free, provided that the attribute allows
 * it. */
START_TEST(inserted_dependency) {
    CUmemoryPool pool = new_pool(32 * MIB);
    CUstream s = extra_stream(), other = extra_stream();
    CUdeviceptr a, b;
    OK(cuMemAllocFromPoolAsync(&a, 20 * MIB, pool, s));
    OK(extra_launch(s, a, 1));
    OK(cuMemFreeAsync(a, s));
    set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
    GIVES(cuMemAllocFromPoolAsync(&b, 20 * MIB, pool, other), CUDA_ERROR_OUT_OF_MEMORY);
    set_flag(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
    OK(cuMemAllocFromPoolAsync(&b, 20 * MIB, pool, other));
    ck_assert_uint_eq(a, b);
    GIVES(cuStreamQuery(other), CUDA_ERROR_NOT_READY); /* behind the kernel of s */
    OK(extra_launch(other, b, 9));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(extra_word(b), 9);
}
END_TEST

START_TEST(figures_and_threshold) {
    CUmemoryPool pool = default_pool();
    CUstream s = extra_stream();
    CUdeviceptr a, b;
    size_t before, now, total;
    OK(cuMemGetInfo_v2(&before, &total));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    OK(cuMemAllocAsync(&a, MIB, s));
    OK(cuMemAllocAsync(&b, 2 * MIB, s));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * MIB);
    uint64_t reserved = figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    ck_assert_uint_ge(reserved, 3 * MIB);
    OK(cuMemGetInfo_v2(&now, &total));
    ck_assert_uint_eq(before - now, reserved);
    OK(cuMemFreeAsync(a, s));
    OK(cuMemFreeAsync(b, s));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * MIB);
    OK(cuStreamSynchronize(s)); /* threshold 0: everything goes back */
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), reserved);
    OK(cuMemGetInfo_v2(&now, &total));
    ck_assert_uint_eq(before, now);

    cuuint64_t value = 64 * MIB;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 64 * MIB);
    OK(cuMemAllocAsync(&a, MIB, s));
    OK(cuMemFreeAsync(a, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
    OK(cuMemPoolTrimTo(pool, reserved)); /* at least that much stays */
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
    OK(cuMemPoolTrimTo(pool, 0));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);

    value = 5;
    GIVES(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value),
          CUDA_ERROR_INVALID_VALUE);
    value = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    GIVES(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemPoolGetAttribute(pool, 99, &value), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, NULL),
          CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(wrong_arguments) {
    CUstream s = extra_stream();
    CUdeviceptr p;
    GIVES(cuMemAllocAsync(NULL, 64, s), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAllocAsync(&p, 0, s), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAllocAsync(&p, 1ull << 40, s), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAllocAsync(&p, 64, (CUstream)(uintptr_t)0x1234), CUDA_ERROR_INVALID_HANDLE);
    GIVES(cuMemAllocFromPoolAsync(&p, 64, (CUmemoryPool)(uintptr_t)0x1234, s),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFreeAsync(0x1234, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocAsync(&p, 4096, s));
    GIVES(cuMemFreeAsync(p + 512, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(p, s));
    GIVES(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetCurrent(NULL));
    GIVES(cuMemAllocAsync(&p, 64, NULL), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuMemAllocAsync(&p, 64, s)); /* a stream brings its context along */
}
END_TEST

START_TEST(free_across_kinds) {
    CUstream s = extra_stream();
    CUdeviceptr p;
    OK(cuMemAllocAsync(&p, 4096, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemFree_v2(p)); /* pool memory, plain free */
    GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(figure(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);

    size_t before, now, total;
    OK(cuCtxSynchronize()); /* the pool gives back what it had */
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuMemAlloc_v2(&p, 4096)); /* plain memory, ordered free */
    OK(extra_launch(s, p, 3));
    OK(cuMemFreeAsync(p, s));
    GIVES(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(s));
    OK(cuMemGetInfo_v2(&now, &total));
    ck_assert_uint_eq(before, now);
    GIVES(cuMemGetAddressRange_v2(NULL, NULL, p), CUDA_ERROR_NOT_FOUND);
}
END_TEST

/* cuMemFree of pool memory does not wait (cuda.h says so): work still using it faults. */
START_TEST(plain_free_does_not_wait) {
    CUstream s = extra_stream();
    CUdeviceptr p;
    OK(cuMemAllocAsync(&p, 4096, s));
    OK(cuStreamSynchronize(s));
    OK(extra_launch(s, p, 3));
    OK(cuMemFree_v2(p));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(pools_of_a_device) {
    CUmemoryPool pool = new_pool(0), got;
    OK(cuDeviceGetMemPool(&got, 0));
    ck_assert_ptr_eq(got, default_pool());
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuDeviceGetMemPool(&got, 0));
    ck_assert_ptr_eq(got, pool);
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    OK(cuMemGetMemPool(&got, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    ck_assert_ptr_eq(got, pool);
    OK(cuMemGetDefaultMemPool(&got, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    ck_assert_ptr_eq(got, default_pool());
    GIVES(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE); /* another device's */
    GIVES(cuDeviceSetMemPool(9, pool), CUDA_ERROR_INVALID_DEVICE);

    CUdeviceptr p;
    CUstream s = extra_stream();
    OK(cuMemAllocAsync(&p, 4096, s));
    ck_assert_uint_eq(figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4096);
    CUmemoryPool of = NULL;
    OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    ck_assert_ptr_eq(of, pool);

    /* Destroyed while in use: the default is current again, the memory lasts. */
    OK(cuMemPoolDestroy(pool));
    OK(cuDeviceGetMemPool(&got, 0));
    ck_assert_ptr_eq(got, default_pool());
    cuuint64_t value;
    GIVES(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    OK(extra_launch(s, p, 8));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(extra_word(p), 8);
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
    GIVES(cuMemPoolDestroy(default_pool()), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(creation_is_checked) {
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 7}};
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_DEVICE);
    props.location.id = 0;
    props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemPoolCreate(&pool, NULL), CUDA_ERROR_INVALID_VALUE);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    GIVES(cuMemPoolCreate(NULL, &props), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(creation_of_host_and_managed_pools_is_checked) {
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_NONE, 0}};
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    props.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    props.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 1};
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    props.location.type = CU_MEM_LOCATION_TYPE_HOST; /* the id is not looked at */
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolDestroy(pool));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    props.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    props.maxSize = 1 << 20;
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
    props.maxSize = 0;
    props.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 7};
    GIVES(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_DEVICE);
    props.location.id = 1;
    OK(cuMemPoolCreate(&pool, &props));
    GIVES(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPoolDestroy(pool));
}
END_TEST

/* Host memory is the host's, and a device's that was given access; managed memory is everyone's. */
START_TEST(access_to_host_memory) {
    for (int managed = 0; managed < 2; managed++) {
        CUmemPoolProps props = {.allocType = managed ? CU_MEM_ALLOCATION_TYPE_MANAGED
                                                     : CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
        CUmemoryPool pool;
        CUmemAccess_flags flags;
        CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
        CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(cuMemPoolCreate(&pool, &props));
        OK(cuMemPoolGetAccess(&flags, pool, &host));
        ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        OK(cuMemPoolGetAccess(&flags, pool, &desc.location));
        ck_assert_uint_eq(flags, managed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE);
        GIVES(cuMemPoolSetAccess(pool, &desc, 1),
              managed ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        CUdeviceptr p;
        CUstream s = extra_stream();
        unsigned long long used = simcuda_used_memory(0);
        OK(cuMemAllocFromPoolAsync(&p, 4096, pool, s));
        OK(extra_launch(s, p, 5));
        OK(cuStreamSynchronize(s));
        ck_assert_uint_eq(*(unsigned *)(uintptr_t)p, 5);
        ck_assert_uint_eq(simcuda_used_memory(0), used);
        if (!managed) {
            desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
            OK(cuMemPoolSetAccess(pool, &desc, 1));
            desc.location.type = CU_MEM_LOCATION_TYPE_HOST;
            GIVES(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_VALUE);
        }
        OK(cuMemFreeAsync(p, s));
        OK(cuStreamSynchronize(s));
        OK(cuMemPoolDestroy(pool));
    }
    /* Without access a kernel faults. */
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_HOST, 0}};
    CUmemoryPool pool;
    CUdeviceptr p;
    CUstream s = extra_stream();
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemAllocFromPoolAsync(&p, 4096, pool, s));
    OK(extra_launch(s, p, 5));
    GIVES(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(access_between_devices) {
    CUmemoryPool pool = new_pool(0);
    CUmemAccess_flags flags;
    CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, peer = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    OK(cuMemPoolGetAccess(&flags, pool, &own));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cuMemPoolGetAccess(&flags, pool, &peer));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemAccessDesc desc = {peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemPoolSetAccess(pool, &desc, 1));
    OK(cuMemPoolGetAccess(&flags, pool, &peer));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    desc = (CUmemAccessDesc){own, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    GIVES(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    desc.location.id = 5;
    GIVES(cuMemPoolSetAccess(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

/* Peer access of contexts says nothing of pools. */
START_TEST(access_is_needed) {
    static const CUmemAccess_flags rights[] = {CU_MEM_ACCESS_FLAGS_PROT_NONE,
                                               CU_MEM_ACCESS_FLAGS_PROT_READ,
                                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool = new_pool(0);
    CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, rights[_i]};
    CUcontext own, peer;
    CUmodule module;
    CUdeviceptr p;
    OK(cuMemPoolSetAccess(pool, &desc, 1));
    OK(cuMemAllocFromPoolAsync(&p, 64, pool, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuCtxGetCurrent(&own));
    OK(cuDevicePrimaryCtxRetain(&peer, 1));
    OK(cuCtxSetCurrent(peer));
    OK(cuCtxEnablePeerAccess(own, 0));
    OK(cuModuleLoadData(&module, "stand-in"));
    OK(cuModuleGetFunction(&extra_kernel, module, "stamp"));
    OK(extra_launch(NULL, p, 1));
    GIVES(cuCtxSynchronize(), _i == 2 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* A full device: idle memory of other pools is given back before the answer is no. */
START_TEST(out_of_memory_releases_idle_pools) {
    CUmemoryPool idle = new_pool(0);
    cuuint64_t keep = UINT64_MAX;
    OK(cuMemPoolSetAttribute(idle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CUstream s = extra_stream();
    CUdeviceptr a, b;
    OK(cuMemAllocFromPoolAsync(&a, 200 * MIB, idle, s));
    GIVES(cuMemAllocAsync(&b, 200 * MIB, s), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFreeAsync(a, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_ge(figure(idle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 200 * MIB);
    OK(cuMemAllocAsync(&b, 200 * MIB, s));
    ck_assert_uint_eq(figure(idle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}
END_TEST

/* Random work on three streams; every block holds what its stream wrote last. */
START_TEST(many_blocks) {
    enum { COUNT = 40, ROUNDS = 3000 };
    CUstream s[3] = {extra_stream(), extra_stream(), extra_stream()};
    struct {
        CUdeviceptr p;
        unsigned owner, value;
    } block[COUNT] = {0};
    unsigned random = 12345;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        random = random * 1664525u + 1013904223u;
        unsigned i = (random >> 8) % COUNT;
        if (block[i].p) {
            unsigned back = 0;
            OK(cuMemcpyDtoHAsync_v2(&back, block[i].p, 4, s[block[i].owner]));
            OK(cuStreamSynchronize(s[block[i].owner]));
            ck_assert_uint_eq(back, block[i].value);
            OK(cuMemFreeAsync(block[i].p, s[block[i].owner]));
            block[i].p = 0;
        } else {
            block[i].owner = (random >> 16) % 3;
            block[i].value = round;
            OK(cuMemAllocAsync(&block[i].p, 4 + (random >> 4) % 300000, s[block[i].owner]));
            OK(extra_launch(s[block[i].owner], block[i].p, round));
        }
    }
    for (unsigned i = 0; i < COUNT; i++)
        if (block[i].p)
            OK(cuMemFreeAsync(block[i].p, s[block[i].owner]));
    OK(cuCtxSynchronize());
    ck_assert_uint_eq(figure(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
}
END_TEST

START_TEST(per_thread_stream) {
    CUdeviceptr p;
    OK(cuMemAllocAsync_ptsz(&p, 64, NULL));
    OK(extra_launch(CU_STREAM_PER_THREAD, p, 4));
    OK(cuMemFreeAsync_ptsz(p, NULL));
    OK(cuMemAllocFromPoolAsync_ptsz(&p, 64, default_pool(), NULL));
    OK(cuMemFreeAsync(p, CU_STREAM_PER_THREAD));
    OK(cuCtxSynchronize());
}
END_TEST

int main(void) {
    TCase *t;
    Suite *suite = extra_suite("memory pools", &t);
    tcase_add_test(t, ordered_in_one_stream);
    tcase_add_test(t, use_before_allocation_faults);
    tcase_add_test(t, use_after_free_faults);
    tcase_add_test(t, event_orders_streams);
    tcase_add_test(t, same_stream_reuses_at_once);
    tcase_add_test(t, split_reuse_keeps_pending_work_legal);
    tcase_add_test(t, other_stream_reuses_completed);
    tcase_add_test(t, inserted_dependency);
    tcase_add_test(t, figures_and_threshold);
    tcase_add_test(t, wrong_arguments);
    tcase_add_test(t, free_across_kinds);
    tcase_add_test(t, plain_free_does_not_wait);
    tcase_add_test(t, pools_of_a_device);
    tcase_add_test(t, creation_is_checked);
    tcase_add_test(t, creation_of_host_and_managed_pools_is_checked);
    tcase_add_test(t, access_to_host_memory);
    tcase_add_test(t, access_between_devices);
    tcase_add_loop_test(t, access_is_needed, 0, 3);
    tcase_add_test(t, out_of_memory_releases_idle_pools);
    tcase_add_test(t, many_blocks);
    tcase_add_test(t, per_thread_stream);
    return run_suite(suite);
}
