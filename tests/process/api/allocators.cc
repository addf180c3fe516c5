// The allocators of accelcache.hpp that need no toolkit; with AC_TOOLKIT also those for Thrust and CUB, and
// the resource of accelcache_rmm.hpp as libcu++ asks for it, with NVIDIA's own headers.
#include <dlpack/dlpack.h>
#include <limits>

#ifdef AC_TOOLKIT
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <thrust/device_vector.h>
#include <thrust/version.h>
#define ACCEL_CUDA_MR
#include "accelcache_rmm.hpp"
#endif
#include "accelcache.hpp"
#include "api.hh"

static void plain(stream_t stream) {
    accel::allocator<char> any;
    accel::allocator<double> same(any), ordered(stream);
    EXPECT(any == same && same != ordered && !(any != same));
    EXPECT(ordered == accel::allocator<char>(ordered));
    double *a = same.allocate(1000), *b = ordered.allocate(MIB);
    EXPECT(allocated() == 2 && reinterpret_cast<std::uintptr_t>(a) % 512 == 0);
    EXPECT(cuMemsetD8Async(address_of(b), 1, MIB, stream) == 0);
    ordered.deallocate(b, MIB);
    EXPECT(ordered.allocate(MIB) == b); // its work precedes work on the next block
    ordered.deallocate(b, MIB);
    same.deallocate(a, 1000);
    EXPECT(throws([&] { same.allocate(std::numeric_limits<std::size_t>::max() / 4); }));
    EXPECT(throws([&] { any.allocate(std::size_t(1) << 40); }));
    EXPECT(allocated() == 0);
}

#if defined(__cpp_lib_memory_resource)
static void polymorphic(stream_t stream) {
    accel::pmr_resource any, same, ordered(stream);
    std::pmr::memory_resource &base = any;
    EXPECT(base.is_equal(same) && !base.is_equal(ordered));
    EXPECT(!base.is_equal(*std::pmr::new_delete_resource()));
    std::pmr::polymorphic_allocator<float> of(&ordered);
    float *a = of.allocate(5000);
    void *b = base.allocate(100, 256);
    EXPECT(allocated() == 2);
    of.deallocate(a, 5000);
    base.deallocate(b, 100, 256);
    EXPECT(throws([&] { (void)base.allocate(100, 1024); }));
    EXPECT(throws([&] { (void)base.allocate(std::size_t(1) << 40); }));
    EXPECT(allocated() == 0);
}
#endif

// Memory with its owner: freed at the end of the scope, or by the consumer of the tensor.
static void owned() {
    accel_data_t data;
    EXPECT(accel_allocate(1000, &data) == ACCEL_OK && data.device == 0 && allocated() == 1);
    data.deleter(data.pointer);
    EXPECT(accel_allocate(0, &data) == ACCEL_OK && !data.pointer);
    data.deleter(data.pointer);
    EXPECT(accel_allocate(1000, nullptr) == ACCEL_ERROR_INVALID);
    EXPECT(accel_allocate(std::size_t(1) << 40, &data) == ACCEL_ERROR_DEVICE_MEMORY && !data.pointer);
    {
        accel::unique_ptr memory = accel::allocate(1000), moved(std::move(memory));
        EXPECT(moved && !memory && allocated() == 1);
        EXPECT(!accel::allocate(0));
    }
    EXPECT(allocated() == 0);
    EXPECT(throws([] { (void)accel::allocate(std::size_t(1) << 40); }));
    EXPECT(throws([] { (void)accel::dlpack(std::size_t(1) << 40); }));
    DLManagedTensor *tensor = accel::dlpack(1000);
    DLTensor const &view = tensor->dl_tensor;
    EXPECT(view.device.device_type == kDLCUDA && view.device.device_id == 0 && view.dtype.bits == 8);
    EXPECT(view.ndim == 1 && view.shape[0] == 1000 && !view.strides && !view.byte_offset);
    EXPECT(info_of(view.data).bytes == 1000);
    tensor->deleter(tensor);
    EXPECT(allocated() == 0);
}

#ifdef AC_TOOLKIT
static void thrust_and_cub(stream_t stream) {
    // No elements are constructed on the host: the device does that.
    using vector_t = thrust::device_vector<int, accel::thrust_allocator<int>>;
    {
        vector_t vector, other;
        vector.reserve(1000);
        EXPECT(allocated() == 1);
        EXPECT(info_of(vector.data().get()).bytes == 4000);
        other.reserve(5);
        EXPECT(allocated() == 2 && vector.get_allocator() == other.get_allocator());
        other.reserve(500000);
        EXPECT(allocated() == 2 && vector.capacity() == 1000 && other.capacity() >= 500000);
    }
    EXPECT(allocated() == 0);
    EXPECT(throws([] { vector_t().reserve(MIB << 20); }));

    accel::cub_allocator cub;
    void *a = nullptr, *b = nullptr;
    EXPECT(cub.DeviceAllocate(&a, MIB, stream) == cudaSuccess && allocated() == 1);
    EXPECT(cuMemsetD8Async(address_of(a), 1, MIB, stream) == 0);
    EXPECT(cub.DeviceFree(a) == cudaSuccess);
    EXPECT(cub.DeviceAllocate(0, &b, MIB, stream) == cudaSuccess && b == a);
    EXPECT(cub.DeviceFree(0, b) == cudaSuccess && cub.DeviceFree(b) == cudaErrorInvalidValue);
    EXPECT(cub.DeviceAllocate(&a, MIB << 20) == cudaErrorMemoryAllocation);
    EXPECT(cub.DeviceAllocate(9, &a, 100) == cudaErrorInvalidDevice);
    EXPECT(accel_synchronize_device(0) == ACCEL_OK && cub.FreeAllCached() == cudaSuccess);
    EXPECT(allocated() == 0);
}

static void libcu(stream_t stream) {
    static_assert(cuda::mr::resource_with<accel::memory_resource, cuda::mr::device_accessible>,
                  "libcu++ takes it");
    accel::memory_resource resource;
#if CCCL_VERSION < 3001000
    cuda::mr::async_resource_ref<cuda::mr::device_accessible> reference{resource};
    void *a = reference.allocate_async(MIB, 256, cuda::stream_ref{stream});
    EXPECT(a && allocated() == 1);
    reference.deallocate_async(a, MIB, 256, cuda::stream_ref{stream});
#else
    cuda::mr::resource_ref<cuda::mr::device_accessible> reference{resource};
    void *a = reference.allocate(cuda::stream_ref{stream}, MIB, 256);
    EXPECT(a && allocated() == 1);
    reference.deallocate(cuda::stream_ref{stream}, a, MIB, 256);
#endif
    EXPECT(allocated() == 0);
}
#endif

int main() {
    stream_t stream;
    EXPECT(accel_set_device(0) == ACCEL_OK && cuStreamCreate(&stream, 1) == 0);
    plain(stream);
    owned();
#if defined(__cpp_lib_memory_resource)
    polymorphic(stream);
#endif
#ifdef AC_TOOLKIT
    thrust_and_cub(stream);
    libcu(stream);
#endif
    check();
    return 0;
}
