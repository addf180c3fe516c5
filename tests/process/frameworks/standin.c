/* Stand-ins for libraries that PyTorch loads in addition to the driver. Some symbols of the CUDA runtime
 * must exist for loading. Expandable segments ask NVIDIA's management library whether the device is part of
 * a fabric. Each function refuses, except the ones that name the device. */
#ifdef STANDIN_NVML
enum { NOT_SUPPORTED = 3 };
#define NAMES_DEVICE(name)                                                                       \
    int name(const void *by, void **device);                                                     \
    int name(const void *by, void **device) {                                                    \
        *device = (void *)by;                                                                    \
        return 0;                                                                                \
    }
#else
enum { NOT_SUPPORTED = 801 };
#endif
#define REFUSES(name)                                                                            \
    int name(void);                                                                              \
    int name(void) {                                                                             \
        return NOT_SUPPORTED;                                                                    \
    }
#ifdef STANDIN_NVML
int nvmlInit_v2(void);
int nvmlInit_v2(void) {
    return 0;
}
NAMES_DEVICE(nvmlDeviceGetHandleByPciBusId_v2)
REFUSES(nvmlDeviceGetComputeRunningProcesses)
REFUSES(nvmlDeviceGetGpuFabricInfoV)
REFUSES(nvmlDeviceGetNvLinkRemoteDeviceType)
REFUSES(nvmlDeviceGetNvLinkRemotePciInfo_v2)
REFUSES(nvmlSystemGetCudaDriverVersion_v2)
#else
REFUSES(cudaGraphAddNode)
REFUSES(cudaGraphConditionalHandleCreate)
REFUSES(cudaGraphNodeGetDependencies)
REFUSES(cudaGraphRetainUserObject)
REFUSES(cudaKernelSetAttributeForDevice)
REFUSES(cudaLibraryGetGlobal)
REFUSES(cudaLibraryGetKernel)
REFUSES(cudaLibraryGetKernelCount)
REFUSES(cudaLibraryGetManaged)
REFUSES(cudaLibraryGetUnifiedFunction)
REFUSES(cudaLibraryLoadData)
REFUSES(cudaLibraryLoadFromFile)
REFUSES(cudaLibraryUnload)
REFUSES(cudaProfilerStart)
REFUSES(cudaProfilerStop)
REFUSES(cudaUserObjectCreate)
REFUSES(cudaUserObjectRelease)
#endif
