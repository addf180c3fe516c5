// A C++ plugin of a C program. It checks that it can catch what accel_torch_malloc_or_throw throws.
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
