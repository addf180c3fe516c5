/* Contract 2, never in use twice. The program frees memory while earlier work may still touch it.
 * The next owner must not see that work.
 *
 * usage: safety [CASE]
 *
 * The kernels are host functions that run when the kernel ends. Each case submits a late write to
 * a block, frees the block, and takes all memory that it can get. It fills that memory in a
 * stream without order, and checks the contents after all work is done. The environment chooses
 * how fences are recorded and whether time is real. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)
enum { LATE = 0xee, OURS = 0x33, TAKEN = 24, LATE_NS = 20000000 };

static _Atomic unsigned mismatches;

/* --- kernels: (address, bytes, value) --- */

static unsigned char *target(const simcuda_launch_t *launch, size_t *bytes, unsigned *value) {
    CUdeviceptr address;
    memcpy(&address, launch->params[0], sizeof address);
    memcpy(bytes, launch->params[1], sizeof *bytes);
    memcpy(value, launch->params[2], sizeof *value);
    return simcuda_host(address);
}

static void on_write(const simcuda_launch_t *launch) {
    size_t bytes;
    unsigned value;
    unsigned char *memory = target(launch, &bytes, &value);
    if (memory)
        memset(memory, (int)value, bytes);
}

static void on_check(const simcuda_launch_t *launch) {
    size_t bytes;
    unsigned value;
    const unsigned char *memory = target(launch, &bytes, &value);
    for (size_t i = 0; memory && i < bytes; i++)
        if (memory[i] != value) {
            atomic_fetch_add(&mismatches, 1);
            return;
        }
}

static CUcontext first;
static CUstream writer; /* non-blocking: ordered after nothing */
static size_t block_bytes = MIB;

static CUfunction function(const char *name) {
    CUmodule module;
    CUfunction found;
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&found, module, name));
    return found;
}

static void launch(CUfunction kernel, CUstream stream, CUdeviceptr address, size_t bytes,
                   unsigned value) {
    void *params[] = {&address, &bytes, &value};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void late_write(CUstream stream, CUdeviceptr address) {
    launch(function("late"), stream, address, block_bytes, LATE);
}

static void start(void) {
    static const unsigned short sizes[] = {8, 8, 4};
    static const struct {
        const char *name;
        simcuda_kernel_fn *fn;
        long long ns;
    } kernel[] = {
        {"late", on_write, LATE_NS}, {"write", on_write, 30000}, {"check", on_check, 100000}};
    for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
        simcuda_register_kernel(&(simcuda_kernel_t){.name = kernel[i].name,
                                                    .fn = kernel[i].fn,
                                                    .duration_ns = kernel[i].ns,
                                                    .param_count = 3,
                                                    .param_bytes = sizes});
    first = test_device(0);
    writer = test_stream();
}

static CUdeviceptr block(void) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc_v2(&pointer, block_bytes));
    return pointer;
}

static CUstream stream_of(unsigned flags) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

/* Takes blocks and writes to them; freed blocks must not be among them too early. */
static CUdeviceptr taken[TAKEN];

static void take_all(void) {
    for (unsigned i = 0; i < TAKEN; i++) {
        taken[i] = block();
        MUST(cuMemsetD8Async(taken[i], OURS, block_bytes, writer));
    }
    MUST(cuStreamSynchronize(writer));
}

static void wait_and_look(void) {
    MUST(cuCtxSynchronize());
    static unsigned char bytes[MIB];
    for (unsigned i = 0; i < TAKEN; i++) {
        MUST(cuMemcpyDtoH_v2(bytes, taken[i], block_bytes));
        for (size_t b = 0; b < block_bytes; b++)
            if (bytes[b] != OURS) {
                atomic_fetch_add(&mismatches, 1);
                break;
            }
        MUST(cuMemFree_v2(taken[i]));
    }
}

static void reuse_of(CUdeviceptr freed) {
    MUST(cuMemFree_v2(freed));
    take_all();
    wait_and_look();
}

