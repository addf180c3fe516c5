/* cudaGetDeviceProperties.  Device attributes fill the fields (device_prop.def); other driver
 * calls fill the rest.  The structure differs between versions of the runtime. */
#include <string.h>

#include "internal.h"

enum { PROPERTIES_V11_SIZE = 728 };

/* Returns an attribute, 0 if the driver does not know it because it is older than this
 * runtime. */
static int attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    return RT_DRIVER(cuDeviceGetAttribute)(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

static CUresult fill(struct cudaDeviceProp *p, CUdevice device) {
    memset(p, 0, sizeof *p);
    CUresult result = RT_DRIVER(cuDeviceGetName)(p->name, (int)sizeof p->name, device);
    if (result == CUDA_SUCCESS) {
        result = RT_DRIVER(cuDeviceTotalMem_v2)(&p->totalGlobalMem, device);
    }
    if (result == CUDA_SUCCESS) {
        result = RT_DRIVER(cuDeviceGetUuid)(&p->uuid, device);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
#define RT_ATTRIBUTE(a) attribute(device, CU_DEVICE_ATTRIBUTE_##a)
#define RT_FIELD(tag, type, field, array)
#define RT_PROP(type, field, a) p->field = (type)RT_ATTRIBUTE(a);
#define RT_PROP2(type, field, a, b)                                                              \
    p->field[0] = (type)RT_ATTRIBUTE(a);                                                         \
    p->field[1] = (type)RT_ATTRIBUTE(b);
#define RT_PROP3(type, field, a, b, c)                                                           \
    RT_PROP2(type, field, a, b)                                                                  \
    p->field[2] = (type)RT_ATTRIBUTE(c);
#include "device_prop.def"
    return CUDA_SUCCESS;
}

/* Fills the properties.  `size` is the size of the caller's structure. */
static cudaError_t properties(void *out, size_t size, int ordinal) {
    cudaError_t error = simrt_initialize();
    struct cudaDeviceProp p;
    if (error != cudaSuccess) {
        return error;
    }
    if (out == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    if (!simrt_device_exists(ordinal)) {
        return simrt_fail(cudaErrorInvalidDevice);
    }
    CUresult result = fill(&p, simrt_device_handle(ordinal));
    if (result == CUDA_SUCCESS) {
        memcpy(out, &p, size);
    }
    return simrt_return(result);
}

#if RT_MAJOR == 11
_Static_assert(sizeof(struct cudaDeviceProp) == PROPERTIES_V11_SIZE, "layout of version 11");
#elif RT_MAJOR == 12
_Static_assert(sizeof(struct cudaDeviceProp) == 1032, "layout of version 12");
#endif

#if RT_MAJOR == 12
/* Version 12 kept the old name for programs with the old, shorter structure.  Its fields are the
 * first ones of the new structure. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int ordinal) {
    return properties(p, PROPERTIES_V11_SIZE, ordinal);
}

cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int ordinal) {
    return properties(p, sizeof *p, ordinal);
}
#else
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int ordinal) {
    return properties(p, sizeof *p, ordinal);
}
#endif
