/* Mapped multicast objects, and what a store to one reaches: the memory of all devices of the team.
 * Global lock.
 *
 * The mapping itself has no contents.  A kernel that is a host function finds the memories behind an
 * address by simcuda_multimem, and does what multimem.st, .red and .ld_reduce do.  Copies and fills
 * to the address are stores.  Memory that another process bound is mapped here at its first use.
 *
 * The race detector counts a store as a use of the mapping and of the memory behind it.  That memory
 * is used at the address at which this process has it mapped, and in the register of the process
 * that bound it.
 *
 * Guesses are rows of guesses.def. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "multicast.h"
#include "race_memory.h"
#include "state.h"
#include "vmm.h"

size_t sim_multicast_mapped;

/* ---- mappings ---- */

static CUdevice first_member(const sim_team_t *team) {
    int device = 0;
    while (!sim_device_check(device) && !sim_team_has(team, device))
        device++;
    return sim_device_check(device) ? 0 : device;
}

CUresult sim_multicast_map(uint64_t address, uint64_t size, CUmemGenericAllocationHandle handle) {
    sim_team_t *team;
    for (;;) {
        team = sim_team_get(handle);
        if (!team || size > team->prop.size || !sim_range_mappable(address, size))
            return CUDA_ERROR_INVALID_VALUE;
        if (sim_team_whole(team))
            break;
        sim_team_wait();
    }
    sim_alloc_t *record =
        sim_mapping_new(SIM_MEM_MULTICAST, address, size, first_member(team));
    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ((sim_mapping_t *)record->owner)->team = handle;
    record->handle_types = (unsigned)team->prop.handleTypes;
    team->maps++;
    sim_multicast_mapped++;
    sim_call_bytes(SIM_FN_cuMemMap, size);
    return CUDA_SUCCESS;
}

void sim_multicast_unmapped(CUmemGenericAllocationHandle handle) {
    sim_team_t *team = sim_team_any(handle);
    team->maps--;
    sim_multicast_mapped--;
    sim_team_settle(team);
}

static sim_team_t *team_behind(const sim_alloc_t *record) {
    return sim_team_any(((const sim_mapping_t *)record->owner)->team);
}

bool sim_multicast_member(const sim_alloc_t *record, int device) {
    return sim_team_has(team_behind(record), device);
}

/* ---- the memory behind a place ---- */

void sim_binding_forget(sim_team_t *team, unsigned slot) {
    if (team->seen[slot].bytes)
        munmap(team->seen[slot].bytes, team->seen[slot].size);
    if (team->seen[slot].peer)
        sim_peer_close(team->seen[slot].peer);
    memset(&team->seen[slot], 0, sizeof team->seen[slot]);
}

static char *map_file(int file, const sim_binding_t *b) {
    char *bytes =
        mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)b->place);
    return bytes == MAP_FAILED ? NULL : bytes;
}

char *sim_binding_bytes(sim_team_t *team, unsigned slot) {
    uint64_t number = sim_binding_number(team, slot);
    const sim_binding_t *b = &team->shared->binding[slot];
    int file;
    if (number && team->seen[slot].number == number)
        return team->seen[slot].bytes;
    sim_binding_forget(team, slot);
    if (!number)
        return NULL;
    if (team->mine[slot].number == number) {
        team->seen[slot].bytes = map_file(b->file, b);
    } else if (!sim_peer_open(&b->maker, &team->seen[slot].peer) &&
               !sim_token_open(&b->maker, b->file, &file)) {
        team->seen[slot].bytes = map_file(file, b);
        close(file);
    }
    team->seen[slot].size = b->size;
    team->seen[slot].number = number;
    return team->seen[slot].bytes;
}

/* Iterator over the memory bound at [at, at + length) of a mapping:
 * for (reach_t r = reach_of(record, at, length); reach_next(&r);) */
typedef struct {
    sim_team_t *team;
    uint64_t from, end; /* in the object */
    unsigned slot;      /* of the piece, + 1 */
    char *bytes;        /* of the piece */
    uint64_t at, length; /* position in the binding, and length of the piece */
    uint64_t ahead;     /* distance of the piece from `from` */
} reach_t;

