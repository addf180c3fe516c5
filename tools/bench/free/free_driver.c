/* The free driver: a libcuda.so.1 with calls that return at once, for measuring the host's side of
 * allocators.  The simulated device does bookkeeping on every call, which would add to the cost of
 * a peer that calls often: an event record takes as long there as a whole pair takes CUB.
 *
 * One device with one context; all work is complete when it is submitted; memory is addresses with
 * nothing behind them.  Functions of cuda_functions.def that have no body here answer "not
 * supported" (free_rest.c); free_lookup.c answers cuGetProcAddress.  Handles are never checked.
 * Threads: all calls, from any. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "free_driver.h"

const int free_driver = 1;

/* Handles are distinct addresses without memory; no code dereferences them. */
static void *new_handle(void) {
    static _Atomic uintptr_t last = 0x1000;
    return (void *)(atomic_fetch_add(&last, 0x40) + 0x40);
}

/* ---------------------------------------------------------------- the device and its context */

static const CUcontext primary = (CUcontext)(uintptr_t)0x800;
static const CUmemoryPool pool = (CUmemoryPool)(uintptr_t)0x900;
static _Thread_local CUcontext current __attribute__((tls_model("initial-exec")));

FREE(cuInit)(unsigned flags) {
    (void)flags;
    return CUDA_SUCCESS;
}

FREE(cuDriverGetVersion)(int *version) {
    *version = FREE_VERSION;
    return CUDA_SUCCESS;
}

