/* Launches of kernels: registered host functions, functions found by name in the program, or timed
 * no-ops.  Also the answers of occupancy calculators.  Global lock. */
#include <stdlib.h>
#include <string.h>

#include "kernel_fault.h"
#include "module.h"
#include "race.h"
#include "state.h"

typedef struct registration {
    struct registration *next;
    simcuda_kernel_t kernel; /* arrays are copies */
} registration_t;

static registration_t *registrations;

static void *copy_of(const void *data, size_t bytes) {
    void *copy = data && bytes ? malloc(bytes) : NULL;
    if (copy)
        memcpy(copy, data, bytes);
    return copy;
}

bool sim_kernel_register(const simcuda_kernel_t *kernel) {
    registration_t *entry = registrations;
    while (entry && strcmp(entry->kernel.name, kernel->name))
        entry = entry->next;
    if (!entry) {
        const char *name = sim_intern(kernel->name, strlen(kernel->name));
        entry = name ? calloc(1, sizeof *entry) : NULL;
        if (!entry)
            return false;
        entry->kernel.name = name;
        entry->next = registrations;
        registrations = entry;
    }
    const char *name = entry->kernel.name;
    void *sizes = copy_of(kernel->param_bytes, kernel->param_count * sizeof(unsigned short));
    void *access = copy_of(kernel->access, kernel->access_count * sizeof(simcuda_access_t));
    if ((kernel->param_bytes && kernel->param_count && !sizes) ||
        (kernel->access_count && !access)) {
        free(sizes);
        free(access);
        return false;
    }
    /* The arrays of a replaced registration stay allocated.  They are small, and freeing them
     * would need a proof that no launch uses them. */
    entry->kernel = *kernel;
    entry->kernel.name = name;
    entry->kernel.param_bytes = sizes;
    entry->kernel.access = access;
    return true;
}

static const simcuda_kernel_t *registered(const char *name) {
    for (const registration_t *entry = registrations; entry; entry = entry->next)
        if (entry->kernel.name == name) /* both interned */
            return &entry->kernel;
    return NULL;
}

/* ---- the item ---- */

typedef struct {
    simcuda_kernel_fn *fn;
    simcuda_launch_t launch;
    CUfunction function;
    unsigned short *offsets; /* of each argument in `bytes` */
    unsigned char *bytes;
    size_t byte_count;
} kernel_payload_t;

static CUresult run_kernel(sim_work_t *work) {
    kernel_payload_t *payload = SIM_PAYLOAD(work, kernel_payload_t);
    enum { FEW = 32 }; /* 1,024 would be too much for a small stack */
    void *few[FEW];
    unsigned count = payload->launch.param_count;
    void **params = count > FEW ? malloc(count * sizeof *params) : few;
    if (!params)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < count; i++)
        params[i] = payload->bytes + payload->offsets[i];
    simcuda_launch_t launch = payload->launch;
    launch.params = params;
    launch.stream_id = work->stream_id;
    launch.context_id = work->ctx_id;
    CUresult result = sim_kernel_call(payload->fn, &launch);
    if (params != few)
        free(params);
    return result;
}

static void release_kernel(void *payload) {
    kernel_payload_t *kernel = payload;
    free(kernel->offsets);
    free(kernel->bytes);
}

static bool clone_kernel(void *to, const void *from) {
    kernel_payload_t *copy = to;
    const kernel_payload_t *p = from;
    size_t offsets = p->launch.param_count * sizeof *p->offsets;
    copy->offsets = copy_of(p->offsets, offsets);
    copy->bytes = copy_of(p->bytes, p->byte_count);
    if ((offsets && !copy->offsets) || (p->byte_count && !copy->bytes)) {
        release_kernel(copy);
        return false;
    }
    return true;
}

static const sim_work_ops_t kernel_ops = {.name = "kernel",
                                          .type = SIM_WORK_KERNEL,
                                          .flags = SIM_RUN_UNLOCKED,
                                          .run = run_kernel,
                                          .release = release_kernel,
                                          .clone = clone_kernel};
/* Kernels without a function: time passes, and declared accesses are checked. */
static const sim_work_ops_t idle_ops = {
    .name = "kernel", .type = SIM_WORK_KERNEL, .release = release_kernel, .clone = clone_kernel};

