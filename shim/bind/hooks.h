/* What hooks.def yields for all files: indices, names, real functions, exports. */
#ifndef AC_HOOKS_H
#define AC_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/cuda_abi.h"
#include "device/device.h"

/* Exported from the shared library; nothing else is. */
#define AC_EXPORT __attribute__((visibility("default")))

typedef enum {
#define HOOK_LOADER(symbol)          AC_HOOK_##symbol,
#define HOOK_RUNTIME(symbol, params) AC_HOOK_##symbol,
#define HOOK_NVML(symbol, params)    AC_HOOK_##symbol,
#define HOOK_DRIVER(symbol)          AC_HOOK_##symbol,
#include "bind/hooks.def"
    AC_HOOK_COUNT
} ac_hook_t;

/* Symbol name by index; all names in the order of their indices, each with its NUL. */
const char *ac_hook_name(int hook);
const char *ac_hook_names(size_t *bytes);

/* What the runtime's functions return: a cudaError_t. */
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

/* NVML_ERROR_FUNCTION_NOT_FOUND: what a program without that library is told. */
enum { AC_NVML_MISSING = 13 };

/* What a runtime without the function, or no runtime at all, is told: cudaErrorSymbolNotFound. */
enum { AC_RUNTIME_MISSING = 500 };

/* The hooks' own prototypes, and `<symbol>_fn` for those of the runtime: a body that differs from
 * its row does not compile. */
#define HOOK_DRIVER(symbol) AC_EXPORT symbol##_fn symbol;
#define HOOK_NVML(symbol, params)                                                                \
    typedef int symbol##_fn params;                                                              \
    AC_EXPORT symbol##_fn symbol;
#define HOOK_RUNTIME(symbol, params)                                                             \
    typedef ac_runtime_error_t symbol##_fn params;                                               \
    AC_EXPORT symbol##_fn symbol;
#include "bind/hooks.def"

/* The real function behind hook `hook`; NULL until it is known.  Written by resolve.c. */
extern AC_HIDDEN _Atomic(void *) ac_real_slots[AC_HOOK_COUNT];

/* Find the real function behind `hook` and remember it: the driver's rows in the real
 * libcuda.so.1, the runtime's in the libcudart that the process has, NVML's in its libnvidia-ml.  NULL where there is
 * none; never one of our own hooks.  Any thread; takes no lock of ours, may take the loader's. */
void *ac_real_find(ac_hook_t hook);

static inline void *ac_real_get(ac_hook_t hook) {
    void *real = atomic_load_explicit(&ac_real_slots[hook], memory_order_acquire);
    return real ? real : ac_real_find(hook);
}

/* The typed real function of a driver hook, NULL where the driver lacks it. */
#define AC_REAL(symbol) (__extension__(symbol##_fn *) ac_real_get(AC_HOOK_##symbol))

/* The same where it was found before, NULL elsewhere. */
#define AC_REAL_KNOWN(symbol)                                                                    \
    (__extension__(symbol##_fn *)                                                                \
         atomic_load_explicit(&ac_real_slots[AC_HOOK_##symbol], memory_order_acquire))

/* Address of any symbol of the real libcuda.so.1 (exact name, with its suffix), never ours;
 * NULL without a driver or symbol.  For device/driver.c. */
void *ac_resolve_driver(const char *symbol);

/* The hook that stands for the real driver function at `address`, or NULL. */
void *ac_resolve_substitute(void *address);

/* Set before a function that can change a thread's current context without our seeing it is
 * called, or handed out as it is: what threads remember of that is worth nothing from then on. */
extern AC_HIDDEN _Atomic bool ac_current_unseen;
void ac_current_goes_unseen(void);

/* The same for a function for graphs or captures that no table knows, or one of ours in its real
 * form: what comes of a graph cannot be followed from then on. */
extern _Atomic bool ac_graph_unseen;

/* The lookups run in every process, CUDA or not, before anything is set up: these count
 * without a thread state (row 0 of the live page, atomic). */
void ac_count_early(unsigned counter);

#endif
