/* cuIpcGetMemHandle: handles by which other processes open memory of this one.
 *
 * A block that fills its segment gives the driver's own handle, which any process can open.  Its
 * segment serves no other request from then on, and goes back to the driver when the block is
 * freed and its fence is over: the handle ends with it, as it would without the library.
 *
 * Any other block gives a token (share/ipc_token.h) that names an entry of the exporter's table.
 * The entry has the driver's handle of the segment, and the block's position in it.  Pages have no
 * handle; for a block on pages the entry says what an importer asks this process for (ipc_serve.h).
 * The segment, the pages and their other blocks stay in use.  The entry ends with the block's
 * lifetime (allocator/space/lifetime.h), at its free and before its memory can serve again; so a
 * token never opens another owner's memory. */
#include "hooks/body.h"
#include "hooks/ipc.h"

#include <errno.h>
#include <string.h>

#include "allocator/space/lifetime.h"
#include "device/driver.h"
#include "failpoint.h"
#include "observe/filter.h"
#include "observe/log.h"
#include "share/ipc_table.h"

_Static_assert(sizeof(CUipcMemHandle) == AC_IPC_TOKEN && sizeof(CUipcMemHandle) == AC_IPC_HANDLE,
               "a token stands in the place of a handle");

/* The number that an exported lifetime carries: its slot, and the granules of its block above
 * that. */
enum { SLOT_BITS = 20 };
_Static_assert(((uint64_t)AC_IPC_CHUNKS * AC_IPC_SLOTS) >> SLOT_BITS == 0, "the slots fit");

static uint32_t slot_of(uint64_t exported) {
    return (uint32_t)(exported & (((uint64_t)1 << SLOT_BITS) - 1));
}

/* The function behind ac_lifetime_notify. */
static void lifetime_exported(uint64_t exported, uint64_t serial) {
    uint64_t bytes = exported >> SLOT_BITS << AC_GRANULE_BITS;
    ac_ipc_table_publish(slot_of(exported), serial);
    ac_count_add(ac_thread_tls, AC_COUNT_ipc_exported_bytes, serial ? bytes : -bytes);
}

void ac_ipc_setup(void) {
    ac_lifetime_notify = lifetime_exported;
    atomic_store(&ac_cuda_pages_exported, ac_process_config()->ipc != AC_IPC_OFF);
}

static CUresult refuse(ac_thread_t *thread, CUipcMemHandle *handle, const char *why,
                       const char *remedy) {
    ac_count(thread, AC_COUNT_ipc_refused);
    ac_log_once(AC_LOG_WARNING, "an IPC handle was refused: %s; %s", why, remedy);
    return AC_REAL(cuIpcGetMemHandle)(handle, AC_UNOWNED);
}

static CUresult refuse_without_room(ac_thread_t *thread, CUipcMemHandle *handle, int error) {
    if (error == EPERM && (ac_filter_now() || ac_filter_thread_now()))
        return refuse(thread, handle,
                      "the program installed a seccomp filter after its first use of CUDA, which "
                      "may forbid what sharing takes",
                      "export memory before the filter is installed");
    ac_count(thread, AC_COUNT_ipc_refused);
    ac_log_once(
        AC_LOG_WARNING,
        "an IPC handle was refused: the table or the socket of exported memory has no place "
        "beside the live statistics in %s (%s); free space there, or name a writable "
        "folder with ACCEL_LIVE_DIR",
        ac_live_dir(), strerror(error));
    return AC_REAL(cuIpcGetMemHandle)(handle, AC_UNOWNED);
}

/* Waits until earlier uses of the memory are over, because another process follows no stream of
 * this one.  First the single-stream rule of the context ends.  Then, for memory that was handed
 * out in the order of a stream, it waits at most one second; the driver's own free would have
 * waited for these uses.  Returns false if they are not over. */
static bool complete(const ac_block_info_t *info) {
    enum { LIMIT_NS = 1000000000 };
    ac_timeline_t *timeline = ac_arena_timeline(info->arena);
    ac_sole_settle(timeline, true);
    return !info->async || ac_fence_await(timeline, ac_fence_moment(timeline), LIMIT_NS);
}

/* Returns true if the block is still in that lifetime and fills its segment. */
static bool still_fills(const ac_block_info_t *info, uint64_t serial) {
    ac_block_info_t now;
    return ac_block_find(info->address, &now) == AC_OK && now.serial == serial &&
           now.size == now.segment_size;
}

/* Exports a whole segment.  Another thread may free the block at any moment.  The segment is
 * therefore taken out of reuse first.  The driver's handle counts only if the block existed before
 * and after the call. */
static CUresult export_segment(ac_thread_t *thread, CUipcMemHandle *handle,
                               const ac_block_info_t *info) {
    CUipcMemHandle segment;
    uint64_t serial;
    bool fresh = false;
    ac_status_t status = ac_block_identify(info->address, &serial);
    if (status == AC_OK)
        status = ac_block_taint(info->address, &fresh);
    if (status == AC_OOM)
        return refuse_without_room(thread, handle, ENOMEM);
    if (status != AC_OK)
        return AC_REAL(cuIpcGetMemHandle)(handle, AC_UNOWNED);
    bool fills = still_fills(info, serial);
    CUdeviceptr named = fills ? info->segment_address : AC_UNOWNED;
    CUresult result = AC_REAL(cuIpcGetMemHandle)(&segment, named);
    AC_WINDOW(segment_named);
    if (result != CUDA_SUCCESS) {
        ac_block_untaint(info->address);
        return result;
    }
    if (!still_fills(info, serial))
        return AC_REAL(cuIpcGetMemHandle)(handle, AC_UNOWNED);
    if (fresh)
        ac_count(thread, AC_COUNT_exported_segments);
    *handle = segment;
    return CUDA_SUCCESS;
}

