// Failures of the classes of accelcache.hpp and accelcache_rmm.hpp: the exception gives the reason, and memory
// is returned whatever the state of its stream.
#include <cstring>
#include <functional>
#include <limits>

#include "accelcache.hpp"
#include "accelcache_rmm.hpp"
#include "api.hh"

extern "C" {
int cuStreamDestroy_v2(stream_t stream);
int cuStreamBeginCapture_v2(stream_t stream, int mode);
int cuStreamEndCapture(stream_t stream, void **graph);
}

enum { RELAXED = 2, MUCH_SHIFT = 40 };
static std::size_t const much = std::size_t(1) << MUCH_SHIFT;

static stream_t new_stream() {
    stream_t stream;
    EXPECT(cuStreamCreate(&stream, 1) == 0);
    return stream;
}
static stream_t gone_stream() {
    stream_t const stream = new_stream();
    EXPECT(cuStreamDestroy_v2(stream) == 0);
    return stream;
}

// Allocation and free by each of the classes.
struct way {
    const char *name;
    std::function<void *(std::size_t bytes, stream_t stream)> take;
    std::function<void(void *, stream_t)> give;
    bool ordered;
};

static const way ways[] = {
    {"allocator", [](std::size_t bytes, stream_t) { return accel::allocator<char>().allocate(bytes); },
     [](void *p, stream_t) { accel::allocator<char>().deallocate(static_cast<char *>(p), 0); }, false},
    {"allocator of a stream",
     [](std::size_t bytes, stream_t s) { return accel::allocator<char>(s).allocate(bytes); },
     [](void *p, stream_t s) { accel::allocator<char>(s).deallocate(static_cast<char *>(p), 0); }, true},
    {"pmr_resource", [](std::size_t bytes, stream_t) { return accel::pmr_resource().allocate(bytes); },
     [](void *p, stream_t) { accel::pmr_resource().deallocate(p, 0); }, false},
    {"pmr_resource of a stream",
     [](std::size_t bytes, stream_t s) { return accel::pmr_resource(s).allocate(bytes); },
     [](void *p, stream_t s) { accel::pmr_resource(s).deallocate(p, 0); }, true},
    {"memory_resource",
     [](std::size_t bytes, stream_t s) { return accel::memory_resource().allocate(s, bytes); },
     [](void *p, stream_t s) { accel::memory_resource().deallocate(s, p, 0); }, true},
    {"memory_resource, async",
     [](std::size_t bytes, stream_t s) { return accel::memory_resource().allocate_async(bytes, 256, s); },
     [](void *p, stream_t s) { accel::memory_resource().deallocate_async(p, 0, 256, s); }, true},
    {"memory_resource, sync",
     [](std::size_t bytes, stream_t) { return accel::memory_resource().allocate_sync(bytes); },
     [](void *p, stream_t) { accel::memory_resource().deallocate_sync(p, 0); }, false},
    {"rmm_memory_resource",
     [](std::size_t bytes, stream_t s) {
         accel::rmm_memory_resource own;
         rmm::mr::device_memory_resource &base = own;
         return base.allocate(bytes, s);
     },
     [](void *p, stream_t s) {
         accel::rmm_memory_resource own;
         rmm::mr::device_memory_resource &base = own;
         base.deallocate(p, 0, s);
     },
     true},
};

// Checks that `call` throws a std::bad_alloc with `word` in its text, and that nothing stays allocated.
static void fails(const char *name, const char *word, std::function<void()> const &call) {
    long long const before = allocated();
    bool thrown = false;
    try {
        call();
    } catch (std::bad_alloc const &error) {
        thrown = std::strstr(error.what(), word) != nullptr;
        if (!thrown)
            std::fprintf(stderr, "%s: \"%s\" lacks \"%s\"\n", name, error.what(), word);
    }
    if (!thrown || allocated() != before)
        std::fprintf(stderr, "%s: %s\n", name, thrown ? "something stays allocated" : "no such error");
    EXPECT(thrown && allocated() == before);
}

static void each(way const &of, stream_t stream) {
    fails(of.name, "memory is short", [&] { of.take(much, stream); });
    if (of.ordered)
        fails(of.name, "stream", [&] { of.take(100, gone_stream()); });
    // Frees that name a destroyed stream, or one that captures.
    void *block = of.take(1000, stream), *other = of.take(1000, stream), *graph;
    long long const before = allocated();
    of.give(block, gone_stream());
    EXPECT(allocated() == before - 1);
    stream_t const captures = new_stream();
    EXPECT(cuStreamBeginCapture_v2(captures, RELAXED) == 0);
    of.give(other, captures);
    EXPECT(cuStreamEndCapture(captures, &graph) == 0);
    EXPECT(allocated() == before - 2);
    // Frees of free memory and of foreign memory are refused, without other effects.
    int nothing;
    of.give(block, stream);
    of.give(&nothing, stream);
    EXPECT(allocated() == before - 2);
    check();
}

int main() {
    EXPECT(accel_set_device(0) == ACCEL_OK);
    stream_t const stream = new_stream();
    for (way const &of : ways)
        each(of, stream);

    std::size_t const most = std::numeric_limits<std::size_t>::max();
    fails("too many elements", "no size in bytes", [&] { accel::allocator<double>().allocate(most / 4); });
    fails("alignment", "512 bytes", [] { (void)accel::pmr_resource().allocate(1, 1024); });
    fails("alignment", "512 bytes", [&] { accel::memory_resource().allocate(stream, 1, 1024); });
    fails("alignment", "512 bytes", [] { accel::memory_resource().allocate_sync(1, 1024); });
    try {
        accel::allocator<char>().allocate(much);
    } catch (accel::bad_alloc const &error) {
        EXPECT(error.status() == ACCEL_ERROR_DEVICE_MEMORY);
    }
    EXPECT(throws<rmm::out_of_memory>([&] { ways[7].take(much, stream); }));

    // A device that does not exist: the guard reports it, and the current device stays.
    {
        accel::Guard const guard(7);
        EXPECT(guard.status() == ACCEL_ERROR_INVALID && accel_current_device() == 0);
        accel::Guard const other(accel_stream_t{stream, 7});
        EXPECT(other.status() == ACCEL_ERROR_INVALID && accel_current_device() == 0);
    }
    EXPECT(accel_current_device() == 0 && allocated() == 0);
    for (int status = ACCEL_OK + 1; status <= ACCEL_ERROR_INTERIOR; status++) // a cause, and a remedy
        EXPECT(std::strchr(accel_status_string(static_cast<accel_status_t>(status)), ':') != nullptr);
    return 0;
}
