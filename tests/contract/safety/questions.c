/* Contract 9, no wait of ours: memory was freed behind work that ends by itself; then a kernel
 * runs that ends only when the program has done something more.  No call in between, and no work
 * on another stream, may wait for that kernel: the driver's own free came before it.
 *
 * usage: questions
 *
 * The kernel takes a thousand seconds.  With virtual time it must not have ended after the call,
 * with real time an alarm ends the case. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)
enum { BUSY_NS = 50000 };
#define HELD_NS 1000000000000ll

static CUcontext first;
static CUstream home, second;
static CUfunction busy, polls;
static CUdeviceptr kept;

static bool real_time(void) {
    const char *sim = getenv("ACCEL_SIM");
    return sim && strstr(sim, "clock:real");
}

static void launch(CUfunction kernel, CUstream stream) {
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void start(void) {
    first = test_device(0);
    home = test_stream();
    second = test_stream();
    busy = test_kernel(&(simcuda_kernel_t){.name = "busy", .duration_ns = BUSY_NS});
    polls = test_kernel(&(simcuda_kernel_t){.name = "polls", .duration_ns = HELD_NS});
    MUST(cuMemAlloc_v2(&kept, MIB));
}

/* Frees behind work on the home, each of which is reused; then the kernel. */
static void held_home(unsigned frees) {
    for (unsigned i = 0; i < frees; i++) {
        CUdeviceptr block;
        MUST(cuMemAlloc_v2(&block, MIB));
        launch(busy, home);
        MUST(cuMemFree_v2(block));
    }
    MUST(cuMemFree_v2(kept));
    MUST(cuMemAlloc_v2(&kept, MIB)); /* handed out early, and held from now on */
    launch(polls, home);
}

/* --- what the program does then --- */

static void address_range(void) {
    CUdeviceptr base;
    size_t size;
    MUST(cuMemGetAddressRange_v2(&base, &size, kept));
}

static void buffer_id(void) {
    unsigned long long id;
    MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, kept));
}

static void buffer_ids(void) {
    unsigned long long id;
    CUpointer_attribute what = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    void *out = &id;
    MUST(cuPointerGetAttributes(1, &what, &out, kept));
}

static void memory_handle(void) {
    CUipcMemHandle handle;
    cuIpcGetMemHandle(&handle, kept); /* which may be refused */
}

static void peer_access(void) {
    CUcontext other;
    MUST(cuDevicePrimaryCtxRetain(&other, 1));
    MUST(cuCtxEnablePeerAccess(other, 0));
}

static void second_context(void) {
    CUcontext other;
    MUST(cuCtxCreate_v2(&other, 0, 0));
    MUST(cuCtxSetCurrent(first));
}

static void programmatic(void) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, home, &attribute, 1};
    MUST(cuLaunchKernelEx(&config, busy, NULL, NULL));
}

static void programmatic_elsewhere(void) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, second, &attribute, 1};
    MUST(cuLaunchKernelEx(&config, busy, NULL, NULL));
    MUST(cuStreamSynchronize(second));
}

static void second_stream(void) {
    launch(busy, second);
    MUST(cuStreamSynchronize(second));
}

static void second_copy(void) {
    MUST(cuMemsetD8Async(kept, 1, MIB, second));
    MUST(cuStreamSynchronize(second));
}

static void a_stream_less(void) {
    MUST(cuStreamDestroy_v2(second));
}

#define CASE(name)                                                                               \
    { #name, name }
static const struct {
    const char *name;
    void (*ask)(void);
} cases[] = {CASE(address_range), CASE(buffer_id),     CASE(buffer_ids),
             CASE(memory_handle), CASE(peer_access),   CASE(second_context),
             CASE(programmatic),  CASE(second_stream), CASE(programmatic_elsewhere),
             CASE(second_copy),   CASE(a_stream_less)};

static bool passes(void (*ask)(void), unsigned frees) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        start();
        held_home(frees);
        ask();
        if (!real_time() && simcuda_now() >= HELD_NS)
            _exit(1);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void) {
    static const unsigned frees[] = {1, 2, 3, 5, 6, 7, 100, 200};
    unsigned failed = 0, run = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t n = 0; n < sizeof frees / sizeof *frees; n++) {
            run++;
            if (!passes(cases[i].ask, frees[n])) {
                fprintf(stderr, "%s after %u frees waited for work behind them\n", cases[i].name,
                        frees[n]);
                failed++;
            }
        }
    printf("%u cases, %u failed\n", run, failed);
    return failed != 0;
}
