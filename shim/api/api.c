/* The C API (accelcache.h) over the allocator and the hooks. */
#include "api/api_int.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "device/driver.h"
#include "track/observers.h"
#include "track/pinned.h"
#include "bind/resolve.h"
#include "tell/process_dump.h"
#include "lock.h"
#include "observe/dump.h"
#include "observe/folder.h"
#include "observe/scratch.h"
#include "hooks/submit_hooks.h"

const char *accel_status_string(accel_status_t status) {
    switch (status) {
    case ACCEL_OK:
        return "success";
    case ACCEL_ERROR_INVALID:
        return "an argument is NULL, out of range, or names a device, stream or pool that is not there: "
               "accelcache.h says what each call takes";
    case ACCEL_ERROR_NO_DRIVER:
        return "no CUDA driver or device, or the cache cannot run in this process: install NVIDIA's "
               "driver, or try `accelcache run --sim`";
    case ACCEL_ERROR_NOT_OURS:
        return "the pointer is of no memory that was handed out: free it where it came from, and once";
    case ACCEL_ERROR_CUDA:
        return "a CUDA call failed: work that was submitted before may have, which the next "
               "synchronisation tells";
    case ACCEL_ERROR_SETTINGS:
        return "a malformed setting, or one that cannot change any more: `accelcache config` lists them";
    case ACCEL_ERROR_OUT_OF_MEMORY:
        return "host memory is short: free some, or raise the limit of the process";
    case ACCEL_ERROR_IO:
        return "a file could not be written: errno tells why";
    case ACCEL_ERROR_INTERNAL:
        return "the cache's own records contradict each other: a fault of the library, or memory of the host "
               "was overwritten; `enabled:false` goes on without the cache";
    case ACCEL_ERROR_DEVICE_MEMORY:
        return "device memory is short, or a limit forbids more: free some, raise memory_limit, or try "
               "expandable_segments:true";
    case ACCEL_ERROR_BUSY:
        return "it is in use, and cannot be changed or ended now: try again when that is over";
    case ACCEL_ERROR_UNSUPPORTED:
        return "the device, the driver or the allocator in use cannot do it: go on without";
    case ACCEL_ERROR_DOUBLE_FREE:
        return "the memory at the pointer was freed before: free it once; `history` and `stacks` of the settings tell where that was";
    case ACCEL_ERROR_INTERIOR:
        return "the pointer lies inside a block: free what the request returned";
    }
    return "unknown status";
}

bool ac_api_ready(void) {
    if (ac_is_active())
        return true;
    if (!ac_resolve_driver("cuInit"))
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL); /* stays loaded: drivers do not unload */
    ac_driver_open();
    return ac_resolve_driver("cuInit") && cuInit(0) == CUDA_SUCCESS && ac_is_active();
}

static bool valid(int device) {
    return device >= 0 && device < accel_device_count();
}

accel_status_t ac_api_need(int device) {
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    return valid(device) ? ACCEL_OK : ACCEL_ERROR_INVALID;
}

int accel_initialized(void) {
    return atomic_load(&ac_state) == AC_STATE_ACTIVE;
}

