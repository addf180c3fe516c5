/* A peer of work.h: cuMemAlloc and cuMemFree of the driver. */
#ifndef BENCH_PEER_DRIVER_H
#define BENCH_PEER_DRIVER_H

#include "device/cuda_abi.h"

CUresult cuInit(unsigned flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);

/* Makes the context of device 0 current: each thread needs a current context. */
static inline void peer_thread(void) {
    CUdevice device;
    CUcontext context;
    CUresult error = cuDeviceGet(&device, 0);
    if (!error)
        error = cuDevicePrimaryCtxRetain(&context, device);
    if (!error)
        error = cuCtxSetCurrent(context);
    if (error)
        work_fail("no context of device 0", error);
}

static inline void peer_open(void) {
    CUresult error = cuInit(0);
    if (error)
        work_fail("cuInit", error);
    peer_thread();
}

static inline void *peer_take(size_t bytes, void *stream) {
    (void)stream;
    CUdeviceptr pointer;
    CUresult error = cuMemAlloc_v2(&pointer, bytes);
    if (error)
        work_fail("cuMemAlloc", error);
    return (void *)(uintptr_t)pointer;
}

static inline void peer_give(void *pointer, size_t bytes, void *stream) {
    (void)bytes;
    (void)stream;
    CUresult error = cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer);
    if (error)
        work_fail("cuMemFree", error);
}

#endif
