/* memory.h through the driver API.  dlsym finds it, as in programs without a toolkit. */
#include "memory.h"

#include <dlfcn.h>
#include <string.h>

#include "device/cuda_abi.h"

static struct {
    cuMemAlloc_v2_fn *alloc;
    cuMemFree_v2_fn *free;
    cuMemcpyHtoDAsync_v2_fn *copy_in;
    cuMemcpyDtoHAsync_v2_fn *copy_out;
} cu;

const char demo_memory_api[] = "driver API";

const char *demo_memory_open(void *driver) {
    static const struct {
        const char *name;
        void *slot;
    } functions[] = {{"cuMemAlloc_v2", &cu.alloc},
                     {"cuMemFree_v2", &cu.free},
                     {"cuMemcpyHtoDAsync_v2", &cu.copy_in},
                     {"cuMemcpyDtoHAsync_v2", &cu.copy_out}};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *symbol = dlsym(driver, functions[i].name);
        if (!symbol)
            return functions[i].name;
        memcpy(functions[i].slot, &symbol, sizeof(symbol));
    }
    return NULL;
}

unsigned demo_memory_alloc(unsigned long long *address, size_t bytes) {
    return cu.alloc(address, bytes);
}

unsigned demo_memory_free(unsigned long long address) {
    return cu.free(address);
}

unsigned demo_memory_copy_in(unsigned long long to, const void *from, size_t bytes,
                             void *stream) {
    return cu.copy_in(to, from, bytes, stream);
}

unsigned demo_memory_copy_out(void *to, unsigned long long from, size_t bytes, void *stream) {
    return cu.copy_out(to, from, bytes, stream);
}
