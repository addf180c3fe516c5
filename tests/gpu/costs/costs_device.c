/* gpu_costs: the driver and the clocks.
 *
 * The driver is opened at run time.  Its functions are looked up in the whole process, so that a
 * preloaded library comes first. */
#include "costs.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

costs_driver_t cu;
CUcontext costs_context;
CUfunction costs_noop;
bool costs_pools, costs_vmm;

static __typeof__(&simcuda_now) simulated_now;

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry costs_noop() { ret; }\n";

static void find(const char *name, void *slot) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
}

double costs_wall(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

double costs_clock(void) {
    return simulated_now ? (double)simulated_now() : costs_wall();
}

/* Gives the kernel no duration on the simulated device, so that later calls do not wait for it. */
static void describe_kernel(void) {
    __typeof__(&simcuda_register_kernel) register_kernel;
    const simcuda_kernel_t kernel = {.name = "costs_noop"};
    find("simcuda_register_kernel", &register_kernel);
    if (register_kernel)
        register_kernel(&kernel);
}

static bool load_driver(void) {
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return false;
#define DRIVER(symbol) find(#symbol, &cu.symbol);
#include "costs_driver.def"
#undef DRIVER
    find("simcuda_now", &simulated_now);
    return cu.cuInit && cu.cuDeviceGetCount && cu.cuDeviceGet && cu.cuDeviceGetName &&
           cu.cuDevicePrimaryCtxRetain && cu.cuCtxSetCurrent && cu.cuDeviceGetAttribute &&
           cu.cuDriverGetVersion;
}

static bool has(CUdevice device, CUdevice_attribute attribute) {
    int value = 0;
    return !cu.cuDeviceGetAttribute(&value, attribute, device) && value;
}

bool costs_open(char *name, size_t room, int *version) {
    CUdevice device;
    CUmodule module;
    int count = 0;
    if (!load_driver() || cu.cuInit(0) || cu.cuDeviceGetCount(&count) || !count)
        return false;
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDeviceGetName(name, (int)room, device));
    MUST(cu.cuDriverGetVersion(version));
    MUST(cu.cuDevicePrimaryCtxRetain(&costs_context, device));
    MUST(cu.cuCtxSetCurrent(costs_context));
    costs_pools = has(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) && cu.cuMemAllocAsync &&
                  cu.cuMemFreeAsync && cu.cuMemPoolSetAttribute && cu.cuMemPoolTrimTo &&
                  cu.cuDeviceGetDefaultMemPool;
    costs_vmm = has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
                cu.cuMemCreate && cu.cuMemRelease && cu.cuMemMap && cu.cuMemUnmap &&
                cu.cuMemSetAccess && cu.cuMemAddressReserve && cu.cuMemAddressFree;
    describe_kernel();
    MUST(cu.cuModuleLoadData(&module, ptx));
    MUST(cu.cuModuleGetFunction(&costs_noop, module, "costs_noop"));
    return true;
}
