/* What the programs of this folder share: say where a function lies, and use the driver.
 *
 * Every looked-up address is printed as "label -> place:symbol"; reach.py compares the lines
 * of a run under the library with those of a bare run. */
#ifndef REACH_H
#define REACH_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_abi.h"

/* ISO C knows no conversion between object and function pointers; POSIX promises it. */
#define FUNCTION(type, address) (__extension__(type *)(address))
#define ADDRESS(function)       (__extension__(void *)(function))

static inline void say(const char *label, const void *address) {
    Dl_info info;
    if (!address) {
        printf("%s -> null\n", label);
        return;
    }
    if (!dladdr(address, &info) || !info.dli_fname) {
        printf("%s -> unknown\n", label);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    const char *file = slash ? slash + 1 : info.dli_fname;
    const char *symbol = info.dli_sname && info.dli_saddr == address ? info.dli_sname : "?";
    if (!strncmp(file, "libaccelcache.so", 16))
        file = "shim";
    else if (!strncmp(file, "libcuda.so", 10))
        file = "driver";
    printf("%s -> %s:%s\n", label, file, symbol);
}

/* The outcome of a lookup and what dlerror() says of it, without the names of files. */
static inline void *look(const char *how, void *handle, const char *name,
                         void *(*lookup)(void *, const char *)) {
    char label[160];
    dlerror();
    void *found = lookup(handle, name);
    const char *error = dlerror(), *cause = error ? strstr(error, "undefined symbol") : NULL;
    snprintf(label, sizeof(label), "%s %s", how, name);
    say(label, found);
    if (error)
        printf("  %s\n", cause ? cause : error);
    return found;
}

typedef struct {
    cuInit_fn *init;
    cuDevicePrimaryCtxRetain_fn *retain;
    cuCtxSetCurrent_fn *set_current;
    cuMemAlloc_v2_fn *alloc;
    cuMemFree_v2_fn *free;
} driver_t;

/* Two allocations and two frees; 0 if all calls succeeded. */
static inline int exercise(const driver_t *driver) {
    CUcontext context = NULL;
    CUdeviceptr a = 0, b = 0;
    unsigned results[] = {driver->init(0),
                          driver->retain(&context, 0),
                          driver->set_current(context),
                          driver->alloc(&a, 1 << 20),
                          driver->alloc(&b, 1000),
                          driver->free(a),
                          driver->free(b)};
    int failed = !a || !b || a == b;
    for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (results[i]) {
            printf("call %u: error %u\n", i, results[i]);
            failed = 1;
        }
    }
    printf("used the driver: %s\n", failed ? "failed" : "ok");
    return failed;
}

#endif
