/* Memory: answers, capacity, contents, attributes, lifetimes. */
#include <setjmp.h>
#include <signal.h>

#include "sim_test.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

static size_t free_bytes(void) {
    size_t available, total;
    OK(cuMemGetInfo_v2(&available, &total));
    return available;
}

START_TEST(answers_without_a_context) {
    CUdeviceptr memory = 7;
    size_t available;
    GIVES(cuMemAlloc_v2(&memory, 512), CUDA_ERROR_NOT_INITIALIZED);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    GIVES(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAlloc_v2(&memory, 512), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuMemFree_v2(memory), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuMemGetInfo_v2(&available, NULL), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_uint_eq(memory, 7);
}
END_TEST

START_TEST(odd_sizes_and_pointers) {
    CUdeviceptr memory = 7, base;
    size_t size, pitch;
    start();
    GIVES(cuMemAlloc_v2(&memory, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAlloc_v2(NULL, 512), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAlloc_v2(&memory, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAllocPitch_v2(&memory, &pitch, 100, 10, 3), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAllocManaged(&memory, 512, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(memory, 7);
    OK(cuMemAlloc_v2(&memory, 1000));
    ck_assert_uint_eq(memory % 512, 0);
    OK(cuMemGetAddressRange_v2(&base, &size, memory + 999));
    ck_assert_uint_eq(base, memory);
    ck_assert_uint_eq(size, 1000);
    OK(cuMemGetAddressRange_v2(NULL, NULL, memory));
    GIVES(cuMemGetAddressRange_v2(&base, &size, memory + 1000), CUDA_ERROR_NOT_FOUND);
    GIVES(cuMemFree_v2(memory + 512), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree_v2(1234), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree_v2(0));
    OK(cuMemFree_v2(memory));
    GIVES(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAllocPitch_v2(&memory, &pitch, 100, 10, 4));
    ck_assert_uint_eq(pitch, 512);
    OK(cuMemFree_v2(memory));
}
END_TEST

START_TEST(capacity_is_exact) {
    CUdeviceptr blocks[64], more;
    ck_assert_int_eq(simcuda_configure("memory:64M"), 0);
    start();
    ck_assert_uint_eq(free_bytes(), 64 * MIB);
    for (int i = 0; i < 64; i++)
        OK(cuMemAlloc_v2(&blocks[i], MIB));
    ck_assert_uint_eq(free_bytes(), 0);
    GIVES(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemAllocManaged(&more, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(blocks[5]));
    OK(cuMemAlloc_v2(&more, 512));
    ck_assert_uint_eq(free_bytes(), MIB - 512);
    OK(cuMemFree_v2(more));
    OK(cuMemAlloc_v2(&more, 513));
    ck_assert_uint_eq(free_bytes(), MIB - 1024);
    unsigned long long bytes;
    ck_assert_uint_eq(simcuda_live_allocations(&bytes), 64);
    ck_assert_uint_eq(bytes, 63ull * MIB + 513);
    ck_assert_uint_eq(simcuda_used_memory(0), 63ull * MIB + 1024);
}
END_TEST

START_TEST(large_segments_are_aligned_and_addresses_come_back) {
    CUdeviceptr first, again;
    start();
    OK(cuMemAlloc_v2(&first, MIB));
    ck_assert_uint_eq(first % (2 * MIB), 0);
    OK(cuMemFree_v2(first));
    OK(cuMemAlloc_v2(&again, MIB));
    ck_assert_uint_eq(first, again);
    unsigned long long id, id_again;
    OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
    OK(cuMemFree_v2(again));
    OK(cuMemAlloc_v2(&again, MIB));
    OK(cuPointerGetAttribute(&id_again, CU_POINTER_ATTRIBUTE_BUFFER_ID, again));
    ck_assert_uint_ne(id, id_again);
}
END_TEST

static sigjmp_buf back;

static void on_fault(int signal) {
    siglongjmp(back, signal);
}

START_TEST(the_host_cannot_touch_device_memory) {
    CUdeviceptr memory;
    start();
    OK(cuMemAlloc_v2(&memory, 4 * KIB));
    signal(SIGSEGV, on_fault);
    int fault = sigsetjmp(back, 1);
    if (!fault) {
        *(volatile char *)(uintptr_t)memory = 1;
        ck_abort_msg("device memory was written by the host");
    }
    ck_assert_int_eq(fault, SIGSEGV);
    ck_assert_ptr_nonnull(simcuda_host(memory));
}
END_TEST

START_TEST(copies_and_fills_keep_contents) {
    enum { N = 300 * KIB };
    unsigned char *host = malloc(N), *out = calloc(1, N);
    CUdeviceptr a, b;
    start();
    for (int i = 0; i < N; i++)
        host[i] = (unsigned char)(i * 31 + i / 256);
    OK(cuMemAlloc_v2(&a, N));
    OK(cuMemAlloc_v2(&b, N));
    OK(cuMemcpyHtoD_v2(a, host, N));
    OK(cuMemcpyDtoDAsync_v2(b, a, N, NULL));
    OK(cuMemcpyDtoH_v2(out, b, N));
    ck_assert_mem_eq(host, out, N);
    OK(cuMemsetD16_v2(b + 10, 0x1234, 5));
    OK(cuMemcpy((CUdeviceptr)(uintptr_t)out, b, 32));
    ck_assert_uint_eq(out[9], host[9]);
    ck_assert_uint_eq(out[10], 0x34);
    ck_assert_uint_eq(out[19], 0x12);
    ck_assert_uint_eq(out[20], host[20]);
    CUDA_MEMCPY2D window = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = a,
                            .srcPitch = 1000,
                            .srcXInBytes = 3,
                            .srcY = 2,
                            .dstMemoryType = CU_MEMORYTYPE_HOST,
                            .dstHost = out,
                            .dstPitch = 16,
                            .WidthInBytes = 10,
                            .Height = 4};
    OK(cuMemcpy2D_v2(&window));
    for (int y = 0; y < 4; y++)
        ck_assert_mem_eq(out + 16 * y, host + (2 + y) * 1000 + 3, 10);
    OK(cuMemsetD2D32_v2(b, 1024, 0xabcdef01, 3, 2));
    OK(cuMemcpyDtoH_v2(out, b, 2048));
    ck_assert_uint_eq(out[1024 + 11], 0xab);
    ck_assert_uint_eq(out[1024 + 12], host[1024 + 12]);
    free(host);
    free(out);
}
END_TEST

START_TEST(copies_outside_an_allocation_are_refused) {
    char host[4096];
    CUdeviceptr a;
    start();
    OK(cuMemAlloc_v2(&a, 1024));
    GIVES(cuMemcpyHtoD_v2(a, host, 1025), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyDtoH_v2(host, a + 1000, 25), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)host, host, 8), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemsetD8_v2(a, 0, 1025), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemsetD32_v2(a + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyHtoD_v2(a, host, 0));
    OK(cuMemFree_v2(a));
    GIVES(cuMemcpyDtoH_v2(host, a, 8), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(pageable_sources_are_read_at_the_call) {
    int value = 1, out = 0;
    CUdeviceptr a;
    CUstream stream;
    start();
    CUfunction kernel = nothing_kernel();
    OK(cuMemAlloc_v2(&a, sizeof value));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(run(kernel, stream));
    OK(cuMemcpyHtoDAsync_v2(a, &value, sizeof value, stream));
    value = 2;
    OK(cuMemcpyDtoHAsync_v2(&out, a, sizeof out, stream)); /* pageable target: complete */
    ck_assert_int_eq(out, 1);
    int *pinned;
    OK(cuMemHostAlloc((void **)&pinned, sizeof *pinned, 0));
    *pinned = 3;
    simcuda_set_kernel_ns(5000000);
    OK(run(kernel, stream));
    OK(cuMemcpyHtoDAsync_v2(a, pinned, sizeof *pinned, stream));
    *pinned = 4; /* pinned sources are read when the copy runs */
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&out, a, sizeof out));
    ck_assert_int_eq(out, 4);
}
END_TEST

START_TEST(host_memory_calls) {
    void *pinned, *page = aligned_alloc(4096, 8192);
    CUdeviceptr device;
    unsigned flags;
    start();
    OK(cuMemHostAlloc(&pinned, 5000, CU_MEMHOSTALLOC_PORTABLE));
    OK(cuMemHostGetFlags(&flags, pinned));
    ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_PORTABLE);
    OK(cuMemHostGetDevicePointer_v2(&device, (char *)pinned + 8, 0));
    ck_assert_uint_eq(device, (uintptr_t)pinned + 8);
    memset(pinned, 1, 5000);
    GIVES(cuMemFree_v2((CUdeviceptr)(uintptr_t)pinned), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemHostUnregister(pinned), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeHost(pinned));
    GIVES(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemHostAlloc(&pinned, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    GIVES(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemHostRegister_v2(page, 8192, 0));
    GIVES(cuMemHostRegister_v2(page, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostGetDevicePointer_v2(&device, page, 0));
    OK(cuMemHostUnregister(page));
    OK(cuMemHostRegister_v2((char *)page + 4096, 100, 0)); /* a registration that encloses it
                                                              fails, too */
    GIVES(cuMemHostRegister_v2(page, 8192, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostRegister_v2(page, 4096, 0));
    OK(cuMemHostUnregister((char *)page + 4096));
    OK(cuMemHostUnregister(page));
    GIVES(cuMemHostGetDevicePointer_v2(&device, page, 0), CUDA_ERROR_INVALID_VALUE);
    free(page);
    int *managed;
    OK(cuMemAllocManaged(&device, 100, CU_MEM_ATTACH_GLOBAL));
    managed = (int *)(uintptr_t)device;
    OK(cuMemsetD32_v2(device, 77, 25));
    ck_assert_int_eq(managed[24], 77);
    OK(cuMemFree_v2(device));
}
END_TEST

START_TEST(pointer_attributes) {
    CUcontext ctx = start(), owner;
    CUdeviceptr a, base;
    unsigned type, on = 1, managed;
    size_t size;
    int ordinal;
    OK(cuMemAlloc_v2(&a, 3000));
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, a + 5));
    ck_assert_ptr_eq(owner, ctx);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 2999));
    ck_assert_uint_eq(base, a);
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a));
    ck_assert_uint_eq(size, 3000);
    OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 9));
    ck_assert_uint_eq(base, a + 9);
    GIVES(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_HOST_POINTER, a),
          CUDA_ERROR_INVALID_VALUE);
    GIVES(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    on = 0;
    OK(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    ck_assert_uint_eq(on, 1);
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *outs[] = {&ordinal, &managed, &owner};
    OK(cuPointerGetAttributes(3, which, outs, a));
    ck_assert_int_eq(ordinal, 0);
    ck_assert_uint_eq(managed, 0);
    ck_assert_ptr_eq(owner, ctx);
    OK(cuPointerGetAttributes(3, which, outs, (CUdeviceptr)(uintptr_t)&ordinal));
    ck_assert_ptr_null(owner);
    ck_assert_int_eq(ordinal, -2);
    GIVES(cuPointerGetAttributes(0, which, outs, a), CUDA_ERROR_INVALID_VALUE);
    unsigned long long tokens[2] = {1, 1};
    OK(cuPointerGetAttributes(1, (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_P2P_TOKENS},
                              (void *[]){tokens}, (CUdeviceptr)(uintptr_t)&ordinal));
    ck_assert(!tokens[0] && !tokens[1]);
}
END_TEST

START_TEST(memory_goes_with_its_context) {
    CUcontext primary = start(), again, made;
    CUdeviceptr a;
    unsigned long long id, id_again;
    OK(cuCtxGetId(primary, &id));
    OK(cuMemAlloc_v2(&a, MIB));
    OK(cuDevicePrimaryCtxReset_v2(0));
    ck_assert_uint_eq(simcuda_live_allocations(NULL), 0);
    GIVES(cuMemAlloc_v2(&a, MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    ck_assert_ptr_eq(primary, again);
    OK(cuCtxGetId(again, &id_again));
    ck_assert_uint_ne(id, id_again);
    OK(cuMemAlloc_v2(&a, MIB));
    OK(cuCtxCreate_v2(&made, 0, 0));
    OK(cuCtxGetCurrent(&again));
    ck_assert_ptr_eq(made, again);
    OK(cuMemAlloc_v2(&a, MIB));
    ck_assert_uint_eq(simcuda_live_allocations(NULL), 2);
    OK(cuCtxDestroy_v2(made));
    ck_assert_uint_eq(simcuda_live_allocations(NULL), 1);
    OK(cuCtxGetCurrent(&again));
    ck_assert_ptr_eq(primary, again);
    GIVES(cuCtxDestroy_v2(made), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
    GIVES(cuCtxSetCurrent(made), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    GIVES(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_uint_eq(simcuda_live_allocations(NULL), 0);
}
END_TEST

START_TEST(a_stale_handle_in_the_stack_is_no_context) {
    CUcontext one, two, popped;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&one, 0, 0));
    OK(cuCtxPushCurrent_v2(one));
    OK(cuCtxDestroy_v2(one)); /* pops one of the two entries */
    OK(cuCtxGetCurrent(&popped));
    ck_assert_ptr_eq(popped, one);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxCreate_v2(&two, 0, 0));
    ck_assert_ptr_eq(one, two); /* same handle value, another context */
    OK(cuCtxSynchronize());
    OK(cuCtxPopCurrent_v2(&popped));
    GIVES(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cuCtxPopCurrent_v2(&popped));
    GIVES(cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

START_TEST(several_devices) {
    CUcontext one, two;
    CUdeviceptr a, b;
    int can, value = 5, out = 0;
    ck_assert_int_eq(simcuda_configure("devices:2,memory:8M"), 0);
    one = start();
    OK(cuDevicePrimaryCtxRetain(&two, 1));
    OK(cuMemAlloc_v2(&a, MIB));
    OK(cuCtxSetCurrent(two));
    ck_assert_uint_eq(free_bytes(), 8 * MIB);
    OK(cuMemAlloc_v2(&b, 2 * MIB));
    ck_assert_uint_eq(free_bytes(), 6 * MIB);
    ck_assert_uint_eq(simcuda_used_memory(0), MIB);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    ck_assert_int_eq(can, 1);
    OK(cuCtxEnablePeerAccess(one, 0));
    GIVES(cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(cuCtxDisablePeerAccess(one));
    GIVES(cuCtxDisablePeerAccess(one), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    GIVES(cuCtxEnablePeerAccess(two, 0), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemcpyHtoD_v2(a, &value, sizeof value));
    OK(cuMemcpyPeer(b, two, a, one, sizeof value));
    OK(cuMemcpyDtoH_v2(&out, b, sizeof out));
    ck_assert_int_eq(out, 5);
    GIVES(cuDevicePrimaryCtxRetain(&two, 2), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(random_allocations_never_overlap) {
    enum { LIVE = 300, STEPS = 20000 };
    static CUdeviceptr base[LIVE];
    static size_t size[LIVE];
    unsigned seed = 12345;
    start();
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1103515245u + 12345u;
        int i = (int)(seed >> 8) % LIVE;
        if (base[i]) {
            OK(cuMemFree_v2(base[i]));
            base[i] = 0;
            continue;
        }
        size[i] = 1 + (seed >> 4) % (seed & 64 ? 2000 : 3000000);
        OK(cuMemAlloc_v2(&base[i], size[i]));
        CUdeviceptr start_of;
        size_t size_of;
        OK(cuMemGetAddressRange_v2(&start_of, &size_of, base[i] + size[i] - 1));
        ck_assert_uint_eq(start_of, base[i]);
        ck_assert_uint_eq(size_of, size[i]);
        for (int k = 0; step % 97 == 0 && k < LIVE; k++)
            ck_assert(k == i || !base[k] || base[k] + size[k] <= base[i] ||
                      base[i] + size[i] <= base[k]);
    }
    for (int i = 0; i < LIVE; i++)
        OK(cuMemFree_v2(base[i]));
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
}
END_TEST

SUITE_MAIN("memory", answers_without_a_context, odd_sizes_and_pointers, capacity_is_exact,
           large_segments_are_aligned_and_addresses_come_back,
           the_host_cannot_touch_device_memory, copies_and_fills_keep_contents,
           copies_outside_an_allocation_are_refused, pageable_sources_are_read_at_the_call,
           host_memory_calls, pointer_attributes, memory_goes_with_its_context,
           a_stale_handle_in_the_stack_is_no_context, several_devices,
           random_allocations_never_overlap)
