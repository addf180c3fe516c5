/* A stream of device 0 that is held, for the suites of the C API. */
#ifndef HOLD_H
#define HOLD_H

#include <check.h>

#include "accelcache.h"
#include "device/cuda_abi.h"

cuMemAlloc_v2_fn cuMemAlloc_v2;
cuMemsetD32_v2_fn cuMemsetD32_v2;
cuStreamSynchronize_fn cuStreamSynchronize;
cuStreamWaitValue32_v2_fn cuStreamWaitValue32_v2;
cuStreamWriteValue32_v2_fn cuStreamWriteValue32_v2;

/* The stream does nothing from now on, until _go. */
static CUdeviceptr flag;
static void hold(CUstream stream) {
    if (!flag)
        ck_assert_int_eq(cuMemAlloc_v2(&flag, 512), CUDA_SUCCESS);
    ck_assert_int_eq(cuMemsetD32_v2(flag, 0, 1), CUDA_SUCCESS);
    ck_assert_int_eq(cuStreamSynchronize(NULL), CUDA_SUCCESS); /* before the stream looks */
    ck_assert_int_eq(cuStreamWaitValue32_v2(stream, flag, 1, 0), CUDA_SUCCESS);
}
static void let_go(CUstream stream) {
    ck_assert_int_eq(cuStreamWriteValue32_v2(stream, flag, 1, 0), CUDA_SUCCESS);
    ck_assert_int_eq(accel_synchronize_device(0), ACCEL_OK);
}

#endif
