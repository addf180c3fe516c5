/* Multicast objects: teams of devices, and the memory that each device contributes.
 * multicast_map.c maps them.  Global lock.
 *
 * A small memory file lists the devices of a team and the bound memory.  Processes pass on this
 * file.  Each process adds its own devices, and all of them see when the team is complete.  A store
 * reaches the memory that other processes bound, too.
 *
 * As documented, binding and mapping wait without a limit until all devices were added.  An object
 * that can be shared with other processes takes only memory that can be shared, too.  Memory comes
 * from cuMemCreate or from a pool.  Guesses in addition to those of guesses.def:
 *   unbinding memory that another process bound      INVALID_VALUE
 *   a process drops its last handle and mapping      its memory is unbound
 *   a process ends                                   its memory is unbound
 *   an object imported by its own process            a separate handle
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "multicast.h"
#include "race.h"
#include "state.h"

#define GRAIN (2ull << 20)
#define MAGIC 0x6e61657461647563ull
_Static_assert(SIM_MAX_DEVICES <= 64, "a bit for each");

enum { WAIT_NS = 1000000 };

static sim_slab_t teams = SIM_SLAB(sim_team_t, 1 << 12);

sim_team_t *sim_team_any(CUmemGenericAllocationHandle handle) {
    sim_team_t *team = (sim_team_t *)(uintptr_t)handle;
    return sim_slab_has(&teams, team) ? team : NULL;
}

sim_team_t *sim_team_get(CUmemGenericAllocationHandle handle) {
    sim_team_t *team = sim_team_any(handle);
    return team && team->refs ? team : NULL;
}

void sim_team_wait(void) {
    sim_unlock();
    nanosleep(&(struct timespec){0, WAIT_NS}, NULL);
    sim_lock();
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

/* Makes the team of a file, and takes over the file. */
static CUresult team_new(CUmemGenericAllocationHandle *out, int file, bool imported) {
    void *shared = mmap(NULL, sizeof(sim_team_file_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    sim_team_t *team = shared == MAP_FAILED ? NULL : sim_slab_take(&teams);
    if (!team) {
        if (shared != MAP_FAILED)
            munmap(shared, sizeof(sim_team_file_t));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    team->shared = shared;
    team->prop = team->shared->prop;
    team->file = file;
    team->imported = imported;
    team->refs = 1;
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
    struct {
        uint64_t magic;
        CUmulticastObjectProp prop;
    } head = {MAGIC, *prop};
    _Static_assert(offsetof(sim_team_file_t, prop) == 8, "as the file begins");
    int file = memfd_create("simcuda-multicast", MFD_CLOEXEC);
    bool written = file >= 0 && !ftruncate(file, sizeof(sim_team_file_t)) &&
                   pwrite(file, &head, sizeof head, 0) == sizeof head;
    result = written ? team_new(out, file, false) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result && file >= 0)
        close(file);
    return result;
}

/* ---- other processes ---- */

CUresult sim_multicast_export(int *out, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type) {
    const sim_team_t *team = sim_team_get(handle);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(team->prop.handleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    *out = fcntl(team->file, F_DUPFD_CLOEXEC, 3);
    return *out < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

bool sim_multicast_import(CUmemGenericAllocationHandle *out, int from, CUresult *result) {
    uint64_t magic;
    struct stat st;
    if (fstat(from, &st) || st.st_size != sizeof(sim_team_file_t) ||
        pread(from, &magic, sizeof magic, 0) != sizeof magic || magic != MAGIC)
        return false;
    int file = sim_config.multicast ? fcntl(from, F_DUPFD_CLOEXEC, 3) : -1;
    *result = !sim_config.multicast ? CUDA_ERROR_NOT_SUPPORTED
              : file < 0            ? CUDA_ERROR_OUT_OF_MEMORY
                                    : team_new(out, file, true);
    if (*result && file >= 0)
        close(file);
    return true;
}

/* ---- devices ---- */

bool sim_team_whole(const sim_team_t *team) {
    return (unsigned)__builtin_popcountll(atomic_load(&team->shared->members)) >=
           team->prop.numDevices;
}

bool sim_team_has(const sim_team_t *team, int device) {
    return atomic_load(&team->shared->members) >> sim_devices[device].physical & 1;
}

/* Adds the device to the team.  False: it is a member already, or the team is complete. */
static bool add_member(sim_team_t *team, int device) {
    unsigned long long bit = 1ull << sim_devices[device].physical;
    unsigned long long old = atomic_load(&team->shared->members);
    do {
        if (old & bit || (unsigned)__builtin_popcountll(old) >= team->prop.numDevices)
            return false;
    } while (!atomic_compare_exchange_weak(&team->shared->members, &old, old | bit));
    return true;
}

SIM_API(cuMulticastAddDevice)(CUmemGenericAllocationHandle handle, CUdevice device) {
    sim_team_t *team = sim_team_get(handle);
    CUresult result = sim_device_check(device);
    if (!team)
        return CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    return add_member(team, device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- bindings ---- */

uint64_t sim_binding_number(const sim_team_t *team, unsigned slot) {
    uint64_t state = atomic_load(&team->shared->binding[slot].state);
    return state & 1 ? 0 : state;
}

/* Returns true if the slot is bound.  Unbinds it first if the process that bound it has ended. */
static bool is_bound(sim_team_t *team, unsigned slot) {
    unsigned long long state = atomic_load(&team->shared->binding[slot].state);
    const sim_binding_t *b = &team->shared->binding[slot];
    if (!state || state & 1 || team->mine[slot].number == state || !b->maker.magic ||
        sim_process_runs(b->maker.pid))
        return state && !(state & 1);
    atomic_compare_exchange_strong(&team->shared->binding[slot].state, &state, 0);
    return false;
}

static bool is_free(sim_team_t *team, int device, uint64_t offset, uint64_t size) {
    int32_t physical = sim_devices[device].physical;
    for (unsigned i = 0; i < SIM_BINDINGS; i++) {
        const sim_binding_t *b = &team->shared->binding[i];
        if (b->device == physical && b->offset < offset + size && offset < b->offset + b->size &&
            is_bound(team, i))
            return false;
    }
    return true;
}

static CUresult check_binding(sim_team_t *team, uint64_t offset, const sim_memory_t *memory,
                              uint64_t size) {
    if (!size || offset % GRAIN || size % GRAIN || memory->place % GRAIN ||
        offset > team->prop.size || size > team->prop.size - offset || size > memory->size ||
        ((team->prop.handleTypes || team->imported) && !memory->handle_types))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_team_whole(team))
        return CUDA_SUCCESS;
    return sim_team_has(team, memory->device) && is_free(team, memory->device, offset, size)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static unsigned take_slot(sim_team_t *team, unsigned long long *number) {
    *number = 2 * (atomic_fetch_add(&team->shared->last, 1) + 1);
    for (unsigned i = 0; i < SIM_BINDINGS; i++) {
        unsigned long long none = 0;
        if (!is_bound(team, i) &&
            atomic_compare_exchange_strong(&team->shared->binding[i].state, &none, *number - 1))
            return i;
    }
    return SIM_BINDINGS;
}

static CUresult bind(sim_team_t *team, uint64_t offset, const sim_memory_t *memory,
                     uint64_t size) {
    unsigned long long number;
    uint64_t shown = 0, bytes;
    bool shared = team->prop.handleTypes || team->imported;
    if (shared && !sim_share_start())
        return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned slot = take_slot(team, &number);
    if (slot == SIM_BINDINGS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    team->mine[slot].number = number;
    team->mine[slot].memory = *memory;
    team->mine[slot].memory.size = size;
    if (memory->handle) {
        sim_vmm_hold(memory->handle);
        shown = sim_vmm_shown(memory->handle, memory->from, &bytes);
    }
    sim_binding_t *b = &team->shared->binding[slot];
    b->device = sim_devices[memory->device].physical;
    b->file = memory->file;
    b->offset = offset;
    b->place = memory->place;
    b->size = size;
    b->at = shown ? shown - sim_space_base() : UINT64_MAX;
    memset(&b->maker, 0, sizeof b->maker);
    if (shared)
        sim_token_seal(&b->maker, MAGIC);
    atomic_store(&b->state, number);
    return CUDA_SUCCESS;
}

enum { ANY_DEVICE = -1 }; /* that the memory is on */

static bool is_on(const sim_memory_t *memory, CUdevice device) {
    return device == ANY_DEVICE || memory->device == device;
}

static CUresult bind_memory(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t from, size_t size,
                            unsigned long long flags) {
    for (;;) {
        sim_team_t *team = sim_team_get(handle);
        sim_memory_t bound;
        if (!team || flags || !sim_vmm_physical(memory, &bound) || from > bound.size ||
            !is_on(&bound, device))
            return CUDA_ERROR_INVALID_VALUE;
        bound.from += from;
        bound.place += from;
        bound.size -= from;
        CUresult result = check_binding(team, offset, &bound, size);
        if (result || sim_team_whole(team))
            return result ? result : bind(team, offset, &bound, size);
        sim_team_wait();
    }
}

SIM_API(cuMulticastBindMem)
(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
 size_t from, size_t size, unsigned long long flags) {
    return bind_memory(handle, ANY_DEVICE, offset, memory, from, size, flags);
}

SIM_API(cuMulticastBindMem_v2)
(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
 CUmemGenericAllocationHandle memory, size_t from, size_t size, unsigned long long flags) {
    CUresult result = sim_device_check(device);
    return result ? result : bind_memory(handle, device, offset, memory, from, size, flags);
}

/* Describes memory that lies in a file of the process; false: the memory does not. */
static bool memory_at(CUdeviceptr address, sim_memory_t *out) {
    const sim_alloc_t *record = sim_alloc_around(address);
    if (record && record->kind == SIM_MEM_VMM) {
        sim_vmm_behind(record, address, out);
        uint64_t left = record->base + record->size - address;
        out->size = left < out->size ? left : out->size;
        return true;
    }
    if (!record || record->kind != SIM_MEM_POOL || record->host || sim_mirror_fd < 0)
        return false;
    *out = (sim_memory_t){.address = address,
                          .device = record->device,
                          .file = sim_mirror_fd,
                          .place = address - sim_space_base(),
                          .size = record->base + record->size - address,
                          .handle_types = record->handle_types};
    return true;
}

static CUresult bind_address(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                             CUdeviceptr address, size_t size, unsigned long long flags) {
    for (;;) {
        sim_team_t *team = sim_team_get(handle);
        sim_memory_t bound;
        if (!team || flags || address % GRAIN || !memory_at(address, &bound) ||
            !is_on(&bound, device))
            return CUDA_ERROR_INVALID_VALUE;
        CUresult result = check_binding(team, offset, &bound, size);
        if (result || sim_team_whole(team))
            return result ? result : bind(team, offset, &bound, size);
        sim_team_wait();
    }
}

SIM_API(cuMulticastBindAddr)
(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t size,
 unsigned long long flags) {
    return bind_address(handle, ANY_DEVICE, offset, address, size, flags);
}

SIM_API(cuMulticastBindAddr_v2)
(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, CUdeviceptr address,
 size_t size, unsigned long long flags) {
    CUresult result = sim_device_check(device);
    return result ? result : bind_address(handle, device, offset, address, size, flags);
}

static void unbind(sim_team_t *team, unsigned slot) {
    sim_memory_t memory = team->mine[slot].memory;
    atomic_store(&team->shared->binding[slot].state, 0);
    team->mine[slot].number = 0;
    if (memory.handle)
        sim_vmm_let_go(memory.handle);
}

SIM_API(cuMulticastUnbind)
(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size) {
    sim_team_t *team = sim_team_get(handle);
    for (unsigned i = 0; team && i < SIM_BINDINGS; i++) {
        const sim_binding_t *b = &team->shared->binding[i];
        if (!team->mine[i].number || team->mine[i].memory.device != device ||
            b->offset != offset || b->size != size)
            continue;
        unbind(team, i);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- the end ---- */

bool sim_multicast_has(CUmemGenericAllocationHandle handle) {
    return sim_team_get(handle);
}

void sim_multicast_retain(CUmemGenericAllocationHandle handle) {
    sim_team_any(handle)->refs++;
}

void sim_multicast_release(CUmemGenericAllocationHandle handle) {
    sim_team_t *team = sim_team_get(handle);
    team->refs--;
    sim_team_settle(team);
}

void sim_team_settle(sim_team_t *team) {
    if (team->refs || team->maps)
        return;
    for (unsigned i = 0; i < SIM_BINDINGS; i++) {
        if (team->mine[i].number)
            unbind(team, i);
        sim_binding_forget(team, i);
    }
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
