/* A plugin of runtimes.c, built once for each version of the runtime.  Compiled without tail
 * calls, which would hide who calls the runtime. */
#include "runtimes.h"

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaSetDevice(int device);
int cudaGetLastError(void);
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                            unsigned *status);

static int get_entry(const char *name, void **function) {
    unsigned status = 0;
    int result = cudaGetDriverEntryPoint(name, function, 0, &status);
    return result;
}

static int allocate(void **pointer, size_t bytes) {
    int result = cudaMalloc(pointer, bytes);
    return result;
}

static int release(void *pointer) {
    int result = cudaFree(pointer);
    return result;
}

static int set_device(int device) {
    int result = cudaSetDevice(device);
    return result;
}

extern const plugin_t plugin;
const plugin_t plugin = {allocate, release, set_device, cudaGetLastError, get_entry};
