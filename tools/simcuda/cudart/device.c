/* Devices and contexts: which device a thread uses, its primary context, flags and peers.
 *
 * A runtime call works in the current context of its thread, even if the driver API made it
 * current.  If there is none, the call uses the primary context of the thread's device.  This
 * context is retained once per process and made current.  simrt_enter (init.c) does so before
 * almost every entry point.  Each device has a lock around the driver calls that retain and reset
 * its primary context, so that two threads never retain it twice. */
#include <pthread.h>
#include <stdatomic.h>

#include "internal.h"

struct device {
    CUdevice handle;
    pthread_mutex_t lock;
    CUcontext primary; /* guarded by lock; retained while `live` */
    bool live;
};

static struct device devices[RT_MAX_DEVICES];
static int device_count;

/* Number of resets of any device.  A context made current before a reset may be gone. */
static atomic_uint resets;

cudaError_t simrt_devices_find(void) {
    CUresult result = RT_DRIVER(cuDeviceGetCount)(&device_count);
    if (result != CUDA_SUCCESS) {
        return (cudaError_t)result;
    }
    if (device_count == 0) {
        return cudaErrorNoDevice;
    }
    if (device_count > RT_MAX_DEVICES) {
        device_count = RT_MAX_DEVICES;
    }
    for (int i = 0; i < device_count; i++) {
        pthread_mutex_init(&devices[i].lock, NULL);
        result = RT_DRIVER(cuDeviceGet)(&devices[i].handle, i);
        if (result != CUDA_SUCCESS) {
            return (cudaError_t)result;
        }
    }
    return cudaSuccess;
}

bool simrt_device_exists(int ordinal) {
    return ordinal >= 0 && ordinal < device_count;
}

CUdevice simrt_device_handle(int ordinal) {
    return simrt_device_exists(ordinal) ? devices[ordinal].handle : -1;
}

static int ordinal_of(CUdevice handle) {
    for (int i = 0; i < device_count; i++) {
        if (devices[i].handle == handle) {
            return i;
        }
    }
    return -1;
}

CUresult simrt_device_primary(int ordinal, CUcontext *context) {
    if (!simrt_device_exists(ordinal)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct device *device = &devices[ordinal];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&device->lock);
    if (!device->live) {
        result = RT_DRIVER(cuDevicePrimaryCtxRetain)(&device->primary, device->handle);
        device->live = result == CUDA_SUCCESS;
    }
    *context = device->primary;
    pthread_mutex_unlock(&device->lock);
    return result;
}

static CUresult make_primary_current(int ordinal) {
    struct simrt_thread *thread = &simrt_thread;
    unsigned age = atomic_load(&resets);
    CUcontext context = NULL;
    CUresult result = simrt_device_primary(ordinal, &context);
    if (result == CUDA_SUCCESS) {
        result = RT_DRIVER(cuCtxSetCurrent)(context);
    }
    if (result == CUDA_SUCCESS) {
        thread->made = context;
        thread->made_age = age;
        thread->device_chosen = false;
    }
    return result;
}

