/* PyTorch's pluggable allocator: functions with the signatures that it calls. */
#include "api/api_int.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void *accel_torch_malloc(size_t bytes, int device, void *stream) {
    void *pointer = NULL;
    if (!bytes || ac_raw_alloc(&pointer, bytes, device, stream, __builtin_return_address(0)))
        return NULL;
    return pointer;
}

/* Throws by libstdc++ if that is loaded: a program without it could not catch.  The library itself needs libc
 * alone.  libstdc++ may be part of a plugin, which a lookup in the global scope does not find. */
static void throw_bad_alloc(void) {
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    void (*throws)(void) = NULL;
    *(void **)&throws = dlsym(library ? library : RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    if (library)
        dlclose(library); /* its loader keeps it */
    if (throws)
        throws();
}

/* The throw passes frames of the library: they hold no lock and have nothing to undo. */
void *accel_torch_malloc_or_throw(size_t bytes, int device, void *stream) {
    void *pointer = accel_torch_malloc(bytes, device, stream);
    if (!pointer && bytes)
        throw_bad_alloc();
    return pointer;
}

void accel_torch_free(void *pointer, size_t bytes, int device, void *stream) {
    (void)bytes;
    (void)device;
    (void)stream; /* that of the request, which the block knows */
    ac_raw_delete_late(pointer);
}

void accel_torch_init(int device_count) {
    (void)device_count;
    ac_api_ready();
}

void accel_torch_reset(void) {
    accel_empty_cache();
}

void accel_torch_memory_fraction(double fraction, int device) {
    accel_set_memory_fraction(fraction, device);
}

void *accel_torch_base_alloc(void *pointer, size_t *bytes) {
    void *base = pointer;
    accel_get_base_allocation(pointer, &base, bytes);
    return base;
}

void accel_torch_record_stream(void *pointer, void *stream) {
    accel_record_stream(pointer, stream);
}

/* --- std::function<bool(cudaStream_t)> of libstdc++, whose layout does not change (it is part of the
 * ABI of GCC 5 and later): the functor or a pointer to it, a function that copies and destroys it, and
 * one that calls it. --- */

typedef struct function {
    void *functor[2];
    _Bool (*manage)(struct function *to, const struct function *from, int operation);
    _Bool (*invoke)(const struct function *function, void **stream);
} function_t;
enum { CLONE = 2, DESTROY = 3 };

static int call_filter(void *stream, void *arg) {
    const function_t *function = arg;
    return function->invoke(function, &stream);
}

static void drop_filter(void *arg) {
    function_t *function = arg;
    if (function)
        function->manage(function, function, DESTROY);
    free(function);
}

void accel_torch_begin_allocate_to_pool(int device, accel_pool_id_t pool, void *filter) {
    const function_t *given = filter;
    function_t *copy = NULL;
    if (given && given->manage) {
        copy = calloc(1, sizeof *copy);
        if (!copy)
            return; /* nothing goes to the pool: every stream would */
        copy->manage = given->manage;
        copy->invoke = given->invoke;
        given->manage(copy, given, CLONE);
    }
    if (ac_pool_begin(device, pool, copy ? call_filter : NULL, copy, drop_filter) != ACCEL_OK)
        drop_filter(copy);
}

void accel_torch_end_allocate_to_pool(int device, accel_pool_id_t pool) {
    accel_end_allocate_to_pool(device, pool);
}

void accel_torch_release_pool(int device, accel_pool_id_t pool) {
    ac_pool_release(pool, device);
}
