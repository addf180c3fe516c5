/* A plugin linked with the driver, opened by host.c; under the name libucm_reach.so it stands
 * for a library whose lookups must get the real functions. */
#include "reach.h"

cuInit_fn cuInit;
cuDevicePrimaryCtxRetain_fn cuDevicePrimaryCtxRetain;
cuCtxSetCurrent_fn cuCtxSetCurrent;
cuMemAlloc_v2_fn cuMemAlloc_v2;
cuMemFree_v2_fn cuMemFree_v2;

void plugin_lookups(void);
int plugin_use(void);
int plugin_dependency(void);
int plugin_own_symbol = 7;

static const char *const names[] = {"cuMemAlloc_v2",    "cuLaunchKernel", "cuGetProcAddress_v2",
                                    "cuDeviceGetCount", "cuNothing",      "plugin_own_symbol"};

void plugin_lookups(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        look("plugin default", RTLD_DEFAULT, names[i], dlsym);
        look("plugin next", RTLD_NEXT, names[i], dlsym);
        look("plugin handle", driver, names[i], dlsym);
    }
}

int plugin_use(void) {
    static const driver_t driver = {cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent,
                                    cuMemAlloc_v2, cuMemFree_v2};
    say("plugin cuMemAlloc_v2", ADDRESS(cuMemAlloc_v2));
    return exercise(&driver);
}

/* Found only along the RUNPATH of this plugin, so only if dlopen knows who asks. */
int plugin_dependency(void) {
    void *handle = dlopen("libreach_dependency.so", RTLD_NOW);
    printf("dependency: %s\n", handle ? "found" : "not found");
    return !handle;
}
