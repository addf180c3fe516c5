/* Shared parts of the stand-in runtime: the driver's functions as init.c found them, the state of
 * a thread, and the beginning and end of every entry point.
 *
 * Locks: one per device (device.c, around retaining and resetting its primary context), and one of
 * the registry (module.c, never held over a driver call).  They are never nested. */
#ifndef RT_INTERNAL_H
#define RT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

/* libcudart.so exports the functions of the header.  In the static archive they stay hidden: a
 * program linked with it has cudaMalloc as a local symbol, as with NVIDIA's. */
#ifndef RT_STATIC
#pragma GCC visibility push(default)
#include "cuda_runtime_min.h"
#pragma GCC visibility pop
#else
#include "cuda_runtime_min.h"
#endif

enum { RT_MAX_DEVICES = 64, RT_MAX_CONFIGURATIONS = 16 };

/* Version that cudaRuntimeGetVersion reports, and that entry point queries without a version
 * use. */
enum { RT_VERSION = RT_MAJOR == 11 ? 11080 : RT_MAJOR == 12 ? 12080 : 13000 };

/* ---------------------------------------------------------------- the driver's functions */
enum simrt_slot {
#define RT_LOOKUP(symbol, name, version, flags) RT_##symbol,
#include "lookups.def"
#undef RT_LOOKUP
    RT_SLOT_COUNT
};

typedef union {
    void *address;          /* form in which dlsym and cuGetProcAddress return it */
    void (*function)(void); /* type to which every function pointer may be cast */
} simrt_slot_value;

extern simrt_slot_value simrt_slots[RT_SLOT_COUNT];

/* RT_DRIVER(cuMemAlloc_v2)(&p, n) calls the driver.  It is never NULL: a symbol that the driver
 * lacks answers 36. */
#define RT_DRIVER(symbol) ((symbol##_fn *)simrt_slots[RT_##symbol].function)

/* Default stream of a call; the twins of a function differ only in it. */
enum simrt_mode { RT_LEGACY, RT_PER_THREAD };
#define RT_BY_MODE(mode, symbol, suffix)                                                         \
    ((symbol##_fn *)simrt_slots[(mode) == RT_PER_THREAD ? RT_##symbol##_##suffix : RT_##symbol]  \
         .function)

/* ---------------------------------------------------------------- begin and end of a call */
/* Every entry point starts with one of the first two.  simrt_initialize finds and initialises the
 * driver; simrt_enter also makes a context current in this thread.  It ends in simrt_return, which
 * keeps the first failure for cudaGetLastError. */
cudaError_t simrt_initialize(void);
cudaError_t simrt_enter(void);
cudaError_t simrt_fail(cudaError_t error);
static inline cudaError_t simrt_return(CUresult result) {
    return result == CUDA_SUCCESS ? cudaSuccess : simrt_fail((cudaError_t)result);
}

/* Evaluates the arguments after the call has begun, because RT_DEV needs the devices. */
#define RT_CALL(begin, call)                                                                     \
    do {                                                                                         \
        cudaError_t simrt_error = begin();                                                       \
        return simrt_error != cudaSuccess ? simrt_error : simrt_return(call);                    \
    } while (0)

#define RT_PTR(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define RT_OUT(place)   ((CUdeviceptr *)(void *)(place))
#define RT_DEV(ordinal) simrt_device_handle(ordinal)

/* ---------------------------------------------------------------- one thread */
struct simrt_configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

struct simrt_thread {
    cudaError_t last_error;
    int device;         /* chosen by cudaSetDevice, used while no context is current */
    bool device_chosen; /* ... and not yet current: version 11 waits for the next call */
    CUcontext made;     /* the primary context that we made current here */
    unsigned made_age;  /* number of resets at that time (device.c) */
    unsigned configurations;
    struct simrt_configuration configuration[RT_MAX_CONFIGURATIONS];
};
extern _Thread_local struct simrt_thread simrt_thread;

/* ---------------------------------------------------------------- devices (device.c) */
cudaError_t simrt_devices_find(void);      /* by init.c, once */
CUdevice simrt_device_handle(int ordinal); /* a bad number gives -1, which the driver refuses */
bool simrt_device_exists(int ordinal);
CUresult simrt_device_primary(int ordinal, CUcontext *context);
CUresult simrt_device_current(int *ordinal);
CUresult simrt_context_make_current(void);

/* ---------------------------------------------------------------- modules (module.c) */
struct simrt_function;
struct simrt_function *simrt_function_find(const void *host);
bool simrt_function_known(const struct simrt_function *function);
CUresult simrt_function_load(struct simrt_function *function, CUfunction *loaded);
CUresult simrt_function_kernel(struct simrt_function *function, CUkernel *kernel);
CUresult simrt_symbol_find(const void *host, CUdeviceptr *address, size_t *bytes);

#endif
