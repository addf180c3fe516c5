/* See real_device.h. */
#include "replay/real_device.h"
#include "command.h"
#include "device/cuda_device.h"
#include "device/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static ac_cuda_context_t context;
static cmd_model_figures_t counted;
static uint64_t used; /* bytes */

/* Bytes of segments and pages, to count their release: both are few. */
static struct { uint64_t name, bytes; } * held;
static size_t holding, room;

static void hold(uint64_t name, uint64_t bytes) {
    if (holding == room) {
        room = room ? room * 2 : 256;
        held = cmd_resize(held, room * sizeof *held);
    }
    held[holding].name = name;
    held[holding++].bytes = bytes;
    used += bytes;
    if (used > counted.peak)
        counted.peak = used;
}

static void let_go(uint64_t name) {
    for (size_t i = 0; i < holding; i++) {
        if (held[i].name != name)
            continue;
        used -= held[i].bytes;
        held[i] = held[--holding];
        return;
    }
}

static uint64_t begin(void) {
    return ac_cuda_ops.now_ns();
}

static ac_status_t done(unsigned call, uint64_t begun, ac_status_t status) {
    counted.call[call]++;
    counted.ns += (double)(ac_cuda_ops.now_ns() - begun);
    return status;
}

/* ------------------------------------------------------------------ operations */

static ac_status_t segment_alloc(void *arg, uint64_t bytes, uint64_t *address) {
    uint64_t begun = begin();
    ac_status_t status =
        done(CMD_CALL_alloc, begun, ac_cuda_ops.segment_alloc(arg, bytes, address));
    if (status == AC_OK)
        hold(*address, bytes);
    return status;
}

static ac_status_t segment_free(void *arg, uint64_t address, uint64_t bytes) {
    uint64_t begun = begin();
    ac_status_t status = done(CMD_CALL_free, begun, ac_cuda_ops.segment_free(arg, address, bytes));
    if (status == AC_OK)
        let_go(address);
    return status;
}

static ac_status_t page_create(void *arg, uint64_t bytes, uint64_t *page) {
    uint64_t begun = begin();
    ac_status_t status = done(CMD_CALL_create, begun, ac_cuda_ops.page_create(arg, bytes, page));
    if (status == AC_OK)
        hold(*page, bytes);
    return status;
}

static ac_status_t page_release(void *arg, uint64_t page) {
    uint64_t begun = begin();
    let_go(page);
    return done(CMD_CALL_release, begun, ac_cuda_ops.page_release(arg, page));
}

static ac_status_t page_map(void *arg, uint64_t address, uint64_t bytes, uint64_t page) {
    uint64_t begun = begin();
    return done(CMD_CALL_map, begun, ac_cuda_ops.page_map(arg, address, bytes, page));
}

static ac_status_t pages_allow(void *arg, uint64_t address, uint64_t bytes) {
    uint64_t begun = begin();
    return done(CMD_CALL_allow, begun, ac_cuda_ops.pages_allow(arg, address, bytes));
}

static ac_status_t pages_unmap(void *arg, uint64_t address, uint64_t bytes) {
    uint64_t begun = begin();
    return done(CMD_CALL_unmap, begun, ac_cuda_ops.pages_unmap(arg, address, bytes));
}

static ac_status_t range_reserve(void *arg, uint64_t bytes, uint64_t *address) {
    uint64_t begun = begin();
    return done(CMD_CALL_reserve, begun, ac_cuda_ops.range_reserve(arg, bytes, address));
}

static ac_status_t range_release(void *arg, uint64_t address, uint64_t bytes) {
    uint64_t begun = begin();
    return done(CMD_CALL_unreserve, begun, ac_cuda_ops.range_release(arg, address, bytes));
}

static ac_status_t range_support(void *arg, ac_range_support_t *support) {
    return ac_cuda_ops.range_support(arg, support);
}

static ac_status_t fence_record(void *arg, bool unseen, void **fence) {
    uint64_t begun = begin();
    return done(CMD_CALL_record, begun, ac_cuda_ops.fence_record(arg, unseen, fence));
}

static ac_status_t fence_query(void *arg, void *fence) {
    uint64_t begun = begin();
    return done(CMD_CALL_query, begun, ac_cuda_ops.fence_query(arg, fence));
}

static ac_status_t fence_wait(void *arg, void *fence, uint64_t limit_ns) {
    uint64_t begun = begin();
    counted.waits++;
    return done(CMD_CALL_wait, begun, ac_cuda_ops.fence_wait(arg, fence, limit_ns));
}

