/* How many bytes of its stack a thread needs for all that programs do.
 *
 * A thread does each step on a stack that was painted before, and what is no longer painted then goes to
 * stdout: "STEP BYTES".  Each step is a process of its own, so that one may end it; CUDA was used there before,
 * but for those that are `fresh`.  stacks STEP does one alone. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "program.h"

enum { ROOM = 256 << 10, PAINT = 0xa5, MIB = 1 << 20 };

/* Functions of accelcache.h, where the library is here. */
static int call(const char *name) {
    int (*function)(void);
    return test_find(name, &function) ? function() : 0;
}

static void idle(void) {
}

/* Work on that many streams, blocks that wait for it, new memory, a synchronisation, an end of a stream. */
static void use_streams(int streams) {
    enum { MOST = 40, BLOCKS = 40 };
    static CUstream stream[MOST];
    static CUdeviceptr block[BLOCKS];
    for (int i = 0; i < streams; i++)
        MUST(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAlloc_v2(&block[i], (size_t)(i + 1) * MIB / 4));
        MUST(cuMemsetD8Async(block[i], 1, MIB / 4, stream[i % streams]));
        if (i % 2)
            MUST(cuMemFree_v2(block[i]));
    }
    for (int i = 0; i < BLOCKS; i += 2)
        MUST(cuMemFree_v2(block[i]));
    MUST(cuCtxSynchronize());
    for (int i = 0; i < streams; i++)
        MUST(cuStreamDestroy_v2(stream[i]));
}

static void first(void) {
    use_streams(4);
}

static void few_streams(void) {
    use_streams(4);
}

static void many_streams(void) {
    use_streams(40);
}

static CUfunction kernel;

static void launch(void) {
    CUlaunchAttribute attribute[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION},
                                      {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE}};
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1, .attrs = attribute, .numAttrs = 2};
    CUdeviceptr to = program_alloc();
    unsigned value = 1;
    void *params[] = {&to, &value};
    attribute[0].value.programmaticStreamSerializationAllowed = 1;
    MUST(cuLaunchKernelEx(&config, kernel, params, NULL));
    attribute[1].value.cooperative = 1;
    MUST(cuLaunchKernelEx(&config, kernel, params, NULL));
    MUST(cuCtxSynchronize());
    program_free(to);
}

static void refused(void) {
    CUdeviceptr held[4], block;
    for (int i = 0; i < 4; i++)
        held[i] = program_alloc();
    NEED(cuMemAlloc_v2(&block, (size_t)1 << 50) != CUDA_SUCCESS);
    NEED(cuMemAlloc_v2(&block, 300 * MIB) == CUDA_SUCCESS);
    NEED(cuMemAlloc_v2(&block, 300 * MIB) != CUDA_SUCCESS);
    for (int i = 0; i < 4; i++)
        program_free(held[i]);
}

static void dump(void) {
    int (*write)(const char *);
    char *json;
    int (*text)(char **);
    if (test_find("accel_dump", &write))
        NEED(!write(NULL) && !write("again-%e-%h-%p.json"));
    if (test_find("accel_stats_json", &text)) {
        NEED(!text(&json));
        free(json);
    }
}

static void settings(void) {
    int (*set)(const char *, char *, size_t);
    char message[64];
    if (test_find("accel_set_allocator_settings", &set)) {
        NEED(!set("max_split_size_mb:64,wait_budget:25%", message, sizeof message) ||
             !set("max_split_size_mb:64", message, sizeof message));
        NEED(set("no_such_key:1", message, sizeof message));
    }
    call("accel_empty_cache");
    test_library_agrees();
}

static void snapshot(void) {
    struct {
        unsigned long long a, b;
    } all = {0, 0};
    int (*take)(__typeof__(all), char **);
    struct {
        size_t size;
        int enabled;
        size_t most;
        int when, clear;
        void *recorder, *arg;
    } history = {sizeof history, 1, 1000, 3, 0, NULL, NULL};
    int (*record)(void *);
    char *json;
    if (!test_find("accel_snapshot", &take) || !test_find("accel_record_history", &record))
        return;
    NEED(!record(&history));
    program_use(10);
    NEED(!take(all, &json));
    free(json);
}

