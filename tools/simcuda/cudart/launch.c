/* Launches: the <<<...>>> configuration between push and pop, kernels by host stub or handle, and
 * queries about kernels.  The array of argument pointers is passed on unchanged. */
#include <string.h>

#include "internal.h"

/* ---------------------------------------------------------------- configuration */
/* Code of nvcc pushes the configuration before it evaluates the arguments.  These may launch
 * kernels themselves, so the configurations form a stack. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    struct simrt_thread *thread = &simrt_thread;
    if (thread->configurations == RT_MAX_CONFIGURATIONS) {
        (void)simrt_fail(cudaErrorInvalidConfiguration);
        return 1;
    }
    thread->configuration[thread->configurations++] =
        (struct simrt_configuration){grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    struct simrt_thread *thread = &simrt_thread;
    if (thread->configurations == 0) {
        return simrt_fail(cudaErrorMissingConfiguration);
    }
    struct simrt_configuration *c = &thread->configuration[--thread->configurations];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    memcpy(stream, &c->stream, sizeof c->stream);
    return cudaSuccess;
}

/* ---------------------------------------------------------------- launching */
struct launch {
    dim3 grid, block;
    void **args;
    size_t shared;
    cudaStream_t stream;
    bool cooperative;
};

static bool empty(dim3 d) {
    return d.x == 0 || d.y == 0 || d.z == 0;
}

static CUresult start(CUfunction f, const struct launch *l, enum simrt_mode mode) {
    if (empty(l->grid) || empty(l->block) || l->shared > UINT32_MAX) {
        return (CUresult)cudaErrorInvalidConfiguration;
    }
    unsigned shared = (unsigned)l->shared;
    return l->cooperative
               ? RT_BY_MODE(mode, cuLaunchCooperativeKernel,
                            ptsz)(f, l->grid.x, l->grid.y, l->grid.z, l->block.x, l->block.y,
                                  l->block.z, shared, l->stream, l->args)
               : RT_BY_MODE(mode, cuLaunchKernel, ptsz)(f, l->grid.x, l->grid.y, l->grid.z,
                                                        l->block.x, l->block.y, l->block.z,
                                                        shared, l->stream, l->args, NULL);
}

/* Finds the function of a host stub in the current context. */
static CUresult resolve(const void *host, CUfunction *f) {
    struct simrt_function *function = simrt_function_find(host);
    return function == NULL ? (CUresult)cudaErrorInvalidDeviceFunction
                            : simrt_function_load(function, f);
}

static CUresult launch_by_host(const void *host, struct launch l, enum simrt_mode mode) {
    CUfunction f = NULL;
    CUresult result = resolve(host, &f);
    return result == CUDA_SUCCESS ? start(f, &l, mode) : result;
}

#define LAUNCH(cooperative) ((struct launch){grid, block, args, shared, stream, cooperative})

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream) {
    RT_CALL(simrt_enter, launch_by_host(host, LAUNCH(false), RT_LEGACY));
}

cudaError_t cudaLaunchKernel_ptsz(const void *host, dim3 grid, dim3 block, void **args,
                                  size_t shared, cudaStream_t stream) {
    RT_CALL(simrt_enter, launch_by_host(host, LAUNCH(false), RT_PER_THREAD));
}

cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **args,
                                        size_t shared, cudaStream_t stream) {
    RT_CALL(simrt_enter, launch_by_host(host, LAUNCH(true), RT_LEGACY));
}

cudaError_t cudaLaunchCooperativeKernel_ptsz(const void *host, dim3 grid, dim3 block, void **args,
                                             size_t shared, cudaStream_t stream) {
    RT_CALL(simrt_enter, launch_by_host(host, LAUNCH(true), RT_PER_THREAD));
}

#if RT_MAJOR >= 12
/* Handles of nvcc's launch code are records of this runtime, because they exist before any
 * context. */
cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *host) {
    struct simrt_function *function = simrt_function_find(host);
    if (out == NULL || function == NULL) {
        return simrt_fail(out == NULL ? cudaErrorInvalidValue : cudaErrorSymbolNotFound);
    }
    *out = (cudaKernel_t)(void *)function;
    return cudaSuccess;
}

