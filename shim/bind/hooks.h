/* Declarations from hooks.def for all files: indices, names, real functions, exports. */
#ifndef AC_HOOKS_H
#define AC_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/cuda_abi.h"
#include "device/device.h"

/* Marks a function that the shared library exports.  All other symbols are hidden. */
#define AC_EXPORT __attribute__((visibility("default")))

typedef enum {
#define HOOK_LOADER(symbol)          AC_HOOK_##symbol,
#define HOOK_RUNTIME(symbol, params) AC_HOOK_##symbol,
#define HOOK_NVML(symbol, params)    AC_HOOK_##symbol,
#define HOOK_DRIVER(symbol)          AC_HOOK_##symbol,
#include "bind/hooks.def"
    AC_HOOK_COUNT
} ac_hook_t;

/* Return the symbol name of an index, and all names in the order of their indices, each with its NUL. */
const char *ac_hook_name(int hook);
const char *ac_hook_names(size_t *bytes);

/* cudaError_t: the result of the runtime's functions. */
typedef int ac_runtime_error_t;

/* cudaPitchedPtr and cudaExtent. */
typedef struct {
    void *pointer;
    size_t pitch, width, height;
} ac_pitched_t;
typedef struct {
    size_t width, height, depth;
} ac_extent_t;

/* nvmlMemory_t and nvmlMemory_v2_t: bytes. */
typedef struct {
    unsigned long long total, available, used;
} ac_nvml_memory_t;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, available, used;
} ac_nvml_memory_v2_t;

/* NVML_ERROR_FUNCTION_NOT_FOUND: the answer if the process has no NVML. */
enum { AC_NVML_MISSING = 13 };

/* cudaErrorSymbolNotFound: the answer if there is no runtime, or if it lacks the function. */
enum { AC_RUNTIME_MISSING = 500 };

/* Prototypes of the hooks, and the types `<symbol>_fn` of the runtime's and NVML's functions.  A body
 * that differs from its row does not compile. */
#define HOOK_DRIVER(symbol) AC_EXPORT symbol##_fn symbol;
#define HOOK_NVML(symbol, params)                                                                \
    typedef int symbol##_fn params;                                                              \
    AC_EXPORT symbol##_fn symbol;
#define HOOK_RUNTIME(symbol, params)                                                             \
    typedef ac_runtime_error_t symbol##_fn params;                                               \
    AC_EXPORT symbol##_fn symbol;
#include "bind/hooks.def"

/* The real function behind each hook; NULL until it is known.  resolve.c and lookup.c write it. */
extern AC_HIDDEN _Atomic(void *) ac_real_slots[AC_HOOK_COUNT];

/* Finds the real function behind `hook` and remembers it.  It finds the driver's functions in the real
 * libcuda.so.1, the runtime's in the libcudart of the process, and NVML's in its libnvidia-ml.  Returns
 * NULL if there is none; never one of our own hooks.  Any thread; takes no lock of ours, and may take
 * the loader's. */
void *ac_real_find(ac_hook_t hook);

static inline void *ac_real_get(ac_hook_t hook) {
    void *real = atomic_load_explicit(&ac_real_slots[hook], memory_order_acquire);
    return real ? real : ac_real_find(hook);
}

/* The real function of a driver hook, with its type; NULL if the driver lacks it. */
#define AC_REAL(symbol) (__extension__(symbol##_fn *) ac_real_get(AC_HOOK_##symbol))

/* The real function of a driver hook, with its type, if it was found before; else NULL. */
#define AC_REAL_KNOWN(symbol)                                                                    \
    (__extension__(symbol##_fn *)                                                                \
         atomic_load_explicit(&ac_real_slots[AC_HOOK_##symbol], memory_order_acquire))

/* Returns the address of a symbol of the real libcuda.so.1, never ours; NULL without a driver or the
 * symbol.  The name is exact, with its suffix.  For device/driver.c. */
void *ac_resolve_driver(const char *symbol);

/* Returns the hook that stands for the real driver function at `address`, or NULL. */
void *ac_resolve_substitute(void *address);

/* Set before the program calls, or gets, a real function that can change a thread's current context
 * unseen.  From then on no thread relies on the current context that it remembers. */
extern AC_HIDDEN _Atomic bool ac_current_unseen;
void ac_current_goes_unseen(void);

/* Set when graphs or captures may change unseen: the program gets, or calls, a real function that may
 * change them.  From then on the library cannot follow which graphs come from a capture. */
extern _Atomic bool ac_graph_unseen;

/* Counts an event of a lookup without a thread record, in row 0 of the live page, by an atomic
 * operation.  Lookups run in every process, with CUDA or without, before anything is set up. */
void ac_count_early(unsigned counter);

#endif
