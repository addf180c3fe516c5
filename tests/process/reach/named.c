/* Keeps the driver's functions in exported variables of their names, as public loaders do.  With NAMED_EARLY its
 * constructor fills one of them. */
#include "named.h"

CUresult named_missing(CUdeviceptr address) {
    (void)address;
    return CUDA_ERROR_NOT_FOUND;
}

NAMED(, = named_missing)

int named_load(void) {
    if (cuInit)
        return 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver)
        return 1;
    cuInit = FUNCTION(cuInit_fn, dlsym(driver, "cuInit"));
    cuDevicePrimaryCtxRetain =
        FUNCTION(cuDevicePrimaryCtxRetain_fn, dlsym(driver, "cuDevicePrimaryCtxRetain"));
    cuCtxSetCurrent = FUNCTION(cuCtxSetCurrent_fn, dlsym(driver, "cuCtxSetCurrent"));
    cuMemAlloc_v2 = FUNCTION(cuMemAlloc_v2_fn, dlsym(driver, "cuMemAlloc_v2"));
    cuMemFree_v2 = FUNCTION(cuMemFree_v2_fn, dlsym(driver, "cuMemFree_v2"));
    return 0;
}

int named_use(void);
int named_use(void) {
    NAMED_SAY("library");
    if (named_load())
        return 1;
    NAMED_SAY("library loaded");
    driver_t driver = NAMED_DRIVER;
    return exercise(&driver);
}

#ifdef NAMED_EARLY
__attribute__((constructor)) static void early(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cuInit = driver ? FUNCTION(cuInit_fn, dlsym(driver, "cuInit")) : NULL;
    cuInit = NULL; /* again by named_load */
    NAMED_SAY("constructor");
}
#endif

/* Where the program offers a place for it, no lookup of its own finds the function. */
extern int (*named_registered)(void) __attribute__((weak));
__attribute__((constructor)) static void offer(void) {
    if (&named_registered)
        named_registered = named_use;
}
