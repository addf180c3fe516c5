/* The stream-ordered API: its pools are the driver's, its calls are counted.  Mixed use works:
 * a pool's pointer given to cuMemFree is the driver's, ours given to cuMemFreeAsync is ours. */
#include "intercept/body.h"

#include "device/driver.h"

#define ASYNC_ALLOC(symbol, params, args)                                                        \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        CUresult result;                                                                         \
        AC_RETRY(result, real args);                                                             \
        return result;                                                                           \
    }
ASYNC_ALLOC(cuMemAllocAsync, (CUdeviceptr * a, size_t b, CUstream c), (a, b, c))
ASYNC_ALLOC(cuMemAllocAsync_ptsz, (CUdeviceptr * a, size_t b, CUstream c), (a, b, c))
ASYNC_ALLOC(cuMemAllocFromPoolAsync, (CUdeviceptr * a, size_t b, CUmemoryPool c, CUstream d),
            (a, b, c, d))
ASYNC_ALLOC(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * a, size_t b, CUmemoryPool c, CUstream d),
            (a, b, c, d))

/* No allocation has this address: given in place of one of ours that may not be freed now, it
 * makes the driver answer in its own words and order (no context, a broken one, a bad stream). */
enum { NOBODYS = 1 };

/* A block of ours, freed in the order of `stream`: a plain free, whose fence covers all streams
 * and so that one.  A capturing stream takes only what a graph allocated. */
static CUresult free_on_stream(ac_thread_t *thread, cuMemFreeAsync_fn *real, CUdeviceptr pointer,
                               CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUcontext owner;
    if (thread && stream > CU_STREAM_PER_THREAD && ac_driver.cuStreamGetCtx) {
        CUresult result = ac_driver.cuStreamGetCtx(stream, &owner);
        if (result != CUDA_SUCCESS) /* once more: the block could be freed all the same */
            result = ac_driver.cuStreamGetCtx(stream, &owner);
        if (result != CUDA_SUCCESS)
            return result; /* no stream: the driver's word for it */
    } else if (thread && stream <= CU_STREAM_PER_THREAD) {
        ac_context_t *context = ac_context_current(thread);
        if (!context || atomic_load(&context->line->broken))
            return real(NOBODYS, stream);
    }
    if (thread && ac_driver.cuStreamIsCapturing) {
        CUresult result = ac_driver.cuStreamIsCapturing(stream, &status);
        if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
            return result;
        if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (ac_block_mark_used(pointer) == AC_OK && ac_block_free(pointer) == AC_OK)
        return CUDA_SUCCESS;
    ac_count(thread, AC_COUNT_bad_frees);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFreeAsync(CUdeviceptr a, CUstream b) {
    AC_BODY(cuMemFreeAsync);
    return ac_owned(a) ? free_on_stream(thread, real, a, b) : real(a, b);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr a, CUstream b) {
    AC_BODY(cuMemFreeAsync_ptsz);
    if (ac_owned(a))
        return free_on_stream(thread, real, a, b ? b : CU_STREAM_PER_THREAD);
    return real(a, b);
}
