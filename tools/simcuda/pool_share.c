/* Memory pools shared between processes: export and import of a pool, and of pointers into it.
 * Global lock.
 *
 * A pool's memory lies in the mirror (see sim.h), as all device memory does.  Another process
 * reaches that file through /proc/<pid>/fd, as in ipc.c.  A pool's handle is a descriptor of a
 * small file that names the process and the pool.  The 64 bytes of a pointer name the exported
 * bytes.  An imported pool has no memory of its own: imported pointers belong to it.
 *
 * Guesses (public documentation is silent):
 *   handle types other than file descriptors        NOT_SUPPORTED, logged
 *   a descriptor, or 64 bytes, of something else    INVALID_VALUE
 *   a pointer of another pool than the imported     INVALID_VALUE
 *   a process that ended                            INVALID_HANDLE
 *   the same pointer imported twice                 two mappings
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "pool.h"

#define PAGE        4096ull
#define POOL_MAGIC  0x6c6f6f7061647563ull
#define BYTES_MAGIC 0x7274706c6f6f7063ull

typedef struct {
    uint64_t magic;
    sim_pool_source_t source;
    CUmemPoolProps props;
} pool_file_t;

typedef struct {
    uint64_t magic;
    sim_pool_source_t source;
    uint64_t offset, size; /* in the mirror's file */
} exported_t;
_Static_assert(sizeof(exported_t) <= sizeof(CUmemPoolPtrExportData), "fits into 64 bytes");

typedef struct {
    sim_pool_owner_t owner;
    sim_pool_t *pool;
    uint64_t range, taken, mapped; /* range start, its size, bytes mapped over the mirror */
    sim_alloc_t *record;
    bool leaving; /* freed in stream order */
} import_t;

static bool source_of(const sim_pool_t *pool, sim_pool_source_t *source) {
    static uint64_t cookie;
    if (!cookie && getrandom(&cookie, sizeof cookie, 0) != sizeof cookie)
        return false;
    *source = (sim_pool_source_t){
        .cookie = cookie, .pool = pool->object.id, .pid = getpid(), .mirror_fd = sim_mirror_fd};
    return true;
}

/* ---- pools ---- */

