/* A preloaded library with a cuMemAlloc and a cuMemFree that do nothing.
 *
 * The cost of a pair through a runtime is then the runtime's own share.  Runtimes call
 * dlsym("cuGetProcAddress_v2") and look functions up with the result.  This file replaces both.
 * All other functions are the driver's.  The returned addresses are not memory, so the library is
 * only good for timing. */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef int lookup_fn(const char *symbol, void **function, int version, uint64_t flags,
                      int *status);

static void *(*original)(void *, const char *);
static lookup_fn *driver_lookup;

static int null_alloc(unsigned long long *at, size_t bytes) {
    (void)bytes;
    *at = 0x7f0000000000ull; /* looks like device memory */
    return 0;
}

static int null_free(unsigned long long at) {
    (void)at;
    return 0;
}

static int lookup(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    static lookup_fn *const self = lookup;
    static int (*const alloc)(unsigned long long *, size_t) = null_alloc;
    static int (*const release)(unsigned long long) = null_free;
    int error = driver_lookup(symbol, function, version, flags, status);
    if (error || !*function)
        return error;
    if (!strcmp(symbol, "cuGetProcAddress") && version >= 12000)
        memcpy(function, &self, sizeof self);
    else if (!strcmp(symbol, "cuMemAlloc") && version >= 3020)
        memcpy(function, &alloc, sizeof alloc);
    else if (!strcmp(symbol, "cuMemFree") && version >= 3020)
        memcpy(function, &release, sizeof release);
    return 0;
}

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name) {
    static lookup_fn *const self = lookup;
    void *found;
    if (!original) {
        found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!found)
            found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        memcpy(&original, &found, sizeof found);
    }
    found = original(handle, name);
    if (!found || strcmp(name, "cuGetProcAddress_v2"))
        return found;
    memcpy(&driver_lookup, &found, sizeof found);
    memcpy(&found, &self, sizeof found);
    return found;
}
