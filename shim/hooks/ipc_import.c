/* cuIpcOpenMemHandle and cuIpcCloseMemHandle: memory of other processes.
 *
 * A handle that is no token of this library is the driver's.  For a token the library reads the
 * exporter's table (share/ipc_lookup.h).  It opens the segment that the token names, once for each
 * context, or maps the pages that the exporter gives (ipc_pages.h).  The program gets the block's own
 * address there (ipc_views.h).  The exporter may free the block at any moment.  The library therefore
 * reads the entry again after it has opened the memory, so that no token opens the memory of a later
 * owner.  A free by the exporter after that has undefined effects, as without the library. */
#include "hooks/body.h"
#include "hooks/ipc.h"
#include "track/ipc_pages.h"
#include "track/peers.h"

#include <errno.h>
#include <string.h>

#include "device/driver.h"
#include "observe/filter.h"
#include "observe/log.h"
#include "share/ipc_lookup.h"

typedef cuIpcOpenMemHandle_v2_fn open_fn;

/* A token, its entry, and the entry's source.  Pages of this process itself are never opened. */
typedef struct {
    ac_ipc_token_t token;
    ac_ipc_entry_t entry;
    ac_ipc_source_t source; /* unless it is `own` */
    bool own;
    int error; /* why the exporter's pages could not be mapped (ac_ipc_pages_open) */
} import_t;

/* ---- peers ---- */

/* Returns true if the device with this id is the context's own. */
static bool is_device_of(const ac_context_t *context, const unsigned char uuid[AC_IPC_UUID]) {
    static const unsigned char unknown[AC_IPC_UUID];
    CUuuid own;
    return context && memcmp(uuid, unknown, AC_IPC_UUID) != 0 && ac_driver.cuDeviceGetUuid &&
           ac_driver.cuDeviceGetUuid(&own, context->cuda.device) == CUDA_SUCCESS &&
           memcmp(uuid, own.bytes, AC_IPC_UUID) == 0;
}

static bool has_peers(void) {
    int devices = 2;
    return ac_driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices > 1;
}

/* Search for the allocator of a device.  Opening memory of another device enables peer access to it,
 * as cuCtxEnablePeerAccess does.  Present and future pages of that device have to allow the
 * access. */
typedef struct {
    CUdevice owner;
    ac_allocator_t *allocator; /* of the owner; NULL: none yet */
} peering_t;

static void find(CUdevice device, ac_allocator_t *allocator, void *arg) {
    peering_t *peering = arg;
    if (device == peering->owner)
        peering->allocator = allocator;
}

static void allow_peer(const ac_context_t *context, CUdeviceptr mapped) {
    peering_t peering = {.owner = -1};
    cuPointerGetAttribute_fn *ask = AC_REAL(cuPointerGetAttribute);
    if (!context || !ask ||
        ask(&peering.owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, mapped) != CUDA_SUCCESS ||
        peering.owner == context->cuda.device)
        return;
    ac_device_each(find, &peering);
    ac_peers_hold(peering.owner, context->cuda.device, peering.allocator);
}

/* ---- opening ---- */

static bool on_pages(const import_t *import) {
    return import->token.kind == AC_IPC_PAGES;
}

static void close_rest(ac_ipc_mapping_t *mapping, unsigned closes) {
    for (unsigned i = 0; i < closes; i++)
        AC_REAL(cuIpcCloseMemHandle)(ac_ipc_base(mapping));
    ac_ipc_closed(mapping, false);
}

static void leave(ac_ipc_mapping_t *mapping, const import_t *import) {
    unsigned closes = ac_ipc_leave(mapping);
    if (closes && on_pages(import))
        ac_ipc_closed(mapping,
                      ac_ipc_pages_close(mapping, import->entry.mapping) != CUDA_SUCCESS);
    else if (closes)
        close_rest(mapping, closes);
}

static bool lives(const import_t *import) {
    ac_ipc_entry_t entry;
    if (import->own)
        return ac_ipc_table_find(&import->token, &entry) && entry.serial == import->token.serial;
    return ac_ipc_lookup_again(&import->source, &import->token);
}

