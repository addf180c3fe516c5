/* The copy calls: each builds a sim_copy_t and hands it to submit().  Global lock. */
#include <string.h>

#include "copy.h"
#include "state.h"

/* SYNC: synchronous form.  OWN: per-thread default stream.  ASK: only checks the arguments. */
enum { SYNC = 1, OWN = 2, ASK = 4 };

static CUresult submit(const sim_copy_t *copy, CUstream handle, unsigned how) {
    CUstream stream;
    sim_work_t *work, *kept = NULL;
    bool host_waits, sync_waits;
    CUresult result = sim_stream_get(handle, how & OWN, &stream);
    sim_copy_t own = *copy;
    own.later = !result && stream->capture;
    if (!result)
        result = sim_copy_build(stream->ctx, &own, true, &work, &host_waits, &sync_waits);
    if (result || !work)
        return result;
    if (how & ASK) {
        sim_work_unref(work);
        return CUDA_SUCCESS;
    }
    bool waits = host_waits || (how & SYNC && sync_waits);
    CUcontext ctx = stream->ctx;
    result = sim_enqueue(stream, work, waits ? &kept : NULL);
    if (result || !kept)
        return result;
    /* A copy from pageable memory makes the host wait only for the staging. */
    if (how & SYNC && kept->staged)
        sim_wait_reached(kept);
    else
        sim_wait(kept);
    result = kept->failed ? ctx->sticky : CUDA_SUCCESS;
    sim_work_unref(kept);
    return result;
}

static CUresult linear(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from,
                       size_t bytes, CUstream stream, unsigned how) {
    sim_copy_t copy = {.from = {.type = from_type, .address = from},
                       .to = {.type = to_type, .address = to},
                       .width = bytes,
                       .rows = 1,
                       .planes = 1};
    return submit(&copy, stream, how);
}

#define H(pointer) CU_MEMORYTYPE_HOST, (uint64_t)(uintptr_t)(pointer)
#define D(address) CU_MEMORYTYPE_DEVICE, (address)
#define U(address) CU_MEMORYTYPE_UNIFIED, (address)

