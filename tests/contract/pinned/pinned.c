/* Reuse of pinned memory: when a freed block serves, which requests it serves, and which blocks go back. The
 * race detector knows the owners from litmus_owners and must report nothing.
 *
 * usage: pinned_program CASE      without the library (owners alone) and with it */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { MIB = 1 << 20, LATE_NS = 2000000, VALUE = 0x1234 };

static bool kept; /* the library is here, and keeps pinned memory */
static CUcontext context;
static CUfunction late; /* takes 2 ms, then writes VALUE */
static CUstream stream;

static void *get_as(size_t bytes, int kind) {
    void *memory;
    if (kind < 0)
        MUST(cuMemAllocHost_v2(&memory, bytes));
    else
        MUST(cuMemHostAlloc(&memory, bytes, (unsigned)kind));
    return memory;
}

static void *get(size_t bytes) {
    return get_as(bytes, CU_MEMHOSTALLOC_PORTABLE);
}

static void give(void *memory) {
    MUST(cuMemFreeHost(memory));
}

static unsigned long long asked(void) {
    return simcuda_calls("cuMemHostAlloc") + simcuda_calls("cuMemAllocHost_v2");
}

static unsigned long long freed(void) {
    return simcuda_calls("cuMemFreeHost");
}

static void check(void) {
    test_library_agrees();
    /* A graph that uses freed memory is the program's own fault, so its report does not count. */
    if (simcuda_race_reports() != simcuda_race_found("freed"))
        test_stop(TEST_WRONG, "the race detector reports");
}

static CUdeviceptr device_memory(size_t bytes) {
    CUdeviceptr memory;
    MUST(cuMemAlloc_v2(&memory, bytes));
    return memory;
}

static void write_late(void *memory, CUstream on) {
    CUdeviceptr at = test_address(memory);
    unsigned value = VALUE;
    void *params[] = {&at, &value};
    MUST(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, on, params, NULL));
}

static void find_kernel(void) {
    static const unsigned short sizes[] = {8, 4};
    static const simcuda_access_t access = {0, -1, 4, 1};
    late = test_kernel(&(simcuda_kernel_t){"late", test_store, LATE_NS, 2, sizes, 1, &access});
}

/* Returns true if a request of this size and kind gets the block at `before`. */
static bool serves(const void *before, size_t bytes, int kind) {
    void *memory = get_as(bytes, kind);
    bool same = memory == before;
    memset(memory, 0, bytes);
    give(memory);
    return same;
}

static void reuse(void) {
    void *memory = get(MIB);
    memset(memory, 1, MIB);
    unsigned long long allocs = asked(), frees = freed();
    give(memory);
    for (int i = 0; i < 100; i++) {
        void *again = get(MIB);
        EXPECT(!kept || again == memory);
        give(again);
    }
    EXPECT(!kept || (asked() == allocs && freed() == frees));
    EXPECT(test_figure("pinned_cached_allocs") == 100 * kept);
    EXPECT(test_figure("num_host_alloc") == kept && test_figure("num_host_free") == 0);
}

/* The kernel delays the copy, which reads the buffer long after its free. */
static void pending(void) {
    CUdeviceptr to = device_memory(MIB), from = device_memory(MIB);
    unsigned char *memory = get(MIB), *other, back[2] = {0};
    unsigned char *result = get(2 * MIB);
    memset(memory, 0x11, MIB);
    write_late(result, stream);
    MUST(cuMemcpyHtoDAsync_v2(to, memory, MIB, stream));
    MUST(cuMemsetD8Async(from, 0x33, MIB, stream));
    MUST(cuMemcpyDtoHAsync_v2(result + MIB, from, MIB, stream));
    give(memory);
    give(result);
    other = get(MIB);
    EXPECT(!kept || other != memory);
    memset(other, 0x22, MIB);
    result = get(2 * MIB);
    memset(result, 0x22, (size_t)2 * MIB);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(&back[0], to, 1));
    MUST(cuMemcpyDtoH_v2(&back[1], to + MIB - 1, 1));
    EXPECT(back[0] == 0x11 && back[1] == 0x11);
    for (int i = 0; i < 2 * MIB; i++)
        EXPECT(result[i] == 0x22);
    EXPECT(!kept || test_figure("pinned_fenced_frees") == 2);
    MUST(cuCtxSynchronize());
    EXPECT(!kept || serves(memory, MIB, CU_MEMHOSTALLOC_PORTABLE));
}

