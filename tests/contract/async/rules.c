/* Rules by which the pools serve the stream-ordered API, one rule in each case. The address that a request gets shows if
 * its memory still has pending work. The race detector shows if that was right.
 *
 * usage: rules [limited | CASE]
 *
 * Every program is in good order by itself. Without the library only the race detector judges. `limited` runs the cases
 * for settings that leave 8 MiB; a case that spoils others runs alone.
 * Exit status: 1 after a wrong address or a report, 77 without the simulated device. */
#include "rules.h"

/* --- one stream, and streams in no order --- */

static void same_stream(room_t *r) {
    next(r->s[0]); /* the first request on a stream queries its kind */
    CUdeviceptr old = busy(r->s[0]);
    SAME(next(r->s[0]), old);
}

static void no_edge(room_t *r) {
    CUdeviceptr plain, old = busy(r->s[0]);
    OTHER(next(r->s[1]), old);
    MUST(cuMemAlloc_v2(&plain, size));
    OTHER(plain, old);
    touch(plain, r->s[1]);
    MUST(cuMemFree_v2(plain));
}

static void *request_there(void *arg) {
    CUdeviceptr *got = arg;
    MUST(cuCtxSetCurrent(context));
    *got = next(CU_STREAM_PER_THREAD);
    return NULL;
}

static void per_thread(room_t *r) {
    pthread_t thread;
    CUdeviceptr there = 0, old = busy(CU_STREAM_PER_THREAD);
    (void)r;
    if (pthread_create(&thread, NULL, request_there, &there))
        exit(1);
    pthread_join(thread, NULL);
    if (size < 1 << 20) /* otherwise the device has no other memory, and the request waited */
        OTHER(there, old);
}

/* --- edges --- */

static void by_event(room_t *r) {
    CUdeviceptr old = busy(r->s[0]);
    order(r->e[0], r->s[0], r->s[1]);
    SAME(next(r->s[1]), old);
}

static void by_two_events(room_t *r) {
    CUdeviceptr old = busy(r->s[0]);
    order(r->e[0], r->s[0], r->s[1]);
    order(r->e[1], r->s[1], r->s[2]);
    SAME(next(r->s[2]), old);
}

static void recorded_before(room_t *r) {
    CUdeviceptr memory = take(r->s[0]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    use(memory, r->s[0]);
    give(memory, r->s[0]);
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], 0));
    OTHER(next(r->s[1]), memory);
}

static void waited_before(room_t *r) {
    MUST(cuEventRecord(r->e[0], r->s[0]));
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], 0));
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    OTHER(next(r->s[1]), old);
}

static void recorded_elsewhere(room_t *r) {
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    MUST(cuEventRecord(r->e[0], r->s[2]));
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], 0));
    OTHER(next(r->s[1]), old);
}

static void event_again(room_t *r) {
    CUevent event, again;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuEventRecord(event, r->s[0]));
    MUST(cuEventDestroy_v2(event));
    MUST(cuEventCreate(&again, CU_EVENT_DISABLE_TIMING));
    expect(again == event, "the event's handle did not come back", __LINE__);
    MUST(cuStreamWaitEvent(r->s[1], again, 0));
    OTHER(next(r->s[1]), old);
    MUST(cuEventDestroy_v2(again));
}

static void whole_context(room_t *r) {
    CUdeviceptr old = busy(r->s[0]);
    order(r->e[0], r->s[0], r->s[2]);
    MUST(cuCtxRecordEvent(context, r->e[0])); /* behind more streams than the library tracks, so nothing is proved */
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], 0));
    OTHER(next(r->s[1]), old);
}

/* --- the host looks --- */

