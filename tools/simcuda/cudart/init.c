/* The way to the driver.  The first runtime call opens libcuda.so.1 and asks for its functions, in
 * the order of the real runtime.  A library between a program and the driver (a preload library, an
 * audit module) therefore sees the usual queries.  Every entry point calls simrt_initialize;
 * pthread_once is the only lock. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "internal.h"

struct lookup {
    const char *symbol;
    const char *name;
    int version;
    unsigned flags;
};

static const struct lookup lookups[RT_SLOT_COUNT] = {
#define RT_LOOKUP(symbol, name, version, flags) {#symbol, #name, version, flags},
#include "lookups.def"
#undef RT_LOOKUP
};

simrt_slot_value simrt_slots[RT_SLOT_COUNT];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t outcome = cudaErrorInitializationError;

/* Answers calls of functions that the driver lacks because it is older than this runtime. */
static CUresult missing(void) {
    return CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
}

typedef cuGetProcAddress_v2_fn *query_fn;

/* Queries one function.  The status argument stays NULL, as in the real runtime: interposers must
 * accept it. */
static bool ask(query_fn query, enum simrt_slot slot) {
    const struct lookup *l = &lookups[slot];
    void *address = NULL;
    if (query(l->name, &address, l->version, l->flags, NULL) != CUDA_SUCCESS) {
        address = NULL;
    }
    simrt_slots[slot].address = address;
    return address != NULL;
}

/* Drivers since CUDA 12: one dlsym; its result finds all other functions. */
static void ask_driver(query_fn query) {
    void *ignored = NULL;
    (void)query("", &ignored, 0, 0, NULL);
    ask(query, RT_cuInit);
    ask(query, RT_cuGetProcAddress);
    if (ask(query, RT_cuGetProcAddress_v2)) {
        query = (query_fn)simrt_slots[RT_cuGetProcAddress_v2].function;
    }
    for (int slot = RT_cuGetProcAddress_v2 + 1; slot < RT_SLOT_COUNT; slot++) {
        ask(query, (enum simrt_slot)slot);
    }
}

/* Older drivers: dlsym finds each symbol by its exported name. */
static void ask_linker(void *library) {
    for (int slot = 0; slot < RT_SLOT_COUNT; slot++) {
        simrt_slots[slot].address = dlsym(library, lookups[slot].symbol);
    }
}

static cudaError_t find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        return cudaErrorInsufficientDriver;
    }
    simrt_slot_value query = {.address = dlsym(library, "cuGetProcAddress_v2")};
    if (query.address != NULL) {
        ask_driver((query_fn)query.function);
    } else {
        ask_linker(library);
    }
    if (simrt_slots[RT_cuInit].address == NULL) {
        return cudaErrorCallRequiresNewerDriver;
    }
    if (simrt_slots[RT_cuDriverGetVersion].address == NULL) {
        return cudaErrorInsufficientDriver;
    }
    for (int slot = 0; slot < RT_SLOT_COUNT; slot++) {
        if (simrt_slots[slot].address == NULL) {
            simrt_slots[slot].function = (void (*)(void))missing;
        }
    }
    /* The real runtime refuses older drivers here.  The stand-in accepts any, so that every
     * version tests the way without cuGetProcAddress_v2. */
    int version = 0;
    CUresult result = RT_DRIVER(cuDriverGetVersion)(&version);
    if (result == CUDA_SUCCESS) {
        result = RT_DRIVER(cuInit)(0);
    }
    return result == CUDA_SUCCESS ? simrt_devices_find() : (cudaError_t)result;
}

static void find_driver_once(void) {
    outcome = find_driver();
}

/* Initialises once.  Every later call returns the result of the first one: nothing is tried
 * twice. */
static cudaError_t initialized(void) {
    pthread_once(&once, find_driver_once);
    return outcome;
}

cudaError_t simrt_initialize(void) {
    cudaError_t error = initialized();
    return error == cudaSuccess ? cudaSuccess : simrt_fail(error);
}

cudaError_t simrt_enter(void) {
    cudaError_t error = simrt_initialize();
    return error == cudaSuccess ? simrt_return(simrt_context_make_current()) : error;
}

/* Answers 0 if no driver is installed, as documented. */
cudaError_t cudaDriverGetVersion(int *version) {
    if (version == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    cudaError_t error = initialized();
    if (error == cudaErrorInsufficientDriver || error == cudaErrorCallRequiresNewerDriver) {
        *version = 0;
        return cudaSuccess;
    }
    return simrt_return(RT_DRIVER(cuDriverGetVersion)(version));
}

/* Initialises the driver like every other call, although the answer does not need it. */
cudaError_t cudaRuntimeGetVersion(int *version) {
    if (version == NULL) {
        return simrt_fail(cudaErrorInvalidValue);
    }
    (void)initialized();
    *version = RT_VERSION;
    return cudaSuccess;
}
