/* The generated bodies: HOOK_SUBMIT (work for a stream) and HOOK_RETRY (may need memory). */
#include "intercept/body.h"

#include "device/driver.h"
#include "intercept/graphs.h"
#include "plant.h"

typedef struct {
    bool wait;
    uint64_t freed;
} ac_trim_t;

static void trim_device(CUdevice device, ac_allocator_t *allocator, void *arg) {
    ac_trim_t *trim = arg;
    (void)device;
    trim->freed += ac_allocator_trim(allocator, trim->wait);
}

bool ac_trim_for_driver(ac_thread_t *thread, bool wait) {
    ac_trim_t trim = {.wait = wait};
    ac_device_each(trim_device, &trim);
    if (trim.freed)
        ac_count(thread, AC_COUNT_oom_trims);
    return trim.freed > 0;
}

/* Work is submitted of which no record can be kept: from now on every free takes a fence of every
 * context. */
static void submit_unseen(void) {
    CUcontext current = NULL;
    if (ac_is_active() && ac_driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current) {
        ac_fence_cross();
        ac_fence_uncount();
        ac_streams_unordered();
    }
}

bool ac_submit_begin(ac_submit_t *submit, ac_thread_t *thread, CUstream stream, bool per_thread) {
    ac_context_t *context = thread ? ac_context_of_stream(thread, stream) : NULL;
    if (!context) {
        submit_unseen();
        return false;
    }
    if (!stream)
        stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (AC_PLANTED(per_thread_for_legacy) && stream == CU_STREAM_PER_THREAD)
        stream = CU_STREAM_LEGACY;
    submit->context = context;
    submit->stream = stream;
    submit->holds = false;
    /* Frees that wait for a fence get it now, before later work would delay it. */
    if (ac_fence_full(context->line))
        ac_fence_close(context->line, atomic_load(&ac_fence_crossed));
    submit->marked = ac_cuda_stream_begin(&context->cuda, stream);
    ac_fence_enter(context->line);
    ac_single_enter(context->line, ac_cuda_stream_key(stream), &thread->joins);
    return true;
}

void ac_submit_reach(const ac_submit_t *submit, uint64_t address) {
    if (ac_context_count() < 2 || atomic_load_explicit(&ac_fence_crossed, memory_order_relaxed))
        return;
    ac_arena_t *owner = ac_block_arena(address);
    if (owner && owner != submit->context->arena)
        ac_context_cross();
}

/* Such work was captured or made a node: any graph may be the one that has it. */
static _Atomic bool graphs_hold;

void ac_graphs_hold(void) {
    atomic_store(&graphs_hold, true);
}

static void launch_graph(ac_submit_t *submit) {
    if (atomic_load_explicit(&graphs_hold, memory_order_relaxed))
        ac_submit_hold(submit);
}

void ac_submit_hold(ac_submit_t *submit) {
    if (ac_cuda_is_capturing())
        ac_graphs_hold();
    submit->holds = true;
    ac_fence_hold(submit->context->line, false);
    ac_single_hold(submit->context->line);
}

/* A launch with such an attribute may start before the work ahead of it in its stream is done. */
static bool is_programmatic(const CUlaunchConfig *config) {
    if (AC_PLANTED(programmatic_for_ordered))
        return false;
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
            config->attrs[i].value.programmaticStreamSerializationAllowed)
            return true;
    return false;
}

enum { ATTRIBUTES = 64 };
typedef struct {
    CUlaunchConfig config;
    CUlaunchAttribute attrs[ATTRIBUTES];
} launch_t;

/* The same launch in its stream's order, which is always right and only slower. */
static const CUlaunchConfig *in_order(const CUlaunchConfig *config, launch_t *copy) {
    if (config->numAttrs > ATTRIBUTES)
        return config;
    copy->config = *config;
    copy->config.attrs = copy->attrs;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        copy->attrs[i] = config->attrs[i];
        if (copy->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            copy->attrs[i].value.programmaticStreamSerializationAllowed = 0;
    }
    return &copy->config;
}

/* How the launch goes to the driver.  Captured launches are not work yet, and the launch of their
 * graph is ordered as a whole. */
