// accel::memory_resource in RMM's own containers and adaptors.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "accelcache_rmm.hpp"

#include <rmm/device_buffer.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

static long long allocated() {
    accel_device_stats_t stats = {};
    stats.size = sizeof stats;
    EXPECT(accel_get_device_stats(0, &stats) == ACCEL_OK);
    return stats.allocation.all.current;
}

int main() {
    static_assert(cuda::mr::resource_with<accel::memory_resource, cuda::mr::device_accessible>,
                  "RMM takes it");
    EXPECT(accel_set_device(0) == ACCEL_OK);
    accel::memory_resource resource;
    cuda::stream_ref const stream{cudaStream_t{}};
    {
        rmm::device_buffer buffer(5000, stream, resource);
        EXPECT(allocated() == 1);
        accel_pointer_info_t info = {};
        info.size = sizeof info;
        EXPECT(accel_pointer_info(buffer.data(), &info) == ACCEL_OK && info.bytes >= 5000);
    }
    EXPECT(allocated() == 0);
    rmm::device_async_resource_ref reference{resource};
    rmm::mr::statistics_resource_adaptor counted(reference);
    void *memory = counted.allocate(stream, 1000, 256);
    EXPECT(counted.get_bytes_counter().value == 1000 && allocated() == 1);
    counted.deallocate(stream, memory, 1000, 256);
    bool thrown = false;
    try {
        rmm::device_buffer buffer(std::size_t(1) << 40, stream, resource);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    EXPECT(thrown && allocated() == 0);
    return 0;
}
