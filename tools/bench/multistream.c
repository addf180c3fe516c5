/* bench_multistream: the cost of temporary buffers in a program that uses several streams.
 *
 * An iteration gives each of S streams B kernels, round-robin over the streams, each with a
 * temporary buffer of its own.  After that it may wait for the device.  There are three ways.  Each
 * is warmed up and then measured in passes of N iterations:
 *
 *   once    the buffers are allocated before the loop: the reference
 *   plain   cuMemAlloc, kernel, cuMemFree
 *   async   cuMemAllocAsync, kernel, cuMemFreeAsync on the kernel's stream
 *
 * Time is the device's clock on the simulated device (virtual or real), the monotonic clock
 * elsewhere.  One JSON object per way goes to stdout.  It contains the statistics of the library
 * before and after, if it is loaded.  tools/bench/multistream starts the program and compares. */
#include <dlfcn.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accelcache.h"
#include "simcuda.h"

#define CU_FN(symbol, name, since, mode, params, args) CUresult symbol params;
#include "device/cuda_functions.def"
#undef CU_FN

enum { MAX_STREAMS = 64, MAX_BUFFERS = 64, MAX_PASSES = 101 };

typedef enum { ONCE, PLAIN, ASYNC, WAYS } way_t;
static const char *const way_names[WAYS] = {"once", "plain", "async"};

typedef struct {
    long streams, buffers, bytes, kernel_us, iterations, passes;
    long sync;  /* iterations between two waits for the device; 0: wait at the end only */
    long defer; /* nonzero: an iteration's buffers are freed at its end, not after each launch */
} shape_t;

typedef struct {
    shape_t shape;
    CUfunction spin;
    CUstream stream[MAX_STREAMS];
    CUdeviceptr kept[MAX_STREAMS][MAX_BUFFERS];
    unsigned long long peak_used; /* bytes of the simulated device in use, the greatest seen */
    bool watch;                   /* look at them: in the warming pass only */
} bench_t;

/* multistream_spin(to, ns): one thread runs for ns, then writes one word. */
static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry multistream_spin(.param .u64 to, .param .u64 ns) {\n"
                          " .reg .pred %p; .reg .u64 %a, %n, %s, %t, %d;\n"
                          " ld.param.u64 %a, [to]; ld.param.u64 %n, [ns];\n"
                          " cvta.to.global.u64 %a, %a; mov.u64 %s, %globaltimer;\n"
                          "AGAIN: mov.u64 %t, %globaltimer; sub.u64 %d, %t, %s;\n"
                          " setp.lt.u64 %p, %d, %n; @%p bra AGAIN;\n"
                          " st.global.u32 [%a], 1; ret; }\n";

/* Functions of the simulated driver and of the library; NULL if they are not in the process. */
static struct {
    __typeof__(&simcuda_register_kernel) register_kernel;
    __typeof__(&simcuda_now) now;
    __typeof__(&simcuda_calls) calls;
    __typeof__(&simcuda_reset_calls) reset_calls;
    __typeof__(&simcuda_used_memory) used_memory;
    __typeof__(&accel_empty_cache) empty_cache;
    __typeof__(&accel_reset_peak_stats) reset_peak;
    __typeof__(&accel_stats_json) stats_json;
} optional;

static void find(const char *name, void *slot) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
}

static void find_optional(void) {
    find("simcuda_register_kernel", &optional.register_kernel);
    find("simcuda_now", &optional.now);
    find("simcuda_calls", &optional.calls);
    find("simcuda_reset_calls", &optional.reset_calls);
    find("simcuda_used_memory", &optional.used_memory);
    find("accel_empty_cache", &optional.empty_cache);
    find("accel_reset_peak_stats", &optional.reset_peak);
    find("accel_stats_json", &optional.stats_json);
}

#define MUST(call) must(call, #call, __LINE__)
static void must(CUresult result, const char *call, int line) {
    if (!result)
        return;
    fprintf(stderr, "bench_multistream: line %d: %s: %u\n", line, call, result);
    exit(1);
}

