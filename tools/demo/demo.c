/* The demonstration: a small signal-processing service, written the way many CUDA programs are.
 *
 * In every iteration each of several streams gets a batch of another length.  The program allocates
 * its temporaries, copies two vectors in, launches three kernels, copies the result out and frees
 * everything.  Nothing in it knows of the cache.  It opens libcuda.so.1 itself and brings its
 * kernels as PTX, so it needs no toolkit and runs on a GPU or the simulated device.  Memory comes
 * through the driver API (demo) or the CUDA runtime (demo_rt): memory.h.
 *
 * It checks itself: it compares every sum with the host's.  A buffer that is handed out while a
 * kernel still uses it produces a wrong result.  tools/quickstart reads the --json form. */
#include <dlfcn.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda_abi.h"
#include "kernels.h"
#include "memory.h"

enum {
    MAX_STREAMS = 64,
    MAX_FLOATS = 16384, /* longest batch: 64 KiB a vector */
    PATTERNS = 8,       /* different inputs, made once */
    STRIPES = 256,      /* partial sums that come back */
    TEMPORARIES = 8,
};

/* The part of the driver API that the program calls, found by dlsym as in real programs. */
#define DRIVER_FUNCTIONS(X)                                                                      \
    X(cuInit)                                                                                    \
    X(cuGetErrorName)                                                                            \
    X(cuDeviceGet)                                                                               \
    X(cuDeviceGetName)                                                                           \
    X(cuDevicePrimaryCtxRetain)                                                                  \
    X(cuDevicePrimaryCtxRelease_v2)                                                              \
    X(cuCtxSetCurrent)                                                                           \
    X(cuCtxSynchronize)                                                                          \
    X(cuModuleLoadData)                                                                          \
    X(cuModuleGetFunction)                                                                       \
    X(cuModuleUnload)                                                                            \
    X(cuStreamCreate)                                                                            \
    X(cuStreamSynchronize)                                                                       \
    X(cuStreamDestroy_v2)                                                                        \
    X(cuMemHostAlloc)                                                                            \
    X(cuMemFreeHost)                                                                             \
    X(cuLaunchKernel)

static struct {
#define X(symbol) symbol##_fn *symbol;
    DRIVER_FUNCTIONS(X)
#undef X
} cu;

typedef struct {
    CUstream stream;
    float *sums; /* page-locked, STRIPES floats */
    double expected;
} worker_t;

typedef struct {
    unsigned iterations, streams;
    int json, probe;
} options_t;

typedef struct {
    CUcontext context;
    CUdevice device;
    CUmodule module;
    CUfunction saxpy, product, stripes;
    float *x, *y;     /* page-locked, PATTERNS * MAX_FLOATS each */
    double *prefixes; /* prefixes[p][n]: sum of pattern p at length n */
    worker_t workers[MAX_STREAMS];
    char name[128];
    int simulated;

    uint64_t pairs;       /* allocations made, each freed again */
    double alloc_seconds; /* inside allocations */
    double free_seconds;  /* inside frees */
    uint64_t checksum, wrong;
} demo_t;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS)
        return;
    const char *name = NULL;
    if (cu.cuGetErrorName)
        cu.cuGetErrorName(result, &name);
    fprintf(stderr, "demo: %s: %s (%u)\n", what, name ? name : "unknown error", result);
    exit(1);
}

static int driver_open(demo_t *demo) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "demo: no CUDA driver here: %s\n", dlerror());
        return -1;
    }
    void *symbol;
