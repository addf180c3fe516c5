/* Pointer queries: cuPointerGetAttribute and its variants.  Global lock. */
#include <string.h>

#include "state.h"

/* Device ordinal of pools of host memory: a guess. */
enum { CPU = -1 };

/* Returns true if the host can reach the bytes at the same address. */
static bool host_side(const sim_alloc_t *record) {
    return record->host != NULL;
}

static CUresult store(void *out, const void *value, size_t bytes) {
    memcpy(out, value, bytes);
    return CUDA_SUCCESS;
}

static CUresult store_unsigned(void *out, unsigned value) {
    return store(out, &value, sizeof value);
}

static CUresult store_wide(void *out, uint64_t value) {
    return store(out, &value, sizeof value);
}

static CUresult attribute(void *out, CUpointer_attribute which, uint64_t address,
                          const sim_alloc_t *record) {
    bool pinned = record->host && !record->managed;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return store(out, &record->ctx, sizeof record->ctx);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return store_unsigned(out, pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return store_wide(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return host_side(record) ? store_wide(out, address) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return store_unsigned(out, record->sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return store_wide(out, record->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return store_unsigned(out, record->managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return store_unsigned(out, (unsigned)(pinned && record->pool ? CPU : record->device));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return store_unsigned(out, record->kind == SIM_MEM_DEVICE);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return store_wide(out, record->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return store_wide(out, record->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return store_unsigned(out, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return store_wide(out, record->handle_types);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return store_unsigned(out, record->kind == SIM_MEM_DEVICE ||
                                       (record->kind == SIM_MEM_VMM && sim_vmm_rdma(record)));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return store_unsigned(out, record->no_access   ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                                   : record->read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                       : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return store(out, &record->pool, sizeof record->pool);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return store_unsigned(out, 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SIM_API(cuPointerGetAttribute)(void *out, CUpointer_attribute which, CUdeviceptr address) {
    const sim_alloc_t *record = sim_alloc_around(address);
    if (!out || !record)
        return CUDA_ERROR_INVALID_VALUE;
    return attribute(out, which, address, record);
}

/* Returns the size of an attribute's answer, to clear it if the pointer has no such attribute. */
static size_t attribute_bytes(CUpointer_attribute which) {
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return 8;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return 16;
    default:
        return 4;
    }
}

/* Unlike the single query, this one has an answer for every pointer.  Attributes that do not apply
 * are zero, and the device ordinal is -2 (CU_DEVICE_INVALID). */
SIM_API(cuPointerGetAttributes)
(unsigned count, CUpointer_attribute *which, void **out, CUdeviceptr address) {
    if (!count || !which || !out)
        return CUDA_ERROR_INVALID_VALUE;
    const sim_alloc_t *record = sim_alloc_around(address);
    for (unsigned i = 0; i < count; i++) {
        if (!out[i] || !which[i] || which[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE)
            return CUDA_ERROR_INVALID_VALUE;
        if (record && !attribute(out[i], which[i], address, record))
            continue;
        memset(out[i], 0, attribute_bytes(which[i]));
        if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            store_unsigned(out[i], (unsigned)-2);
    }
    return CUDA_SUCCESS;
}

SIM_LIVE_COUNT(synced) {
    uint64_t count = 0;
    for (sim_alloc_t *record = NULL; (record = sim_alloc_next(record));)
        count += record->sync_memops;
    return count;
}

SIM_API(cuPointerSetAttribute)
(const void *value, CUpointer_attribute which, CUdeviceptr address) {
    sim_alloc_t *record = sim_alloc_around(address);
    if (!value || !record || which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned on;
    memcpy(&on, value, sizeof on);
    record->sync_memops = on;
    return CUDA_SUCCESS;
}