int accel_device_count(void) {
    int count = 0;
    if (!ac_api_ready() || ac_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return 0;
    return count;
}

/* Device of the thread's current context; -1 if there is none. */
static int device_of_context(CUcontext *context) {
    CUdevice device;
    *context = NULL;
    if (ac_driver.cuCtxGetCurrent(context) != CUDA_SUCCESS || !*context ||
        ac_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return -1;
    return device;
}

int accel_current_device(void) {
    CUcontext context;
    if (!accel_device_count())
        return -1;
    int device = device_of_context(&context), chosen = ac_api_chosen(context);
    return chosen >= 0 ? chosen : device >= 0 ? device : 0;
}

/* Primary contexts: retained here, or only known to be there. */
static _Atomic(CUcontext) retained[AC_LIVE_DEVICES], seen[AC_LIVE_DEVICES];

/* A context that was reset has to be retained anew before it serves again. */
static void primary_gone(CUdevice device) {
    if (device >= 0 && device < AC_LIVE_DEVICES) {
        atomic_store(&retained[device], NULL);
        atomic_store(&seen[device], NULL);
    }
    ac_pool_device_gone(device);
}

CUcontext ac_api_primary(int device) {
    if (device >= AC_LIVE_DEVICES)
        return NULL;
    CUcontext context = atomic_load(&retained[device]);
    if (context)
        return context;
    atomic_store(&ac_primary_gone_observer, primary_gone);
    if (ac_driver.cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS)
        atomic_store(&retained[device], context);
    return context;
}

/* The program retained it, which is enough as long as it is current. */
static CUcontext see_primary(int device) {
    atomic_store(&ac_primary_gone_observer, primary_gone);
    const ac_context_t *context = ac_context_primary(device);
    CUcontext handle = context ? context->cuda.handle : NULL;
    atomic_store(&seen[device], handle);
    if (context && atomic_load(&context->cuda.dead)) /* told of before it was stored */
        atomic_store(&seen[device], NULL);
    return handle;
}

bool ac_api_is_primary(CUcontext context, int device) {
    if (!context || device >= AC_LIVE_DEVICES)
        return false;
    CUcontext known = atomic_load(&retained[device]);
    if (!known)
        known = atomic_load(&seen[device]);
    if (!known)
        known = see_primary(device);
    return context == known || ac_context_is_view(context, known);
}

bool ac_api_enter(ac_api_scope_t *scope, int device) {
    CUdevice current;
    scope->pushed = false;
    scope->context = NULL;
    if (ac_driver.cuCtxGetCurrent(&scope->context) == CUDA_SUCCESS && scope->context &&
        ac_driver.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device)
        return true;
    return ac_api_push(scope, device);
}

bool ac_api_push(ac_api_scope_t *scope, int device) {
    CUcontext context = scope->context = ac_api_primary(device);
    scope->pushed = context && ac_driver.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    if (scope->pushed)
        ac_thread_forget();
    return scope->pushed;
}

void ac_api_leave(const ac_api_scope_t *scope) {
    if (!scope->pushed)
        return;
    ac_driver_pop();
    ac_thread_forget();
}

accel_status_t accel_set_device(int device) {
    if (device < 0)
        return ACCEL_OK;
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK)
        return status;
    CUcontext context = ac_api_primary(device);
    if (!context || ac_driver.cuCtxSetCurrent(context) != CUDA_SUCCESS)
        return ACCEL_ERROR_CUDA;
    ac_api_choose(-1, NULL);
    ac_thread_forget();
    return ACCEL_OK;
}

accel_status_t ac_api_have_context(void) {
    CUcontext context;
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    return device_of_context(&context) >= 0 ? ACCEL_OK : accel_set_device(accel_current_device());
}

int accel_exchange_device(int device) {
    CUcontext context;
    int before = accel_current_device();
    if (device < 0 || before < 0)
        return -2;
    if (before == device && device_of_context(&context) == device)
        return before;
    return accel_set_device(device) == ACCEL_OK ? before : -2;
}

static bool has_primary(int device) {
    unsigned flags;
    int active = 0;
    return ac_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

int accel_maybe_exchange_device(int device) {
    CUcontext context;
    if (device < 0)
        return -1;
    if (ac_api_need(device) != ACCEL_OK)
        return -2;
    int before = accel_current_device(), now = device_of_context(&context);
    if (before == device)
        return before;
    if (device == now) /* back from a device that was chosen */
        return ac_api_choose(-1, NULL) ? before : -2;
    if (has_primary(device))
        return accel_set_device(device) == ACCEL_OK ? before : -2;
    return ac_api_choose(device, context) ? before : -2;
}

accel_status_t accel_synchronize_device(int device) {
    if (atomic_load(&ac_state) == AC_STATE_ASLEEP) /* CUDA was not used: there is no work */
        return device < 0 ? ACCEL_ERROR_INVALID : ACCEL_OK;
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK || !has_primary(device))
        return status;
    ac_api_scope_t scope;
    if (!ac_api_push(&scope, device))
        return ACCEL_ERROR_CUDA;
    CUresult result = cuCtxSynchronize(); /* our hook: it retires the fences */
    ac_api_leave(&scope);
    return result == CUDA_SUCCESS ? ACCEL_OK : ACCEL_ERROR_CUDA;
}

static accel_stat_t stat_of(ac_stat_t s) {
    return (accel_stat_t){s.current, s.peak, s.allocated, s.freed};
}

static accel_pool_stat_t pools_of(const ac_stat_t s[AC_POOL_KINDS]) {
    return (accel_pool_stat_t){stat_of(s[AC_POOL_ALL]), stat_of(s[AC_POOL_SMALL]),
                               stat_of(s[AC_POOL_LARGE])};
}

accel_status_t accel_get_device_stats(int device, accel_device_stats_t *stats) {
    if (!stats || stats->size < sizeof(size_t))
        return ACCEL_ERROR_INVALID;
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK)
        return status;
    ac_allocator_t *allocator = ac_device_allocator(device);
    ac_device_stats_t now;
    if (!allocator)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    ac_allocator_stats_settled(allocator, &now);
    accel_device_stats_t out = {.size = stats->size};
#define STAT_COUNT(name, doc)        out.name = now.name;
#define STAT_POOLS(name, unit, doc)  out.name = pools_of(now.name);
#define STAT_SINGLE(name, unit, doc) out.name = stat_of(now.name);
#include "observe/stats.def"
    memcpy(stats, &out, stats->size < sizeof out ? stats->size : sizeof out);
    return ACCEL_OK;
}

