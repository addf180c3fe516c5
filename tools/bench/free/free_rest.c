/* The free driver: a body for every function that free_driver.c and free_lookup.c leave out. */
#include "free_driver.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    __attribute__((weak)) FREE(symbol) params {                                                  \
        return CUDA_ERROR_NOT_SUPPORTED;                                                         \
    }
#include "device/cuda_functions.def"
#undef CU_FN
#pragma GCC diagnostic pop
