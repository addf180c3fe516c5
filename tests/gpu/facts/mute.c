/* A preloaded library that drops two calls.
 *
 * cudaMemset does not reach the shared runtime, as if the runtime bypassed the driver's exported
 * functions.  cuMemFree does not reach the driver, as if a cache answered it. */
#include "device/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int cudaMemset(void *memory, int value, size_t bytes);
EXPORT cuMemFree_v2_fn cuMemFree_v2;

int cudaMemset(void *memory, int value, size_t bytes) {
    (void)memory, (void)value, (void)bytes;
    return 0;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    (void)memory;
    return CUDA_SUCCESS;
}