CUresult simrt_context_make_current(void) {
    struct simrt_thread *thread = &simrt_thread;
    if (thread->device_chosen) {
        return make_primary_current(thread->device);
    }
    CUcontext context = NULL;
    CUresult result = RT_DRIVER(cuCtxGetCurrent)(&context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* After cudaDeviceReset in any thread, the context that the runtime left current here is dead,
     * or the old handle names a new one: activate the device again. */
    if (context == NULL ||
        (context == thread->made && thread->made_age != atomic_load(&resets))) {
        return make_primary_current(thread->device);
    }
    return CUDA_SUCCESS;
}

/* Finds the device of the current context, or else the device that this thread would use. */
CUresult simrt_device_current(int *ordinal) {
    struct simrt_thread *thread = &simrt_thread;
    CUcontext context = NULL;
    if (!thread->device_chosen) {
        CUresult result = RT_DRIVER(cuCtxGetCurrent)(&context);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (context == NULL ||
        (context == thread->made && thread->made_age != atomic_load(&resets))) {
        *ordinal = thread->device;
        return CUDA_SUCCESS;
    }
    CUdevice handle = -1;
    CUresult result = RT_DRIVER(cuCtxGetDevice)(&handle);
    if (result == CUDA_SUCCESS) {
        *ordinal = ordinal_of(handle);
    }
    return result;
}

/* ---------------------------------------------------------------- entry points */
cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t error = simrt_initialize();
    if (error != cudaSuccess) {
        return error;
    }
    if (count == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    *count = device_count;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    cudaError_t error = simrt_initialize();
    if (error != cudaSuccess) {
        return error;
    }
    if (device == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    return simrt_return(simrt_device_current(device));
}

/* Version 12 and later make the primary context at once; older versions make it at the next
 * call. */
cudaError_t cudaSetDevice(int ordinal) {
    cudaError_t error = simrt_initialize();
    if (error != cudaSuccess) {
        return error;
    }
    if (!simrt_device_exists(ordinal)) {
        return simrt_fail(cudaErrorInvalidDevice);
    }
#if RT_MAJOR >= 12
    CUresult result = make_primary_current(ordinal);
    if (result == CUDA_SUCCESS) {
        simrt_thread.device = ordinal;
    }
    return simrt_return(result);
#else
    simrt_thread.device = ordinal;
    simrt_thread.device_chosen = true;
    return cudaSuccess;
#endif
}

/* Makes the driver forget the primary context.  Libraries loaded into it come back with the next
 * launch, because the driver keeps them per process. */
cudaError_t cudaDeviceReset(void) {
    cudaError_t error = simrt_initialize();
    int ordinal = 0;
    CUresult result = CUDA_SUCCESS;
    if (error != cudaSuccess) {
        return error;
    }
    result = simrt_device_current(&ordinal);
    if (result != CUDA_SUCCESS) {
        return simrt_return(result);
    }
    if (!simrt_device_exists(ordinal)) {
        return simrt_fail(cudaErrorInvalidDevice);
    }
    struct device *device = &devices[ordinal];
    pthread_mutex_lock(&device->lock);
    result = RT_DRIVER(cuDevicePrimaryCtxReset)(device->handle);
    if (result == CUDA_SUCCESS) {
        device->live = false;
        atomic_fetch_add(&resets, 1);
    }
    pthread_mutex_unlock(&device->lock);
    return simrt_return(result);
}

cudaError_t cudaDeviceGetByPCIBusId(int *ordinal, const char *bus_id) {
    cudaError_t error = simrt_initialize();
    CUdevice handle = -1;
    if (error != cudaSuccess) {
        return error;
    }
    if (ordinal == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    CUresult result = RT_DRIVER(cuDeviceGetByPCIBusId)(&handle, bus_id);
    if (result == CUDA_SUCCESS) {
        *ordinal = ordinal_of(handle);
    }
    return simrt_return(result);
}

/* ---------------------------------------------------------------- flags */
/* The runtime always maps host memory, so this flag is reported, but never passed to the
 * driver. */
static CUresult set_flags(int ordinal, unsigned flags) {
    if ((flags & ~(unsigned)cudaDeviceMask) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return RT_DRIVER(cuDevicePrimaryCtxSetFlags_v2)(devices[ordinal].handle,
                                                    flags & ~(unsigned)cudaDeviceMapHost);
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    cudaError_t error = simrt_initialize();
    int ordinal = 0;
    if (error != cudaSuccess) {
        return error;
    }
    CUresult result = simrt_device_current(&ordinal);
    if (result == CUDA_SUCCESS) {
        result = simrt_device_exists(ordinal) ? set_flags(ordinal, flags)
                                              : (CUresult)CUDA_ERROR_INVALID_DEVICE;
    }
#if RT_MAJOR >= 12
    if (result == CUDA_SUCCESS) {
        result = simrt_context_make_current();
    }
#endif
    return simrt_return(result);
}

cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    cudaError_t error = simrt_initialize();
    CUcontext context = NULL;
    if (error != cudaSuccess) {
        return error;
    }
    if (flags == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    CUresult result = CUDA_SUCCESS;
    if (!simrt_thread.device_chosen) {
        result = RT_DRIVER(cuCtxGetCurrent)(&context);
    }
    if (result == CUDA_SUCCESS && context != NULL) {
        result = RT_DRIVER(cuCtxGetFlags)(flags);
    } else if (result == CUDA_SUCCESS) {
        int active = 0;
        result = RT_DRIVER(cuDevicePrimaryCtxGetState)(simrt_device_handle(simrt_thread.device),
                                                       flags, &active);
    }
    if (result == CUDA_SUCCESS) {
        *flags |= cudaDeviceMapHost;
    }
    return simrt_return(result);
}

#if RT_MAJOR >= 12
/* Makes the primary context, and leaves the current context unchanged. */
cudaError_t cudaInitDevice(int ordinal, unsigned device_flags, unsigned flags) {
    cudaError_t error = simrt_initialize();
    CUcontext context = NULL;
    if (error != cudaSuccess) {
        return error;
    }
    if (!simrt_device_exists(ordinal)) {
        return simrt_fail(cudaErrorInvalidDevice);
    }
    CUresult result = CUDA_SUCCESS;
    if ((flags & cudaInitDeviceFlagsAreValid) != 0) {
        result = set_flags(ordinal, device_flags);
    }
    if (result == CUDA_SUCCESS) {
        result = simrt_device_primary(ordinal, &context);
    }
    return simrt_return(result);
}

static cudaError_t stream_device(cudaStream_t stream, int *ordinal, enum simrt_mode mode) {
    cudaError_t error = simrt_enter();
    CUdevice handle = -1;
    if (error != cudaSuccess) {
        return error;
    }
    if (ordinal == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    CUresult result = RT_BY_MODE(mode, cuStreamGetDevice, ptsz)(stream, &handle);
    if (result == CUDA_SUCCESS) {
        *ordinal = ordinal_of(handle);
    }
    return simrt_return(result);
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *ordinal) {
    return stream_device(stream, ordinal, RT_LEGACY);
}

cudaError_t cudaStreamGetDevice_ptsz(cudaStream_t stream, int *ordinal) {
    return stream_device(stream, ordinal, RT_PER_THREAD);
}
#endif

/* ---------------------------------------------------------------- peers */
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    cudaError_t error = simrt_enter();
    CUcontext context = NULL;
    if (error != cudaSuccess) {
        return error;
    }
    CUresult result = simrt_device_primary(peer, &context);
    if (result == CUDA_SUCCESS) {
        result = RT_DRIVER(cuCtxEnablePeerAccess)(context, flags);
    }
    return simrt_return(result);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    cudaError_t error = simrt_enter();
    CUcontext context = NULL;
    if (error != cudaSuccess) {
        return error;
    }
    CUresult result = simrt_device_primary(peer, &context);
    if (result == CUDA_SUCCESS) {
        result = RT_DRIVER(cuCtxDisablePeerAccess)(context);
    }
    return simrt_return(result);
}
