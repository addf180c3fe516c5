/* Free and total memory, as the driver and NVIDIA's management library (NVML) tell the program.  Both fit the limit
 * of the process, unless the key `view` says device. */
#include <string.h>

#include "hooks/body.h"
#include "track/mempools.h"
#include "bind/resolve.h"

#include "device/driver.h"

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static bool is_limited(void) {
    return ac_device_limited() && ac_process_config()->view == AC_VIEW_LIMIT;
}

/* Adds idle memory to the free bytes: a trim could give it back, so a request can obtain it. */
static void fit(CUdevice device, uint64_t *available, uint64_t *total) {
    ac_allocator_t *allocator = ac_device_allocator(device);
    bool limited = is_limited();
    if (allocator && limited)
        ac_mempools_look(device);
    uint64_t idle = allocator ? ac_allocator_idle_bytes(allocator) : 0;
    *available = smaller(*available + idle, *total);
    if (!limited)
        return;
    uint64_t room = allocator ? ac_allocator_room(allocator) : AC_UNLIMITED;
    *total = smaller(*total, ac_device_limit(device, ac_live->total_memory[device]));
    *available = smaller(*available, room > AC_UNLIMITED - idle ? *total : room + idle);
    *available = smaller(*available, *total);
}

static CUresult get_info(ac_thread_t *thread, cuMemGetInfo_v2_fn *real, size_t *free_bytes,
                         size_t *total_bytes) {
    size_t available, total;
    CUresult result =
        real(free_bytes ? free_bytes : &available, total_bytes ? total_bytes : &total);
    ac_context_t *context = result == CUDA_SUCCESS && thread ? ac_context_serving(thread) : NULL;
    if (!context)
        return result;
    uint64_t told = free_bytes ? *free_bytes : available;
    uint64_t whole = total_bytes ? *total_bytes : total;
    fit(context->cuda.device, &told, &whole);
    if (free_bytes)
        *free_bytes = told;
    if (total_bytes)
        *total_bytes = whole;
    return result;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    AC_ENTER_OR_RETURN(cuMemGetInfo_v2);
    return get_info(thread, real, free_bytes, total_bytes);
}

/* The 32-bit ABI. */
CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes) {
    AC_ENTER_OR_RETURN(cuMemGetInfo);
    size_t available, total;
    CUresult result = real(free_bytes, total_bytes);
    cuMemGetInfo_v2_fn *wide = AC_REAL(cuMemGetInfo_v2);
    if (result != CUDA_SUCCESS || !thread || !is_limited() || !wide ||
        get_info(thread, wide, &available, &total) != CUDA_SUCCESS)
        return result;
    if (free_bytes)
        *free_bytes = (unsigned)smaller(*free_bytes, available);
    if (total_bytes)
        *total_bytes = (unsigned)smaller(*total_bytes, total);
    return result;
}

#define TOTAL_MEM(symbol, type)                                                                  \
    CUresult symbol(type *bytes, CUdevice device) {                                              \
        AC_ENTER_OR_RETURN(symbol);                                                              \
        CUresult result = real(bytes, device);                                                   \
        size_t total = 0;                                                                        \
        if (result == CUDA_SUCCESS && thread && is_limited() &&                                  \
            ac_driver.cuDeviceTotalMem_v2(&total, device) == CUDA_SUCCESS)                       \
            *bytes = (type)smaller(*bytes, ac_device_limit(device, total));                      \
        return result;                                                                           \
    }
TOTAL_MEM(cuDeviceTotalMem, unsigned)
TOTAL_MEM(cuDeviceTotalMem_v2, size_t)

/* --- NVML ---
 *
 * It counts devices in another way than CUDA, so a device is known by its UUID.  A process that has not used CUDA
 * gets NVML's own answer. */

typedef int uuid_fn(void *device, char *text, unsigned size);

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads a UUID: "GPU-" and 32 hexadecimal digits, with dashes among them. */
static bool read_uuid(const char *text, unsigned char *bytes) {
    unsigned digits = 0;
    if (!ac_text_starts(text, "GPU-"))
        return false;
    for (text += 4; *text && digits < 32; text++) {
        int value = digit(*text);
        if (value < 0 && *text != '-')
            return false;
        if (value >= 0)
            bytes[digits / 2] = (unsigned char)(bytes[digits / 2] << 4 | value), digits++;
    }
    return digits == 32 && !*text;
}

/* Returns the CUDA device for NVML's handle `device`; -1: none.  `function` lies in the NVML to ask. */
static CUdevice device_of(void *device, void *function) {
    char text[96] = "";
    unsigned char wanted[16] = {0};
    CUuuid uuid;
    CUdevice each;
    int count = 0;
    ac_object_t object = ac_object_of(function);
    void *found = object.dynamic ? ac_object_symbol(&object, "nvmlDeviceGetUUID") : NULL;
    uuid_fn *ask = __extension__(uuid_fn *) found;
    if (!ask || ask(device, text, sizeof text) || !read_uuid(text, wanted) ||
        !ac_driver.cuDeviceGetUuid || ac_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return -1;
    for (int i = 0; i < count; i++)
        if (ac_driver.cuDeviceGet(&each, i) == CUDA_SUCCESS &&
            ac_driver.cuDeviceGetUuid(&uuid, each) == CUDA_SUCCESS &&
            !memcmp(uuid.bytes, wanted, sizeof wanted))
            return each;
    return -1;
}

/* Fits the figures to the limit.  Returns true if the limit is smaller than the device. */
static bool fit_nvml(ac_thread_t *thread, void *device, void *function,
                     unsigned long long *available, unsigned long long *total) {
    CUdevice known = thread && is_limited() ? device_of(device, function) : -1;
    if (known < 0 || !ac_device_allocator(known))
        return false;
    uint64_t told = *available, whole = *total;
    fit(known, &told, &whole);
    bool fits = whole < *total;
    *available = told;
    *total = whole;
    return fits;
}

/* Returns the thread record; NULL in a process that has not used CUDA, so that NVML does not activate it. */
static ac_thread_t *nvml_thread(ac_hook_t hook) {
    ac_thread_t *thread = atomic_load(&ac_state) == AC_STATE_ACTIVE ? ac_thread_get() : NULL;
    ac_count(thread, AC_COUNT_HOOKS + hook);
    return thread;
}

int nvmlDeviceGetMemoryInfo(void *device, ac_nvml_memory_t *memory) {
    nvmlDeviceGetMemoryInfo_fn *real = AC_REAL(nvmlDeviceGetMemoryInfo);
    ac_thread_t *thread = nvml_thread(AC_HOOK_nvmlDeviceGetMemoryInfo);
    int result = real ? real(device, memory) : AC_NVML_MISSING;
    if (result == 0 &&
        fit_nvml(thread, device, __extension__(void *) real, &memory->available, &memory->total))
        memory->used = memory->total - memory->available;
    return result;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, ac_nvml_memory_v2_t *memory) {
    nvmlDeviceGetMemoryInfo_v2_fn *real = AC_REAL(nvmlDeviceGetMemoryInfo_v2);
    ac_thread_t *thread = nvml_thread(AC_HOOK_nvmlDeviceGetMemoryInfo_v2);
    int result = real ? real(device, memory) : AC_NVML_MISSING;
    if (result == 0 && fit_nvml(thread, device, __extension__(void *) real, &memory->available,
                                &memory->total)) {
        memory->used = memory->total - memory->available;
        memory->reserved = 0;
    }
    return result;
}
