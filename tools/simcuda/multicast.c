/* Multicast objects as far as programs make and bind them: teams of devices, and the memory that each
 * device brings in.  Global lock.
 *
 * Lacking, and said so: mapping an object (a store through it would have to reach the memory of all
 * devices), and passing it to another process.
 *
 * Guesses (public documentation is silent):
 *   a device twice, or more than the object has place for    INVALID_VALUE
 *   binding before all devices were added                    ILLEGAL_STATE
 *   binding where the device has something bound already     INVALID_VALUE
 *   binding memory of cuMemAlloc or of a pool by address     INVALID_VALUE
 *   unbinding what is not bound so                           INVALID_VALUE
 */
#include <string.h>

#include "sim.h"
#include "state.h"

#define GRAIN (2ull << 20)

enum { BINDINGS = 256 }; /* of an object */

typedef struct {
    CUmemGenericAllocationHandle memory;
    int device;
    uint64_t offset, size; /* in the object */
} binding_t;

typedef struct {
    sim_object_t object;
    CUmulticastObjectProp prop;
    unsigned devices;
    bool member[SIM_MAX_DEVICES];
    unsigned bindings;
    binding_t binding[BINDINGS];
} team_t;

static sim_slab_t teams = SIM_SLAB(team_t, 1 << 12);

static team_t *team_of(CUmemGenericAllocationHandle handle) {
    team_t *team = (team_t *)(uintptr_t)handle;
    return sim_slab_has(&teams, team) ? team : NULL;
}

static CUresult check_prop(const CUmulticastObjectProp *prop) {
    if (!sim_config.multicast)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!prop->numDevices || prop->numDevices > SIM_MAX_DEVICES || prop->flags ||
        prop->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

SIM_API(cuMulticastGetGranularity)
(size_t *out, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option) {
    if (!out || !prop || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (!result)
        *out = GRAIN;
    return result;
}

SIM_API(cuMulticastCreate)
(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop) {
    if (!out || !prop)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (result)
        return result;
    if (!prop->size || prop->size % GRAIN)
        return CUDA_ERROR_INVALID_VALUE;
    team_t *team = sim_slab_take(&teams);
    if (!team)
        return CUDA_ERROR_OUT_OF_MEMORY;
    team->prop = *prop;
    team->devices = team->bindings = 0;
    memset(team->member, 0, sizeof team->member);
    *out = (uintptr_t)team;
    return CUDA_SUCCESS;
}

SIM_API(cuMulticastAddDevice)(CUmemGenericAllocationHandle handle, CUdevice device) {
    team_t *team = team_of(handle);
    CUresult result = sim_device_check(device);
    if (!team)
        return CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    if (team->member[device] || team->devices == team->prop.numDevices)
        return CUDA_ERROR_INVALID_VALUE;
    team->member[device] = true;
    team->devices++;
    return CUDA_SUCCESS;
}

/* `memory` is the program's handle; the binding takes one of its own. */
static CUresult bind(team_t *team, uint64_t offset, CUmemGenericAllocationHandle memory,
                     int device, uint64_t size) {
    if (team->devices < team->prop.numDevices)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!team->member[device] || !size || offset % GRAIN || size % GRAIN ||
        offset > team->prop.size || size > team->prop.size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < team->bindings; i++) {
        const binding_t *b = &team->binding[i];
        if (b->device == device && b->offset < offset + size && offset < b->offset + b->size)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (team->bindings == BINDINGS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_vmm_hold(memory);
    team->binding[team->bindings++] = (binding_t){memory, device, offset, size};
    return CUDA_SUCCESS;
}

SIM_API(cuMulticastBindMem)
(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
 size_t from, size_t size, unsigned long long flags) {
    team_t *team = team_of(handle);
    int device;
    uint64_t bytes;
    if (!team || flags || !sim_vmm_physical(memory, &device, &bytes) || from % GRAIN ||
        from > bytes || size > bytes - from)
        return CUDA_ERROR_INVALID_VALUE;
    return bind(team, offset, memory, device, size);
}

SIM_API(cuMulticastBindAddr)
(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t size,
 unsigned long long flags) {
    team_t *team = team_of(handle);
    const sim_alloc_t *record = sim_alloc_around(address);
    if (!team || flags || !record || record->kind != SIM_MEM_VMM || address % GRAIN ||
        size > record->base + record->size - address)
        return CUDA_ERROR_INVALID_VALUE;
    return bind(team, offset, sim_vmm_memory(record), record->device, size);
}

SIM_API(cuMulticastUnbind)
(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size) {
    team_t *team = team_of(handle);
    for (unsigned i = 0; team && i < team->bindings; i++) {
        binding_t b = team->binding[i];
        if (b.device != device || b.offset != offset || b.size != size)
            continue;
        team->binding[i] = team->binding[--team->bindings];
        sim_vmm_let_go(b.memory);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

bool sim_multicast_has(CUmemGenericAllocationHandle handle) {
    return team_of(handle);
}

void sim_multicast_release(CUmemGenericAllocationHandle handle) {
    team_t *team = team_of(handle);
    while (team->bindings)
        sim_vmm_let_go(team->binding[--team->bindings].memory);
    sim_slab_give(&teams, team);
}

SIM_LIVE_COUNT(multicasts) {
    uint64_t count = 0;
    size_t at = 0;
    while (sim_slab_next(&teams, &at))
        count++;
    return count;
}
