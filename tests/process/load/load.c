/* The library gets into a process in three ways: preloaded, linked, opened by dlopen.
 * usage: load preloaded | linked | opened LIBRARY
 *
 * Preloaded or linked it serves the program's second allocation from its cache.  Opened it comes
 * too late to catch the program's lookups: it must then stay out of the way, and close again. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_abi.h"

static void *find(void *handle, const char *name) {
    void *symbol = dlsym(handle, name);
    if (!symbol) {
        fprintf(stderr, "load: no %s\n", name);
        exit(1);
    }
    return symbol;
}

static int expect(const char *what, long long value, long long wanted) {
    if (value != wanted)
        fprintf(stderr, "load: %s is %lld, not %lld\n", what, value, wanted);
    return value != wanted;
}

/* Two allocations of one size, each freed: how many of them the driver saw. */
static unsigned long long driver_allocations(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "load: %s\n", dlerror());
        exit(1);
    }
    cuInit_fn *init;
    cuDevicePrimaryCtxRetain_fn *retain;
    cuCtxSetCurrent_fn *set_current;
    cuMemAlloc_v2_fn *alloc;
    cuMemFree_v2_fn *release;
    unsigned long long (*calls)(const char *);
    *(void **)&init = find(driver, "cuInit");
    *(void **)&retain = find(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set_current = find(driver, "cuCtxSetCurrent");
    *(void **)&alloc = find(driver, "cuMemAlloc_v2");
    *(void **)&release = find(driver, "cuMemFree_v2");
    *(void **)&calls = find(driver, "simcuda_calls");
    CUcontext context;
    CUdeviceptr block;
    if (init(0) || retain(&context, 0) || set_current(context)) {
        fprintf(stderr, "load: no device\n");
        exit(1);
    }
    for (int i = 0; i < 2; i++) {
        if (alloc(&block, 1 << 20) || release(block)) {
            fprintf(stderr, "load: allocation failed\n");
            exit(1);
        }
    }
    return calls("cuMemAlloc_v2");
}

int main(int argc, char **argv) {
    int opened = argc > 2 && !strcmp(argv[1], "opened");
    void *library = opened ? dlopen(argv[2], RTLD_NOW) : RTLD_DEFAULT;
    if (opened && !library) {
        fprintf(stderr, "load: %s\n", dlerror());
        return 1;
    }
    int (*initialized)(void);
    *(void **)&initialized = find(library, "accel_initialized");
    int failed = expect("accel_initialized before CUDA", initialized(), 0);
    failed +=
        expect("allocations by the driver", (long long)driver_allocations(), opened ? 2 : 1);
    failed += expect("accel_initialized after CUDA", initialized(), !opened);
    if (opened)
        failed += expect("dlclose", dlclose(library), 0);
    return failed ? 1 : 0;
}
