/* memory.h through the CUDA runtime: NVIDIA's with the toolkit (DEMO_TOOLKIT), else the stand-in of
 * the simulated device.  Streams are the driver's: the runtime accepts them, and works in the
 * current context. */
#include "memory.h"

#include <stdint.h>

#ifdef DEMO_TOOLKIT
#include <cuda_runtime_api.h>
#else
#include "../simcuda/cudart/cuda_runtime_min.h"
#endif

const char demo_memory_api[] = "runtime API";

const char *demo_memory_open(void *driver) {
    (void)driver;
    return NULL;
}

unsigned demo_memory_alloc(unsigned long long *address, size_t bytes) {
    void *memory;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaSuccess)
        *address = (uintptr_t)memory;
    return error;
}

unsigned demo_memory_free(unsigned long long address) {
    return cudaFree((void *)(uintptr_t)address);
}

unsigned demo_memory_copy_in(unsigned long long to, const void *from, size_t bytes,
                             void *stream) {
    return cudaMemcpyAsync((void *)(uintptr_t)to, from, bytes, cudaMemcpyHostToDevice, stream);
}

unsigned demo_memory_copy_out(void *to, unsigned long long from, size_t bytes, void *stream) {
    return cudaMemcpyAsync(to, (const void *)(uintptr_t)from, bytes, cudaMemcpyDeviceToHost,
                           stream);
}
