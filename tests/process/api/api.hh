// Shared by the C++ programs: their checks, and the driver's functions that they call.
#ifndef API_HH
#define API_HH

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "accelcache.h"
#include "accelcache_pools.h"
#include "accelcache_torch.h"
#include "agrees.h"

#define EXPECT(condition)                                                                        \
    do {                                                                                         \
        if (!(condition)) {                                                                      \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                 \
            std::exit(1);                                                                        \
        }                                                                                        \
    } while (0)

typedef struct CUstream_st *stream_t; // cudaStream_t of NVIDIA's headers
#ifndef __cuda_cuda_h__               // NVIDIA's cuda.h declares them as well
extern "C" {
int cuStreamCreate(stream_t *stream, unsigned flags);
int cuMemsetD8Async(std::uint64_t pointer, unsigned char value, std::size_t bytes,
                    stream_t stream);
int cuStreamWaitValue32_v2(stream_t stream, std::uint64_t pointer, std::uint32_t value,
                           unsigned flags);
int cuStreamWriteValue32_v2(stream_t stream, std::uint64_t pointer, std::uint32_t value,
                            unsigned flags);
}
#endif

static constexpr std::size_t MIB = 1 << 20;

inline std::uint64_t address_of(const void *pointer) {
    return reinterpret_cast<std::uint64_t>(pointer);
}

inline accel_device_stats_t stats_of(int device) {
    accel_device_stats_t stats = {};
    stats.size = sizeof stats;
    EXPECT(accel_get_device_stats(device, &stats) == ACCEL_OK);
    return stats;
}

// Returns the number of blocks that the program holds on device 0.
inline long long allocated() {
    return stats_of(0).allocation.all.current;
}

inline accel_pointer_info_t info_of(const void *pointer) {
    accel_pointer_info_t info = {};
    info.size = sizeof info;
    EXPECT(accel_pointer_info(pointer, &info) == ACCEL_OK);
    return info;
}

template <class Error = std::bad_alloc, class Call> bool throws(Call call) {
    try {
        call();
    } catch (const Error &) {
        return true;
    }
    return false;
}

// Checks that the cache's records agree.
inline void check() {
    char message[160];
    EXPECT(records_agree(accel_check, message, sizeof message) == ACCEL_OK);
}

#endif