SIM_API(cuMemcpy)(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return linear(U(to), U(from), bytes, NULL, SYNC);
}
SIM_API(cuMemcpy_ptds)(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return linear(U(to), U(from), bytes, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyAsync)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return linear(U(to), U(from), bytes, stream, 0);
}
SIM_API(cuMemcpyAsync_ptsz)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return linear(U(to), U(from), bytes, stream, OWN);
}
SIM_API(cuMemcpyHtoD_v2)(CUdeviceptr to, const void *from, size_t bytes) {
    return linear(D(to), H(from), bytes, NULL, SYNC);
}
SIM_API(cuMemcpyHtoD_v2_ptds)(CUdeviceptr to, const void *from, size_t bytes) {
    return linear(D(to), H(from), bytes, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyHtoDAsync_v2)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return linear(D(to), H(from), bytes, stream, 0);
}
SIM_API(cuMemcpyHtoDAsync_v2_ptsz)
(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return linear(D(to), H(from), bytes, stream, OWN);
}
SIM_API(cuMemcpyDtoH_v2)(void *to, CUdeviceptr from, size_t bytes) {
    return linear(H(to), D(from), bytes, NULL, SYNC);
}
SIM_API(cuMemcpyDtoH_v2_ptds)(void *to, CUdeviceptr from, size_t bytes) {
    return linear(H(to), D(from), bytes, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyDtoHAsync_v2)(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return linear(H(to), D(from), bytes, stream, 0);
}
SIM_API(cuMemcpyDtoHAsync_v2_ptsz)(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return linear(H(to), D(from), bytes, stream, OWN);
}
SIM_API(cuMemcpyDtoD_v2)(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return linear(D(to), D(from), bytes, NULL, SYNC);
}
SIM_API(cuMemcpyDtoD_v2_ptds)(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return linear(D(to), D(from), bytes, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyDtoDAsync_v2)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return linear(D(to), D(from), bytes, stream, 0);
}
SIM_API(cuMemcpyDtoDAsync_v2_ptsz)
(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return linear(D(to), D(from), bytes, stream, OWN);
}

/* ---- between devices ---- */

/* Orders a copy without a stream as documented.  It follows all work pending in the current and
 * both named contexts, and precedes all their later work.  The host does not wait. */
static CUresult serialized(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                           size_t bytes, unsigned how) {
    CUstream stream;
    sim_work_t *work, *kept;
    bool host_waits, sync_waits;
    sim_copy_t copy = {
        .from = {.type = CU_MEMORYTYPE_DEVICE, .address = from},
        .to = {.type = CU_MEMORYTYPE_DEVICE, .address = to},
        .width = bytes,
        .rows = 1,
        .planes = 1,
    };
    CUresult result = sim_stream_get(NULL, how & OWN, &stream);
    copy.later = !result && stream->capture;
    if (!result)
        result = sim_copy_build(stream->ctx, &copy, true, &work, &host_waits, &sync_waits);
    if (result || !work)
        return result;
    CUcontext all[] = {stream->ctx, to_ctx, from_ctx};
    bool good = true;
    for (unsigned i = 0; i < 3 && !stream->capture; i++)
        good = good && sim_ctx_order(all[i], work);
    if (!good) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = sim_enqueue(stream, work, &kept);
    for (unsigned i = 0; i < 3 && !result && kept; i++) {
        sim_work_unref(all[i]->barrier);
        all[i]->barrier = sim_work_ref(kept);
    }
    if (!result)
        sim_work_unref(kept);
    return result;
}

static CUresult peer(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
                     size_t bytes, CUstream stream, unsigned how) {
    CUresult result = sim_ctx_check(to_ctx);
    if (!result)
        result = sim_ctx_check(from_ctx);
    if (result || !(how & SYNC))
        return result ? result : linear(D(to), D(from), bytes, stream, how);
    return serialized(to, sim_ctx_home(to_ctx), from, sim_ctx_home(from_ctx), bytes, how);
}

SIM_API(cuMemcpyPeer)(CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e) {
    return peer(a, b, c, d, e, NULL, SYNC);
}
SIM_API(cuMemcpyPeer_ptds)(CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e) {
    return peer(a, b, c, d, e, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyPeerAsync)
(CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e, CUstream f) {
    return peer(a, b, c, d, e, f, 0);
}
SIM_API(cuMemcpyPeerAsync_ptsz)
(CUdeviceptr a, CUcontext b, CUdeviceptr c, CUcontext d, size_t e, CUstream f) {
    return peer(a, b, c, d, e, f, OWN);
}

/* ---- two and three dimensions ---- */

static CUresult copy_2d(const CUDA_MEMCPY2D *in, CUstream stream, unsigned how) {
    if (!in)
        return CUDA_ERROR_INVALID_VALUE;
    bool from_host = in->srcMemoryType == CU_MEMORYTYPE_HOST;
    bool to_host = in->dstMemoryType == CU_MEMORYTYPE_HOST;
    sim_copy_t copy = {
        .from = {in->srcMemoryType, from_host ? (uint64_t)(uintptr_t)in->srcHost : in->srcDevice,
                 in->srcArray, in->srcXInBytes, in->srcY, 0, in->srcPitch, 0},
        .to = {in->dstMemoryType, to_host ? (uint64_t)(uintptr_t)in->dstHost : in->dstDevice,
               in->dstArray, in->dstXInBytes, in->dstY, 0, in->dstPitch, 0},
        .width = in->WidthInBytes,
        .rows = in->Height,
        .planes = 1};
    return submit(&copy, stream, how);
}

SIM_API(cuMemcpy2D_v2)(const CUDA_MEMCPY2D *in) {
    return copy_2d(in, NULL, SYNC);
}
SIM_API(cuMemcpy2D_v2_ptds)(const CUDA_MEMCPY2D *in) {
    return copy_2d(in, NULL, SYNC | OWN);
}
SIM_API(cuMemcpy2DUnaligned_v2)(const CUDA_MEMCPY2D *in) {
    return copy_2d(in, NULL, SYNC);
}
SIM_API(cuMemcpy2DUnaligned_v2_ptds)(const CUDA_MEMCPY2D *in) {
    return copy_2d(in, NULL, SYNC | OWN);
}
SIM_API(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D *in, CUstream stream) {
    return copy_2d(in, stream, 0);
}
SIM_API(cuMemcpy2DAsync_v2_ptsz)(const CUDA_MEMCPY2D *in, CUstream stream) {
    return copy_2d(in, stream, OWN);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *in, CUstream stream, unsigned how) {
    if (!in || in->srcLOD || in->dstLOD)
        return CUDA_ERROR_INVALID_VALUE;
    sim_copy_t copy;
    sim_copy_from_3d(in, &copy);
    return submit(&copy, stream, how);
}

_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER) &&
                   offsetof(CUDA_MEMCPY3D, reserved0) == offsetof(CUDA_MEMCPY3D_PEER, srcContext),
               "one is the other with contexts in the reserved fields");