/* Gives the writer stream completed work, so that a wait for that stream alone is not enough. */
static void decoy(void) {
    MUST(cuMemsetD8Async(block(), 1, 16, writer));
    MUST(cuStreamSynchronize(writer));
}

/* --- cases --- */

static void legacy(void) {
    CUdeviceptr a = block();
    late_write(NULL, a);
    reuse_of(a);
}

static void blocking(void) {
    CUdeviceptr a = block();
    late_write(stream_of(0), a);
    reuse_of(a);
}

static void non_blocking(void) {
    CUdeviceptr a = block();
    late_write(stream_of(CU_STREAM_NON_BLOCKING), a);
    decoy();
    reuse_of(a);
}

static void per_thread(void) {
    CUdeviceptr a = block();
    size_t bytes = block_bytes;
    unsigned value = LATE;
    void *params[] = {&a, &bytes, &value};
    MUST(cuLaunchKernel_ptsz(function("late"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    reuse_of(a);
}

static void *write_in_own_stream(void *arg) {
    MUST(cuCtxSetCurrent(first));
    late_write(CU_STREAM_PER_THREAD, *(CUdeviceptr *)arg);
    return NULL;
}

static void run_thread(void *(*body)(void *), void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, arg) != 0)
        _exit(3);
    pthread_join(thread, NULL);
}

static void per_thread_of_another(void) {
    CUdeviceptr a = block();
    run_thread(write_in_own_stream, &a);
    reuse_of(a);
}

static void *free_it(void *arg) {
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemFree_v2(*(CUdeviceptr *)arg));
    return NULL;
}

static void freed_elsewhere(void) {
    CUdeviceptr a = block();
    late_write(stream_of(CU_STREAM_NON_BLOCKING), a);
    run_thread(free_it, &a);
    take_all();
    wait_and_look();
}

static void other_context(void) {
    CUdeviceptr a = block();
    CUcontext other, popped;
    MUST(cuCtxCreate_v2(&other, 0, 0));
    late_write(stream_of(CU_STREAM_NON_BLOCKING), a);
    MUST(cuCtxPopCurrent_v2(&popped));
    MUST(cuMemFree_v2(a));
    take_all();
    MUST(cuCtxSetCurrent(other));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(first));
    wait_and_look();
}

static void other_device(void) {
    if (!getenv("LD_PRELOAD"))
        return; /* the simulated driver's own free waits for its own device only */
    CUcontext second;
    CUdeviceptr far;
    CUstream stream;
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuCtxSetCurrent(second));
    far = block();
    stream = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(cuMemsetD8_v2(far, LATE, block_bytes));
    MUST(cuCtxSynchronize());
    launch(function("late"), stream, far, block_bytes, LATE); /* the copy comes after it */
    MUST(cuCtxSetCurrent(first));
    CUdeviceptr a = block();
    MUST(cuCtxSetCurrent(second));
    MUST(cuMemcpyPeerAsync(a, first, far, second, block_bytes, stream));
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemFree_v2(a));
    take_all();
    MUST(cuCtxSetCurrent(second));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(first));
    wait_and_look();
}

static void destroyed_stream(void) {
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    late_write(stream, a);
    MUST(cuStreamDestroy_v2(stream));
    reuse_of(a);
}

static void reused_handle(void) {
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING), again[8];
    late_write(stream, a);
    MUST(cuStreamDestroy_v2(stream));
    for (unsigned i = 0; i < 8; i++) {
        again[i] = stream_of(CU_STREAM_NON_BLOCKING);
        CUdeviceptr b = block();
        MUST(cuMemsetD8Async(b, 1, 16, again[i]));
        MUST(cuStreamSynchronize(again[i]));
        MUST(cuMemFree_v2(b));
    }
    reuse_of(a);
}

