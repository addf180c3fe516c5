// Allocators of device memory for C++11 and later, header only.  Link the library, or run under it.
//
//   accel::allocator<T>          as std::allocator, of device memory: for execution policies of Thrust
//                                (thrust::cuda::par(allocator)), and for code that keeps memory
//   accel::pmr_resource          a std::pmr::memory_resource; C++17
//   accel::thrust_allocator<T>   for thrust::device_vector; include <thrust/device_vector.h> before
//   accel::cub_allocator         with the calls of cub::CachingDeviceAllocator; include
//                                <cuda_runtime_api.h> before
//   accel::allocate              a std::unique_ptr of raw memory, of the thread's current stream
//   accel::dlpack                raw memory as a DLManagedTensor of bytes; include <dlpack/dlpack.h> before
//
// Resources of cuda::mr and RMM are in accelcache_rmm.hpp.  Memory belongs to the device that is
// current at the request. That device must be current at the free. Memory is aligned to 512 bytes.
// The host must
// not read or write it: containers that construct elements in place need an allocator that does not, as
// Thrust's.  All may be used from any thread. If memory is short they throw accel::bad_alloc, a
// std::bad_alloc that names the cause.
#ifndef ACCELCACHE_HPP
#define ACCELCACHE_HPP

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>

#include "accelcache.h"

#if __cplusplus >= 201703L
#if __has_include(<memory_resource>)
#include <memory_resource>
#endif
#endif

namespace accel {
// Thrown by the classes here and in accelcache_rmm.hpp if there is no memory.
class bad_alloc : public std::bad_alloc {
  public:
    explicit bad_alloc(accel_status_t status, const char *what = nullptr)
        : status_(status), what_(what ? what : accel_status_string(status)) {
    }
    const char *what() const noexcept override {
        return what_;
    }
    accel_status_t status() const noexcept {
        return status_;
    }

  private:
    accel_status_t status_;
    const char *what_; // static storage
};

// Frees for code that cannot handle a failure: in the order of the stream, or after all submitted work
// if the stream was destroyed or captures.
inline accel_status_t give(void *pointer, void *stream) noexcept {
    accel_status_t const status = accel_free_async(pointer, stream);
    return status == ACCEL_ERROR_INVALID || status == ACCEL_ERROR_CUDA ? accel_free(pointer) : status;
}

// Owns raw memory, and frees it in the order of its stream.
class deleter {
  public:
    explicit deleter(accel_deleter_t function = nullptr) noexcept : function_(function) {
    }
    void operator()(void *pointer) const noexcept {
        function_(pointer);
    }

  private:
    accel_deleter_t function_;
};
using unique_ptr = std::unique_ptr<void, deleter>;

// For the current device and the thread's current stream there.  Null for 0 bytes.
inline unique_ptr allocate(std::size_t bytes) {
    accel_data_t data;
    accel_status_t const status = accel_allocate(bytes, &data);
    if (status != ACCEL_OK)
        throw bad_alloc(status);
    return unique_ptr(data.pointer, deleter(data.deleter));
}

#if defined(DLPACK_VERSION) || defined(DLPACK_MAJOR_VERSION)
// A vector of bytes on the current device.  Its consumer calls the tensor's deleter once.
inline DLManagedTensor *dlpack(std::size_t bytes) {
    struct owned {
        DLManagedTensor tensor;
        std::int64_t size;
        unique_ptr memory;
    };
    std::unique_ptr<owned> made(new owned());
    int const device = accel_current_device();
    made->memory = allocate(bytes);
    made->size = static_cast<std::int64_t>(bytes);
    DLTensor &view = made->tensor.dl_tensor;
    view.data = made->memory.get();
    view.device.device_type = kDLCUDA;
    view.device.device_id = device;
    view.ndim = 1;
    view.dtype.code = kDLUInt;
    view.dtype.bits = 8;
    view.dtype.lanes = 1;
    view.shape = &made->size;
    made->tensor.manager_ctx = made.get();
    made->tensor.deleter = [](DLManagedTensor *tensor) { delete static_cast<owned *>(tensor->manager_ctx); };
    return &made.release()->tensor;
}
#endif

// Source of memory: in the order of a stream, or without a stream. Without one, freed memory serves
// again after all work submitted before the free.
class source {
  public:
    static constexpr std::size_t alignment = 512;

    source() noexcept = default;
    // A CUstream or cudaStream_t of the current context.  It has to live as long as the memory.
    explicit source(void *stream) noexcept : stream_(stream), ordered_(true) {
    }

