/* Virtual memory management: reservations, physical allocations, mappings, access.  Global lock.
 *
 * Physical memory is a piece of one memory file of the process.  A mapping lays that piece over the
 * mirror (see sim.h), so that two mappings of it show the same bytes.
 *
 * Approximation: access is recorded per device, but the check of an address knows no device.  It
 * uses the device with the most rights.
 *
 * Guesses (public documentation is silent):
 *   a partly mapped range, one that cuts a mapping    INVALID_VALUE
 *   mapping where something is mapped, over the end
 *   of a reservation, with an offset                  INVALID_VALUE
 *   freeing a reservation with mappings in it         INVALID_VALUE
 *   host memory, fabric handles, Windows handles      NOT_SUPPORTED, logged
 *   cuMemGetAccess of memory that is not mapped here  INVALID_VALUE
 *   gpuDirectRDMACapable on a device without it       NOT_SUPPORTED
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernel_fault.h"
#include "race.h"
#include "vmm.h"

typedef struct {
    sim_node_t node; /* key: first address; must be first */
    uint64_t size, taken;
} reservation_t;

sim_slab_t sim_physicals = SIM_SLAB(sim_physical_t, 1 << 20);
static sim_node_t *reservations;

/* The memory file: its free pieces, and the beginning of its unused end. */
int sim_vmm_file = -1;
static uint64_t file_end;
static struct { uint64_t offset, size; } * holes;
static size_t hole_count, hole_room;

size_t sim_vmm_mapped, sim_vmm_imports;

/* ---- pieces of the memory file ---- */

/* Grows the file.  Beyond the limit on file sizes, growing would raise a signal instead of an
 * error. */
bool sim_grow_file(int fd, uint64_t size) {
    struct rlimit limit;
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < size) {
        sim_log("the limit on file sizes (ulimit -f) leaves no room for physical memory");
        return false;
    }
    return !ftruncate(fd, (off_t)size);
}

bool sim_piece_take(uint64_t size, uint64_t *offset) {
    for (size_t i = 0; i < hole_count; i++)
        if (holes[i].size >= size) {
            *offset = holes[i].offset;
            holes[i].offset += size;
            holes[i].size -= size;
            if (!holes[i].size)
                holes[i] = holes[--hole_count];
            return true;
        }
    if (sim_vmm_file < 0)
        sim_vmm_file = memfd_create("simcuda-physical", MFD_CLOEXEC);
    if (sim_vmm_file < 0 || !sim_grow_file(sim_vmm_file, file_end + size))
        return false;
    *offset = file_end;
    file_end += size;
    return true;
}