/* Lets the driver report errors of the arguments and of the context, if there may be any. */
static CUresult ask_driver(const ac_context_t *context, open_fn *real, CUdeviceptr *pointer,
                           CUipcMemHandle segment, unsigned flags) {
    CUdeviceptr base;
    bool plain = pointer && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && context &&
                 !ac_fence_broken(context->timeline);
    if (plain)
        return CUDA_SUCCESS;
    CUresult result = real(pointer ? &base : NULL, segment, flags);
    if (result == CUDA_SUCCESS && pointer)
        AC_REAL(cuIpcCloseMemHandle)(base);
    return result;
}

static CUresult refuse_without_context(ac_thread_t *thread) {
    ac_count(thread, AC_COUNT_ipc_unresolved);
    ac_log_once(
        AC_LOG_WARNING,
        "an IPC handle was not opened: accelcache does not follow the current context, one "
        "of too many; open it in another one, or run both processes with "
        "ACCEL_ALLOC_CONF=enabled:false");
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Opens the segment, or maps the pages, of a new mapping. */
static CUresult open_mapping(ac_thread_t *thread, open_fn *real, ac_context_t *context,
                             import_t *import, ac_ipc_mapping_t *mapping, CUdeviceptr *base) {
    CUipcMemHandle segment;
    CUresult result;
    memcpy(segment.reserved, import->entry.handle, sizeof segment.reserved);
    if (on_pages(import))
        AC_RETRY(result, AC_NEED_UNKNOWN,
                 ac_ipc_pages_open(context, &import->token, &import->source, &import->entry,
                                   &import->error, mapping, base));
    else
        AC_RETRY(result, AC_NEED_UNKNOWN,
                 real(base, segment, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return result;
}

static CUresult open_entry(ac_thread_t *thread, open_fn *real, CUdeviceptr *pointer,
                           ac_context_t *context, import_t *import) {
    const ac_ipc_entry_t *entry = &import->entry;
    CUdeviceptr base = 0;
    bool fresh;
    if (!context) /* the context's end would go unnoticed; its addresses may get other memory */
        return refuse_without_context(thread);
    bool peer = !is_device_of(context, entry->uuid);
    if (peer)
        ac_fence_share(); /* before the first access can be submitted */
    ac_ipc_mapping_t *mapping =
        ac_ipc_enter(context, import->token.nonce, entry->handle, entry->mapping, &fresh);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (fresh) {
        CUresult result = open_mapping(thread, real, context, import, mapping, &base);
        ac_ipc_opened(mapping, result == CUDA_SUCCESS ? base : 0);
        if (result != CUDA_SUCCESS)
            return result;
        if (peer)
            allow_peer(context, base);
    }
    base = ac_ipc_base(mapping);
    AC_WINDOW(segment_opened);
    bool lasting = lives(import);
    if (!lasting || !ac_ipc_view_add(mapping, entry->offset, entry->size)) {
        leave(mapping, import);
        return lasting ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE;
    }
    if (on_pages(import))
        ac_ipc_pages_bury(); /* in case its context was destroyed meanwhile */
    *pointer = base + entry->offset;
    ac_count(thread, AC_COUNT_ipc_imported);
    return CUDA_SUCCESS;
}

/* Returns the driver's error for 64 bytes that are no handle of its own.  `gone`: the driver would
 * have known the memory and found it freed; the error is then INVALID_HANDLE. */
static CUresult answer_without(open_fn *real, CUdeviceptr *pointer, CUipcMemHandle handle,
                               unsigned flags, bool gone) {
    CUdeviceptr opened;
    CUresult result = real(pointer ? &opened : NULL, handle, flags);
    if (result == CUDA_SUCCESS && pointer) { /* cannot happen: no handle begins like a token */
        AC_REAL(cuIpcCloseMemHandle)(opened);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    bool plain = pointer && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    return gone && plain && result == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_INVALID_HANDLE
                                                               : result;
}

static CUresult open_native_token(ac_thread_t *thread, open_fn *real, CUdeviceptr *pointer,
                                  import_t *import, unsigned flags) {
    ac_context_t *context = ac_context_current(thread);
    CUipcMemHandle segment;
    memcpy(segment.reserved, import->entry.handle, sizeof segment.reserved);
    CUresult result = ask_driver(context, real, pointer, segment, flags);
    return result == CUDA_SUCCESS && pointer ? open_entry(thread, real, pointer, context, import)
                                             : result;
}

static const char *reason(int error) {
    switch (error) {
    case EPERM:
        return "this program installed a seccomp filter after its first use of CUDA, which may "
               "forbid what opening takes; open memory before that";
    case EMFILE:
        return "this program has no file descriptor left; raise its limit (ulimit -n)";
    case ETOOMANYREFS:
        return "too many file descriptors of this user are on their way between processes; raise "
               "the limit (ulimit -n) of the process that shares";
    case ETIMEDOUT:
        return "it did not give its pages in time; it has to run, and may not be stopped or "
               "behind a seccomp filter that it installed after the export";
    case ECONNREFUSED:
        return "nothing listens at its socket; it has to run, and share the memory again";
    case ECONNRESET:
        return "it ended the connection; both processes need the same version of accelcache";
    case EIO:
        return "its driver gave no descriptor for the memory; raise its limit of descriptors "
               "(ulimit -n), or set ACCEL_ALLOC_CONF=expandable_segments:false there";
    default:
        return "what it sent is no memory; both processes need the same version of accelcache";
    }
}

/* Opens a token of pages, which the driver does not know.  The driver first reports errors of the
 * call itself; if it finds none, it reports an invalid handle, and the pages are opened. */
static CUresult open_pages_token(ac_thread_t *thread, open_fn *real, CUdeviceptr *pointer,
                                 CUipcMemHandle handle, import_t *import, unsigned flags) {
    ac_context_t *context = ac_context_current(thread);
    CUresult result = answer_without(real, pointer, handle, flags, true);
    if (result != CUDA_ERROR_INVALID_HANDLE || !pointer) /* a driver may check the pointer last */
        return result;
    if (import->own)
        return CUDA_ERROR_INVALID_CONTEXT; /* the driver's error for a handle of the own process */
    import->error = EPERM;
    if (!ac_filter_now())
        result = open_entry(thread, real, pointer, context, import);
    if (result == CUDA_ERROR_INVALID_HANDLE && lives(import)) {
        ac_count(thread, AC_COUNT_ipc_unresolved);
        ac_log_once(AC_LOG_WARNING, "an IPC handle of process %d was not opened: %s",
                    (int)import->token.pid, reason(import->error));
    }
    return result;
}

static CUresult open_token(ac_thread_t *thread, open_fn *real, CUdeviceptr *pointer,
                           CUipcMemHandle handle, unsigned flags, import_t *import) {
    const ac_ipc_token_t *token = &import->token;
    ac_ipc_answer_t answer;
    import->own = ac_ipc_table_find(token, &import->entry);
    if (import->own)
        answer = import->entry.serial == token->serial ? AC_IPC_FOUND : AC_IPC_FREED;
    else
        answer = ac_ipc_lookup(token, &import->source, &import->entry);
    if (answer == AC_IPC_FOUND) {
        CUresult result = on_pages(import)
                              ? open_pages_token(thread, real, pointer, handle, import, flags)
                              : open_native_token(thread, real, pointer, import, flags);
        if (!import->own)
            ac_ipc_lookup_end(&import->source, token, result != CUDA_SUCCESS);
        return result;
    }
    if (answer == AC_IPC_HIDDEN || answer == AC_IPC_BAD) {
        ac_count(thread, AC_COUNT_ipc_unresolved);
        ac_log_once(AC_LOG_WARNING, "an IPC handle of process %d was not opened: %s",
                    (int)token->pid,
                    answer == AC_IPC_BAD
                        ? "its table of exported memory cannot be read; both processes need the "
                          "same version of accelcache"
                        : "that process cannot be seen from here; it has to run, under the same "
                          "user and in the same pid namespace, as CUDA itself demands, and with "
                          "the same ACCEL_LIVE_DIR");
    }
    bool gone = answer == AC_IPC_FREED || answer == AC_IPC_ENDED;
    return answer_without(real, pointer, handle, flags, gone);
}

/* Opens a handle of the driver.  The device of its memory is known only after that. */
static CUresult open_native(ac_thread_t *thread, open_fn *real, CUdeviceptr *pointer,
                            CUipcMemHandle handle, unsigned flags) {
    CUresult result;
    bool peers = thread && has_peers();
    if (peers)
        ac_fence_share();
    AC_RETRY(result, AC_NEED_UNKNOWN, real(pointer, handle, flags));
    if (result != CUDA_SUCCESS || !thread)
        return result;
    const ac_context_t *context = ac_context_current(thread);
    if (context)
        ac_ipc_native_opened(context, *pointer);
    if (peers)
        allow_peer(context, *pointer);
    return result;
}

static CUresult open_handle(ac_thread_t *thread, open_fn *real, CUdeviceptr *pointer,
                            CUipcMemHandle handle, unsigned flags) {
    import_t import;
    ac_ipc_origin_t origin =
        ac_ipc_token_read((const unsigned char *)handle.reserved, &import.token);
    if (origin == AC_IPC_FOREIGN || !thread)
        return open_native(thread, real, pointer, handle, flags);
    if (origin == AC_IPC_OURS)
        return open_token(thread, real, pointer, handle, flags, &import);
    ac_count(thread, AC_COUNT_ipc_unresolved);
    ac_log_once(AC_LOG_WARNING,
                "an IPC handle was not opened: a newer version of accelcache made "
                "it; both processes need the same");
    return answer_without(real, pointer, handle, flags, false);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags) {
    AC_ENTER_OR_RETURN(cuIpcOpenMemHandle_v2);
    return open_handle(thread, real, pointer, handle, flags);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags) {
    AC_ENTER_OR_RETURN(cuIpcOpenMemHandle);
    return open_handle(thread, real, pointer, handle, flags);
}

/* ---- closing ---- */

static bool has_context(ac_thread_t *thread, ac_context_t **context) {
    CUcontext current = NULL;
    *context = thread ? ac_context_current(thread) : NULL;
    return *context || (ac_driver_current(&current) == CUDA_SUCCESS && current);
}

/* Waits for the work of the context.  The driver's last close of an allocation waits for it, and then
 * the program may tell the exporter that it does not use the memory any more.  The last close of a
 * block has to wait, too, although its segment stays open. */
static void wait_as_closing(const ac_context_t *context) {
    if (context && !ac_timeline_idle(context->timeline))
        ac_cuda_ops.synchronize((void *)(uintptr_t)&context->cuda, 0);
}

/* Closes the mapping.  For pages, the driver first reports errors of the context. */
static CUresult close_mapping(cuIpcCloseMemHandle_fn *real, ac_ipc_mapping_t *mapping,
                              const ac_ipc_view_t *view) {
    if (!view->on_pages)
        return real(view->base);
    CUresult result = real(AC_UNOWNED);
    return result == CUDA_ERROR_INVALID_VALUE ? ac_ipc_pages_close(mapping, view->bytes) : result;
}

/* Closes an address that is no view.  The driver must not close a mapping that views use. */
static CUresult close_native(const ac_context_t *context, cuIpcCloseMemHandle_fn *real,
                             CUdeviceptr address) {
    ac_ipc_view_t view;
    bool native = ac_ipc_native_close(context, address);
    if (!native && ac_ipc_find(address, &view) != AC_IPC_ELSEWHERE)
        return real(AC_UNOWNED);
    CUresult result = real(address);
    if (native && result != CUDA_SUCCESS)
        ac_ipc_native_opened(context, address);
    return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    AC_ENTER_OR_RETURN(cuIpcCloseMemHandle);
    ac_context_t *context;
    ac_ipc_view_t view;
    if ((!atomic_load(&ac_ipc_mappings) && !atomic_load(&ac_ipc_natives)) || ac_is_guest(thread))
        return real(address);
    if (!has_context(thread, &context))
        return real(AC_UNOWNED);
    ac_ipc_mapping_t *mapping = ac_ipc_view_close(context, address, &view);
    if (!mapping)
        return close_native(context, real, address);
    const ac_context_t *owner = ac_ipc_context(mapping);
    unsigned closes = ac_ipc_leave(mapping);
    CUresult result = closes ? close_mapping(real, mapping, &view) : CUDA_SUCCESS;
    if (!closes && view.closed)
        wait_as_closing(owner);
    if (result != CUDA_SUCCESS) {
        ac_ipc_closed(mapping, true);
        ac_ipc_view_add(mapping, view.address - view.base, view.size);
    } else if (closes && view.on_pages) {
        ac_ipc_closed(mapping, false);
    } else if (closes) {
        close_rest(mapping, closes - 1);
    }
    if (view.on_pages) /* in case its context was destroyed meanwhile */
        ac_ipc_pages_bury();
    return result;
}

/* ---- queries about imported memory ---- */

CUresult ac_ipc_address_range(cuMemGetAddressRange_v2_fn *real, CUdeviceptr *base, size_t *size,
                              CUdeviceptr address) {
    ac_ipc_view_t view;
    CUdeviceptr start = 0;
    size_t bytes = 0;
    if (!atomic_load(&ac_ipc_mappings))
        return real(base, size, address);
    ac_ipc_place_t place = ac_ipc_find(address, &view);
    if (place == AC_IPC_ELSEWHERE)
        return real(base, size, address);
    CUresult result = real(&start, &bytes, address);
    if (result != CUDA_SUCCESS)
        return result;
    if (place == AC_IPC_BETWEEN)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = view.address;
    if (size)
        *size = view.size;
    return CUDA_SUCCESS;
}

/* Corrects the driver's answer.  Pages have no context but types of handles; memory that the driver
 * opened has a context and no types of handles. */
static void patch(CUpointer_attribute attribute, const ac_ipc_view_t *view, void *data) {
    const ac_context_t *context = view->context;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        *(CUdeviceptr *)data = view->address;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)data = view->size;
    else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        *(unsigned long long *)data = view->id;
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT && view->on_pages)
        *(CUcontext *)data = context->cuda.handle;
    else if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES && view->on_pages)
        *(uint64_t *)data = 0;
}

CUresult ac_ipc_attribute(cuPointerGetAttribute_fn *real, void *data,
                          CUpointer_attribute attribute, CUdeviceptr address) {
    ac_ipc_view_t view;
    if (!atomic_load(&ac_ipc_mappings))
        return real(data, attribute, address);
    ac_ipc_place_t place = ac_ipc_find(address, &view);
    CUresult result = real(data, attribute, place == AC_IPC_BETWEEN ? AC_UNOWNED : address);
    if (result == CUDA_SUCCESS && place == AC_IPC_VIEW)
        patch(attribute, &view, data);
    return result;
}

CUresult ac_ipc_attributes(cuPointerGetAttributes_fn *real, unsigned count,
                           CUpointer_attribute *attributes, void **data, CUdeviceptr address) {
    ac_ipc_view_t view;
    if (!atomic_load(&ac_ipc_mappings))
        return real(count, attributes, data, address);
    ac_ipc_place_t place = ac_ipc_find(address, &view);
    CUresult result =
        real(count, attributes, data, place == AC_IPC_BETWEEN ? AC_UNOWNED : address);
    for (unsigned i = 0; result == CUDA_SUCCESS && place == AC_IPC_VIEW && i < count; i++)
        patch(attributes[i], &view, data[i]);
    return result;
}
