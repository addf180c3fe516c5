/* Waits for values in memory and writes of values, in stream order, one by one and in batches.
 * Global lock. */
#include <string.h>

#include "state.h"

typedef struct {
    uint64_t address, value;
    unsigned bytes, condition; /* GEQ 0, EQ 1, AND 2, NOR 3 */
} value_payload_t;

/* Loads the value in a single access, because the host's own code may write it. */
static uint64_t load(const value_payload_t *payload) {
    void *at = sim_bytes(payload->address);
    return payload->bytes == 8 ? atomic_load((atomic_ullong *)at)
                               : atomic_load((atomic_uint *)at);
}

static bool value_ready(sim_work_t *work) {
    const value_payload_t *payload = SIM_PAYLOAD(work, value_payload_t);
    if (!sim_range_ok(payload->address, payload->bytes, false))
        return true; /* faults when it runs */
    uint64_t mask = payload->bytes == 8 ? UINT64_MAX : UINT32_MAX;
    uint64_t there = load(payload);
    switch (payload->condition) {
    case 0:
        return payload->bytes == 8 ? (int64_t)(there - payload->value) >= 0
                                   : (int32_t)(uint32_t)(there - payload->value) >= 0;
    case 1:
        return there == (payload->value & mask);
    case 2:
        return (there & payload->value) != 0;
    default:
        return (~(there | payload->value) & mask) != 0;
    }
}

static CUresult run_write_value(sim_work_t *work) {
    const value_payload_t *payload = SIM_PAYLOAD(work, value_payload_t);
    void *at = sim_bytes(payload->address);
    if (payload->bytes == 8)
        atomic_store((atomic_ullong *)at, payload->value);
    else
        atomic_store((atomic_uint *)at, (unsigned)payload->value);
    return CUDA_SUCCESS;
}

static CUresult run_nothing(SIM_UNUSED sim_work_t *work) {
    return CUDA_SUCCESS;
}

static const sim_work_ops_t write_value_ops = {
    .name = "write-value", .type = SIM_WORK_WRITE_VALUE, .run = run_write_value};
static const sim_work_ops_t wait_value_ops = {.name = "wait-value",
                                              .type = SIM_WORK_WAIT_VALUE,
                                              .flags = SIM_RUN_GATED,
                                              .run = run_nothing,
                                              .ready = value_ready};

static CUresult submit(const sim_work_ops_t *ops, CUstream stream, CUdeviceptr address,
                       uint64_t value, unsigned bytes, unsigned flags) {
    bool write = ops == &write_value_ops;
    unsigned condition = flags & 3;
    unsigned known = write ? 1u : 3u | 1u << 30; /* no-barrier; condition and flush */
    if (flags & ~known || address % bytes || !sim_range_ok(address, bytes, false))
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work = sim_work_new(ops, stream->ctx, sizeof(value_payload_t));
    if (!work || !sim_work_touches(work, address, bytes, write)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *SIM_PAYLOAD(work, value_payload_t) = (value_payload_t){address, value, bytes, condition};
    return sim_enqueue(stream, work, NULL);
}

static CUresult value_work(const sim_work_ops_t *ops, CUstream handle, CUdeviceptr address,
                           uint64_t value, unsigned bytes, unsigned flags, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    return result ? result : submit(ops, stream, address, value, bytes, flags);
}

#define VALUE_CALLS(symbol, ops, type)                                                           \
    SIM_API(symbol)(CUstream a, CUdeviceptr b, type c, unsigned d) {                             \
        return value_work(ops, a, b, c, sizeof(type), d, false);                                 \
    }                                                                                            \
    SIM_API(symbol##_v2)(CUstream a, CUdeviceptr b, type c, unsigned d) {                        \
        return value_work(ops, a, b, c, sizeof(type), d, false);                                 \
    }                                                                                            \
    SIM_API(symbol##_ptsz)(CUstream a, CUdeviceptr b, type c, unsigned d) {                      \
        return value_work(ops, a, b, c, sizeof(type), d, true);                                  \
    }                                                                                            \
    SIM_API(symbol##_v2_ptsz)(CUstream a, CUdeviceptr b, type c, unsigned d) {                   \
        return value_work(ops, a, b, c, sizeof(type), d, true);                                  \
    }
VALUE_CALLS(cuStreamWaitValue32, &wait_value_ops, cuuint32_t)
VALUE_CALLS(cuStreamWaitValue64, &wait_value_ops, cuuint64_t)
VALUE_CALLS(cuStreamWriteValue32, &write_value_ops, cuuint32_t)
VALUE_CALLS(cuStreamWriteValue64, &write_value_ops, cuuint64_t)

/* ---- batches ---- */

/* One element of a batch, in the layout of the ABI; the operation decides which fields count. */
typedef struct {
    unsigned operation;
    CUdeviceptr address;
    uint64_t value; /* 32-bit operations: the low half */
    unsigned flags;
    CUdeviceptr alias;
    uint64_t reserved;
} batch_element_t;

_Static_assert(sizeof(batch_element_t) == 48, "the union is padded to six words");

enum { WAIT_32 = 1, WRITE_32 = 2, FLUSH = 3, WAIT_64 = 4, WRITE_64 = 5, BARRIER = 6 };

static CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *list,
                      unsigned flags, bool per_thread) {
    CUstream stream;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result && (!list || !count || count > 256 || flags))
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count && !result; i++) {
        batch_element_t e;
        memcpy(&e, (const char *)list + i * sizeof e, sizeof e);
        if (e.operation == WAIT_32 || e.operation == WAIT_64)
            result = submit(&wait_value_ops, stream, e.address, e.value,
                            e.operation == WAIT_32 ? 4 : 8, e.flags);
        else if (e.operation == WRITE_32 || e.operation == WRITE_64)
            result = submit(&write_value_ops, stream, e.address, e.value,
                            e.operation == WRITE_32 ? 4 : 8, e.flags);
        else if (e.operation != FLUSH && e.operation != BARRIER)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

SIM_API(cuStreamBatchMemOp)(CUstream a, unsigned b, CUstreamBatchMemOpParams *c, unsigned d) {
    return batch(a, b, c, d, false);
}
SIM_API(cuStreamBatchMemOp_v2)(CUstream a, unsigned b, CUstreamBatchMemOpParams *c, unsigned d) {
    return batch(a, b, c, d, false);
}
SIM_API(cuStreamBatchMemOp_ptsz)
(CUstream a, unsigned b, CUstreamBatchMemOpParams *c, unsigned d) {
    return batch(a, b, c, d, true);
}
SIM_API(cuStreamBatchMemOp_v2_ptsz)
(CUstream a, unsigned b, CUstreamBatchMemOpParams *c, unsigned d) {
    return batch(a, b, c, d, true);
}
