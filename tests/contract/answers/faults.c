/* One scenario, repeated for every driver call that it makes, directly or through the library,
 * with that call failing.
 *
 * usage: faults [FUNCTION [N]]
 *
 * FUNCTION is each hooked function and each function of driver.def; N is 1, 2, ... until the
 * scenario makes no Nth call. If there are hundreds of calls, N grows in larger steps. A child
 * runs the scenario under fail:FUNCTION@N.
 *
 * It must not crash or hang, must keep the contents of its memory, and must leave no addresses or
 * pages. It may see the failure only in its own call of FUNCTION, with the injected code. If the
 * library can return memory and repeat the call, the program must not see a single "out of
 * memory" at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "answers.h"

static const char *const functions[] = {
#define HOOK_DRIVER(symbol) #symbol,
#include "bind/hooks.def"
#define DRIVER(symbol, need) #symbol,
#include "device/driver.def"
};

enum { STEPS = 1024, SKIPPED = -1, BLOCKS = 16, CHECKED = 4096, MANY = 100, POSITIONS = 50 };

/* Result of a run, for the parent. */
typedef struct {
    struct {
        const char *symbol; /* valid in the parent, too: it is the same program, and its literals
                               have the same addresses */
        int result;
        int line;
    } step[STEPS];
    unsigned steps;
    unsigned long long calls[512]; /* by number of the function */
    unsigned wrong_bytes;
    unsigned long long left; /* reservations, mappings and pages */
    bool whole;
} trace_t;

static trace_t *trace;

static bool note(const char *symbol, int line, bool possible, CUresult result) {
    if (trace->steps < STEPS) {
        trace->step[trace->steps].symbol = symbol;
        trace->step[trace->steps].result = possible ? (int)result : SKIPPED;
        trace->step[trace->steps].line = line;
        trace->steps++;
    }
    return possible && result == CUDA_SUCCESS;
}

/* Makes the call if `needs` is true. Returns true if the call succeeded. */
#define STEP(needs, symbol, ...)     STEP_CALL(needs, #symbol, symbol(__VA_ARGS__))
#define STEP_CALL(needs, name, call) note(name, __LINE__, needs, (needs) ? (call) : CUDA_SUCCESS)

typedef struct {
    CUdeviceptr address;
    size_t bytes;
    unsigned char value;
    bool there, filled;
} held_t;

static held_t held[BLOCKS];
static CUstream stream[3];
static bool stream_there[3];
static bool current;
static unsigned char next_value = 1;

static void get(unsigned i, size_t bytes) {
    held[i] = (held_t){.bytes = bytes, .value = next_value++};
    held[i].there = STEP(current, cuMemAlloc_v2, &held[i].address, bytes);
}

static void fill(unsigned i, unsigned on) {
    held[i].filled = STEP(held[i].there && stream_there[on], cuMemsetD8Async, held[i].address,
                          held[i].value, held[i].bytes, stream[on]);
}

static void give(unsigned i) {
    STEP(held[i].there, cuMemFree_v2, held[i].address);
    held[i].there = held[i].filled = false;
}

/* Counts bytes that differ from the written ones, at both ends of each block. */
static void verify(void) {
    static unsigned char bytes[CHECKED];
    if (!STEP_CALL(current, "cuCtxSynchronize", cuCtxSynchronize()))
        return;
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t part = held[i].bytes < CHECKED ? held[i].bytes : CHECKED;
        for (int end = 0; end < 2; end++) {
            if (!STEP(held[i].filled, cuMemcpyDtoH_v2, bytes,
                      held[i].address + (end ? held[i].bytes - part : 0), part))
                continue;
            for (size_t b = 0; b < part; b++)
                trace->wrong_bytes += bytes[b] != held[i].value;
        }
    }
}

static void pressure(void) {
    CUdeviceptr many[12];
    bool there[12];
    /* The position of the small blocks decides how many fit beyond the first four. */
    for (unsigned i = 0; i < 12; i++)
        there[i] = i < 4 ? STEP(current, cuMemAlloc_v2, &many[i], 40 * MIB)
                         : current && cuMemAlloc_v2(&many[i], 40 * MIB) == CUDA_SUCCESS;
    for (unsigned i = 0; i < 12; i++)
        if (i < 4)
            STEP(there[i], cuMemFree_v2, many[i]);
        else if (there[i])
            cuMemFree_v2(many[i]);
    there[0] = STEP(current, cuMemAlloc_v2, &many[0], 100 * MIB);
    STEP(there[0], cuMemFree_v2, many[0]);
}