static CUresult launch_by_handle(cudaKernel_t kernel, struct launch l, enum simrt_mode mode) {
    struct simrt_function *function = (struct simrt_function *)(void *)kernel;
    CUfunction f = NULL;
    if (!simrt_function_known(function)) {
        return (CUresult)cudaErrorInvalidDeviceFunction;
    }
    CUresult result = simrt_function_load(function, &f);
    return result == CUDA_SUCCESS ? start(f, &l, mode) : result;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream) {
    RT_CALL(simrt_enter, launch_by_handle(kernel, LAUNCH(false), RT_LEGACY));
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                    size_t shared, cudaStream_t stream) {
    RT_CALL(simrt_enter, launch_by_handle(kernel, LAUNCH(false), RT_PER_THREAD));
}

/* Returns the driver's own handle, which works in the driver API. */
cudaError_t cudaGetKernel(cudaKernel_t *out, const void *host) {
    cudaError_t error = simrt_enter();
    if (error != cudaSuccess) {
        return error;
    }
    struct simrt_function *function = simrt_function_find(host);
    if (out == NULL || function == NULL) {
        return simrt_fail(out == NULL ? cudaErrorInvalidValue : cudaErrorSymbolNotFound);
    }
    return simrt_return(simrt_function_kernel(function, out));
}
#endif

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *out, const void *host) {
    RT_CALL(simrt_enter, out == NULL ? (CUresult)CUDA_ERROR_INVALID_VALUE : resolve(host, out));
}

/* ---------------------------------------------------------------- launches with attributes */
/* The runtime's attributes are the driver's; only the sizes around them differ. */
_Static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "same attribute");