    void *take(std::size_t bytes, std::size_t aligned = alignment) const {
        void *pointer = nullptr;
        if (aligned > alignment)
            throw bad_alloc(ACCEL_ERROR_INVALID, "memory is aligned to 512 bytes, and to no more");
        accel_status_t const status = ordered_ ? accel_malloc_async(&pointer, bytes, stream_)
                                               : accel_malloc(&pointer, bytes);
        if (status != ACCEL_OK)
            throw bad_alloc(status);
        return pointer;
    }
    void give(void *pointer) const noexcept {
        if (ordered_)
            accel::give(pointer, stream_);
        else
            accel_free(pointer);
    }
    friend bool operator==(source const &a, source const &b) noexcept {
        return a.ordered_ == b.ordered_ && a.stream_ == b.stream_;
    }

  private:
    void *stream_ = nullptr;
    bool ordered_ = false;
};

// Memory may be given back to any allocator that is equal.
template <class T> class allocator {
  public:
    using value_type = T;

    allocator() noexcept = default;
    explicit allocator(void *stream) noexcept : source_(stream) {
    }
    template <class U> allocator(allocator<U> const &other) noexcept : source_(other.where()) {
    }

    T *allocate(std::size_t count) {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            throw bad_alloc(ACCEL_ERROR_INVALID, "so many elements have no size in bytes");
        return static_cast<T *>(source_.take(count * sizeof(T), alignof(T)));
    }
    void deallocate(T *pointer, std::size_t) noexcept {
        source_.give(pointer);
    }
    source where() const noexcept {
        return source_;
    }

  private:
    source source_;
};
template <class T, class U>
bool operator==(allocator<T> const &a, allocator<U> const &b) noexcept {
    return a.where() == b.where();
}
template <class T, class U>
bool operator!=(allocator<T> const &a, allocator<U> const &b) noexcept {
    return !(a == b);
}

#if defined(__cpp_lib_memory_resource)
class pmr_resource final : public std::pmr::memory_resource {
  public:
    pmr_resource() noexcept = default;
    explicit pmr_resource(void *stream) noexcept : source_(stream) {
    }

  private:
    void *do_allocate(std::size_t bytes, std::size_t aligned) override {
        return source_.take(bytes, aligned);
    }
    void do_deallocate(void *pointer, std::size_t, std::size_t) override {
        source_.give(pointer);
    }
    bool do_is_equal(std::pmr::memory_resource const &other) const noexcept override {
        auto const *same = dynamic_cast<pmr_resource const *>(&other);
        return same && same->source_ == source_;
    }

    source source_;
};
#endif

#if defined(THRUST_VERSION)
// Uses no stream: Thrust does not tell which one works with a vector.
class thrust_resource final : public thrust::mr::memory_resource<thrust::device_ptr<void>> {
  public:
    pointer do_allocate(std::size_t bytes, std::size_t aligned) override {
        return pointer(source().take(bytes, aligned));
    }
    void do_deallocate(pointer memory, std::size_t, std::size_t) override {
        source().give(memory.get());
    }
    bool do_is_equal(memory_resource const &other) const noexcept override {
        return dynamic_cast<thrust_resource const *>(&other) != nullptr;
    }
};
template <class T>
class thrust_allocator : public thrust::mr::stateless_resource_allocator<T, thrust_resource> {
    using base = thrust::mr::stateless_resource_allocator<T, thrust_resource>;

  public:
    template <class U> struct rebind { using other = thrust_allocator<U>; };
    thrust_allocator() = default;
    template <class U> thrust_allocator(thrust_allocator<U> const &other) : base(other) {
    }
};
#endif

#if defined(CUDART_VERSION)
// Freed memory serves later requests for the same stream at once, and others when its work is done.
class cub_allocator {
  public:
    cudaError_t DeviceAllocate(void **pointer, std::size_t bytes, cudaStream_t stream = nullptr) {
        return error(accel_raw_alloc_with_stream(pointer, bytes, stream));
    }
    cudaError_t DeviceAllocate(int device, void **pointer, std::size_t bytes,
                               cudaStream_t stream = nullptr) {
        Guard const guard(device);
        if (guard.status() == ACCEL_ERROR_INVALID)
            return cudaErrorInvalidDevice;
        return guard.status() == ACCEL_OK ? DeviceAllocate(pointer, bytes, stream)
                                          : error(guard.status());
    }
    cudaError_t DeviceFree(void *pointer) {
        return error(accel_raw_delete(pointer));
    }
    cudaError_t DeviceFree(int, void *pointer) {
        return DeviceFree(pointer); // the block knows its device
    }
    cudaError_t FreeAllCached() {
        return error(accel_empty_cache());
    }

  private:
    static cudaError_t error(accel_status_t status) {
        switch (status) {
        case ACCEL_OK:
            return cudaSuccess;
        case ACCEL_ERROR_DEVICE_MEMORY:
        case ACCEL_ERROR_OUT_OF_MEMORY:
            return cudaErrorMemoryAllocation;
        case ACCEL_ERROR_NO_DRIVER:
            return cudaErrorNoDevice;
        case ACCEL_ERROR_CUDA:
            return cudaErrorUnknown;
        default:
            return cudaErrorInvalidValue;
        }
    }
};
#endif

} // namespace accel

#endif