static void event_seen(room_t *r) {
    CUdeviceptr plain, held = take(r->s[2]);
    busy(r->s[0]);
    use(held, r->s[2]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    PENDING(1);
    MUST(cuEventSynchronize(r->e[0]));
    MUST(cuMemAlloc_v2(&plain, size));
    PENDING(0); /* while the work of another stream goes on */
    touch(plain, r->s[1]);
    MUST(cuMemFree_v2(plain));
    give(held, r->s[2]);
}

static void event_too_old(room_t *r) {
    CUdeviceptr plain;
    CUdeviceptr memory = take(r->s[0]);
    use(memory, r->s[0]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    use(memory, r->s[0]);
    give(memory, r->s[0]);
    MUST(cuEventSynchronize(r->e[0]));
    MUST(cuMemAlloc_v2(&plain, size));
    PENDING(1);
    touch(plain, r->s[1]);
    MUST(cuMemFree_v2(plain));
}

static void stream_seen(room_t *r) {
    CUdeviceptr plain, held = take(r->s[2]);
    busy(r->s[0]);
    use(held, r->s[2]);
    MUST(cuStreamSynchronize(r->s[0]));
    MUST(cuMemAlloc_v2(&plain, size));
    PENDING(0);
    touch(plain, r->s[1]);
    MUST(cuMemFree_v2(plain));
    give(held, r->s[2]);
}

static void query_seen(room_t *r) {
    CUdeviceptr old = busy(r->s[0]), plain, other = take(r->s[2]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    use(other, r->s[2]);
    OTHER(next(r->s[1]), old);
    while (cuEventQuery(r->e[0]) == CUDA_ERROR_NOT_READY) {
        void (*advance)(unsigned long long);
        test_find("simcuda_advance", &advance);
        advance(100000);
    }
    MUST(cuMemAlloc_v2(&plain, size));
    touch(plain, r->s[1]);
    MUST(cuMemFree_v2(plain));
    give(other, r->s[2]);
}

/* --- records that do not count --- */

static void captured_edge(room_t *r) {
    CUgraph graph;
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuStreamBeginCapture_v2(r->s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuEventRecord(r->e[0], r->s[0]));
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], 0)); /* joins the capture */
    MUST(cuEventRecord(r->e[1], r->s[1]));
    MUST(cuStreamWaitEvent(r->s[0], r->e[1], 0));
    MUST(cuStreamEndCapture(r->s[0], &graph));
    MUST(cuGraphDestroy(graph));
    (void)cuStreamWaitEvent(r->s[1], r->e[0], 0); /* not recorded but in the graph */
    OTHER(next(r->s[1]), old);
}

static void captured_wait(room_t *r) {
    CUgraph graph;
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    MUST(cuStreamBeginCapture_v2(r->s[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], CU_EVENT_WAIT_EXTERNAL));
    MUST(cuStreamEndCapture(r->s[1], &graph));
    MUST(cuGraphDestroy(graph));
    OTHER(next(r->s[1]), old); /* the graph would wait, the stream does not */
}

static void captured_record(room_t *r) {
    CUgraph graph;
    CUdeviceptr old;
    MUST(cuEventRecord(r->e[0], r->s[2]));
    old = busy(r->s[0]);
    MUST(cuStreamBeginCapture_v2(r->s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuEventRecordWithFlags(r->e[0], r->s[0], CU_EVENT_RECORD_EXTERNAL));
    MUST(cuStreamEndCapture(r->s[0], &graph));
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], 0)); /* the graph was not launched */
    OTHER(next(r->s[1]), old);
    MUST(cuGraphDestroy(graph));
}

/* A graph records the event again, behind no relevant work. */
static void record_node(room_t *r) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddEventRecordNode(&node, graph, NULL, 0, r->e[0]));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuEventRecord(r->e[0], r->s[0]));
    MUST(cuGraphLaunch(exec, r->s[2]));
    MUST(cuStreamWaitEvent(r->s[1], r->e[0], 0));
    OTHER(next(r->s[1]), old);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