#define X(name)                                                                                  \
    symbol = dlsym(library, #name);                                                              \
    if (!symbol) {                                                                               \
        fprintf(stderr, "demo: the driver has no %s\n", #name);                                  \
        return -1;                                                                               \
    }                                                                                            \
    memcpy(&cu.name, &symbol, sizeof(symbol));
    DRIVER_FUNCTIONS(X)
#undef X
    const char *missing = demo_memory_open(library);
    if (missing) {
        fprintf(stderr, "demo: the driver has no %s\n", missing);
        return -1;
    }
    demo_host_fn *host_address;
    symbol = dlsym(library, "simcuda_host");
    demo->simulated = symbol != NULL;
    memcpy(&host_address, &symbol, sizeof(symbol));
    demo_kernels_on_host(host_address);
    return 0;
}

static int device_open(demo_t *demo) {
    CUresult result = cu.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cu.cuDeviceGet(&demo->device, 0);
    if (result == CUDA_SUCCESS)
        result = cu.cuDeviceGetName(demo->name, sizeof(demo->name), demo->device);
    if (result != CUDA_SUCCESS)
        fprintf(stderr, "demo: no usable CUDA device (error %u)\n", result);
    return result == CUDA_SUCCESS ? 0 : -1;
}

/* Makes inputs of small whole numbers.  Sums stay exact in float, so that == compares results. */
static void inputs_make(demo_t *demo) {
    size_t count = (size_t)PATTERNS * MAX_FLOATS;
    void *memory;
    must(cu.cuMemHostAlloc(&memory, count * sizeof(float), 0), "cuMemHostAlloc");
    demo->x = memory;
    must(cu.cuMemHostAlloc(&memory, count * sizeof(float), 0), "cuMemHostAlloc");
    demo->y = memory;
    demo->prefixes = calloc(PATTERNS * (MAX_FLOATS + 1), sizeof(double));
    if (!demo->prefixes)
        must(CUDA_ERROR_OUT_OF_MEMORY, "host memory");
    for (size_t p = 0; p < PATTERNS; p++) {
        double *prefix = demo->prefixes + p * (MAX_FLOATS + 1);
        for (size_t i = 0; i < MAX_FLOATS; i++) {
            float x = (float)((i + p) % 7), y = (float)((3 * i + p) % 5);
            demo->x[p * MAX_FLOATS + i] = x;
            demo->y[p * MAX_FLOATS + i] = y;
            prefix[i + 1] = prefix[i] + (double)((2 * x + y) * x);
        }
    }
}

static void setup(demo_t *demo, const options_t *options) {
    must(cu.cuDevicePrimaryCtxRetain(&demo->context, demo->device), "cuDevicePrimaryCtxRetain");
    must(cu.cuCtxSetCurrent(demo->context), "cuCtxSetCurrent");
    must(cu.cuModuleLoadData(&demo->module, demo_ptx), "cuModuleLoadData");
    must(cu.cuModuleGetFunction(&demo->saxpy, demo->module, "saxpy"), "saxpy");
    must(cu.cuModuleGetFunction(&demo->product, demo->module, "product"), "product");
    must(cu.cuModuleGetFunction(&demo->stripes, demo->module, "stripes"), "stripes");
    inputs_make(demo);
    for (unsigned s = 0; s < options->streams; s++) {
        void *memory;
        must(cu.cuStreamCreate(&demo->workers[s].stream, CU_STREAM_NON_BLOCKING),
             "cuStreamCreate");
        must(cu.cuMemHostAlloc(&memory, STRIPES * sizeof(float), 0), "cuMemHostAlloc");
        demo->workers[s].sums = memory;
    }
}

static void teardown(demo_t *demo, const options_t *options) {
    for (unsigned s = 0; s < options->streams; s++) {
        must(cu.cuStreamDestroy_v2(demo->workers[s].stream), "cuStreamDestroy");
        must(cu.cuMemFreeHost(demo->workers[s].sums), "cuMemFreeHost");
    }
    must(cu.cuMemFreeHost(demo->x), "cuMemFreeHost");
    must(cu.cuMemFreeHost(demo->y), "cuMemFreeHost");
    free(demo->prefixes);
    must(cu.cuModuleUnload(demo->module), "cuModuleUnload");
    must(cu.cuDevicePrimaryCtxRelease_v2(demo->device), "cuDevicePrimaryCtxRelease");
}

/* Draws the same numbers in every run.  Sizes vary like the batches of a real service. */
static uint32_t draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Runs one batch, with every call that a program without a cache makes. */
static void batch_run(demo_t *demo, worker_t *worker, uint32_t *random) {
    unsigned n = 2048 + draw(random) % (MAX_FLOATS - 2048 + 1);
    unsigned pattern = draw(random) % PATTERNS;
    size_t vector = n * sizeof(float), workspace = (size_t)(1 + draw(random) % 8) << 20;
    CUstream stream = worker->stream;

    /* Two inputs, two intermediate vectors, stripes, two work areas of a size that libraries use,
     * and one small record. */
    size_t sizes[TEMPORARIES] = {
        vector, vector, vector, vector, STRIPES * sizeof(float), workspace, workspace / 4, 256};
    CUdeviceptr block[TEMPORARIES];
    double start = now();
    for (int i = 0; i < TEMPORARIES; i++)
        must(demo_memory_alloc(&block[i], sizes[i]), "allocation");
    demo->alloc_seconds += now() - start;
    demo->pairs += TEMPORARIES;
    CUdeviceptr x = block[0], y = block[1], u = block[2], v = block[3], sums = block[4];

    size_t first = (size_t)pattern * MAX_FLOATS;
    must(demo_memory_copy_in(x, demo->x + first, vector, stream), "copy in");
    must(demo_memory_copy_in(y, demo->y + first, vector, stream), "copy in");
    unsigned blocks = (n + 255) / 256;
    float a = 2;
    void *saxpy[] = {&n, &a, &x, &y, &u};
    must(cu.cuLaunchKernel(demo->saxpy, blocks, 1, 1, 256, 1, 1, 0, stream, saxpy, NULL),
         "saxpy");
    void *product[] = {&n, &u, &x, &v};
    must(cu.cuLaunchKernel(demo->product, blocks, 1, 1, 256, 1, 1, 0, stream, product, NULL),
         "product");
    void *stripes[] = {&n, &v, &sums};
    must(cu.cuLaunchKernel(demo->stripes, 1, 1, 1, STRIPES, 1, 1, 0, stream, stripes, NULL),
         "stripes");
    must(demo_memory_copy_out(worker->sums, sums, STRIPES * sizeof(float), stream), "copy out");
    worker->expected = demo->prefixes[(size_t)pattern * (MAX_FLOATS + 1) + n];

    start = now();
    for (int i = 0; i < TEMPORARIES; i++)
        must(demo_memory_free(block[i]), "free");
    demo->free_seconds += now() - start;
}

static void batch_check(demo_t *demo, const worker_t *worker) {
    double sum = 0;
    for (int i = 0; i < STRIPES; i++)
        sum += worker->sums[i];
    if (sum != worker->expected)
        demo->wrong++;
    demo->checksum = demo->checksum * 31 + (uint64_t)sum;
}

static void run(demo_t *demo, const options_t *options) {
    uint32_t random = 1;
    for (unsigned i = 0; i < options->iterations; i++) {
        for (unsigned s = 0; s < options->streams; s++)
            batch_run(demo, &demo->workers[s], &random);
        for (unsigned s = 0; s < options->streams; s++) {
            must(cu.cuStreamSynchronize(demo->workers[s].stream), "cuStreamSynchronize");
            batch_check(demo, &demo->workers[s]);
        }
    }
}

static void report(const demo_t *demo, const options_t *options, double seconds) {
    const char *mark = demo->simulated ? " (simulated)" : "";
    if (options->json) {
        printf("{\"device\": \"%s\", \"api\": \"%s\", \"simulated\": %s, \"iterations\": %u, "
               "\"streams\": %u, "
               "\"seconds\": %.6f, \"iterations_per_second\": %.3f, \"pairs\": %" PRIu64 ", "
               "\"alloc_seconds\": %.6f, \"free_seconds\": %.6f, "
               "\"checksum\": \"%016" PRIx64 "\", \"wrong\": %" PRIu64 "}\n",
               demo->name, demo_memory_api, demo->simulated ? "true" : "false",
               options->iterations, options->streams, seconds, options->iterations / seconds,
               demo->pairs, demo->alloc_seconds, demo->free_seconds, demo->checksum, demo->wrong);
        return;
    }
    printf("device                %s, %s%s\n", demo->name, demo_memory_api, mark);
    fflush(stdout);
    /* Times differ from run to run.  They go to stderr, so that the output can be compared. */
    fprintf(stderr, "iterations/s          %.1f%s\n", options->iterations / seconds, mark);
    fprintf(stderr, "allocating            %.3f s%s\n", demo->alloc_seconds, mark);
    fprintf(stderr, "freeing               %.3f s%s\n", demo->free_seconds, mark);
    printf("checksum              %016" PRIx64 "\n", demo->checksum);
    printf("wrong results         %" PRIu64 "\n", demo->wrong);
}

static unsigned number(const char *text, unsigned least, unsigned most, const char *option) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || end == text || value < least || value > most) {
        fprintf(stderr, "demo: --%s takes a number from %u to %u, not \"%s\"\n", option, least,
                most, text);
        exit(2);
    }
    return (unsigned)value;
}

