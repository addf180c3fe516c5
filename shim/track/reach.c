/* Checks the ranges of copies and fills that the short way does not accept (reach.h). */
#include "track/reach.h"

#include <string.h>

#include "track/running.h"
#include "track/context.h"

void ac_reach_begin(ac_thread_t *thread) {
    static const ac_block_t none;
    for (unsigned i = 0; i < AC_NAMED_SIDES; i++)
        thread->last_reached[i] = &none;
    for (unsigned i = 0; i < AC_REACHED; i++)
        thread->reached[i] = &none;
}

bool ac_reach_look(ac_thread_t *thread, ac_named_t side, uint64_t address, uint64_t bytes) {
    const ac_block_t *block;
    const ac_block_t **own = &thread->reached[ac_reach_place(address)];
    /* Programs use a large block at many addresses: a second entry serves all in one page. */
    const ac_block_t **page = &thread->reached[ac_reach_place(address >> AC_PAGE_BITS)];
    if (!bytes || !ac_process_config()->check_ranges)
        return true;
    if (ac_block_has(*page, address, bytes)) {
        thread->last_reached[side] = *page;
        return true;
    }
    if (ac_block_starts(address, bytes, &block)) {
        thread->last_reached[side] = *own = block;
        return true;
    }
    if (!ac_owned(address))
        return true;
    ac_status_t status = ac_block_reaches(address, bytes, &block);
    if (status == AC_OK && block)
        thread->last_reached[side] = *own = *page = block;
    return status != AC_BAD_ADDRESS;
}

/* --- shapes --- */

/* One side of a copy, with the driver's fields. */
typedef struct {
    CUmemorytype type;
    uint64_t address, x, y, z, pitch, height; /* pitch, height: 0: as the extent */
} side_t;

typedef struct {
    uint64_t width, rows, planes;
} extent_t;

/* Return a number that no block has (UINT64_MAX) if the product or the sum overflows. */
static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
static uint64_t plus(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Checks the bytes from the first that the copy touches to the last one. */
static bool is_ok(ac_thread_t *thread, ac_named_t named, const side_t *side,
                  const extent_t *extent) {
    if ((side->type != CU_MEMORYTYPE_DEVICE && side->type != CU_MEMORYTYPE_UNIFIED) ||
        !extent->width || !extent->rows || !extent->planes)
        return true;
    uint64_t pitch = side->pitch ? side->pitch : extent->width;
    uint64_t height = side->height ? side->height : extent->rows;
    if ((pitch < extent->width && (extent->rows > 1 || extent->planes > 1)) ||
        (height < extent->rows && extent->planes > 1))
        return true; /* the driver's to refuse */
    uint64_t first = side->address + side->x + side->y * pitch + side->z * pitch * height;
    uint64_t planes = times(times(pitch, height), extent->planes - 1);
    uint64_t rows = times(pitch, extent->rows - 1);
    return ac_reach_ok(thread, named, first, plus(plus(planes, rows), extent->width));
}

static bool are_ok(ac_thread_t *thread, const side_t *from, const side_t *to,
                   const extent_t *extent) {
    return is_ok(thread, AC_NAMED_FROM, from, extent) && is_ok(thread, AC_NAMED_TO, to, extent);
}

bool ac_reach_rows_look(ac_thread_t *thread, uint64_t address, uint64_t pitch, uint64_t width,
                        uint64_t rows) {
    return is_ok(thread, AC_NAMED_TO,
                 &(side_t){.type = CU_MEMORYTYPE_DEVICE, .address = address, .pitch = pitch},
                 &(extent_t){width, rows, 1});
}

#define FLAT_SIDE(copy, which)                                                                   \
    (side_t) {                                                                                   \
        .type = (copy)->which##MemoryType, .address = (copy)->which##Device,                     \
        .x = (copy)->which##XInBytes, .y = (copy)->which##Y, .pitch = (copy)->which##Pitch       \
    }

bool ac_reach_2d_look(ac_thread_t *thread, const CUDA_MEMCPY2D *copy) {
    return are_ok(thread, &FLAT_SIDE(copy, src), &FLAT_SIDE(copy, dst),
                  &(extent_t){copy->WidthInBytes, copy->Height, 1});
}

#define SIDE(copy, which)                                                                        \
    (side_t) {                                                                                   \
        (copy)->which##MemoryType, (copy)->which##Device, (copy)->which##XInBytes,               \
            (copy)->which##Y, (copy)->which##Z, (copy)->which##Pitch, (copy)->which##Height      \
    }

bool ac_reach_3d(ac_thread_t *thread, const CUDA_MEMCPY3D *copy) {
    return !copy || are_ok(thread, &SIDE(copy, src), &SIDE(copy, dst),
                           &(extent_t){copy->WidthInBytes, copy->Height, copy->Depth});
}

bool ac_reach_3d_peer(ac_thread_t *thread, const CUDA_MEMCPY3D_PEER *copy) {
    return !copy || are_ok(thread, &SIDE(copy, src), &SIDE(copy, dst),
                           &(extent_t){copy->WidthInBytes, copy->Height, copy->Depth});
}

/* --- batches --- */

/* A batch is checked up to an entry that the driver refuses: the count may be wrong. */

/* Stores the entry that is refused, as the driver does. */
static bool refuse(size_t entry, size_t *refused) {
    if (refused)
        *refused = entry;
    return false;
}

bool ac_reach_batch(ac_thread_t *thread, const CUdeviceptr *to, const CUdeviceptr *from,
                    const size_t *bytes, size_t count, size_t *refused) {
    for (size_t i = 0; to && from && bytes && i < count && to[i] && from[i]; i++)
        if (!ac_reach_ok(thread, AC_NAMED_TO, to[i], bytes[i]) ||
            !ac_reach_ok(thread, AC_NAMED_FROM, from[i], bytes[i]))
            return refuse(i, refused);
    return true;
}

static side_t operand(const CUmemcpy3DOperand *from) {
    return (side_t){.type = CU_MEMORYTYPE_UNIFIED,
                    .address = from->op.ptr.ptr,
                    .pitch = from->op.ptr.rowLength,
                    .height = from->op.ptr.layerHeight};
}

bool ac_reach_3d_batch(ac_thread_t *thread, const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count,
                       size_t *refused) {
    for (size_t i = 0; copies && i < count; i++) {
        const CUDA_MEMCPY3D_BATCH_OP *copy = &copies[i];
        if (!copy->src.type || !copy->dst.type)
            return true;
        if (copy->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
            copy->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
            continue; /* an array has elements of a size that is not known here */
        side_t from = operand(&copy->src), to = operand(&copy->dst);
        if (!are_ok(thread, &from, &to,
                    &(extent_t){copy->extent.width, copy->extent.height, copy->extent.depth}))
            return refuse(i, refused);
    }
    return true;
}

/* --- nodes of graphs --- */

bool ac_reach_memset(ac_thread_t *thread, const CUDA_MEMSET_NODE_PARAMS *fill) {
    return !fill || ac_reach_rows(thread, fill->dst, fill->height > 1 ? fill->pitch : 0,
                                  fill->width, fill->elementSize, fill->height);
}

bool ac_reach_node(ac_thread_t *thread, const CUgraphNodeParams *params) {
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        CUDA_MEMSET_NODE_PARAMS fill;
        memcpy(&fill, params->payload, sizeof fill);
        return ac_reach_memset(thread, &fill);
    }
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        struct {
            int flags, reserved;
            CUcontext context;
            CUDA_MEMCPY3D copy;
        } node;
        memcpy(&node, params->payload, sizeof node);
        return ac_reach_3d(thread, &node.copy);
    }
    return true;
}
