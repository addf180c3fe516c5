/* A libcuda.so.1 that passes every call on to the simulated driver, except for one lie.
 *
 * It shows that the checks of this folder can fail.  LIE names the lie (lies.def).  The lie
 * renamed_errors, which is not in the table, turns every error into UNKNOWN.  LIAR_DRIVER is the
 * path of the simulated driver. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

/* `next` has the functions that answer calls: the driver's, or a lie. */
static struct {
#define CU_FN(symbol, name, since, mode, params, args) symbol##_fn *symbol;
#include "device/cuda_functions.def"
#undef CU_FN
} next, driver;

static int errors_renamed;

static CUresult told(CUresult result) {
    return errors_renamed && result && result != CUDA_ERROR_NOT_READY ? CUDA_ERROR_UNKNOWN
                                                                      : result;
}

#define CU_FN(symbol, name, since, mode, params, args)                                           \
    EXPORT CUresult symbol params {                                                              \
        return told(next.symbol args);                                                           \
    }
#include "device/cuda_functions.def"
#undef CU_FN

/* ---------------------------------------------------------------- lookups */

#define CU_FN(symbol, name, since, mode, params, args) #symbol,
static const char *const names[] = {
#include "device/cuda_functions.def"
};
#undef CU_FN
enum { FUNCTIONS = sizeof names / sizeof *names };

static void *own[FUNCTIONS], *real[FUNCTIONS];

/* Returns this library's export for an export of the driver. */
static void *own_of(void *found) {
    for (int i = 0; i < FUNCTIONS; i++)
        if (found && real[i] == found)
            return own[i];
    return found;
}

static CUresult look_up(const char *a, void **b, int c, cuuint64_t d) {
    CUresult result = driver.cuGetProcAddress(a, b, c, d);
    if (!result)
        *b = own_of(*b);
    return result;
}

static CUresult look_up_2(const char *a, void **b, int c, cuuint64_t d,
                          CUdriverProcAddressQueryResult *e) {
    CUresult result = driver.cuGetProcAddress_v2(a, b, c, d, e);
    if (!result)
        *b = own_of(*b);
    return result;
}

static CUresult newest_version(const char *a, void **b, int c, cuuint64_t d,
                               CUdriverProcAddressQueryResult *e) {
    (void)c;
    return look_up_2(a, b, 13000, d, e);
}

static CUresult no_twins(const char *a, void **b, int c, cuuint64_t d,
                         CUdriverProcAddressQueryResult *e) {
    (void)d;
    return look_up_2(a, b, c, 0, e);
}

/* ---------------------------------------------------------------- order */

static CUresult record_in(CUcontext a, CUevent b, CUstream stream) {
    CUcontext before;
    driver.cuCtxGetCurrent(&before);
    driver.cuCtxSetCurrent(a);
    CUresult result =
        stream ? CUDA_SUCCESS : driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    result = result ? result : driver.cuEventRecord(b, stream);
    driver.cuCtxSetCurrent(before);
    return result;
}

static CUresult legacy_for_context(CUcontext a, CUevent b) {
    return record_in(a, b, CU_STREAM_LEGACY);
}

static CUresult own_for_context(CUcontext a, CUevent b) {
    return record_in(a, b, CU_STREAM_PER_THREAD);
}

static CUresult nothing_for_context(CUcontext a, CUevent b) {
    return record_in(a, b, NULL);
}

static CUresult record_waits(CUcontext a, CUevent b) {
    driver.cuCtxSynchronize();
    return driver.cuCtxRecordEvent(a, b);
}

static CUevent recorded;

static CUresult record_and_keep(CUcontext a, CUevent b) {
    recorded = b;
    return driver.cuCtxRecordEvent(a, b);
}

static CUresult launch_behind(CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e,
                              unsigned f, unsigned g, unsigned h, CUstream i, void **j,
                              void **k) {
    if (recorded)
        driver.cuStreamWaitEvent(i, recorded, 0);
    return driver.cuLaunchKernel(a, b, c, d, e, f, g, h, i, j, k);
}

static CUresult harmless_record(CUcontext a, CUevent b) {
    (void)a, (void)b;
    return CUDA_SUCCESS;
}

static CUresult no_wait(CUstream a, CUevent b, unsigned c) {
    (void)a, (void)b, (void)c;
    return CUDA_SUCCESS;
}

