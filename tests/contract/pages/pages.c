/* Expandable segments under a program: identity of memory in pages, access of peers, and return of pages.
 *
 * usage: pages CASE (a name of the table at the end). Exit status 0: passed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#define MIB  ((size_t)1 << 20)
#define PAGE (8 * MIB)

static CUcontext ctx[2];

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr p = 0;
    MUST(cuMemAlloc_v2(&p, bytes));
    return p;
}

static unsigned byte_at(CUdeviceptr p) {
    unsigned char byte = 0;
    MUST(cuMemcpyDtoH_v2(&byte, p, 1));
    return byte;
}

static void use(int device) {
    if (!ctx[device])
        MUST(cuDevicePrimaryCtxRetain(&ctx[device], device));
    MUST(cuCtxSetCurrent(ctx[device]));
}

/* --- what it looks like --- */

static void identity(void) {
    take(MIB);
    CUdeviceptr p = take(20 * MIB), base = 0; /* over several pages */
    CUdeviceptr inside = p + 9 * MIB + 5;
    size_t size = 0;
    CUmemGenericAllocationHandle handle = 77;
    CUipcMemHandle ipc;
    unsigned long long types = 1;
    CUcontext owner = NULL;
    EXPECT(simcuda_live("mappings") == 3);
    GIVES(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)inside),
          CUDA_ERROR_INVALID_VALUE);
    EXPECT(handle == 77);
    MUST(cuMemGetAddressRange_v2(&base, &size, inside));
    EXPECT(base == p && size == 20 * MIB);
    MUST(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
    EXPECT(types == 0);
    MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    EXPECT(owner == ctx[0]);
    MUST(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside));
    MUST(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside));
    EXPECT(base == p && size == 20 * MIB);
    unsigned capable = 0;
    MUST(
        cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside));
    EXPECT(capable == 1);
    GIVES(cuIpcGetMemHandle(&ipc, p), CUDA_SUCCESS);
    GIVES(cuMemFree_v2(inside), CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemFree_v2(p));
    GIVES(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

static void counts_what_is_free(void) {
    size_t before, after, total;
    MUST(cuMemGetInfo_v2(&before, &total));
    take(MIB);
    CUdeviceptr p = take(40 * MIB);
    take(MIB);
    MUST(cuMemGetInfo_v2(&after, &total));
    EXPECT(after == before - 6 * PAGE);
    MUST(cuMemFree_v2(p));
    MUST(cuMemGetInfo_v2(&after, &total));
    EXPECT(after == before - 2 * PAGE); /* only whole free pages count */
}

/* A multicast object does not accept memory of cuMemAlloc, but accepts memory that the program mapped
 * itself. */
static void multicast(void) {
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 4 * MIB};
    CUmemAllocationProp own = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle object, memory;
    CUdeviceptr p = take(20 * MIB), mapped;
    MUST(cuMulticastCreate(&object, &prop));
    MUST(cuMulticastAddDevice(object, 0));
    MUST(cuMulticastAddDevice(object, 1));
    NEED(p % (2 * MIB) == 0);
    GIVES(cuMulticastBindAddr(object, 0, p, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(object, 0, p + 2 * MIB, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemCreate(&memory, 2 * MIB, &own, 0));
    MUST(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0));
    MUST(cuMemMap(mapped, 2 * MIB, 0, memory, 0));
    GIVES(cuMulticastBindAddr_v2(object, 0, 0, p, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr(object, 0, mapped, 2 * MIB, 0), CUDA_SUCCESS);
    MUST(cuMulticastUnbind(object, 0, 0, 2 * MIB));
    MUST(cuMemRelease(object));
    MUST(cuMemFree_v2(p));
}

/* The driver has no addresses for a reservation of the program. The library returns the addresses of its
 * ranges without pages. Memory stays. */
static void addresses(void) {
    CUdeviceptr kept = take(1000), large = take(64 * MIB), own;
    int (*empty_cache)(void);
    NEED(test_find("accel_empty_cache", &empty_cache));
    MUST(cuMemFree_v2(large));
    unsigned long long reserved = simcuda_live("reservations"), mapped = simcuda_live("mappings");
    NEED(simcuda_fail("cuMemAddressReserve@1=2") == 0);
    GIVES(cuMemAddressReserve(&own, PAGE, 0, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(simcuda_live("reservations") == reserved && simcuda_live("mappings") == mapped);
    MUST(empty_cache());
    NEED(simcuda_fail("cuMemAddressReserve@1=2") == 0);
    GIVES(cuMemAddressReserve(&own, PAGE, 0, 0, 0), CUDA_SUCCESS);
    EXPECT(simcuda_live("reservations") == reserved); /* one range was released, and the program's one was
                                                         reserved */
    MUST(cuMemsetD8_v2(kept, 1, 1000));
    large = take(64 * MIB);
    MUST(cuMemsetD8_v2(large, 2, 64 * MIB));
}

/* --- pages that move --- */

/* Blocks next to pages that move keep their contents. */
static void contents(void) {
    CUdeviceptr before = take(3 * MIB), hole = take(32 * MIB), behind = take(3 * MIB);
    MUST(cuMemsetD8_v2(before, 1, 3 * MIB));
    MUST(cuMemsetD8_v2(hole, 2, 32 * MIB));
    MUST(cuMemsetD8_v2(behind, 3, 3 * MIB));
    MUST(cuMemFree_v2(hole));
    unsigned long long created = simcuda_calls("cuMemCreate");
    CUdeviceptr large = take(44 * MIB);
    EXPECT(simcuda_calls("cuMemUnmap") == 1);
    EXPECT(simcuda_calls("cuMemCreate") < created + 44 * MIB / PAGE);
    MUST(cuMemsetD8_v2(large, 4, 44 * MIB));
    MUST(cuCtxSynchronize());
    EXPECT(byte_at(before) == 1 && byte_at(before + 3 * MIB - 1) == 1);
    EXPECT(byte_at(behind) == 3 && byte_at(behind + 3 * MIB - 1) == 3);
    EXPECT(byte_at(large) == 4 && byte_at(large + 44 * MIB - 1) == 4);
}

/* Other libraries may have registered these pages, so they stay at their addresses. */
static void pinned(void) {
    take(3 * MIB);
    CUdeviceptr hole = take(32 * MIB), base;
    unsigned long long id;
    size_t size;
    take(3 * MIB);
    MUST(cuMemGetAddressRange_v2(&base, &size, hole));
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, hole));
    MUST(cuMemFree_v2(hole));
    EXPECT(take(28 * MIB) == hole); /* it serves again */
    MUST(cuMemFree_v2(hole));
    unsigned long long created = simcuda_calls("cuMemCreate");
    take(44 * MIB); /* its pages may go back, but not elsewhere */
    EXPECT(simcuda_calls("cuMemCreate") == created + 6);
}

/* --- access of peers --- */

static unsigned long long access_of(CUdeviceptr p, int device) {
    return simcuda_writable(p, device) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static void peers(void) {
    CUdeviceptr early = take(MIB);
    EXPECT(access_of(early, 0) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(access_of(early, 1) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    use(1);
    CUdeviceptr theirs = take(MIB);
    MUST(cuCtxEnablePeerAccess(ctx[0], 0)); /* device 1 reaches memory of device 0 */
    EXPECT(access_of(early, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(access_of(theirs, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    use(0);
    CUdeviceptr later = take(20 * MIB);
    EXPECT(access_of(later + 20 * MIB - 1, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    use(1);
    MUST(cuMemcpyDtoD_v2(later, theirs, MIB));
    MUST(cuCtxSynchronize());
}

static void cards(void) {
    unsigned capable = 9;
    MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                               take(MIB)));
    EXPECT(capable == 1);
}

static void no_cards(void) {
    unsigned capable = 9;
    MUST(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                               take(MIB)));
    EXPECT(capable == 0);
}

/* --- the end --- */

static void nothing_left(void) {
    EXPECT(simcuda_live("mappings") == 0);
    EXPECT(simcuda_live("handles") == 0);
    EXPECT(simcuda_live("reservations") == 0);
    EXPECT(simcuda_used_memory(0) == 0);
}

static void reset(void) {
    take(MIB);
    MUST(cuMemFree_v2(take(40 * MIB)));
    take(4096);
    EXPECT(simcuda_live("mappings") > 0);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    nothing_left();
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    ctx[0] = NULL;
    use(0);
    CUdeviceptr again = take(MIB);
    MUST(cuMemsetD8_v2(again, 7, MIB));
    EXPECT(byte_at(again) == 7);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    nothing_left();
}

static void destroyed(void) {
    CUcontext other;
    MUST(cuCtxCreate_v2(&other, 0, 0));
    take(3 * MIB);
    take(100);
    MUST(cuCtxDestroy_v2(other));
    nothing_left();
}

/* More contexts than the library has records for. No fence waits for work of the last one, so the library
 * must not unmap its pages. */
static void many_contexts(void) {
    CUdeviceptr held = take(MIB), block = take(100 * MIB);
    CUcontext context = NULL;
    CUdeviceptr more;
    size_t available, total;
    for (int i = 0; i < 300; i++)
        MUST(cuCtxCreate_v2(&context, 0, 0));
    static const simcuda_access_t touches = {
        .param = 0, .count_param = -1, .bytes = 100 * MIB, .writes = 1};
    static const simcuda_kernel_t kernel = {.name = "slow",
                                            .duration_ns = 100000000,
                                            .param_count = 1,
                                            .access_count = 1,
                                            .access = &touches};
    CUfunction slow = test_kernel(&kernel);
    void *params[] = {&block};
    MUST(cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    use(0);
    MUST(cuMemFree_v2(block));
    MUST(cuMemGetInfo_v2(&available, &total));
    if (cuMemAlloc_v2(&more, total - 50 * MIB) == CUDA_SUCCESS) /* would need idle memory to go back */
        MUST(cuMemFree_v2(more));
    EXPECT(simcuda_race_reports() == 0);
    MUST(cuMemFree_v2(held));
}

/* The device does not support pages, so the library uses native segments. */
static void missing(void) {
    CUdeviceptr p = take(MIB);
    MUST(cuMemsetD8_v2(p, 7, MIB));
    EXPECT(byte_at(p) == 7);
    MUST(cuMemFree_v2(p));
    MUST(cuCtxSynchronize()); /* the freed block may wait for a fence */
    EXPECT(take(MIB) == p);
    EXPECT(simcuda_calls("cuMemAlloc_v2") == 1);
    EXPECT(simcuda_live("mappings") == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"identity", identity},
             {"counts_what_is_free", counts_what_is_free},
             {"contents", contents},
             {"pinned", pinned},
             {"multicast", multicast},
             {"addresses", addresses},
             {"many_contexts", many_contexts},
             {"peers", peers},
             {"cards", cards},
             {"no_cards", no_cards},
             {"reset", reset},
             {"destroyed", destroyed},
             {"missing", missing}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            MUST(cuInit(0));
            use(0);
            simcuda_reset_calls();
            cases[i].run();
            if (simcuda_race_reports())
                return 1;
            return 0;
        }
    fprintf(stderr, "usage: pages CASE\n");
    return TEST_USAGE;
}
