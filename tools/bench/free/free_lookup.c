/* The free driver: cuGetProcAddress. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "free_driver.h"

typedef void any_fn(void); /* casts to this type are exempt from type checks */
enum { LEGACY, PTDS };

static const struct {
    const char *name;
    int since, mode;
    any_fn *body;
} rows[] = {
#define CU_FN(symbol, name, since, mode, params, args) {#name, since, mode, (any_fn *)symbol},
#include "device/cuda_functions.def"
#undef CU_FN
};

/* Returns the newest row for `version`; per-thread rows come first if requested. */
static any_fn *find(const char *name, int version, bool per_thread) {
    int best = -1;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].since > version || (rows[i].mode == PTDS && !per_thread) ||
            strcmp(rows[i].name, name) != 0)
            continue;
        if (best < 0 || rows[i].mode > rows[best].mode ||
            (rows[i].mode == rows[best].mode && rows[i].since > rows[best].since))
            best = (int)i;
    }
    return best < 0 ? NULL : rows[best].body;
}

FREE(cuGetProcAddress)(const char *name, void **out, int version, cuuint64_t flags) {
    any_fn *found = find(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    memcpy(out, &found, sizeof found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

FREE(cuGetProcAddress_v2)
(const char *name, void **out, int version, cuuint64_t flags,
 CUdriverProcAddressQueryResult *status) {
    CUresult result = cuGetProcAddress(name, out, version, flags);
    if (status)
        *status = result ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
    return result;
}
