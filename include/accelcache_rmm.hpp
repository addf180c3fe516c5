// Memory of the cache for C++ programs with resources: libcu++ (cuda::mr) and RMM.  C++17, header
// only; link with the library, or run under it.
//
//   accel::memory_resource       a resource of cuda::mr, for cudaStream_t and types of streams with
//                                value() or get()
//   accel::rmm_memory_resource   an rmm::mr::device_memory_resource, if RMM has that class
//
// Memory belongs to the device that is current at the request. That device must be current at the
// free, as with RMM's own resources. Memory is aligned to 512 bytes. Freed memory serves later
// requests of its stream at once, and others when the work before the free is done.
// Define ACCEL_CUDA_MR before, and include <cuda/memory_resource>, for the property
// cuda::mr::device_accessible; with RMM it is there by itself.  RMM of 2026 has no class to derive from any
// more, and takes accel::memory_resource as it is.
#ifndef ACCELCACHE_RMM_HPP
#define ACCELCACHE_RMM_HPP

#include <cstddef>
#include <type_traits>
#include <utility>

#include "accelcache.hpp"

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define ACCEL_RMM 1
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define ACCEL_RMM 1
#endif
#ifdef ACCEL_RMM
#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#elif __has_include(<rmm/resource_ref.hpp>)
#include <rmm/resource_ref.hpp>
#ifndef ACCEL_CUDA_MR
#define ACCEL_CUDA_MR
#endif
#endif

namespace accel {
namespace detail {

template <class Stream, class = void> struct has_value : std::false_type {};
template <class Stream>
struct has_value<Stream, std::void_t<decltype(std::declval<Stream>().value())>> : std::true_type {
};
template <class Stream, class = void> struct has_get : std::false_type {};
template <class Stream>
struct has_get<Stream, std::void_t<decltype(std::declval<Stream>().get())>> : std::true_type {};

template <class Stream> void *handle_of(Stream const &stream) {
    if constexpr (has_value<Stream const &>::value)
        return static_cast<void *>(stream.value());
    else if constexpr (has_get<Stream const &>::value)
        return static_cast<void *>(stream.get());
    else
        return static_cast<void *>(stream);
}

// A number is a size.
template <class Stream> using if_stream = std::enable_if_t<!std::is_arithmetic_v<Stream>>;

constexpr std::size_t alignment = 512;

inline void must(accel_status_t status) {
    if (status != ACCEL_OK)
        throw bad_alloc(status);
}

inline void must_align(std::size_t aligned) {
    if (aligned > alignment)
        throw bad_alloc(ACCEL_ERROR_INVALID, "memory is aligned to 512 bytes, and to no more");
}

} // namespace detail

class memory_resource {
  public:
    template <class Stream, class = detail::if_stream<Stream>>
    void *allocate(Stream stream, std::size_t bytes, std::size_t aligned = detail::alignment) {
        void *pointer = nullptr;
        detail::must_align(aligned);
        detail::must(accel_malloc_async(&pointer, bytes, detail::handle_of(stream)));
        return pointer;
    }

    template <class Stream, class = detail::if_stream<Stream>>
    void deallocate(Stream stream, void *pointer, std::size_t,
                    std::size_t = detail::alignment) noexcept {
        give(pointer, detail::handle_of(stream));
    }

    void *allocate_sync(std::size_t bytes, std::size_t aligned = detail::alignment) {
        void *pointer = nullptr;
        detail::must_align(aligned);
        detail::must(accel_malloc(&pointer, bytes));
        return pointer;
    }

    void deallocate_sync(void *pointer, std::size_t, std::size_t = detail::alignment) noexcept {
        accel_free(pointer);
    }

    // The names that libcu++ had before CCCL 3.1.
    void *allocate(std::size_t bytes, std::size_t aligned) {
        return allocate_sync(bytes, aligned);
    }
    void deallocate(void *pointer, std::size_t bytes, std::size_t aligned) noexcept {
        deallocate_sync(pointer, bytes, aligned);
    }
    template <class Stream, class = detail::if_stream<Stream>>
    void *allocate_async(std::size_t bytes, std::size_t aligned, Stream stream) {
        return allocate(stream, bytes, aligned);
    }
    template <class Stream, class = detail::if_stream<Stream>>
    void deallocate_async(void *pointer, std::size_t bytes, std::size_t aligned,
                          Stream stream) noexcept {
        deallocate(stream, pointer, bytes, aligned);
    }

    // All of them have the process's one cache.
    friend bool operator==(memory_resource const &, memory_resource const &) noexcept {
        return true;
    }
    friend bool operator!=(memory_resource const &, memory_resource const &) noexcept {
        return false;
    }
#if defined(ACCEL_CUDA_MR) || defined(ACCEL_RMM)
    friend constexpr void get_property(memory_resource const &,
                                       cuda::mr::device_accessible) noexcept {
    }
#endif
};

#ifdef ACCEL_RMM
class rmm_memory_resource final : public rmm::mr::device_memory_resource {
    void *do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override {
        void *pointer = nullptr;
        accel_status_t const status = accel_malloc_async(&pointer, bytes, stream.value());
        if (status == ACCEL_ERROR_DEVICE_MEMORY)
            throw rmm::out_of_memory(accel_status_string(status));
        if (status != ACCEL_OK)
            throw rmm::bad_alloc(accel_status_string(status));
        return pointer;
    }

    void do_deallocate(void *pointer, std::size_t,
                       rmm::cuda_stream_view stream) noexcept override {
        give(pointer, stream.value());
    }

    bool do_is_equal(rmm::mr::device_memory_resource const &other) const noexcept override {
        return dynamic_cast<rmm_memory_resource const *>(&other) != nullptr;
    }
};
#endif

} // namespace accel

#endif