static unsigned long long now_ns(void) {
    struct timespec t;
    if (optional.now)
        return optional.now();
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

/* ---------------------------------------------------------------- one iteration */

static CUdeviceptr take(bench_t *b, way_t way, long stream, long buffer) {
    CUdeviceptr memory;
    if (way == ONCE)
        return b->kept[stream][buffer];
    if (way == PLAIN)
        MUST(cuMemAlloc_v2(&memory, (size_t)b->shape.bytes));
    else
        MUST(cuMemAllocAsync(&memory, (size_t)b->shape.bytes, b->stream[stream]));
    if (b->watch && optional.used_memory && optional.used_memory(0) > b->peak_used)
        b->peak_used = optional.used_memory(0);
    return memory;
}

static void give(bench_t *b, way_t way, long stream, CUdeviceptr memory) {
    if (way == PLAIN)
        MUST(cuMemFree_v2(memory));
    else if (way == ASYNC)
        MUST(cuMemFreeAsync(memory, b->stream[stream]));
}

static void launch(bench_t *b, long stream, CUdeviceptr memory) {
    unsigned long long ns = (unsigned long long)b->shape.kernel_us * 1000;
    void *params[] = {&memory, &ns};
    MUST(cuLaunchKernel(b->spin, 1, 1, 1, 1, 1, 1, 0, b->stream[stream], params, NULL));
}

static void iterate(bench_t *b, way_t way) {
    CUdeviceptr memory[MAX_STREAMS][MAX_BUFFERS];
    for (long j = 0; j < b->shape.buffers; j++)
        for (long s = 0; s < b->shape.streams; s++) {
            memory[s][j] = take(b, way, s, j);
            launch(b, s, memory[s][j]);
            if (!b->shape.defer)
                give(b, way, s, memory[s][j]);
        }
    if (b->shape.defer)
        for (long j = 0; j < b->shape.buffers; j++)
            for (long s = 0; s < b->shape.streams; s++)
                give(b, way, s, memory[s][j]);
}

/* ---------------------------------------------------------------- passes */

static unsigned long long pass(bench_t *b, way_t way) {
    unsigned long long begin = now_ns();
    for (long i = 0; i < b->shape.iterations; i++) {
        iterate(b, way);
        if (b->shape.sync && (i + 1) % b->shape.sync == 0)
            MUST(cuCtxSynchronize());
    }
    MUST(cuCtxSynchronize());
    return now_ns() - begin;
}

static void keep(bench_t *b, way_t way, bool begin) {
    for (long s = 0; way == ONCE && s < b->shape.streams; s++)
        for (long j = 0; j < b->shape.buffers; j++)
            if (begin)
                MUST(cuMemAlloc_v2(&b->kept[s][j], (size_t)b->shape.bytes));
            else
                MUST(cuMemFree_v2(b->kept[s][j]));
}

/* Returns the library's statistics as a JSON text, which the caller frees; NULL without the
 * library. */
static char *statistics(void) {
    char *json = NULL;
    if (!optional.stats_json || optional.stats_json(&json) != ACCEL_OK)
        return NULL;
    return json;
}

static void print_calls(void) {
    static const char *const counted[] = {
        "cuMemAlloc_v2",   "cuMemFree_v2",     "cuMemAllocAsync",     "cuMemFreeAsync",
        "cuEventRecord",   "cuCtxRecordEvent", "cuStreamWaitEvent",   "cuEventQuery",
        "cuStreamQuery",   "cuCtxSynchronize", "cuEventSynchronize",  "cuStreamSynchronize",
        "cuMemPoolTrimTo", "cuEventCreate",    "cuStreamIsCapturing", "cuLaunchKernel"};
    const char *comma = "";
    printf(", \"calls\": {");
    for (size_t i = 0; optional.calls && i < sizeof counted / sizeof *counted; i++) {
        printf("%s\"%s\": %llu", comma, counted[i], optional.calls(counted[i]));
        comma = ", ";
    }
    printf("}");
}

static void measure(bench_t *b, way_t way) {
    unsigned long long ns[MAX_PASSES];
    if (optional.empty_cache)
        optional.empty_cache();
    if (optional.reset_peak)
        optional.reset_peak(0);
    keep(b, way, true);
    b->peak_used = optional.used_memory ? optional.used_memory(0) : 0;
    b->watch = true;
    pass(b, way);
    b->watch = false;
    char *before = statistics();
    if (optional.reset_calls)
        optional.reset_calls();
    for (long i = 0; i < b->shape.passes; i++)
        ns[i] = pass(b, way);
    printf("{\"way\": \"%s\", \"ns\": [", way_names[way]);
    for (long i = 0; i < b->shape.passes; i++)
        printf("%s%llu", i ? ", " : "", ns[i]);
    printf("]");
    print_calls();
    char *after = statistics();
    printf(", \"peak_used\": %llu, \"before\": %s, \"after\": %s}\n", b->peak_used,
           before ? before : "null", after ? after : "null");
    free(before);
    free(after);
    keep(b, way, false);
}

/* ---------------------------------------------------------------- set up */

static void set_up(bench_t *b) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    MUST(cuInit(0));
    if (optional.register_kernel) {
        static const unsigned short sizes[] = {8, 8};
        static const simcuda_access_t access = {0, -1, sizeof(unsigned), 1};
        const simcuda_kernel_t kernel = {
            "multistream_spin", NULL, b->shape.kernel_us * 1000, 2, sizes, 1, &access};
        optional.register_kernel(&kernel);
    }
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, ptx));
    MUST(cuModuleGetFunction(&b->spin, module, "multistream_spin"));
    for (long s = 0; s < b->shape.streams; s++)
        MUST(cuStreamCreate(&b->stream[s], CU_STREAM_NON_BLOCKING));
}

