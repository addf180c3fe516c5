// RMM's own pool over cudaMalloc, of its headers (24.12): what use.py measures of RMM in Python, whose CUDA
// runtime does not start on the simulated device.  The pool begins with half of what is free.
#include "../api/api.hh"

#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

struct figures_t {
    long long served, counted, unseen;
};

static figures_t figures() {
    std::size_t free_bytes = 0, total = 0;
    EXPECT(accel_synchronize_device(0) == ACCEL_OK && accel_empty_cache() == ACCEL_OK);
    EXPECT(accel_get_device_memory_info(0, &free_bytes, &total) == ACCEL_OK);
    accel_device_stats_t const stats = stats_of(0);
    return {stats.requested_bytes.all.allocated, stats.allocated_bytes.all.current,
            static_cast<long long>(total - free_bytes) - stats.reserved_bytes.all.current};
}

int main() {
    std::size_t const sizes[] = {1000, 100000, 3 * MIB, 50 * MIB};
    std::size_t asked = 0, half = 0, total = 0;
    EXPECT(cudaSetDevice(0) == cudaSuccess && accel_set_device(0) == ACCEL_OK);
    figures_t const before = figures();
    figures_t there;
    {
        rmm::mr::cuda_memory_resource plain;
        EXPECT(accel_get_device_memory_info(0, &half, &total) == ACCEL_OK);
        half = half / 2 / 256 * 256;
        rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool(&plain, half);
        void *buffer[4];
        for (int i = 0; i < 4; i++) {
            buffer[i] = pool.allocate(sizes[i]);
            asked += sizes[i];
        }
        there = figures();
        for (int i = 0; i < 4; i++)
            pool.deallocate(buffer[i], sizes[i]);
    }
    std::printf("{\"asked\": %zu, \"served\": %lld, \"counted\": %lld, \"unseen\": %lld, "
                "\"left\": %lld}\n",
                asked, there.served - before.served, there.counted - before.counted,
                there.unseen - before.unseen, figures().counted - before.counted);
    return 0;
}
