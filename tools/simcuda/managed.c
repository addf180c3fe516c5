/* Hints about managed memory.  They change nothing here, because the host and the device see the
 * same managed memory.  The arguments are checked, and prefetches take their place in the stream.
 * Global lock. */
#include <string.h>

#include "state.h"

static bool all_managed(CUdeviceptr address, size_t bytes) {
    const sim_alloc_t *record = sim_alloc_around(address);
    return bytes && record && record->managed &&
           bytes <= record->base + record->size - address;
}

enum { CPU = -1, LEAST_ADVICE = 1, LAST_ADVICE = 6 };

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
                       const CUmemLocation *where) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    if (!all_managed(address, bytes) || advice < LEAST_ADVICE || advice > LAST_ADVICE)
        return CUDA_ERROR_INVALID_VALUE;
    /* Advice 1 and 2 (read mostly: set, unset) needs no location. */
    return advice > 2 && where->type == CU_MEM_LOCATION_TYPE_DEVICE ? sim_device_check(where->id)
                                                                    : CUDA_SUCCESS;
}

static CUmemLocation location_of(CUdevice device) {
    return (CUmemLocation){
        device == CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device};
}

SIM_API(cuMemAdvise)(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
    CUmemLocation where = location_of(device);
    return advise(address, bytes, advice, &where);
}

SIM_API(cuMemAdvise_v2)
(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation where) {
    return advise(address, bytes, advice, &where);
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, const CUmemLocation *where,
                         unsigned flags, CUstream handle, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && where->type == CU_MEM_LOCATION_TYPE_DEVICE)
        result = sim_device_check(where->id);
    if (result)
        return result;
    if (flags || !all_managed(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work = sim_work_new(&sim_mark_ops, stream->ctx, 0);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->duration = sim_copy_ns(bytes, true);
    return sim_enqueue(stream, work, NULL);
}

SIM_API(cuMemPrefetchAsync)(CUdeviceptr a, size_t b, CUdevice c, CUstream d) {
    CUmemLocation where = location_of(c);
    return prefetch(a, b, &where, 0, d, false);
}
SIM_API(cuMemPrefetchAsync_ptsz)(CUdeviceptr a, size_t b, CUdevice c, CUstream d) {
    CUmemLocation where = location_of(c);
    return prefetch(a, b, &where, 0, d, true);
}
SIM_API(cuMemPrefetchAsync_v2)(CUdeviceptr a, size_t b, CUmemLocation c, unsigned d, CUstream e) {
    return prefetch(a, b, &c, d, e, false);
}
SIM_API(cuMemPrefetchAsync_v2_ptsz)
(CUdeviceptr a, size_t b, CUmemLocation c, unsigned d, CUstream e) {
    return prefetch(a, b, &c, d, e, true);
}