static CUresult describe(const cudaLaunchConfig_t *c, CUlaunchConfig *d) {
    if (c == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (empty(c->gridDim) || empty(c->blockDim) || c->dynamicSmemBytes > UINT32_MAX) {
        return (CUresult)cudaErrorInvalidConfiguration;
    }
    *d = (CUlaunchConfig){
        .gridDimX = c->gridDim.x,
        .gridDimY = c->gridDim.y,
        .gridDimZ = c->gridDim.z,
        .blockDimX = c->blockDim.x,
        .blockDimY = c->blockDim.y,
        .blockDimZ = c->blockDim.z,
        .sharedMemBytes = (unsigned)c->dynamicSmemBytes,
        .hStream = c->stream,
        .attrs = (CUlaunchAttribute *)(void *)c->attrs,
        .numAttrs = c->numAttrs,
    };
    return CUDA_SUCCESS;
}

static CUresult launch_ex(const cudaLaunchConfig_t *config, const void *host, void **args,
                          enum simrt_mode mode) {
    CUlaunchConfig d;
    CUfunction f = NULL;
    CUresult result = describe(config, &d);
    if (result == CUDA_SUCCESS) {
        result = resolve(host, &f);
    }
    return result == CUDA_SUCCESS ? RT_BY_MODE(mode, cuLaunchKernelEx, ptsz)(&d, f, args, NULL)
                                  : result;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **args) {
    RT_CALL(simrt_enter, launch_ex(config, host, args, RT_LEGACY));
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *config, const void *host,
                                     void **args) {
    RT_CALL(simrt_enter, launch_ex(config, host, args, RT_PER_THREAD));
}

/* ---------------------------------------------------------------- about a kernel */
/* RESOLVED(call): the call, with `f` the function of `host` in the current context. */
#define RESOLVED(call)                                                                           \
    CUfunction f = NULL;                                                                         \
    cudaError_t error = simrt_enter();                                                           \
    if (error == cudaSuccess) {                                                                  \
        error = simrt_return(resolve(host, &f));                                                 \
    }                                                                                            \
    return error != cudaSuccess ? error : simrt_return(call)

static CUresult attributes(struct cudaFuncAttributes *out, CUfunction f) {
    static const struct {
        size_t offset;
        bool wide; /* size_t, else int */
        CUfunction_attribute attribute;
    } table[] = {
#define WIDE(field, a) {offsetof(struct cudaFuncAttributes, field), true, CU_FUNC_ATTRIBUTE_##a}
#define NARROW(field, a)                                                                         \
    { offsetof(struct cudaFuncAttributes, field), false, CU_FUNC_ATTRIBUTE_##a }
        WIDE(sharedSizeBytes, SHARED_SIZE_BYTES),
        WIDE(constSizeBytes, CONST_SIZE_BYTES),
        WIDE(localSizeBytes, LOCAL_SIZE_BYTES),
        NARROW(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
        NARROW(numRegs, NUM_REGS),
        NARROW(ptxVersion, PTX_VERSION),
        NARROW(binaryVersion, BINARY_VERSION),
        NARROW(cacheModeCA, CACHE_MODE_CA),
        NARROW(maxDynamicSharedSizeBytes, MAX_DYNAMIC_SHARED_SIZE_BYTES),
        NARROW(preferredShmemCarveout, PREFERRED_SHARED_MEMORY_CARVEOUT),
#if RT_MAJOR >= 12
        NARROW(clusterDimMustBeSet, CLUSTER_SIZE_MUST_BE_SET),
        NARROW(requiredClusterWidth, REQUIRED_CLUSTER_WIDTH),
        NARROW(requiredClusterHeight, REQUIRED_CLUSTER_HEIGHT),
        NARROW(requiredClusterDepth, REQUIRED_CLUSTER_DEPTH),
        NARROW(clusterSchedulingPolicyPreference, CLUSTER_SCHEDULING_POLICY_PREFERENCE),
        NARROW(nonPortableClusterSizeAllowed, NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
#endif
    };
    struct cudaFuncAttributes a;
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(&a, 0, sizeof a);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int value = 0;
        CUresult result = RT_DRIVER(cuFuncGetAttribute)(&value, table[i].attribute, f);
        if (result == CUDA_ERROR_INVALID_VALUE) {
            continue; /* an attribute that is newer than the driver */
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
        char *place = (char *)&a + table[i].offset;
        size_t wide = (size_t)value;
        memcpy(place, table[i].wide ? (void *)&wide : (void *)&value,
               table[i].wide ? sizeof wide : sizeof value);
    }
    *out = a;
    return CUDA_SUCCESS;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *host) {
    RESOLVED(attributes(out, f));
}

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute which, int value) {
    RESOLVED(RT_DRIVER(cuFuncSetAttribute)(f, which, value));
}

cudaError_t cudaFuncSetCacheConfig(const void *host, enum cudaFuncCache config) {
    RESOLVED(RT_DRIVER(cuFuncSetCacheConfig)(f, config));
}

cudaError_t cudaFuncSetSharedMemConfig(const void *host, enum cudaSharedMemConfig config) {
    RESOLVED(RT_DRIVER(cuFuncSetSharedMemConfig)(f, config));
}

#if RT_MAJOR >= 12
cudaError_t cudaFuncGetName(const char **out, const void *host) {
    RESOLVED(RT_DRIVER(cuFuncGetName)(out, f));
}

cudaError_t cudaFuncGetParamInfo(const void *host, size_t index, size_t *offset, size_t *size) {
    RESOLVED(RT_DRIVER(cuFuncGetParamInfo)(f, index, offset, size));
}
#endif

/* The runtime asks for the variant with flags only. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host,
                                                          int block_size, size_t shared) {
    RESOLVED(RT_DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(
        blocks, f, block_size, shared, 0));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host,
                                                                   int block_size, size_t shared,
                                                                   unsigned flags) {
    RESOLVED(RT_DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(
        blocks, f, block_size, shared, flags));
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *host, int blocks,
                                                      int block_size) {
    RESOLVED(RT_DRIVER(cuOccupancyAvailableDynamicSMemPerBlock)(bytes, f, blocks, block_size));
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *host,
                                                 const cudaLaunchConfig_t *config) {
    CUlaunchConfig d;
    CUresult described = describe(config, &d);
    RESOLVED(described != CUDA_SUCCESS
                 ? described
                 : RT_DRIVER(cuOccupancyMaxPotentialClusterSize)(size, f, &d));
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *host,
                                           const cudaLaunchConfig_t *config) {
    CUlaunchConfig d;
    CUresult described = describe(config, &d);
    RESOLVED(described != CUDA_SUCCESS
                 ? described
                 : RT_DRIVER(cuOccupancyMaxActiveClusters)(clusters, f, &d));
}
