/* Multicast objects under the library: the memory that they accept, with the mapping in use. No
 * thread waits for a thread that waits for its team. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "pools.h"

#define GRAIN (2 * MIB)

static CUmemGenericAllocationHandle team(CUmemAllocationHandleType types, unsigned devices) {
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 4 * GRAIN, .handleTypes = types};
    CUmemGenericAllocationHandle object;
    size_t grain;
    MUST(cuMulticastGetGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    NEED(grain == GRAIN);
    MUST(cuMulticastCreate(&object, &prop));
    for (int device = 0; device < (int)devices; device++)
        MUST(cuMulticastAddDevice(object, device));
    return object;
}

static CUmemGenericAllocationHandle pages(int device) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle memory;
    MUST(cuMemCreate(&memory, 4 * GRAIN, &prop, 0));
    return memory;
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr range;
    MUST(cuMemAddressReserve(&range, bytes, 0, 0, 0));
    MUST(cuMemMap(range, bytes, 0, handle, 0));
    MUST(cuMemSetAccess(range, bytes, &access, 1));
    return range;
}

static unsigned char byte_at(CUdeviceptr address) {
    unsigned char byte = 0;
    MUST(cuMemcpyDtoH_v2(&byte, address, 1));
    return byte;
}

/* Uses memory as NVLS of NCCL does: the object has memory of its own, and does not accept blocks of
 * cudaMalloc. The program copies the blocks into it, frees them under that work, and lets others use
 * them. */