static void wrong_free(void) {
    CUdeviceptr block = program_alloc();
    program_free(block);
    NEED(cuMemFree_v2(block) != CUDA_SUCCESS);
    NEED(cuMemFree_v2(block + 4096) != CUDA_SUCCESS);
}

static void pinned(void) {
    void *block[4];
    for (int i = 0; i < 4; i++)
        MUST(cuMemHostAlloc(&block[i], MIB, 0));
    for (int i = 0; i < 4; i++)
        MUST(cuMemFreeHost(block[i]));
}

static void ordered(void) {
    CUstream stream = test_stream();
    CUdeviceptr block[8];
    for (int i = 0; i < 8; i++)
        MUST(cuMemAllocAsync(&block[i], MIB, stream));
    for (int i = 0; i < 8; i++)
        MUST(cuMemFreeAsync(block[i], stream));
    MUST(cuStreamSynchronize(stream));
}

static void exported(void) {
    CUipcMemHandle handle;
    CUdeviceptr block = program_alloc();
    MUST(cuIpcGetMemHandle(&handle, block));
    program_free(block);
}

static void forked(void) {
    int status;
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        CUdeviceptr block;
        cuMemAlloc_v2(&block, MIB);
        _exit(0);
    }
    NEED(waitpid(child, &status, 0) == child && !status);
}

static void leave(void) {
    program_alloc();
    exit(0);
}

static const struct {
    const char *name;
    void (*run)(void);
    bool fresh; /* CUDA was not used before */
    bool ends;  /* it does not come back */
} steps[] = {
    {"idle", idle, true, false},
    {"first", first, true, false},
    {"streams", few_streams, false, false},
    {"many_streams", many_streams, false, false},
    {"launch", launch, false, false},
    {"refused", refused, false, false},
    {"dump", dump, false, false},
    {"settings", settings, false, false},
    {"snapshot", snapshot, false, false},
    {"wrong_free", wrong_free, false, false},
    {"pinned", pinned, false, false},
    {"ordered", ordered, false, false},
    {"exported", exported, false, false},
    {"forked", forked, false, false},
    {"leave", leave, false, true},
};
enum { IDLE, STEPS = sizeof steps / sizeof *steps };

static void *do_step(void *number) {
    if (*(int *)number != IDLE)
        program_device();
    steps[*(int *)number].run();
    return NULL;
}

static void say(int number, const unsigned char *stack) {
    size_t untouched = 0;
    while (untouched < ROOM && stack[untouched] == PAINT)
        untouched++;
    printf("%s %zu\n", steps[number].name, ROOM - untouched);
    fflush(stdout);
}

static int prepare_and_do(int number, void *stack) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_kernel_t known = {
        .name = "store", .fn = test_store, .duration_ns = 1000, .param_count = 2, .param_bytes = sizes};
    pthread_attr_t attributes;
    pthread_t thread;
    if (!steps[number].fresh) {
        program_device();
        kernel = test_kernel(&known);
        program_use(2);
    }
    NEED(!pthread_attr_init(&attributes) && !pthread_attr_setstack(&attributes, stack, ROOM));
    NEED(!pthread_create(&thread, &attributes, do_step, &number) && !pthread_join(thread, NULL));
    say(number, stack);
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 0; i < STEPS; i++) {
        if (argc > 1 && strcmp(argv[1], steps[i].name))
            continue;
        /* What ends by the step is looked at from outside; a fork has to have a stack of its own. */
        unsigned char *stack =
            mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
                 (steps[i].ends ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
        int status;
        NEED(stack != MAP_FAILED);
        memset(stack, PAINT, ROOM);
        pid_t child = fork();
        NEED(child >= 0);
        if (!child)
            _exit(prepare_and_do(i, stack));
        NEED(waitpid(child, &status, 0) == child && !status);
        if (steps[i].ends)
            say(i, stack);
        munmap(stack, ROOM);
    }
    return 0;
}
