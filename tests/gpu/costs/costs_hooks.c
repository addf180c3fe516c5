/* gpu_costs hooks: times short calls, to show the time that a preloaded library adds (costs.h).
 *
 * The library spends host time, so this file uses the machine's clock, even if the device's clock
 * is simulated. */
#include "costs.h"

/* A batch fits into the queue of a stream, so that no call waits for the device. */
enum { CALLS = 256 };
#define SECONDS 0.2 /* limit for one row: a slow row has fewer passes */

static struct {
    CUstream stream, other;
    CUevent event, done, made;
    CUdeviceptr buffer, at;
    CUcontext context;
    CUdevice device;
    CUgraph graph, kept_graph, made_graph;
    CUgraphExec exec, made_exec;
    CUmemoryPool pool;
    cuuint64_t threshold;
    CUmemGenericAllocationHandle page;
    CUmemAllocationProp prop;
    CUlaunchConfig config;
    CUpointer_attribute attribute;
    unsigned number;
    void *function, *value, *host;
    size_t left, total;
} h;

static void nothing(void *unused) {
    (void)unused;
}

typedef bool pass_fn(void);

/* Runs one row of costs_hooks.def CALLS times. Returns false if the device does not support it. */
#define HOOK_ROW(id, needs, calls, statement)                                                    \
    static bool pass_##id(void) {                                                                \
        for (unsigned i = 0; i < CALLS; i++) {                                                   \
            statement;                                                                           \
        }                                                                                        \
        return true;                                                                             \
    }
#include "costs_hooks.def"
#undef HOOK_ROW

static void prepare(void) {
    MUST(cu.cuDeviceGet(&h.device, 0));
    MUST(cu.cuStreamCreate(&h.stream, CU_STREAM_NON_BLOCKING));
    MUST(cu.cuEventCreate(&h.event, CU_EVENT_DISABLE_TIMING));
    MUST(cu.cuEventCreate(&h.done, CU_EVENT_DISABLE_TIMING));
    MUST(cu.cuMemAlloc_v2(&h.buffer, 4096));
    MUST(cu.cuEventRecord(h.event, h.stream));
    MUST(cu.cuEventRecord(h.done, h.stream));
    h.prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    h.config = (CUlaunchConfig){1, 1, 1, 1, 1, 1, 0, h.stream, NULL, 0};
    h.attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    h.value = &h.number;
    if (cu.cuGraphInstantiateWithFlags) {
        MUST(cu.cuStreamBeginCapture_v2(h.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        MUST(cu.cuLaunchKernel(costs_noop, 1, 1, 1, 1, 1, 1, 0, h.stream, NULL, NULL));
        MUST(cu.cuStreamEndCapture(h.stream, &h.kept_graph));
        MUST(cu.cuGraphInstantiateWithFlags(&h.exec, h.kept_graph, 0));
    }
    if (costs_pools)
        MUST(cu.cuDeviceGetDefaultMemPool(&h.pool, h.device));
    MUST(cu.cuCtxSynchronize());
}

/* Times and prints one row. The device finishes the submitted work outside the measured time, and
 * the first pass, a warm-up, does not count. */
static void time_row(const char *call, pass_fn *row, unsigned passes) {
    costs_series_t series = {.call = call, .kind = "hook"};
    double end = costs_wall() + SECONDS * 1e9;
    for (unsigned pass = 0; pass <= passes && (pass < 2 || costs_wall() < end); pass++) {
        double from = costs_wall();
        if (!row())
            return;
        if (pass)
            costs_add(&series, costs_wall() - from, CALLS);
        MUST(cu.cuCtxSynchronize());
    }
    costs_print(&series);
}

/* Returns true if the device supports the calls of `row`; the driver may have a function that its
 * device does not support. */
static bool is_possible(pass_fn *row) {
    if (row == pass_alloc_async || row == pass_alloc_from_pool || row == pass_pool_get_attribute)
        return costs_pools;
    return costs_vmm || row != pass_mem_create;
}

void costs_hooks(unsigned passes) {
    prepare();
#define HOOK_ROW(id, needs, calls, statement)                                                    \
    if (cu.needs && is_possible(pass_##id))                                                      \
        time_row(calls, pass_##id, passes);
#include "costs_hooks.def"
#undef HOOK_ROW
}