static void graph(void) {
    CUgraph captured = NULL;
    CUgraphExec exec = NULL;
    bool begun =
        STEP(stream_there[1], cuStreamBeginCapture_v2, stream[1], CU_STREAM_CAPTURE_MODE_RELAXED);
    if (begun)
        fill(2, 1);
    give(3);
    get(3, MIB);
    bool made = STEP(begun, cuStreamEndCapture, stream[1], &captured);
    bool ready = STEP(made, cuGraphInstantiateWithFlags, &exec, captured, 0);
    held[2].filled = STEP(ready, cuGraphLaunch, exec, stream[1]) && held[2].there;
    fill(3, 0);
}

static void second_context(void) {
    CUcontext made, popped;
    CUdeviceptr pointer;
    bool there = STEP(current, cuCtxCreate_v2, &made, 0, 0);
    bool got = STEP(there, cuMemAlloc_v2, &pointer, 3 * MIB);
    STEP(got, cuMemsetD8_v2, pointer, 9, 3 * MIB);
    bool back = STEP(there, cuCtxPopCurrent_v2, &popped);
    give(4); /* of the first context */
    if (got)
        STEP(back, cuMemFree_v2, pointer);
    STEP(there, cuCtxDestroy_v2, made);
}

static void scenario(void) {
    static const size_t size[BLOCKS] = {100, 4096, MIB / 4, MIB / 2, 70000,   MIB / 2, 1000, MIB,
                                        MIB, 512,  65536,   3 * MIB, MIB / 4, MIB / 4, 200,  200};
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUevent event;
    CUarray array;
    CUdeviceptr pooled;
    size_t room, total;
    CUDA_ARRAY_DESCRIPTOR shape = {
        .Width = 64, .Height = 4, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    bool init = STEP(true, cuInit, 0);
    bool retained = STEP(init, cuDevicePrimaryCtxRetain, &context, 0);
    current = STEP(retained, cuCtxSetCurrent, context);
    bool loaded = STEP(current, cuModuleLoadData, &module, "stand-in");
    bool found = STEP(loaded, cuModuleGetFunction, &function, module, "anything");
    bool timed = STEP(current, cuEventCreate, &event, 0);
    for (unsigned i = 0; i < 3; i++)
        stream_there[i] = STEP(current, cuStreamCreate, &stream[i], CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < BLOCKS; i++) {
        get(i, size[i]);
        fill(i, i % 3);
    }
    verify();
    STEP(found && stream_there[0], cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream[0], NULL,
         NULL);
    for (unsigned i = 0; i < BLOCKS; i += 2)
        give(i);
    STEP(timed && stream_there[0], cuEventRecord, event, stream[0]);
    STEP(timed && stream_there[1], cuStreamWaitEvent, stream[1], event, 0);
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        get(i, size[BLOCKS - 1 - i]);
        fill(i, 1);
    }
    STEP(stream_there[1], cuStreamSynchronize, stream[1]);
    verify();
    pressure();
    graph();
    verify();
    STEP(found && stream_there[2], cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream[2], NULL,
         NULL);
    give(5);
    STEP(stream_there[2], cuStreamDestroy_v2, stream[2]);
    stream_there[2] = false;
    get(5, MIB);
    fill(5, 0);
    second_context();
    STEP(current, cuArrayCreate_v2, &array, &shape);
    bool pool = STEP(stream_there[0], cuMemAllocAsync, &pooled, MIB, stream[0]);
    STEP(pool, cuMemFreeAsync, pooled, stream[0]);
    STEP(current, cuMemGetInfo_v2, &room, &total);
    pressure();
    verify();
    for (unsigned i = 0; i < BLOCKS; i++)
        give(i);
    STEP(retained, cuDevicePrimaryCtxRelease_v2, 0);
    trace->left =
        simcuda_live("reservations") + simcuda_live("mappings") + simcuda_live("handles");
    trace->whole = true;
}

typedef struct {
    const char *function;
    unsigned nth;
} fault_t;

