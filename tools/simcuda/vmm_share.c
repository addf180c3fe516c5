/* Physical memory that other processes reach: handles as file descriptors, and the stand-in for
 * dma-buf handles.  Global lock.
 *
 * A shared handle is a descriptor of the memory file (vmm.h).  Its file position is a header page
 * that names the piece.  Each exported handle therefore costs one descriptor, and nothing moves at
 * export.  An exported piece is never reused, because another process may still map it.
 *
 * Guesses (public documentation is silent):
 *   physical memory imported from another process     not charged to this one's device
 *   dma-buf of pool memory                            INVALID_VALUE
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "race.h"
#include "vmm.h"

typedef struct {
    uint64_t magic, size, offset;
    CUmemAllocationProp prop;
    sim_token_t maker; /* race detector: its magic is 0 if that is off */
    uint64_t at;       /* address in its maker at the last export */
} header_t;
#define MAGIC 0x6d6d764164756353ull

/* ---- sharing ---- */

/* Tells the race detector of an importer where the memory is mapped here.  The race detector of
 * this process exports the lifetimes in it from now on. */
static void tell_maker(const sim_physical_t *physical, header_t *header) {
    if (!physical->maps || !sim_share_start())
        return;
    sim_token_seal(&header->maker, MAGIC);
    header->at = physical->maps->record->base - sim_space_base();
    for (const sim_mapping_t *mapping = physical->maps; mapping; mapping = mapping->next)
        sim_race_exported(mapping->record);
}

static CUresult header_page(uint64_t *at) {
    if (!sim_piece_take(GRAIN, at))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!*at) { /* offset 0 means "none"; leave it unused */
        if (!sim_piece_take(GRAIN, at))
            return CUDA_ERROR_OUT_OF_MEMORY;
        sim_piece_give(0, GRAIN);
    }
    return CUDA_SUCCESS;
}

static CUresult export_header(sim_physical_t *physical) {
    uint64_t at = physical->header;
    header_t header;
    memset(&header, 0, sizeof header);
    header.magic = MAGIC;
    header.size = physical->size;
    header.offset = physical->offset;
    header.prop = physical->prop;
    if (at && !sim_race_on)
        return CUDA_SUCCESS;
    CUresult result = at ? CUDA_SUCCESS : header_page(&at);
    if (result)
        return result;
    physical->header = at;
    if (sim_race_on)
        tell_maker(physical, &header);
    bool written = pwrite(sim_vmm_file, &header, sizeof header, (off_t)at) == sizeof header;
    return written ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuMemExportToShareableHandle)
(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
 unsigned long long flags) {
    sim_physical_t *physical = sim_physical_get(handle);
    if (out && !flags && sim_multicast_has(handle))
        return sim_multicast_export(out, handle, type);
    if (!out || !physical || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(physical->prop.requestedHandleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    if (physical->file >= 0) { /* imported: pass on the same file */
        int copy = fcntl(physical->file, F_DUPFD_CLOEXEC, 3);
        if (copy < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *(int *)out = copy;
        return CUDA_SUCCESS;
    }
    CUresult result = export_header(physical);
    if (result)
        return result;
    char path[64]; /* "self" has none if its main thread has ended */
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", sim_vmm_file);
    int fresh = open(path, O_RDWR | O_CLOEXEC); /* dup would share our position */
    if (fresh < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (lseek(fresh, (off_t)physical->header, SEEK_SET) < 0) {
        close(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(int *)out = fresh;
    return CUDA_SUCCESS;
}

static bool read_header(int from, header_t *header, bool *ours) {
    struct stat theirs, mine;
    off_t at = lseek(from, 0, SEEK_CUR);
    if (at < 0 || fstat(from, &theirs) || !S_ISREG(theirs.st_mode) ||
        pread(from, header, sizeof *header, at) != sizeof *header || header->magic != MAGIC ||
        header->offset + header->size > (uint64_t)theirs.st_size)
        return false;
    *ours = sim_vmm_file >= 0 && !fstat(sim_vmm_file, &mine) && mine.st_dev == theirs.st_dev &&
            mine.st_ino == theirs.st_ino;
    return true;
}

SIM_API(cuMemImportFromShareableHandle)
(CUmemGenericAllocationHandle *out, void *os_handle, CUmemAllocationHandleType type) {
    int from = (int)(intptr_t)os_handle;
    header_t header;
    bool ours;
    CUresult result;
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_multicast_import(out, from, &result))
        return result;
    if (!read_header(from, &header, &ours))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_physical_check(&header.prop);
    if (result)
        return result;
    sim_physical_t *physical;
    if (ours)
        for (size_t at = 0; (physical = sim_slab_next(&sim_physicals, &at));)
            if (physical->file < 0 && physical->offset == header.offset) {
                physical->refs++;
                *out = (uintptr_t)physical;
                return CUDA_SUCCESS;
            }
    result = sim_physical_new(&header.prop, header.size, ours, &physical);
    if (result)
        return result;
    physical->offset = header.offset;
    physical->header = (uint64_t)lseek(from, 0, SEEK_CUR);
    physical->file = ours ? -1 : fcntl(from, F_DUPFD_CLOEXEC, 3);
    if (!ours && physical->file < 0) {
        sim_slab_give(&sim_physicals, physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_vmm_imports += !ours;
    if (!ours && sim_race_on && header.maker.magic == MAGIC &&
        !sim_peer_open(&header.maker, &physical->peer))
        physical->peer_at = header.at;
    *out = (uintptr_t)physical;
    return CUDA_SUCCESS;
}

enum { LEAST = 512 }; /* allocations are aligned to */

/* Returns true for a range in one plain allocation, or in mappings of one device without gaps. */
static bool dma_buf_range(uint64_t address, uint64_t size) {
    const sim_alloc_t *first = NULL;
    if (address + size < address)
        return false;
    /* Finds an allocation that covers the range, except parts of the first and last host
     * page. */
    for (uint64_t at = address; at < address + PAGE; at += LEAST) {
        const sim_alloc_t *record = sim_alloc_around(at);
        if (record && record->kind == SIM_MEM_DEVICE &&
            record->base + record->size > address + size - PAGE)
            return address + size <= round_up(record->base + record->size, PAGE);
        if (record && !first)
            first = record;
    }
    if (!first)
        return false;
    for (uint64_t at = address; at < address + size;) {
        const sim_alloc_t *record = sim_alloc_around(at);
        if (!record || record->kind != SIM_MEM_VMM || record->device != first->device)
            return false;
        at = record->base + record->size;
    }
    return true;
}

/* Makes a memory file of the right size, not the memory itself: no simulated device could import
 * it. */
SIM_API(cuMemGetHandleForAddressRange)
(void *out, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
 unsigned long long flags) {
    if (!out || !size || address % PAGE || size % PAGE ||
        type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags > 1 || !dma_buf_range(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    int fd = memfd_create("simcuda-dmabuf", MFD_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!sim_grow_file(fd, size)) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}
