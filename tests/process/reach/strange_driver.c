/* A libcuda.so.1 with the oddities that a real one could have: functions that only
 * cuGetProcAddress knows, two symbols of one address, functions newer than our tables, lookups
 * of its own.  Linked with the old hash table only. */
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

#include "device/cuda_abi.h"
#include "strange_driver.h"

#define NEWER 20000 /* a CUDA version that no table of ours knows */

cuInit_fn cuInit;
cuDeviceGetCount_fn cuDeviceGetCount;
cuDeviceComputeCapability_fn cuDeviceComputeCapability;
cuDriverGetVersion_fn cuDriverGetVersion;
cuMemAlloc_v2_fn cuMemAlloc_v2;
cuMemFreeAsync_fn cuMemFreeAsync, cuMemFreeAsync_ptsz;
cuGetProcAddress_v2_fn cuGetProcAddress_v2;
cuGetExportTable_fn cuGetExportTable;
CUresult cuFutureLaunch(void);
CUresult cuProfilerStart(void);
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuFutureCtxMake(void);
strange_arguments_fn cuFutureArguments;
strange_doubles_fn cuFutureDoubles;
extern int cuFutureData;
void *strange_lookup(const char *name);

CUresult cuInit(unsigned flags) {
    return flags;
}

CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    *major = *minor = device;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    *version = NEWER;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    *pointer = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
    (void)stream;
    return (CUresult)pointer;
}
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
    __attribute__((alias("cuMemFreeAsync")));

CUresult cuFutureLaunch(void) {
    return CUDA_SUCCESS;
}

int cuFutureData = 5;

/* Each argument has a place of its own in the result. */
double cuFutureArguments(bool *noticed, bool (*is_noticed)(void), int a, uint64_t b,
                         const double *c, int d, int e, uint64_t f, double r, double s, float t,
                         double u, double v, double w, double x, double y, double z,
                         strange_value_t by_value) {
    *noticed = is_noticed();
    double sum = 0;
    const double all[] = {a,
                          (double)b,
                          *c,
                          d,
                          e,
                          (double)f,
                          r,
                          s,
                          (double)t,
                          u,
                          v,
                          w,
                          x,
                          y,
                          z,
                          by_value.at[0],
                          by_value.at[1],
                          by_value.at[2]};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        sum += all[i] * (i + 1);
    return sum;
}

double cuFutureDoubles(int count, ...) {
    double sum = 0;
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        sum += (i + 1) * va_arg(list, double);
    va_end(list);
    return sum;
}

CUresult cuProfilerStart(void) {
    return CUDA_SUCCESS;
}

CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    *context = (CUcontext)context;
    return flags + (CUresult)device;
}

CUresult cuFutureCtxMake(void) {
    return CUDA_SUCCESS;
}

/* No symbols lead here: as if the driver handed out entries of its own. */
static CUresult hidden_mem_free(CUdeviceptr pointer) {
    return pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult hidden_get_name(char *name, int length, CUdevice device) {
    if (length > 0)
        name[0] = (char)('0' + device);
    return CUDA_SUCCESS;
}
static CUresult hidden_vdpau(CUcontext *context, unsigned flags, CUdevice device,
                             unsigned vdp_device, void *vdp_lookup) {
    *context = vdp_lookup;
    return flags + (CUresult)device + vdp_device;
}
static CUresult hidden_ctx_create(CUcontext *context) {
    *context = NULL;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    void *found = NULL;
    if (!strcmp(name, "cuMemFree"))
        found = __extension__(void *) hidden_mem_free;
    else if (!strcmp(name, "cuDeviceGetName"))
        found = __extension__(void *) hidden_get_name;
    else if (!strcmp(name, "cuCtxCreate") && version == NEWER)
        found = __extension__(void *) hidden_ctx_create;
    else if (!strcmp(name, "cuMemFreeAsync"))
        found = __extension__(void *) cuMemFreeAsync;
    else if (!strcmp(name, "cuMemAlloc"))
        found = __extension__(void *) cuMemAlloc_v2;
    else if (!strcmp(name, "cuFutureLaunch") || !strncmp(name, "cuEGLStream", 11))
        found = __extension__(void *) cuFutureLaunch;
    else if (!strcmp(name, "cuFutureArguments") || !strcmp(name, "cuFutureCtxArguments"))
        found = __extension__(void *) cuFutureArguments;
    else if (!strcmp(name, "cuGLCtxCreate"))
        found = __extension__(void *) cuGLCtxCreate_v2;
    else if (!strcmp(name, "cuVDPAUCtxCreate"))
        found = __extension__(void *) hidden_vdpau;
    else if (!strcmp(name, "cuProfilerStart"))
        found = __extension__(void *) cuProfilerStart;
    *function = found;
    if (status)
        *status = found ? 0 : 1;
    return flags == 77 ? CUDA_ERROR_INVALID_VALUE : found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Any table but that of all zeros. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    static const CUuuid none;
    *table = id;
    return memcmp(id, &none, sizeof none) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* What the driver itself gets when it looks a symbol of its own up. */
void *strange_lookup(const char *name) {
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *volatile found = self ? dlsym(self, name) : NULL; /* no tail call: stay the caller */
    return found;
}
