/* The library without a preload: linked into the program (CARRIED_LINKED), or opened by it.
 * usage: carried [LIBRARY]; linked: carried [api|lookup], what it calls first */
#include "accelcache.h"
#include "reach.h"

#ifdef CARRIED_LINKED
cuInit_fn cuInit;
cuGetProcAddress_v2_fn cuGetProcAddress_v2;
cuDevicePrimaryCtxRetain_fn cuDevicePrimaryCtxRetain;
cuCtxSetCurrent_fn cuCtxSetCurrent;
cuMemAlloc_v2_fn cuMemAlloc_v2;
cuMemFree_v2_fn cuMemFree_v2;

int main(int argc, char **argv) {
    void *found = NULL;
    if (argc > 1 && !strcmp(argv[1], "api"))
        printf("devices: %d\n", accel_device_count());
    else if (argc > 1)
        printf("lookup: %u\n", cuGetProcAddress_v2("cuInit", &found, 12000, 0, NULL));
    static const driver_t driver = {cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent,
                                    cuMemAlloc_v2, cuMemFree_v2};
    say("linked", ADDRESS(cuMemAlloc_v2));
    look("default", RTLD_DEFAULT, "cuMemAlloc_v2", dlsym);
    return exercise(&driver);
}
#else
int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        printf("not opened: %s\n", argc > 1 ? dlerror() : "no name given");
        return 1;
    }
    void *real = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (real)
        look("driver", real, "cuMemAlloc_v2", dlsym);
    look("default", RTLD_DEFAULT, "cuMemAlloc_v2", dlsym);
    driver_t driver = {
        FUNCTION(cuInit_fn, dlsym(library, "cuInit")),
        FUNCTION(cuDevicePrimaryCtxRetain_fn, dlsym(library, "cuDevicePrimaryCtxRetain")),
        FUNCTION(cuCtxSetCurrent_fn, dlsym(library, "cuCtxSetCurrent")),
        FUNCTION(cuMemAlloc_v2_fn, look("library", library, "cuMemAlloc_v2", dlsym)),
        FUNCTION(cuMemFree_v2_fn, dlsym(library, "cuMemFree_v2"))};
    return exercise(&driver);
}
#endif