static void fence_release(void *arg, void *fence) {
    ac_cuda_ops.fence_release(arg, fence);
}

static bool join_events(void *arg) {
    return ac_cuda_ops.join_events(arg);
}

static ac_status_t join_record(void *arg, uint64_t stream, void **fence) {
    uint64_t begun = begin();
    return done(CMD_CALL_record, begun, ac_cuda_ops.join_record(arg, stream, fence));
}

static ac_status_t join_wait(void *arg, void *fence, uint64_t stream) {
    uint64_t begun = begin();
    return done(CMD_CALL_order, begun, ac_cuda_ops.join_wait(arg, fence, stream));
}

static bool capturing(void *arg, bool any) {
    return ac_cuda_ops.capturing(arg, any);
}

static ac_status_t synchronize(void *arg, uint64_t limit_ns) {
    uint64_t begun = begin();
    return done(CMD_CALL_sync, begun, ac_cuda_ops.synchronize(arg, limit_ns));
}

static ac_status_t stream_order(void *arg, uint64_t from, uint64_t to) {
    uint64_t begun = begin();
    return done(CMD_CALL_order, begun, ac_cuda_ops.stream_order(arg, from, to));
}

static ac_status_t stream_touch(void *arg, uint64_t stream) {
    uint64_t begun = begin();
    return done(CMD_CALL_record, begun, ac_cuda_ops.stream_touch(arg, stream));
}

static uint64_t now_ns(void) {
    return ac_cuda_ops.now_ns();
}

static ac_status_t memory_free(void *arg, uint64_t *bytes) {
    return ac_cuda_ops.memory_free(arg, bytes);
}

const ac_device_ops_t cmd_real_ops = {
    .segment_alloc = segment_alloc,
    .segment_alloc_aside = segment_alloc,
    .segment_free = segment_free,
    .memory_free = memory_free,
    .fence_record = fence_record,
    .fence_query = fence_query,
    .fence_wait = fence_wait,
    .fence_release = fence_release,
    .join_record = join_record,
    .join_events = join_events,
    .join_wait = join_wait,
    .capturing = capturing,
    .synchronize = synchronize,
    .stream_order = stream_order,
    .stream_touch = stream_touch,
    .range_support = range_support,
    .range_reserve = range_reserve,
    .range_release = range_release,
    .page_create = page_create,
    .page_release = page_release,
    .page_map = page_map,
    .pages_allow = pages_allow,
    .pages_unmap = pages_unmap,
    .now_ns = now_ns,
};

void cmd_real_figures(cmd_model_figures_t *figures) {
    *figures = counted;
    counted = (cmd_model_figures_t){.peak = used};
}

/* ------------------------------------------------------------------ opening */

static void *library;

static void *find(const char *symbol) {
    return dlsym(library, symbol);
}

bool cmd_real_simulated(void) {
    return library && dlsym(library, "simcuda_version");
}

/* False: `why` says what failed. */
static bool open_context(char *why, size_t size, CUcontext *handle) {
    const char *missing = NULL;
    cuInit_fn *init;
    CUdevice device = 0;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, size, "there is no CUDA driver here: %s", dlerror());
        return false;
    }
    *(void **)&init = dlsym(library, "cuInit");
    if (!init || !ac_driver_bind(find, &missing)) {
        snprintf(why, size, "the driver lacks %s", init ? missing : "cuInit");
        return false;
    }
    CUresult result = init(0);
    if (result == CUDA_SUCCESS)
        result = ac_driver.cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS)
        result = ac_driver.cuDevicePrimaryCtxRetain(handle, device);
    if (result == CUDA_SUCCESS)
        result = ac_driver.cuCtxSetCurrent(*handle);
    if (result != CUDA_SUCCESS)
        snprintf(why, size, "the driver answers error %d: is there a GPU, and is it free?",
                 (int)result);
    return result == CUDA_SUCCESS;
}

void *cmd_real_open(char *why, size_t size, uint64_t *memory) {
    CUcontext handle = NULL;
    size_t total = 0;
    if (!open_context(why, size, &handle))
        return NULL;
    ac_driver.cuDeviceTotalMem_v2(&total, 0);
    *memory = total;
    ac_cuda_context_init(&context, handle, 0, 0,
                         ac_driver.cuCtxRecordEvent ? AC_RECORD_CTX : AC_RECORD_STREAMS);
    return &context;
}
