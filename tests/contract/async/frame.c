/* The frame of the rules: streams and events for each case, judgement by address, figures and
 * referee. */
#include "rules.h"

CUcontext context;
CUfunction slow, quick;
bool served; /* the library serves: addresses can be judged */
const char *title;
unsigned wrong;
size_t size = 256 << 10;

void must(CUresult result, const char *call, int line) {
    if (result) {
        fprintf(stderr, "%s, line %d: %s: %d\n", title, line, call, (int)result);
        exit(1);
    }
}

void expect(bool holds, const char *what, int line) {
    if (holds || !served)
        return;
    wrong++;
    printf("not ok %s, line %d: %s\n", title, line, what);
}

static accel_device_stats_t figures(void) {
    accel_status_t (*get)(int, accel_device_stats_t *);
    accel_device_stats_t stats = {.size = sizeof stats};
    *(void **)&get = dlsym(RTLD_DEFAULT, "accel_get_device_stats");
    if (get)
        get(0, &stats);
    return stats;
}

long long pending(void) {
    accel_device_stats_t stats = figures();
    return stats.active.all.current - stats.allocation.all.current;
}

long long allocated(void) {
    return figures().allocation.all.current;
}

CUdeviceptr take(CUstream stream) {
    CUdeviceptr memory;
    MUST(cuMemAllocAsync(&memory, size, stream));
    return memory;
}

void give(CUdeviceptr memory, CUstream stream) {
    MUST(cuMemFreeAsync(memory, stream));
}

void use(CUdeviceptr memory, CUstream stream) {
    void *params[] = {&memory};
    MUST(cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void touch(CUdeviceptr memory, CUstream stream) {
    void *params[] = {&memory};
    MUST(cuLaunchKernel(quick, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* Memory with work under way on it, given back in the order of `stream`. */
CUdeviceptr busy(CUstream stream) {
    CUdeviceptr memory = take(stream);
    use(memory, stream);
    give(memory, stream);
    return memory;
}

/* A request of `stream`, used and given back. */
CUdeviceptr next(CUstream stream) {
    CUdeviceptr memory = take(stream);
    touch(memory, stream);
    give(memory, stream);
    return memory;
}

void order(CUevent event, CUstream from, CUstream to) {
    MUST(cuEventRecord(event, from));
    MUST(cuStreamWaitEvent(to, event, 0));
}

static unsigned long long (*reports)(void);

/* What streams gave back before is not at hand any more. */
static void settle(void) {
    accel_status_t (*empty)(void);
    *(void **)&empty = dlsym(RTLD_DEFAULT, "accel_empty_cache");
    if (empty)
        empty();
}

static void run(const case_t *one) {
    room_t room;
    unsigned long long before = reports();
    unsigned had = wrong;
    title = one->name;
    for (int i = 0; i < FREE_STREAMS; i++)
        MUST(cuStreamCreate(&room.s[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BLOCKING; i++)
        MUST(cuStreamCreate(&room.b[i], CU_STREAM_DEFAULT));
    for (int i = 0; i < 2; i++)
        MUST(cuEventCreate(&room.e[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < FREE_STREAMS; i++)
        next(room.s[i]); /* all are known */
    MUST(cuCtxSynchronize());
    settle();
    one->run(&room);
    MUST(cuCtxSynchronize());
    for (int i = 0; i < FREE_STREAMS; i++)
        MUST(cuStreamDestroy_v2(room.s[i]));
    for (int i = 0; i < BLOCKING; i++)
        MUST(cuStreamDestroy_v2(room.b[i]));
    for (int i = 0; i < 2; i++)
        MUST(cuEventDestroy_v2(room.e[i]));
    if (reports() != before) {
        wrong++;
        printf("not ok %s: %llu reports\n", one->name, reports() - before);
    } else if (wrong == had) {
        printf("ok %s\n", one->name);
    }
}

static CUfunction kernel(CUmodule module, int (*add)(const simcuda_kernel_t *), const char *name,
                         unsigned long long ns) {
    static const unsigned short sizes[] = {8};
    static const simcuda_access_t access = {0, -1, 64, 1};
    simcuda_kernel_t made = {name, NULL, ns, 1, sizes, 1, &access};
    CUfunction function;
    add(&made);
    MUST(cuModuleGetFunction(&function, module, name));
    return function;
}

int main(int argc, char **argv) {
    int (*add)(const simcuda_kernel_t *);
    CUmodule module;
    *(void **)&add = dlsym(RTLD_DEFAULT, "simcuda_register_kernel");
    *(void **)&reports = dlsym(RTLD_DEFAULT, "simcuda_referee_reports");
    if (!add || !reports)
        return 77;
    served = dlsym(RTLD_DEFAULT, "accel_stats_json") != NULL;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ".version 6.0\n.target sm_50\n.address_size 64\n"
                                   ".visible .entry slow(.param .u64 a) { ret; }\n"
                                   ".visible .entry quick(.param .u64 a) { ret; }"));
    slow = kernel(module, add, "slow", 5000000);
    quick = kernel(module, add, "quick", 1000);
    bool little = argc > 1 && !strcmp(argv[1], "limited");
    if (little)
        size = 5 << 20; /* room for one */
    const case_t *cases = little ? limited : all;
    size_t count = little ? limited_count : all_count;
    for (size_t i = 0; argc > 1 && i < alone_count; i++)
        if (!strcmp(argv[1], alone[i].name)) {
            cases = &alone[i];
            count = 1;
        }
    for (size_t i = 0; i < count; i++)
        run(&cases[i]);
    return wrong ? 1 : 0;
}