/* Contexts that were current when the events were made. */
static struct {
    CUevent event;
    CUcontext context;
} events[256];
static unsigned event_count;

static CUresult create_and_keep(CUevent *a, unsigned b) {
    CUresult result = driver.cuEventCreate(a, b);
    if (!result && event_count < 256) {
        events[event_count].event = *a;
        driver.cuCtxGetCurrent(&events[event_count++].context);
    }
    return result;
}

static CUresult context_asked(CUevent a) {
    CUcontext now;
    driver.cuCtxGetCurrent(&now);
    for (unsigned i = event_count; i-- > 0;)
        if (events[i].event == a)
            return events[i].context == now ? driver.cuEventQuery(a) : CUDA_ERROR_INVALID_CONTEXT;
    return driver.cuEventQuery(a);
}

/* Lie: every second launch ignores its stream. */
static CUresult plain_early(CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e,
                            unsigned f, unsigned g, unsigned h, CUstream i, void **j, void **k) {
    static CUstream busy;
    CUstream stream = i;
    if (i && busy == i)
        driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    busy = busy == i ? NULL : i;
    CUresult result = driver.cuLaunchKernel(a, b, c, d, e, f, g, h, stream, j, k);
    if (stream != i)
        driver.cuStreamSynchronize(stream);
    return result;
}

/* Lie: a programmatic launch begins early, which the simulated device never does. */
static CUresult early_indeed(const CUlaunchConfig *a, CUfunction b, void **c, void **d) {
    CUlaunchConfig config = *a;
    config.numAttrs = 0;
    driver.cuStreamCreate(&config.hStream, CU_STREAM_NON_BLOCKING);
    CUresult result = driver.cuLaunchKernelEx(&config, b, c, d);
    driver.cuStreamSynchronize(config.hStream);
    return result;
}

/* Lie: an event ignores the work of its stream. */
static CUresult event_apart(CUevent a, CUstream b) {
    (void)b;
    CUcontext now;
    driver.cuCtxGetCurrent(&now);
    return record_in(now, a, NULL);
}

