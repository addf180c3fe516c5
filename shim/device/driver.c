/* Binding of driver.def. */
#include "device/driver.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "observe/start.h"

AC_START_DATA ac_driver_t ac_driver;

enum { OPTIONAL, NEEDED };

/* Offsets instead of pointers, which would be relocated in every process. */
typedef struct {
#define DRIVER(symbol, need) char symbol[sizeof #symbol];
#include "device/driver.def"
#undef DRIVER
} texts_t;

static const texts_t texts = {
#define DRIVER(symbol, need) #symbol,
#include "device/driver.def"
#undef DRIVER
};

static const struct {
    uint16_t symbol, offset;
    int need;
} rows[] = {
#define DRIVER(symbol, need) {offsetof(texts_t, symbol), offsetof(ac_driver_t, symbol), need},
#include "device/driver.def"
#undef DRIVER
};

bool ac_driver_bind(void *(*find)(const char *symbol), const char **missing) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *symbol = (const char *)&texts + rows[i].symbol;
        void *function = find(symbol);
        if (!function && rows[i].need == NEEDED) {
            *missing = symbol;
            return false;
        }
        /* ISO C has no conversion from void * to a function pointer. */
        memcpy((char *)&ac_driver + rows[i].offset, &function, sizeof function);
    }
    return true;
}

bool ac_driver_sticky(CUresult result) {
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        return true;
    default:
        return false;
    }
}

/* Most processes destroy none: one call is enough there. */
AC_START_DATA static _Atomic bool contexts_end;

void ac_driver_context_ends(void) {
    if (!atomic_load(&contexts_end))
        atomic_store(&contexts_end, true);
}

CUresult ac_driver_current(CUcontext *out) {
    CUdevice device;
    *out = NULL;
    CUresult result = ac_driver.cuCtxGetCurrent(out);
    if (result == CUDA_SUCCESS && *out && atomic_load(&contexts_end) &&
        ac_driver.cuCtxGetDevice(&device) == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result != CUDA_SUCCESS)
        *out = NULL;
    return result;
}

/* Once more if it fails: the program would go on in a context that it did not choose. */
void ac_driver_pop(void) {
    CUcontext popped;
    if (ac_driver.cuCtxPopCurrent_v2(&popped) != CUDA_SUCCESS)
        ac_driver.cuCtxPopCurrent_v2(&popped);
}
