/* The part of the CUDA runtime API that the stand-in libcudart offers, in our own words.  Programs
 * of this project are built with it if no toolkit is installed.
 *
 * Handles are the driver's (device/cuda_abi.h), as in NVIDIA's headers.  Values, layouts and
 * signatures come from the .def files of this folder.  tests/simulator/cudart/abi_check.c compares
 * them with NVIDIA's header if CMake finds one.  RT_MAJOR chooses the version, 13 by default. */
#ifndef RT_CUDA_RUNTIME_MIN_H
#define RT_CUDA_RUNTIME_MIN_H

#include <stddef.h>

#include "device/cuda_abi.h"

#ifndef RT_MAJOR
#define RT_MAJOR 13
#endif

enum cudaError {
#define RT_ERROR(name, number, text) name = number,
#include "errors.def"
#undef RT_ERROR
};
typedef enum cudaError cudaError_t;

#define RT_ENUM(tag)          enum tag {
#define RT_VALUE(name, value) name = (value),
#define RT_ENUM_END(tag)                                                                         \
    }                                                                                            \
    ;
#include "runtime_values.def"
#undef RT_ENUM
#undef RT_VALUE
#undef RT_ENUM_END

/* The flags of the API are plain numbers. */
#define RT_ENUM(tag)
#define RT_VALUE(name, value)
#define RT_ENUM_END(tag)
#define RT_FLAG(name, value) name = (value),
enum {
#include "runtime_values.def"
};
#undef RT_ENUM
#undef RT_VALUE
#undef RT_ENUM_END
#undef RT_FLAG

typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUgraphEdgeData cudaGraphEdgeData;
typedef CUDA_GRAPH_INSTANTIATE_PARAMS cudaGraphInstantiateParams;
typedef CUfunction cudaFunction_t;
typedef CUkernel cudaKernel_t;
typedef CUarray cudaArray_t;
typedef CUuuid cudaUUID_t;
typedef CUlaunchAttributeID cudaLaunchAttributeID;
typedef CUlaunchAttributeValue cudaLaunchAttributeValue;
typedef CUlaunchAttributeID cudaStreamAttrID;
typedef CUlaunchAttributeValue cudaStreamAttrValue;

#define cudaStreamLegacy    CU_STREAM_LEGACY
#define cudaStreamPerThread CU_STREAM_PER_THREAD

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

#define RT_STRUCT(tag)                   struct tag {
#define RT_FIELD(tag, type, name, array) type name array;
#define RT_STRUCT_END(tag)                                                                       \
    }                                                                                            \
    ;
#include "runtime_structs.def"
#undef RT_STRUCT
#undef RT_FIELD
#undef RT_STRUCT_END
typedef struct cudaIpcMemHandle_st cudaIpcMemHandle_t;
typedef struct cudaIpcEventHandle_st cudaIpcEventHandle_t;
typedef struct cudaLaunchAttribute_st cudaLaunchAttribute;
typedef struct cudaLaunchConfig_st cudaLaunchConfig_t;

typedef void (*cudaHostFn_t)(void *);
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void *);

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

#define RT_FN(name, params) cudaError_t name params;
#define RT_FN2(name, suffix, params)                                                             \
    cudaError_t name params;                                                                     \
    cudaError_t name##_##suffix params;
#define RT_FORWARD(name, params, driver, args) cudaError_t name params;
#define RT_FORWARD2(name, suffix, params, driver, args)                                          \
    cudaError_t name params;                                                                     \
    cudaError_t name##_##suffix params;
#define RT_QUERY(name, params, driver, args) cudaError_t name params;
#include "runtime.def"
#undef RT_FN
#undef RT_FN2
#undef RT_FORWARD
#undef RT_FORWARD2
#undef RT_QUERY

/* Interface of the code that nvcc generates: registration of its modules, and launches. */
struct simrt_fatbin_wrapper {
    int magic; /* RT_FATBIN_MAGIC */
    int version;
    const void *data;
    void *filename_or_fatbins;
};
enum { RT_FATBIN_MAGIC = 0x466243b1 };

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **module);
void __cudaUnregisterFatBinary(void **module);
char __cudaInitModule(void **module);
void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                            int thread_limit, void *tid, void *bid, dim3 *block, dim3 *grid,
                            int *warp_size);
void __cudaRegisterVar(void **module, char *host, char *device, const char *name, int ext,
                       size_t size, int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
#if RT_MAJOR >= 12
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                                    size_t shared, cudaStream_t stream);
#endif

#endif
