/* See ipc_pages.h. */
#include "track/ipc_pages.h"

#include <errno.h>
#include <string.h>

#include "device/driver.h"
#include "observe/live_file.h"
#include "observe/raw.h"
#include "share/ipc_fds.h"
#include "share/ipc_socket.h"

/* How long an import waits for more pages.  An exporter that runs may have been off the processor
 * for a while, so it gets longer than a stopped one.  LIMIT_WITHOUT_NS: without any descriptor. */
#define LIMIT_NS         ((int64_t)5000000000)
#define LIMIT_STOPPED_NS ((int64_t)1000000000)
#define LIMIT_WITHOUT_NS ((int64_t)100000000)
/* Limit of a whole import, and the bytes that extend it by a second. */
#define LIMIT_WHOLE_NS     ((int64_t)30000000000)
#define LIMIT_WHOLE_SECOND ((uint64_t)256 << 20)
/* How long a close waits for work of contexts that did not open what it closes. */
#define OTHERS_NS ((uint64_t)30000000000)

static CUresult result_of(ac_status_t status) {
    return status == AC_OK    ? CUDA_SUCCESS
           : status == AC_OOM ? CUDA_ERROR_OUT_OF_MEMORY
                              : CUDA_ERROR_MAP_FAILED;
}

/* Returns the device with this id; -1: there is none in this process. */
static CUdevice device_of(const unsigned char uuid[AC_IPC_UUID]) {
    static const unsigned char unknown[AC_IPC_UUID];
    int count = 0;
    CUuuid own;
    if (!ac_driver.cuDeviceGetUuid || memcmp(uuid, unknown, AC_IPC_UUID) == 0 ||
        ac_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -1;
    for (CUdevice device = 0; device < count; device++)
        if (ac_driver.cuDeviceGetUuid(&own, device) == CUDA_SUCCESS &&
            memcmp(uuid, own.bytes, AC_IPC_UUID) == 0)
            return device;
    return -1;
}

/* Connection to the exporter, and the part of the block that is mapped so far. */
typedef struct {
    int fd, error;
    ac_ipc_ask_t ask;
    const ac_ipc_token_t *token;
    const ac_ipc_entry_t *entry;
    uint64_t base, mapped;      /* bytes mapped at the base */
    int64_t since, until, last; /* time of the last page; limits for the next one, and for all */
} import_t;

static void set_limit(import_t *import) {
    const ac_ipc_token_t *token = import->token;
    bool stopped = (uint32_t)ac_live_space() == token->space && ac_process_stopped(token->pid);
    import->since = ac_raw_ns(CLOCK_MONOTONIC);
    import->until = import->since + (stopped ? LIMIT_STOPPED_NS : LIMIT_NS);
    if (import->until > import->last)
        import->until = import->last;
}

/* Chooses how many pages to ask for next.  After `all` came: twice as many.  If this process has few
 * descriptors: as many as came (`count`).  If none came: half as many. */
static void choose_most(import_t *import, uint64_t count, bool all) {
    uint64_t room = ac_fds_room(import->fd);
    uint64_t most = all ? 2 * import->ask.most : count ? count : import->ask.most / 2;
    most = most < room ? most : room;
    import->ask.most = most > AC_IPC_BATCH ? AC_IPC_BATCH : most ? most : 1;
}

/* Maps a few more pages. */
static CUresult add_pages(ac_context_t *context, import_t *import) {
    ac_ipc_pages_t pages;
    int page[AC_IPC_BATCH];
    import->ask.from = import->mapped;
    import->error = ac_ipc_request(import->fd, &import->ask, &pages, page, import->until);
    choose_most(import, import->error ? 0 : pages.count, !import->error && !pages.error);
    if (import->error)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = CUDA_SUCCESS;
    import->error = EBADMSG;
    for (unsigned i = 0; i < pages.count; i++) {
        uint64_t bytes = pages.bytes[i];
        if (result == CUDA_SUCCESS && (!bytes || bytes % AC_SEGMENT_ALIGN ||
                                       bytes > import->entry->mapping - import->mapped))
            result = CUDA_ERROR_INVALID_HANDLE;
        if (result == CUDA_SUCCESS)
            result = ac_cuda_page_import(&context->cuda, page[i], import->base + import->mapped,
                                         bytes);
        if (result == CUDA_ERROR_INVALID_VALUE) /* the descriptor stands for no memory, or for less */
            result = CUDA_ERROR_INVALID_HANDLE;
        if (result == CUDA_SUCCESS)
            import->mapped += bytes;
        ac_fds_close(page[i]);
    }
    return result;
}

/* Returns true if the import asks again after an error.  It connects again once between two pages: the
 * exporter may have lost its socket, or closed a silent connection. */
static bool goes_on(import_t *import, bool *lost) {
    int64_t now = ac_raw_ns(CLOCK_MONOTONIC);
    if (import->error == EMFILE)
        return now < import->since + LIMIT_WITHOUT_NS;
    if (import->error == ETOOMANYREFS)
        return now < import->until;
    bool again = import->error == ECONNRESET && !*lost;
    *lost = true;
    ac_fds_close(import->fd);
    import->fd = -1;
    return again;
}

static CUresult add_all(ac_context_t *context, import_t *import, const ac_ipc_source_t *source) {
    const ac_ipc_token_t *token = import->token;
    int pid = (uint32_t)ac_live_space() == token->space ? token->pid : 0;
    CUresult result = CUDA_SUCCESS;
    bool lost = false;
    set_limit(import);
    while (import->mapped < import->entry->mapping) {
        uint64_t before = import->mapped;
        if (import->fd < 0) {
            import->fd = ac_ipc_connect(source->name, pid, import->until);
            if (import->fd < 0) {
                import->error = -import->fd;
                return CUDA_ERROR_INVALID_HANDLE;
            }
            choose_most(import, 0, true);
        }
        result = add_pages(context, import);
        if (import->mapped > before) {
            set_limit(import);
            lost = false;
        }
        if (result != CUDA_SUCCESS && !goes_on(import, &lost))
            break;
    }
    if (import->fd >= 0)
        ac_fds_close(import->fd);
    return result;
}

static ac_cuda_context_t *cuda_of(const void *context) {
    return (ac_cuda_context_t *)(uintptr_t) & ((const ac_context_t *)context)->cuda;
}

/* Unmaps the pages and releases the range; its first `mapped` bytes have pages.  The context may
 * have ended. */
static ac_status_t take_down(const void *context, CUdeviceptr base, uint64_t bytes,
                             uint64_t mapped) {
    ac_status_t status = mapped ? ac_cuda_import_end(cuda_of(context), base, mapped) : AC_OK;
    if (status == AC_OK)
        ac_cuda_ops.range_release(cuda_of(context), base, bytes);
    return status;
}

CUresult ac_ipc_pages_open(ac_context_t *context, const ac_ipc_token_t *token,
                           const ac_ipc_source_t *source, const ac_ipc_entry_t *entry, int *error,
                           ac_ipc_mapping_t *mapping, CUdeviceptr *base) {
    import_t import = {.fd = -1,
                       .ask = {.nonce = token->nonce,
                               .serial = token->serial,
                               .address = entry->address,
                               .most = AC_IPC_BATCH},
                       .token = token,
                       .entry = entry,
                       .last = ac_raw_ns(CLOCK_MONOTONIC) + LIMIT_WHOLE_NS +
                               (int64_t)(entry->mapping / LIMIT_WHOLE_SECOND * 1000000000)};
    CUdevice owner = device_of(entry->uuid);
    if (!entry->mapping || entry->mapping % AC_SEGMENT_ALIGN)
        return CUDA_ERROR_INVALID_HANDLE;
    ac_status_t status = ac_cuda_ops.range_reserve(&context->cuda, entry->mapping, &import.base);
    if (status != AC_OK)
        return result_of(status);
    CUresult result = add_all(context, &import, source);
    if (result == CUDA_SUCCESS)
        result = ac_cuda_import_allow(&context->cuda, owner, import.base, entry->mapping);
    if (result != CUDA_SUCCESS) {
        *error = import.error;
        take_down(context, import.base, entry->mapping, import.mapped);
        return result;
    }
    ac_ipc_on_pages(mapping, owner);
    *base = import.base;
    return result;
}

/* Other contexts that may have work on memory that is closed.  This process does not free that
 * memory, and no driver call waits for the work: its addresses must not go from under it. */
typedef struct {
    const ac_ipc_left_t *pages; /* owner -1: not known */
    uint64_t end;               /* end of the wait, ns */
    ac_status_t status;
} users_t;

static bool may_use(const ac_ipc_left_t *pages, CUdevice device) {
    return pages->owner < 0 || device == pages->owner ||
           device == cuda_of(pages->context)->device ||
           ac_cuda_peers_of(pages->owner) >> device & 1;
}

static void wait_for(ac_context_t *context, void *arg) {
    users_t *users = arg;
    uint64_t now = ac_cuda_ops.now_ns();
    if (context == users->pages->context || now >= users->end ||
        !may_use(users->pages, context->cuda.device) || ac_timeline_idle(context->timeline))
        return;
    if (ac_cuda_ops.synchronize(&context->cuda, users->end - now) == AC_BUSY &&
        ac_cuda_is_capturing(NULL))
        users->status = AC_BUSY;
}

/* Waits until no work uses the pages any more.  AC_BUSY: a stream captures, so that it cannot wait. */
static ac_status_t await_users(const ac_ipc_left_t *pages) {
    const ac_context_t *context = pages->context;
    users_t users = {.pages = pages, .end = ac_cuda_ops.now_ns() + OTHERS_NS};
    if (ac_cuda_is_capturing(NULL))
        return AC_BUSY;
    if (!ac_timeline_idle(context->timeline))
        users.status = ac_cuda_ops.synchronize(cuda_of(context), 0);
    if (users.status == AC_OK)
        ac_context_each(wait_for, &users);
    return users.status;
}

CUresult ac_ipc_pages_close(ac_ipc_mapping_t *mapping, uint64_t bytes) {
    const ac_ipc_left_t pages = {.context = ac_ipc_context(mapping),
                                 .base = ac_ipc_base(mapping),
                                 .bytes = bytes,
                                 .owner = ac_ipc_owner(mapping)};
    ac_status_t status = await_users(&pages);
    if (status == AC_BUSY) {
        ac_ipc_postponed(mapping);
        return CUDA_SUCCESS;
    }
    if (status == AC_OK)
        status = take_down(pages.context, pages.base, bytes, bytes);
    return result_of(status);
}

void ac_ipc_pages_bury(void) {
    ac_ipc_left_t pages;
    while (ac_ipc_next_left(&pages)) {
        if (pages.target && !atomic_load(&cuda_of(pages.context)->dead) &&
            (ac_cuda_is_capturing(NULL) || !ac_fence_calm(pages.target))) {
            ac_ipc_left_again(&pages);
            return;
        }
        take_down(pages.context, pages.base, pages.bytes, pages.bytes);
    }
}

void ac_ipc_pages_context_gone(const void *context) {
    (void)context;
    ac_ipc_pages_bury();
}

void ac_ipc_pages_allow(CUdevice device) {
    const void *context;
    uint64_t base = 0, bytes;
    while (ac_ipc_next_of(device, &context, &base, &bytes))
        ac_cuda_import_allow(cuda_of(context), device, base, bytes);
}