/* The freed memory waits for work of another device. */
static void other_context(void) {
    unsigned *memory = get(MIB);
    CUcontext first = context, other = test_device(1);
    CUstream there = test_stream();
    find_kernel();
    write_late(memory, there);
    MUST(cuCtxSetCurrent(first));
    give(memory);
    EXPECT(!kept || !serves(memory, MIB, CU_MEMHOSTALLOC_PORTABLE));
    MUST(cuCtxSynchronize()); /* the owner's context: proves nothing about the other one */
    EXPECT(!kept || !serves(memory, MIB, CU_MEMHOSTALLOC_PORTABLE));
    MUST(cuCtxSetCurrent(other));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(first));
    EXPECT(!kept || serves(memory, MIB, CU_MEMHOSTALLOC_PORTABLE));
}

/* A kernel writes to mapped memory by its device address. */
static void mapped(void) {
    unsigned *memory = get_as(4096, CU_MEMHOSTALLOC_DEVICEMAP), *other;
    CUdeviceptr there;
    MUST(cuMemHostGetDevicePointer_v2(&there, memory, 0));
    write_late((void *)(uintptr_t)there, stream);
    give(memory);
    other = get_as(4096, CU_MEMHOSTALLOC_DEVICEMAP);
    *other = 7;
    MUST(cuCtxSynchronize());
    EXPECT(*other == 7);
}

/* A freed block serves no request of another function, other flags, another context or another size. */
static void keys(void) {
    void *memory[9], *there;
    CUcontext made;
    for (int kind = -1; kind < 8; kind++)
        memory[kind + 1] = get_as(MIB, kind);
    for (int kind = -1; kind < 8; kind++)
        give(memory[kind + 1]);
    MUST(cuCtxCreate_v2(&made, 0, 0));
    there = get(MIB);
    for (int kind = -1; kind < 8; kind++)
        EXPECT(!kept || there != memory[kind + 1]);
    give(there);
    MUST(cuCtxSetCurrent(context));
    for (int kind = -1; kind < 8; kind++)
        EXPECT(!kept || serves(memory[kind + 1], MIB, kind));
    EXPECT(!kept || !serves(memory[2], 2 * MIB, 1));
    MUST(cuCtxDestroy_v2(made));
}

