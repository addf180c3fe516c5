/* Interface between copy.c, which makes copy items, and copy_api.c, which has the calls. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "sim.h"

/* One side of a copy: its address, and the layout of its rows and planes. */
typedef struct {
    CUmemorytype type;
    uint64_t address; /* host or device address of the first byte, offsets included */
    CUarray array;    /* CU_MEMORYTYPE_ARRAY; address is a byte offset into it then */
    size_t x, y, z;   /* offsets, for arrays */
    size_t pitch, height;
} sim_copy_side_t;

typedef struct {
    sim_copy_side_t from, to;
    size_t width, rows, planes; /* width in bytes */
    bool later; /* for a graph: memory may be named before a launch allocates it */
} sim_copy_t;

/* Makes the item; NULL means that there is nothing to copy.  *host_waits: the host must wait even
 * after an async call (pageable target).  *sync_waits: the host must wait after a synchronous
 * call. */
CUresult sim_copy_build(CUcontext ctx, const sim_copy_t *copy, bool stage, sim_work_t **out,
                        bool *host_waits, bool *sync_waits);
void sim_copy_from_3d(const CUDA_MEMCPY3D_PEER *in, sim_copy_t *out);

#endif
