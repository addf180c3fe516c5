/* A module of modules.c: a plugin of the driver alone, of a shared runtime, or with a static one in
 * it (MODULES_RUNTIME), and the program itself (MODULES_PROGRAM).  Compiled without tail calls,
 * which would hide who calls. */
#include <string.h>

#include "driver.h"
#include "modules.h"

static int by_driver(const char *how, size_t bytes, CUdeviceptr *pointer) {
    size_t pitch;
    CUmemoryPool pool = NULL;
    int result = -1;
    if (!strcmp(how, "cuMemAlloc"))
        result = cuMemAlloc_v2(pointer, bytes);
    else if (!strcmp(how, "cuMemAllocPitch"))
        result = cuMemAllocPitch_v2(pointer, &pitch, 512, bytes / 512, 4);
    else if (!strcmp(how, "cuMemAllocAsync"))
        result = cuMemAllocAsync(pointer, bytes, NULL);
    else if (!strcmp(how, "cuMemAllocFromPoolAsync") &&
             (result = cuDeviceGetDefaultMemPool(&pool, 0)) == 0)
        result = cuMemAllocFromPoolAsync(pointer, bytes, pool, NULL);
    return result;
}

#ifdef MODULES_RUNTIME
#include "cuda_runtime_min.h"

static int by_runtime(const char *how, size_t bytes, void **pointer) {
    size_t pitch;
    cudaMemPool_t pool = NULL;
    int result = -1;
    if (!strcmp(how, "cudaMalloc")) {
        result = (int)cudaMalloc(pointer, bytes);
    } else if (!strcmp(how, "cudaMallocPitch")) {
        result = (int)cudaMallocPitch(pointer, &pitch, 512, bytes / 512);
    } else if (!strcmp(how, "cudaMalloc3D")) {
        struct cudaPitchedPtr pitched = {0};
        struct cudaExtent extent = {512, bytes / 512, 1};
        result = (int)cudaMalloc3D(&pitched, extent);
        *pointer = pitched.ptr;
    } else if (!strcmp(how, "cudaMallocAsync")) {
        result = (int)cudaMallocAsync(pointer, bytes, NULL);
    } else if (!strcmp(how, "cudaMallocFromPoolAsync") &&
               (result = (int)cudaDeviceGetDefaultMemPool(&pool, 0)) == 0) {
        result = (int)cudaMallocFromPoolAsync(pointer, bytes, pool, NULL);
    }
    return result;
}
#endif

static int take(const char *how, size_t bytes, void **pointer) {
    CUdeviceptr address = 0;
    int result = by_driver(how, bytes, &address);
    *pointer = (void *)address;
#ifdef MODULES_RUNTIME
    if (result == -1)
        result = by_runtime(how, bytes, pointer);
#endif
    return result;
}

static int release(void *pointer) {
#ifdef MODULES_RUNTIME
    int result = (int)cudaFree(pointer);
#else
    int result = cuMemFree_v2((CUdeviceptr)pointer);
#endif
    return result;
}

static int release_async(void *pointer) {
#ifdef MODULES_RUNTIME
    int result = (int)cudaFreeAsync(pointer, NULL);
#else
    int result = cuMemFreeAsync((CUdeviceptr)pointer, NULL);
#endif
    return result;
}

#ifdef MODULES_PROGRAM
extern const modules_plugin_t modules_self;
const modules_plugin_t modules_self = {take, release, release_async};
#else
extern const modules_plugin_t plugin;
const modules_plugin_t plugin = {take, release, release_async};
#endif
