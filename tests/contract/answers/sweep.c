/* Calls every hooked driver function once with valid arguments, and once for each interesting value of each
 * argument, in several states of the process.
 *
 * usage: sweep STATE [SYMBOL]        STATE: normal, none, uninitialised, capturing, sticky, other, inside,
 * busy, held
 *
 * inside: the calls come from a host function.
 *
 * busy: a kernel that never ends runs on the only stream that had work. Blocks were freed before behind
 * kernels that ended. held: that stream waits for a value that the program has not written yet.
 *
 * In both states each function is called once, from another thread, with valid arguments. In addition,
 * requests for memory get every size, queries every attribute, and launches every launch attribute. "hangs"
 * means that a call has not returned for more than a second and that all threads had processor time
 * meanwhile.
 *
 * SWEEP_WITHIN excludes huge extents, because sanitizers report the accesses of a huge count.
 *
 * The rows come from cuda_functions.def (sweep_rows.py). Each line shows the result of a call and the
 * arguments that the driver wrote to. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

enum { ARGS = 11, BUFFER = 4096 };

typedef enum {
    ARG_SIZE,
    ARG_WIDE,
    ARG_NUMBER,
    ARG_DEVICE,
    ARG_ADDRESS,
    ARG_ADDRESS32,
    ARG_STREAM,
    ARG_CONTEXT,
    ARG_EVENT,
    ARG_ARRAY,
    ARG_FUNCTION,
    ARG_GRAPH,
    ARG_GRAPH_EXEC,
    ARG_POOL,
    ARG_HANDLE,
    ARG_HANDLE64,
    ARG_CALLBACK,
    ARG_HOST_FN,
    ARG_ATTRIBUTE,
    ARG_RANGE_TYPE,
    ARG_VALUE_LOCATION,
    ARG_VALUE_IPC,
    ARG_NAME,
    ARG_CONST_BYTES,
    ARG_BYTES,
    ARG_OUT_HANDLE,
    ARG_OUT_SIZE,
    ARG_OUT_BYTES,
    ARG_OUT_ADDRESS,
    ARG_OUT_INT,
    ARG_IN_ATTRIBUTES,
    ARG_IN_COPY2D,
    ARG_IN_COPY3D,
    ARG_IN_LAUNCH,
    ARG_IN_ARRAY,
    ARG_IN_ARRAY3D,
    ARG_IN_PROP,
    ARG_IN_ACCESS,
    ARG_IN_POOL,
    ARG_IN_ZERO,
    ARG_IN_ADDRESSES,
    ARG_IN_SIZES,
    ARG_ANY_ADDRESS,
    ARG_COUNT
} kind_t;

enum { HOOK, RETRY, SUBMIT };

typedef struct {
    const char *symbol;
    int hook;
    unsigned count;
    unsigned char kind[ARGS];
    CUresult (*call)(const uint64_t *arg);
} row_t;

#define ROW(hook, symbol, count, kinds, body)                                                    \
    static CUresult call_##symbol(const uint64_t *arg) body
#include "sweep_rows.inc"
#undef ROW

#define KINDS(...)                                                                               \
    { __VA_ARGS__ }
#define ROW(hook, symbol, count, kinds, body) {#symbol, hook, count, KINDS kinds, call_##symbol},
static const row_t rows[] = {
#include "sweep_rows.inc"
};

/* --- objects of the process --- */

static struct {
    CUcontext primary, created, second; /* second: of device 1 */
    CUstream stream, destroyed, elsewhere;
    CUevent event;
    CUarray array;
    CUfunction function;
    CUgraph graph;
    CUgraphExec exec;
    CUmemoryPool pool;
    CUdeviceptr block, freed, managed, pooled, others, far;
    void *pinned;
} have;

enum { BLOCK = 70000, PINNED = 8192 };

static char bytes[BUFFER];
static char zero[BUFFER];

static void on_host(void *arg) {
    (void)arg;
}

static void on_stream(CUstream stream, CUresult result, void *arg) {
    (void)stream, (void)result, (void)arg;
}

