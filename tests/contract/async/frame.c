/* The frame of the rules: streams and events for each case, judgement by address, figures and
 * race detector. */
#include "rules.h"

CUcontext context;
CUfunction slow, quick;
bool served; /* the library serves: addresses can be judged */
unsigned wrong;
size_t size = 256 << 10;

void expect(bool holds, const char *what, int line) {
    if (holds || !served)
        return;
    wrong++;
    printf("not ok %s, line %d: %s\n", test_title, line, what);
}

static accel_device_stats_t figures(void) {
    accel_status_t (*get)(int, accel_device_stats_t *);
    accel_device_stats_t stats = {.size = sizeof stats};
    if (test_find("accel_get_device_stats", &get))
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

/* Returns memory with pending work, given back in the order of `stream`. */
CUdeviceptr busy(CUstream stream) {
    CUdeviceptr memory = take(stream);
    use(memory, stream);
    give(memory, stream);
    return memory;
}

/* Requests memory on `stream`, uses it and gives it back. Returns its address. */
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

/* Empties the caches, so that no later request gets memory that streams gave back before. */
static void settle(void) {
    accel_status_t (*empty)(void);
    if (test_find("accel_empty_cache", &empty))
        empty();
}

static void run(const case_t *one) {
    room_t room;
    unsigned long long before = reports();
    unsigned had = wrong;
    test_title = one->name;
    for (int i = 0; i < FREE_STREAMS; i++)
        room.s[i] = test_stream();
    for (int i = 0; i < BLOCKING; i++)
        MUST(cuStreamCreate(&room.b[i], CU_STREAM_DEFAULT));
    for (int i = 0; i < 2; i++)
        MUST(cuEventCreate(&room.e[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < FREE_STREAMS; i++)
        next(room.s[i]); /* the library knows all streams */
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

static CUfunction kernel(const char *name, unsigned long long ns) {
    static const unsigned short sizes[] = {8};
    static const simcuda_access_t access = {0, -1, 64, 1};
    return test_kernel(&(simcuda_kernel_t){name, NULL, ns, 1, sizes, 1, &access});
}

int main(int argc, char **argv) {
    if (!test_find("simcuda_race_reports", &reports))
        return TEST_SKIPPED;
    served = test_library_is_here();
    context = test_device(0);
    slow = kernel("slow", 5000000);
    quick = kernel("quick", 1000);
    bool little = argc > 1 && !strcmp(argv[1], "limited");
    if (little)
        size = 5 << 20; /* the room holds one block */
    const case_t *cases = little ? limited : all;
    size_t count = little ? limited_count : all_count;
    for (size_t i = 0; argc > 1 && i < alone_count; i++)
        if (!strcmp(argv[1], alone[i].name)) {
            cases = &alone[i];
            count = 1;
        }
    for (size_t i = 0; i < count; i++) {
        if (!little)
            size += 512; /* new to the thread's cache, which keeps sizes that come again */
        run(&cases[i]);
    }
    return wrong ? 1 : 0;
}
