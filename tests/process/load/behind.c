/* Linked behind the runtime and the driver: the program's own calls go past the library, what the C
 * API does must not.  The driver still has the segment that freed memory lies in, and work that the
 * library does not see keeps freed memory from the next request. */
#include "accelcache.h"
#include "harness.h"

enum { BYTES = 1 << 20, KERNEL_NS = 1000000 };

static void *block(CUstream stream) {
    void *pointer = NULL;
    MUST(stream ? accel_malloc_async(&pointer, BYTES, stream) : accel_malloc(&pointer, BYTES));
    return pointer;
}

static void release(void *pointer, CUstream stream) {
    GIVES(stream ? accel_free_async(pointer, stream) : accel_free(pointer), ACCEL_OK);
}

/* A neighbour stays usable, and the next request gets memory of the same segment. */
static void check_frees(CUstream stream) {
    void *freed = block(stream), *kept = block(stream);
    unsigned long long segments = simcuda_live_allocations(NULL);
    release(freed, stream);
    GIVES(simcuda_live_allocations(NULL), segments);
    GIVES(cuMemsetD8_v2(test_address(kept), 1, BYTES), CUDA_SUCCESS);
    void *next = block(stream);
    GIVES(simcuda_live_allocations(NULL), segments);
    GIVES(cuMemsetD8_v2(test_address(next), 2, BYTES), CUDA_SUCCESS);
    release(next, stream);
    release(kept, stream);
    GIVES(simcuda_calls("cuMemFree_v2"), 0);
    GIVES(simcuda_calls("cuMemFreeAsync"), 0);
    GIVES(simcuda_calls("cuMemAllocAsync"), 0);
}

/* The kernel is given to the driver itself. */
static void check_unseen_work(void) {
    static const simcuda_access_t writes = {.count_param = -1, .bytes = BYTES, .writes = 1};
    static const simcuda_kernel_t kernel = {.name = "late",
                                            .duration_ns = KERNEL_NS,
                                            .param_count = 1,
                                            .access_count = 1,
                                            .access = &writes};
    CUfunction late = test_kernel(&kernel);
    void *used = block(NULL);
    CUdeviceptr address = test_address(used);
    void *arguments[] = {&address};
    CUstream stream = test_stream();
    MUST(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    release(used, NULL);
    void *next = block(NULL);
    EXPECT(next != used);
    MUST(cuStreamSynchronize(stream));
    release(next, NULL);
}

int main(void) {
    test_device(0);
    CUstream stream = test_stream();
    check_frees(NULL);
    check_frees(stream);
    check_unseen_work();
    return TEST_GOOD;
}