static CUresult copy_3d(const CUDA_MEMCPY3D *in, CUstream stream, unsigned how) {
    if (!in)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D_PEER peer_form;
    memcpy(&peer_form, in, sizeof peer_form);
    return copy_3d_peer(&peer_form, stream, how);
}

SIM_API(cuMemcpy3D_v2)(const CUDA_MEMCPY3D *in) {
    return copy_3d(in, NULL, SYNC);
}
SIM_API(cuMemcpy3D_v2_ptds)(const CUDA_MEMCPY3D *in) {
    return copy_3d(in, NULL, SYNC | OWN);
}
SIM_API(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D *in, CUstream stream) {
    return copy_3d(in, stream, 0);
}
SIM_API(cuMemcpy3DAsync_v2_ptsz)(const CUDA_MEMCPY3D *in, CUstream stream) {
    return copy_3d(in, stream, OWN);
}
SIM_API(cuMemcpy3DPeer)(const CUDA_MEMCPY3D_PEER *in) {
    return copy_3d_peer(in, NULL, SYNC);
}
SIM_API(cuMemcpy3DPeer_ptds)(const CUDA_MEMCPY3D_PEER *in) {
    return copy_3d_peer(in, NULL, SYNC | OWN);
}
SIM_API(cuMemcpy3DPeerAsync)(const CUDA_MEMCPY3D_PEER *in, CUstream stream) {
    return copy_3d_peer(in, stream, 0);
}
SIM_API(cuMemcpy3DPeerAsync_ptsz)(const CUDA_MEMCPY3D_PEER *in, CUstream stream) {
    return copy_3d_peer(in, stream, OWN);
}

/* ---- arrays, in one dimension ---- */

static sim_copy_side_t plain_side(CUmemorytype type, uint64_t address) {
    return (sim_copy_side_t){.type = type, .address = address};
}

static sim_copy_side_t array_side(CUarray array, size_t offset) {
    return (sim_copy_side_t){.type = CU_MEMORYTYPE_ARRAY, .array = array, .x = offset};
}

static CUresult line(sim_copy_side_t to, sim_copy_side_t from, size_t bytes, CUstream stream,
                     unsigned how) {
    sim_copy_t copy = {.from = from, .to = to, .width = bytes, .rows = 1, .planes = 1};
    return submit(&copy, stream, how);
}

#define A(array, offset) array_side(array, offset)
#define HS(pointer)      plain_side(H(pointer))
#define DS(address)      plain_side(D(address))

