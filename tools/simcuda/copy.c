/* Copies and fills as work items.  They are built under the global lock; large ones run without
 * it.
 *
 * The guarantees to the host follow NVIDIA's "API synchronization behavior".  Pageable sources
 * are read before the call returns.  Copies to pageable memory are complete when it returns.
 * Copies within devices and fills do not block the host, even in their synchronous form. */
#include <stdlib.h>
#include <string.h>

#include "copy.h"
#include "pool.h"
#include "race.h"
#include "state.h"

enum { UNLOCKED_BYTES = 64 << 10, ROWS_LISTED = 64 };

typedef enum { SIDE_DEVICE, SIDE_MANAGED, SIDE_PINNED, SIDE_PAGEABLE } side_kind_t;

typedef struct {
    uint64_t from, to;
    size_t width, rows, planes;
    size_t from_pitch, from_plane, to_pitch, to_plane;
    void *staged;   /* packed copy of a pageable source */
    bool multicast; /* the target is; runs with the lock */
} copy_payload_t;

static CUresult run_copy(sim_work_t *work) {
    const copy_payload_t *p = SIM_PAYLOAD(work, copy_payload_t);
    const char *from = p->staged ? p->staged : sim_bytes(p->from);
    char *to = sim_bytes(p->to);
    for (size_t z = 0; p->multicast && z < p->planes; z++)
        for (size_t y = 0; y < p->rows; y++)
            sim_multicast_store(p->to + z * p->to_plane + y * p->to_pitch,
                                from + z * p->from_plane + y * p->from_pitch, p->width);
    for (size_t z = 0; !p->multicast && z < p->planes; z++)
        for (size_t y = 0; y < p->rows; y++)
            memmove(to + z * p->to_plane + y * p->to_pitch,
                    from + z * p->from_plane + y * p->from_pitch, p->width);
    return CUDA_SUCCESS;
}

static void release_copy(void *payload) {
    free(((copy_payload_t *)payload)->staged);
}

static bool clone_copy(void *to, const void *from) {
    copy_payload_t *copy = to;
    const copy_payload_t *p = from;
    if (!p->staged)
        return true;
    size_t bytes = p->width * p->rows * p->planes;
    copy->staged = malloc(bytes);
    if (copy->staged)
        memcpy(copy->staged, p->staged, bytes);
    return copy->staged;
}

static const sim_work_ops_t copy_ops = {.name = "copy",
                                        .type = SIM_WORK_COPY,
                                        .run = run_copy,
                                        .release = release_copy,
                                        .clone = clone_copy};
static const sim_work_ops_t big_copy_ops = {.name = "copy",
                                            .type = SIM_WORK_COPY,
                                            .flags = SIM_RUN_UNLOCKED,
                                            .run = run_copy,
                                            .release = release_copy,
                                            .clone = clone_copy};

/* ---- resolving a side ---- */

typedef struct {
    side_kind_t kind;
    uint64_t first;
    size_t pitch, plane;
} place_t;

static CUresult place_array(const sim_copy_side_t *side, const sim_copy_t *copy, place_t *out) {
    sim_array_layout_t layout;
    CUresult result = sim_array_layout(side->array, &layout);
    if (result)
        return result;
    size_t rows = layout.rows ? layout.rows : 1, planes = layout.planes ? layout.planes : 1;
    if (side->x + copy->width > layout.row_bytes || side->y + copy->rows > rows ||
        side->z + copy->planes > planes)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (place_t){.kind = SIDE_DEVICE, .pitch = layout.row_bytes};
    out->plane = layout.row_bytes * rows;
    out->first = layout.base + side->x + side->y * out->pitch + side->z * out->plane;
    return CUDA_SUCCESS;
}

/* Returns the bytes from the first to the last one, or SIZE_MAX if the count overflows. */
static size_t extent_of(size_t width, size_t pitch, size_t rows, size_t plane, size_t planes) {
    size_t down, deep, extent;
    bool large = __builtin_mul_overflow(rows - 1, pitch, &down);
    large |= __builtin_mul_overflow(planes - 1, plane, &deep);
    large |= __builtin_add_overflow(down, deep, &extent);
    large |= __builtin_add_overflow(extent, width, &extent);
    return large ? SIZE_MAX : extent;
}

static bool joins_up(const sim_alloc_t *record) {
    return record->kind == SIM_MEM_VMM || record->kind == SIM_MEM_MULTICAST;
}

