/* Tells the simulated device's race detector about lifetimes as the program sees them.
 *
 * Preloaded before libaccelcache.so: what the program allocates and frees passes here first, so
 * the blocks that the cache cuts from its segments have owners too.  A lifetime begins after
 * the allocation returned and ends before the free is passed on: in between the memory can
 * have no other owner.  Functions that a program fetches with cuGetProcAddress or by dlsym
 * with a library's handle do not pass here.  Without the simulated device this only forwards. */
#include <dlfcn.h>
#include <stdbool.h>

#include "device/cuda_abi.h"

typedef int cudaError_t;

static void (*begin_)(CUdeviceptr, size_t);
static size_t (*end_)(CUdeviceptr);

/* The runtime calls the driver: only the outermost call counts. */
static _Thread_local int depth __attribute__((tls_model("initial-exec")));

#define LOAD(function) __atomic_load_n(&(function), __ATOMIC_ACQUIRE)

static void find(void *handle, const char *name, void *slot) {
    void *found = dlsym(handle, name);
    __atomic_store_n((void **)slot, found, __ATOMIC_RELEASE); /* by any thread, the same value */
}

static bool told(void) {
    if (!LOAD(begin_)) {
        find(RTLD_DEFAULT, "simcuda_owner_end", &end_);
        find(RTLD_DEFAULT, "simcuda_owner_begin", &begin_);
    }
    return LOAD(begin_) && LOAD(end_);
}

static void began(CUdeviceptr address, size_t bytes, bool good) {
    if (good && !depth && told())
        LOAD(begin_)(address, bytes);
}

static size_t ended(CUdeviceptr address) {
    return !depth && told() ? LOAD(end_)(address) : 0;
}

/* Restores the owner of memory if the driver refused the free. */
static void ended_not(CUdeviceptr address, size_t bytes, bool good) {
    if (!good && bytes)
        LOAD(begin_)(address, bytes);
}

#define EXPORT __attribute__((visibility("default")))

#define ALLOC(result_t, name, params, args, bytes)                                               \
    EXPORT result_t name params;                                                                 \
    EXPORT result_t name params {                                                                \
        static result_t(*next) params;                                                           \
        if (!LOAD(next))                                                                         \
            find(RTLD_NEXT, #name, &next);                                                       \
        if (!LOAD(next))                                                                         \
            return 999;                                                                          \
        depth++;                                                                                 \
        result_t result = LOAD(next) args;                                                       \
        depth--;                                                                                 \
        if (!result && out)                                                                      \
            began((CUdeviceptr)*out, bytes, true);                                               \
        return result;                                                                           \
    }

#define FREE(result_t, name, params, args)                                                       \
    EXPORT result_t name params;                                                                 \
    EXPORT result_t name params {                                                                \
        static result_t(*next) params;                                                           \
        if (!LOAD(next))                                                                         \
            find(RTLD_NEXT, #name, &next);                                                       \
        if (!LOAD(next))                                                                         \
            return 999;                                                                          \
        size_t had = ended((CUdeviceptr)memory);                                                 \
        depth++;                                                                                 \
        result_t result = LOAD(next) args;                                                       \
        depth--;                                                                                 \
        ended_not((CUdeviceptr)memory, had, !result);                                            \
        return result;                                                                           \
    }

#define DRIVER_ALLOC(name, params, args, bytes) ALLOC(CUresult, name, params, args, bytes)

DRIVER_ALLOC(cuMemAlloc_v2, (CUdeviceptr * out, size_t size), (out, size), size)
DRIVER_ALLOC(cuMemAllocPitch_v2,
             (CUdeviceptr * out, size_t *pitch, size_t width, size_t rows, unsigned element),
             (out, pitch, width, rows, element), *pitch *rows)
DRIVER_ALLOC(cuMemAllocAsync, (CUdeviceptr * out, size_t size, CUstream stream),
             (out, size, stream), size)
DRIVER_ALLOC(cuMemAllocAsync_ptsz, (CUdeviceptr * out, size_t size, CUstream stream),
             (out, size, stream), size)
DRIVER_ALLOC(cuMemAllocFromPoolAsync,
             (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream),
             (out, size, pool, stream), size)
DRIVER_ALLOC(cuMemAllocFromPoolAsync_ptsz,
             (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream),
             (out, size, pool, stream), size)
DRIVER_ALLOC(cuMemHostAlloc, (void **out, size_t size, unsigned flags), (out, size, flags), size)
DRIVER_ALLOC(cuMemAllocHost_v2, (void **out, size_t size), (out, size), size)
FREE(CUresult, cuMemFreeHost, (void *memory), (memory))
FREE(CUresult, cuMemFree_v2, (CUdeviceptr memory), (memory))
FREE(CUresult, cuMemFreeAsync, (CUdeviceptr memory, CUstream stream), (memory, stream))
FREE(CUresult, cuMemFreeAsync_ptsz, (CUdeviceptr memory, CUstream stream), (memory, stream))

#define RUNTIME_ALLOC(name, params, args, bytes) ALLOC(cudaError_t, name, params, args, bytes)

RUNTIME_ALLOC(cudaMalloc, (void **out, size_t size), (out, size), size)
RUNTIME_ALLOC(cudaMallocPitch, (void **out, size_t *pitch, size_t width, size_t rows),
              (out, pitch, width, rows), *pitch *rows)
RUNTIME_ALLOC(cudaMallocAsync, (void **out, size_t size, void *stream), (out, size, stream), size)
RUNTIME_ALLOC(cudaMallocAsync_ptsz, (void **out, size_t size, void *stream), (out, size, stream),
              size)
RUNTIME_ALLOC(cudaMallocFromPoolAsync, (void **out, size_t size, void *pool, void *stream),
              (out, size, pool, stream), size)
RUNTIME_ALLOC(cudaMallocFromPoolAsync_ptsz, (void **out, size_t size, void *pool, void *stream),
              (out, size, pool, stream), size)
RUNTIME_ALLOC(cudaMallocHost, (void **out, size_t size), (out, size), size)
RUNTIME_ALLOC(cudaHostAlloc, (void **out, size_t size, unsigned flags), (out, size, flags), size)
FREE(cudaError_t, cudaFreeHost, (void *memory), (memory))
FREE(cudaError_t, cudaFree, (void *memory), (memory))
FREE(cudaError_t, cudaFreeAsync, (void *memory, void *stream), (memory, stream))
FREE(cudaError_t, cudaFreeAsync_ptsz, (void *memory, void *stream), (memory, stream))
