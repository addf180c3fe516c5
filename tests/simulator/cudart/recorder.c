/* A libcuda.so.1 that records its calls and does almost nothing else. A test compares the
 * stand-in's calls of the driver with recorded ones.
 *
 * RECORDER_OLD builds a driver from before cuGetProcAddress, which has only exported symbols.
 * RECORDER_LACKS lists functions, by their queried names and separated by commas, that this
 * driver does not have. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_abi.h"

#include "recorder.h"

#define EXPORT __attribute__((visibility("default")))

static struct recorded calls[RECORDER_CALLS];
static size_t count;

EXPORT size_t recorder_calls(const struct recorded **out) {
    *out = calls;
    return count;
}

static void record(enum recorder_way way, const char *name, int version, cuuint64_t flags,
                   bool status) {
    if (count < RECORDER_CALLS) {
        struct recorded *c = &calls[count++];
        c->way = way;
        c->version = version;
        c->flags = flags;
        c->status = status;
        snprintf(c->name, sizeof c->name, "%s", name);
    }
}

static int context; /* the only one; its address is its handle */
static CUcontext current;
static int failures_of_alloc;

EXPORT CUresult cuInit(unsigned flags) {
    record(CALLED, "cuInit", 0, flags, false);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    record(CALLED, "cuDriverGetVersion", 0, 0, false);
    *version = 13000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *n) {
    *n = 1;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
    record(CALLED, "cuDevicePrimaryCtxRetain", device, 0, false);
    *out = (CUcontext)(void *)&context;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
    current = c;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *c) {
    *c = current;
    return CUDA_SUCCESS;
}

/* The old 32-bit ABI: no call may end up here. */
EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *out, unsigned bytes) {
    (void)out, (void)bytes;
    record(CALLED, "cuMemAlloc", 0, 0, false);
    return CUDA_ERROR_UNKNOWN;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    record(CALLED, "cuMemAlloc_v2", 0, bytes, false);
    if (failures_of_alloc > 0) {
        failures_of_alloc--;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = 0x7000;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    record(CALLED, "cuMemFree_v2", 0, pointer, false);
    return CUDA_SUCCESS;
}

EXPORT void recorder_fail_alloc(int times) {
    failures_of_alloc = times;
}

#ifndef RECORDER_OLD
typedef void (*function)(void);
static CUresult query_through_itself(const char *name, void **out, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status);

static const struct {
    const char *name;
    function address;
} table[] = {
    {"cuInit", (function)cuInit},
    {"cuDriverGetVersion", (function)cuDriverGetVersion},
    {"cuDeviceGetCount", (function)cuDeviceGetCount},
    {"cuDeviceGet", (function)cuDeviceGet},
    {"cuDevicePrimaryCtxRetain", (function)cuDevicePrimaryCtxRetain},
    {"cuCtxSetCurrent", (function)cuCtxSetCurrent},
    {"cuCtxGetCurrent", (function)cuCtxGetCurrent},
    {"cuMemAlloc", (function)cuMemAlloc_v2},
    {"cuMemFree", (function)cuMemFree_v2},
    {"cuGetProcAddress", (function)query_through_itself},
};

static bool lacks(const char *name) {
    const char *list = getenv("RECORDER_LACKS");
    char key[128];
    snprintf(key, sizeof key, ",%s,", name);
    return list != NULL && strstr(list, key) != NULL;
}

static CUresult answer(const char *name, void **out) {
    *out = NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0] && !lacks(name); i++) {
        if (strcmp(table[i].name, name) == 0) {
            memcpy(out, &table[i].address, sizeof *out);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* The function that the exported cuGetProcAddress_v2 returns for the name "cuGetProcAddress". */
static CUresult query_through_itself(const char *name, void **out, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult *status) {
    record(ASKED_THROUGH_ITSELF, name, version, flags, status != NULL);
    return answer(name, out);
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status) {
    record(ASKED, name, version, flags, status != NULL);
    return answer(name, out);
}
#endif