/* ---- arguments ---- */

typedef struct {
    unsigned count;
    const unsigned short *sizes, *offsets; /* offsets: NULL, natural alignment */
} layout_t;

static unsigned short size_of(const layout_t *layout, unsigned i) {
    return layout->sizes ? layout->sizes[i] : 8;
}

/* CU_LAUNCH_PARAM_BUFFER_POINTER 1, _SIZE 2, end 0. */
static bool packed_buffer(void **extra, const unsigned char **buffer, size_t *bytes) {
    *buffer = NULL;
    *bytes = 0;
    for (; (uintptr_t)extra[0] == 1 || (uintptr_t)extra[0] == 2; extra += 2) {
        if ((uintptr_t)extra[0] == 1)
            *buffer = extra[1];
        else
            memcpy(bytes, extra[1], sizeof *bytes);
    }
    return !extra[0] && *buffer;
}

static CUresult copy_arguments(kernel_payload_t *payload, const layout_t *layout, void **params,
                               void **extra) {
    const unsigned char *buffer = NULL;
    size_t buffer_bytes = 0, end = 0;
    if (!layout->count)
        return CUDA_SUCCESS;
    if (!params && !extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (layout->count > 1024 || (extra && !packed_buffer(extra, &buffer, &buffer_bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    payload->offsets = malloc(layout->count * sizeof *payload->offsets);
    if (!payload->offsets)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < layout->count; i++) {
        size_t size = size_of(layout, i);
        size_t align = size >= 8 ? 8 : size >= 4 ? 4 : size >= 2 ? 2 : 1;
        end = layout->offsets ? layout->offsets[i] : (end + align - 1) / align * align;
        payload->offsets[i] = (unsigned short)end;
        end += size;
    }
    if (end > SIM_PARAM_BYTES || (buffer && buffer_bytes < end))
        return CUDA_ERROR_INVALID_VALUE;
    payload->bytes = calloc(1, end);
    if (!payload->bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    payload->byte_count = end;
    payload->launch.param_count = layout->count;
    for (unsigned i = 0; i < layout->count; i++) {
        const void *from = buffer ? buffer + payload->offsets[i] : params[i];
        if (!from)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(payload->bytes + payload->offsets[i], from, size_of(layout, i));
    }
    return CUDA_SUCCESS;
}

static uint64_t argument(const kernel_payload_t *payload, const layout_t *layout, unsigned i) {
    uint64_t value = 0;
    if (i < layout->count) {
        size_t size = size_of(layout, i);
        memcpy(&value, payload->bytes + payload->offsets[i], size < 8 ? size : 8);
    }
    return value;
}

static bool declare(sim_work_t *work, const kernel_payload_t *payload, const layout_t *layout,
                    const simcuda_kernel_t *known) {
    for (unsigned i = 0; known && i < known->access_count; i++) {
        const simcuda_access_t *access = &known->access[i];
        uint64_t address = argument(payload, layout, access->param), length = access->bytes;
        if (access->count_param >= 0)
            length *= argument(payload, layout, (unsigned)access->count_param);
        if (!length) {
            const sim_alloc_t *record = sim_alloc_around(address);
            length = record ? record->base + record->size - address : 1;
        }
        if (!sim_work_touches(work, address, length, access->writes))
            return false;
    }
    return true;
}

static bool bad_shape(const sim_launch_args_t *args, const sim_function_t *function) {
    const unsigned *g = args->grid, *b = args->block;
    return !g[0] || !g[1] || !g[2] || !b[0] || !b[1] || !b[2] || g[0] > 2147483647u ||
           g[1] > 65535 || g[2] > 65535 || b[0] > 1024 || b[1] > 1024 || b[2] > 64 ||
           b[0] * b[1] * b[2] > 1024 || args->shared_bytes > sim_function_shared(function);
}

/* Computes active blocks as if the number of threads were the kernel's only limit. */
static CUresult active_blocks(int *out, int threads) {
    if (!out || threads <= 0 || threads > 1024)
        return CUDA_ERROR_INVALID_VALUE;
    int blocks = 2048 / ((threads + 31) / 32 * 32);
    *out = blocks < 32 ? blocks : 32;
    return CUDA_SUCCESS;
}

enum { PROCESSORS = 132 };

/* Returns true if all blocks fit at once.  Blocks of a cooperative launch wait for each
 * other. */
static bool fits_at_once(const sim_launch_args_t *args) {
    const unsigned *g = args->grid, *b = args->block;
    int blocks = 0;
    return active_blocks(&blocks, (int)(b[0] * b[1] * b[2])) == CUDA_SUCCESS &&
           (uint64_t)g[0] * g[1] * g[2] <= (uint64_t)blocks * PROCESSORS;
}

CUresult sim_kernel_work(CUcontext ctx, const sim_launch_args_t *args, sim_work_t **out) {
    CUfunction function;
    CUresult result = sim_function_get(args->function, ctx, &function);
    if (result)
        return result;
    if (function->module->ctx != ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    if (bad_shape(args, function) || (args->params && args->extra))
        return CUDA_ERROR_INVALID_VALUE;
    if (args->cooperative && !fits_at_once(args))
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    const simcuda_kernel_t *known = registered(function->name);
    simcuda_kernel_fn *fn = known && known->fn ? known->fn : function->symbol;
    layout_t layout = {0};
    if (known && known->param_count)
        layout = (layout_t){known->param_count, known->param_bytes, NULL};
    else if (function->info)
        layout = (layout_t){function->info->param_count, function->info->param_bytes,
                            function->info->param_offset};
    sim_work_t *work = sim_work_new(fn ? &kernel_ops : &idle_ops, ctx, sizeof(kernel_payload_t));
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kernel_payload_t *payload = SIM_PAYLOAD(work, kernel_payload_t);
    payload->fn = fn;
    payload->function = function;
    payload->launch = (simcuda_launch_t){
        .name = function->name,
        .grid = {args->grid[0], args->grid[1], args->grid[2]},
        .block = {args->block[0], args->block[1], args->block[2]},
        .shared_bytes = args->shared_bytes,
        .device = ctx->device,
    };
    result = copy_arguments(payload, &layout, args->params, args->extra);
    if (!result && !declare(work, payload, &layout, known))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        sim_work_unref(work);
        return result;
    }
    if (sim_race_on) {
        if (!work->access_count)
            sim_race_arguments(work, payload->bytes, payload->byte_count);
        sim_race_resolve(work);
    }
    work->programmatic = args->programmatic;
    work->label = function->name;
    work->duration =
        known && known->duration_ns >= 0 ? (uint64_t)known->duration_ns : sim_kernel_ns();
    *out = work;
    return CUDA_SUCCESS;
}

unsigned sim_kernel_describe(const sim_work_t *work, sim_launch_args_t *out, void **params) {
    const kernel_payload_t *payload = (const kernel_payload_t *)(const void *)work->payload;
    const simcuda_launch_t *made = &payload->launch;
    *out = (sim_launch_args_t){.function = payload->function,
                               .grid = {made->grid[0], made->grid[1], made->grid[2]},
                               .block = {made->block[0], made->block[1], made->block[2]},
                               .shared_bytes = made->shared_bytes};
    for (unsigned i = 0; params && i < made->param_count; i++)
        params[i] = payload->bytes + payload->offsets[i];
    return made->param_count;
}

/* Records the event that a launch records at its beginning, after all work before the kernel. */
static CUresult record_start(CUevent event, CUstream stream, bool programmatic) {
    CUresult result = sim_event_get(event, &event);
    if (result)
        return result;
    if (event->ctx != stream->ctx || event->shared)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!(event->flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) {
        sim_log("events recorded by launches in a capture are not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    sim_work_t *work = sim_record_work(stream->ctx, event);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->stream_id = stream->object.id;
    work->programmatic = programmatic;
    if (!sim_stream_order(stream, work)) {
        sim_work_unref(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_work_submit(work);
    sim_event_attach(event, work);
    sim_work_unref(work);
    return CUDA_SUCCESS;
}

typedef struct {
    CUevent item[4];
    size_t count;
} events_t;

static CUresult launch(const sim_launch_args_t *args, const events_t *events, CUstream handle,
                       bool per_thread) {
    CUstream stream;
    sim_work_t *work;
    CUresult result = sim_stream_get(handle, per_thread, &stream);
    if (!result)
        result = sim_kernel_work(stream->ctx, args, &work);
    if (result)
        return result;
    for (size_t i = 0; events && !result && i < events->count; i++)
        result = record_start(events->item[i], stream, args->programmatic);
    if (result) {
        sim_work_unref(work);
        return result;
    }
    return sim_enqueue(stream, work, NULL);
}

#define LAUNCH_PARAMS                                                                            \
    CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,        \
        unsigned h, CUstream i, void **j

#define LAUNCH(extra, per_thread, cooperative)                                                   \
    sim_launch_args_t args = {a, {b, c, d}, {e, f, g}, h, j, extra, false, cooperative};         \
    return launch(&args, NULL, i, per_thread)

SIM_API(cuLaunchKernel)(LAUNCH_PARAMS, void **k) {
    LAUNCH(k, false, false);
}
SIM_API(cuLaunchKernel_ptsz)(LAUNCH_PARAMS, void **k) {
    LAUNCH(k, true, false);
}
SIM_API(cuLaunchCooperativeKernel)(LAUNCH_PARAMS) {
    LAUNCH(NULL, false, true);
}
SIM_API(cuLaunchCooperativeKernel_ptsz)(LAUNCH_PARAMS) {
    LAUNCH(NULL, true, true);
}

static bool is_programmatic(const CUlaunchConfig *config) {
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
    return false;
}

static bool is_cooperative(const CUlaunchConfig *config) {
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            return config->attrs[i].value.cooperative != 0;
    return false;
}

/* Returns the events of a launch.  Both kinds have the event at the same place. */
static events_t events_of(const CUlaunchConfig *config) {
    events_t events = {.count = 0};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        bool wanted = attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
                      attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
        if (wanted && events.count < sizeof events.item / sizeof *events.item)
            events.item[events.count++] = attribute->value.programmaticEvent.event;
    }
    return events;
}

/* Launches with attributes; most of them have no effect.  A programmatic launch keeps more order
 * than necessary.  Only the race detector uses the weaker order. */
static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra, bool per_thread) {
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    events_t events = events_of(config);
    sim_launch_args_t args = {function,
                              {config->gridDimX, config->gridDimY, config->gridDimZ},
                              {config->blockDimX, config->blockDimY, config->blockDimZ},
                              config->sharedMemBytes,
                              params,
                              extra,
                              is_programmatic(config),
                              is_cooperative(config)};
    return launch(&args, &events, config->hStream, per_thread);
}

SIM_API(cuLaunchKernelEx)(const CUlaunchConfig *a, CUfunction b, void **c, void **d) {
    return launch_ex(a, b, c, d, false);
}
SIM_API(cuLaunchKernelEx_ptsz)(const CUlaunchConfig *a, CUfunction b, void **c, void **d) {
    return launch_ex(a, b, c, d, true);
}

/* ---- occupancy ---- */

SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessor)
(int *out, SIM_UNUSED CUfunction function, int threads, SIM_UNUSED size_t shared) {
    return active_blocks(out, threads);
}
SIM_API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)
(int *out, SIM_UNUSED CUfunction function, int threads, SIM_UNUSED size_t shared,
 unsigned flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : active_blocks(out, threads);
}

static CUresult potential_size(int *grid, int *block, int limit) {
    if (!grid || !block || limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *block = limit && limit < 1024 ? limit : 1024;
    active_blocks(grid, *block);
    *grid *= PROCESSORS;
    return CUDA_SUCCESS;
}

SIM_API(cuOccupancyMaxPotentialBlockSize)
(int *grid, int *block, SIM_UNUSED CUfunction function, SIM_UNUSED CUoccupancyB2DSize shared_of,
 SIM_UNUSED size_t shared, int limit) {
    return potential_size(grid, block, limit);
}
SIM_API(cuOccupancyMaxPotentialBlockSizeWithFlags)
(int *grid, int *block, SIM_UNUSED CUfunction function, SIM_UNUSED CUoccupancyB2DSize shared_of,
 SIM_UNUSED size_t shared, int limit, unsigned flags) {
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : potential_size(grid, block, limit);
}
SIM_API(cuOccupancyAvailableDynamicSMemPerBlock)
(size_t *out, SIM_UNUSED CUfunction function, int blocks, int threads) {
    if (!out || blocks <= 0 || threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (size_t)(232448 / blocks);
    return CUDA_SUCCESS;
}