static void run(const void *arg) {
    const fault_t *fault = arg;
    char plan[128];
    if (fault->nth) {
        snprintf(plan, sizeof plan, "%s@%u", fault->function, fault->nth);
        if (simcuda_fail(plan) != 0)
            _exit(4);
    }
    scenario();
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        trace->calls[f] = simcuda_calls(functions[f]);
}

/* Returns true if both symbols are versions of one function, like "cuMemAlloc_v2" and
 * "cuMemAlloc_v2_ptsz". */
static bool same_name(const char *a, const char *b) {
    size_t n = strcspn(a, "_"), m = strcspn(b, "_");
    return n == m && !memcmp(a, b, n);
}

static unsigned failures;

static void fail(const fault_t *fault, const char *what, unsigned step) {
    failures++;
    printf("%s@%u: %s", fault->function, fault->nth, what);
    if (step < trace->steps)
        printf(" (step %u, line %d, %s => %d)", step, trace->step[step].line,
               trace->step[step].symbol, trace->step[step].result);
    printf("\n");
}

static void judge(const fault_t *fault, const trace_t *clean, bool served) {
    bool told = false; /* the program saw the failure, so its later calls may differ */
    if (!trace->whole)
        fail(fault, "the scenario did not end", trace->steps ? trace->steps - 1 : 0);
    if (trace->left && strcmp(fault->function, "cuDevicePrimaryCtxRelease_v2") != 0)
        fail(fault, "addresses or pages were left behind", STEPS);
    if (trace->wrong_bytes)
        fail(fault, "contents were lost", STEPS);
    for (unsigned i = 0; i < trace->steps && !told; i++) {
        int result = trace->step[i].result;
        if (i < clean->steps && result == clean->step[i].result)
            continue;
        told = true;
        /* A better result than without the failure, or a result of memory that the driver did not
         * take back. */
        if (result == CUDA_SUCCESS || !strcmp(fault->function, "cuMemFree_v2"))
            continue;
        bool full = result == CUDA_ERROR_OUT_OF_MEMORY;
        if (!same_name(trace->step[i].symbol, fault->function))
            fail(fault, "another call noticed", i);
        else if (result != CUDA_ERROR_UNKNOWN && !full)
            fail(fault, "another code was seen", i);
        else if (served && full && !strcmp(fault->function, "cuMemAlloc_v2") && i > 50)
            fail(fault, "there was memory to give back", i);
    }
}

int main(int argc, char **argv) {
    trace_t *clean =
        mmap(NULL, 2 * sizeof *trace, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (clean == MAP_FAILED)
        return 2;
    unsigned injected = 0;
    const char *preload = getenv("LD_PRELOAD");
    trace = clean;
    in_child("clean", run, &(fault_t){"cuMemAlloc_v2", 0});
    printf("%u steps\n", clean->steps);
    trace = clean + 1;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++) {
        fault_t fault = {functions[f], 1};
        if (argc > 1 && strcmp(argv[1], functions[f]))
            continue;
        bool again = false; /* driver.def names some hooks once more */
        for (size_t g = 0; g < f; g++)
            again |= !strcmp(functions[g], functions[f]);
        unsigned stride =
            clean->calls[f] > MANY ? (unsigned)(clean->calls[f] / POSITIONS) + 1 : 1;
        for (; !again && clean->calls[f]; fault.nth += stride) {
            if (argc > 2)
                fault.nth = (unsigned)atoi(argv[2]);
            memset(trace, 0, sizeof *trace);
            char name[128];
            snprintf(name, sizeof name, "%s@%u", fault.function, fault.nth);
            failures += in_child(name, run, &fault) != 0;
            if (trace->calls[f] < fault.nth && trace->whole)
                break;
            injected++;
            judge(&fault, clean, preload && strstr(preload, "accelcache"));
            if (argc > 2)
                break;
        }
    }
    for (unsigned i = 0; argc > 2 && i < trace->steps; i++)
        printf("  %u line %d %s => %d%s\n", i, trace->step[i].line, trace->step[i].symbol,
               trace->step[i].result,
               trace->step[i].result == clean->step[i].result ? "" : "  (differs)");
    printf("%u failures injected, %u wrong\n", injected, failures);
    return failures || !clean->whole || clean->left || injected < (argc > 1 ? 1 : 100);
}
