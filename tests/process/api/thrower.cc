// A plugin in C++ of a program that is not: whether accel_torch_malloc_or_throw throws what it can catch.
#include <new>

#include "accelcache_torch.h"

extern "C" int asks_for_too_much(void *(*ask)(size_t bytes, int device, void *stream));
extern "C" int asks_for_too_much(void *(*ask)(size_t bytes, int device, void *stream)) {
    try {
        return ask(size_t(1) << 45, 0, nullptr) ? 0 : 1;
    } catch (const std::bad_alloc &) {
        return 2;
    }
}
