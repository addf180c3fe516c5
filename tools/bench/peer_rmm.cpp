// RMM's pool over cudaMalloc for peer_rmm.h, host code only: a GiB to begin with and no limit, as
// its documentation shows it.
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#include <exception>

namespace {
using upstream_t = rmm::mr::cuda_memory_resource;
rmm::mr::pool_memory_resource<upstream_t> *pool;

rmm::cuda_stream_view view(void *stream) {
    return rmm::cuda_stream_view{static_cast<cudaStream_t>(stream)};
}
} // namespace

// Never destroyed: at the end the runtime may be gone before it.
extern "C" int bench_rmm_open() {
    if (cudaSetDevice(0) != cudaSuccess)
        return 1;
    try {
        pool = new rmm::mr::pool_memory_resource<upstream_t>(new upstream_t, std::size_t{1} << 30);
        return 0;
    } catch (const std::exception &) {
        return 1;
    }
}

extern "C" void *bench_rmm_take(std::size_t bytes, void *stream) {
    try {
        return pool->allocate(bytes, view(stream));
    } catch (const std::exception &) {
        return nullptr;
    }
}

extern "C" int bench_rmm_give(void *pointer, std::size_t bytes, void *stream) {
    try {
        pool->deallocate(pointer, bytes, view(stream));
        return 0;
    } catch (const std::exception &) {
        return 1;
    }
}