static void others(void) {
    MUST(cuCtxCreate_v2(&have.created, 0, 0));
    MUST(cuMemAlloc_v2(&have.others, BLOCK));
    MUST(cuStreamCreate(&have.elsewhere, 0));
    MUST(cuCtxSetCurrent(NULL));
    MUST(cuDevicePrimaryCtxRetain(&have.second, 1));
    MUST(cuCtxSetCurrent(have.second));
    MUST(cuMemAlloc_v2(&have.far, BLOCK));
}

static bool is_endless(const char *state) {
    return !strcmp(state, "busy") || !strcmp(state, "held");
}

static void launch_kernel(uint64_t ns) {
    simcuda_set_kernel_ns(ns);
    MUST(cuLaunchKernel(have.function, 1, 1, 1, 1, 1, 1, 0, have.stream, NULL, NULL));
}

/* Prepares memory in every state that can matter to a call: idle segments, blocks freed behind kernels of the
 * only stream, one of them handed out again, and one freed in stream order. The kernel of the last freed
 * block still runs when the endless work comes. */
static void never_end(const char *state) {
    enum { FREES = 3 };
    CUdeviceptr idle, relied[FREES], later, flag;
    MUST(cuMemAlloc_v2(&idle, 100 * MIB));
    for (int i = 0; i < FREES; i++)
        MUST(cuMemAlloc_v2(&relied[i], 3 * MIB));
    MUST(cuMemAllocAsync(&later, 3 * MIB, have.stream));
    MUST(cuMemAlloc_v2(&flag, 64));
    MUST(cuMemsetD32_v2(flag, 0, 1));
    MUST(cuMemFree_v2(idle));
    MUST(cuCtxSynchronize());
    for (int i = 0; i < FREES; i++) {
        launch_kernel(2000000);
        MUST(cuMemFree_v2(relied[i]));
    }
    MUST(cuMemAlloc_v2(&relied[0], 3 * MIB));
    if (!strcmp(state, "busy"))
        launch_kernel((uint64_t)1 << 60);
    else
        MUST(cuStreamWaitValue32_v2(have.stream, flag, 1, 0)); /* at least 1 */
    MUST(cuMemFreeAsync(later, have.stream));
}

