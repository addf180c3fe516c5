/* Counts of simcuda_live: making an object of a kind raises its count, and ending the object
 * lowers it. */
#include <stdint.h>

#include "extra.h"

#define GRAIN (2 * MIB)

typedef struct {
    const char *kind;
    void (*make)(void);
    void (*drop)(void);
} pair_t;

static CUstream stream;
static CUevent event;
static CUcontext context;
static CUgreenCtx green;
static CUgraph graph;
static CUgraphNode node;
static CUgraphExec exec;
static CUmodule module;
static CUlibrary library;
static CUmemoryPool pool;
static CUarray array;
static CUtexObject texture;
static CUuserObject object;
static CUdeviceptr range;
static CUmemGenericAllocationHandle handle;

static void make_stream(void) {
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}
static void drop_stream(void) {
    OK(cuStreamDestroy_v2(stream));
}
static void make_event(void) {
    OK(cuEventCreate(&event, 0));
}
static void drop_event(void) {
    OK(cuEventDestroy_v2(event));
}
static void make_shared_event(void) {
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
}
static void make_export(void) {
    CUipcMemHandle text;
    OK(cuMemAlloc_v2(&range, GRAIN));
    OK(cuIpcGetMemHandle(&text, range));
}
static void drop_export(void) {
    OK(cuMemFree_v2(range));
}
static void make_context(void) {
    CUcontext pushed;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxPopCurrent_v2(&pushed));
}
static void drop_context(void) {
    OK(cuCtxDestroy_v2(context));
}
static void make_green(void) {
    CUdevResourceDesc desc;
    uint64_t processors[18]; /* as large as the ABI has it */
    OK(cuDeviceGetDevResource(0, (CUdevResource *)(void *)processors, 1));
    OK(cuDevResourceGenerateDesc(&desc, (CUdevResource *)(void *)processors, 1));
    OK(cuGreenCtxCreate(&green, desc, 0, 1));
}
static void drop_green(void) {
    OK(cuGreenCtxDestroy(green));
}
static void make_graph(void) {
    OK(cuGraphCreate(&graph, 0));
}
static void drop_graph(void) {
    OK(cuGraphDestroy(graph));
}
static void make_node(void) {
    make_graph();
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
}
static void make_exec(void) {
    make_graph();
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
}
static void drop_exec(void) {
    OK(cuGraphExecDestroy(exec));
}
static void nothing(void *value) {
    (void)value;
}
static void make_object(void) {
    OK(cuUserObjectCreate(&object, NULL, nothing, 1, 1));
}
static void drop_object(void) {
    OK(cuUserObjectRelease(object, 1));
}
static void make_module(void) {
    OK(cuModuleLoadData(&module, "stand-in"));
}
static void drop_module(void) {
    OK(cuModuleUnload(module));
}
static void make_library(void) {
    OK(cuLibraryLoadData(&library, "stand-in", NULL, NULL, 0, NULL, NULL, 0));
}
static void drop_library(void) {
    OK(cuLibraryUnload(library));
}
static void make_pool(void) {
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemPoolCreate(&pool, &props));
}
static void drop_pool(void) {
    OK(cuMemPoolDestroy(pool));
}
static void make_array(void) {
    CUDA_ARRAY_DESCRIPTOR desc = {
        .Width = 16, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    OK(cuArrayCreate_v2(&array, &desc));
}
static void drop_array(void) {
    OK(cuArrayDestroy(array));
}
static void make_texture(void) {
    static unsigned char resource[144];
    static const unsigned char sampler[104];
    const void *what = resource, *how = sampler;
    make_array();
    memcpy(resource + 8, &array, sizeof array);
    OK(cuTexObjectCreate(&texture, what, how, NULL));
}
static void drop_texture(void) {
    OK(cuTexObjectDestroy(texture));
    drop_array();
}
static void make_range(void) {
    OK(cuMemAddressReserve(&range, GRAIN, 0, 0, 0));
}
static void drop_range(void) {
    OK(cuMemAddressFree(range, GRAIN));
}
static void make_handle(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    OK(cuMemCreate(&handle, GRAIN, &prop, 0));
}
static void drop_handle(void) {
    OK(cuMemRelease(handle));
}
static void make_mapping(void) {
    make_range();
    make_handle();
    OK(cuMemMap(range, GRAIN, 0, handle, 0));
    drop_handle();
}
static void drop_mapping(void) {
    OK(cuMemUnmap(range, GRAIN));
    drop_range();
}
static void make_capture(void) {
    make_stream();
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}
static void drop_capture(void) {
    OK(cuStreamEndCapture(stream, &graph));
    drop_stream();
    drop_graph();
}
static void make_work(void) {
    make_stream();
    OK(extra_launch(stream, range, 1));
}
static void drop_work(void) {
    OK(cuStreamSynchronize(stream));
    drop_stream();
}
static void make_used(void) {
    OK(cuMemAlloc_v2(&range, GRAIN));
    make_work();
}
static void drop_used(void) {
    drop_work();
    OK(cuMemFree_v2(range));
}

static const pair_t pairs[] = {
    {"streams", make_stream, drop_stream},
    {"events", make_event, drop_event},
    {"contexts", make_context, drop_context},
    {"green_contexts", make_green, drop_green},
    {"graphs", make_graph, drop_graph},
    {"graph_nodes", make_node, drop_graph},
    {"graph_execs", make_exec, drop_exec},
    {"user_objects", make_object, drop_object},
    {"modules", make_module, drop_module},
    {"libraries", make_library, drop_library},
    {"pools", make_pool, drop_pool},
    {"arrays", make_array, drop_array},
    {"textures", make_texture, drop_texture},
    {"reservations", make_range, drop_range},
    {"handles", make_handle, drop_handle},
    {"physical", make_mapping, drop_mapping},
    {"mappings", make_mapping, drop_mapping},
    {"captures", make_capture, drop_capture},
    {"shared_events", make_shared_event, drop_event},
    {"exports", make_export, drop_export},
    {"work", make_used, drop_used},
    {"race_ranges", make_used, drop_used},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

START_TEST(one_more_and_one_less) {
    const pair_t *pair = &pairs[_i];
    unsigned long long before = simcuda_live(pair->kind);
    ck_assert_uint_ne(before, ~0ull);
    pair->make();
    ck_assert_msg(simcuda_live(pair->kind) > before, "%s: not counted", pair->kind);
    pair->drop();
    ck_assert_msg(simcuda_live(pair->kind) == before, "%s: %llu before, %llu after", pair->kind,
                  before, simcuda_live(pair->kind));
}
END_TEST

/* The race detector remembers the last 1024 releases, to report which call took memory away. */
START_TEST(the_race_detector_forgets) {
    enum { TURNS = 5000, KEPT = 1024 };
    for (int i = 0; i < TURNS; i++) {
        make_used();
        drop_used();
    }
    ck_assert_uint_le(simcuda_live("race_owners"), KEPT);
    ck_assert_uint_le(simcuda_live("race_items"), KEPT);
    ck_assert_uint_le(simcuda_live("race_chains"), 4);
    ck_assert_uint_eq(simcuda_live("work"), 0);
}
END_TEST

START_TEST(every_kind_is_known) {
    size_t count = 0;
    for (const char *kind; (kind = simcuda_live_kind(count)); count++)
        ck_assert_uint_ne(simcuda_live(kind), ~0ull);
    ck_assert_uint_ge(count, PAIRS);
    ck_assert_uint_eq(simcuda_live("no such kind"), ~0ull);
    ck_assert_uint_eq(simcuda_live(NULL), ~0ull);
}
END_TEST

int main(void) {
    TCase *tests;
    Suite *suite = extra_suite("live", &tests);
    tcase_add_loop_test(tests, one_more_and_one_less, 0, PAIRS);
    tcase_add_test(tests, the_race_detector_forgets);
    tcase_add_test(tests, every_kind_is_known);
    return run_suite(suite);
}
