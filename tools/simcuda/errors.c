/* Names and texts of results.  No lock. */
#include "sim.h"

static const struct {
    CUresult result;
    const char *name, *text;
} errors[] = {
#define SIM_ERROR(result, text) {result, #result, text},
#include "errors.def"
#undef SIM_ERROR
};

static int find(CUresult result) {
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].result == result)
            return (int)i;
    return -1;
}

SIM_API(cuGetErrorName)(CUresult result, const char **out) {
    int at = find(result);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = at < 0 ? NULL : errors[at].name;
    return at < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API(cuGetErrorString)(CUresult result, const char **out) {
    int at = find(result);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = at < 0 ? NULL : errors[at].text;
    return at < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