static const char usage[] = "usage: demo [--iterations N] [--streams N] [--json]\n"
                            "       demo --probe     is there a CUDA device? its name; else 1\n"
                            "\n"
                            "  --iterations N  batches per stream (500)\n"
                            "  --streams N     streams (4)\n"
                            "  --json          one JSON object instead of text\n";

static options_t options_read(int argc, char **argv) {
    static const struct option known[] = {{"iterations", required_argument, NULL, 'i'},
                                          {"streams", required_argument, NULL, 's'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"probe", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    options_t options = {.iterations = 500, .streams = 4};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (c == 'i')
            options.iterations = number(optarg, 1, 100000000, "iterations");
        else if (c == 's')
            options.streams = number(optarg, 1, MAX_STREAMS, "streams");
        else if (c == 'j')
            options.json = 1;
        else if (c == 'q')
            options.probe = 1;
        else {
            fputs(usage, c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
    }
    return options;
}

int main(int argc, char **argv) {
    static demo_t demo;
    options_t options = options_read(argc, argv);
    if (driver_open(&demo) || device_open(&demo))
        return 1;
    if (options.probe) {
        puts(demo.name);
        return 0;
    }
    setup(&demo, &options);
    double start = now();
    run(&demo, &options);
    double seconds = now() - start;
    must(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    report(&demo, &options, seconds);
    teardown(&demo, &options);
    return demo.wrong ? 1 : 0;
}
