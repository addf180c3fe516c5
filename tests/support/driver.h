/* Declares the driver's functions for a program that links libcuda.so.1. */
#ifndef SUPPORT_DRIVER_H
#define SUPPORT_DRIVER_H

#include "device/cuda_abi.h"

#define CU_FN(symbol, name, since, mode, params, args) extern symbol##_fn symbol;
#include "device/cuda_functions.def"
#undef CU_FN

/* Returns the parameters of a graph node that launches the kernel in one thread. */
static inline CUDA_KERNEL_NODE_PARAMS test_kernel_node(CUfunction kernel, void **params) {
    return (CUDA_KERNEL_NODE_PARAMS){.func = kernel,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

#endif
