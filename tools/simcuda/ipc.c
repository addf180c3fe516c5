/* Memory shared between processes of one user on one machine.  Global lock.
 *
 * Nothing is copied or moved: device memory already lives in a memory file (the mirror, see
 * sim.h), and another process reaches that file through /proc/<pid>/fd.  A handle says which
 * process, which file, which bytes.  So that memory freed meanwhile is recognised, each
 * exporter keeps a second small file, the register, with the ids of what it exports.
 *
 * A handle denotes the whole allocation, wherever in it the exported address was.
 *
 * Guesses (public documentation is silent):
 *   pool, virtual, managed memory, arrays      INVALID_VALUE
 *   a handle that is no handle of ours         INVALID_VALUE
 *   memory that was freed, a process that ended  INVALID_HANDLE
 *   a process we may not look into             MAP_FAILED
 *   a device that this process does not have   INVALID_DEVICE
 *   closing waits for the device, like cuMemFree
 *   closing from another context               works
 * Handles of events are not simulated (NOT_SUPPORTED, logged).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "sim.h"

enum { SLOTS = 8192 };
#define MAGIC 0x3163706961647563ull
#define PAGE  4096ull

/* First page of the register: what makes it ours; then one id per slot, 0 for none. */
typedef struct {
    uint64_t magic, cookie;
    uint64_t id[SLOTS];
} export_list_t;

typedef struct {
    uint64_t magic, cookie; /* cookie: of the exporting process, never guessable or reused */
    uint64_t id;            /* of the allocation */
    uint64_t offset, size;  /* in the mirror's file */
    int32_t pid, mirror_fd, register_fd;
    uint16_t slot;
    uint8_t device, check;
} token_t;
_Static_assert(sizeof(token_t) <= CU_IPC_HANDLE_SIZE, "a token fits into a handle");

static export_list_t *exports;
static int exports_fd = -1;

typedef struct import {
    struct import *next;
    token_t token;
    CUcontext ctx;
    uint64_t ctx_id;
    unsigned refs;
    uint64_t range, taken, mapped; /* range start, its size, bytes mapped over the mirror */
    sim_alloc_t *record;
} import_t;

static import_t *imports;

static uint8_t checksum(token_t token) {
    unsigned char bytes[sizeof token];
    token.check = 0;
    memcpy(bytes, &token, sizeof token);
    unsigned sum = 0x5a;
    for (size_t i = 0; i < sizeof bytes; i++)
        sum = sum * 31 + bytes[i];
    return (uint8_t)(sum ^ sum >> 8);
}

/* ---- exporting ---- */

static bool register_start(void) {
    if (exports)
        return true;
    int fd = memfd_create("simcuda-exports", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    void *map = MAP_FAILED;
    if (!ftruncate(fd, sizeof *exports))
        map = mmap(NULL, sizeof *exports, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t cookie;
    if (map == MAP_FAILED || getrandom(&cookie, sizeof cookie, 0) != sizeof cookie) {
        close(fd);
        return false;
    }
    exports = map;
    exports_fd = fd;
    exports->magic = MAGIC;
    exports->cookie = cookie;
    return true;
}

static size_t slot_of(uint64_t id) {
    for (size_t i = 0; i < SLOTS; i++)
        if (exports->id[i] == id)
            return i;
    return SLOTS;
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
    if (!register_start())
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t slot = record->exported ? slot_of(record->id) : slot_of(0);
    if (slot == SLOTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exports->id[slot] = record->id;
    record->exported = true;
    token_t token = {.magic = MAGIC,
                     .cookie = exports->cookie,
                     .id = record->id,
                     .offset = record->base - sim_space_base(),
                     .size = record->size,
                     .pid = getpid(),
                     .mirror_fd = sim_mirror_fd,
                     .register_fd = exports_fd,
                     .slot = (uint16_t)slot,
                     .device = (uint8_t)record->device};
    token.check = checksum(token);
    memset(out, 0, sizeof *out);
    memcpy(out, &token, sizeof token);
    return CUDA_SUCCESS;
}

void sim_ipc_freed(const sim_alloc_t *record) {
    size_t slot = exports ? slot_of(record->id) : SLOTS;
    if (slot < SLOTS)
        exports->id[slot] = 0;
}

/* ---- importing ---- */

static CUresult open_of(const token_t *token, int fd, int *out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", token->pid, fd);
    *out = open(path, O_RDWR | O_CLOEXEC);
    if (*out >= 0)
        return CUDA_SUCCESS;
    return errno == EACCES || errno == EPERM ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_INVALID_HANDLE;
}

/* Does the exporter still have it? */
static CUresult check_live(const token_t *token) {
    int fd;
    CUresult result = open_of(token, token->register_fd, &fd);
    if (result)
        return result;
    uint64_t head[2], id;
    off_t at = (off_t)(offsetof(export_list_t, id) + token->slot * sizeof id);
    bool live = pread(fd, head, sizeof head, 0) == sizeof head && head[0] == MAGIC &&
                head[1] == token->cookie && pread(fd, &id, sizeof id, at) == sizeof id &&
                id == token->id;
    close(fd);
    return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Maps the pages of the allocation over a range of our own; its first byte keeps its place
 * in its page. */
static CUresult map_import(import_t *import) {
    const token_t *token = &import->token;
    uint64_t skip = token->offset % PAGE;
    import->mapped = (skip + token->size + PAGE - 1) & ~(PAGE - 1);
    import->taken = (import->mapped + SIM_LARGE_ALIGN - 1) & ~(SIM_LARGE_ALIGN - 1);
    int fd;
    CUresult result = open_of(token, token->mirror_fd, &fd);
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

static CUresult open_token(CUdeviceptr *out, const token_t *token, CUcontext ctx) {
    for (import_t *import = imports; import; import = import->next)
        if (import->token.cookie == token->cookie && import->token.id == token->id &&
            import->ctx == ctx && import->ctx_id == ctx->object.id) {
            import->refs++;
            *out = import->record->base;
            return CUDA_SUCCESS;
        }
    CUresult result = check_live(token);
    if (result)
        return result;
    import_t *import = calloc(1, sizeof *import);
    if (!import)
        return CUDA_ERROR_OUT_OF_MEMORY;
    import->token = *token;
    import->ctx = ctx;
    import->ctx_id = ctx->object.id;
    import->refs = 1;
    result = map_import(import);
    if (result) {
        free(import);
        return result;
    }
    import->record->owner = import;
    import->next = imports;
    imports = import;
    *out = import->record->base;
    return CUDA_SUCCESS;
}

SIM_API(cuIpcOpenMemHandle_v2)(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
    CUcontext ctx;
    CUresult result = sim_ctx_current(&ctx);
    if (result)
        return result;
    token_t token;
    memcpy(&token, &handle, sizeof token);
    if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || token.magic != MAGIC ||
        token.check != checksum(token) || token.slot >= SLOTS || !token.size)
        return CUDA_ERROR_INVALID_VALUE;
    if (exports && token.cookie == exports->cookie)
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
    /* The exporter's bytes go out of the way first; restoring discards only our own. */
    sim_mirror_restore(import->range, import->mapped);
    sim_alloc_delete(import->record);
    sim_range_give(import->range, import->taken);
    free(import);
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