/* Returns true if ACCEL_ALLOC_CONF has this setting. */
static bool is_set(const char *setting) {
    const char *conf = getenv("ACCEL_ALLOC_CONF");
    return conf && strstr(conf, setting);
}

/* A green context's streams end with it, and a stream of another device gets the handle. */
static void handle_of_a_green_context(void) {
    enum { PROCESSORS = 1, DEFAULT_STREAM = 1 };
    static struct { _Alignas(16) unsigned char room[256]; } processors;
    CUdevResource *all = (CUdevResource *)(void *)&processors;
    CUdevResourceDesc share;
    CUgreenCtx green;
    CUcontext second;
    CUstream gone;
    if (is_set("fill:")) /* a stream of the library might get the handle */
        return;
    MUST(cuDevicePrimaryCtxRetain(&second, 1));
    MUST(cuDeviceGetDevResource(0, all, PROCESSORS));
    MUST(cuDevResourceGenerateDesc(&share, all, 1));
    MUST(cuGreenCtxCreate(&green, share, 0, DEFAULT_STREAM));
    MUST(cuGreenCtxStreamCreate(&gone, green, CU_STREAM_NON_BLOCKING, 0));
    late_write(gone, block());
    MUST(cuCtxSynchronize());
    MUST(cuGreenCtxDestroy(green));

    MUST(cuCtxSetCurrent(second));
    CUdeviceptr a = block();
    CUstream again = stream_of(CU_STREAM_NON_BLOCKING);
    if (again != gone) {
        fputs("the handle did not come back\n", stderr);
        _exit(3);
    }
    writer = stream_of(CU_STREAM_NON_BLOCKING);
    late_write(again, a);
    reuse_of(a);
    MUST(cuCtxSetCurrent(first));
}

static void after_event(void) {
    CUdeviceptr a = block(), b = block();
    CUstream one = stream_of(CU_STREAM_NON_BLOCKING), two = stream_of(CU_STREAM_NON_BLOCKING);
    CUevent event;
    MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    late_write(one, b);
    MUST(cuEventRecord(event, one));
    MUST(cuStreamWaitEvent(two, event, 0));
    late_write(two, a);
    MUST(cuEventSynchronize(event)); /* the first work is over, the second is not */
    reuse_of(a);
}

static void graph(void) {
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    CUgraph captured;
    CUgraphExec exec;
    CUfunction late = function("late");
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch(late, stream, a, block_bytes, LATE);
    MUST(cuStreamEndCapture(stream, &captured));
    MUST(cuGraphInstantiateWithFlags(&exec, captured, 0));
    MUST(cuGraphLaunch(exec, stream));
    reuse_of(a);
}

static void during_capture(void) {
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING), busy = stream_of(CU_STREAM_NON_BLOCKING);
    CUgraph captured;
    late_write(busy, a);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(block(), 1, 16, stream));
    MUST(cuMemFree_v2(a));
    for (unsigned i = 0; i < TAKEN; i++) {
        taken[i] = block();
        MUST(cuMemsetD8Async(taken[i], OURS, block_bytes, writer));
    }
    MUST(cuStreamEndCapture(stream, &captured)); /* spoilt if something was recorded in it */
    wait_and_look();
}

static void freed_after_capture(void) {
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING), busy = stream_of(CU_STREAM_NON_BLOCKING);
    CUgraph captured;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    late_write(busy, a); /* not captured */
    MUST(cuStreamEndCapture(stream, &captured));
    reuse_of(a);
}

static void on_host(void *arg) {
    (void)arg;
}

static void after_host_function(void) {
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    late_write(stream, block());
    MUST(cuLaunchHostFunc(stream, on_host, NULL));
    MUST(cuMemsetD8Async(a, LATE, block_bytes, stream));
    reuse_of(a);
}

static void *synchronise(void *arg) {
    (void)arg;
    MUST(cuCtxSetCurrent(first));
    MUST(cuCtxSynchronize());
    return NULL;
}

