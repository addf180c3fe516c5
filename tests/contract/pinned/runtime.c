/* Pinned memory through the runtime's functions. The library serves kept blocks without the runtime
 * if it knows which driver call the runtime would make. The answers must be the runtime's.
 *
 * usage: pinned_runtime CASE      without the library (owners alone) and with it */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime_min.h"

#include "harness.h"

enum { MIB = 1 << 20, VALUE = 0x5678 };

static bool kept; /* the library is here, and keeps pinned memory */

static void right(cudaError_t error) {
    NEED(error == cudaSuccess);
}

static unsigned flags_of(void *memory) {
    unsigned flags = 99;
    MUST(cuMemHostGetFlags(&flags, memory));
    return flags;
}

static int device_of(const void *memory) {
    int device = -1;
    MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                               test_address(memory)));
    return device;
}

/* Requests memory by cudaMallocHost (0), or by cudaHostAlloc with no flags, portable, mapped or
 * write-combined. */
static void *get(unsigned how, size_t bytes) {
    void *memory = NULL;
    right(how ? cudaHostAlloc(&memory, bytes, how == 1 ? 0 : 1u << (how - 2))
              : cudaMallocHost(&memory, bytes));
    return memory;
}
enum { WAYS = 5 };

static void give(void *memory) {
    right(cudaFreeHost(memory));
}

/* Requests and frees of kept blocks do not reach the runtime. */
static void direct(void) {
    unsigned flags[WAYS];
    for (unsigned how = 0; how < WAYS; how++) {
        void *memory = get(how, MIB);
        flags[how] = flags_of(memory);
        give(memory);
    }
    long long forwarded = test_figure("runtime_forwarded"),
              hits = test_figure("pinned_cached_allocs");
    for (int round = 0; round < 10; round++)
        for (unsigned how = 0; how < WAYS; how++) {
            void *memory = get(how, MIB);
            memset(memory, round, MIB);
            EXPECT(flags_of(memory) == flags[how]);
            give(memory);
        }
    if (!kept)
        return;
    EXPECT(test_figure("runtime_forwarded") == forwarded);
    EXPECT(test_figure("pinned_cached_allocs") == hits + 10 * WAYS);
}

/* The program changes the device by the runtime and by the driver. It gets memory of the current
 * context. */
static void devices(void) {
    CUcontext there, here;
    MUST(cuCtxGetCurrent(&here));
    right(cudaSetDevice(1));
    give(get(1, MIB));
    MUST(cuCtxGetCurrent(&there));
    for (int round = 0; round < 8; round++) {
        if (round % 4 < 2)
            right(cudaSetDevice(round % 2));
        else
            MUST(cuCtxSetCurrent(round % 2 ? there : here));
        void *one = get(1, MIB), *other = get(0, MIB);
        EXPECT(device_of(one) == round % 2 && device_of(other) == round % 2);
        give(one);
        give(other);
        one = get(1, MIB);
        EXPECT(device_of(one) == round % 2);
        give(one);
    }
}

/* Calls that the runtime refuses, and the error that it reports later. */
static void refusals(void) {
    void *memory = get(1, MIB), *again;
    give(memory);
    memory = get(1, MIB);
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaHostAlloc(NULL, MIB, 0) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaHostAlloc(&again, MIB, 77) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    right(cudaHostAlloc(&again, 0, 0));
    EXPECT(!again);
    right(cudaFreeHost(NULL));
    EXPECT(cudaFreeHost((char *)memory + 512) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    give(memory);
    EXPECT(cudaFreeHost(memory) == cudaErrorInvalidValue);
    give(get(1, MIB)); /* this does not clear the error */
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaSuccess);
}

/* A copy that is under way keeps its buffer. */
static void pending(void) {
    static const simcuda_access_t writes = {
        .param = 0, .count_param = -1, .bytes = 4, .writes = 1};
    static const simcuda_kernel_t slow = {.name = "slow",
                                          .duration_ns = 2000000,
                                          .param_count = 1,
                                          .access_count = 1,
                                          .access = &writes};
    CUfunction kernel = test_kernel(&slow);
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    give(get(1, MIB));
    for (int round = 0; round < 4; round++) {
        void *memory = get(1, MIB);
        void *params[] = {&memory};
        MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
        give(memory);
        unsigned *next = get(1, MIB);
        *next = VALUE;
        if (kept)
            EXPECT((void *)next != memory);
        MUST(cuStreamSynchronize(stream));
        EXPECT(*next == VALUE);
        give(next);
    }
    MUST(cuStreamDestroy_v2(stream));
}

static void *frees(void *memory) {
    give(memory);
    for (int i = 0; i < 100; i++) {
        void *mine = get(1, 4096);
        memset(mine, i, 4096);
        give(mine);
    }
    return NULL;
}

/* Each thread gets the fast path by itself. Its first free is of another thread's memory. */
static void threads(void) {
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        NEED(pthread_create(&thread[i], NULL, frees, get(1, MIB)) == 0);
    for (int i = 0; i < 100; i++)
        give(get(0, 4096));
    for (int i = 0; i < 4; i++)
        NEED(pthread_join(thread[i], NULL) == 0);
}

/* The cache has reached its limit, so the driver serves more requests. */
static void leaving(void) {
    void *block[8];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++)
            block[i] = get(1, MIB);
        for (int i = 0; i < 8; i++)
            give(block[i]);
    }
    if (kept)
        EXPECT(test_figure("pinned_cached_allocs") > 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"direct", direct},   {"devices", devices}, {"refusals", refusals},
             {"pending", pending}, {"threads", threads}, {"leaving", leaving}};

int main(int argc, char **argv) {
    const char *conf = getenv("ACCEL_ALLOC_CONF");
    kept = test_library_is_here() && conf && strstr(conf, "pinned_cache:");
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            right(cudaSetDevice(0));
            right(cudaFree(NULL));
            cases[i].run();
            test_library_agrees();
            EXPECT(simcuda_race_reports() == 0);
            return 0;
        }
    fprintf(stderr, "usage: pinned_runtime CASE\n");
    return TEST_USAGE;
}
