// Stands in for PyTorch's CUDAPluggableAllocator: finds the functions by name, and calls them with
// PyTorch's types.
#include <dlfcn.h>
#include <functional>
#include <memory>
#include <utility>

#include "api.hh"

typedef stream_t cudaStream_t;
typedef std::pair<unsigned long long, unsigned long long> MempoolId_t;

template <typename Function> static std::function<Function> find(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    EXPECT(address != nullptr);
    return reinterpret_cast<Function *>(address);
}

static long long active() {
    return stats_of(1).active.all.current;
}

int main() {
    auto alloc = find<void *(size_t, int, cudaStream_t)>("accel_torch_malloc");
    auto alloc_or_throw = find<void *(size_t, int, cudaStream_t)>("accel_torch_malloc_or_throw");
    auto give = find<void(void *, size_t, int, cudaStream_t)>("accel_torch_free");
    auto init = find<void(int)>("accel_torch_init");
    auto reset = find<void()>("accel_torch_reset");
    auto fraction = find<void(double, int)>("accel_torch_memory_fraction");
    auto base = find<void *(void *, size_t *)>("accel_torch_base_alloc");
    auto record = find<void(void *, cudaStream_t)>("accel_torch_record_stream");
    auto begin = find<void(int, MempoolId_t, std::function<bool(cudaStream_t)>)>(
        "accel_torch_begin_allocate_to_pool");
    auto end = find<void(int, MempoolId_t)>("accel_torch_end_allocate_to_pool");
    auto release = find<void(int, MempoolId_t)>("accel_torch_release_pool");

    init(2);
    EXPECT(accel_initialized());
    cudaStream_t first, second;
    {
        accel::Guard guard(1);
        EXPECT(guard.status() == ACCEL_OK && accel_current_device() == 1);
        EXPECT(cuStreamCreate(&first, 1) == 0 && cuStreamCreate(&second, 1) == 0);
    }
    EXPECT(accel_current_device() == 0); // without a context

    // The request uses the named device and stream, whatever is current.
    void *block = alloc(1000, 1, first);
    EXPECT(block && info_of(block).device == 1 && info_of(block).stream == first);
    size_t bytes = 0;
    EXPECT(base(static_cast<char *>(block) + 99, &bytes) == block && bytes == 1000);
    record(block, second);
    EXPECT(active() == 1);
    give(block, 1000, 1, first);
    EXPECT(alloc(0, 1, first) == nullptr);
    give(nullptr, 0, 1, first);

    fraction(0.125, 1); // of 1 GiB
    EXPECT(alloc(size_t(200) << 20, 1, first) == nullptr);
    EXPECT(throws([&] { alloc_or_throw(size_t(200) << 20, 1, first); }));
    block = alloc_or_throw(100, 1, first);
    EXPECT(block);
    give(block, 100, 1, first);

    // A pool for the streams that a filter selects.  The filter's state is too large for the std::function, and
    // is freed when the pool takes no more requests.
    MempoolId_t pool(3, 0x123456789abcull);
    auto asked = std::make_shared<int>(0);
    std::weak_ptr<int> alive = asked;
    struct {
        uint64_t padding[8];
    } large = {{1, 2, 3, 4, 5, 6, 7, 8}};
    begin(1, pool, [asked, large, first](cudaStream_t stream) {
        ++*asked;
        return large.padding[7] == 8 && stream == first;
    });
    void *pooled = alloc(1000, 1, first), *other = alloc(1000, 1, second);
    EXPECT(*asked == 2);
    EXPECT(info_of(pooled).pool.first == 3 && info_of(pooled).pool.second == 0x123456789abcull);
    EXPECT(info_of(other).pool.first == 0 && info_of(other).pool.second == 0);
    asked.reset();
    EXPECT(!alive.expired());
    end(1, pool);
    EXPECT(alive.expired());
    // A plain function, which needs no copy, and an empty filter.
    begin(1, pool, [](cudaStream_t stream) { return stream == nullptr; });
    void *again = alloc(1000, 1, first);
    EXPECT(info_of(again).pool.first == 0);
    end(1, pool);
    give(again, 1000, 1, first);
    EXPECT(accel_pool_use_count({3, 0x123456789abcull}) == 2);
    release(1, pool);
    release(1, pool);
    EXPECT(accel_pool_use_count({3, 0x123456789abcull}) == 0);
    give(pooled, 1000, 1, first);
    give(other, 1000, 1, second);
    EXPECT(accel_synchronize_device(1) == ACCEL_OK);
    reset();
    EXPECT(active() == 0);
    check();
    return 0;
}