void sim_piece_give(uint64_t offset, uint64_t size) {
    fallocate(sim_vmm_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
    for (size_t i = 0; i < hole_count;) {
        bool before = holes[i].offset + holes[i].size == offset;
        if (!before && offset + size != holes[i].offset) {
            i++;
            continue;
        }
        offset = before ? holes[i].offset : offset;
        size += holes[i].size;
        holes[i] = holes[--hole_count]; /* also joins a free neighbour on the other side */
    }
    if (hole_count == hole_room) {
        size_t room = hole_room ? 2 * hole_room : 16;
        void *grown = realloc(holes, room * sizeof *holes);
        if (!grown)
            return; /* only file space is lost */
        holes = grown;
        hole_room = room;
    }
    holes[hole_count].offset = offset;
    holes[hole_count++].size = size;
}

/* ---- physical memory ---- */

static sim_physical_t *physical_any(CUmemGenericAllocationHandle handle) {
    sim_physical_t *physical = (sim_physical_t *)(uintptr_t)handle;
    return sim_slab_has(&sim_physicals, physical) ? physical : NULL;
}

sim_physical_t *sim_physical_get(CUmemGenericAllocationHandle handle) {
    sim_physical_t *physical = physical_any(handle);
    return physical && physical->refs ? physical : NULL;
}

static void physical_settle(sim_physical_t *physical) {
    if (physical->refs || physical->uses || physical->maps)
        return;
    if (sim_race_on)
        sim_race_range_gone(physical->place, physical->size);
    if (physical->charged)
        sim_device_uncharge(physical->prop.location.id, physical->size);
    if (physical->peer)
        sim_peer_close(physical->peer);
    if (physical->file >= 0) {
        close(physical->file);
        sim_vmm_imports--;
    } else if (!physical->header)
        sim_piece_give(physical->offset, physical->size);
    sim_slab_give(&sim_physicals, physical);
}

/* Returns true for host memory.  The host has only the memory of node 0.  Attributes of pointers
 * report it as memory of device 0. */
static bool is_of_host(const CUmemLocation *location) {
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

CUresult sim_physical_check(const CUmemAllocationProp *prop) {
    if (!sim_config.vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_of_host(&prop->location)) {
        if (!prop->requestedHandleTypes)
            return prop->location.id ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        sim_log("physical host memory that is shared (cuMemCreate) is not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        sim_log("handle types other than file descriptors are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (prop->allocFlags.gpuDirectRDMACapable && !sim_config.rdma)
        return CUDA_ERROR_NOT_SUPPORTED;
    return sim_device_check(prop->location.id);
}

CUresult sim_physical_new(const CUmemAllocationProp *prop, uint64_t size, bool charge,
                             sim_physical_t **out) {
    CUresult result = charge ? sim_device_charge_all(prop->location.id, size) : CUDA_SUCCESS;
    if (result)
        return result;
    sim_physical_t *physical = sim_slab_take(&sim_physicals);
    if (!physical) {
        if (charge)
            sim_device_uncharge(prop->location.id, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    static uint64_t next_place = 1ull << 63; /* never an address */
    physical->refs = 1;
    physical->uses = 0;
    physical->size = size;
    physical->place = next_place;
    next_place += size;
    physical->prop = *prop;
    physical->file = -1;
    physical->peer = NULL;
    physical->charged = charge;
    *out = physical;
    return CUDA_SUCCESS;
}

static sim_memory_t memory_of(sim_physical_t *physical, uint64_t from) {
    return (sim_memory_t){.handle = (uintptr_t)physical,
                          .device = physical->prop.location.id,
                          .file = physical->file >= 0 ? physical->file : sim_vmm_file,
                          .place = physical->offset + from,
                          .from = from,
                          .size = physical->size - from,
                          .handle_types = physical->prop.requestedHandleTypes};
}

SIM_API(cuMemCreate)
(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
 unsigned long long flags) {
    if (!out || !prop || flags || !size || size % GRAIN)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_physical_check(prop);
    if (result)
        return result;
    sim_physical_t *physical;
    bool charged = !is_of_host(&prop->location);
    result = sim_physical_new(prop, size, charged, &physical);
    if (result)
        return result;
    if (!sim_piece_take(size, &physical->offset)) {
        if (charged)
            sim_device_uncharge(prop->location.id, size);
        sim_slab_give(&sim_physicals, physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_call_bytes(SIM_FN_cuMemCreate, size);
    *out = (uintptr_t)physical;
    return CUDA_SUCCESS;
}

bool sim_vmm_physical(CUmemGenericAllocationHandle handle, sim_memory_t *out) {
    sim_physical_t *physical = sim_physical_get(handle);
    if (physical)
        *out = memory_of(physical, 0);
    return physical;
}

void sim_vmm_behind(const sim_alloc_t *record, uint64_t address, sim_memory_t *out) {
    sim_mapping_t *mapping = record->owner;
    *out = memory_of(mapping->physical, address - record->base);
}

uint64_t sim_vmm_shown(CUmemGenericAllocationHandle memory, uint64_t from, uint64_t *bytes) {
    const sim_mapping_t *mapping = physical_any(memory)->maps;
    while (mapping && mapping->record->size <= from)
        mapping = mapping->next;
    if (!mapping)
        return 0;
    *bytes = mapping->record->size - from;
    return mapping->record->base + from;
}

void sim_vmm_hold(CUmemGenericAllocationHandle memory) {
    sim_physical_t *physical = physical_any(memory);
    physical->uses++;
    for (const sim_mapping_t *mapping = physical->maps; sim_race_on && mapping;
         mapping = mapping->next)
        sim_race_exported(mapping->record);
}

void sim_vmm_let_go(CUmemGenericAllocationHandle memory) {
    sim_physical_t *physical = physical_any(memory);
    physical->uses--;
    physical_settle(physical);
}

SIM_API(cuMemRelease)(CUmemGenericAllocationHandle handle) {
    sim_physical_t *physical = sim_physical_get(handle);
    if (sim_multicast_has(handle)) {
        sim_multicast_release(handle);
        return CUDA_SUCCESS;
    }
    if (!physical)
        return CUDA_ERROR_INVALID_VALUE;
    sim_call_bytes(SIM_FN_cuMemRelease, physical->size);
    physical->refs--;
    physical_settle(physical);
    return CUDA_SUCCESS;
}

SIM_API(cuMemGetAllocationGranularity)
(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option) {
    if (!out || !prop || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_physical_check(prop);
    if (!result)
        *out = GRAIN;
    return result;
}

SIM_API(cuMemGetAllocationPropertiesFromHandle)
(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle) {
    const sim_physical_t *physical = sim_physical_get(handle);
    if (!out || !physical)
        return CUDA_ERROR_INVALID_VALUE;
    *out = physical->prop;
    return CUDA_SUCCESS;
}

/* ---- reservations ---- */

static reservation_t *reservation_around(uint64_t address, uint64_t size) {
    reservation_t *r = (reservation_t *)(void *)sim_tree_floor(reservations, address);
    bool inside = r && address + size >= address && address + size <= r->node.key + r->size;
    return inside ? r : NULL;
}

SIM_API(cuMemAddressReserve)
(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
    if (!out || flags || !size || size % PAGE || hint % PAGE || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_config.vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t align = alignment > GRAIN ? alignment : GRAIN;
    if (size > UINT64_MAX - align)
        return CUDA_ERROR_OUT_OF_MEMORY;
    reservation_t *reservation = calloc(1, sizeof *reservation);
    uint64_t taken = round_up(size, align);
    uint64_t base = reservation ? sim_range_take(taken, align, hint) : 0;
    if (!base) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation->node.key = base;
    reservation->size = size;
    reservation->taken = taken;
    sim_tree_insert(&reservations, &reservation->node);
    sim_mirror_bar(base, size, true);
    sim_kernel_faults_start();
    sim_call_bytes(SIM_FN_cuMemAddressReserve, size);
    *out = base;
    return CUDA_SUCCESS;
}

/* Returns the first mapping that touches the range. */
static sim_alloc_t *first_in(uint64_t address, uint64_t size) {
    sim_alloc_t *record = sim_alloc_around(address);
    if (!record) {
        sim_alloc_t probe = {.base = address};
        record = sim_alloc_next(&probe);
    }
    return record && record->base < address + size ? record : NULL;
}

SIM_API(cuMemAddressFree)(CUdeviceptr address, size_t size) {
    reservation_t *reservation = (reservation_t *)(void *)sim_tree_find(reservations, address);
    if (!reservation || reservation->size != size || first_in(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    sim_call_bytes(SIM_FN_cuMemAddressFree, size);
    sim_tree_remove(&reservations, &reservation->node);
    sim_mirror_bar(address, size, false);
    sim_range_give(address, reservation->taken);
    free(reservation);
    return CUDA_SUCCESS;
}

/* ---- mappings ---- */

static bool is_mapping(const sim_alloc_t *record) {
    return record->kind == SIM_MEM_VMM || record->kind == SIM_MEM_MULTICAST;
}

/* Returns true if the range consists of whole mappings without gaps. */
static bool whole_mappings(uint64_t address, uint64_t size) {
    if (!size || address + size < address)
        return false;
    for (uint64_t at = address; at < address + size;) {
        const sim_alloc_t *record = sim_alloc_at(at);
        if (!record || !is_mapping(record) || record->size > address + size - at)
            return false;
        at += record->size;
    }
    return true;
}

static void unmap_one(sim_alloc_t *record) {
    sim_mapping_t *mapping = record->owner;
    sim_physical_t *physical = mapping->physical;
    CUmemGenericAllocationHandle team = mapping->team;
    if (physical)
        sim_mirror_restore(record->base, record->size);
    sim_mirror_bar(record->base, record->size, true);
    sim_alloc_delete(record);
    if (!physical) {
        free(mapping);
        sim_multicast_unmapped(team);
        return;
    }
    sim_mapping_t **link = &physical->maps;
    while (*link != mapping)
        link = &(*link)->next;
    *link = mapping->next;
    free(mapping);
    sim_vmm_mapped--;
    physical_settle(physical);
}

bool sim_vmm_rdma(const sim_alloc_t *record) {
    const sim_mapping_t *mapping = record->owner;
    return mapping->physical->prop.allocFlags.gpuDirectRDMACapable;
}

uint64_t sim_vmm_place(const sim_alloc_t *record) {
    const sim_mapping_t *mapping = record->owner;
    return mapping->physical->place;
}

sim_alloc_t *sim_vmm_alias(const sim_alloc_t *record, const sim_alloc_t *before) {
    const sim_mapping_t *mine = record->owner;
    const sim_mapping_t *at =
        before ? ((const sim_mapping_t *)before->owner)->next : mine->physical->maps;
    if (at == mine)
        at = at->next;
    return at ? at->record : NULL;
}

sim_alloc_t *sim_mapping_new(sim_mem_kind_t kind, uint64_t address, uint64_t size, int device) {
    sim_mapping_t *mapping = calloc(1, sizeof *mapping);
    sim_alloc_t *record = mapping ? sim_alloc_new(kind, address, size, device, NULL) : NULL;
    if (!record) {
        free(mapping);
        return NULL;
    }
    mapping->record = record;
    record->owner = mapping;
    record->no_access = true;
    return record;
}

/* Makes the record of a mapping, before it is laid over the mirror. */
static sim_alloc_t *map_physical(sim_physical_t *physical, uint64_t address, uint64_t size) {
    sim_alloc_t *record = sim_mapping_new(SIM_MEM_VMM, address, size, physical->prop.location.id);
    if (!record)
        return NULL;
    sim_mapping_t *mapping = record->owner;
    mapping->physical = physical;
    mapping->next = physical->maps;
    physical->maps = mapping;
    sim_vmm_mapped++;
    record->handle_types = physical->prop.requestedHandleTypes;
    if (sim_race_on)
        sim_race_mapped(record);
    if (sim_race_on && (physical->header || physical->uses) && physical->file < 0)
        sim_race_exported(record);
    if (sim_race_on && physical->peer)
        sim_race_imported(record);
    return record;
}

sim_peer_t *sim_vmm_peer(const sim_alloc_t *record, uint64_t *offset) {
    const sim_physical_t *physical = ((const sim_mapping_t *)record->owner)->physical;
    *offset = physical->peer_at;
    return physical->peer;
}

bool sim_range_mappable(uint64_t address, uint64_t size) {
    return size && size % GRAIN == 0 && address % GRAIN == 0 &&
           reservation_around(address, size) && !first_in(address, size);
}

SIM_API(cuMemMap)
(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
    sim_physical_t *physical = sim_physical_get(handle);
    if (!flags && !offset && sim_multicast_has(handle))
        return sim_multicast_map(address, size, handle);
    if (!physical || flags || offset || size > physical->size ||
        !sim_range_mappable(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    sim_alloc_t *record = map_physical(physical, address, size);
    int from = physical->file >= 0 ? physical->file : sim_vmm_file;
    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (mmap(sim_bytes(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, from,
             (off_t)physical->offset) == MAP_FAILED) {
        unmap_one(record);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_call_bytes(SIM_FN_cuMemMap, size);
    return CUDA_SUCCESS;
}

SIM_API(cuMemUnmap)(CUdeviceptr address, size_t size) {
    if (!whole_mappings(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    /* The unmap waits, but the documentation does not promise it: a program that relies on it is
     * reported. */
    for (uint64_t at = address; sim_race_on && at < address + size;) {
        const sim_alloc_t *record = sim_alloc_at(at);
        sim_race_unmapping(record);
        at += record->size;
    }
    int first = sim_alloc_at(address)->device;
    if (sim_alloc_at(address)->kind == SIM_MEM_MULTICAST) /* all of the team's */
        for (int device = 0; !sim_device_check(device); device++)
            sim_wait_device(device);
    else
        sim_wait_device(first);
    if (!whole_mappings(address, size)) /* the wait dropped the lock */
        return CUDA_ERROR_INVALID_VALUE;
    sim_call_bytes(SIM_FN_cuMemUnmap, size);
    uint64_t pages = 0;
    for (uint64_t at = address; at < address + size; pages++) {
        sim_alloc_t *record = sim_alloc_at(at);
        at += record->size;
        unmap_one(record);
    }
    sim_call_pages(SIM_FN_cuMemUnmap, pages);
    return CUDA_SUCCESS;
}

static CUresult check_access(const CUmemAccessDesc *desc) {
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_of_host(&desc->location)) {
        sim_log("access for the host (cuMemSetAccess) is not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_device_check(desc->location.id);
}

static CUresult check_reach(uint64_t address, uint64_t size, const CUmemAccessDesc *desc) {
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return CUDA_SUCCESS;
    for (uint64_t at = address; at < address + size;) {
        const sim_alloc_t *record = sim_alloc_at(at);
        if (record->kind == SIM_MEM_MULTICAST
                ? !sim_multicast_member(record, desc->location.id)
                : !sim_config.peer && record->device != desc->location.id)
            return CUDA_ERROR_INVALID_DEVICE;
        at += record->size;
    }
    return CUDA_SUCCESS;
}

static void apply_access(sim_alloc_t *record, const CUmemAccessDesc *desc, size_t count) {
    sim_mapping_t *mapping = record->owner;
    for (size_t i = 0; i < count; i++)
        mapping->access[desc[i].location.id] = (unsigned char)desc[i].flags;
    unsigned most = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (size_t i = 0; i < SIM_MAX_DEVICES; i++)
        most |= mapping->access[i];
    record->no_access = most == CU_MEM_ACCESS_FLAGS_PROT_NONE;
    record->read_only = most == CU_MEM_ACCESS_FLAGS_PROT_READ;
}

SIM_API(cuMemSetAccess)
(CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count) {
    if (!desc || !count || !whole_mappings(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_access(&desc[i]);
        if (!result)
            result = check_reach(address, size, &desc[i]);
        if (result)
            return result;
    }
    uint64_t pages = 0;
    for (uint64_t at = address; at < address + size; pages++) {
        sim_alloc_t *record = sim_alloc_at(at);
        apply_access(record, desc, count);
        at += record->size;
    }
    sim_call_bytes(SIM_FN_cuMemSetAccess, size);
    sim_call_pages(SIM_FN_cuMemSetAccess, pages);
    return CUDA_SUCCESS;
}

bool sim_vmm_allows(const sim_alloc_t *record, int device, bool write) {
    unsigned flags = ((const sim_mapping_t *)record->owner)->access[device];
    return write ? flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static sim_alloc_t *mapping_around(uint64_t address) {
    sim_alloc_t *record = sim_alloc_around(address);
    return record && is_mapping(record) ? record : NULL;
}

SIM_API(cuMemGetAccess)
(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    const sim_alloc_t *record = mapping_around(address);
    if (!flags || !location || !record || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = sim_device_check(location->id);
    if (!result)
        *flags = ((const sim_mapping_t *)record->owner)->access[location->id];
    return result;
}

SIM_API(cuMemRetainAllocationHandle)(CUmemGenericAllocationHandle *out, void *address) {
    const sim_alloc_t *record = mapping_around((uintptr_t)address);
    if (!out || !record)
        return CUDA_ERROR_INVALID_VALUE;
    const sim_mapping_t *mapping = record->owner;
    *out = mapping->physical ? (uintptr_t)mapping->physical : mapping->team;
    if (mapping->physical)
        mapping->physical->refs++;
    else
        sim_multicast_retain(mapping->team);
    return CUDA_SUCCESS;
}

/* ---- what is left ---- */

static uint64_t count_nodes(const sim_node_t *node) {
    return node ? 1 + count_nodes(node->child[0]) + count_nodes(node->child[1]) : 0;
}

SIM_LIVE_COUNT(reservations) {
    return count_nodes(reservations);
}

SIM_LIVE_COUNT(handles) {
    uint64_t count = 0;
    size_t at = 0;
    for (sim_physical_t *physical; (physical = sim_slab_next(&sim_physicals, &at));)
        count += physical->refs > 0;
    return count;
}

SIM_LIVE_COUNT(physical) {
    return sim_physicals.live;
}

SIM_LIVE_COUNT(mappings) {
    return sim_vmm_mapped + sim_multicast_mapped;
}
