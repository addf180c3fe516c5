/* Interface between vmm.c, which has reservations, physical memory and mappings, vmm_share.c, which
 * passes memory on to other processes, and multicast_map.c, which maps several memories behind one
 * address.  Global lock. */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include "ipc_share.h"

#define GRAIN (2ull << 20)
#define PAGE  4096ull

/* Physical memory: the target of a handle of cuMemCreate. */
typedef struct {
    sim_object_t object;
    unsigned refs;        /* handles the program holds; 0: only `uses` and `maps` keep it */
    unsigned uses;        /* by multicast objects */
    struct sim_mapping *maps; /* newest first */
    uint64_t size;
    uint64_t place; /* see sim_vmm_place */
    CUmemAllocationProp prop;
    int file;         /* descriptor of another process's file, or -1: ours */
    uint64_t offset;  /* piece of the file */
    uint64_t header;  /* offset of the header page, 0: not exported */
    sim_peer_t *peer; /* race detector: the process it was imported from, or NULL */
    uint64_t peer_at; /* its device address in that process */
    bool charged;
} sim_physical_t;

/* One mapping: the owner of a record of SIM_MEM_VMM, or of SIM_MEM_MULTICAST. */
typedef struct sim_mapping {
    sim_physical_t *physical; /* NULL: `team` is mapped */
    CUmemGenericAllocationHandle team;
    sim_alloc_t *record;
    struct sim_mapping *next;              /* of the same memory */
    unsigned char access[SIM_MAX_DEVICES]; /* CUmemAccess_flags */
} sim_mapping_t;

extern sim_slab_t sim_physicals;

/* The memory file of the process, -1: none yet.  _take finds a piece of it at *offset, and fails
 * without memory; _give returns a piece. */
extern int sim_vmm_file;
bool sim_piece_take(uint64_t size, uint64_t *offset);
void sim_piece_give(uint64_t offset, uint64_t size);
bool sim_grow_file(int fd, uint64_t size);

/* Returns the physical memory that a handle of the program names; NULL: it names none. */
sim_physical_t *sim_physical_get(CUmemGenericAllocationHandle handle);
CUresult sim_physical_check(const CUmemAllocationProp *prop);
/* Makes physical memory without a place in the file; `charge`: the device is charged for it. */
CUresult sim_physical_new(const CUmemAllocationProp *prop, uint64_t size, bool charge,
                          sim_physical_t **out);

/* Returns true if the range may be mapped: whole grains inside one reservation, with nothing in it. */
bool sim_range_mappable(uint64_t address, uint64_t size);
/* Makes a record with its own mapping, without access; NULL without memory. */
sim_alloc_t *sim_mapping_new(sim_mem_kind_t kind, uint64_t address, uint64_t size, int device);

static inline uint64_t round_up(uint64_t size, uint64_t align) {
    return (size + align - 1) & ~(align - 1);
}

#endif
