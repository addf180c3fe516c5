/* Stream-ordered memory: what mempool.c and graph_mem.c share.  Global lock everywhere.
 *
 * Both make records of kind SIM_MEM_POOL.  The `owner` of a record points to one of the structures
 * below; the first member tells which one. */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "sim.h"

typedef enum { SIM_OWNER_BLOCK, SIM_OWNER_GRAPH, SIM_OWNER_IMPORT } sim_pool_owner_t;

/* A pool of a process (pool_share.c). */
typedef struct {
    uint64_t cookie; /* of the process, never guessable or used again */
    uint64_t pool;   /* id */
    int32_t pid, mirror_fd;
} sim_pool_source_t;

typedef struct CUmemoryPool_handle {
    sim_object_t object;
    CUmemPoolProps props;
    int device;   /* for managed memory the preferred one, or 0 */
    bool on_host; /* host or managed memory: contents at its addresses, no charge */
    bool managed;
    bool is_default;
    bool doomed; /* destroyed by the program while memory of it is in use */
    uint64_t threshold;
    int follow_events, opportunistic, internal_dependencies;
    uint64_t reserved, reserved_high, used, used_high;
    CUmemAccess_flags access[SIM_MAX_DEVICES];
    struct sim_chunk *chunks;
    bool imported; /* of another process: `source` */
    sim_pool_source_t source;
    unsigned imports; /* pointers that are mapped */
} sim_pool_t;

extern sim_slab_t sim_pools;

/* Makes a pool with these properties, which the caller has checked. */
CUresult sim_pool_new(const CUmemPoolProps *props, sim_pool_t **out);
/* Returns the pool of a handle; NULL if there is none or it was destroyed. */
sim_pool_t *sim_pool_get(CUmemoryPool handle);
/* Returns the pool that cuMemAllocAsync uses on the device; NULL without host memory. */
sim_pool_t *sim_pool_current(int device);
/* Releases idle chunks until at most `keep` bytes are reserved.  With `floor`, at least `keep`
 * bytes stay reserved. */
void sim_pool_trim(sim_pool_t *pool, uint64_t keep, bool floor);
/* Handles a destroyed pool: releases unused memory, and the handle once all memory is
 * returned. */
void sim_pool_bury(sim_pool_t *pool);

/* Free an imported pointer at once, or (_async) when the stream gets there (pool_share.c). */
CUresult sim_pool_import_free(sim_alloc_t *record);
CUresult sim_pool_import_free_async(sim_alloc_t *record, CUstream stream);

/* ---- memory that belongs to graphs (graph_mem.c) ---- */

/* One allocation node's memory.  The address is fixed at node creation; the record exists
 * while a launch has it allocated.  Refs: the node, its copies in executable graphs, items
 * that have not run, and the allocation itself while it is live. */
typedef struct sim_graph_mem {
    sim_pool_owner_t owner;
    unsigned refs;
    uint64_t base, size;
    int device;
    CUmemPoolProps props;
    CUmemAccessDesc *access;
    size_t access_count;
    uint64_t graph_id;        /* of the graph with the allocation node */
    bool freed_in_graph;      /* that graph has a free node for it */
    unsigned freed_elsewhere; /* number of other graphs with a free node for it */
    bool live;                /* host view: a launch allocated it and nothing freed it */
    size_t submitted;         /* allocations submitted and not yet freed */
    sim_alloc_t *record;
} sim_graph_mem_t;

/* Reserves the address.  Returns OUT_OF_MEMORY, INVALID_VALUE or INVALID_DEVICE, as the creation
 * of the node does. */
CUresult sim_graph_mem_new(const CUDA_MEM_ALLOC_NODE_PARAMS *params, uint64_t graph_id,
                           sim_graph_mem_t **out);
sim_graph_mem_t *sim_graph_mem_at(uint64_t address); /* starts there, or NULL */
/* Returns the number of bytes from the address on that belong to a graph, allocated by a launch or
 * not.  Nodes may name them before there is a record.  0: none. */
uint64_t sim_graph_mem_left(uint64_t address);
sim_graph_mem_t *sim_graph_mem_ref(sim_graph_mem_t *mem);
void sim_graph_mem_unref(sim_graph_mem_t *mem);
/* Make the items that allocate and free the memory; NULL without host memory.  Before an
 * allocation is submitted, sim_graph_mem_commit must charge the device and make the record. */
sim_work_t *sim_graph_mem_alloc_work(CUcontext ctx, sim_graph_mem_t *mem);
sim_work_t *sim_graph_mem_free_work(CUcontext ctx, sim_graph_mem_t *mem);
CUresult sim_graph_mem_commit(sim_graph_mem_t *mem);
void sim_graph_mem_rollback(sim_graph_mem_t *mem); /* undoes a commit without a submitted item */

#endif