static CUresult place(const sim_copy_side_t *side, const sim_copy_t *copy, place_t *out) {
    if (side->type == CU_MEMORYTYPE_ARRAY)
        return place_array(side, copy, out);
    if (side->type < CU_MEMORYTYPE_HOST || side->type > CU_MEMORYTYPE_UNIFIED || !side->address)
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = side->pitch ? side->pitch : copy->width;
    size_t height = side->height ? side->height : copy->rows;
    if ((pitch < copy->width && copy->rows * copy->planes > 1) ||
        (height < copy->rows && copy->planes > 1))
        return CUDA_ERROR_INVALID_VALUE;
    out->pitch = pitch;
    out->plane = pitch * height;
    out->first = side->address + side->x + side->y * pitch + side->z * out->plane;
    size_t extent = extent_of(copy->width, out->pitch, copy->rows, out->plane, copy->planes);
    const sim_alloc_t *record = sim_alloc_around(out->first);
    if (!record) {
        out->kind = SIDE_DEVICE;
        if (copy->later && extent <= sim_graph_mem_left(out->first))
            return CUDA_SUCCESS;
        if (sim_space_holds(out->first) || side->type == CU_MEMORYTYPE_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        out->kind = SIDE_PAGEABLE;
        return CUDA_SUCCESS;
    }
    out->kind = record->managed ? SIDE_MANAGED
                : record->host                  ? SIDE_PINNED
                                                : SIDE_DEVICE;
    /* A copy may cross adjacent records of VMM memory.  Any other copy must stay within its
     * allocation. */
    if (out->kind == SIDE_DEVICE && !joins_up(record) &&
        extent > record->base + record->size - out->first)
        return CUDA_ERROR_INVALID_VALUE;
    if (out->kind == SIDE_DEVICE && side->type == CU_MEMORYTYPE_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static bool touches(sim_work_t *work, const place_t *at, const sim_copy_t *copy, bool write) {
    if (at->kind == SIDE_PAGEABLE)
        return true;
    size_t total = copy->rows * copy->planes;
    bool packed = total == 1 || (at->pitch == copy->width &&
                                 (copy->planes == 1 || at->plane == at->pitch * copy->rows));
    if (packed || total > ROWS_LISTED)
        return sim_work_touches(
            work, at->first,
            (copy->planes - 1) * at->plane + (copy->rows - 1) * at->pitch + copy->width, write);
    for (size_t z = 0; z < copy->planes; z++)
        for (size_t y = 0; y < copy->rows; y++)
            if (!sim_work_touches(work, at->first + z * at->plane + y * at->pitch, copy->width,
                                  write))
                return false;
    return true;
}

static bool stage_source(copy_payload_t *p) {
    p->staged = malloc(p->width * p->rows * p->planes);
    if (!p->staged)
        return false;
    const char *from = sim_bytes(p->from);
    char *to = p->staged;
    for (size_t z = 0; z < p->planes; z++)
        for (size_t y = 0; y < p->rows; y++, to += p->width)
            memcpy(to, from + z * p->from_plane + y * p->from_pitch, p->width);
    p->from_pitch = p->width;
    p->from_plane = p->width * p->rows;
    return true;
}

uint64_t sim_copy_ns(uint64_t bytes, bool host_side) {
    uint64_t gbps = host_side ? sim_config.copy_gbps : sim_config.device_gbps;
    return gbps ? bytes / gbps + 1000 : 0; /* 1 us to get going */
}

CUresult sim_copy_build(CUcontext ctx, const sim_copy_t *copy, bool stage, sim_work_t **out,
                        bool *host_waits, bool *sync_waits) {
    *out = NULL;
    *host_waits = *sync_waits = false;
    if (!copy->width || !copy->rows || !copy->planes)
        return CUDA_SUCCESS;
    place_t from, to;
    CUresult result = place(&copy->from, copy, &from);
    if (!result)
        result = place(&copy->to, copy, &to);
    if (result)
        return result;
    size_t bytes = copy->width * copy->rows * copy->planes;
    bool multicast = sim_multicast_at(to.first);
    const sim_work_ops_t *ops = bytes >= UNLOCKED_BYTES && !multicast ? &big_copy_ops : &copy_ops;
    sim_work_t *work = sim_work_new(ops, ctx, sizeof(copy_payload_t));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    copy_payload_t *p = SIM_PAYLOAD(work, copy_payload_t);
    *p = (copy_payload_t){.from = from.first,
                          .to = to.first,
                          .width = copy->width,
                          .rows = copy->rows,
                          .planes = copy->planes,
                          .from_pitch = from.pitch,
                          .from_plane = from.plane,
                          .to_pitch = to.pitch,
                          .to_plane = to.plane,
                          .multicast = multicast};
    bool good = touches(work, &from, copy, false) && touches(work, &to, copy, true);
    if (good && stage && from.kind == SIDE_PAGEABLE && to.kind != SIDE_PAGEABLE)
        good = work->staged = stage_source(p);
    if (!good) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool host_side = from.kind != SIDE_DEVICE || to.kind != SIDE_DEVICE;
    work->duration = sim_copy_ns(bytes, host_side);
    *host_waits = to.kind == SIDE_PAGEABLE;
    *sync_waits = host_side;
    if (sim_race_on)
        sim_race_resolve(work);
    *out = work;
    return CUDA_SUCCESS;
}

void sim_copy_from_3d(const CUDA_MEMCPY3D_PEER *in, sim_copy_t *out) {
    bool from_host = in->srcMemoryType == CU_MEMORYTYPE_HOST;
    bool to_host = in->dstMemoryType == CU_MEMORYTYPE_HOST;
    *out = (sim_copy_t){
        .from = {in->srcMemoryType, from_host ? (uint64_t)(uintptr_t)in->srcHost : in->srcDevice,
                 in->srcArray, in->srcXInBytes, in->srcY, in->srcZ, in->srcPitch, in->srcHeight},
        .to = {in->dstMemoryType, to_host ? (uint64_t)(uintptr_t)in->dstHost : in->dstDevice,
               in->dstArray, in->dstXInBytes, in->dstY, in->dstZ, in->dstPitch, in->dstHeight},
        .width = in->WidthInBytes,
        .rows = in->Height,
        .planes = in->Depth};
}

CUresult sim_copy3d_work(CUcontext ctx, const CUDA_MEMCPY3D_PEER *in, bool stage,
                         sim_work_t **out) {
    sim_copy_t copy;
    bool host_waits, sync_waits;
    sim_copy_from_3d(in, &copy);
    copy.later = true;
    return sim_copy_build(ctx, &copy, stage, out, &host_waits, &sync_waits);
}

/* ---- fills ---- */

typedef struct {
    uint64_t address;
    size_t pitch, width, rows; /* width in elements */
    unsigned value, element;   /* element in bytes */
} fill_payload_t;

/* With the lock. */
static CUresult run_fill_multicast(sim_work_t *work) {
    enum { CHUNK = 4096 };
    const fill_payload_t *p = SIM_PAYLOAD(work, fill_payload_t);
    char chunk[CHUNK];
    for (size_t at = 0; at < CHUNK; at += p->element)
        memcpy(chunk + at, &p->value, p->element);
    size_t bytes = p->width * p->element;
    for (size_t y = 0; y < p->rows; y++)
        for (size_t at = 0; at < bytes; at += CHUNK)
            sim_multicast_store(p->address + y * p->pitch + at, chunk,
                                bytes - at < CHUNK ? bytes - at : CHUNK);
    return CUDA_SUCCESS;
}

static CUresult run_fill(sim_work_t *work) {
    const fill_payload_t *p = SIM_PAYLOAD(work, fill_payload_t);
    for (size_t y = 0; y < p->rows; y++) {
        char *row = (char *)sim_bytes(p->address) + y * p->pitch;
        if (p->element == 1) {
            memset(row, (int)p->value, p->width);
            continue;
        }
        for (size_t x = 0; x < p->width; x++)
            memcpy(row + x * p->element, &p->value, p->element);
    }
    return CUDA_SUCCESS;
}

static const sim_work_ops_t fill_ops = {
    .name = "fill", .type = SIM_WORK_FILL, .flags = SIM_RUN_UNLOCKED, .run = run_fill};
static const sim_work_ops_t fill_multicast_ops = {
    .name = "fill", .type = SIM_WORK_FILL, .run = run_fill_multicast};

CUresult sim_fill_work(CUcontext ctx, uint64_t address, size_t pitch, unsigned value,
                       unsigned element, size_t width, size_t rows, sim_work_t **out) {
    size_t row_bytes;
    *out = NULL;
    if (!width || !rows)
        return CUDA_SUCCESS;
    if (__builtin_mul_overflow(width, element, &row_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (rows == 1)
        pitch = row_bytes;
    const sim_alloc_t *record = sim_alloc_around(address);
    uint64_t extent = extent_of(row_bytes, pitch, rows, 0, 1);
    if (address % element || pitch % element || pitch < row_bytes ||
        (!record && extent > sim_graph_mem_left(address)))
        return CUDA_ERROR_INVALID_VALUE;
    if (record && !joins_up(record) && extent > record->base + record->size - address)
        return CUDA_ERROR_INVALID_VALUE;
    sim_work_t *work = sim_work_new(sim_multicast_at(address) ? &fill_multicast_ops : &fill_ops,
                                    ctx, sizeof(fill_payload_t));
    bool good = work;
    if (pitch == row_bytes || rows > ROWS_LISTED)
        good = good && sim_work_touches(work, address, extent, true);
    else
        for (size_t y = 0; good && y < rows; y++)
            good = sim_work_touches(work, address + y * pitch, row_bytes, true);
    if (!good) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *SIM_PAYLOAD(work, fill_payload_t) =
        (fill_payload_t){address, pitch, width, rows, value, element};
    work->duration = sim_copy_ns(row_bytes * rows, false) + sim_config.fill_us * 1000;
    if (sim_race_on)
        sim_race_resolve(work);
    *out = work;
    return CUDA_SUCCESS;
}
