/* Launches in the style before CUDA 4.  The function keeps block shape, shared memory and
 * parameters for the next cuLaunch, cuLaunchGrid or cuLaunchGridAsync.  Global lock.
 *
 * Guesses (public documentation is silent):
 *   a launch before cuFuncSetBlockShape   INVALID_VALUE
 *   parameters beyond 4096 bytes          INVALID_VALUE
 *   cuParamSetTexRef                      not simulated (NOT_SUPPORTED, logged)
 */
#include <stdlib.h>
#include <string.h>

#include "module.h"

enum { ROOM = 4096 };

struct sim_legacy {
    unsigned block[3], shared_bytes;
    size_t bytes; /* cuParamSetSize */
    unsigned char parameters[ROOM];
};

/* Finds the settings that the function keeps between calls; makes them at the first call. */
static CUresult kept(CUfunction handle, struct sim_legacy **out) {
    CUcontext ctx;
    CUfunction function;
    CUresult result = sim_ctx_current(&ctx);
    if (!result)
        result = sim_function_get(handle, sim_ctx_home(ctx), &function);
    if (result)
        return result;
    if (!function->legacy)
        function->legacy = calloc(1, sizeof *function->legacy);
    *out = function->legacy;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API(cuFuncSetBlockShape)(CUfunction function, int x, int y, int z) {
    struct sim_legacy *legacy;
    CUresult result = kept(function, &legacy);
    if (result)
        return result;
    if (x <= 0 || y <= 0 || z <= 0 || x > 1024 || y > 1024 || z > 64 || x * y * z > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    legacy->block[0] = (unsigned)x;
    legacy->block[1] = (unsigned)y;
    legacy->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

SIM_API(cuFuncSetSharedSize)(CUfunction function, unsigned bytes) {
    struct sim_legacy *legacy;
    CUresult result = kept(function, &legacy);
    if (!result)
        legacy->shared_bytes = bytes;
    return result;
}

SIM_API(cuParamSetSize)(CUfunction function, unsigned bytes) {
    struct sim_legacy *legacy;
    CUresult result = kept(function, &legacy);
    if (!result && bytes > ROOM)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        legacy->bytes = bytes;
    return result;
}

static CUresult set_parameter(CUfunction function, int offset, const void *from, size_t bytes) {
    struct sim_legacy *legacy;
    CUresult result = kept(function, &legacy);
    if (result)
        return result;
    if (offset < 0 || !from || bytes > ROOM || (size_t)offset > ROOM - bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(legacy->parameters + offset, from, bytes);
    return CUDA_SUCCESS;
}

SIM_API(cuParamSeti)(CUfunction function, int offset, unsigned value) {
    return set_parameter(function, offset, &value, sizeof value);
}

SIM_API(cuParamSetf)(CUfunction function, int offset, float value) {
    return set_parameter(function, offset, &value, sizeof value);
}

SIM_API(cuParamSetv)(CUfunction function, int offset, void *from, unsigned bytes) {
    return set_parameter(function, offset, from, bytes);
}

static CUresult launch(CUfunction function, int width, int height, CUstream stream) {
    struct sim_legacy *legacy;
    CUresult result = kept(function, &legacy);
    if (result)
        return result;
    if (width <= 0 || height <= 0 || !legacy->block[0])
        return CUDA_ERROR_INVALID_VALUE;
    /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE and the end. */
    void *extra[] = {(void *)1, legacy->parameters, (void *)2, &legacy->bytes, NULL};
    const unsigned *block = legacy->block;
    return sim_do_cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, block[0],
                                 block[1], block[2], legacy->shared_bytes, stream, NULL, extra);
}

SIM_API(cuLaunch)(CUfunction function) {
    return launch(function, 1, 1, NULL);
}

SIM_API(cuLaunchGrid)(CUfunction function, int width, int height) {
    return launch(function, width, height, NULL);
}

SIM_API(cuLaunchGridAsync)(CUfunction function, int width, int height, CUstream stream) {
    return launch(function, width, height, stream);
}