static const struct option_row {
    const char *name;
    size_t offset;
    long least, most;
} rows[] = {
    {"streams", offsetof(shape_t, streams), 1, MAX_STREAMS},
    {"buffers", offsetof(shape_t, buffers), 1, MAX_BUFFERS},
    {"bytes", offsetof(shape_t, bytes), 4, 1L << 40},
    {"kernel-us", offsetof(shape_t, kernel_us), 0, 10000000},
    {"iterations", offsetof(shape_t, iterations), 1, 100000000},
    {"passes", offsetof(shape_t, passes), 1, MAX_PASSES},
    {"sync", offsetof(shape_t, sync), 0, 100000000},
    {"defer", offsetof(shape_t, defer), 0, 1},
};
enum { ROWS = sizeof rows / sizeof *rows };

static bool read_options(shape_t *shape, int argc, char **argv) {
    struct option options[ROWS + 1] = {{0}};
    int row;
    for (row = 0; row < ROWS; row++)
        options[row] = (struct option){rows[row].name, required_argument, NULL, row};
    while ((row = getopt_long(argc, argv, "", options, NULL)) != -1) {
        char *end;
        long value = row < ROWS ? strtol(optarg, &end, 10) : 0;
        if (row >= ROWS || *end || value < rows[row].least || value > rows[row].most)
            return false;
        memcpy((char *)shape + rows[row].offset, &value, sizeof value);
    }
    return optind == argc;
}

int main(int argc, char **argv) {
    static bench_t b = {.shape = {4, 4, 1 << 20, 20, 100, 5, 1, 0}};
    if (!read_options(&b.shape, argc, argv)) {
        fprintf(stderr, "usage: bench_multistream [OPTION VALUE...]\n");
        for (int row = 0; row < ROWS; row++)
            fprintf(stderr, "  --%s %ld..%ld\n", rows[row].name, rows[row].least, rows[row].most);
        return 2;
    }
    find_optional();
    set_up(&b);
    for (way_t way = 0; way < WAYS; way++)
        measure(&b, way);
    return 0;
}
