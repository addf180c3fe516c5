// A plug-in of sites.c whose frames have C++ names.  Compiled without tail calls, which would hide who
// calls.
#include <cstddef>

extern "C" int cuMemAlloc_v2(unsigned long long *pointer, std::size_t bytes);
extern "C" int cuMemFree_v2(unsigned long long pointer);

namespace model {
template <typename T> struct Layer {
    __attribute__((noinline)) unsigned long long grow(std::size_t count) {
        unsigned long long pointer = 0;
        cuMemAlloc_v2(&pointer, count * sizeof(T));
        return pointer;
    }
};

__attribute__((noinline)) unsigned long long build(std::size_t count) {
    Layer<float> layer;
    unsigned long long pointer = layer.grow(count);
    __asm__ volatile("" : : "r"(&layer) : "memory");
    return pointer;
}
} // namespace model

extern "C" __attribute__((visibility("default"))) unsigned long long plugin_take(std::size_t bytes) {
    unsigned long long pointer = model::build(bytes / sizeof(float));
    __asm__ volatile("" : : : "memory");
    return pointer;
}

extern "C" __attribute__((visibility("default"))) void plugin_give(unsigned long long pointer) {
    cuMemFree_v2(pointer);
    __asm__ volatile("" : : : "memory");
}