static accel_status_t on_allocator(int device, void (*act)(ac_allocator_t *)) {
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK)
        return status;
    ac_allocator_t *allocator = ac_device_allocator(device);
    if (!allocator)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    act(allocator);
    return ACCEL_OK;
}

accel_status_t accel_reset_accumulated_stats(int device) {
    return on_allocator(device, ac_allocator_reset_accumulated);
}

accel_status_t accel_reset_peak_stats(int device) {
    return on_allocator(device, ac_allocator_reset_peak);
}

static void empty(CUdevice device, ac_allocator_t *allocator, void *arg) {
    (void)device;
    (void)arg;
    ac_allocator_trim(allocator, true);
}

accel_status_t accel_empty_cache(void) {
    if (!ac_api_ready())
        return ACCEL_ERROR_NO_DRIVER;
    const accel_allocator_t *set = ac_raw_allocator();
    if (set && set->reset_fn)
        set->reset_fn();
    ac_pool_trim();
    ac_late_free(AC_LATE_WAIT_NS);
    ac_device_each(empty, NULL);
    ac_pinned_trim(true);
    return ACCEL_OK;
}

static bool is_stream(CUstream stream) {
    unsigned flags;
    return stream <= CU_STREAM_PER_THREAD || !ac_driver.cuStreamGetFlags ||
           ac_driver.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS;
}

accel_status_t ac_api_record(void *stream, uint64_t address) {
    ac_submit_t submit;
    ac_thread_t *thread = ac_is_active() ? ac_thread_get() : NULL;
    if (!ac_submit_begin(&submit, thread, stream, false))
        return ACCEL_ERROR_CUDA;
    if (!submit.context && !is_stream(stream)) { /* it has no work, or that counted as untracked */
        ac_submit_end(&submit, thread, CUDA_ERROR_INVALID_HANDLE);
        return ACCEL_ERROR_INVALID;
    }
    ac_submit_reach(&submit, address);
    ac_submit_end(&submit, thread, CUDA_SUCCESS);
    /* Work of a context that has no record: a fence does not cover it. */
    bool covered = submit.context || !ac_process_gave_up();
    return covered ? ACCEL_OK : ACCEL_ERROR_NO_DRIVER;
}

accel_status_t accel_record_stream(void *pointer, void *stream) {
    ac_block_info_t info;
    uint64_t address = (uint64_t)(uintptr_t)pointer;
    ac_raw_t raw;
    if (!pointer)
        return ACCEL_OK;
    if (ac_raw_find(address, &raw) && raw.allocator) {
        if (!raw.allocator->record_stream_fn)
            return ACCEL_ERROR_UNSUPPORTED;
        raw.allocator->record_stream_fn(pointer, stream);
        return ACCEL_OK;
    }
    if (ac_pool_record_at(address))
        return ac_api_record(stream, address);
    if (ac_raw_of_driver(address, &raw))
        return ac_raw_record(raw.address) ? ACCEL_OK : ACCEL_ERROR_NOT_OURS;
    if (!ac_owned(address) || ac_block_find(address, &info) != AC_OK || !info.allocated)
        return ACCEL_ERROR_NOT_OURS;
    ac_raw_record(info.address);
    return ac_api_record(stream, address);
}