/* Another thread's synchronisation covers only work submitted before it began. */
static void racing_synchronisation(void) {
    for (int round = 0; round < 3; round++) {
        CUdeviceptr a = block(), b = block(), c = block();
        CUstream one = stream_of(CU_STREAM_NON_BLOCKING), two = stream_of(CU_STREAM_NON_BLOCKING);
        unsigned long long before = simcuda_calls("cuCtxSynchronize");
        pthread_t thread;
        late_write(one, b);
        if (pthread_create(&thread, NULL, synchronise, NULL) != 0)
            _exit(3);
        while (simcuda_calls("cuCtxSynchronize") == before)
            sched_yield();
        late_write(two, c);
        late_write(two, a);
        MUST(cuMemFree_v2(a));
        pthread_join(thread, NULL);
        take_all();
        wait_and_look();
    }
}

/* The library records a fence's event again while an earlier fence is still pending. */
static void many_fences(void) {
    CUdeviceptr held[8];
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 8; i++) {
            held[i] = block();
            late_write(stream, held[i]);
            MUST(cuMemFree_v2(held[i]));
            MUST(cuMemsetD8Async(block(), 1, 16, writer));
        }
        take_all();
        wait_and_look();
    }
}

static void freed_in_stream_order(void) {
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    late_write(stream, a);
    MUST(cuMemFreeAsync(a, stream));
    take_all();
    wait_and_look();
}

/* Memory runs out while work on all of it is pending: the library waits for its fences and does
 * not drop them. */
static void when_full(void) {
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    CUdeviceptr many[256];
    unsigned n = 0;
    while (n < 256 && cuMemAlloc_v2(&many[n], 8 * MIB) == CUDA_SUCCESS)
        n++;
    if (n < 10 || n == 256) {
        fprintf(stderr, "%u blocks filled the device\n", n);
        _exit(3);
    }
    for (unsigned i = 0; i < n; i++)
        launch(function("late"), stream, many[i], MIB, LATE);
    for (unsigned i = 0; i < n; i++)
        MUST(cuMemFree_v2(many[i]));
    take_all();
    wait_and_look();
}

/* Destroying the stream ends its capture: freed memory serves again, without new calls to the
 * driver. */
