/* Copies and fills.  The library checks only their addresses, so sizes do not matter. */
#include "work.h"

#include <stdlib.h>

#if PEER_DEVICE
#include "device/cuda_abi.h"

#define CU_FN(symbol, name, since, mode, params, args) CUresult symbol params;
#include "device/cuda_functions.def"
#undef CU_FN

enum { PITCH = 1024, ROWS = 64, BYTES = PITCH * ROWS };

static struct {
    CUdeviceptr to, from;
    void *host;
    CUDA_MEMCPY2D rows;
    long step; /* between the addresses of one copy and the next */
} copied;
static work_device_t *device;

/* Defines one pass for each kind of call.  A call through a pointer would add to the figure. */
#define COPY_PASS(kind, call)                                                                    \
    static double kind##_pass(const work_t *w, long pairs) {                                     \
        CUstream stream = work_device_stream(device, 0);                                         \
        CUresult result = CUDA_SUCCESS;                                                          \
        double begin = work_clock(w);                                                            \
        for (long i = 0, at = 0; i < pairs && !result; i++, at = (at + copied.step) % (BYTES / 2)) \
            result = call;                                                                       \
        double took = work_clock(w) - begin;                                                     \
        if (result)                                                                              \
            work_fail(#kind, result);                                                            \
        work_device_wait(device);                                                                \
        return took;                                                                             \
    }
#define AT(address) ((address) + (CUdeviceptr)at)
COPY_PASS(device, cuMemcpyAsync(AT(copied.to), AT(copied.from), 16, stream))
COPY_PASS(host, cuMemcpyHtoDAsync_v2(AT(copied.to), copied.host, 16, stream))
COPY_PASS(unified, cuMemcpyAsync(AT(copied.to), (CUdeviceptr)(uintptr_t)copied.host, 16, stream))
COPY_PASS(fill, cuMemsetD8Async(AT(copied.to), 0, 16, stream))
COPY_PASS(rows, ((void)at, cuMemcpy2DAsync_v2(&copied.rows, stream)))
COPY_PASS(fill_rows, ((void)at, cuMemsetD2D8Async(copied.to, PITCH, 0, 16, ROWS, stream)))

void work_copy(const work_t *w) {
    static work_pass_fn *const pass[] = {device_pass, host_pass, unified_pass,
                                         fill_pass,   rows_pass, fill_rows_pass};
    copied.to = (CUdeviceptr)(uintptr_t)work_peer_take(BYTES);
    copied.from = (CUdeviceptr)(uintptr_t)work_peer_take(BYTES);
    copied.host = work_alloc(BYTES);
    copied.step = w->stride;
    copied.rows = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .srcDevice = copied.from,
                                  .srcPitch = PITCH,
                                  .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                  .dstDevice = copied.to,
                                  .dstPitch = PITCH,
                                  .WidthInBytes = 16,
                                  .Height = ROWS};
    device = work_device_open(w->streams);
    work_measure(w, pass[w->kind]);
    free(copied.host);
    work_peer_give((void *)(uintptr_t)copied.from, BYTES);
    work_peer_give((void *)(uintptr_t)copied.to, BYTES);
}
#endif
