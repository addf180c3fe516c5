/* Every reason for which a request is left to the driver. */
#include "pools.h"

static void capture(void) {
    CUstream stream = test_stream();
    CUdeviceptr memory;
    CUgraph graph;
    give(take(MIB, NULL, stream), stream);
    PASSED(NULL, 0);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    memory = take(MIB, NULL, stream);
    give(memory, stream);
    memory = take(MIB, default_pool(0), stream);
    give(memory, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    PASSED("capture", 2);
    give(take(MIB, NULL, stream), stream); /* the library serves again */
    PASSED(NULL, 0);
    MUST(cuGraphDestroy(graph));
}

static void other_context(void) {
    CUcontext made;
    CUstream stream = test_stream(), there;
    MUST(cuCtxCreate_v2(&made, 0, 0));
    give(take(MIB, NULL, stream), stream); /* the stream's context is not current */
    MUST(cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    give(take(MIB, NULL, there), there); /* the context is not primary */
    PASSED("context", 2);
    MUST(cuCtxSetCurrent(context));
    give(take(MIB, pool_with(CU_MEM_HANDLE_TYPE_NONE, 0, 0, 1), stream), stream);
    PASSED("context", 1); /* another device's pool */
}

static void exportable(void) {
    CUstream stream = test_stream();
    CUmemoryPool pool = pool_with(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0, 0, 0);
    CUdeviceptr memory = take(MIB, pool, stream);
    CUmemPoolPtrExportData data;
    int handle = -1;
    PASSED("exportable", 1);
    MUST(cuMemPoolExportToShareableHandle(&handle, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          0));
    MUST(cuMemPoolExportPointer(&data, memory));
    EXPECT(figure(pool, USED) == MIB);
    /* The driver refuses to export a pool that is not exportable, or its memory. The library goes
     * on serving that pool. */
    GIVES(cuMemPoolExportToShareableHandle(&handle, default_pool(0),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr plain = take(MIB, NULL, stream);
    GIVES(cuMemPoolExportPointer(&data, plain), CUDA_ERROR_INVALID_VALUE);
    give(plain, stream);
    PASSED(NULL, 0);
}

static void kind(void) {
    enum { HW_DECOMPRESS = 2 };
    CUstream stream = test_stream();
    give(take(MIB, pool_with(CU_MEM_HANDLE_TYPE_NONE, 0, HW_DECOMPRESS, 0), stream), stream);
    PASSED("kind", 1);
}

/* Pools of host memory and of managed memory, made by the program and by the driver. */
static void host_and_managed(void) {
    static const struct {
        CUmemAllocationType type;
        CUmemLocation at;
    } kinds[] = {{CU_MEM_ALLOCATION_TYPE_PINNED, {CU_MEM_LOCATION_TYPE_HOST, 0}},
                 {CU_MEM_ALLOCATION_TYPE_PINNED, {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}},
                 {CU_MEM_ALLOCATION_TYPE_MANAGED, {CU_MEM_LOCATION_TYPE_NONE, 0}},
                 {CU_MEM_ALLOCATION_TYPE_MANAGED, {CU_MEM_LOCATION_TYPE_HOST, 0}},
                 {CU_MEM_ALLOCATION_TYPE_MANAGED, {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
                 {CU_MEM_ALLOCATION_TYPE_MANAGED, {CU_MEM_LOCATION_TYPE_DEVICE, 1}}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    CUstream stream = test_stream();
    for (int i = 0; i < 2 * KINDS; i++) {
        CUmemPoolProps props = {.allocType = kinds[i / 2].type, .location = kinds[i / 2].at};
        CUmemLocation at = props.location;
        bool managed = props.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
        CUmemoryPool pool, now;
        if (i % 2)
            MUST(cuMemPoolCreate(&pool, &props));
        else
            MUST(cuMemGetDefaultMemPool(&pool, &at, props.allocType));
        MUST(cuMemSetMemPool(&at, props.allocType, pool));
        MUST(cuMemGetMemPool(&now, &at, props.allocType));
        EXPECT(now == pool);
        CUmemAccessDesc here = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        if (!managed)
            MUST(cuMemPoolSetAccess(pool, &here, 1));
        CUdeviceptr memory = take(MIB, pool, stream), plain = take(MIB, NULL, stream);
        PASSED("kind", 1);
        EXPECT(pool_of(memory) == pool && pool_of(plain) == default_pool(0));
        unsigned *words = (unsigned *)(uintptr_t)memory, type = 0, is_managed = 2, word = 0;
        use(memory, stream);
        MUST(cuMemsetD32Async(memory + 64, 7, 4, stream));
        MUST(cuStreamSynchronize(stream));
        EXPECT(words[16] == 7 && words[19] == 7);
        words[20] = 8;
        MUST(cuMemcpyDtoDAsync_v2(plain, memory + 80, 4, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemcpyDtoH_v2(&word, plain, 4));
        EXPECT(word == 8);
        MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
        MUST(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory));
        EXPECT(type == (managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
        EXPECT(is_managed == managed && figure(pool, USED) == MIB);
        give(plain, stream);
        give(memory, stream);
        GIVES(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemPoolTrimTo(pool, 0));
        EXPECT(figure(pool, USED) == 0 && figure(pool, HELD) == 0);
        GIVES(cuMemPoolDestroy(pool), i % 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
        MUST(cuMemGetMemPool(&now, &at, props.allocType));
        EXPECT((now == pool) == !(i % 2));
    }
    PASSED(NULL, 0);
}

static void reuse(void) {
    CUstream stream = test_stream();
    CUmemoryPool pool = pool_plain();
    CUdeviceptr before = take(MIB, pool, stream);
    set_switch(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
    CUdeviceptr after = take(2 * MIB, pool, stream);
    PASSED("reuse", 1);
    EXPECT(figure(pool, USED) == 3 * MIB); /* sum of the library and the driver */
    EXPECT(pool_of(before) == pool && pool_of(after) == pool);
    set_switch(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
    give(take(MIB, pool, stream), stream);
    PASSED("reuse", 1); /* permanent for this pool */
    give(before, stream);
    EXPECT(figure(pool, USED) == 2 * MIB);
    give(after, stream);
    EXPECT(figure(pool, USED) == 0);
    give(take(MIB, NULL, stream), stream); /* other pools are not affected */
    PASSED(NULL, 0);
}

static void nothing_here(void) {
    CUstream stream = test_stream();
    give(take(MIB, NULL, stream), stream);
    PASSED("disabled", 1);
}

static void limit(void) {
    enum { MORE = 300 };
    CUstream stream = test_stream();
    CUmemoryPool pool[MORE];
    for (int i = 0; i < MORE; i++)
        pool[i] = pool_plain();
    CUdeviceptr memory = take(MIB, pool[MORE - 1], stream);
    EXPECT(pool_of(memory) == pool[MORE - 1]);
    PASSED("limit", 1);
    give(take(MIB, pool[0], stream), stream);
    PASSED(NULL, 0);
    for (int i = 0; i < MORE; i++)
        MUST(cuMemPoolDestroy(pool[i]));
    give(memory, stream);
    give(take(MIB, pool_plain(), stream), stream); /* there is room again */
    PASSED(NULL, 0);
    CUdeviceptr too_much = 0;
    GIVES(cuMemAllocAsync(&too_much, (size_t)1 << 40, stream), CUDA_ERROR_OUT_OF_MEMORY);
    PASSED("limit", 1);
}

static void unknown(void) {
    CUstream stream = test_stream();
    CUdeviceptr memory;
    GIVES(cuMemAllocAsync(NULL, MIB, stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAllocFromPoolAsync(&memory, 0, default_pool(0), stream), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAllocFromPoolAsync(&memory, MIB, NULL, stream), CUDA_ERROR_INVALID_VALUE);
    PASSED("unknown", 3);
}

/* --- access of another device (two of them) --- */

static CUresult allow(CUmemoryPool pool, int device, CUmemAccess_flags flags) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    return cuMemPoolSetAccess(pool, &access, 1);
}

static void access_before(void) {
    CUstream stream = test_stream();
    CUmemoryPool pool = pool_plain(), plain = pool_plain();
    MUST(allow(plain, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)); /* no change: the device has access
                                                                  to its own pool */
    GIVES(allow(plain, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_ERROR_INVALID_DEVICE);
    GIVES(allow(plain, 7, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_DEVICE);
    give(take(MIB, plain, stream), stream);
    PASSED(NULL, 0);
    MUST(allow(pool, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    give(take(MIB, pool, stream), stream);
    PASSED("access", 1);
    OURS(simcuda_calls("cuCtxEnablePeerAccess") == 0);
}

/* Handed-out memory becomes reachable for all contexts of the other device, existing and later
 * ones. The program's own calls that enable and disable access return the same as without the
 * library. */
static void access_after(void) {
    CUstream stream = test_stream();
    CUcontext other, made;
    CUmemoryPool pool = pool_plain();
    CUdeviceptr memory = take(MIB, pool, stream);
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(allow(pool, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OURS(simcuda_calls("cuCtxEnablePeerAccess") == 1);
    give(take(MIB, pool, stream), stream);
    PASSED("access", 1);
    MUST(cuCtxSetCurrent(other));
    GIVES(cuCtxDisablePeerAccess(context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    GIVES(cuCtxEnablePeerAccess(context, 0), CUDA_SUCCESS);
    GIVES(cuCtxEnablePeerAccess(context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    GIVES(cuCtxDisablePeerAccess(context), CUDA_SUCCESS);
    GIVES(cuCtxDisablePeerAccess(context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    OURS(simcuda_calls("cuCtxDisablePeerAccess") == 0);
    unsigned long long before = simcuda_calls("cuCtxEnablePeerAccess");
    MUST(cuCtxCreate_v2(&made, 0, 1));
    OURS(simcuda_calls("cuCtxEnablePeerAccess") == before + 1);
    GIVES(cuCtxEnablePeerAccess(context, 0), CUDA_SUCCESS);
    for (int turn = 0; turn < 300; turn++) { /* the library's records of a context go with the
                                                context */
        CUcontext passing;
        MUST(cuCtxCreate_v2(&passing, 0, 1));
        GIVES(cuCtxEnablePeerAccess(context, 0), CUDA_SUCCESS);
        MUST(cuCtxDestroy_v2(passing));
    }
    MUST(cuCtxSetCurrent(context));
    give(memory, stream);
    GIVES(cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS); /* access in the other direction is
                                                             separate */
}

const case_t reasons[] = {{"capture", capture},
                          {"other_context", other_context},
                          {"exportable", exportable},
                          {"kind", kind},
                          {"host_and_managed", host_and_managed},
                          {"reuse", reuse},
                          {"nothing_here", nothing_here},
                          {"limit", limit},
                          {"unknown", unknown},
                          {"access_before", access_before},
                          {"access_after", access_after}};
const size_t reasons_count = sizeof reasons / sizeof *reasons;
