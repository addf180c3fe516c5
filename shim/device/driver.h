/* The real driver functions that the shim calls, as typed pointers. */
#ifndef AC_DRIVER_H
#define AC_DRIVER_H

#include <stdbool.h>

#include "device/cuda_abi.h"

typedef struct {
#define DRIVER(symbol, need) symbol##_fn *symbol;
#include "device/driver.def"
#undef DRIVER
} ac_driver_t;

/* Filled by ac_driver_bind; read-only afterwards. */
extern ac_driver_t ac_driver;

/* Fill ac_driver through `find`, which returns the real function of an exact symbol name or
 * NULL.  False, and *missing names it, when a NEEDED one is absent.  Call once. */
bool ac_driver_bind(void *(*find)(const char *symbol), const char **missing);

/* Results after which every call of the context fails until it is destroyed. */
bool ac_driver_sticky(CUresult result);

/* Reads the calling thread's current context: CUDA_SUCCESS and NULL if it has none;
 * CUDA_ERROR_CONTEXT_IS_DESTROYED and NULL if it was destroyed. cuCtxGetCurrent still names it then,
 * and a newer context may have that name. */
CUresult ac_driver_current(CUcontext *out);

/* A context may end from now on: before the driver is asked to, or when it is seen to be gone. */
void ac_driver_context_ends(void);

/* Pop the context that a call of ours pushed. */
void ac_driver_pop(void);

#endif
