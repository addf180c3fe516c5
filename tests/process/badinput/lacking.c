/* A libcuda.so.1 that starts and allocates, and has nothing else. */
#include "device/cuda_abi.h"

cuInit_fn cuInit;
cuCtxGetCurrent_fn cuCtxGetCurrent;
cuMemAlloc_v2_fn cuMemAlloc_v2;
cuMemFree_v2_fn cuMemFree_v2;

static CUdeviceptr next = 0x100000;

CUresult cuInit(unsigned flags) {
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = (CUcontext)&next;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    *address = next;
    next += bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    return address < next ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