/* Requests of one rounded size share blocks. Queries return the size of the request. */
static void rounded(void) {
    for (size_t bytes = 1; bytes < (size_t)8 * MIB; bytes = bytes * 9 / 8 + 1) {
        size_t size = 0;
        void *memory = get(bytes);
        memset(memory, 3, bytes);
        MUST(cuMemGetAddressRange_v2(NULL, &size, test_address(memory)));
        EXPECT(size == bytes);
        give(memory);
        EXPECT(!kept || serves(memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
    }
    void *memory = get(MIB + 1);
    give(memory);
    EXPECT(!kept || serves(memory, MIB + MIB / 8, CU_MEMHOSTALLOC_PORTABLE));
}

/* pinned_cache:4M */
static void limit(void) {
    void *memory[8], *large = get((size_t)6 * MIB);
    unsigned long long frees = freed();
    give(large);
    EXPECT(freed() == frees + 1);
    for (int i = 0; i < 8; i++)
        memory[i] = get(MIB);
    frees = freed();
    for (int i = 0; i < 8; i++)
        give(memory[i]);
    EXPECT(!kept || freed() == frees + 4);
    EXPECT(!kept || test_figure("pinned_trimmed_bytes") == 4 * MIB);
    EXPECT(!kept || serves(memory[7], MIB, CU_MEMHOSTALLOC_PORTABLE)); /* the newest stay */
}

/* The cache keeps at most an eighth of the host's available memory with pinned_cache:true, and at most half
 * with a larger size than the host has. The test does not touch these blocks, so they take no memory. */
static void share(void) {
    char line[128];
    unsigned long long left = 0, frees;
    FILE *file = fopen("/proc/meminfo", "r");
    NEED(file != NULL);
    while (!left && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &left) != 1)
            left = 0;
    NEED(fclose(file) == 0 && left > 0);
    bool half = strstr(getenv("ACCEL_ALLOC_CONF"), "pinned_cache:1024T") != NULL;
    void *memory = get(MIB), *large;
    if (cuMemHostAlloc(&large, (size_t)(half ? left * 3 / 4 : left / 4) << 10, 0) != CUDA_SUCCESS)
        test_stop(TEST_SKIPPED, "the machine gives no address range of that size");
    give(memory);
    frees = freed();
    give(large);
    EXPECT(freed() == frees + 1); /* too large to be kept */
    EXPECT(!kept || serves(memory, MIB, CU_MEMHOSTALLOC_PORTABLE)); /* and it displaces no other block */
}

/* The driver is out of memory. The library frees idle blocks and repeats the call. */
static void short_of_memory(void) {
    for (int kind = -1; kind < 2; kind++) {
        void *memory = get(MIB), *other = NULL;
        give(memory);
        unsigned long long frees = freed();
        NEED(simcuda_fail(kind < 0 ? "cuMemAllocHost_v2@1=2" : "cuMemHostAlloc@1=2") == 0);
        CUresult result = kind < 0 ? cuMemAllocHost_v2(&other, (size_t)3 * MIB)
                                   : cuMemHostAlloc(&other, (size_t)3 * MIB, (unsigned)kind);
        if (kept) {
            EXPECT(result == CUDA_SUCCESS && freed() >= frees + 1);
            give(other);
        } else {
            EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    void *other;
    EXPECT(cuMemHostAlloc(&other, (size_t)1 << 50, 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* The driver is out of memory while freed blocks wait for work. */
static void short_pending(void) {
    void *memory = get(MIB), *other = NULL;
    write_late(memory, stream);
    unsigned long long frees = freed();
    if (!kept)
        return;
    give(memory);
    EXPECT(freed() == frees);
    NEED(simcuda_fail("cuMemHostAlloc@1=2") == 0);
    EXPECT(cuMemHostAlloc(&other, (size_t)3 * MIB, 0) == CUDA_SUCCESS);
    EXPECT(freed() == frees + 1);
    give(other);
}

/* Another call of the driver is out of memory. The library frees idle blocks and repeats it. */
static void other_call(void) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle page;
    void *memory = get(MIB);
    unsigned long long frees;
    give(memory);
    frees = freed();
    NEED(simcuda_fail("cuMemCreate@1=2") == 0);
    CUresult result = cuMemCreate(&page, (size_t)2 * MIB, &prop, 0);
    EXPECT(result == (kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT(freed() == frees + kept);
    /* No idle block is left: the program gets the driver's answer. */
    NEED(simcuda_fail("cuMemCreate@1=2") == 0);
    EXPECT(cuMemCreate(&page, (size_t)2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* A context's memory ends with it, idle blocks and held blocks alike. */
static void context_ends(void) {
    for (int i = 0; i < 40; i++) {
        CUcontext made;
        MUST(cuCtxCreate_v2(&made, 0, i % 2));
        void *idle = get(MIB), *held = get((size_t)2 * MIB), *busy = get((size_t)3 * MIB);
        CUstream there = test_stream();
        find_kernel();
        memset(held, 1, MIB);
        give(idle);
        write_late(busy, there);
        give(busy);
        unsigned long long frees = freed();
        simcuda_owner_end(test_address(held));
        MUST(cuCtxDestroy_v2(made));
        EXPECT(!kept || freed() == frees);
        MUST(cuCtxSetCurrent(context));
        EXPECT(cuMemFreeHost(held) == CUDA_ERROR_INVALID_VALUE);
        check();
    }
    EXPECT(!kept || test_figure("allocations") == 0);
    if (!kept)
        return; /* a free of the driver does not wait for another device */
    /* Work of this context still reads memory of the one that ends. */
    CUcontext made;
    CUdeviceptr to = device_memory(MIB);
    MUST(cuCtxCreate_v2(&made, 0, 1));
    void *theirs = get(MIB);
    MUST(cuCtxSetCurrent(context));
    find_kernel();
    void *result = get(4096);
    write_late(result, stream);
    MUST(cuMemcpyHtoDAsync_v2(to, theirs, MIB, stream));
    give(theirs);
    MUST(cuCtxSetCurrent(made));
    MUST(cuCtxDestroy_v2(made));
    MUST(cuCtxSetCurrent(context));
    MUST(cuCtxSynchronize());
}

static void reset(void) {
    for (int i = 0; i < 5; i++) {
        void *idle = get(MIB), *held = get((size_t)2 * MIB);
        memset(held, 1, MIB);
        give(idle);
        simcuda_owner_end(test_address(held));
        MUST(cuDevicePrimaryCtxReset_v2(0));
        context = test_device(0);
        EXPECT(cuMemFreeHost(held) == CUDA_ERROR_INVALID_VALUE);
        check();
    }
}

/* idle_trim_ms:50 */
static void idle(void) {
    void *memory = get(MIB);
    unsigned long long frees = freed();
    write_late(memory, stream);
    give(memory);
    for (int i = 0; kept && freed() == frees; i++) {
        NEED(i < 1000);
        usleep(10000);
    }
    EXPECT(freed() == frees + 1);
    EXPECT(!kept || test_figure("pinned_trimmed_bytes") == MIB);
}

static void empty(void) {
    int (*empty_cache)(void) = NULL;
    void *memory = get(MIB), *busy = get((size_t)2 * MIB);
    write_late(busy, stream);
    give(memory);
    unsigned long long frees = freed();
    if (!test_find("accel_empty_cache", &empty_cache))
        return;
    give(busy);
    MUST(empty_cache());
    EXPECT(freed() == frees + 2);
    EXPECT(test_figure("num_host_free") == 2);
}

/* The driver keeps state for this block, so the library frees the block. */
static void tainted(void) {
    const unsigned on = 1;
    void *memory = get(MIB);
    unsigned long long frees = freed();
    MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, test_address(memory)));
    give(memory);
    EXPECT(freed() == frees + 1);
}

static void plain_free(void) {
    void *memory = get(MIB);
    EXPECT(cuMemFree_v2(test_address(memory)) == CUDA_ERROR_INVALID_VALUE);
    give(memory);
    EXPECT(cuMemFree_v2(test_address(memory)) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFreeHost(memory) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(!kept || serves(memory, MIB, CU_MEMHOSTALLOC_PORTABLE));
}

/* Memory freed during a capture is kept for the graph, until the last graph has gone. */
static void captured(void) {
    CUgraph graph;
    CUgraphExec exec;
    unsigned *memory = get(MIB), *other;
    if (!kept)
        return; /* the driver frees it although the graph uses it */
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    write_late(memory, stream);
    give(memory);
    MUST(cuStreamEndCapture(stream, &graph));
    EXPECT(test_figure("pinned_deferred_frees") == 1);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphDestroy(graph));
    other = get(MIB);
    *other = 7;
    EXPECT(other != memory);
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuCtxSynchronize());
    EXPECT(*other == 7);
    give(other);
    MUST(cuGraphLaunch(exec, stream));
    MUST(cuGraphExecDestroy(exec)); /* the launch still runs */
    for (int i = 0; i < 2; i++) {
        void *some[4];
        for (int k = 0; k < 4; k++)
            some[k] = get(MIB);
        bool again = false;
        for (int k = 0; k < 4; k++) {
            again |= some[k] == (void *)memory;
            give(some[k]);
        }
        EXPECT(again == (i == 1));
        MUST(cuCtxSynchronize());
    }
}

/* The context fails: the driver answers its frees and requests. */
static void sticky(void) {
    void *memory = get(MIB), *other = get(MIB);
    CUresult result;
    give(memory);
    simcuda_sticky(1);
    write_late(other, stream);
    EXPECT(cuCtxSynchronize() != CUDA_SUCCESS);
    result = cuMemHostAlloc(&memory, MIB, CU_MEMHOSTALLOC_PORTABLE);
    EXPECT(result == CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cuMemFreeHost(other) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A child asks nothing of the parent's cache. */
static void forked(void) {
    void *memory = get(MIB);
    int status;
    give(memory);
    pid_t child = fork();
    if (!child) {
        void *other = NULL;
        CUresult result = cuMemHostAlloc(&other, MIB, CU_MEMHOSTALLOC_PORTABLE);
        _exit(result == CUDA_SUCCESS || cuMemFreeHost(memory) == CUDA_SUCCESS);
    }
    NEED(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(!kept || serves(memory, MIB, CU_MEMHOSTALLOC_PORTABLE));
}

/* free_sync:true */
static void synchronous(void) {
    unsigned *memory = get(4096), *result = get(4096);
    *result = 0;
    write_late(result, stream);
    give(memory);
    EXPECT(*result == VALUE);
}

enum { THREADS = 6, TURNS = 300, HELD = 8 };

/* Each thread fills its blocks and checks them later. Pending work still reads a block when the thread frees
 * it. */
static void *churn(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg;
    unsigned char *block[HELD] = {NULL}, mark = (unsigned char)(seed + 1);
    size_t bytes[HELD] = {0};
    CUdeviceptr sink;
    CUstream mine;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&mine, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&sink, MIB));
    for (int i = 0; i < TURNS; i++) {
        int at = rand_r(&seed) % HELD;
        if (block[at]) {
            EXPECT(block[at][0] == mark && block[at][bytes[at] - 1] == mark);
            MUST(cuMemcpyHtoDAsync_v2(sink, block[at], bytes[at], mine));
            give(block[at]);
            block[at] = NULL;
        } else {
            bytes[at] = (size_t)1024 << rand_r(&seed) % 8;
            block[at] = get_as(bytes[at], rand_r(&seed) % 2);
            memset(block[at], mark, bytes[at]);
        }
    }
    MUST(cuStreamSynchronize(mine));
    for (int at = 0; at < HELD; at++)
        if (block[at])
            give(block[at]);
    MUST(cuMemFree_v2(sink));
    MUST(cuStreamDestroy_v2(mine));
    return NULL;
}

static void threads(void) {
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&thread[i], NULL, churn, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        NEED(pthread_join(thread[i], NULL) == 0);
}

/* After exit began, the library makes only the driver calls that the program makes. The test registers its
 * handler before CUDA, so that it runs last. */
static void *until_exit;
static unsigned long long calls_before;

static void at_exit(void) {
    if (!until_exit)
        return;
    calls_before = simcuda_calls_total();
    if (cuMemFreeHost(until_exit) != CUDA_SUCCESS || simcuda_calls_total() != calls_before + 1)
        test_stop(TEST_WRONG, "after exit began the driver was asked");
}

static void leaving(void) {
    void *memory = get(MIB);
    until_exit = get(MIB);
    give(memory);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"reuse", reuse},
             {"pending", pending},
             {"other_context", other_context},
             {"mapped", mapped},
             {"keys", keys},
             {"rounded", rounded},
             {"limit", limit},
             {"share", share},
             {"short", short_of_memory},
             {"short_pending", short_pending},
             {"other_call", other_call},
             {"context", context_ends},
             {"reset", reset},
             {"idle", idle},
             {"empty", empty},
             {"tainted", tainted},
             {"plain_free", plain_free},
             {"captured", captured},
             {"sticky", sticky},
             {"forked", forked},
             {"synchronous", synchronous},
             {"threads", threads},
             {"leaving", leaving}};

int main(int argc, char **argv) {
    test_title = argc > 1 ? argv[1] : "";
    NEED(atexit(at_exit) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(test_title, cases[i].name) != 0)
            continue;
        kept = test_library_is_here();
        context = test_device(0);
        stream = test_stream();
        find_kernel();
        cases[i].run();
        check();
        return TEST_GOOD;
    }
    fprintf(stderr, "usage: pinned_program CASE\n");
    return TEST_USAGE;
}