static void set_up(const char *state) {
    CUmodule module;
    if (!strcmp(state, "uninitialised"))
        return;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&have.primary, 0));
    if (!strcmp(state, "other") || !strcmp(state, "none"))
        others();
    MUST(cuCtxSetCurrent(have.primary));
    MUST(cuMemAlloc_v2(&have.freed, BLOCK));
    MUST(cuMemAlloc_v2(&have.block, BLOCK));
    MUST(cuStreamCreate(&have.destroyed, 0));
    MUST(cuStreamCreate(&have.stream, 0));
    MUST(cuStreamDestroy_v2(have.destroyed));
    MUST(cuEventCreate(&have.event, 0));
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&have.function, module, "anything"));
    MUST(cuGraphCreate(&have.graph, 0));
    MUST(cuGraphInstantiateWithFlags(&have.exec, have.graph, 0));
    MUST(cuDeviceGetDefaultMemPool(&have.pool, 0));
    MUST(cuMemAllocManaged(&have.managed, BLOCK, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemHostAlloc(&have.pinned, PINNED, 0));
    MUST(cuMemAllocAsync(&have.pooled, BLOCK, have.stream));
    MUST(cuStreamSynchronize(have.stream));
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 64, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    MUST(cuArrayCreate_v2(&have.array, &shape));
    MUST(cuMemFree_v2(have.freed)); /* last, so that the driver itself has not used it again */
    if (!strcmp(state, "capturing"))
        MUST(cuStreamBeginCapture_v2(have.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (!strcmp(state, "none"))
        MUST(cuCtxSetCurrent(NULL));
    if (!strcmp(state, "other"))
        MUST(cuCtxSetCurrent(have.created));
    if (is_endless(state))
        never_end(state);
    if (!strcmp(state, "sticky")) {
        simcuda_sticky(1);
        MUST(cuLaunchKernel(have.function, 1, 1, 1, 1, 1, 1, 0, have.stream, NULL, NULL));
        cuStreamSynchronize(have.stream);
    }
}

/* --- values of arguments: the first is valid --- */

typedef struct {
    const char *name;
    uint64_t value;
} choice_t;

enum { CHOICES = 12 };

static const char *state_name;
static uint64_t word(const void *pointer) {
    return (uint64_t)(uintptr_t)pointer;
}

static char out[ARGS][BUFFER];
static CUlaunchConfig launch;
static CUDA_MEMCPY2D copy2d, past2d;
static CUDA_MEMCPY3D copy3d, past3d;
static CUdeviceptr addresses[64];
static size_t sizes[64];

typedef struct {
    CUlaunchConfig config;
    CUlaunchAttribute attribute;
} attributed_t;

static attributed_t programmatic, cooperative;

/* Returns `launch` with an attribute that is set to 1. */
static uint64_t attributed(attributed_t *launched, CUlaunchAttributeID id) {
    static const int yes = 1;
    launched->config = launch;
    launched->config.attrs = &launched->attribute;
    launched->config.numAttrs = 1;
    launched->attribute.id = id;
    memcpy(&launched->attribute.value, &yes, sizeof yes);
    return word(&launched->config);
}

static unsigned choices(kind_t kind, unsigned at, choice_t choice[CHOICES]) {
    static const CUDA_ARRAY_DESCRIPTOR array = {
        .Width = 8, .Height = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    static const CUDA_ARRAY3D_DESCRIPTOR array3d = {.Width = 8,
                                                    .Height = 8,
                                                    .Depth = 2,
                                                    .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                                    .NumChannels = 1};
    static const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    /* As many elements as the largest count. A huge count reads past the array, with results that differ
     * between builds, so sanitizers leave it out (CMakeLists.txt). */
    static CUmemAccessDesc access[64];
    for (int i = 0; i < 64; i++)
        access[i] = (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    static const CUmemPoolProps pool = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    static const CUpointer_attribute attributes[64] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    static const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    unsigned n = 0;
#define CHOICE(text, what)                                                                       \
    choice[n++] = (choice_t) {                                                                   \
        text, (uint64_t)(what)                                                                   \
    }
#define NEVER(type) CHOICE("null", 0), CHOICE("bad", 0x7f0000badu << 4)
    switch (kind) {
    case ARG_SIZE:
        CHOICE("64", 64), CHOICE("0", 0), CHOICE("4", 4);
        if (!getenv("SWEEP_WITHIN"))
            CHOICE("huge", (uint64_t)1 << 44);
        if (is_endless(
                state_name)) /* one that has to grow, and one that fits without the cache */
            CHOICE("grows", 200 * MIB), CHOICE("fills", 880 * MIB);
        break;
    case ARG_WIDE:
        CHOICE("0", 0), CHOICE("64", 64), CHOICE("huge", ~(uint64_t)0);
        break;
    case ARG_NUMBER:
        CHOICE("1", 1), CHOICE("0", 0), CHOICE("7", 7);
        if (!getenv("SWEEP_WITHIN"))
            CHOICE("huge", 0xffffffffu);
        break;
    case ARG_DEVICE:
        CHOICE("0", 0), CHOICE("1", 1), CHOICE("-1", (uint64_t)-1), CHOICE("99", 99);
        break;
    case ARG_ADDRESS:
    case ARG_ANY_ADDRESS: /* the functions of ARG_ANY_ADDRESS take host memory, so every other address must be
                             valid */
        CHOICE("block", have.block), CHOICE("0", 0);
        CHOICE("foreign", kind == ARG_ADDRESS ? 0x12345600u : word(bytes));
        CHOICE("freed", have.freed), CHOICE("interior", have.block + 512);
        CHOICE("unaligned", have.block + 1), CHOICE("end", have.block + BLOCK);
        CHOICE("last", have.block + BLOCK - 1), CHOICE("managed", have.managed);
        CHOICE("pool", have.pooled), CHOICE("pinned", word(have.pinned));
        if (have.others)
            choice[n - 1] = (choice_t){"other context", have.others},
                       choice[n++] = (choice_t){"other device", have.far};
        break;
    case ARG_ADDRESS32:
        CHOICE("block's low half", (uint32_t)have.block), CHOICE("0", 0), CHOICE("4096", 4096);
        break;
    case ARG_STREAM:
        CHOICE("stream", word(have.stream)), CHOICE("0", 0), CHOICE("legacy", 1);
        CHOICE("per-thread", 2), CHOICE("bad", 0x7f0000badu);
        CHOICE("destroyed", word(have.destroyed));
        if (have.elsewhere)
            CHOICE("of another context", word(have.elsewhere));
        break;
    case ARG_CONTEXT:
        CHOICE("context", word(have.primary)), NEVER();
        if (have.created)
            CHOICE("created", word(have.created)), CHOICE("device 1", word(have.second));
        break;
    case ARG_EVENT:
        CHOICE("event", word(have.event)), NEVER();
        break;
    case ARG_ARRAY:
        CHOICE("array", word(have.array)), NEVER();
        break;
    case ARG_FUNCTION:
        CHOICE("function", word(have.function)), NEVER();
        break;
    case ARG_GRAPH:
        CHOICE("graph", word(have.graph)), NEVER();
        break;
    case ARG_GRAPH_EXEC:
        CHOICE("exec", word(have.exec)), NEVER();
        break;
    case ARG_POOL:
        CHOICE("pool", word(have.pool)), NEVER();
        break;
    case ARG_HANDLE:
    case ARG_HANDLE64:
        NEVER();
        break;
    case ARG_CALLBACK:
        CHOICE("function", (uintptr_t)on_stream), CHOICE("null", 0);
        break;
    case ARG_HOST_FN:
        CHOICE("function", (uintptr_t)on_host), CHOICE("null", 0);
        break;
    case ARG_ATTRIBUTE:
        CHOICE("start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
        CHOICE("size", CU_POINTER_ATTRIBUTE_RANGE_SIZE);
        CHOICE("type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
        CHOICE("sync", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
        CHOICE("ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        if (is_endless(state_name))
            CHOICE("buffer", CU_POINTER_ATTRIBUTE_BUFFER_ID);
        CHOICE("0", 0), CHOICE("999", 999);
        break;
    case ARG_RANGE_TYPE:
        CHOICE("dma-buf", CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD), CHOICE("0", 0), CHOICE("9", 9);
        break;
    case ARG_VALUE_LOCATION:
        CHOICE("device 0", word(&location)), CHOICE("zero", word(zero));
        break;
    case ARG_VALUE_IPC:
        CHOICE("zero", word(zero));
        break;
    case ARG_NAME:
        CHOICE("name", word("cuMemAlloc")), CHOICE("null", 0), CHOICE("empty", word(""));
        break;
    case ARG_CONST_BYTES:
    case ARG_BYTES:
        CHOICE("bytes", word(bytes)), CHOICE("null", 0), CHOICE("pinned", word(have.pinned));
        break;
    case ARG_OUT_HANDLE:
    case ARG_OUT_SIZE:
    case ARG_OUT_BYTES:
    case ARG_OUT_ADDRESS:
    case ARG_OUT_INT:
        CHOICE("out", word(out[at])), CHOICE("null", 0);
        break;
    case ARG_IN_ATTRIBUTES:
        CHOICE("four", word(attributes)), CHOICE("null", 0), CHOICE("zero", word(zero));
        break;
    case ARG_IN_COPY2D:
        copy2d = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                                 .srcHost = bytes,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = have.block,
                                 .WidthInBytes = 16,
                                 .Height = 2};
        past2d = copy2d;
        past2d.dstDevice = have.block + BLOCK - 16;
        past2d.dstPitch = 512; /* past the last granule, too */
        CHOICE("copy", word(&copy2d)), CHOICE("null", 0), CHOICE("zero", word(zero));
        CHOICE("past", word(&past2d));
        break;
    case ARG_IN_COPY3D:
        copy3d = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                                 .srcHost = bytes,
                                 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .dstDevice = have.block,
                                 .WidthInBytes = 16,
                                 .Height = 2,
                                 .Depth = 1};
        past3d = copy3d;
        past3d.dstDevice = have.block + BLOCK - 16;
        past3d.dstPitch = 512;
        CHOICE("copy", word(&copy3d)), CHOICE("null", 0), CHOICE("zero", word(zero));
        CHOICE("past", word(&past3d));
        break;
    case ARG_IN_LAUNCH:
        launch = (CUlaunchConfig){.gridDimX = 1,
                                  .gridDimY = 1,
                                  .gridDimZ = 1,
                                  .blockDimX = 1,
                                  .blockDimY = 1,
                                  .blockDimZ = 1,
                                  .hStream = have.stream};
        CHOICE("launch", word(&launch)), CHOICE("null", 0), CHOICE("zero", word(zero));
        if (is_endless(state_name)) {
            CHOICE(
                "programmatic",
                attributed(&programmatic, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
            CHOICE("cooperative", attributed(&cooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE));
        }
        break;
    case ARG_IN_ARRAY:
        CHOICE("8x8", word(&array)), CHOICE("null", 0), CHOICE("zero", word(zero));
        break;
    case ARG_IN_ARRAY3D:
        CHOICE("8x8x2", word(&array3d)), CHOICE("null", 0), CHOICE("zero", word(zero));
        break;
    case ARG_IN_ADDRESSES:
        for (unsigned i = 0; i < 64; i++)
            addresses[i] = have.block + 512 * (i + at % 2 * 64);
        CHOICE("64", word(addresses)), CHOICE("null", 0);
        break;
    case ARG_IN_SIZES:
        for (unsigned i = 0; i < 64; i++)
            sizes[i] = 16;
        CHOICE("64", word(sizes)), CHOICE("null", 0);
        break;
    case ARG_IN_PROP:
        CHOICE("pinned", word(&prop)), CHOICE("null", 0), CHOICE("zero", word(zero));
        break;
    case ARG_IN_ACCESS:
        CHOICE("read and write", word(access)), CHOICE("null", 0), CHOICE("zero", word(zero));
        break;
    case ARG_IN_POOL:
        CHOICE("pinned", word(&pool)), CHOICE("null", 0), CHOICE("zero", word(zero));
        break;
    default: /* structures without a sample value, and extra arguments of launches */
        CHOICE("zero", word(zero)), CHOICE("null", 0);
    }
    return n;
}

/* --- one call --- */

static void print_address(uint64_t address) {
    static const uint64_t length = BLOCK;
    struct {
        const char *name;
        uint64_t at;
    } known[] = {{"block", have.block},
                 {"managed", have.managed},
                 {"pool", have.pooled},
                 {"other context", have.others},
                 {"other device", have.far}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].at && address >= known[i].at && address < known[i].at + length) {
            printf("%s+%llu", known[i].name, (unsigned long long)(address - known[i].at));
            return;
        }
    printf(!address ? "0" : address % 512 ? "unaligned address" : "address");
}

static void print_out(kind_t kind, const char *buffer, CUresult result) {
    bool touched = false;
    uint64_t value;
    for (unsigned i = 0; i < BUFFER; i++)
        touched |= (unsigned char)buffer[i] != POISON;
    memcpy(&value, buffer, sizeof value);
    if (!touched || result != CUDA_SUCCESS)
        printf(touched ? " TOUCHED" : " untouched");
    else if (kind == ARG_OUT_SIZE)
        printf(" %llu", (unsigned long long)value);
    else if (kind == ARG_OUT_INT)
        printf(" %u", (unsigned)value);
    else if (kind == ARG_OUT_ADDRESS)
        printf(" "), print_address(value);
    else
        printf(value ? " handle" : " no handle");
}

static choice_t choice[ARGS][CHOICES];

typedef struct {
    const row_t *row;
    const uint64_t *arg;
    CUresult result;
} call_t;

static void *make_call(void *arg) {
    call_t *call = arg;
    cuCtxSetCurrent(have.primary);
    call->result = call->row->call(call->arg);
    return NULL;
}

/* Samples the threads every LOOK_NS. A call that is older than a second hangs if every thread had processor
 * time since and the call has not returned. A thread had processor time if it went to sleep SLEEPS times, as
 * a polling thread does, or slept through LOOKS samples. */
enum { LOOK_NS = 100000000, YOUNG = 10, LOOKS = 10, SLEEPS = 30, WATCHED = 32 };

static struct {
    unsigned looks;
    struct {
        test_thread_t last;
        long since;     /* `sleeps` when the call was a second old */
        unsigned still; /* looks in a row that it has slept through */
    } of[WATCHED];
} watch;

static bool is_stuck(void) {
    test_thread_t now[WATCHED];
    size_t count = test_threads(now, WATCHED);
    bool young = watch.looks++ < YOUNG, stuck = !young;
    for (size_t i = 0; i < count; i++) {
        bool known = now[i].id == watch.of[i].last.id;
        bool slept = known && now[i].asleep && now[i].sleeps == watch.of[i].last.sleeps;
        if (young || !known)
            watch.of[i].since = now[i].sleeps;
        watch.of[i].still = slept ? watch.of[i].still + 1 : 0;
        watch.of[i].last = now[i];
        stuck &= now[i].id == gettid() || watch.of[i].still >= LOOKS ||
                 now[i].sleeps - watch.of[i].since >= SLEEPS;
    }
    return stuck;
}

/* Makes the call in a thread of its own. If the call hangs, ends the process. */
static CUresult call_in_time(const row_t *row, const uint64_t *arg) {
    call_t call = {row, arg, CUDA_SUCCESS};
    pthread_t thread;
    struct timespec until;
    if (pthread_create(&thread, NULL, make_call, &call))
        _exit(4);
    for (int busy = 1; busy;) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        busy = pthread_timedjoin_np(thread, NULL, &until);
        if (busy && is_stuck()) {
            printf(" => hangs\n");
            fflush(stdout);
            _exit(0);
        }
    }
    return call.result;
}

/* Makes the call with choice `which` for argument `varied`. The other arguments are valid. */
static void one_call(const row_t *row, unsigned varied, unsigned which) {
    uint64_t arg[ARGS] = {0};
    CUdeviceptr start = 0;
    printf("%s %s", state_name, row->symbol);
    for (unsigned i = 0; i < row->count; i++) {
        unsigned pick = i == varied ? which : 0;
        arg[i] = choice[i][pick].value;
        if (i == varied)
            printf(" %c=%s", 'a' + (int)i, choice[i][pick].name);
    }
    memset(out, POISON, sizeof out);
    /* Attribute queries have a plain void * as out-parameter. */
    bool asks = !strcmp(row->symbol, "cuPointerGetAttribute");
    if (asks && arg[0])
        arg[0] = word(out[0]);
    bool asks_many = !strcmp(row->symbol, "cuPointerGetAttributes");
    static void *slots[64];
    for (unsigned i = 0; asks_many && i < 64; i++)
        slots[i] = out[4 + i % 4];
    if (asks_many && arg[2])
        arg[2] = word(slots);
    if (asks_many && varied != 0)
        arg[0] = 4;
    /* A launch may get its parameters in one way only, or it launches no kernel. */
    for (unsigned i = 0; is_endless(state_name) && i < row->count; i++)
        if (row->kind[i] == ARG_OUT_HANDLE && !strncmp(row->symbol, "cuLaunch", 8))
            arg[i] = 0;
    fflush(stdout);
    CUresult result = is_endless(state_name) ? call_in_time(row, arg) : row->call(arg);
    printf(" => %s", code(result));
    for (unsigned i = 0; i < row->count; i++)
        if (arg[i] == word(out[i]))
            print_out(asks ? ARG_OUT_BYTES : (kind_t)row->kind[i], out[i], result);
    if (asks && result == CUDA_SUCCESS && arg[0] && arg[1] <= CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        memcpy(&start, out[0], sizeof start);
        printf(" ");
        if (arg[1] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            print_address(start);
        else if (arg[1] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            printf("%llu bytes", (unsigned long long)start);
        else if (arg[1] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                 arg[1] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            printf("%d", (int)start);
    }
    if (asks_many && result == CUDA_SUCCESS && arg[1] && arg[2] && arg[0] == 4) {
        printf(" type %d start ", *(int *)out[4]);
        memcpy(&start, out[5], sizeof start);
        print_address(start);
        memcpy(&start, out[6], sizeof start);
        printf(" size %llu ordinal %d", (unsigned long long)start, *(int *)out[7]);
    }
    printf("\n");
}

typedef struct {
    const row_t *row;
    unsigned from, to; /* numbers of calls, counted over all arguments */
} part_t;

static unsigned calls_of(const row_t *row) {
    unsigned calls = 0;
    for (unsigned i = 0; i < row->count; i++)
        calls += choices(row->kind[i], i, choice[i]) - (i > 0);
    return calls ? calls : 1;
}

/* Returns true if the state includes the call in which argument `varied` has its choice `which`. */
static bool is_asked(const row_t *row, unsigned varied, unsigned which) {
    kind_t kind = row->count ? (kind_t)row->kind[varied] : ARG_COUNT;
    return !is_endless(state_name) || (varied == 0 && which == 0) || kind == ARG_ATTRIBUTE ||
           kind == ARG_IN_LAUNCH || (kind == ARG_SIZE && !strncmp(row->symbol, "cuMemAlloc", 10));
}

static void do_part(void *arg) {
    const part_t *part = arg;
    unsigned number = 0;
    for (unsigned i = 0; i < part->row->count; i++) {
        unsigned n = choices(part->row->kind[i], i, choice[i]);
        for (unsigned c = i > 0; c < n; c++, number++)
            if (number >= part->from && number < part->to)
                one_call(part->row, i, c);
    }
    if (!part->row->count)
        one_call(part->row, 0, 0);
}

static void run_part(const void *arg) {
    part_t part = *(const part_t *)arg;
    set_up(state_name);
    calls_of(part.row);
    if (strcmp(state_name, "inside")) {
        do_part(&part);
        return;
    }
    MUST(cuLaunchHostFunc(have.stream, do_part, &part));
    MUST(cuStreamSynchronize(have.stream));
}

/* Functions with a body change the process, so each of their calls runs in a fresh one. */
static void sweep_row(const row_t *row) {
    /* Set as in a child process, so that the numbers of choices agree. */
    have.others = have.far = !strcmp(state_name, "other") || !strcmp(state_name, "none");
    have.elsewhere = have.others ? CU_STREAM_LEGACY : NULL;
    have.created = (CUcontext)(uintptr_t)have.others;
    unsigned calls = calls_of(row);
    memset(&have, 0, sizeof have);
    if (row->hook != HOOK && !is_endless(state_name)) {
        in_child(row->symbol, run_part, &(part_t){row, 0, calls});
        return;
    }
    unsigned argument = 0, which = 0; /* of call number `from` */
    for (unsigned from = 0; from < calls; from++) {
        if (is_asked(row, argument, which))
            in_child(row->symbol, run_part, &(part_t){row, from, from + 1});
        if (row->count && ++which == choices(row->kind[argument], argument, choice[argument]))
            argument++, which = 1;
    }
}

enum { ROWS = sizeof rows / sizeof *rows, LANES = 12 };

/* Runs the rows in several processes, because they mostly wait. Prints the output in the order of the
 * rows. */
static int sweep_lanes(void) {
    static FILE *printed[ROWS];
    pid_t lane[LANES];
    for (size_t i = 0; i < ROWS; i++)
        if (!(printed[i] = tmpfile()))
            return 2;
    for (unsigned n = 0; n < LANES; n++) {
        if ((lane[n] = fork()) < 0)
            return 2;
        if (lane[n])
            continue;
        for (size_t i = n; i < ROWS; i += LANES) {
            fflush(stdout);
            if (dup2(fileno(printed[i]), STDOUT_FILENO) < 0)
                _exit(2);
            sweep_row(&rows[i]);
        }
        fflush(stdout);
        _exit(0);
    }
    int status, worst = 0;
    for (unsigned n = 0; n < LANES; n++)
        if (waitpid(lane[n], &status, 0) != lane[n] || status)
            worst = 2;
    for (size_t i = 0; i < ROWS; i++) {
        rewind(printed[i]);
        for (int c; (c = getc(printed[i])) != EOF;)
            putchar(c);
        fclose(printed[i]);
    }
    return worst;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    state_name = argv[1];
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    if (is_endless(state_name) && argc == 2)
        return sweep_lanes();
    for (size_t i = 0; i < ROWS; i++)
        if (argc == 2 || !strcmp(argv[2], rows[i].symbol))
            sweep_row(&rows[i]);
    return 0;
}