SIM_API(cuMemcpyAtoA_v2)(CUarray a, size_t b, CUarray c, size_t d, size_t e) {
    return line(A(a, b), A(c, d), e, NULL, SYNC);
}
SIM_API(cuMemcpyAtoA_v2_ptds)(CUarray a, size_t b, CUarray c, size_t d, size_t e) {
    return line(A(a, b), A(c, d), e, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyAtoD_v2)(CUdeviceptr a, CUarray b, size_t c, size_t d) {
    return line(DS(a), A(b, c), d, NULL, SYNC);
}
SIM_API(cuMemcpyAtoD_v2_ptds)(CUdeviceptr a, CUarray b, size_t c, size_t d) {
    return line(DS(a), A(b, c), d, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyDtoA_v2)(CUarray a, size_t b, CUdeviceptr c, size_t d) {
    return line(A(a, b), DS(c), d, NULL, SYNC);
}
SIM_API(cuMemcpyDtoA_v2_ptds)(CUarray a, size_t b, CUdeviceptr c, size_t d) {
    return line(A(a, b), DS(c), d, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyAtoH_v2)(void *a, CUarray b, size_t c, size_t d) {
    return line(HS(a), A(b, c), d, NULL, SYNC);
}
SIM_API(cuMemcpyAtoH_v2_ptds)(void *a, CUarray b, size_t c, size_t d) {
    return line(HS(a), A(b, c), d, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyAtoHAsync_v2)(void *a, CUarray b, size_t c, size_t d, CUstream e) {
    return line(HS(a), A(b, c), d, e, 0);
}
SIM_API(cuMemcpyAtoHAsync_v2_ptsz)(void *a, CUarray b, size_t c, size_t d, CUstream e) {
    return line(HS(a), A(b, c), d, e, OWN);
}
SIM_API(cuMemcpyHtoA_v2)(CUarray a, size_t b, const void *c, size_t d) {
    return line(A(a, b), HS(c), d, NULL, SYNC);
}
SIM_API(cuMemcpyHtoA_v2_ptds)(CUarray a, size_t b, const void *c, size_t d) {
    return line(A(a, b), HS(c), d, NULL, SYNC | OWN);
}
SIM_API(cuMemcpyHtoAAsync_v2)(CUarray a, size_t b, const void *c, size_t d, CUstream e) {
    return line(A(a, b), HS(c), d, e, 0);
}
SIM_API(cuMemcpyHtoAAsync_v2_ptsz)(CUarray a, size_t b, const void *c, size_t d, CUstream e) {
    return line(A(a, b), HS(c), d, e, OWN);
}

/* ---- batches: one after the other, which is more order than is promised ---- */

static CUresult batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes,
                      size_t count, size_t *failed, CUstream stream, unsigned how) {
    if (!to || !from || !sizes || !count || !stream || stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    /* Nothing is queued if any entry is refused. */
    for (size_t i = 0; i < 2 * count; i++) {
        size_t entry = i % count;
        unsigned only = i < count ? ASK : 0;
        CUresult result = linear(U(to[entry]), U(from[entry]), sizes[entry], stream, how | only);
        if (result) {
            if (failed)
                *failed = entry;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

SIM_API(cuMemcpyBatchAsync)
(CUdeviceptr *a, CUdeviceptr *b, size_t *c, size_t d, SIM_UNUSED CUmemcpyAttributes *e,
 SIM_UNUSED size_t *f, SIM_UNUSED size_t g, size_t *h, CUstream i) {
    return batch(a, b, c, d, h, i, 0);
}
SIM_API(cuMemcpyBatchAsync_ptsz)
(CUdeviceptr *a, CUdeviceptr *b, size_t *c, size_t d, SIM_UNUSED CUmemcpyAttributes *e,
 SIM_UNUSED size_t *f, SIM_UNUSED size_t g, size_t *h, CUstream i) {
    return batch(a, b, c, d, h, i, OWN);
}
SIM_API(cuMemcpyBatchAsync_v2)
(CUdeviceptr *a, CUdeviceptr *b, size_t *c, size_t d, SIM_UNUSED CUmemcpyAttributes *e,
 SIM_UNUSED size_t *f, SIM_UNUSED size_t g, CUstream h) {
    return batch(a, b, c, d, NULL, h, 0);
}
SIM_API(cuMemcpyBatchAsync_v2_ptsz)
(CUdeviceptr *a, CUdeviceptr *b, size_t *c, size_t d, SIM_UNUSED CUmemcpyAttributes *e,
 SIM_UNUSED size_t *f, SIM_UNUSED size_t g, CUstream h) {
    return batch(a, b, c, d, NULL, h, OWN);
}
