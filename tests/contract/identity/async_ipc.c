/* async_ipc:true between two processes: memory of cudaMallocAsync is exported and opened as that of
 * cudaMalloc.
 *
 * usage: async_ipc        Under the library with async_ipc:true. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "peer.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static CUstream stream;

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr address = 0;
    MUST(cuMemAllocAsync(&address, bytes, stream));
    return address;
}

/* The other process opens the block and reads its bytes, as an allocation of its own. After the
 * free it opens nothing. */
static void opens(peer_t *peer, size_t bytes, unsigned word) {
    CUdeviceptr beside = take(bytes), block = take(bytes), there = 0;
    CUipcMemHandle handle, next;
    fill(beside, bytes, word + 1);
    fill(block, bytes, word);
    MUST(cuIpcGetMemHandle(&handle, block + bytes / 2));
    GIVES(peer_open(peer, handle, &there), CUDA_SUCCESS);
    EXPECT(peer_reads(peer, there, bytes, word));
    peer_answer_t range =
        peer_ask(peer, (peer_ask_t){.what = PEER_RANGE, .address = there + bytes / 2});
    EXPECT(range.address == there && range.size == bytes);
    MUST(peer_close(peer, there));
    MUST(cuMemFreeAsync(block, stream));
    GIVES(peer_open(peer, handle, &there), CUDA_ERROR_INVALID_HANDLE);
    block = take(bytes);
    MUST(cuIpcGetMemHandle(&next, block));
    EXPECT(memcmp(&handle, &next, sizeof handle) != 0);
    MUST(cuMemFreeAsync(block, stream));
    MUST(cuMemFreeAsync(beside, stream));
}

/* Another process cannot follow this one's streams. So earlier work on the memory is over when the
 * memory is exported. */
static void is_complete(void) {
    CUfunction busy =
        test_kernel(&(simcuda_kernel_t){.name = "busy", .duration_ns = 1000000});
    CUdeviceptr block = take(MIB);
    CUipcMemHandle handle;
    MUST(cuLaunchKernel(busy, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuMemFreeAsync(block, stream));
    EXPECT(take(MIB) == block); /* at once, in the stream's order */
    EXPECT(simcuda_pending_work() > 0);
    MUST(cuIpcGetMemHandle(&handle, block));
    EXPECT(simcuda_pending_work() == 0);
    MUST(cuMemFreeAsync(block, stream));
}

/* The option does not change memory of a pool that the program made. */
static void pools_stay(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool, shown = NULL;
    CUdeviceptr block = 0;
    CUipcMemHandle handle;
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&block, MIB, pool, stream));
    MUST(cuPointerGetAttribute(&shown, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
    EXPECT(shown == pool);
    GIVES(cuIpcGetMemHandle(&handle, block), CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemFreeAsync(block, stream));
    MUST(cuMemPoolDestroy(pool));
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {512, 1000, 4 * KIB, 70 * KIB, MIB, 3 * MIB};
    if (argc == 3 && !strcmp(argv[1], "peer"))
        return peer_main(atoi(argv[2]));
    test_device(0);
    stream = test_stream();
    peer_t peer = peer_start(argv[0], 0, true);
    for (unsigned i = 0; i < 3 * sizeof sizes / sizeof *sizes; i++)
        opens(&peer, sizes[i / 3], 1000 + i);
    is_complete();
    pools_stay();
    peer_stop(&peer);
    return TEST_GOOD;
}
