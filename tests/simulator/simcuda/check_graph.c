/* Graphs made node by node: cuda.h, "Graph Management". */
#include "extra.h"

static CUdeviceptr words(void) {
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuMemsetD8_v2(p, 0, 4096));
    return p;
}

static CUgraph new_graph(void) {
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

static CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void run_exec(CUgraphExec exec) {
    CUstream s = extra_stream();
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
}

static CUgraphNode add_stamp(CUgraph graph, const CUgraphNode *before, size_t count,
                             CUdeviceptr address, unsigned value) {
    void *arguments[] = {&address, &value};
    CUDA_KERNEL_NODE_PARAMS params = test_kernel_node(extra_kernel, arguments);
    CUgraphNode node;
    OK(cuGraphAddKernelNode_v2(&node, graph, before, count, &params));
    return node;
}

static CUDA_MEMSET_NODE_PARAMS fill(CUdeviceptr dst, unsigned value, size_t width) {
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = dst, .value = value, .elementSize = 4, .width = width, .height = 1};
}

static unsigned host_calls;

static void count_call(void *data) {
    host_calls += *(unsigned *)data;
}

START_TEST(every_kind_of_node) {
    CUdeviceptr p = words();
    CUgraph graph = new_graph();
    CUgraphNode set, stamp, copy, host, empty, record, wait;
    CUevent e;
    OK(cuEventCreate(&e, 0));
    CUDA_MEMSET_NODE_PARAMS memset_params = fill(p, 7, 4);
    OK(cuGraphAddMemsetNode(&set, graph, NULL, 0, &memset_params, NULL));
    stamp = add_stamp(graph, &set, 1, p + 4, 9);
    unsigned out[4] = {0}, step = 3;
    CUDA_MEMCPY3D copy_params = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = p,
                                 .dstMemoryType = CU_MEMORYTYPE_HOST,
                                 .dstHost = out,
                                 .WidthInBytes = sizeof out,
                                 .Height = 1,
                                 .Depth = 1};
    OK(cuGraphAddMemcpyNode(&copy, graph, &stamp, 1, &copy_params, extra_ctx));
    CUDA_HOST_NODE_PARAMS host_params = {count_call, &step};
    OK(cuGraphAddHostNode(&host, graph, &copy, 1, &host_params));
    OK(cuGraphAddEmptyNode(&empty, graph, &host, 1));
    OK(cuGraphAddEventRecordNode(&record, graph, &empty, 1, e));
    OK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, e));

    static const CUgraphNodeType types[] = {
        CU_GRAPH_NODE_TYPE_MEMSET,    CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
        CU_GRAPH_NODE_TYPE_HOST,      CU_GRAPH_NODE_TYPE_EMPTY,  CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        CU_GRAPH_NODE_TYPE_WAIT_EVENT};
    CUgraphNode nodes[8];
    size_t count = 8;
    OK(cuGraphGetNodes(graph, nodes, &count));
    ck_assert_uint_eq(count, 7);
    for (size_t i = 0; i < 7; i++) {
        CUgraphNodeType type;
        OK(cuGraphNodeGetType(nodes[i], &type));
        ck_assert_uint_eq(type, types[i]);
    }

    CUgraphExec exec = instantiate(graph);
    run_exec(exec);
    run_exec(exec);
    ck_assert_uint_eq(out[0], 7);
    ck_assert_uint_eq(out[1], 9);
    ck_assert_uint_eq(host_calls, 6);
    OK(cuEventQuery(e)); /* the launch recorded it */

    CUevent got;
    OK(cuGraphEventRecordNodeGetEvent(record, &got));
    ck_assert_ptr_eq(got, e);
    CUDA_MEMSET_NODE_PARAMS set_back;
    OK(cuGraphMemsetNodeGetParams(set, &set_back));
    ck_assert_uint_eq(set_back.value, 7);
    CUDA_MEMCPY3D copy_back;
    OK(cuGraphMemcpyNodeGetParams(copy, &copy_back));
    ck_assert_ptr_eq(copy_back.dstHost, out);
    CUDA_KERNEL_NODE_PARAMS_v1 kernel_back;
    OK(cuGraphKernelNodeGetParams(stamp, &kernel_back));
    ck_assert_ptr_eq(kernel_back.func, extra_kernel);
    CUDA_HOST_NODE_PARAMS host_back;
    OK(cuGraphHostNodeGetParams(host, &host_back));
    ck_assert_ptr_eq(host_back.userData, &step);
    GIVES(cuGraphHostNodeGetParams(copy, &host_back), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* Makes the parameters of a node of any type from the parameters of that type. */
static CUgraphNodeParams generic(CUgraphNodeType type, const void *payload, size_t bytes) {
    CUgraphNodeParams params = {.type = type};
    ck_assert_uint_le(bytes, sizeof params.payload);
    memcpy(params.payload, payload, bytes);
    return params;
}

#define GENERIC(type, value) generic(CU_GRAPH_NODE_TYPE_##type, &(value), sizeof(value))

START_TEST(every_kind_by_one_call) {
    CUdeviceptr p = words();
    CUgraph graph = new_graph(), inner = new_graph();
    CUgraphNode set, stamp, copy, empty, record, wait, child, alloc, release;
    unsigned out[2] = {0}, nine = 9;
    CUdeviceptr second = p + 4;
    void *arguments[] = {&second, &nine};
    CUevent e;
    OK(cuEventCreate(&e, 0));
    struct {
        CUDA_MEMSET_NODE_PARAMS fill;
        CUcontext ctx;
    } filled = {fill(p, 7, 4), extra_ctx};
    CUDA_KERNEL_NODE_PARAMS stamped = test_kernel_node(extra_kernel, arguments);
    struct {
        int flags, reserved;
        CUcontext ctx;
        CUDA_MEMCPY3D copy;
    } copied = {.copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = p,
                         .dstMemoryType = CU_MEMORYTYPE_HOST,
                         .dstHost = out,
                         .WidthInBytes = sizeof out,
                         .Height = 1,
                         .Depth = 1}};
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = 64};
    CUgraphNodeParams with_memset = GENERIC(MEMSET, filled),
                      with_kernel = GENERIC(KERNEL, stamped),
                      with_memcpy = GENERIC(MEMCPY, copied), with_empty = GENERIC(EMPTY, nine),
                      with_record = GENERIC(EVENT_RECORD, e), with_wait = GENERIC(WAIT_EVENT, e),
                      with_graph = GENERIC(GRAPH, inner), with_alloc = GENERIC(MEM_ALLOC, wanted);
    OK(cuGraphAddNode(&set, graph, NULL, 0, &with_memset));
    OK(cuGraphAddNode(&stamp, graph, &set, 1, &with_kernel));
    OK(cuGraphAddNode_v2(&copy, graph, &stamp, NULL, 1, &with_memcpy));
    CUgraphEdgeData plain = {0}, odd = {.from_port = 1};
    OK(cuGraphAddNode_v2(&empty, graph, &copy, &plain, 1, &with_empty));
    GIVES(cuGraphAddNode_v2(&record, graph, &copy, &odd, 1, &with_empty),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphAddNode(&record, graph, &empty, 1, &with_record));
    OK(cuGraphAddNode(&wait, graph, &record, 1, &with_wait));
    OK(cuGraphAddNode(&child, graph, &wait, 1, &with_graph));
    OK(cuGraphAddNode(&alloc, graph, &child, 1, &with_alloc));
    CUDA_MEM_ALLOC_NODE_PARAMS given;
    memcpy(&given, with_alloc.payload, sizeof given);
    ck_assert_uint_ne(given.dptr, 0);
    CUgraphNodeParams with_free = GENERIC(MEM_FREE, given.dptr);
    GIVES(cuGraphAddNode_v2(&release, graph, &alloc, &odd, 1, &with_free),
          CUDA_ERROR_INVALID_VALUE); /* and the memory can still be freed */
    OK(cuGraphAddNode(&release, graph, &alloc, 1, &with_free));
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    ck_assert_uint_eq(count, 9); /* the refused one is gone */

    CUgraphExec exec = instantiate(graph);
    run_exec(exec);
    ck_assert_uint_eq(out[0], 7);
    ck_assert_uint_eq(out[1], 9);
    OK(cuEventQuery(e));
    filled.fill.value = 8;
    memcpy(with_memset.payload, &filled, sizeof filled);
    OK(cuGraphExecNodeSetParams(exec, set, &with_memset));
    run_exec(exec);
    ck_assert_uint_eq(out[0], 8);
    GIVES(cuGraphNodeSetParams(set, &with_kernel), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphNodeSetParams(set, &with_memset));
    GIVES(cuGraphNodeSetParams(alloc, &with_alloc), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeParams strange = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    GIVES(cuGraphAddNode(&set, graph, NULL, 0, &strange), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuGraphAddNode(&set, graph, NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(branches_are_concurrent) {
    CUdeviceptr p = words();
    CUgraph graph = new_graph();
    CUgraphNode branch[2] = {add_stamp(graph, NULL, 0, p, 1),
                             add_stamp(graph, NULL, 0, p + 4, 2)};
    add_stamp(graph, branch, 2, p + 8, 3);
    CUgraphExec exec = instantiate(graph);
    CUstream s = extra_stream();
    unsigned long long start = simcuda_now();
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    unsigned long long took = simcuda_now() - start;
    ck_assert_uint_ge(took, 20000); /* kernels last 10 us */
    ck_assert_uint_lt(took, 30000);
    ck_assert_uint_eq(extra_word(p + 8), 3);
}
END_TEST

/* A launch comes after earlier work of its stream and before later work. */
START_TEST(launch_is_in_stream_order) {
    CUdeviceptr p = words();
    CUgraph graph = new_graph();
    add_stamp(graph, NULL, 0, p, 2);
    CUgraphExec exec = instantiate(graph);
    CUstream s = extra_stream();
    unsigned before = 0, after = 0;
    OK(extra_launch(s, p, 1));
    OK(cuMemcpyDtoHAsync_v2(&before, p, 4, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuMemcpyDtoHAsync_v2(&after, p, 4, s));
    OK(extra_launch(s, p, 3));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(before, 1);
    ck_assert_uint_eq(after, 2);
    ck_assert_uint_eq(extra_word(p), 3);
    GIVES(cuGraphLaunch(NULL, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphUpload(exec, s));
    OK(cuGraphLaunch_ptsz(exec, NULL));
    OK(cuCtxSynchronize());
}
END_TEST

/* One executable graph does not run twice at a time, also on two streams. */
START_TEST(launches_of_one_exec_are_serial) {
    CUdeviceptr p = words();
    CUgraph graph = new_graph();
    add_stamp(graph, NULL, 0, p, 2);
    CUgraphExec exec = instantiate(graph);
    CUstream a = extra_stream(), b = extra_stream();
    unsigned long long start = simcuda_now();
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphLaunch(exec, b));
    OK(cuStreamSynchronize(b));
    ck_assert_uint_ge(simcuda_now() - start, 20000);
}
END_TEST

START_TEST(structure) {
    CUgraph graph = new_graph(), other = new_graph();
    CUgraphNode n[3], foreign;
    for (int i = 0; i < 3; i++)
        OK(cuGraphAddEmptyNode(&n[i], graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&foreign, other, NULL, 0));
    OK(cuGraphAddDependencies(graph, &n[0], &n[1], 1));
    OK(cuGraphAddDependencies_v2(graph, &n[1], &n[2], NULL, 1));
    GIVES(cuGraphAddDependencies(graph, &n[0], &n[1], 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphAddDependencies(graph, &foreign, &n[1], 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphAddDependencies(graph, &n[1], &n[1], 1), CUDA_ERROR_INVALID_VALUE);
    CUgraphNode twice[2] = {n[0], n[0]}, node;
    GIVES(cuGraphAddEmptyNode(&node, graph, twice, 2), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphAddEmptyNode(&node, graph, &foreign, 1), CUDA_ERROR_INVALID_VALUE);

    CUgraphNode from[4], to[4];
    size_t count = 4;
    OK(cuGraphGetEdges(graph, from, to, &count));
    ck_assert_uint_eq(count, 2);
    ck_assert_ptr_eq(from[1], n[1]);
    ck_assert_ptr_null(from[2]);
    count = 4;
    OK(cuGraphNodeGetDependentNodes(n[0], to, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_ptr_eq(to[0], n[1]);

    /* A cycle is found at instantiation. */
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    OK(cuGraphAddDependencies(graph, &n[2], &n[0], 1));
    GIVES(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_ne(params.result_out, 0);
    ck_assert_ptr_nonnull(params.hErrNode_out);
    char log[64] = "";
    CUgraphNode bad = NULL;
    GIVES(cuGraphInstantiate_v2(&exec, graph, &bad, log, sizeof log), CUDA_ERROR_INVALID_VALUE);
    ck_assert_ptr_nonnull(bad);
    OK(cuGraphRemoveDependencies(graph, &n[2], &n[0], 1));
    GIVES(cuGraphRemoveDependencies(graph, &n[2], &n[0], 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphInstantiateWithParams(&exec, graph, &params));
    ck_assert_uint_eq(params.result_out, 0);
    GIVES(cuGraphInstantiateWithFlags(&exec, graph, 1u << 20), CUDA_ERROR_INVALID_VALUE);
    cuuint64_t flags = 99;
    OK(cuGraphExecGetFlags(exec, &flags));
    ck_assert_uint_eq(flags, 0);

    OK(cuGraphDestroyNode(n[1]));
    count = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    ck_assert_uint_eq(count, 0);
    GIVES(cuGraphDestroyNode(n[1]), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(graph));
    GIVES(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
    run_exec(exec); /* lives on without its graph */
}
END_TEST

START_TEST(edges_with_data) {
    CUdeviceptr p = words();
    CUgraph graph = new_graph(), clone;
    CUgraphNode a = add_stamp(graph, NULL, 0, p, 1), b = add_stamp(graph, NULL, 0, p + 4, 2);
    CUgraphNode empty, from[2], to[2];
    CUgraphEdgeData data = {.from_port = 1, .type = 1}, got[2], wrong = {.from_port = 1};
    size_t count = 2;
    OK(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    GIVES(cuGraphAddDependencies_v2(graph, &a, &b, &wrong, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphAddDependencies_v2(graph, &a, &empty, &data, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
    GIVES(cuGraphGetEdges(graph, from, to, &count), CUDA_ERROR_LOSSY_QUERY);
    GIVES(cuGraphNodeGetDependencies(b, from, &count), CUDA_ERROR_LOSSY_QUERY);
    GIVES(cuGraphNodeGetDependentNodes(a, to, &count), CUDA_ERROR_LOSSY_QUERY);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphGetEdges_v2(clone, from, to, got, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(got[0].from_port, 1);
    ck_assert_uint_eq(got[0].type, 1);
    count = 2;
    OK(cuGraphNodeGetDependencies_v2(b, from, got, &count));
    ck_assert_uint_eq(count, 1);
    ck_assert_ptr_eq(from[0], a);
    ck_assert_uint_eq(got[0].type, 1);

    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    run_exec(exec);
    ck_assert_uint_eq(extra_word(p + 4), 2);
    GIVES(cuGraphRemoveDependencies(graph, &a, &b, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphRemoveDependencies_v2(graph, &a, &b, &data, 1));
    OK(cuGraphAddDependencies(graph, &a, &b, 1));
    CUgraphExecUpdateResultInfo info;
    GIVES(cuGraphExecUpdate_v2(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    count = 2;
    OK(cuGraphGetEdges(graph, from, to, &count));
    ck_assert_uint_eq(count, 1);
}
END_TEST

START_TEST(children_and_clones) {
    CUdeviceptr p = words();
    CUgraph inner = new_graph(), outer = new_graph(), embedded, clone;
    CUgraphNode stamp = add_stamp(inner, NULL, 0, p, 4), child, last, found;
    OK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
    last = add_stamp(outer, &child, 1, p, 5);
    OK(cuGraphChildGraphNodeGetGraph(child, &embedded));
    ck_assert_ptr_ne(embedded, inner);
    GIVES(cuGraphDestroy(embedded), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(inner));
    GIVES(cuGraphNodeGetType(stamp, &(CUgraphNodeType){0}), CUDA_ERROR_INVALID_VALUE);

    OK(cuGraphClone(&clone, outer));
    OK(cuGraphNodeFindInClone(&found, last, clone));
    ck_assert_ptr_ne(found, last);
    GIVES(cuGraphNodeFindInClone(&found, found, outer), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphDestroy(outer));
    CUgraphExec exec = instantiate(clone);
    CUstream s = extra_stream();
    unsigned long long start = simcuda_now();
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_ge(simcuda_now() - start, 20000); /* child before last */
    ck_assert_uint_eq(extra_word(p), 5);

    /* Launching into a capture makes a child node. */
    CUgraph captured;
    OK(cuMemsetD8_v2(p, 0, 4));
    OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamEndCapture(s, &captured));
    CUgraphNode only;
    size_t count = 1;
    CUgraphNodeType type;
    OK(cuGraphGetNodes(captured, &only, &count));
    OK(cuGraphNodeGetType(only, &type));
    ck_assert_uint_eq(type, CU_GRAPH_NODE_TYPE_GRAPH);
    run_exec(instantiate(captured));
    ck_assert_uint_eq(extra_word(p), 5);
}
END_TEST

START_TEST(changing_executable_graphs) {
    CUdeviceptr p = words();
    CUgraph graph = new_graph();
    CUgraphNode set;
    CUDA_MEMSET_NODE_PARAMS params = fill(p, 1, 1);
    OK(cuGraphAddMemsetNode(&set, graph, NULL, 0, &params, NULL));
    CUgraphNode stamp = add_stamp(graph, &set, 1, p + 4, 1);
    CUgraphExec exec = instantiate(graph);
    params.value = 2;
    OK(cuGraphExecMemsetNodeSetParams(exec, set, &params, extra_ctx));
    run_exec(exec);
    ck_assert_uint_eq(extra_word(p), 2);
    OK(cuGraphMemsetNodeGetParams(set, &params));
    ck_assert_uint_eq(params.value, 1); /* the graph itself did not change */
    GIVES(cuGraphExecMemsetNodeSetParams(exec, stamp, &params, extra_ctx),
          CUDA_ERROR_INVALID_VALUE);

    unsigned enabled = 9;
    OK(cuGraphNodeGetEnabled(exec, stamp, &enabled));
    ck_assert_uint_eq(enabled, 1);
    OK(cuGraphNodeSetEnabled(exec, stamp, 0));
    OK(cuMemsetD8_v2(p, 0, 64));
    run_exec(exec);
    ck_assert_uint_eq(extra_word(p + 4), 0);
    OK(cuGraphNodeSetEnabled(exec, stamp, 1));

    /* Update from a graph of the same shape. */
    CUgraph same = new_graph(), different = new_graph();
    CUgraphNode other;
    params.value = 30;
    OK(cuGraphAddMemsetNode(&other, same, NULL, 0, &params, NULL));
    add_stamp(same, &other, 1, p + 4, 31);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate_v2(exec, same, &info));
    ck_assert_uint_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run_exec(exec);
    ck_assert_uint_eq(extra_word(p), 30);
    ck_assert_uint_eq(extra_word(p + 4), 31);
    OK(cuGraphExecMemsetNodeSetParams(exec, set, &params, extra_ctx)); /* old handles hold */

    OK(cuGraphAddEmptyNode(&other, different, NULL, 0));
    GIVES(cuGraphExecUpdate_v2(exec, different, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    ck_assert_uint_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    add_stamp(different, &other, 1, p, 1);
    CUgraphExecUpdateResult why;
    CUgraphNode culprit;
    GIVES(cuGraphExecUpdate(exec, different, &culprit, &why),
          CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    ck_assert_uint_eq(why, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    ck_assert_ptr_eq(culprit, other);
}
END_TEST

static uint64_t graph_memory(CUgraphMem_attribute attribute) {
    cuuint64_t value = UINT64_MAX;
    OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
}

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(size_t bytes) {
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = bytes};
}

START_TEST(memory_inside_a_graph) {
    CUgraph graph = new_graph(), clone;
    CUgraphNode alloc, stamp, release, again;
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(3 * MIB), back;
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    ck_assert_uint_ne(params.dptr, 0);
    OK(cuGraphMemAllocNodeGetParams(alloc, &back));
    ck_assert_uint_eq(back.dptr, params.dptr);
    ck_assert_uint_eq(back.bytesize, 3 * MIB);
    stamp = add_stamp(graph, &alloc, 1, params.dptr, 8);
    OK(cuGraphAddMemFreeNode(&release, graph, &stamp, 1, params.dptr));
    GIVES(cuGraphAddMemFreeNode(&again, graph, &stamp, 1, params.dptr), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuGraphAddMemFreeNode(&again, graph, NULL, 0, 0x1234), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr freed;
    OK(cuGraphMemFreeNodeGetParams(release, &freed));
    ck_assert_uint_eq(freed, params.dptr);
    GIVES(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
    GIVES(cuGraphDestroyNode(stamp), CUDA_ERROR_NOT_SUPPORTED);

    ck_assert_uint_eq(simcuda_used_memory(0), 0); /* nothing yet */
    CUgraphExec exec = instantiate(graph), second;
    GIVES(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CUstream s = extra_stream();
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(exec, s)); /* freed in the graph: may follow at once */
    ck_assert_uint_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 3 * MIB);
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    ck_assert_uint_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 3 * MIB);
    uint64_t reserved = graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    ck_assert_uint_ge(reserved, 3 * MIB);
    ck_assert_uint_eq(simcuda_used_memory(0), reserved);
    OK(cuDeviceGraphMemTrim(0));
    ck_assert_uint_eq(simcuda_used_memory(0), 0);
    cuuint64_t zero = 0, one = 1;
    GIVES(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
    ck_assert_uint_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), 0);
    GIVES(cuDeviceGraphMemTrim(9), CUDA_ERROR_INVALID_DEVICE);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&second, graph, 0));
}
END_TEST

START_TEST(memory_that_outlives_the_launch) {
    CUgraph graph = new_graph(), freeing = new_graph();
    CUgraphNode alloc, node;
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(4096);
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    add_stamp(graph, &alloc, 1, params.dptr, 8);
    CUgraphExec exec = instantiate(graph);
    CUstream s = extra_stream();
    GIVES(cuMemFreeAsync(params.dptr, s), CUDA_ERROR_INVALID_VALUE); /* not allocated yet */
    OK(cuGraphLaunch(exec, s));
    GIVES(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE); /* still allocated */
    OK(extra_launch(s, params.dptr + 4, 9));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(extra_word(params.dptr), 8);
    OK(cuMemFreeAsync(params.dptr, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemFree_v2(params.dptr));
    GIVES(cuMemFree_v2(params.dptr), CUDA_ERROR_INVALID_VALUE);

    /* Freed by another graph; then its own graph may not any more. */
    OK(cuGraphAddMemFreeNode(&node, freeing, NULL, 0, params.dptr));
    GIVES(cuGraphAddMemFreeNode(&node, graph, &alloc, 1, params.dptr), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec free_exec = instantiate(freeing);
    GIVES(cuGraphLaunch(free_exec, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(free_exec, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    OK(extra_launch(s, params.dptr, 1));
    GIVES(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(auto_free_on_launch) {
    CUgraph graph = new_graph();
    CUgraphNode alloc;
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(4096);
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
    add_stamp(graph, &alloc, 1, params.dptr, 8);
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph,
                                   CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    for (int i = 0; i < 3; i++)
        run_exec(exec);
    ck_assert_uint_eq(extra_word(params.dptr), 8);
    ck_assert_uint_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 4096);
    OK(cuMemFree_v2(params.dptr));
}
END_TEST

/* A launch that cannot get its memory does nothing at all. */
START_TEST(launch_without_memory) {
    CUdeviceptr p = words(), hog;
    CUgraph graph = new_graph();
    CUgraphNode small, big;
    CUDA_MEM_ALLOC_NODE_PARAMS few = alloc_params(4096), many = alloc_params(128 * MIB);
    OK(cuGraphAddMemAllocNode(&small, graph, NULL, 0, &few));
    OK(cuGraphAddMemAllocNode(&big, graph, &small, 1, &many));
    add_stamp(graph, &small, 1, p, 8);
    CUgraphExec exec = instantiate(graph);
    CUstream s = extra_stream();
    OK(cuMemAlloc_v2(&hog, 200 * MIB));
    GIVES(cuGraphLaunch(exec, s), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(extra_word(p), 0);
    ck_assert_uint_eq(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
    OK(cuMemFree_v2(hog));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(extra_word(p), 8);
}
END_TEST

static void destroy_value(void *value) {
    CUdeviceptr p;
    GIVES(cuMemAlloc_v2(&p, 512), CUDA_ERROR_NOT_PERMITTED); /* a host function */
    ++*(unsigned *)value;
}

/* Lets pending destructors run. */
static void pass_time(void) {
    CUstream s = extra_stream();
    extra_launch(s, words(), 1);
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
}

static CUuserObject user_object(unsigned *destroyed, unsigned references) {
    CUuserObject object;
    OK(cuUserObjectCreate(&object, destroyed, destroy_value, references, 1));
    return object;
}

START_TEST(user_objects_count_references) {
    unsigned destroyed = 0;
    CUuserObject object;
    GIVES(cuUserObjectCreate(&object, NULL, NULL, 1, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuUserObjectCreate(&object, NULL, destroy_value, 0, 1), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuUserObjectCreate(&object, NULL, destroy_value, 1, 0), CUDA_ERROR_INVALID_VALUE);
    object = user_object(&destroyed, 2);
    OK(cuUserObjectRetain(object, 1));
    GIVES(cuUserObjectRetain(object, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuUserObjectRelease(object, 2));
    pass_time();
    ck_assert_uint_eq(destroyed, 0);
    OK(cuUserObjectRelease(object, 1));
    pass_time();
    ck_assert_uint_eq(destroyed, 1);
    GIVES(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(graphs_keep_user_objects) {
    unsigned moved = 0, shared = 0;
    CUgraph graph = new_graph(), clone;
    CUuserObject ours = user_object(&moved, 1), theirs = user_object(&shared, 1);
    OK(cuGraphRetainUserObject(graph, ours, 1, 1));
    GIVES(cuGraphRetainUserObject(graph, theirs, 2, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphRetainUserObject(graph, theirs, 1, 0));
    GIVES(cuGraphReleaseUserObject(graph, theirs, 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphReleaseUserObject(graph, theirs, 1));
    OK(cuUserObjectRelease(theirs, 1));
    pass_time();
    ck_assert_uint_eq(shared, 1);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphDestroy(graph));
    pass_time();
    ck_assert_uint_eq(moved, 0);
    OK(cuGraphDestroy(clone));
    pass_time();
    ck_assert_uint_eq(moved, 1);
}
END_TEST

/* An executable graph keeps the objects of its graph until its last launch is over. This also
 * holds after it was destroyed, or updated to a graph without objects. */
START_TEST(launches_keep_user_objects) {
    unsigned destroyed = 0;
    CUdeviceptr p = words();
    CUgraph graph = new_graph();
    CUgraphNode stamp = add_stamp(graph, NULL, 0, p, 1), child;
    CUgraph inner = new_graph();
    OK(cuGraphRetainUserObject(inner, user_object(&destroyed, 1), 1, 1));
    OK(cuGraphAddChildGraphNode(&child, graph, &stamp, 1, inner));
    OK(cuGraphDestroy(inner));
    CUgraphExec exec = instantiate(graph);
    OK(cuGraphDestroy(graph));
    CUstream s = extra_stream();
    OK(cuGraphLaunch(exec, s));
    if (_i) {
        CUgraph same = new_graph(), nothing = new_graph();
        CUgraphExecUpdateResultInfo info;
        stamp = add_stamp(same, NULL, 0, p, 1);
        OK(cuGraphAddChildGraphNode(&child, same, &stamp, 1, nothing));
        OK(cuGraphExecUpdate_v2(exec, same, &info));
    } else {
        OK(cuGraphExecDestroy(exec));
    }
    GIVES(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    ck_assert_uint_eq(extra_word(p), 0); /* still to come */
    ck_assert_uint_eq(destroyed, 0);
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(extra_word(p), 1);
    pass_time();
    ck_assert_uint_eq(destroyed, 1);
}
END_TEST

int main(void) {
    TCase *t;
    Suite *suite = extra_suite("graphs", &t);
    tcase_add_test(t, every_kind_of_node);
    tcase_add_test(t, branches_are_concurrent);
    tcase_add_test(t, launch_is_in_stream_order);
    tcase_add_test(t, launches_of_one_exec_are_serial);
    tcase_add_test(t, structure);
    tcase_add_test(t, edges_with_data);
    tcase_add_test(t, children_and_clones);
    tcase_add_test(t, every_kind_by_one_call);
    tcase_add_test(t, changing_executable_graphs);
    tcase_add_test(t, memory_inside_a_graph);
    tcase_add_test(t, memory_that_outlives_the_launch);
    tcase_add_test(t, auto_free_on_launch);
    tcase_add_test(t, launch_without_memory);
    tcase_add_test(t, user_objects_count_references);
    tcase_add_test(t, graphs_keep_user_objects);
    tcase_add_loop_test(t, launches_keep_user_objects, 0, 2);
    return run_suite(suite);
}