static reach_t reach_of(const sim_alloc_t *record, uint64_t at, uint64_t length) {
    uint64_t from = at - record->base;
    return (reach_t){.team = team_behind(record), .from = from, .end = from + length};
}

static bool reach_next(reach_t *r) {
    while (r->slot < SIM_BINDINGS) {
        unsigned slot = r->slot++;
        const sim_binding_t *b = &r->team->shared->binding[slot];
        char *bytes = sim_binding_bytes(r->team, slot);
        uint64_t first = b->offset > r->from ? b->offset : r->from;
        uint64_t end = b->offset + b->size < r->end ? b->offset + b->size : r->end;
        if (!bytes || first >= end)
            continue;
        r->at = first - b->offset;
        r->length = end - first;
        r->ahead = first - r->from;
        r->bytes = bytes + r->at;
        return true;
    }
    return false;
}

/* Returns the record of the mapping that contains `address`, or NULL.  *here receives the bytes of
 * [address, address + length) that lie in it. */
static const sim_alloc_t *part_of(uint64_t address, uint64_t length, uint64_t *here) {
    const sim_alloc_t *record = sim_alloc_around(address);
    if (!record)
        return NULL;
    uint64_t left = record->base + record->size - address;
    *here = left < length ? left : length;
    return record;
}

bool sim_multicast_at(uint64_t address) {
    const sim_alloc_t *record = sim_multicast_mapped ? sim_alloc_around(address) : NULL;
    return record && record->kind == SIM_MEM_MULTICAST;
}

/* Returns true if all devices have bound memory to the range.  Devices bind no byte twice, so it
 * is enough to compare the number of bound bytes. */
bool sim_multicast_ready(uint64_t address, uint64_t length) {
    const sim_alloc_t *record;
    uint64_t here;
    for (; length && (record = part_of(address, length, &here)); address += here, length -= here) {
        if (record->kind != SIM_MEM_MULTICAST)
            continue;
        uint64_t bound = 0;
        reach_t r = reach_of(record, address, here);
        while (reach_next(&r))
            bound += r.length;
        if (bound < here * r.team->prop.numDevices)
            return false;
    }
    return true;
}

void sim_multicast_store(uint64_t address, const void *bytes, uint64_t length) {
    const sim_alloc_t *record;
    const char *from = bytes;
    uint64_t here;
    for (; length && (record = part_of(address, length, &here));
         address += here, from += here, length -= here)
        for (reach_t r = reach_of(record, address, here); reach_next(&r);)
            memcpy(r.bytes, from + r.ahead, r.length);
}

__attribute__((visibility("default"))) void *simcuda_multimem(CUdeviceptr address, unsigned at) {
    void *found = NULL;
    if (!sim_space_holds(address))
        return NULL;
    sim_lock();
    if (sim_multicast_at(address))
        for (reach_t r = reach_of(sim_alloc_around(address), address, 1); !found && reach_next(&r);)
            if (!at--)
                found = r.bytes;
    sim_unlock();
    return found;
}

/* ---- the race detector ---- */

bool sim_multicast_here(uint64_t address, uint64_t length, unsigned *slot, uint64_t *at,
                        uint64_t *bytes) {
    const sim_alloc_t *record = sim_alloc_around(address);
    reach_t r = reach_of(record, address, length);
    r.slot = *slot;
    while (reach_next(&r)) {
        unsigned i = r.slot - 1;
        const sim_memory_t *memory = &r.team->mine[i].memory;
        if (!r.team->mine[i].number)
            continue;
        *at = memory->address ? memory->address + r.at
                              : sim_vmm_shown(memory->handle, memory->from + r.at, bytes);
        *bytes = *at && !memory->address && *bytes < r.length ? *bytes : r.length;
        *slot = r.slot;
        if (*at)
            return true;
    }
    return false;
}

void sim_multicast_publish(sim_op_t *op, uint64_t address, uint64_t length, bool write) {
    if (!sim_multicast_at(address))
        return;
    for (reach_t r = reach_of(sim_alloc_around(address), address, length); reach_next(&r);) {
        const sim_binding_t *b = &r.team->shared->binding[r.slot - 1];
        sim_peer_t *peer = r.team->seen[r.slot - 1].peer;
        if (peer && b->at != UINT64_MAX)
            sim_shared_reach(op, peer, b->at + r.at, r.length, write);
    }
}
