// Stands in for RMM's class of this name: its calls, and what it asks of those derived from it.
#pragma once
#include <cstddef>
#include <rmm/cuda_stream_view.hpp>

namespace cuda::mr {
struct device_accessible {};
} // namespace cuda::mr

namespace rmm::mr {
class device_memory_resource {
  public:
    virtual ~device_memory_resource() = default;
    void *allocate(std::size_t bytes, cuda_stream_view stream) {
        return do_allocate((bytes + 255) / 256 * 256, stream);
    }
    void deallocate(void *pointer, std::size_t bytes, cuda_stream_view stream) noexcept {
        do_deallocate(pointer, bytes, stream);
    }
    bool is_equal(device_memory_resource const &other) const noexcept {
        return do_is_equal(other);
    }

  private:
    virtual void *do_allocate(std::size_t bytes, cuda_stream_view stream) = 0;
    virtual void do_deallocate(void *pointer, std::size_t bytes,
                               cuda_stream_view stream) noexcept = 0;
    virtual bool do_is_equal(device_memory_resource const &other) const noexcept {
        return this == &other;
    }
};
} // namespace rmm::mr
