// accel::memory_resource in RMM's own containers and adaptors.
#include "accelcache_rmm.hpp"
#include "api.hh"

#include <rmm/device_buffer.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

int main() {
    static_assert(cuda::mr::resource_with<accel::memory_resource, cuda::mr::device_accessible>,
                  "RMM takes it");
    EXPECT(accel_set_device(0) == ACCEL_OK);
    accel::memory_resource resource;
    cuda::stream_ref const stream{cudaStream_t{}};
    {
        rmm::device_buffer buffer(5000, stream, resource);
        EXPECT(allocated() == 1);
        EXPECT(info_of(buffer.data()).bytes >= 5000);
    }
    EXPECT(allocated() == 0);
    rmm::device_async_resource_ref reference{resource};
    rmm::mr::statistics_resource_adaptor counted(reference);
    void *memory = counted.allocate(stream, 1000, 256);
    EXPECT(counted.get_bytes_counter().value == 1000 && allocated() == 1);
    counted.deallocate(stream, memory, 1000, 256);
    EXPECT(throws([&] { rmm::device_buffer(std::size_t(1) << 40, stream, resource); }));
    EXPECT(allocated() == 0);
    return 0;
}
