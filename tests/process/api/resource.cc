// The resources of accelcache_rmm.hpp, called as libcu++ and RMM call them.
#include "accelcache_rmm.hpp"
#include "api.hh"

struct stream_ref { // as cuda::stream_ref
    cudaStream_t stream;
    cudaStream_t get() const {
        return stream;
    }
};

int main() {
    cudaStream_t first, second;
    EXPECT(accel_set_device(0) == ACCEL_OK);
    EXPECT(cuStreamCreate(&first, 1) == 0 && cuStreamCreate(&second, 1) == 0);

    accel::memory_resource resource, same;
    EXPECT(resource == same && !(resource != same));
    get_property(resource, cuda::mr::device_accessible{});
    void *block = resource.allocate(stream_ref{first}, MIB, 256);
    EXPECT(block && reinterpret_cast<std::uintptr_t>(block) % 512 == 0 && allocated() == 1);
    // The stream is held: its next request gets the block at once, a request of another stream does not.
    void *flag = resource.allocate_sync(512);
    std::uint64_t const at = address_of(flag);
    EXPECT(cuMemsetD8Async(at, 0, 4, nullptr) == 0 && accel_synchronize_device(0) == ACCEL_OK);
    EXPECT(cuStreamWaitValue32_v2(second, at, 1, 0) == 0);
    EXPECT(cuMemsetD8Async(address_of(block), 1, MIB, second) == 0);
    // The free follows the order of its own stream, not of the request's.
    resource.deallocate(stream_ref{second}, block, MIB, 256);
    void *elsewhere = resource.allocate(first, MIB);
    void *again = resource.allocate(second, MIB);
    EXPECT(elsewhere != block && again == block);
    EXPECT(cuStreamWriteValue32_v2(first, at, 1, 0) == 0);
    EXPECT(accel_synchronize_device(0) == ACCEL_OK);
    resource.deallocate(first, elsewhere, MIB);
    resource.deallocate_sync(flag, 512);
    resource.deallocate(second, again, MIB);
    EXPECT(throws<std::bad_alloc>([&] { resource.allocate(stream_ref{first}, MIB, 4096); }));
    EXPECT(throws<std::bad_alloc>([&] { resource.allocate(stream_ref{first}, MIB << 20); }));
    EXPECT(throws<std::bad_alloc>([&] { resource.allocate_sync(MIB << 20); }));
    EXPECT(resource.allocate(first, 0) == nullptr);
    block = resource.allocate_sync(100);
    resource.deallocate_sync(block, 100);
    block = resource.allocate(100, 256);
    resource.deallocate(block, 100, 256);
    block = resource.allocate_async(100, 256, stream_ref{first});
    resource.deallocate_async(block, 100, 256, stream_ref{first});
    EXPECT(allocated() == 0);

    accel::rmm_memory_resource pool, other;
    rmm::mr::device_memory_resource &base = pool;
    EXPECT(base.is_equal(other));
    block = base.allocate(1000, first);
    EXPECT(info_of(block).bytes >= 1000);
    base.deallocate(block, 1000, second);
    EXPECT(allocated() == 0);
    EXPECT(throws<rmm::out_of_memory>([&] { base.allocate(MIB << 20, first); }));
    check();
    return 0;
}