/* Fills an entry.  For pages, the serial of the block's lifetime takes the place of the driver's
 * handle. */
static void describe(const ac_block_info_t *info, const CUipcMemHandle *segment,
                     ac_ipc_entry_t *entry) {
    CUuuid uuid = {{0}};
    uint64_t begin = info->paged ? info->pages_begin : info->segment_address;
    *entry =
        (ac_ipc_entry_t){.offset = info->address - begin,
                         .size = info->requested,
                         .mapping = info->paged ? info->pages_end - begin : info->segment_size,
                         .address = info->address};
    if (ac_driver.cuDeviceGetUuid)
        ac_driver.cuDeviceGetUuid(&uuid, ac_block_device(info));
    memcpy(entry->uuid, uuid.bytes, sizeof entry->uuid);
    if (info->paged)
        memcpy(entry->handle, &info->serial, sizeof info->serial);
    else
        memcpy(entry->handle, segment->reserved, sizeof entry->handle);
}

/* Asks the driver for the segment's handle.  It reports errors of the context, even for a block
 * that was exported before.  For memory on pages it otherwise has no handle, and *segment is not
 * set. */
static CUresult ask_driver(const ac_block_info_t *info, CUipcMemHandle *segment) {
    CUresult result =
        AC_REAL(cuIpcGetMemHandle)(segment, info->paged ? AC_UNOWNED : info->segment_address);
    return info->paged && result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

/* Publishes an entry.  If another thread has exported the block meanwhile, that thread's slot
 * serves. */
static ac_status_t publish(ac_thread_t *thread, const ac_block_info_t *info,
                           const ac_ipc_entry_t *entry, uint32_t *slot, int *error) {
    *error = ac_ipc_table_reserve(slot);
    if (*error)
        return AC_OOM;
    ac_ipc_table_fill(*slot, entry);
    uint64_t granules = info->size >> AC_GRANULE_BITS;
    ac_status_t status =
        ac_block_export(info->address, info->serial, granules << SLOT_BITS | *slot);
    if (status == AC_OK)
        ac_count(thread, AC_COUNT_ipc_exported);
    else
        ac_ipc_table_publish(*slot, 0);
    return status;
}

static CUresult export_token(ac_thread_t *thread, CUipcMemHandle *handle, ac_block_info_t *info) {
    CUipcMemHandle segment;
    ac_ipc_entry_t entry;
    uint64_t serial;
    int error;
    CUresult result = ask_driver(info, &segment);
    if (result != CUDA_SUCCESS)
        return result;
    ac_status_t status = ac_block_identify(info->address, &serial);
    if (status == AC_OOM)
        return refuse_without_room(thread, handle, ENOMEM);
    if (status != AC_OK)
        return AC_REAL(cuIpcGetMemHandle)(handle, AC_UNOWNED); /* freed meanwhile */
    for (;;) {
        uint32_t slot;
        if (ac_block_find(info->address, info) != AC_OK || info->serial != serial)
            return AC_REAL(cuIpcGetMemHandle)(handle, AC_UNOWNED);
        if (info->exported) {
            ac_ipc_table_token(info->paged ? AC_IPC_PAGES : AC_IPC_NATIVE,
                               slot_of(info->exported), serial,
                               (unsigned char *)handle->reserved);
            return CUDA_SUCCESS;
        }
        describe(info, &segment, &entry);
        status = publish(thread, info, &entry, &slot, &error);
        if (status == AC_OOM)
            return refuse_without_room(thread, handle, error ? error : ENOMEM);
    }
}

/* Returns true if the memory may have an IPC handle.  Memory of a pool may not, unless async_ipc
 * makes it plain memory, or the caller allows it (`pooled`). */
static bool is_shareable(const ac_block_info_t *info, CUdeviceptr address, bool pooled) {
    return info->allocated && address - info->address < info->requested &&
           (pooled || !ac_block_is_pooled(info));
}

static CUresult share(ac_thread_t *thread, cuIpcGetMemHandle_fn *real, CUipcMemHandle *handle,
                      CUdeviceptr address, bool pooled) {
    ac_block_info_t info;
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK)
        return real(handle, address);
    if (!thread || !is_shareable(&info, address, pooled))
        return real(handle, AC_UNOWNED);
    if (!handle)
        return real(handle, info.segment_address);
    if (info.paged) /* even if it gets no handle */
        ac_allocator_is_shared(ac_arena_allocator(info.arena));
    bool whole = !info.paged && info.size == info.segment_size;
    if (!whole && ac_process_config()->ipc == AC_IPC_OFF)
        return refuse(thread, handle, "the memory does not fill its segment",
                      "without ACCEL_ALLOC_CONF=ipc:off it would be given");
    if (info.paged && !ac_cuda_pages_exportable(ac_block_device(&info)))
        return refuse(thread, handle, "pages of this device cannot be shared",
                      "set ACCEL_ALLOC_CONF=expandable_segments:false where memory is "
                      "shared so");
    if (!info.exported && !complete(&info))
        return refuse(thread, handle, "what the memory was used for before does not end",
                      "synchronise before the memory is shared");
    int error = info.paged ? ac_ask_export() : 0;
    if (error)
        return refuse_without_room(thread, handle, error);
    return whole ? export_segment(thread, handle, &info) : export_token(thread, handle, &info);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuIpcGetMemHandle);
    return share(thread, real, handle, address, false);
}

CUresult ac_ipc_share(CUipcMemHandle *handle, CUdeviceptr address) {
    cuIpcGetMemHandle_fn *real = AC_REAL(cuIpcGetMemHandle);
    return real ? share(ac_thread_get(), real, handle, address, true) : CUDA_ERROR_NOT_FOUND;
}
