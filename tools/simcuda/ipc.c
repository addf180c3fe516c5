/* Memory shared between processes of one user on one machine.  Global lock.
 *
 * Nothing is copied or moved.  Device memory already lives in a memory file (the mirror, see
 * sim.h), and another process reaches that file through /proc/<pid>/fd.  A handle names the
 * process, the file and the bytes.  Each exporter also keeps a second small file, the register,
 * with the ids of its exports.  It lets an importer recognise memory that was freed meanwhile.
 *
 * A handle denotes the whole allocation; the exported address may lie anywhere in it.
 *
 * Guesses (public documentation is silent):
 *   pool, virtual, managed memory, arrays      INVALID_VALUE
 *   a handle not made by this driver           INVALID_VALUE
 *   memory that was freed, a process that ended  INVALID_HANDLE
 *   a process we may not look into             MAP_FAILED
 *   a device that this process does not have   INVALID_DEVICE
 *   closing waits for the device, like cuMemFree
 *   closing from another context               works
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc_share.h"
#include "race.h"

#define MAGIC 0x3163706961647563ull
#define PAGE  4096ull

typedef struct import {
    struct import *next;
    sim_token_t token;
    sim_peer_t *peer;
    CUcontext ctx;
    uint64_t ctx_id;
    unsigned refs;
    uint64_t range, taken, mapped; /* range start, its size, bytes mapped over the mirror */
    sim_alloc_t *record;
} import_t;

static import_t *imports;
size_t sim_imports;

/* ---- exporting ---- */

static size_t slot_of(uint64_t id) {
    for (size_t i = 0; i < SIM_SHARE_SLOTS; i++)
        if (atomic_load(&sim_share->id[i]) == id)
            return i;
    return SIM_SHARE_SLOTS;
}

SIM_API(cuIpcGetMemHandle)(CUipcMemHandle *out, CUdeviceptr address) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    sim_alloc_t *record = sim_alloc_around(address);
    if (!out || !record || record->kind != SIM_MEM_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_mirror_fd < 0) {
        sim_log("cuIpcGetMemHandle: memory cannot be shared here (no memory file)");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (!sim_share_start())
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t slot = record->exported ? slot_of(record->id) : slot_of(0);
    if (slot == SIM_SHARE_SLOTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!record->exported && sim_race_on)
        sim_race_exported(record);
    atomic_store(&sim_share->id[slot], record->id);
    record->exported = true;
    sim_token_t token = {.id = record->id,
                         .offset = record->base - sim_space_base(),
                         .size = record->size,
                         .mirror_fd = sim_mirror_fd,
                         .slot = (uint16_t)slot,
                         .device = (uint8_t)record->device};
    sim_token_seal(&token, MAGIC);
    memset(out, 0, sizeof *out);
    memcpy(out, &token, sizeof token);
    return CUDA_SUCCESS;
}

void sim_ipc_freed(const sim_alloc_t *record) {
    size_t slot = sim_share ? slot_of(record->id) : SIM_SHARE_SLOTS;
    if (slot < SIM_SHARE_SLOTS)
        atomic_store(&sim_share->id[slot], 0);
}

SIM_LIVE_COUNT(exports) {
    uint64_t count = 0;
    for (size_t i = 0; sim_share && i < SIM_SHARE_SLOTS; i++)
        count += atomic_load(&sim_share->id[i]) != 0;
    return count;
}

/* ---- importing ---- */

/* Maps the pages of the allocation over a range of this process.  The first byte keeps its offset
 * in its page. */
static CUresult map_import(import_t *import) {
    const sim_token_t *token = &import->token;
    uint64_t skip = token->offset % PAGE;
    import->mapped = (skip + token->size + PAGE - 1) & ~(PAGE - 1);
    import->taken = (import->mapped + SIM_LARGE_ALIGN - 1) & ~(SIM_LARGE_ALIGN - 1);
    int fd;
    CUresult result = sim_token_open(token, token->mirror_fd, &fd);
    if (result)
        return result;
    import->range = sim_range_take(import->taken, SIM_LARGE_ALIGN, 0);
    if (!import->range) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    import->record =
        sim_alloc_new(SIM_MEM_IPC, import->range + skip, token->size, token->device, import->ctx);
    if (!import->record ||
        mmap(sim_bytes(import->range), import->mapped, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, fd, (off_t)(token->offset - skip)) == MAP_FAILED) {
        if (import->record)
            sim_alloc_delete(import->record);
        sim_range_give(import->range, import->taken);
        result = CUDA_ERROR_MAP_FAILED;
    }
    close(fd);
    return result;
}

