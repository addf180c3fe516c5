// CUB's CachingDeviceAllocator for peer_cub.h, host code only: bins of powers of two from 512
// bytes to 64 MiB and no limit on what it keeps, so that it never goes to the driver for these
// sizes.
#include <cub/util_allocator.cuh>

#include <new>

namespace {
cub::CachingDeviceAllocator *cache;
}

extern "C" unsigned bench_cub_open() {
    cudaError_t error = cudaSetDevice(0);
    if (error == cudaSuccess)
        // Never destroyed: at the end the runtime may be gone before it.
        cache = new (std::nothrow) cub::CachingDeviceAllocator(
            2, 9, 26, cub::CachingDeviceAllocator::INVALID_SIZE, true);
    return error != cudaSuccess ? unsigned(error)
           : cache              ? 0
                                : unsigned(cudaErrorMemoryAllocation);
}

extern "C" unsigned bench_cub_take(void **pointer, size_t bytes, void *stream) {
    return unsigned(cache->DeviceAllocate(pointer, bytes, static_cast<cudaStream_t>(stream)));
}

extern "C" unsigned bench_cub_give(void *pointer) {
    return unsigned(cache->DeviceFree(pointer));
}
