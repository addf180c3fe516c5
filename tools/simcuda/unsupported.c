/* Weak defaults: a body for each row of cuda_functions.def, which logs that the call is not
 * simulated, and hooks of parts that may be absent.  A definition elsewhere replaces the
 * default. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "state.h"

#define WEAK __attribute__((weak))

static CUresult unsupported(sim_fn_t fn) {
    sim_log("%s is not simulated", sim_fn_symbol(fn));
    return CUDA_ERROR_NOT_SUPPORTED;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    static CUresult no_##symbol params {                                                         \
        return unsupported(SIM_FN_##symbol);                                                     \
    }                                                                                            \
    CUresult sim_do_##symbol params __attribute__((weak, alias("no_" #symbol)));
#include "device/cuda_functions.def"
#undef CU_FN
#pragma GCC diagnostic pop

typedef void any_fn(void); /* casts to this type are exempt from type checks */

static const struct {
    any_fn *body, *none;
} bodies[] = {
#define CU_FN(symbol, name, since, mode, params, args)                                           \
    {(any_fn *)sim_do_##symbol, (any_fn *)no_##symbol},
#include "device/cuda_functions.def"
#undef CU_FN
};

bool sim_fn_supported(sim_fn_t fn) {
    if (fn >= sizeof bodies / sizeof *bodies)
        return !strncmp(sim_fn_symbol(fn), "cuProfiler", 10);
    return bodies[fn].body != bodies[fn].none;
}

size_t sim_captures WEAK;

WEAK CUresult sim_capture_record(SIM_UNUSED CUstream stream, sim_work_t *work) {
    sim_work_unref(work);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_event_record(SIM_UNUSED CUstream stream, SIM_UNUSED CUevent event,
                                       SIM_UNUSED unsigned flags) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_event_wait(SIM_UNUSED CUstream stream, SIM_UNUSED CUevent event,
                                     SIM_UNUSED unsigned flags) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

WEAK CUresult sim_capture_unsafe(SIM_UNUSED sim_fn_t fn) {
    return CUDA_SUCCESS;
}

WEAK CUresult sim_capture_sync(SIM_UNUSED CUcontext ctx, SIM_UNUSED CUstream stream) {
    return CUDA_SUCCESS;
}

WEAK CUresult sim_capture_implicit(SIM_UNUSED CUcontext ctx) {
    return CUDA_SUCCESS;
}

WEAK void sim_capture_stream_gone(SIM_UNUSED CUstream stream) {
}

WEAK void sim_capture_event_gone(SIM_UNUSED CUevent event) {
}

WEAK CUresult sim_array_layout(SIM_UNUSED CUarray array, SIM_UNUSED sim_array_layout_t *out) {
    return CUDA_ERROR_INVALID_HANDLE;
}

WEAK CUresult sim_pool_free_sync(SIM_UNUSED sim_alloc_t *record) {
    return CUDA_ERROR_INVALID_VALUE;
}

WEAK void sim_ctx_gone_graph(SIM_UNUSED CUcontext ctx) {
}

WEAK void sim_ctx_gone_pool(SIM_UNUSED CUcontext ctx) {
}

WEAK void sim_ctx_gone_vmm(SIM_UNUSED CUcontext ctx) {
}

WEAK void sim_ctx_gone_ipc(SIM_UNUSED CUcontext ctx) {
}

WEAK void sim_ctx_gone_array(SIM_UNUSED CUcontext ctx) {
}

/* Writes one line per event.  It opens the file each time: events are rare, and the log survives a
 * program that closes descriptors. */
void sim_log(const char *format, ...) {
    const char *where = sim_config.log ? sim_config.log : "stderr";
    if (!strcmp(where, "none"))
        return;
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    FILE *file = strcmp(where, "stderr") ? fopen(where, "a") : stderr;
    if (!file)
        return;
    fprintf(file, "simcuda: %s\n", line);
    if (file != stderr)
        fclose(file);
}