FREE(cuDeviceGetCount)(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

FREE(cuDeviceGet)(CUdevice *device, int ordinal) {
    *device = 0;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

FREE(cuDeviceGetName)(char *name, int length, CUdevice device) {
    (void)device;
    strncpy(name, "Free driver", (size_t)length);
    return CUDA_SUCCESS;
}

FREE(cuDeviceGetUuid)(CUuuid *uuid, CUdevice device) {
    (void)device;
    memset(uuid, 0x46, sizeof *uuid);
    return CUDA_SUCCESS;
}

FREE(cuDeviceTotalMem_v2)(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = FREE_MEMORY;
    return CUDA_SUCCESS;
}

/* Answers yes to every yes-or-no attribute; compute capability 9.0. */
FREE(cuDeviceGetAttribute)(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                         : 1;
    return CUDA_SUCCESS;
}

FREE(cuDevicePrimaryCtxRetain)(CUcontext *context, CUdevice device) {
    (void)device;
    *context = primary;
    return CUDA_SUCCESS;
}

FREE(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}

FREE(cuDevicePrimaryCtxGetState)(CUdevice device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

FREE(cuCtxGetCurrent)(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

FREE(cuCtxSetCurrent)(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

FREE(cuCtxPushCurrent_v2)(CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
}

/* There is only one context, so the context below it on the stack is the same. */
FREE(cuCtxPopCurrent_v2)(CUcontext *context) {
    *context = current;
    return CUDA_SUCCESS;
}

FREE(cuCtxGetDevice)(CUdevice *device) {
    *device = 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

FREE(cuCtxGetId)(CUcontext context, unsigned long long *id) {
    (void)context;
    *id = 1;
    return CUDA_SUCCESS;
}

FREE(cuCtxSynchronize)(void) {
    return CUDA_SUCCESS;
}

FREE(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode *mode) {
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- streams and events */

FREE(cuStreamCreate)(CUstream *stream, unsigned flags) {
    (void)flags;
    *stream = new_handle();
    return CUDA_SUCCESS;
}

FREE(cuStreamDestroy_v2)(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

FREE(cuStreamSynchronize)(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

FREE(cuStreamQuery)(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

static _Atomic(CUstream) capturing; /* one at a time; never 0 */

FREE(cuStreamBeginCapture_v2)(CUstream stream, CUstreamCaptureMode mode) {
    (void)mode;
    atomic_store(&capturing, stream);
    return CUDA_SUCCESS;
}

FREE(cuStreamIsCapturing)(CUstream stream, CUstreamCaptureStatus *status) {
    *status = stream && stream == atomic_load(&capturing) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                          : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

FREE(cuStreamGetCtx)(CUstream stream, CUcontext *context) {
    (void)stream;
    *context = primary;
    return CUDA_SUCCESS;
}

FREE(cuStreamGetFlags)(CUstream stream, unsigned *flags) {
    (void)stream;
    *flags = CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
}

FREE(cuStreamGetId)(CUstream stream, unsigned long long *id) {
    *id = (uintptr_t)stream;
    return CUDA_SUCCESS;
}

FREE(cuStreamWaitEvent)(CUstream stream, CUevent event, unsigned flags) {
    (void)stream;
    (void)event;
    (void)flags;
    return CUDA_SUCCESS;
}

FREE(cuEventCreate)(CUevent *event, unsigned flags) {
    (void)flags;
    *event = new_handle();
    return CUDA_SUCCESS;
}

FREE(cuEventDestroy_v2)(CUevent event) {
    (void)event;
    return CUDA_SUCCESS;
}

FREE(cuEventRecord)(CUevent event, CUstream stream) {
    (void)event;
    (void)stream;
    return CUDA_SUCCESS;
}

FREE(cuCtxRecordEvent)(CUcontext context, CUevent event) {
    (void)context;
    (void)event;
    return CUDA_SUCCESS;
}

FREE(cuEventQuery)(CUevent event) {
    (void)event;
    return CUDA_SUCCESS;
}

FREE(cuEventSynchronize)(CUevent event) {
    (void)event;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- work */

FREE(cuModuleLoadData)(CUmodule *module, const void *image) {
    (void)image;
    *module = new_handle();
    return CUDA_SUCCESS;
}

FREE(cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name) {
    (void)module;
    (void)name;
    *function = new_handle();
    return CUDA_SUCCESS;
}

FREE(cuLaunchKernel)
(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
 unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
 void **extra) {
    (void)function;
    (void)(grid_x + grid_y + grid_z + block_x + block_y + block_z + shared);
    (void)stream;
    (void)parameters;
    (void)extra;
    return CUDA_SUCCESS;
}

FREE(cuMemcpyAsync)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)(to + from + bytes);
    (void)stream;
    return CUDA_SUCCESS;
}

FREE(cuMemcpyHtoDAsync_v2)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    (void)(to + bytes);
    (void)from;
    (void)stream;
    return CUDA_SUCCESS;
}

FREE(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D *copy, CUstream stream) {
    (void)copy;
    (void)stream;
    return CUDA_SUCCESS;
}

FREE(cuMemsetD8Async)(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    (void)(to + value + bytes);
    (void)stream;
    return CUDA_SUCCESS;
}

FREE(cuMemsetD2D8Async)
(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream) {
    (void)(to + pitch + value + width + height);
    (void)stream;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- memory */

/* A range of addresses for each power of two, cut from its front.  Freed addresses are reused, last
 * in, first out.  The range tells the size. */
enum { LEAST_BITS = 21, MOST_BITS = 40, RANGE_BITS = 41, KEPT = 1 << 20 };
static struct {
    pthread_mutex_t lock;
    uint64_t used[MOST_BITS + 1];
    unsigned kept[MOST_BITS + 1];
    CUdeviceptr freed[MOST_BITS + 1][KEPT]; /* host memory is used only where it is written */
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUdeviceptr base_of(unsigned bits) {
    return (CUdeviceptr)(bits - LEAST_BITS + 1) << RANGE_BITS;
}

FREE(cuMemAlloc_v2)(CUdeviceptr *pointer, size_t bytes) {
    unsigned bits = LEAST_BITS;
    if (!bytes || bytes > (size_t)1 << MOST_BITS)
        return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    if (bytes > (size_t)1 << LEAST_BITS)
        bits = 64u - (unsigned)__builtin_clzll(bytes - 1);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&memory.lock);
    if (memory.kept[bits]) {
        *pointer = memory.freed[bits][--memory.kept[bits]];
    } else if (memory.used[bits] >> RANGE_BITS == 0) {
        *pointer = base_of(bits) + memory.used[bits];
        memory.used[bits] += (uint64_t)1 << bits;
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&memory.lock);
    return result;
}

FREE(cuMemFree_v2)(CUdeviceptr pointer) {
    unsigned bits = (unsigned)(pointer >> RANGE_BITS) + LEAST_BITS - 1;
    if (!pointer)
        return CUDA_SUCCESS;
    if (bits < LEAST_BITS || bits > MOST_BITS)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory.lock);
    if (memory.kept[bits] < KEPT)
        memory.freed[bits][memory.kept[bits]++] = pointer;
    pthread_mutex_unlock(&memory.lock);
    return CUDA_SUCCESS;
}

FREE(cuMemGetInfo_v2)(size_t *available, size_t *total) {
    *available = *total = FREE_MEMORY;
    return CUDA_SUCCESS;
}

FREE(cuPointerSetAttribute)
(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    (void)value;
    (void)attribute;
    (void)pointer;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- the device's own pool */

FREE(cuMemAllocAsync)(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    (void)stream;
    return cuMemAlloc_v2(pointer, bytes);
}

FREE(cuMemFreeAsync)(CUdeviceptr pointer, CUstream stream) {
    (void)stream;
    return cuMemFree_v2(pointer);
}

FREE(cuDeviceGetDefaultMemPool)(CUmemoryPool *out, CUdevice device) {
    (void)device;
    *out = pool;
    return CUDA_SUCCESS;
}

FREE(cuDeviceGetMemPool)(CUmemoryPool *out, CUdevice device) {
    (void)device;
    *out = pool;
    return CUDA_SUCCESS;
}

FREE(cuMemPoolCreate)(CUmemoryPool *out, const CUmemPoolProps *properties) {
    (void)properties;
    *out = new_handle();
    return CUDA_SUCCESS;
}

FREE(cuMemAllocFromPoolAsync)
(CUdeviceptr *pointer, size_t bytes, CUmemoryPool from, CUstream stream) {
    (void)from;
    (void)stream;
    return cuMemAlloc_v2(pointer, bytes);
}

/* Switches are on; figures and the release threshold are 0. */
FREE(cuMemPoolGetAttribute)(CUmemoryPool of, CUmemPool_attribute attribute, void *value) {
    (void)of;
    if (attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        *(int *)value = 1;
    else
        *(cuuint64_t *)value = 0;
    return CUDA_SUCCESS;
}

FREE(cuMemPoolGetAccess)(CUmemAccess_flags *flags, CUmemoryPool of, CUmemLocation *location) {
    (void)of;
    (void)location;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

FREE(cuMemPoolTrimTo)(CUmemoryPool of, size_t bytes) {
    (void)of;
    (void)bytes;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- pages */

FREE(cuMemGetAllocationGranularity)
(size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags flags) {
    (void)prop;
    (void)flags;
    *bytes = (size_t)1 << LEAST_BITS;
    return CUDA_SUCCESS;
}

/* Reserves addresses above the ranges of cuMemAlloc.  They are never reused: there are
 * enough. */
FREE(cuMemAddressReserve)
(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted,
 unsigned long long flags) {
    static _Atomic uint64_t next = (uint64_t)1 << 47;
    uint64_t mask = alignment > 1u << LEAST_BITS ? alignment - 1 : (1u << LEAST_BITS) - 1;
    (void)wanted;
    (void)flags;
    *pointer = (atomic_fetch_add(&next, bytes + 2 * mask + 1) + mask) & ~mask;
    return CUDA_SUCCESS;
}

FREE(cuMemAddressFree)(CUdeviceptr pointer, size_t bytes) {
    (void)(pointer + bytes);
    return CUDA_SUCCESS;
}

FREE(cuMemCreate)
(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
 unsigned long long flags) {
    (void)bytes;
    (void)prop;
    (void)flags;
    *handle = (uintptr_t)new_handle();
    return CUDA_SUCCESS;
}

FREE(cuMemRelease)(CUmemGenericAllocationHandle handle) {
    (void)handle;
    return CUDA_SUCCESS;
}

FREE(cuMemMap)
(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
    (void)(pointer + bytes + offset + handle + flags);
    return CUDA_SUCCESS;
}

FREE(cuMemUnmap)(CUdeviceptr pointer, size_t bytes) {
    (void)(pointer + bytes);
    return CUDA_SUCCESS;
}

FREE(cuMemSetAccess)
(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    (void)(pointer + bytes + count);
    (void)access;
    return CUDA_SUCCESS;
}
