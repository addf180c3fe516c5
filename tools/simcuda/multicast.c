/* Multicast objects as far as programs make, share and bind them: teams of devices, and the memory
 * that each device brings in.  Global lock.
 *
 * Which devices are in a team stands in a small memory file, which is what processes pass on: each
 * adds its own devices, and all see when the team is whole.  What is bound is known where it was.
 *
 * Lacking, and said so: mapping an object (a store through it would have to reach the memory of all
 * devices).
 *
 * Guesses (public documentation is silent):
 *   a device twice, or more than the object has place for    INVALID_VALUE
 *   binding before all devices were added                    ILLEGAL_STATE
 *   binding where the device has something bound already     INVALID_VALUE
 *   binding memory of cuMemAlloc or of a pool by address     INVALID_VALUE
 *   unbinding what is not bound so                           INVALID_VALUE
 *   an object imported by its own process                    a handle of its own
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"
#include "state.h"

#define GRAIN (2ull << 20)

enum { BINDINGS = 256 }; /* of an object */

typedef struct {
    CUmemGenericAllocationHandle memory;
    int device;
    uint64_t offset, size; /* in the object */
} binding_t;

/* The file. */
typedef struct {
    uint64_t magic;
    CUmulticastObjectProp prop;
    _Atomic uint64_t members; /* bits of the machine's devices */
} shared_t;
#define MAGIC 0x6d61657461647563ull
_Static_assert(SIM_MAX_DEVICES <= 64, "a bit for each");

typedef struct {
    sim_object_t object;
    CUmulticastObjectProp prop;
    shared_t *shared;
    int file;
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

/* The team that the file is of, which it takes over. */
static CUresult team_new(CUmemGenericAllocationHandle *out, int file,
                         const CUmulticastObjectProp *prop) {
    void *shared = mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    team_t *team = shared == MAP_FAILED ? NULL : sim_slab_take(&teams);
    if (!team) {
        if (shared != MAP_FAILED)
            munmap(shared, sizeof(shared_t));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    team->prop = *prop;
    team->shared = shared;
    team->file = file;
    team->bindings = 0;
    *out = (uintptr_t)team;
    return CUDA_SUCCESS;
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
    shared_t content = {.magic = MAGIC, .prop = *prop};
    int file = memfd_create("simcuda-multicast", MFD_CLOEXEC);
    bool written = file >= 0 && write(file, &content, sizeof content) == sizeof content;
    result = written ? team_new(out, file, prop) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result && file >= 0)
        close(file);
    return result;
}

/* ---- other processes ---- */

CUresult sim_multicast_export(int *out, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type) {
    const team_t *team = team_of(handle);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(team->prop.handleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    *out = fcntl(team->file, F_DUPFD_CLOEXEC, 3);
    return *out < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

bool sim_multicast_import(CUmemGenericAllocationHandle *out, int from, CUresult *result) {
    shared_t content;
    struct stat st;
    if (fstat(from, &st) || st.st_size != sizeof content ||
        pread(from, &content, sizeof content, 0) != sizeof content || content.magic != MAGIC)
        return false;
    int file = fcntl(from, F_DUPFD_CLOEXEC, 3);
    *result = check_prop(&content.prop);
    if (!*result)
        *result = file < 0 ? CUDA_ERROR_OUT_OF_MEMORY : team_new(out, file, &content.prop);
    if (*result && file >= 0)
        close(file);
    return true;
}

/* ---- devices and memory ---- */

static unsigned members_of(const team_t *team) {
    return (unsigned)__builtin_popcountll(atomic_load(&team->shared->members));
}

static bool is_member(const team_t *team, int device) {
    return atomic_load(&team->shared->members) >> sim_devices[device].physical & 1;
}

/* False: it is one, or there is no place. */
static bool add_member(team_t *team, int device) {
    uint64_t bit = (uint64_t)1 << sim_devices[device].physical;
    uint64_t old = atomic_load(&team->shared->members);
    do {
        if (old & bit || (unsigned)__builtin_popcountll(old) >= team->prop.numDevices)
            return false;
    } while (!atomic_compare_exchange_weak(&team->shared->members, &old, old | bit));
    return true;
}

SIM_API(cuMulticastAddDevice)(CUmemGenericAllocationHandle handle, CUdevice device) {
    team_t *team = team_of(handle);
    CUresult result = sim_device_check(device);
    if (!team)
        return CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    return add_member(team, device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* `memory` is the program's handle; the binding takes one of its own. */
static CUresult bind(team_t *team, uint64_t offset, CUmemGenericAllocationHandle memory,
                     int device, uint64_t size) {
    if (members_of(team) < team->prop.numDevices)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!is_member(team, device) || !size || offset % GRAIN || size % GRAIN ||
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
    munmap(team->shared, sizeof *team->shared);
    close(team->file);
    sim_slab_give(&teams, team);
}

SIM_LIVE_COUNT(multicasts) {
    uint64_t count = 0;
    size_t at = 0;
    while (sim_slab_next(&teams, &at))
        count++;
    return count;
}
