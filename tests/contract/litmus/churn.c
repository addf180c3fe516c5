/* A long random program with every feature, in good order by itself: streams of all kinds,
 * events, both kinds of allocation, copies between devices, mappings, graphs, captures, host
 * functions, several contexts, and threads that take turns.
 *
 * churn [SEED [OPERATIONS [THREADS [FILE]]]]
 *
 * With clock:virtual the order in which work completes, written to FILE, is the same in every
 * run. The records of the simulated device must not grow with the length of the run. Exit status:
 * 1 after a report, a wrong answer, or something left behind; 77 without the simulated device. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

enum { PLACES = 4, BUFFERS = 24, STREAMS = 6, EVENTS = 6, GRAPHS = 3, MOST_THREADS = 8 };
#define GRAIN ((size_t)2 << 20)

typedef struct {
    CUdeviceptr memory;
    CUstream stream; /* the only stream of stream-ordered memory; else NULL */
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* of mapped memory; else 0 */
} buffer_t;

typedef struct {
    CUgraphExec exec;
    CUdeviceptr memory; /* used by its nodes alone */
} graph_t;

/* A context and what lives in it. */
typedef struct {
    CUcontext ctx;
    CUgreenCtx green;
    int device;
    CUfunction store;
    CUstream stream[STREAMS];
    CUevent event[EVENTS];
    buffer_t buffer[BUFFERS];
    graph_t graph[GRAPHS];
} place_t;

static place_t places[PLACES];
static unsigned long long state;
static unsigned long operations, threads;

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static unsigned long turn;

static unsigned long long (*live)(const char *);
static const char *(*live_kind)(size_t);
static void (*advance)(unsigned long long);

static unsigned random_below(unsigned n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % n;
}

static CUstream any_stream(const place_t *p) {
    unsigned i = random_below(STREAMS + 2);
    return i < STREAMS ? p->stream[i] : i == STREAMS ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

static CUstream new_stream(const place_t *p) {
    CUstream stream;
    if (p->green && random_below(2))
        MUST(cuGreenCtxStreamCreate(&stream, p->green, CU_STREAM_NON_BLOCKING, 0));
    else
        MUST(cuStreamCreate(&stream, random_below(2) ? CU_STREAM_NON_BLOCKING : 0));
    return stream;
}

/* ---- memory ---- */

static void take_mapped(buffer_t *b, int device) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    b->bytes = GRAIN * (1 + random_below(3));
    MUST(cuMemAddressReserve(&b->memory, b->bytes, 0, 0, 0));
    MUST(cuMemCreate(&b->handle, b->bytes, &prop, 0));
    MUST(cuMemMap(b->memory, b->bytes, 0, b->handle, 0));
    MUST(cuMemSetAccess(b->memory, b->bytes, &access, 1));
}

static void take(place_t *p, buffer_t *b) {
    static const size_t sizes[] = {512, 4096, 60000, 1 << 20, 3 << 20, 17 << 20};
    unsigned how = random_below(16);
    *b = (buffer_t){.bytes = sizes[random_below(6)] + random_below(4) * 512};
    if (!how) {
        take_mapped(b, p->device);
    } else if (how < 6) {
        b->stream = p->stream[random_below(STREAMS - 1)];
        MUST(cuMemAllocAsync(&b->memory, b->bytes, b->stream));
    } else {
        MUST(cuMemAlloc_v2(&b->memory, b->bytes));
    }
}

static void give(buffer_t *b) {
    if (b->handle) {
        MUST(cuCtxSynchronize());
        MUST(cuMemUnmap(b->memory, b->bytes));
        MUST(cuMemRelease(b->handle));
        MUST(cuMemAddressFree(b->memory, b->bytes));
    } else if (b->stream) {
        MUST(cuMemFreeAsync(b->memory, b->stream));
    } else {
        MUST(cuMemFree_v2(b->memory));
    }
    b->memory = 0;
}