static const CUlaunchConfig *ordered(const ac_submit_t *submit, const CUlaunchConfig *config,
                                     launch_t *copy) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    ac_event_launch(config);
    if (!is_programmatic(config))
        return config;
    if (ac_cuda_is_capturing() && ac_driver.cuStreamIsCapturing &&
        ac_driver.cuStreamIsCapturing(submit->stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return config;
    ac_single_settle(submit->context->line, true);
    return ac_arena_unordered(submit->context->arena) ? config : in_order(config, copy);
}

#define LAUNCH_CONFIGURED(symbol, per_thread)                                                    \
    CUresult symbol(const CUlaunchConfig *a, CUfunction b, void **c, void **d) {                 \
        AC_BODY(symbol);                                                                         \
        ac_submit_t submit;                                                                      \
        launch_t copy;                                                                           \
        CUresult result;                                                                         \
        bool kept = ac_submit_begin(&submit, thread, a ? a->hStream : NULL, per_thread);         \
        if (kept)                                                                                \
            a = ordered(&submit, a, &copy);                                                      \
        AC_RETRY(result, real(a, b, c, d));                                                      \
        if (kept)                                                                                \
            ac_submit_end(&submit, thread, result);                                              \
        return result;                                                                           \
    }
LAUNCH_CONFIGURED(cuLaunchKernelEx, false)
LAUNCH_CONFIGURED(cuLaunchKernelEx_ptsz, true)

void ac_submit_end(const ac_submit_t *submit, ac_thread_t *thread, CUresult result) {
    ac_cuda_stream_end(&submit->context->cuda, submit->stream, submit->marked);
    ac_fence_leave(submit->context->line);
    if (submit->holds)
        ac_fence_hold(submit->context->line, true);
    if (atomic_load_explicit(&ac_streams_tracked, memory_order_acquire))
        ac_arena_submitted(submit->context->arena, submit->stream == CU_STREAM_LEGACY);
    ac_count(thread, AC_COUNT_submissions);
    ac_context_note(submit->context, result);
}

/* One launch, a stream on each of several devices. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *a, unsigned b, unsigned c) {
    AC_BODY(cuLaunchCooperativeKernelMultiDevice);
    enum { MOST = 64 };
    ac_submit_t submit[MOST];
    bool kept[MOST] = {false};
    CUresult result;
    if (b > MOST && thread)
        submit_unseen();
    for (unsigned i = 0; a && i < b && i < MOST; i++)
        kept[i] = ac_submit_begin(&submit[i], thread, a[i].hStream, false);
    ac_context_cross();
    AC_RETRY(result, real(a, b, c));
    for (unsigned i = 0; i < b && i < MOST; i++)
        if (kept[i])
            ac_submit_end(&submit[i], thread, result);
    return result;
}

#define REACH_NONE    ((void)0)
#define REACH_1(p)    ac_submit_reach(&submit, (uint64_t)(p))
#define REACH_2(p, q) (REACH_1(p), REACH_1(q))
#define REACH_MANY    ac_context_cross()
#define REACH_GRAPH(exec)                                                                        \
    (launch_graph(&submit), ac_context_cross(), ac_graphs_launched(AC_EXEC(exec)))
#define REACH_HOLDS      ac_submit_hold(&submit)
#define REACH_HOLDS_1(p) (REACH_HOLDS, REACH_1(p))
#define REACH_HOLDS_MANY (REACH_HOLDS, REACH_MANY)
enum { MODE_LEGACY, MODE_PTDS };

#define HOOK_SUBMIT(symbol, mode, stream_of, reach, params, args)                                \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        ac_submit_t submit;                                                                      \
        bool kept = ac_submit_begin(&submit, thread, stream_of, MODE_##mode);                    \
        if (kept)                                                                                \
            reach;                                                                               \
        CUresult result;                                                                         \
        AC_RETRY(result, real args);                                                             \
        if (kept)                                                                                \
            ac_submit_end(&submit, thread, result);                                              \
        return result;                                                                           \
    }
#define HOOK_RETRY(symbol, params, args)                                                         \
    CUresult symbol params {                                                                     \
        AC_BODY(symbol);                                                                         \
        CUresult result;                                                                         \
        AC_RETRY(result, real args);                                                             \
        ac_context_note_current(thread, result);                                                 \
        return result;                                                                           \
    }
#include "intercept/hooks.def"