static void destroyed_capture(void) {
    CUstream gone = stream_of(CU_STREAM_NON_BLOCKING), stream = stream_of(CU_STREAM_NON_BLOCKING);
    MUST(cuStreamBeginCapture_v2(gone, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuStreamDestroy_v2(gone));
    unsigned long long before = simcuda_calls("cuMemAlloc_v2");
    for (unsigned i = 0; i < 64; i++) {
        CUdeviceptr a = block();
        MUST(cuMemsetD8Async(a, OURS, block_bytes, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemFree_v2(a));
    }
    if (getenv("LD_PRELOAD") && simcuda_calls("cuMemAlloc_v2") - before > 8) {
        fprintf(stderr, "nothing was recycled\n");
        atomic_fetch_add(&mismatches, 1);
    }
}

static unsigned long long waits(void) {
    return simcuda_calls("cuCtxSynchronize") + simcuda_calls("cuEventSynchronize") +
           simcuda_calls("cuStreamSynchronize");
}

/* A free does not make the host wait unless a setting asks for it. */
static void no_waiting(void) {
    if (!getenv("LD_PRELOAD") || is_set("free_sync:true") || is_set("enabled:false") ||
        is_set("fill:"))
        return;
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    CUdeviceptr held[16];
    for (unsigned i = 0; i < 16; i++)
        late_write(stream, held[i] = block());
    unsigned long long before = waits(), frees = simcuda_calls("cuMemFree_v2");
    for (unsigned i = 0; i < 16; i++)
        MUST(cuMemFree_v2(held[i]));
    if (waits() != before || simcuda_calls("cuMemFree_v2") != frees ||
        cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) {
        fprintf(stderr, "a free waited\n");
        atomic_fetch_add(&mismatches, 1);
    }
}

/* With free_sync:true all work is done when the free returns. */
static void waiting_free(void) {
    if (getenv("LD_PRELOAD") && !is_set("free_sync:true") && !is_set("fill:"))
        return;
    CUdeviceptr a = block();
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    late_write(stream, a);
    MUST(cuMemFree_v2(a));
    if (cuStreamQuery(stream) != CUDA_SUCCESS)
        atomic_fetch_add(&mismatches, 1);
}

/* --- random use by several threads --- */

enum { THREADS = 3, SLOTS = 12, ROUNDS = 250 };

static void *stress_thread(void *arg) {
    unsigned seed = 77u + *(unsigned *)arg;
    CUstream stream[3];
    struct {
        CUdeviceptr address;
        size_t bytes;
    } slot[SLOTS] = {{0, 0}};
    MUST(cuCtxSetCurrent(first));
    stream[0] = stream_of(CU_STREAM_NON_BLOCKING);
    stream[1] = stream_of(CU_STREAM_NON_BLOCKING);
    stream[2] = CU_STREAM_PER_THREAD;
    CUfunction write = function("write"), check = function("check");
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned s = (unsigned)rand_r(&seed) % SLOTS;
        CUstream on = stream[(unsigned)rand_r(&seed) % 3];
        if (slot[s].address)
            MUST(cuMemFree_v2(slot[s].address));
        slot[s].bytes = (size_t)1 << (8 + (unsigned)rand_r(&seed) % 9);
        MUST(cuMemAlloc_v2(&slot[s].address, slot[s].bytes));
        unsigned value = 1 + (unsigned)rand_r(&seed) % 255;
        launch(write, on, slot[s].address, slot[s].bytes, value);
        launch(check, on, slot[s].address, slot[s].bytes, value);
        if (i % 64 == 63) {
            MUST(cuStreamSynchronize(stream[0]));
            MUST(cuStreamDestroy_v2(stream[1]));
            stream[1] = stream_of(i % 128 == 63 ? CU_STREAM_NON_BLOCKING : 0);
        }
    }
    for (unsigned s = 0; s < SLOTS; s++)
        if (slot[s].address)
            MUST(cuMemFree_v2(slot[s].address));
    return NULL;
}

static void stress(void) {
    pthread_t thread[THREADS];
    unsigned number[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, stress_thread, &number[i]) != 0)
            _exit(3);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    MUST(cuCtxSynchronize());
}

#define CASE(name)                                                                               \
    { #name, name }
static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {CASE(legacy),
             CASE(blocking),
             CASE(non_blocking),
             CASE(per_thread),
             CASE(per_thread_of_another),
             CASE(freed_elsewhere),
             CASE(other_context),
             CASE(other_device),
             CASE(destroyed_stream),
             CASE(reused_handle),
             CASE(handle_of_a_green_context),
             CASE(after_event),
             CASE(graph),
             CASE(during_capture),
             CASE(freed_after_capture),
             CASE(destroyed_capture),
             CASE(after_host_function),
             CASE(racing_synchronisation),
             CASE(many_fences),
             CASE(freed_in_stream_order),
             CASE(when_full),
             CASE(no_waiting),
             CASE(waiting_free),
             CASE(stress)};

static bool passes(void (*run)(void), size_t bytes) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(SAFETY_CASE_S);
        block_bytes = bytes;
        start();
        run();
        _exit(atomic_load(&mismatches) ? 1 : 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {MIB, 4096};
    unsigned failed = 0, ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t s = 0; s < 2; s++) {
            if (argc > 1 && strcmp(argv[1], cases[i].name))
                continue;
            ran++;
            if (!passes(cases[i].run, sizes[s])) {
                printf("%s of %zu bytes failed\n", cases[i].name, sizes[s]);
                failed++;
            }
        }
    printf("%u cases, %u failed\n", ran, failed);
    return failed || !ran;
}