static CUresult check_type(CUmemAllocationHandleType type) {
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_SUCCESS;
    if (type != CU_MEM_HANDLE_TYPE_WIN32 && type != CU_MEM_HANDLE_TYPE_WIN32_KMT &&
        type != CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_INVALID_VALUE;
    sim_log("pools are shared by file descriptors only");
    return CUDA_ERROR_NOT_SUPPORTED;
}

SIM_API(cuMemPoolExportToShareableHandle)
(void *out, CUmemoryPool handle, CUmemAllocationHandleType type, unsigned long long flags) {
    const sim_pool_t *pool = sim_pool_get(handle);
    if (!out || !pool || flags || pool->imported || !(pool->props.handleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_type(type);
    if (result)
        return result;
    pool_file_t content = {.magic = POOL_MAGIC, .props = pool->props};
    if (sim_mirror_fd < 0) {
        sim_log("memory cannot be shared here (no memory file)");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    int file = memfd_create("simcuda-pool", MFD_CLOEXEC);
    if (file < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!source_of(pool, &content.source) ||
        pwrite(file, &content, sizeof content, 0) != sizeof content) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(int *)out = file;
    return CUDA_SUCCESS;
}

SIM_API(cuMemPoolImportFromShareableHandle)
(CUmemoryPool *out, void *os_handle, CUmemAllocationHandleType type, unsigned long long flags) {
    pool_file_t content;
    if (!out || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_type(type);
    if (result)
        return result;
    if (pread((int)(intptr_t)os_handle, &content, sizeof content, 0) != sizeof content ||
        content.magic != POOL_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_device_check(content.props.location.id);
    sim_pool_t *pool = NULL;
    if (!result)
        result = sim_pool_new(&content.props, &pool);
    if (result)
        return result;
    pool->imported = true;
    pool->source = content.source;
    *out = pool;
    return CUDA_SUCCESS;
}

/* ---- pointers ---- */

SIM_API(cuMemPoolExportPointer)(CUmemPoolPtrExportData *out, CUdeviceptr address) {
    const sim_alloc_t *record = sim_alloc_at(address);
    if (!out || !record || record->kind != SIM_MEM_POOL || !record->owner ||
        *(sim_pool_owner_t *)record->owner != SIM_OWNER_BLOCK || !record->handle_types)
        return CUDA_ERROR_INVALID_VALUE;
    exported_t data = {
        .magic = BYTES_MAGIC, .offset = record->base - sim_space_base(), .size = record->size};
    if (!source_of(record->pool, &data.source))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(out, 0, sizeof *out);
    memcpy(out, &data, sizeof data);
    return CUDA_SUCCESS;
}

/* Maps the exporter's bytes over a range of this process.  The first byte keeps its offset in its
 * page. */
static CUresult map_import(import_t *import, const exported_t *data) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", data->source.pid, data->source.mirror_fd);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t skip = data->offset % PAGE;
    import->mapped = (skip + data->size + PAGE - 1) & ~(PAGE - 1);
    import->taken = (import->mapped + SIM_LARGE_ALIGN - 1) & ~(SIM_LARGE_ALIGN - 1);
    import->range = sim_range_take(import->taken, SIM_LARGE_ALIGN, 0);
    import->record = import->range ? sim_alloc_new(SIM_MEM_POOL, import->range + skip, data->size,
                                                   import->pool->device, NULL)
                                   : NULL;
    bool mapped = import->record &&
                  mmap(sim_bytes(import->range), import->mapped, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, file, (off_t)(data->offset - skip)) != MAP_FAILED;
    close(file);
    if (mapped)
        return CUDA_SUCCESS;
    if (import->record)
        sim_alloc_delete(import->record);
    if (import->range)
        sim_range_give(import->range, import->taken);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuMemPoolImportPointer)
(CUdeviceptr *out, CUmemoryPool handle, CUmemPoolPtrExportData *in) {
    sim_pool_t *pool = sim_pool_get(handle);
    exported_t data;
    if (!out || !pool || !pool->imported || !in)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&data, in, sizeof data);
    if (data.magic != BYTES_MAGIC || memcmp(&data.source, &pool->source, sizeof data.source) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    import_t *import = calloc(1, sizeof *import);
    if (!import)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *import = (import_t){.owner = SIM_OWNER_IMPORT, .pool = pool};
    CUresult result = map_import(import, &data);
    if (result) {
        free(import);
        return result;
    }
    import->record->charged = 0; /* the exporter's */
    import->record->pool = pool;
    import->record->handle_types = pool->props.handleTypes;
    import->record->owner = import;
    pool->imports++;
    *out = import->record->base;
    return CUDA_SUCCESS;
}

/* ---- freeing ---- */

static void drop(import_t *import) {
    sim_pool_t *pool = import->pool;
    sim_mirror_restore(import->range, import->mapped);
    sim_alloc_delete(import->record);
    sim_range_give(import->range, import->taken);
    free(import);
    pool->imports--;
    if (pool->doomed)
        sim_pool_bury(pool);
}

CUresult sim_pool_import_free(sim_alloc_t *record) {
    import_t *import = record->owner;
    if (import->leaving)
        return CUDA_ERROR_INVALID_VALUE;
    drop(import);
    return CUDA_SUCCESS;
}

typedef struct {
    uint64_t base, id;
} payload_t;

static CUresult free_run(sim_work_t *work) {
    const payload_t *payload = SIM_PAYLOAD(work, payload_t);
    sim_alloc_t *record = sim_alloc_at(payload->base);
    if (record && record->id == payload->id)
        drop(record->owner);
    return CUDA_SUCCESS;
}

static const sim_work_ops_t free_ops = {
    .name = "free_async", .type = SIM_WORK_FREE, .flags = SIM_RUN_ALWAYS, .run = free_run};

CUresult sim_pool_import_free_async(sim_alloc_t *record, CUstream stream) {
    import_t *import = record->owner;
    sim_work_t *work =
        import->leaving ? NULL : sim_work_new(&free_ops, stream->ctx, sizeof(payload_t));
    if (!work)
        return import->leaving ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t base = record->base, id = record->id;
    *SIM_PAYLOAD(work, payload_t) = (payload_t){base, id};
    import->leaving = true;
    CUresult result = sim_enqueue(stream, work, NULL);
    record = result ? sim_alloc_at(base) : NULL;
    if (record && record->id == id)
        import->leaving = false;
    return result;
}