static void multicast_blocks(void) {
    CUmemGenericAllocationHandle object = team(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 2);
    CUstream stream = test_stream();
    CUdeviceptr block, small, shown[2], next;
    void *bind_address;
    MUST(cuGetProcAddress_v2("cuMulticastBindAddr", &bind_address, 13010, 0, NULL));
    EXPECT(bind_address == dlsym(RTLD_DEFAULT, "cuMulticastBindAddr_v2"));
    MUST(cuMemAlloc_v2(&block, 8 * GRAIN));
    MUST(cuMemAlloc_v2(&small, 4096));
    CUdeviceptr even = (block + GRAIN - 1) & ~(GRAIN - 1);
    GIVES(cuMulticastBindAddr(object, 0, even, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMulticastBindAddr_v2(object, 0, 0, even, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
    for (int device = 0; device < 2; device++) {
        CUmemGenericAllocationHandle memory = pages(device);
        shown[device] = map(memory, 4 * GRAIN);
        if (device)
            MUST(cuMulticastBindMem_v2(object, 1, 0, memory, 0, 4 * GRAIN, 0));
        else
            MUST(cuMulticastBindAddr_v2(object, 0, 0, shown[0], 4 * GRAIN, 0));
        MUST(cuMemRelease(memory));
    }
    CUdeviceptr p = map(object, 4 * GRAIN);
    for (unsigned char round = 1; round < 20; round++) {
        GIVES(cuMulticastBindAddr(object, 0, even, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
        GIVES(cuMulticastBindAddr_v2(object, 0, 0, even, GRAIN, 0), CUDA_ERROR_INVALID_VALUE);
        MUST(cuMemsetD8Async(block, round, 4 * GRAIN, stream));
        MUST(cuMemcpyDtoDAsync_v2(p, block, 4 * GRAIN, stream));
        MUST(cuMemFree_v2(block));
        MUST(cuMemAlloc_v2(&next, 8 * GRAIN));
        MUST(cuMemsetD8Async(next, 0xee, 8 * GRAIN, test_stream()));
        MUST(cuCtxSynchronize());
        EXPECT(byte_at(shown[0] + 4 * GRAIN - 1) == round && byte_at(shown[1] + 5) == round);
        block = next;
        even = (block + GRAIN - 1) & ~(GRAIN - 1);
    }
    MUST(cuMulticastUnbind(object, 0, 0, 4 * GRAIN));
    MUST(cuMulticastUnbind(object, 1, 0, 4 * GRAIN));
    MUST(cuMemUnmap(p, 4 * GRAIN));
    MUST(cuMemRelease(object));
    MUST(cuMemFree_v2(block));
    MUST(cuMemFree_v2(small));
    give(take(MIB, NULL, stream), stream);
    PASSED(NULL, 0); /* an exportable object accepts no memory of this pool, so the library goes on
                        serving it */
}

/* An object that is not shared accepts memory of any pool. After the program makes one, the driver
 * serves all requests. */
static void multicast_pools(void) {
    CUstream stream = test_stream();
    CUmemoryPool early = pool_plain();
    give(take(8 * GRAIN, NULL, stream), stream);
    give(take(8 * GRAIN, early, stream), stream);
    PASSED(NULL, 0);
    CUmemGenericAllocationHandle object = team(CU_MEM_HANDLE_TYPE_NONE, 2), there = pages(1);
    const CUmemoryPool pools[] = {NULL, early, pool_plain()};
    CUdeviceptr seen = map(there, 4 * GRAIN);
    MUST(cuMulticastBindMem(object, 0, there, 0, 4 * GRAIN, 0));
    CUdeviceptr p = map(object, 4 * GRAIN);
    for (unsigned char i = 0; i < 3; i++) {
        CUdeviceptr memory = take(8 * GRAIN, pools[i], stream);
        CUdeviceptr even = (memory + GRAIN - 1) & ~(GRAIN - 1);
        MUST(cuStreamSynchronize(stream));
        MUST(cuMulticastBindAddr(object, 0, even, 4 * GRAIN, 0));
        MUST(cuMemsetD8Async(p + GRAIN, i + 1, GRAIN, stream));
        MUST(cuStreamSynchronize(stream));
        EXPECT(byte_at(even + GRAIN) == i + 1 && byte_at(seen + 2 * GRAIN - 1) == i + 1);
        MUST(cuMulticastUnbind(object, 0, 0, 4 * GRAIN));
        give(memory, stream);
    }
    PASSED("kind", 3);
}

/* ---- a thread that waits in the driver ---- */

static CUmemGenericAllocationHandle half_a_team, its_memory;
static atomic_bool bound;

static void *bind(void *arg) {
    (void)arg;
    MUST(cuCtxSetCurrent(context));
    MUST(cuMulticastBindMem(half_a_team, 0, its_memory, 0, GRAIN, 0));
    atomic_store(&bound, true);
    return NULL;
}

static void *allocate(void *arg) {
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 40; i++) {
        CUdeviceptr block, other;
        size_t bytes = (size_t)(1 + i % 7) * MIB;
        MUST(cuMemAlloc_v2(&block, bytes));
        MUST(cuMemAllocAsync(&other, bytes, stream));
        MUST(cuMemsetD8Async(block, 1, bytes, stream));
        MUST(cuMemFreeAsync(other, stream));
        MUST(cuMemFree_v2(block));
        MUST(cuStreamSynchronize(stream));
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    MUST(cuMemAlloc_v2(arg, (size_t)1 << 30)); /* idle memory goes back for this request */
    return NULL;
}

static void multicast_waits(void) {
    pthread_t waiting, busy;
    CUdeviceptr large;
    half_a_team = team(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1);
    its_memory = pages(0);
    NEED(pthread_create(&waiting, NULL, bind, NULL) == 0);
    NEED(pthread_create(&busy, NULL, allocate, &large) == 0);
    NEED(pthread_join(busy, NULL) == 0);
    EXPECT(!atomic_load(&bound));
    MUST(cuMulticastAddDevice(half_a_team, 1));
    NEED(pthread_join(waiting, NULL) == 0);
    EXPECT(atomic_load(&bound));
}

const case_t multicast[] = {{"multicast_blocks", multicast_blocks},
                            {"multicast_pools", multicast_pools},
                            {"multicast_waits", multicast_waits}};
const size_t multicast_count = sizeof multicast / sizeof *multicast;
