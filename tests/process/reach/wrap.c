/* Another preload library, which wraps dlopen and dlmopen.  WRAP_TAIL: its calls leave the caller's return address
 * to the next definition, as an optimising compiler makes them; else the loader takes it for the caller. */
#include <dlfcn.h>
#include <stddef.h>

typedef void *open_fn(const char *file, int mode);
typedef void *space_fn(Lmid_t space, const char *file, int mode);

#ifdef WRAP_TAIL
#define CALL(call) return call
#else
#define CALL(call)                                                                               \
    void *volatile handle = call;                                                                \
    return handle
#endif

void *dlopen(const char *file, int mode) {
    open_fn *next = __extension__(open_fn *) dlsym(RTLD_NEXT, "dlopen");
    CALL(next(file, mode));
}

void *dlmopen(Lmid_t space, const char *file, int mode) {
    space_fn *next = __extension__(space_fn *) dlsym(RTLD_NEXT, "dlmopen");
    CALL(next(space, file, mode));
}
