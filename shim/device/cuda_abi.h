/* The part of CUDA's driver ABI that this project uses, in our own words.
 *
 * No CUDA toolkit is needed to build: types and layouts stand here, constants in
 * cuda_values.def, signatures in cuda_functions.def.  All of it is the ABI of CUDA 11 to
 * 13 on 64-bit Linux; tests/simulator/abi compares sizes, offsets, values and signatures with NVIDIA's
 * headers if CMake finds a toolkit.
 *
 * Enumerations are `unsigned`: that is how gcc and clang pass NVIDIA's, and it keeps
 * values that are newer than this file.  Structures that we only pass on are opaque. */
#ifndef AC_CUDA_ABI_H
#define AC_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned CUdeviceptr_v1; /* the 32-bit ABI behind unsuffixed names */
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef cuuint64_t CUgraphConditionalHandle;
typedef unsigned CUlogIterator;

enum {
#define CU_VALUE(name, value) name = value,
#include "cuda_values.def"
#undef CU_VALUE
};

/* Handles: pointers to structures that only the driver knows. */
#define CU_HANDLE(name) typedef struct name##_handle *name;
CU_HANDLE(CUcontext)
CU_HANDLE(CUgreenCtx)
CU_HANDLE(CUstream)
CU_HANDLE(CUevent)
CU_HANDLE(CUmodule)
CU_HANDLE(CUfunction)
CU_HANDLE(CUlibrary)
CU_HANDLE(CUkernel)
CU_HANDLE(CUarray)
CU_HANDLE(CUmipmappedArray)
CU_HANDLE(CUmemoryPool)
CU_HANDLE(CUgraph)
CU_HANDLE(CUgraphNode)
CU_HANDLE(CUgraphExec)
CU_HANDLE(CUuserObject)
CU_HANDLE(CUtexref)
CU_HANDLE(CUsurfref)
CU_HANDLE(CUlinkState)
CU_HANDLE(CUexternalMemory)
CU_HANDLE(CUexternalSemaphore)
CU_HANDLE(CUgraphicsResource)
CU_HANDLE(CUasyncCallbackHandle)
CU_HANDLE(CUlogsCallbackHandle)
CU_HANDLE(CUdevResourceDesc)
#undef CU_HANDLE

/* Special stream handles: resolve them before use, they name no stream of their own. */
#define CU_STREAM_LEGACY     ((CUstream)(uintptr_t)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)(uintptr_t)0x2)

#define CU_ENUM(name) typedef unsigned name;
CU_ENUM(CUaddress_mode)
CU_ENUM(CUarray_format)
CU_ENUM(CUatomicOperation)
CU_ENUM(CUcoredumpSettings)
CU_ENUM(CUdevResourceType)
CU_ENUM(CUdevice_P2PAttribute)
CU_ENUM(CUdevice_attribute)
CU_ENUM(CUdriverProcAddressQueryResult)
CU_ENUM(CUexecAffinityType)
CU_ENUM(CUfilter_mode)
CU_ENUM(CUflushGPUDirectRDMAWritesScope)
CU_ENUM(CUflushGPUDirectRDMAWritesTarget)
CU_ENUM(CUfunc_cache)
CU_ENUM(CUfunctionLoadingState)
CU_ENUM(CUfunction_attribute)
CU_ENUM(CUgraphExecUpdateResult)
CU_ENUM(CUgraphMem_attribute)
CU_ENUM(CUgraphNodeType)
CU_ENUM(CUjitInputType)
CU_ENUM(CUjit_option)
CU_ENUM(CUlaunchAttributeID)
CU_ENUM(CUlibraryOption)
CU_ENUM(CUlimit)
CU_ENUM(CUlogLevel)
CU_ENUM(CUmemAccess_flags)
CU_ENUM(CUmemAllocationGranularity_flags)
CU_ENUM(CUmemAllocationHandleType)
CU_ENUM(CUmemAllocationType)
CU_ENUM(CUmemLocationType)
CU_ENUM(CUmemPool_attribute)
CU_ENUM(CUmemRangeHandleType)
CU_ENUM(CUmemcpy3DOperandType)
CU_ENUM(CUmem_advise)
CU_ENUM(CUmem_range_attribute)
CU_ENUM(CUmemorytype)
CU_ENUM(CUmoduleLoadingMode)
CU_ENUM(CUmulticastGranularity_flags)
CU_ENUM(CUpointer_attribute)
CU_ENUM(CUprocessState)
CU_ENUM(CUsharedconfig)
CU_ENUM(CUstreamCaptureMode)
CU_ENUM(CUstreamCaptureStatus)
CU_ENUM(CUtensorMapDataType)
CU_ENUM(CUtensorMapFloatOOBfill)
CU_ENUM(CUtensorMapIm2ColWideMode)
CU_ENUM(CUtensorMapInterleave)
CU_ENUM(CUtensorMapL2promotion)
CU_ENUM(CUtensorMapSwizzle)
#undef CU_ENUM
typedef CUlaunchAttributeID CUstreamAttrID;
typedef CUlaunchAttributeID CUkernelNodeAttrID;

