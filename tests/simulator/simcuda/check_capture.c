/* Stream capture: cuda.h, cuStreamBeginCapture to cuStreamUpdateCaptureDependencies, and the
 * notes on capture at the calls it forbids. */
#include <pthread.h>

#include "extra.h"

static void begin(CUstream stream, CUstreamCaptureMode mode) {
    OK(cuStreamBeginCapture_v2(stream, mode));
}

static CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = 99;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

static size_t node_count(CUgraph graph) {
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

static size_t edge_count(CUgraph graph) {
    size_t count = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, &count));
    return count;
}

static CUdeviceptr word(void) {
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 64));
    OK(cuMemsetD8_v2(p, 0, 64));
    return p;
}

/* Ends a capture that was invalidated. */
static void end_invalid(CUstream stream) {
    CUgraph graph = (CUgraph)(uintptr_t)1;
    ck_assert_uint_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    GIVES(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ck_assert_ptr_null(graph);
    ck_assert_uint_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

static void end_valid(CUstream stream) {
    CUgraph graph;
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
}

START_TEST(captured_work_runs_at_launch) {
    CUstream s = extra_stream();
    CUdeviceptr p = word();
    CUgraph graph;
    CUgraphExec exec;
    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    ck_assert_uint_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(extra_launch(s, p, 5));
    OK(cuMemsetD32Async(p + 4, 6, 1, s));
    OK(cuMemcpyDtoDAsync_v2(p + 8, p, 4, s));
    OK(cuStreamEndCapture(s, &graph));
    ck_assert_uint_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(extra_word(p), 0); /* nothing ran */
    ck_assert_uint_eq(node_count(graph), 3);
    ck_assert_uint_eq(edge_count(graph), 2);

    /* A program can read and change the arguments of a captured kernel. */
    CUgraphNode first;
    size_t count = 1;
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphGetNodes(graph, &first, &count));
    OK(cuGraphKernelNodeGetParams_v2(first, &params));
    ck_assert_ptr_eq(params.func, extra_kernel);
    ck_assert_mem_eq(params.kernelParams[0], &p, sizeof p);
    ck_assert_uint_eq(*(unsigned *)params.kernelParams[1], 5);
    params.kernelParams[1] = &(unsigned){8};
    OK(cuGraphKernelNodeSetParams_v2(first, &params));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (unsigned round = 0; round < 3; round++) {
        OK(cuMemsetD8_v2(p, 0, 64));
        OK(cuGraphLaunch(exec, s));
        OK(cuStreamSynchronize(s));
        ck_assert_uint_eq(extra_word(p), 8);
        ck_assert_uint_eq(extra_word(p + 4), 6);
        ck_assert_uint_eq(extra_word(p + 8), 8);
    }
    OK(cuGraphExecDestroy(exec));
    GIVES(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(beginning_and_ending) {
    CUstream s = extra_stream();
    CUgraph graph;
    GIVES(cuStreamBeginCapture_v2(s, 7), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuStreamBeginCapture_v2(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    GIVES(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(cuStreamBeginCapture_v2(s, 0), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuStreamEndCapture(s, &graph));
    ck_assert_uint_eq(node_count(graph), 0);
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED)); /* per-thread */
    ck_assert_uint_eq(status_of(CU_STREAM_PER_THREAD), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamEndCapture_ptsz(NULL, &graph));
}
END_TEST

/* Which calls are unsafe is asked by tests/gpu/facts/captures.def. */
START_TEST(an_unsafe_call_ends_the_capture) {
    CUstream s = extra_stream();
    CUdeviceptr p, kept = word();
    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(cuMemAlloc_v2(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    GIVES(extra_launch(s, kept, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_invalid(s);

    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);
}
END_TEST

START_TEST(relaxed_permits) {
    CUstream s = extra_stream();
    CUdeviceptr p;
    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuMemAlloc_v2(&p, 64));
    OK(cuMemFree_v2(p));
    end_valid(s);

    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    ck_assert_uint_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAlloc_v2(&p, 64));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    ck_assert_uint_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(cuMemAlloc_v2(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);

    /* A call that conflicts with the capture itself stays forbidden in the relaxed mode. */
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalid(s);
    mode = 9;
    GIVES(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuThreadExchangeStreamCaptureMode(NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

typedef struct {
    CUstream stream;
    CUstreamCaptureMode mode;
    CUresult alloc, end;
} elsewhere_t;

static void *elsewhere(void *argument) {
    elsewhere_t *e = argument;
    CUdeviceptr p;
    CUgraph graph;
    CUstreamCaptureMode mode = e->mode;
    cuCtxSetCurrent(extra_ctx);
    cuThreadExchangeStreamCaptureMode(&mode);
    e->alloc = cuMemAlloc_v2(&p, 64);
    e->end = cuStreamEndCapture(e->stream, &graph);
    return NULL;
}

static elsewhere_t in_other_thread(CUstream stream, CUstreamCaptureMode thread_mode) {
    elsewhere_t e = {.stream = stream, .mode = thread_mode};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, elsewhere, &e), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    return e;
}

START_TEST(threads_and_modes) {
    static const struct {
        CUstreamCaptureMode capture, thread;
        CUresult alloc, end;
    } cases[] = {
        {0, 0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
        {0, 1, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
        {0, 2, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
        {1, 0, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
        {1, 1, CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD},
        {2, 0, CUDA_SUCCESS, CUDA_SUCCESS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUstream s = extra_stream();
        begin(s, cases[i].capture);
        elsewhere_t e = in_other_thread(s, cases[i].thread);
        ck_assert_msg(e.alloc == cases[i].alloc && e.end == cases[i].end, "case %zu: %u, %u", i,
                      e.alloc, e.end);
        if (cases[i].alloc)
            end_invalid(s);
        else if (cases[i].end)
            end_valid(s);
        else
            ck_assert_uint_eq(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    }
}
END_TEST

START_TEST(legacy_stream_is_implicit) {
    CUstream blocking;
    CUdeviceptr p = word();
    CUstreamCaptureStatus status;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    cuuint64_t id;
    GIVES(cuStreamGetCaptureInfo(NULL, &status, &id), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    ck_assert_uint_eq(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE); /* asking is free */
    GIVES(extra_launch(NULL, p, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    end_invalid(blocking);

    CUstream s = extra_stream(); /* a non-blocking stream does not mind */
    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(extra_launch(NULL, p, 1));
    OK(cuStreamIsCapturing(NULL, &status));
    ck_assert_uint_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
    end_valid(s);
}
END_TEST

START_TEST(fork_and_join) {
    CUstream a = extra_stream(), b = extra_stream();
    CUevent fork, join;
    CUdeviceptr p = word();
    CUgraph graph;
    OK(cuEventCreate(&fork, 0));
    OK(cuEventCreate(&join, 0));
    begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(extra_launch(a, p, 1));
    OK(cuEventRecord(fork, a));
    OK(cuStreamWaitEvent(b, fork, 0));
    ck_assert_uint_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    GIVES(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    OK(extra_launch(b, p + 4, 2));
    OK(extra_launch(a, p + 8, 3));
    OK(cuEventRecord(join, b));
    OK(cuStreamWaitEvent(a, join, 0));
    OK(extra_launch(a, p + 12, 4));
    OK(cuStreamEndCapture(a, &graph));
    ck_assert_uint_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);
    ck_assert_uint_eq(node_count(graph), 4);
    ck_assert_uint_eq(edge_count(graph), 4); /* a diamond */
    size_t roots = 0;
    OK(cuGraphGetRootNodes(graph, NULL, &roots));
    ck_assert_uint_eq(roots, 1);
    CUgraphNode nodes[4], before[4];
    size_t count = 4;
    OK(cuGraphGetNodes(graph, nodes, &count));
    OK(cuGraphNodeGetDependencies(nodes[3], before, &count));
    ck_assert_uint_eq(count, 2);
}
END_TEST

START_TEST(unjoined_fork) {
    CUstream a = extra_stream(), b = extra_stream();
    CUevent fork;
    CUdeviceptr p = word();
    CUgraph graph;
    OK(cuEventCreate(&fork, 0));
    begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(extra_launch(a, p, 1));
    OK(cuEventRecord(fork, a));
    OK(cuStreamWaitEvent(b, fork, 0));
    OK(extra_launch(b, p + 4, 2));
    GIVES(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ck_assert_ptr_null(graph);
    ck_assert_uint_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(extra_launch(b, p + 4, 2));
    OK(cuStreamSynchronize(b));
}
END_TEST

START_TEST(two_captures_do_not_mix) {
    CUstream a = extra_stream(), b = extra_stream();
    CUevent e;
    OK(cuEventCreate(&e, 0));
    begin(a, CU_STREAM_CAPTURE_MODE_RELAXED);
    begin(b, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, a));
    GIVES(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    end_invalid(a);
    end_invalid(b);

    OK(cuEventRecord(e, a)); /* recorded outside */
    begin(b, CU_STREAM_CAPTURE_MODE_RELAXED);
    GIVES(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    end_invalid(b);
}
END_TEST

START_TEST(captured_events) {
    CUstream s = extra_stream();
    CUevent e;
    OK(cuEventCreate(&e, 0));
    begin(s, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, s));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    GIVES(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
    GIVES(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
    end_valid(s);
    GIVES(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT); /* until it is really recorded */
    OK(cuEventRecord(e, s));
    OK(cuEventSynchronize(e));
    OK(cuEventDestroy_v2(e));
}
END_TEST

START_TEST(info_and_dependencies) {
    CUstream s = extra_stream();
    CUdeviceptr p = word();
    CUstreamCaptureStatus status;
    cuuint64_t id = 0, id2 = 0;
    CUgraph graph = NULL, ended;
    const CUgraphNode *tail;
    const CUgraphEdgeData *edges;
    size_t count;
    OK(cuStreamGetCaptureInfo(s, &status, &id));
    ck_assert_uint_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
    GIVES(cuStreamUpdateCaptureDependencies(s, NULL, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(extra_launch(s, p, 1));
    OK(cuStreamGetCaptureInfo_v2(s, &status, &id, &graph, &tail, &count));
    ck_assert_uint_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ck_assert_uint_ne(id, 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(node_count(graph), 1);
    GIVES(cuStreamGetCaptureInfo_v3(s, &status, &id2, NULL, NULL, &edges, NULL),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamGetCaptureInfo_v3(s, &status, &id2, NULL, &tail, &edges, &count));
    ck_assert_uint_eq(id, id2);
    ck_assert_uint_eq(edges[0].type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);

    /* A node of one's own between two captured ones. */
    CUgraphNode empty, first = tail[0];
    OK(cuGraphAddEmptyNode(&empty, graph, &first, 1));
    GIVES(cuStreamUpdateCaptureDependencies(s, &empty, 1, 2), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamUpdateCaptureDependencies(s, &empty, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(extra_launch(s, p, 2));
    OK(cuStreamUpdateCaptureDependencies_v2(s, &first, NULL, 1,
                                            CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(cuStreamGetCaptureInfo_v2(s, &status, NULL, NULL, &tail, &count));
    ck_assert_uint_eq(count, 2);
    GIVES(cuGraphDestroy(graph), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuStreamEndCapture(s, &ended));
    ck_assert_ptr_eq(ended, graph);
    ck_assert_uint_eq(node_count(graph), 3);
    ck_assert_uint_eq(edge_count(graph), 2);
}
END_TEST

START_TEST(capture_into_a_graph) {
    CUstream s = extra_stream();
    CUdeviceptr p = word();
    CUgraph graph, ended;
    CUgraphNode first;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    OK(cuStreamBeginCaptureToGraph(s, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(extra_launch(s, p, 4));
    GIVES(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuStreamEndCapture(s, &ended));
    ck_assert_ptr_eq(ended, graph);
    ck_assert_uint_eq(node_count(graph), 2);
    ck_assert_uint_eq(edge_count(graph), 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}
END_TEST

START_TEST(memory_in_captures) {
    CUstream s = extra_stream();
    CUdeviceptr inner, outer, plain = word();
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNodeType type;
    begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAllocAsync(&inner, 4096, s));
    OK(cuMemAllocAsync(&outer, 4096, s));
    OK(extra_launch(s, inner, 1));
    OK(extra_launch(s, outer, 2));
    GIVES(cuMemFreeAsync(plain, s), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFreeAsync(inner, s));
    OK(cuStreamEndCapture(s, &graph));
    CUgraphNode nodes[5];
    size_t count = 5;
    OK(cuGraphGetNodes(graph, nodes, &count));
    ck_assert_uint_eq(count, 5);
    OK(cuGraphNodeGetType(nodes[0], &type));
    ck_assert_uint_eq(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    OK(cuGraphNodeGetType(nodes[4], &type));
    ck_assert_uint_eq(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    ck_assert_uint_eq(extra_word(outer), 2);
    GIVES(cuMemFreeAsync(inner, s), CUDA_ERROR_INVALID_VALUE); /* the graph freed it */
    OK(cuMemFreeAsync(outer, s));
    OK(cuStreamSynchronize(s));
}
END_TEST

START_TEST(stream_destroyed_while_capturing) {
    CUstream a = extra_stream(), b = extra_stream();
    CUevent e;
    OK(cuEventCreate(&e, 0));
    begin(a, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuStreamDestroy_v2(b));
    end_invalid(a);
    begin(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamDestroy_v2(a));
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 64)); /* no capture is left to forbid it */
}
END_TEST

int main(void) {
    TCase *t;
    Suite *suite = extra_suite("capture", &t);
    tcase_add_test(t, captured_work_runs_at_launch);
    tcase_add_test(t, beginning_and_ending);
    tcase_add_test(t, an_unsafe_call_ends_the_capture);
    tcase_add_test(t, relaxed_permits);
    tcase_add_test(t, threads_and_modes);
    tcase_add_test(t, legacy_stream_is_implicit);
    tcase_add_test(t, fork_and_join);
    tcase_add_test(t, unjoined_fork);
    tcase_add_test(t, two_captures_do_not_mix);
    tcase_add_test(t, captured_events);
    tcase_add_test(t, info_and_dependencies);
    tcase_add_test(t, capture_into_a_graph);
    tcase_add_test(t, memory_in_captures);
    tcase_add_test(t, stream_destroyed_while_capturing);
    return run_suite(suite);
}