/* Sets *free_bytes and *total_bytes to what `ask` says of the device. */
static accel_status_t memory_info(int device, cuMemGetInfo_v2_fn *ask, size_t *free_bytes,
                                  size_t *total_bytes) {
    accel_status_t status = ac_api_need(device);
    if (status != ACCEL_OK)
        return status;
    if (!free_bytes || !total_bytes)
        return ACCEL_ERROR_INVALID;
    size_t available, total;
    ac_api_scope_t scope;
    if (!ac_api_push(&scope, device))
        return ACCEL_ERROR_CUDA;
    CUresult result = ask(&available, &total);
    ac_api_leave(&scope);
    if (result != CUDA_SUCCESS)
        return ACCEL_ERROR_CUDA;
    *free_bytes = available;
    *total_bytes = total;
    return ACCEL_OK;
}

/* The hook of cuMemGetInfo adds memory that a trim could give back: whole segments and pages.  A request also
 * obtains what is idle next to blocks. */
accel_status_t accel_get_memory_info(int device, size_t *free_bytes, size_t *total_bytes) {
    accel_status_t status = memory_info(device, cuMemGetInfo_v2, free_bytes, total_bytes);
    ac_allocator_t *allocator =
        status == ACCEL_OK && ac_is_enabled() ? ac_device_allocator(device) : NULL;
    if (!allocator)
        return status;
    uint64_t whole = ac_allocator_idle_bytes(allocator);
    uint64_t all = ac_allocator_unused_bytes(allocator);
    uint64_t bytes = *free_bytes + (all > whole ? all - whole : 0);
    *free_bytes = bytes < *total_bytes ? bytes : *total_bytes;
    return ACCEL_OK;
}

accel_status_t accel_get_device_memory_info(int device, size_t *free_bytes, size_t *total_bytes) {
    return memory_info(device, ac_driver.cuMemGetInfo_v2, free_bytes, total_bytes);
}

accel_status_t accel_set_allocator_settings(const char *conf, char *message,
                                            size_t message_size) {
    ac_config_error_t error = {.text = "no string was given"};
    if (conf && ac_process_configure(conf, &error))
        return ACCEL_OK;
    if (message && message_size)
        snprintf(message, message_size, "%s", error.text);
    return conf ? ACCEL_ERROR_SETTINGS : ACCEL_ERROR_INVALID;
}

/* Whether there is anything to tell of: a document of a process that used no CUDA names none. */
static bool used(void) {
    int state = atomic_load(&ac_state);
    return state != AC_STATE_ASLEEP && state != AC_STATE_WAKING;
}

accel_status_t accel_stats_json(char **json) {
    size_t length;
    if (!json)
        return ACCEL_ERROR_INVALID;
    if (!used())
        return ACCEL_ERROR_NO_DRIVER;
    char *text = ac_dump_text(ac_live, "request", &length);
    if (!text)
        return ACCEL_ERROR_OUT_OF_MEMORY;
    *json = text;
    return ACCEL_OK;
}

accel_status_t accel_dump(const char *path) {
    if (!strcmp(path ? path : ac_process_config()->dump, "none"))
        return ACCEL_ERROR_INVALID;
    if (!used())
        return ACCEL_ERROR_NO_DRIVER;
    char *expanded = ac_scratch_take();
    int error = expanded ? ac_process_dump(path, "request", expanded, AC_FOLDER_PATH) : ENOMEM;
    ac_scratch_give(expanded);
    if (!error)
        return ACCEL_OK;
    errno = error;
    return ACCEL_ERROR_IO;
}

typedef struct {
    CUdevice device;
    const char *word;      /* of the first thing found */
    accel_status_t status; /* ACCEL_OK: nothing was */
} ac_found_t;

static void check(CUdevice device, ac_allocator_t *allocator, void *arg) {
    ac_found_t *found = arg;
    const char *why = NULL;
    bool wrong = found->status != ACCEL_ERROR_INTERNAL && ac_allocator_check(allocator, &why);
    if (!why)
        return;
    *found = (ac_found_t){device, why, wrong ? ACCEL_ERROR_INTERNAL : ACCEL_ERROR_BUSY};
}

accel_status_t accel_check(char *message, size_t message_size) {
    ac_found_t found = {.status = ACCEL_OK};
    if (!used())
        return ACCEL_ERROR_NO_DRIVER;
    ac_device_each(check, &found);
    const char *pinned;
    if (found.status != ACCEL_ERROR_INTERNAL && ac_pinned_check(&pinned)) {
        if (message && message_size)
            snprintf(message, message_size, "pinned memory: %s", pinned);
        return ACCEL_ERROR_INTERNAL;
    }
    if (found.status != ACCEL_OK && message && message_size)
        snprintf(message, message_size, "device %d: %s", found.device, found.word);
    return found.status;
}
