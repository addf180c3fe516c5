/* The fill calls.  Global lock. */
#include "state.h"

static CUresult submit(CUdeviceptr to, size_t pitch, unsigned value, unsigned element,
                       size_t width, size_t rows, CUstream handle, bool sync, bool per_thread) {
    CUstream stream;
    sim_work_t *work, *kept = NULL;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result)
        result = sim_fill_work(stream->ctx, to, pitch, value, element, width, rows, &work);
    if (result || !work)
        return result;
    const sim_alloc_t *record = sim_alloc_around(to);
    if (!record && !stream->capture) { /* memory of a graph that no launch has allocated yet */
        sim_work_unref(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The synchronous form completes host-visible targets before it returns. */
    bool waits = sync && record && record->host;
    CUcontext ctx = stream->ctx;
    result = sim_enqueue(stream, work, waits ? &kept : NULL);
    if (result || !kept)
        return result;
    sim_wait(kept);
    result = kept->failed ? ctx->sticky : CUDA_SUCCESS;
    sim_work_unref(kept);
    return result;
}

#define FILLS(bits, type)                                                                        \
    SIM_API(cuMemsetD##bits##_v2)(CUdeviceptr a, type b, size_t c) {                             \
        return submit(a, 0, b, bits / 8, c, 1, NULL, true, false);                               \
    }                                                                                            \
    SIM_API(cuMemsetD##bits##_v2_ptds)(CUdeviceptr a, type b, size_t c) {                        \
        return submit(a, 0, b, bits / 8, c, 1, NULL, true, true);                                \
    }                                                                                            \
    SIM_API(cuMemsetD##bits##Async)(CUdeviceptr a, type b, size_t c, CUstream d) {               \
        return submit(a, 0, b, bits / 8, c, 1, d, false, false);                                 \
    }                                                                                            \
    SIM_API(cuMemsetD##bits##Async_ptsz)(CUdeviceptr a, type b, size_t c, CUstream d) {          \
        return submit(a, 0, b, bits / 8, c, 1, d, false, true);                                  \
    }                                                                                            \
    SIM_API(cuMemsetD2D##bits##_v2)(CUdeviceptr a, size_t b, type c, size_t d, size_t e) {       \
        return submit(a, b, c, bits / 8, d, e, NULL, true, false);                               \
    }                                                                                            \
    SIM_API(cuMemsetD2D##bits##_v2_ptds)(CUdeviceptr a, size_t b, type c, size_t d, size_t e) {  \
        return submit(a, b, c, bits / 8, d, e, NULL, true, true);                                \
    }                                                                                            \
    SIM_API(cuMemsetD2D##bits##Async)                                                            \
    (CUdeviceptr a, size_t b, type c, size_t d, size_t e, CUstream f) {                          \
        return submit(a, b, c, bits / 8, d, e, f, false, false);                                 \
    }                                                                                            \
    SIM_API(cuMemsetD2D##bits##Async_ptsz)                                                       \
    (CUdeviceptr a, size_t b, type c, size_t d, size_t e, CUstream f) {                          \
        return submit(a, b, c, bits / 8, d, e, f, false, true);                                  \
    }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)
