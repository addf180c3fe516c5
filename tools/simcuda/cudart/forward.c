/* The functions that are one driver call: generated from runtime.def. */
#include "internal.h"

#define RT_FN(name, params)
#define RT_FN2(name, suffix, params)
#define RT_QUERY(name, params, driver, args)                                                     \
    cudaError_t name params {                                                                    \
        RT_CALL(simrt_initialize, RT_DRIVER(driver) args);                                       \
    }
#define RT_FORWARD(name, params, driver, args)                                                   \
    cudaError_t name params {                                                                    \
        RT_CALL(simrt_enter, RT_DRIVER(driver) args);                                            \
    }
#define RT_FORWARD2(name, suffix, params, driver, args)                                          \
    RT_FORWARD(name, params, driver, args)                                                       \
    RT_FORWARD(name##_##suffix, params, driver##_##suffix, args)
#include "runtime.def"