static CUresult no_exchange(CUstreamCaptureMode *a) {
    (void)a;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- memory */

static CUresult whole_range(CUdeviceptr *a, size_t *b, CUdeviceptr c) {
    CUresult result = driver.cuMemGetAddressRange_v2(a, b, c);
    if (!result)
        *b = (*b + 4095) / 4096 * 4096;
    return result;
}

static CUresult whole_attribute(void *a, CUpointer_attribute b, CUdeviceptr c) {
    CUresult result = driver.cuPointerGetAttribute(a, b, c);
    if (!result && b == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        *(size_t *)a = (*(size_t *)a + 4095) / 4096 * 4096;
    return result;
}

static CUresult one_id(void *a, CUpointer_attribute b, CUdeviceptr c) {
    CUresult result = driver.cuPointerGetAttribute(a, b, c);
    if (!result && b == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        *(unsigned long long *)a = 7;
    return result;
}

static CUresult any_handle(CUdeviceptr *a, CUipcMemHandle b, unsigned c) {
    (void)b, (void)c;
    CUresult result = driver.cuMemAlloc_v2(a, 4096);
    return result ? result : driver.cuMemsetD8_v2(*a, 0, 4096);
}

static CUresult close_any(CUdeviceptr a) {
    return driver.cuMemFree_v2(a);
}

static CUmemGenericAllocationHandle mapped;

static CUresult mapped_once(CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d,
                            unsigned long long e) {
    CUresult result = d == mapped ? CUDA_ERROR_INVALID_VALUE : driver.cuMemMap(a, b, c, d, e);
    mapped = d;
    return result;
}

static CUresult forget_mapped(CUdeviceptr a, size_t b) {
    mapped = 0;
    CUresult result = driver.cuMemUnmap(a, b);
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

static CUresult pages_cleared(CUdeviceptr a, size_t b, const CUmemAccessDesc *c, size_t d) {
    CUresult result = driver.cuMemSetAccess(a, b, c, d);
    return result ? result : driver.cuMemsetD8_v2(a, 0, b);
}

static CUresult large_pages(size_t *a, const CUmemAllocationProp *b,
                            CUmemAllocationGranularity_flags c) {
    CUresult result = driver.cuMemGetAllocationGranularity(a, b, c);
    *a = (size_t)4 << 20;
    return result;
}

static CUresult no_rdma(CUmemGenericAllocationHandle *a, size_t b, const CUmemAllocationProp *c,
                        unsigned long long d) {
    return c->allocFlags.gpuDirectRDMACapable ? CUDA_ERROR_NOT_SUPPORTED
                                              : driver.cuMemCreate(a, b, c, d);
}

static CUresult waiting_create(CUmemGenericAllocationHandle *a, size_t b,
                               const CUmemAllocationProp *c, unsigned long long d) {
    driver.cuCtxSynchronize();
    return driver.cuMemCreate(a, b, c, d);
}

static CUresult waiting_map(CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d,
                            unsigned long long e) {
    driver.cuCtxSynchronize();
    return driver.cuMemMap(a, b, c, d, e);
}

static CUresult waiting_access(CUdeviceptr a, size_t b, const CUmemAccessDesc *c, size_t d) {
    driver.cuCtxSynchronize();
    return driver.cuMemSetAccess(a, b, c, d);
}

static CUresult waiting_release(CUmemGenericAllocationHandle a) {
    driver.cuCtxSynchronize();
    return driver.cuMemRelease(a);
}

/* Lie: unmapping is delayed until a later call. */
static struct {
    CUdeviceptr address;
    size_t bytes;
} late[64];
static unsigned late_count;

static CUresult late_unmap(CUdeviceptr a, size_t b) {
    late[late_count].address = a;
    late[late_count++].bytes = b;
    return CUDA_SUCCESS;
}

static void unmap_late(void) {
    while (late_count > 0) {
        late_count--;
        driver.cuMemUnmap(late[late_count].address, late[late_count].bytes);
    }
}

static CUresult late_synchronize(CUevent a) {
    CUresult result = driver.cuEventSynchronize(a);
    unmap_late();
    return result;
}

static CUresult late_launch(CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e,
                            unsigned f, unsigned g, unsigned h, CUstream i, void **j, void **k) {
    unmap_late();
    return driver.cuLaunchKernel(a, b, c, d, e, f, g, h, i, j, k);
}

static CUresult late_free(CUdeviceptr a, size_t b) {
    unmap_late();
    return driver.cuMemAddressFree(a, b);
}

/* ---------------------------------------------------------------- cuMemGetInfo */

static size_t kept, made, pooled;

static CUresult info_waits(size_t *a, size_t *b) {
    driver.cuCtxSynchronize();
    return driver.cuMemGetInfo_v2(a, b);
}

static CUresult info_apart(size_t *a, size_t *b) {
    CUresult result = driver.cuMemGetInfo_v2(a, b);
    *a = *a + made + pooled - kept;
    return result;
}

static CUresult freed_is_kept(CUdeviceptr a) {
    size_t bytes = 0;
    driver.cuMemGetAddressRange_v2(NULL, &bytes, a);
    kept += bytes;
    return driver.cuMemFree_v2(a);
}

static CUresult create_and_count(CUmemGenericAllocationHandle *a, size_t b,
                                 const CUmemAllocationProp *c, unsigned long long d) {
    CUresult result = driver.cuMemCreate(a, b, c, d);
    made += result ? 0 : b;
    return result;
}

static CUresult release_and_count(CUmemGenericAllocationHandle a) {
    made = 0; /* at the first of many releases in a row */
    return driver.cuMemRelease(a);
}

static CUresult pool_and_count(CUdeviceptr *a, size_t b, CUstream c) {
    CUresult result = driver.cuMemAllocAsync(a, b, c);
    pooled += result ? 0 : b;
    return result;
}

static CUresult trim_and_count(CUmemoryPool a, size_t b) {
    pooled = 0;
    return driver.cuMemPoolTrimTo(a, b);
}

static CUresult total_moves(size_t *a, size_t *b) {
    static size_t by;
    CUresult result = driver.cuMemGetInfo_v2(a, b);
    *b -= by;
    by += 4096;
    return result;
}

/* ---------------------------------------------------------------- choosing */

#define TELL(lie, symbol, function)                                                              \
    if (!strcmp(name, #lie))                                                                     \
        next.symbol = function;

static void choose(const char *name) {
    errors_renamed = !strcmp(name, "renamed_errors");
    next.cuGetProcAddress = look_up;
    next.cuGetProcAddress_v2 = look_up_2;
    TELL(other_address, cuGetProcAddress_v2, driver.cuGetProcAddress_v2)
    TELL(newest_version, cuGetProcAddress_v2, newest_version)
    TELL(no_twins, cuGetProcAddress_v2, no_twins)
    TELL(legacy_for_context, cuCtxRecordEvent, legacy_for_context)
    TELL(own_for_context, cuCtxRecordEvent, own_for_context)
    TELL(nothing_for_context, cuCtxRecordEvent, nothing_for_context)
    TELL(record_waits, cuCtxRecordEvent, record_waits)
    TELL(record_serialises, cuCtxRecordEvent, record_and_keep)
    TELL(record_serialises, cuLaunchKernel, launch_behind)
    TELL(whole_pages, cuMemGetAddressRange_v2, whole_range)
    TELL(whole_pages, cuPointerGetAttribute, whole_attribute)
    TELL(one_id, cuPointerGetAttribute, one_id)
    TELL(any_handle, cuIpcOpenMemHandle_v2, any_handle)
    TELL(any_handle, cuIpcCloseMemHandle, close_any)
    TELL(mapped_once, cuMemMap, mapped_once)
    TELL(mapped_once, cuMemUnmap, forget_mapped)
    TELL(pages_cleared, cuMemSetAccess, pages_cleared)
    TELL(large_pages, cuMemGetAllocationGranularity, large_pages)
    TELL(no_rdma, cuMemCreate, no_rdma)
    TELL(pages_wait, cuMemCreate, waiting_create)
    TELL(pages_wait, cuMemMap, waiting_map)
    TELL(pages_wait, cuMemSetAccess, waiting_access)
    TELL(pages_wait, cuMemRelease, waiting_release)
    TELL(late_unmap, cuMemUnmap, late_unmap)
    TELL(late_unmap, cuEventSynchronize, late_synchronize)
    TELL(late_unmap, cuLaunchKernel, late_launch)
    TELL(late_unmap, cuMemAddressFree, late_free)
    TELL(no_exchange, cuThreadExchangeStreamCaptureMode, no_exchange)
    TELL(harmless_record, cuCtxRecordEvent, harmless_record)
    TELL(no_wait, cuStreamWaitEvent, no_wait)
    TELL(context_asked, cuEventCreate, create_and_keep)
    TELL(context_asked, cuEventQuery, context_asked)
    TELL(early_indeed, cuLaunchKernelEx, early_indeed)
    TELL(event_apart, cuEventRecord, event_apart)
    TELL(plain_early, cuLaunchKernel, plain_early)
    TELL(info_waits, cuMemGetInfo_v2, info_waits)
    TELL(freed_is_kept, cuMemGetInfo_v2, info_apart)
    TELL(freed_is_kept, cuMemFree_v2, freed_is_kept)
    TELL(no_handles_counted, cuMemGetInfo_v2, info_apart)
    TELL(no_handles_counted, cuMemCreate, create_and_count)
    TELL(no_handles_counted, cuMemRelease, release_and_count)
    TELL(no_pools_counted, cuMemGetInfo_v2, info_apart)
    TELL(no_pools_counted, cuMemAllocAsync, pool_and_count)
    TELL(no_pools_counted, cuMemPoolTrimTo, trim_and_count)
    TELL(total_moves, cuMemGetInfo_v2, total_moves)
}

static void find(void *library, const char *symbol, void *slot) {
    void *found = dlsym(library, symbol);
    memcpy(slot, &found, sizeof found);
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("LIAR_DRIVER"), *lie = getenv("LIE");
    void *library = dlopen(path ? path : "", RTLD_NOW | RTLD_GLOBAL);
    Dl_info self;
    if (!library || !dladdr(names, &self))
        return;
    void *mine = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    for (int i = 0; i < FUNCTIONS; i++) {
        find(library, names[i], &real[i]);
        find(mine, names[i], &own[i]);
    }
#define CU_FN(symbol, name, since, mode, params, args) find(library, #symbol, &driver.symbol);
#include "device/cuda_functions.def"
#undef CU_FN
    memcpy(&next, &driver, sizeof next);
    choose(lie ? lie : "");
}