static void launch(place_t *p, CUdeviceptr memory, CUstream stream) {
    unsigned value = random_below(1000);
    void *params[] = {&memory, &value};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    if (random_below(8))
        MUST(cuLaunchKernel(p->store, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    else
        MUST(cuLaunchKernelEx(&config, p->store, params, NULL));
}

static void use(place_t *p, buffer_t *b) {
    CUstream stream = b->stream ? b->stream : any_stream(p);
    unsigned what = random_below(8);
    if (what < 6)
        launch(p, b->memory, stream);
    else if (what < 7)
        MUST(cuMemsetD8Async(b->memory, 1, 256, stream));
    else
        MUST(cuMemcpyDtoDAsync_v2(b->memory, b->memory + 256, 256, stream));
}

/* cuMemFree waits for the memory's own device, the copy may be the other's work. */
static void copy_to_peer(void) {
    buffer_t *a = &places[0].buffer[0], *b = &places[1].buffer[0];
    if (!a->memory || !b->memory || a->stream || b->stream)
        return;
    MUST(cuMemcpyPeer(b->memory, places[1].ctx, a->memory, places[0].ctx, 512));
    for (int i = 0; i < 2; i++) {
        MUST(cuCtxSetCurrent(places[i].ctx));
        MUST(cuCtxSynchronize());
    }
}

/* ---- order ---- */

static void synchronise(place_t *p) {
    CUstream stream = any_stream(p);
    CUevent event = p->event[random_below(EVENTS)];
    switch (random_below(12)) {
    case 0:
        MUST(cuStreamSynchronize(stream));
        break;
    case 1:
        (void)cuStreamQuery(stream);
        break;
    case 2:
        (void)cuEventQuery(event);
        break;
    case 3:
        MUST(cuEventSynchronize(event));
        break;
    case 4:
        if (random_below(4) == 0)
            MUST(cuCtxSynchronize());
        break;
    case 5:
        advance(random_below(200000));
        break;
    case 6:
    case 7:
    case 8:
        MUST(cuEventRecord(event, stream));
        break;
    default:
        MUST(cuStreamWaitEvent(stream, event, 0));
    }
}

/* Destroys the last stream with its work, and an event, and makes new ones. */
static void renew(place_t *p) {
    CUevent *event = &p->event[random_below(EVENTS)];
    MUST(cuStreamDestroy_v2(p->stream[STREAMS - 1]));
    p->stream[STREAMS - 1] = new_stream(p);
    MUST(cuEventDestroy_v2(*event));
    MUST(cuEventCreate(event, random_below(2) ? CU_EVENT_DISABLE_TIMING : 0));
}

static void count(void *data) {
    ++*(unsigned long *)data;
}

static void call_host(place_t *p) {
    static unsigned long counted;
    MUST(cuLaunchHostFunc(any_stream(p), count, &counted));
}

/* ---- graphs ---- */

static void capture(place_t *p, graph_t *g) {
    CUgraph graph;
    CUstream one = p->stream[0], two = p->stream[1];
    MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(p, g->memory, one);
    MUST(cuEventRecord(p->event[0], one));
    MUST(cuStreamWaitEvent(two, p->event[0], 0));
    launch(p, g->memory + 4096, two);
    MUST(cuMemsetD8Async(g->memory + 8192, 2, 64, one));
    MUST(cuEventRecord(p->event[1], two));
    MUST(cuStreamWaitEvent(one, p->event[1], 0));
    MUST(cuStreamEndCapture(one, &graph));
    MUST(cuGraphInstantiateWithFlags(&g->exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    /* The events were recorded in a capture: record them again outside it. */
    MUST(cuEventRecord(p->event[0], one));
    MUST(cuEventRecord(p->event[1], two));
}

static void end_graph(graph_t *g) {
    MUST(cuGraphExecDestroy(g->exec));
    MUST(cuMemFree_v2(g->memory));
    g->exec = NULL;
}

static void use_graph(place_t *p) {
    graph_t *g = &p->graph[random_below(GRAPHS)];
    if (!g->exec) {
        MUST(cuMemAlloc_v2(&g->memory, 64 << 10));
        capture(p, g);
    } else if (random_below(4)) {
        MUST(cuGraphLaunch(g->exec, any_stream(p)));
    } else {
        end_graph(g);
    }
}

/* ---- the program ---- */

static void step(void) {
    place_t *p = &places[random_below(PLACES)];
    buffer_t *b = &p->buffer[random_below(BUFFERS)];
    unsigned what = random_below(200);
    MUST(cuCtxSetCurrent(p->ctx));
    if (what < 4)
        renew(p);
    else if (what < 44)
        synchronise(p);
    else if (what < 54)
        use_graph(p);
    else if (what < 56)
        call_host(p);
    else if (what < 58)
        copy_to_peer();
    else if (!b->memory)
        take(p, b);
    else if (what < 150)
        use(p, b);
    else
        give(b);
}

static void wait_for_turn(unsigned long mine) {
    pthread_mutex_lock(&turn_lock);
    while (turn != mine)
        pthread_cond_wait(&turn_changed, &turn_lock);
    pthread_mutex_unlock(&turn_lock);
}

static void pass_turn(unsigned long to) {
    pthread_mutex_lock(&turn_lock);
    turn = to;
    pthread_cond_broadcast(&turn_changed);
    pthread_mutex_unlock(&turn_lock);
}

/* The threads take turns. The main thread is number `threads`: it sees each round's end before
 * the next one. */
static void *work(void *argument) {
    unsigned long mine = *(unsigned long *)argument;
    for (unsigned long i = mine; i < operations; i += threads) {
        wait_for_turn(mine);
        for (int more = 0; more < 4; more++) /* several steps, because a turn costs two switches
                                                of threads */
            step();
        pass_turn(i + threads < operations ? (mine + 1) % threads : threads);
    }
    return NULL;
}

static void set_up(place_t *p) {
    CUmodule module;
    MUST(cuCtxSetCurrent(p->ctx));
    MUST(cuModuleLoadData(&module,
                          ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry store(.param .u64 a, .param .u32 b) { ret; }"));
    MUST(cuModuleGetFunction(&p->store, module, "store"));
    for (int i = 0; i < STREAMS; i++)
        p->stream[i] = new_stream(p);
    for (int i = 0; i < EVENTS; i++)
        MUST(cuEventCreate(&p->event[i], CU_EVENT_DISABLE_TIMING));
}

static void set_up_places(void) {
    CUdevResourceDesc desc;
    unsigned long long processors[18];
    MUST(cuDevicePrimaryCtxRetain(&places[0].ctx, 0));
    MUST(cuDevicePrimaryCtxRetain(&places[1].ctx, 1));
    places[1].device = 1;
    MUST(cuCtxCreate_v2(&places[2].ctx, 0, 0));
    MUST(cuDeviceGetDevResource(0, (CUdevResource *)(void *)processors, 1));
    MUST(cuDevResourceGenerateDesc(&desc, (CUdevResource *)(void *)processors, 1));
    MUST(cuGreenCtxCreate(&places[3].green, desc, 0, 1));
    MUST(cuCtxFromGreenCtx(&places[3].ctx, places[3].green));
    for (int i = 0; i < PLACES; i++)
        set_up(&places[i]);
}

static void tear_down(place_t *p) {
    MUST(cuCtxSetCurrent(p->ctx));
    for (int i = 0; i < GRAPHS; i++)
        if (p->graph[i].exec)
            end_graph(&p->graph[i]);
    for (int i = 0; i < BUFFERS; i++)
        if (p->buffer[i].memory)
            give(&p->buffer[i]);
    MUST(cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++)
        MUST(cuStreamDestroy_v2(p->stream[i]));
    for (int i = 0; i < EVENTS; i++)
        MUST(cuEventDestroy_v2(p->event[i]));
}

/* Objects that may exist at the end: none of those that the program made and ended, and the race
 * detector's records of recently released memory. Default streams keep their last item. */
static unsigned long long most(const char *kind) {
    static const struct {
        const char *kind;
        unsigned long long most;
    } table[] = {{"contexts", PLACES},  {"green_contexts", 1}, {"modules", PLACES},
                 {"pools", 2},          {"work", 16},          {"race_items", 1200},
                 {"race_owners", 1200}, {"race_ranges", 64},   {"race_chains", 64}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(kind, table[i].kind))
            return table[i].most;
    return 0;
}

static int judge_rest(bool strict) {
    int wrong = 0;
    const char *kind;
    for (size_t i = 0; (kind = live_kind(i)); i++) {
        unsigned long long count = live(kind);
        if (count)
            printf("left: %s %llu\n", kind, count);
        if (strict && count > most(kind)) {
            printf("too many %s: at most %llu\n", kind, most(kind));
            wrong = 1;
        }
    }
    return wrong;
}

static unsigned long argument(int count, char **list, int i, unsigned long usual) {
    return i < count ? strtoul(list[i], NULL, 0) : usual;
}

static void find(const char *name, void *slot) {
    if (!test_find(name, slot))
        exit(TEST_SKIPPED);
}

int main(int count, char **list) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_access_t access = {0, -1, 64, 1};
    simcuda_kernel_t kernel = {"store", NULL, 20000, 2, sizes, 1, &access};
    pthread_t thread[MOST_THREADS];
    unsigned long number[MOST_THREADS];
    int (*register_kernel)(const simcuda_kernel_t *), (*dump)(const char *);
    unsigned long long (*reports)(void), (*calls)(void);
    void (*keep)(int);
    find("simcuda_register_kernel", &register_kernel);
    find("simcuda_race_reports", &reports);
    find("simcuda_calls_total", &calls);
    find("simcuda_keep_order", &keep);
    find("simcuda_dump_order", &dump);
    find("simcuda_advance", &advance);
    find("simcuda_live", &live);
    find("simcuda_live_kind", &live_kind);
    state = argument(count, list, 1, 1);
    operations = argument(count, list, 2, 20000) / 4;
    threads = argument(count, list, 3, 1);
    if (!threads || threads > MOST_THREADS || operations < threads)
        return 64;
    if (cuInit(0) == CUDA_ERROR_NO_DEVICE)
        return 77;
    register_kernel(&kernel);
    keep(count > 4);
    set_up_places();
    printf("seed %llu, %lu operations, %lu threads\n", state, 4 * operations, threads);
    for (unsigned long i = 0; i < threads; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, work, &number[i]))
            return 1;
    }
    for (unsigned long i = 0; i < threads; i++) {
        wait_for_turn(threads);
        pthread_join(thread[(operations + i) % threads], NULL);
        pass_turn((operations + i + 1) % threads);
    }
    for (int i = 0; i < PLACES; i++)
        tear_down(&places[i]);
    printf("calls: %llu\n", calls());
    int wrong = judge_rest(!getenv("LD_PRELOAD"));
    if (count > 4 && dump(list[4]))
        wrong = 1;
    printf("reports: %llu\n", reports());
    return reports() || wrong;
}
