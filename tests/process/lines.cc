// A program whose call sites are known by line: lines.py reads them from the comments at the ends of lines.
// Compiled there, with and without optimisation, and as a plug-in (LINES_PLUGIN).
//
// usage: lines [PLUGIN]
#include <cstddef>
#include <dlfcn.h>

extern "C" int cudaMalloc(void **pointer, std::size_t bytes);

// As in cuda_runtime.h.
template <typename T> static inline int cudaMalloc(T **pointer, std::size_t bytes) {
    return cudaMalloc(reinterpret_cast<void **>(pointer), bytes);
}

// An allocator of C++ over it.
void *operator new(std::size_t bytes, const struct on_device_t &) {
    void *pointer = nullptr;
    cudaMalloc(&pointer, bytes);
    return pointer;
}
struct on_device_t {};

#define STAY __asm__ volatile("" : : : "memory") // what came before is no tail call

namespace kv {
struct Tensor {
    float *data = nullptr;
    explicit Tensor(std::size_t count) {
        cudaMalloc(&data, count * sizeof *data); // line: tensor
        STAY;
    }
};

inline Tensor make(std::size_t count) {
    return Tensor(count); // line: make
}

struct Cache {
    Tensor *last = nullptr;
    __attribute__((noinline)) void append(std::size_t count) {
        static Tensor kept = make(count); // line: append
        last = &kept;
        STAY;
    }
};
} // namespace kv

__attribute__((noinline)) static void *take_new() {
    void *pointer = operator new(3000, on_device_t()); // line: new
    STAY;
    return pointer;
}

#ifdef LINES_PLUGIN
extern "C" void plugin_take() {
    kv::Cache cache;
    cache.append(500); // line: plugin
    STAY;
}
#else
int main(int argc, char **argv) {
    kv::Cache cache;
    cache.append(1000); // line: main
    take_new();
    if (argc > 1) {
        void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        auto take = reinterpret_cast<void (*)()>(dlsym(plugin, "plugin_take"));
        take();
        dlclose(plugin);
    }
    return 0;
}
#endif