/* A graph may record many events. Events created after their destruction are new ones, even with the same handles. */
static void record_nodes_and_gone(room_t *r) {
    enum { MANY = 100 };
    CUgraph graph;
    CUgraphNode node;
    CUevent event[MANY];
    MUST(cuGraphCreate(&graph, 0));
    for (int i = 0; i < MANY; i++) {
        MUST(cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
        MUST(cuGraphAddEventRecordNode(&node, graph, NULL, 0, event[i]));
    }
    MUST(cuGraphDestroy(graph));
    for (int i = 0; i < MANY; i++)
        MUST(cuEventDestroy_v2(event[i]));
    for (int i = 0; i < MANY; i++)
        MUST(cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuEventRecord(event[0], r->s[0]));
    MUST(cuStreamWaitEvent(r->s[1], event[0], 0));
    SAME(next(r->s[1]), old);
    for (int i = 0; i < MANY; i++)
        MUST(cuEventDestroy_v2(event[i]));
}

/* Checks a result that must be equal with and without the library. */
static void answers(CUresult result, CUresult right, int line) {
    if (result == right)
        return;
    wrong++;
    printf("not ok %s, line %d: %d in place of %d\n", test_title, line, (int)result, (int)right);
}
#define ANSWERS(call, right) answers(call, right, __LINE__)

/* --- more memory than before, while other memory waits: the host goes on --- */

enum { MUCH = 200 << 20 };

static void much(CUstream stream) {
    static size_t more; /* more each time than there ever was */
    CUdeviceptr memory;
    more += MUCH;
    MUST(cuMemAllocAsync(&memory, more, stream));
    touch(memory, stream);
    give(memory, stream);
}

static void growth(room_t *r) {
    busy(r->s[0]);
    much(r->s[1]);
    expect(cuStreamQuery(r->s[0]) == CUDA_ERROR_NOT_READY, "the host waited", __LINE__);
}

/* A request fails that no freed memory could satisfy. The library keeps its memory. */
static void more_than_there_is(room_t *r) {
    unsigned long long (*used)(int);
    test_find("simcuda_used_memory", &used);
    CUdeviceptr memory;
    MUST(cuMemAlloc_v2(&memory, MUCH));
    MUST(cuMemFree_v2(memory));
    unsigned long long before = used(0);
    busy(r->s[0]);
    for (int stream = 0; stream < 2; stream++)
        ANSWERS(cuMemAllocAsync(&memory, (size_t)1 << 45, r->s[stream]),
                CUDA_ERROR_OUT_OF_MEMORY);
    expect(used(0) >= before, "memory was given back", __LINE__);
    expect(cuStreamQuery(r->s[0]) == CUDA_ERROR_NOT_READY, "the host waited", __LINE__);
}

/* Work that the program submits after the request releases a held stream. */
static void growth_held(room_t *r) {
    CUdeviceptr flag, memory, plain;
    MUST(cuMemAlloc_v2(&flag, 256));
    for (cuuint32_t i = 1; i <= 3; i++) {
        MUST(cuMemsetD32_v2(flag, 0, 1));
        MUST(cuCtxSynchronize());
        MUST(cuMemAllocAsync(&memory, MUCH, r->s[0]));
        MUST(cuMemAlloc_v2(&plain, size));
        touch(plain, r->s[2]);
        touch(memory, r->s[0]);
        if (i == 1)
            give(memory, r->s[0]);
        if (i == 2)
            MUST(cuMemFree_v2(plain));
        MUST(cuStreamWaitValue32_v2(r->s[0], flag, 1, 0));
        if (i == 2) {
            CUdeviceptr more;
            MUST(cuMemAlloc_v2(&more, 4 * (size_t)MUCH));
            MUST(cuStreamWriteValue32_v2(r->s[1], flag, 1, 0));
            MUST(cuMemFree_v2(more));
        } else if (i == 1) { /* would fit into memory given back before the stream was held */
            CUdeviceptr half;
            MUST(cuMemAllocAsync(&half, MUCH - (64 << 20), r->s[1]));
            touch(half, r->s[1]);
            give(half, r->s[1]);
        } else {
            much(r->s[1]);
        }
        MUST(cuStreamWriteValue32_v2(r->s[1], flag, 1, 0));
        if (i != 1)
            give(memory, r->s[0]);
        if (i != 2)
            MUST(cuMemFree_v2(plain));
    }
    MUST(cuMemFree_v2(flag));
}

/* --- frees that a capture forbids --- */

static void free_in_capture(room_t *r) {
    CUgraph graph;
    CUdeviceptr memory = take(r->s[0]);
    MUST(cuStreamBeginCapture_v2(r->s[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    ANSWERS(cuMemFreeAsync(memory, r->s[1]), CUDA_ERROR_INVALID_VALUE);
    ANSWERS(cuStreamEndCapture(r->s[1], &graph), CUDA_SUCCESS);
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamBeginCapture_v2(r->s[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    ANSWERS(cuStreamSynchronize(r->s[1]), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ANSWERS(cuMemFreeAsync(memory, r->s[1]), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ANSWERS(cuStreamEndCapture(r->s[1], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    MUST(cuStreamBeginCapture_v2(r->b[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    ANSWERS(cuMemFreeAsync(memory, CU_STREAM_LEGACY), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    ANSWERS(cuStreamEndCapture(r->b[0], &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    give(memory, r->s[0]);
}

/* --- streams go --- */

static void stream_again(room_t *r) {
    CUstream gone, again;
    (void)r;
    MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    next(gone);
    CUdeviceptr old = busy(gone);
    MUST(cuStreamDestroy_v2(gone));
    MUST(cuStreamCreate(&again, CU_STREAM_NON_BLOCKING));
    expect(again == gone, "the stream's handle did not come back", __LINE__);
    OTHER(next(again), old);
    MUST(cuStreamDestroy_v2(again));
}

static void many_streams(room_t *r) {
    unsigned long long (*used)(int);
    test_find("simcuda_used_memory", &used);
    unsigned long long most = 0;
    for (int i = 0; i < 3000; i++) {
        CUstream stream;
        MUST(cuStreamCreate(&stream, i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
        CUdeviceptr memory = take(stream);
        touch(memory, stream);
        give(memory, stream);
        if (i % 3 == 0)
            order(r->e[0], stream, r->s[0]);
        MUST(cuStreamDestroy_v2(stream));
        if (i % 16 == 15)
            MUST(cuStreamSynchronize(r->s[0]));
        if (i == 100)
            most = used(0);
    }
    expect(used(0) <= most + (64 << 20), "memory went with the streams", __LINE__);
}

/* --- both APIs --- */

static void plain_freed_async(room_t *r) {
    CUdeviceptr plain;
    next(r->s[0]);
    MUST(cuMemAlloc_v2(&plain, size));
    use(plain, r->s[0]);
    give(plain, r->s[0]);
    OTHER(next(r->s[1]), plain);
    CUdeviceptr again = take(r->s[0]), more = take(r->s[0]);
    expect(again == plain || more == plain, "plain memory was not free for its stream", __LINE__);
    give(again, r->s[0]);
    give(more, r->s[0]);
}

/* A plain free of stream-ordered memory does not wait in the driver: the program has to wait before it. */
static void async_freed_plain(room_t *r) {
    if (!served)
        return;
    CUdeviceptr memory = take(r->s[0]);
    use(memory, r->s[0]);
    use(take(r->s[2]), r->s[2]); /* or the order of the only stream in use would do */
    MUST(cuMemFree_v2(memory));
    OTHER(next(r->s[1]), memory);
    OTHER(next(r->s[0]), memory); /* the free named no stream */
}

/* Memory changed hands by stream order, and its new owner did not use it. A later request still
 * has to wait for the work of the first owner. */
static void taken_over_unused(room_t *r) {
    CUdeviceptr plain;
    if (!served)
        return;
    next(r->s[0]);
    use(take(r->s[2]), r->s[2]);
    CUdeviceptr old = busy(r->s[0]), again = take(r->s[0]);
    SAME(again, old);
    MUST(cuMemFree_v2(again));
    MUST(cuMemAlloc_v2(&plain, size));
    OTHER(plain, old);
    touch(plain, r->s[1]);
    MUST(cuMemFree_v2(plain));
}

/* --- the legacy default stream, and the streams that follow it implicitly --- */

static void legacy_hands_on(room_t *r) {
    CUdeviceptr memory = take(CU_STREAM_LEGACY);
    use(memory, r->b[0]);
    give(memory, CU_STREAM_LEGACY); /* after the work of b[0] */
    for (int i = 0; i < 3; i++) {
        memory = take(CU_STREAM_LEGACY);
        use(memory, r->b[1]); /* after the request for the memory */
        give(memory, CU_STREAM_LEGACY);
    }
}

static void legacy_used(room_t *r) {
    for (int i = 0; i < 3; i++) {
        CUdeviceptr memory = take(r->b[0]);
        use(memory, CU_STREAM_LEGACY);
        give(memory, r->b[0]); /* after the work of the legacy stream */
        memory = take(r->b[0]);
        MUST(cuStreamSynchronize(r->b[0])); /* the request came before the synchronisation */
        use(memory, r->s[i % 2]);
        order(r->e[0], r->s[i % 2], r->b[0]);
        give(memory, r->b[0]);
    }
}

static void legacy_seen(room_t *r) {
    CUdeviceptr plain, memory = take(r->b[0]);
    use(memory, CU_STREAM_LEGACY);
    give(memory, r->b[0]);
    MUST(cuStreamSynchronize(r->b[0])); /* it was given nothing */
    MUST(cuMemAlloc_v2(&plain, size));
    touch(plain, r->s[0]);
    MUST(cuMemFree_v2(plain));
}

/* --- launches that may run ahead of their stream's order; last, because the effect is permanent --- */

static void programmatic(room_t *r) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    next(r->s[0]);
    CUdeviceptr old = busy(r->s[0]), memory = take(r->s[0]);
    SAME(memory, old);
    void *params[] = {&memory};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, r->s[0], &attribute, 1};
    MUST(cuLaunchKernelEx(&config, quick, params, NULL)); /* the old use is over before this launch */
    give(memory, r->s[0]);
    memory = busy(r->s[0]);
    OTHER(next(r->s[0]), memory);
}

/* While another stream captures, the library does not wait by events. */
static void programmatic_beside(room_t *r) {
    CUgraph graph;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    next(r->s[0]);
    CUdeviceptr old = busy(r->s[0]);
    MUST(cuStreamBeginCapture_v2(r->s[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    CUdeviceptr memory = take(r->s[0]);
    SAME(memory, old);
    void *params[] = {&memory};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, r->s[0], &attribute, 1};
    MUST(cuLaunchKernelEx(&config, quick, params, NULL));
    give(memory, r->s[0]);
    MUST(cuStreamEndCapture(r->s[1], &graph));
    MUST(cuGraphDestroy(graph));
}

/* The program holds a stream during the launch, and releases it afterwards. */
static void programmatic_held(room_t *r) {
    CUdeviceptr flag;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    MUST(cuMemAlloc_v2(&flag, 256));
    MUST(cuMemsetD32_v2(flag, 0, 1));
    MUST(cuCtxSynchronize());
    next(r->s[0]);
    CUdeviceptr old = busy(r->s[0]), memory = take(r->s[0]);
    SAME(memory, old);
    MUST(cuStreamWaitValue32_v2(r->s[1], flag, 1, 0));
    void *params[] = {&memory};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, r->s[0], &attribute, 1};
    MUST(cuLaunchKernelEx(&config, quick, params, NULL));
    expect(cuStreamQuery(r->s[0]) == CUDA_ERROR_NOT_READY, "the host waited", __LINE__);
    MUST(cuStreamWriteValue32_v2(r->s[2], flag, 1, 0));
    give(memory, r->s[0]);
    MUST(cuMemFree_v2(flag));
}

/* --- launches that may hold their stream, which only an attribute says --- */

static CUlaunchAttribute cooperative(void) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE};
    attribute.value.cooperative = 1;
    return attribute;
}

/* An attribute that no table knows counts as one that may hold the stream. */
static CUlaunchAttribute unknown(void) {
    return (CUlaunchAttribute){.id = 99};
}

/* Memory given back before `launch` serves another stream. That stream must not wait for the launched work. */
static void held_by(room_t *r, void (*launch)(CUdeviceptr memory, CUstream stream)) {
    enum {
        LONG = 300
    }; /* enough for frees to rely on the stream again, and for no early record of a join event */
    CUdeviceptr memory, other;
    MUST(cuMemAlloc_v2(&other, size));
    MUST(cuCtxSynchronize());
    for (int i = 0; i < LONG; i++) {
        MUST(cuMemAlloc_v2(&memory, size));
        touch(memory, r->s[0]);
        MUST(cuMemFree_v2(memory)); /* the order of this stream protects it */
    }
    launch(other, r->s[0]);
    MUST(cuMemAlloc_v2(&memory, size));
    touch(memory, r->s[1]);
    MUST(cuStreamSynchronize(r->s[1]));
    expect(cuStreamQuery(r->s[0]) == CUDA_ERROR_NOT_READY, "waited for the launch", __LINE__);
    MUST(cuMemFree_v2(memory));
    MUST(cuCtxSynchronize());
    MUST(cuMemFree_v2(other));
}

static void launch_with(CUlaunchAttribute attribute, CUdeviceptr memory, CUstream stream) {
    void *params[] = {&memory};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    MUST(cuLaunchKernelEx(&config, slow, params, NULL));
}

static void launch_cooperative(CUdeviceptr memory, CUstream stream) {
    launch_with(cooperative(), memory, stream);
}

static void launch_unknown(CUdeviceptr memory, CUstream stream) {
    launch_with(unknown(), memory, stream);
}

static void cooperative_attribute(room_t *r) {
    held_by(r, launch_cooperative);
}

static void unknown_attribute(room_t *r) {
    held_by(r, launch_unknown);
}

static void nothing(void *argument) {
    (void)argument;
}

static CUgraphExec executable; /* a graph of one slow kernel */

static void launch_executable(CUdeviceptr memory, CUstream stream) {
    (void)memory;
    MUST(cuGraphLaunch(executable, stream));
}

/* The captured launch, its node, or a host function breaks the stream's order. The device's
 * treatment of a node's attribute does not matter. */
static void graph_of(room_t *r, const CUlaunchAttribute *captured, const CUlaunchAttribute *set,
                     const CUDA_HOST_NODE_PARAMS *host) {
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphNode node, other;
    size_t count = 1;
    MUST(cuMemAlloc_v2(&memory, size));
    MUST(cuStreamBeginCapture_v2(r->s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    if (captured)
        launch_with(*captured, memory, r->s[0]);
    else
        use(memory, r->s[0]);
    MUST(cuStreamEndCapture(r->s[0], &graph));
    MUST(cuGraphGetNodes(graph, &node, &count));
    if (set)
        cuGraphKernelNodeSetAttribute(node, set->id, &set->value);
    if (host)
        MUST(cuGraphAddHostNode(&other, graph, NULL, 0, host));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    held_by(r, launch_executable);
    MUST(cuGraphExecDestroy(executable));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree_v2(memory));
}

static void cooperative_captured(room_t *r) {
    CUlaunchAttribute attribute = cooperative();
    graph_of(r, &attribute, NULL, NULL);
}

static void cooperative_node(room_t *r) {
    CUlaunchAttribute attribute = cooperative();
    graph_of(r, NULL, &attribute, NULL);
}

static void graph_host_node(room_t *r) {
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing};
    graph_of(r, NULL, NULL, &host);
}

/* --- the marks of the device's pool --- */

static void marks(room_t *r) {
    static const CUmemPool_attribute current[] = {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                  CU_MEMPOOL_ATTR_USED_MEM_CURRENT};
    static const CUmemPool_attribute high[] = {CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                                               CU_MEMPOOL_ATTR_USED_MEM_HIGH};
    CUmemoryPool pool;
    CUdeviceptr memory[2] = {take(r->s[0]), take(r->s[0])};
    give(memory[0], r->s[0]);
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int i = 0; i < 2; i++) {
        cuuint64_t now = 1, most = 0;
        MUST(cuMemPoolSetAttribute(pool, high[i], &most));
        MUST(cuMemPoolGetAttribute(pool, current[i], &now));
        MUST(cuMemPoolGetAttribute(pool, high[i], &most));
        expect(now == most, "a mark that was reset is above what there is", __LINE__);
    }
    give(memory[1], r->s[0]);
}

/* Holds the stream that did all the work, by a graph. */
static void graph_held(room_t *r) {
    enum { BLOCKS = 3, LONG = 200 };
    CUdeviceptr flag, memory[BLOCKS];
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuMemAlloc_v2(&flag, 256));
    MUST(cuMemsetD32_v2(flag, 0, 1));
    MUST(cuStreamBeginCapture_v2(r->s[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamWaitValue32_v2(r->s[0], flag, 1, 0));
    MUST(cuStreamEndCapture(r->s[0], &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemAlloc_v2(&memory[i], size));
    MUST(cuCtxSynchronize());
    for (int i = 0; i < LONG; i++)
        touch(flag, r->s[0]);
    for (int i = 0; i < BLOCKS; i++) {
        touch(memory[i], r->s[0]);
        MUST(cuMemFree_v2(memory[i])); /* the order of this stream protects it */
    }
    MUST(cuGraphLaunch(exec, r->s[0]));
    MUST(cuStreamWriteValue32_v2(r->s[1], flag, 1, 0)); /* must not wait for the graph */
    MUST(cuCtxSynchronize());
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemFree_v2(flag));
}

/* --- several contexts; last: their memory is shared from then on --- */

static void context_goes(room_t *r) {
    CUcontext other;
    CUdeviceptr memory[2];
    MUST(cuCtxCreate_v2(&other, 0, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cuMemAlloc_v2(&memory[i], size));
        MUST(cuMemsetD8Async(memory[i], 0, size, CU_STREAM_LEGACY));
    }
    MUST(cuMemFree_v2(memory[0])); /* awaited at the end, while no other work may begin */
    MUST(cuCtxSynchronize());
    give(memory[1], r->s[0]);
    MUST(cuCtxDestroy_v2(other));
    MUST(cuCtxSetCurrent(context));
}

/* --- little room: a wait between the streams rather than more memory --- */

static void inserted_wait(room_t *r) {
    enum { BLOCKS = 3 };
    CUdeviceptr old[BLOCKS], more[BLOCKS];
    size_t bytes = 2 << 20;
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAllocAsync(&old[i], bytes, r->s[0]));
        use(old[i], r->s[0]);
    }
    for (int i = 0; i < BLOCKS; i++)
        give(old[i], r->s[0]);
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAllocAsync(&more[i], bytes, r->s[1]));
        touch(more[i], r->s[1]);
    }
    unsigned shared = 0;
    for (int i = 0; i < BLOCKS; i++)
        for (int j = 0; j < BLOCKS; j++)
            shared += old[i] == more[j];
    expect(shared > 0, "no memory changed streams", __LINE__);
    expect(cuStreamQuery(r->s[0]) == CUDA_ERROR_NOT_READY, "the host waited", __LINE__);
    for (int i = 0; i < BLOCKS; i++)
        give(more[i], r->s[1]);
}

/* Memory serves again in a stream that follows the legacy one. For this the library puts an
 * operation into that stream. */
static void blocking_again(room_t *r) {
    enum { BLOCKS = 3 };
    CUdeviceptr memory[BLOCKS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            MUST(cuMemAllocAsync(&memory[i], 2 << 20, r->b[0]));
            use(memory[i], r->b[0]);
        }
        for (int i = 0; i < BLOCKS; i++)
            give(memory[i], r->b[0]);
        expect(cuStreamQuery(r->b[0]) == CUDA_ERROR_NOT_READY, "the host waited", __LINE__);
    }
}

/* --- green contexts: CUDA does not document which default streams they share; last, because the
 * effect is permanent --- */

static void green_context(room_t *r) {
    unsigned long long processors[64] = {0};
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUdeviceptr memory = take(r->s[0]);
    ALLOCATED(1);
    give(memory, r->s[0]);
    MUST(cuDeviceGetDevResource(0, (CUdevResource *)(void *)processors, 1));
    MUST(cuDevResourceGenerateDesc(&description, (CUdevResource *)(void *)processors, 1));
    MUST(cuGreenCtxCreate(&green, description, 0, 1));
    memory = take(r->s[0]); /* served by the driver from now on */
    ALLOCATED(0);
    give(memory, r->s[0]);
    MUST(cuGreenCtxDestroy(green));
}

#define CASE(name)                                                                               \
    { #name, name }
const case_t all[] = {CASE(same_stream),
                      CASE(no_edge),
                      CASE(per_thread),
                      CASE(by_event),
                      CASE(by_two_events),
                      CASE(recorded_before),
                      CASE(waited_before),
                      CASE(recorded_elsewhere),
                      CASE(event_again),
                      CASE(whole_context),
                      CASE(event_seen),
                      CASE(stream_seen),
                      CASE(event_too_old),
                      CASE(query_seen),
                      CASE(captured_edge),
                      CASE(captured_wait),
                      CASE(captured_record),
                      CASE(record_node),
                      CASE(record_nodes_and_gone),
                      CASE(free_in_capture),
                      CASE(more_than_there_is),
                      CASE(growth),
                      CASE(growth_held),
                      CASE(stream_again),
                      CASE(many_streams),
                      CASE(plain_freed_async),
                      CASE(async_freed_plain),
                      CASE(taken_over_unused),
                      CASE(legacy_hands_on),
                      CASE(legacy_used),
                      CASE(legacy_seen),
                      CASE(programmatic),
                      CASE(context_goes)};
const case_t alone[] = {
    CASE(programmatic_beside),  CASE(programmatic_held),     CASE(graph_held),
    CASE(graph_host_node),      CASE(cooperative_attribute), CASE(unknown_attribute),
    CASE(cooperative_captured), CASE(cooperative_node),      CASE(marks),
    CASE(green_context)};
const case_t limited[] = {CASE(inserted_wait), CASE(blocking_again), CASE(legacy_hands_on),
                          CASE(legacy_used),   CASE(legacy_seen),    CASE(per_thread)};
const size_t all_count = sizeof all / sizeof *all, alone_count = sizeof alone / sizeof *alone,
             limited_count = sizeof limited / sizeof *limited;
