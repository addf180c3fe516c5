// The resources of accelcache_rmm.hpp, called as libcu++ and RMM call them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "accelcache_rmm.hpp"

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

struct stream_ref { // as cuda::stream_ref
    cudaStream_t stream;
    cudaStream_t get() const {
        return stream;
    }
};

static long long allocated() {
    accel_device_stats_t stats = {};
    stats.size = sizeof stats;
    EXPECT(accel_get_device_stats(0, &stats) == ACCEL_OK);
    return stats.allocation.all.current;
}

extern "C" int cuStreamCreate(cudaStream_t *stream, unsigned flags);
extern "C" int cuMemsetD8Async(std::uint64_t pointer, unsigned char value, std::size_t bytes,
                               cudaStream_t stream);

extern "C" int cuStreamWaitValue32_v2(cudaStream_t stream, std::uint64_t pointer,
                                      std::uint32_t value, unsigned flags);
extern "C" int cuStreamWriteValue32_v2(cudaStream_t stream, std::uint64_t pointer,
                                       std::uint32_t value, unsigned flags);

template <class Error, class Call> static bool throws(Call call) {
    try {
        call();
    } catch (const Error &) {
        return true;
    }
    return false;
}

int main() {
    constexpr std::size_t MIB = 1 << 20;
    cudaStream_t first, second;
    EXPECT(accel_set_device(0) == ACCEL_OK);
    EXPECT(cuStreamCreate(&first, 1) == 0 && cuStreamCreate(&second, 1) == 0);

    accel::memory_resource resource, same;
    EXPECT(resource == same && !(resource != same));
    get_property(resource, cuda::mr::device_accessible{});
    void *block = resource.allocate(stream_ref{first}, MIB, 256);
    EXPECT(block && reinterpret_cast<std::uintptr_t>(block) % 512 == 0 && allocated() == 1);
    // While the stream is held: its next request has the block at once, that of another does not.
    void *flag = resource.allocate_sync(512);
    std::uint64_t const at = reinterpret_cast<std::uint64_t>(flag);
    EXPECT(cuMemsetD8Async(at, 0, 4, nullptr) == 0 && accel_synchronize_device(0) == ACCEL_OK);
    EXPECT(cuStreamWaitValue32_v2(second, at, 1, 0) == 0);
    EXPECT(cuMemsetD8Async(reinterpret_cast<std::uint64_t>(block), 1, MIB, second) == 0);
    // In the order of the stream of the free, and not of that of the request.
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
    accel_pointer_info_t info = {};
    info.size = sizeof info;
    EXPECT(accel_pointer_info(block, &info) == ACCEL_OK && info.bytes >= 1000);
    base.deallocate(block, 1000, second);
    EXPECT(allocated() == 0);
    EXPECT(throws<rmm::out_of_memory>([&] { base.allocate(MIB << 20, first); }));
    char message[160];
    EXPECT(accel_check(message, sizeof message) == ACCEL_OK);
    return 0;
}