static CUresult open_token(CUdeviceptr *out, const sim_token_t *token, CUcontext ctx) {
    for (import_t *import = imports; import; import = import->next)
        if (import->token.cookie == token->cookie && import->token.id == token->id &&
            import->ctx == ctx && import->ctx_id == ctx->object.id) {
            import->refs++;
            *out = import->record->base;
            return CUDA_SUCCESS;
        }
    import_t *import = calloc(1, sizeof *import);
    if (!import)
        return CUDA_ERROR_OUT_OF_MEMORY;
    import->token = *token;
    import->ctx = ctx;
    import->ctx_id = ctx->object.id;
    import->refs = 1;
    CUresult result = sim_peer_open(token, &import->peer);
    if (!result) {
        result = atomic_load(&import->peer->share->id[token->slot]) == token->id
                     ? map_import(import)
                     : CUDA_ERROR_INVALID_HANDLE;
        if (result)
            sim_peer_close(import->peer);
    }
    if (result) {
        free(import);
        return result;
    }
    import->record->owner = import;
    import->next = imports;
    imports = import;
    sim_imports++;
    if (sim_race_on)
        sim_race_imported(import->record);
    *out = import->record->base;
    return CUDA_SUCCESS;
}

SIM_API(cuIpcOpenMemHandle_v2)(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    sim_token_t token;
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ||
        !sim_token_read(&token, &handle, MAGIC) || token.slot >= SIM_SHARE_SLOTS || !token.size)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_share && token.cookie == sim_share->cookie)
        return CUDA_ERROR_INVALID_CONTEXT; /* documented: not in the exporting process */
    result = sim_device_check(token.device);
    return result ? result : open_token(out, &token, sim_ctx_home(ctx));
}

SIM_API(cuIpcOpenMemHandle)(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
    return sim_do_cuIpcOpenMemHandle_v2(out, handle, flags);
}

/* ---- closing ---- */

static void import_drop(import_t *import) {
    for (import_t **link = &imports; *link; link = &(*link)->next)
        if (*link == import) {
            *link = import->next;
            break;
        }
    /* Unmaps the exporter's bytes first, so that the freed range discards only bytes of this
     * process. */
    sim_mirror_restore(import->range, import->mapped);
    sim_alloc_delete(import->record);
    sim_range_give(import->range, import->taken);
    sim_peer_close(import->peer);
    free(import);
    sim_imports--;
}

sim_peer_t *sim_import_peer(const sim_alloc_t *record, uint64_t *offset) {
    const import_t *import = record->owner;
    *offset = import->token.offset;
    return import->peer;
}

static import_t *import_at(CUdeviceptr address) {
    sim_alloc_t *record = sim_alloc_at(address);
    return record && record->kind == SIM_MEM_IPC ? record->owner : NULL;
}

SIM_API(cuIpcCloseMemHandle)(CUdeviceptr address) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    import_t *import = import_at(address);
    if (!import)
        return CUDA_ERROR_INVALID_VALUE;
    if (import->refs > 1) {
        import->refs--;
        return CUDA_SUCCESS;
    }
    uint64_t id = import->record->id;
    sim_wait_device(import->record->device); /* drops the lock */
    import = import_at(address);
    if (!import || import->record->id != id)
        return CUDA_ERROR_INVALID_VALUE;
    if (--import->refs == 0)
        import_drop(import);
    return CUDA_SUCCESS;
}

void sim_ctx_gone_ipc(CUcontext ctx) {
    for (import_t *import = imports, *next; import; import = next) {
        next = import->next;
        if (import->ctx == ctx && import->ctx_id == ctx->object.id)
            import_drop(import);
    }
}

SIM_LIVE_COUNT(imports) {
    return sim_imports + sim_vmm_imports;
}