#define CU_OPAQUE(name) typedef struct name##_opaque name;
CU_OPAQUE(CUDA_ARRAY3D_DESCRIPTOR_v1)
CU_OPAQUE(CUDA_ARRAY_DESCRIPTOR_v1)
CU_OPAQUE(CUDA_ARRAY_SPARSE_PROPERTIES)
CU_OPAQUE(CUDA_BATCH_MEM_OP_NODE_PARAMS)
CU_OPAQUE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC)
CU_OPAQUE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC)
CU_OPAQUE(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC)
CU_OPAQUE(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC)
CU_OPAQUE(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS)
CU_OPAQUE(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS)
CU_OPAQUE(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS)
CU_OPAQUE(CUDA_EXT_SEM_WAIT_NODE_PARAMS)
CU_OPAQUE(CUDA_MEMCPY2D_v1)
CU_OPAQUE(CUDA_MEMCPY3D_v1)
CU_OPAQUE(CUDA_RESOURCE_DESC)
CU_OPAQUE(CUDA_RESOURCE_VIEW_DESC)
CU_OPAQUE(CUDA_TEXTURE_DESC)
CU_OPAQUE(CUarrayMapInfo)
CU_OPAQUE(CUasyncNotificationInfo)
CU_OPAQUE(CUcheckpointCheckpointArgs)
CU_OPAQUE(CUcheckpointLockArgs)
CU_OPAQUE(CUcheckpointRestoreArgs)
CU_OPAQUE(CUcheckpointUnlockArgs)
CU_OPAQUE(CUctxCreateParams)
CU_OPAQUE(CUdevResource)
CU_OPAQUE(CUexecAffinityParam)
CU_OPAQUE(CUmemDecompressParams)
CU_OPAQUE(CUmemcpyAttributes)
CU_OPAQUE(CUstreamBatchMemOpParams)
CU_OPAQUE(CUtensorMap)
#undef CU_OPAQUE

typedef struct {
    char bytes[16];
} CUuuid;

typedef struct {
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int sharedMemPerBlock;
    int totalConstantMemory;
    int SIMDWidth;
    int memPitch;
    int regsPerBlock;
    int clockRate;
    int textureAlign;
} CUdevprop;

typedef struct {
    char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;

typedef struct {
    char reserved[CU_IPC_HANDLE_SIZE];
} CUipcEventHandle;

typedef struct {
    CUmemLocationType type;
    int id;
} CUmemLocation;

typedef struct {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;

typedef struct {
    unsigned numDevices;
    size_t size;
    unsigned long long handleTypes, flags;
} CUmulticastObjectProp;

typedef struct {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct {
    CUmemAllocationType allocType;
    CUmemAllocationHandleType handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    unsigned char reserved[64];
} CUmemPoolPtrExportData;

typedef struct {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    CUcontext srcContext;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    CUcontext dstContext;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;

typedef struct {
    CUmemcpy3DOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            size_t rowLength, layerHeight; /* elements; 0: as the extent */
            CUmemLocation locHint;
        } ptr;
        struct {
            CUarray array;
            size_t offset[3];
        } array;
    } op;
} CUmemcpy3DOperand;

typedef struct {
    size_t width, height, depth;
} CUextent3D;

typedef struct {
    CUmemcpy3DOperand src, dst;
    CUextent3D extent;
    int srcAccessOrder;
    unsigned flags;
} CUDA_MEMCPY3D_BATCH_OP;

typedef struct {
    size_t Width, Height;
    CUarray_format Format;
    unsigned NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t Width, Height, Depth;
    CUarray_format Format;
    unsigned NumChannels;
    unsigned Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct {
    size_t size, alignment;
    unsigned reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef void (*CUhostFn)(void *);
typedef void (*CUstreamCallback)(CUstream, CUresult, void *);
typedef size_t (*CUoccupancyB2DSize)(int);
typedef void (*CUasyncCallback)(CUasyncNotificationInfo *, void *, CUasyncCallbackHandle);
typedef void (*CUlogsCallback)(void *, CUlogLevel, char *, size_t);

/* Kernel node parameters of the first ABI; the second appends `kern` and `ctx`. */
typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;

typedef struct {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
    CUkernel kern;
    CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
    CUdeviceptr dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct {
    CUhostFn fn;
    void *userData;
} CUDA_HOST_NODE_PARAMS;

typedef struct {
    CUmemPoolProps poolProps;
    const CUmemAccessDesc *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

/* Parameters of cuGraphAddNode: the type, then 29 words that depend on it. */
typedef struct {
    CUgraphNodeType type;
    int reserved0[3];
    long long payload[29];
    long long reserved2;
} CUgraphNodeParams;

typedef struct {
    cuuint64_t flags;
    CUstream hUploadStream;
    CUgraphNode hErrNode_out;
    unsigned result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct {
    CUgraphExecUpdateResult result;
    CUgraphNode errorNode;
    CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;

typedef struct {
    unsigned char from_port, to_port, type;
    unsigned char reserved[5];
} CUgraphEdgeData;

typedef union {
    char pad[64];
    int cooperative;
    int programmaticStreamSerializationAllowed;
    struct {
        CUevent event;
        int flags;
        int triggerAtBlockStart;
    } programmaticEvent;
    int priority;
} CUlaunchAttributeValue;
typedef CUlaunchAttributeValue CUstreamAttrValue;
typedef CUlaunchAttributeValue CUkernelNodeAttrValue;

typedef struct {
    CUlaunchAttributeID id;
    char pad[4];
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    CUstream hStream;
    void **kernelParams;
} CUDA_LAUNCH_PARAMS;

/* `<symbol>_fn`: the type of each function of cuda_functions.def. */
#define CU_FN(symbol, name, since, mode, params, args) typedef CUresult symbol##_fn params;
#include "cuda_functions.def"
#undef CU_FN

#endif
