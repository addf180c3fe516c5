/* Peer access: kernels of one device read and write memory of another, as far as the program allowed
 * it, wherever that memory comes from: without the library, from segments, from pages.
 *
 * usage: peers CASE (a name of the table at the end).  Exit status 0: as it should be. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)

enum { DEVICES = 3, WORDS = 4096, BYTES = 4 * WORDS };

static CUcontext ctx[DEVICES];
static CUfunction add_one[DEVICES];

/* (address): adds one to each word there. */
static void run_add_one(const simcuda_launch_t *launch) {
    unsigned *word = simcuda_host(**(CUdeviceptr **)launch->params);
    for (int i = 0; i < WORDS; i++)
        word[i]++;
}

static void use(int device) {
    static const simcuda_access_t touches = {
        .param = 0, .count_param = -1, .bytes = BYTES, .writes = 1};
    static const simcuda_kernel_t kernel = {.name = "add_one",
                                            .fn = run_add_one,
                                            .duration_ns = 1000,
                                            .param_count = 1,
                                            .access_count = 1,
                                            .access = &touches};
    if (!ctx[device]) {
        ctx[device] = test_device(device);
        add_one[device] = test_kernel(&kernel);
    }
    MUST(cuCtxSetCurrent(ctx[device]));
}

/* Memory of the device, with `value` in its first and last words. */
static CUdeviceptr take(int device, size_t bytes, unsigned value) {
    CUdeviceptr p;
    use(device);
    MUST(cuMemAlloc_v2(&p, bytes));
    MUST(cuMemsetD32_v2(p, value, bytes / 4));
    MUST(cuCtxSynchronize());
    return p;
}

static void enable(int from, int to) {
    use(from);
    MUST(cuCtxEnablePeerAccess(ctx[to], 0));
}

static void disable(int from, int to) {
    use(from);
    MUST(cuCtxDisablePeerAccess(ctx[to]));
}

static void launch(int device, CUdeviceptr p) {
    void *params[] = {&p};
    use(device);
    MUST(cuLaunchKernel(add_one[device], 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

/* Checks that a kernel of the device reads and writes the first and the last words. */
static void reaches(int device, CUdeviceptr p, size_t bytes, unsigned value) {
    unsigned seen = 0;
    launch(device, p);
    if (bytes > BYTES)
        launch(device, p + bytes - BYTES);
    GIVES(cuCtxSynchronize(), CUDA_SUCCESS);
    MUST(cuMemcpyDtoH_v2(&seen, p, 4));
    EXPECT(seen == value + 1);
    MUST(cuMemcpyDtoH_v2(&seen, p + bytes - 4, 4));
    EXPECT(seen == value + 1);
}

/* Checks that a kernel faults. This ends its context, so it is the last step of a case. */
static void does_not_reach(int device, CUdeviceptr p) {
    launch(device, p);
    GIVES(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void never(void) {
    CUdeviceptr p = take(0, MIB, 5);
    reaches(0, p, MIB, 5);
    use(1);
    does_not_reach(1, p);
}

static void existing_and_future(void) {
    CUdeviceptr small = take(0, BYTES, 1), large = take(0, 50 * MIB, 2);
    use(1);
    enable(1, 0);
    reaches(1, small, BYTES, 1);
    reaches(1, large, 50 * MIB, 2);
    for (size_t bytes = BYTES; bytes <= 60 * MIB; bytes *= 11)
        reaches(1, take(0, bytes, 7), bytes, 7);
    use(0);
    MUST(cuMemFree_v2(large)); /* the pages of the freed block serve again, in place or moved */
    reaches(1, take(0, 70 * MIB, 3), 70 * MIB, 3);
    does_not_reach(0, take(1, MIB, 4)); /* access in the other direction was never enabled */
}

static void disabled(void) {
    CUdeviceptr early = take(0, 20 * MIB, 1);
    use(1);
    enable(1, 0);
    reaches(1, early, 20 * MIB, 1);
    disable(1, 0);
    GIVES(cuCtxDisablePeerAccess(ctx[0]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    reaches(0, early, 20 * MIB, 2);
    does_not_reach(1, early);
}

static void disabled_for_the_future(void) {
    use(0);
    use(1);
    enable(1, 0);
    disable(1, 0);
    does_not_reach(1, take(0, 20 * MIB, 1));
}

static void enabled_again(void) {
    CUdeviceptr early = take(0, 20 * MIB, 1);
    use(1);
    for (unsigned i = 0; i < 5; i++) {
        enable(1, 0);
        GIVES(cuCtxEnablePeerAccess(ctx[0], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        reaches(1, early, 20 * MIB, 1 + i);
        CUdeviceptr later = take(0, (9 + i) * MIB, 8);
        reaches(1, later, (9 + i) * MIB, 8);
        disable(1, 0);
    }
    does_not_reach(1, early);
}

static void three(void) {
    CUdeviceptr p[DEVICES];
    for (int i = 0; i < DEVICES; i++)
        p[i] = take(i, 12 * MIB, 10 * (unsigned)i);
    for (int from = 0; from < DEVICES; from++)
        for (int to = 0; to < DEVICES; to++)
            if (from != to)
                enable(from, to);
    for (int from = 0; from < DEVICES; from++)
        for (int to = 0; to < DEVICES; to++)
            reaches(from, p[to], 12 * MIB, 10 * (unsigned)to + (unsigned)from);
    disable(1, 0);
    reaches(2, p[0], 12 * MIB, 3); /* the other devices keep their access */
    reaches(2, take(0, 30 * MIB, 4), 30 * MIB, 4);
    reaches(0, p[1], 12 * MIB, 13);
    does_not_reach(1, p[0]);
}

/* With two contexts on a device, the device loses access when the last one disables it. */
static void two_contexts(void) {
    CUdeviceptr p = take(0, 20 * MIB, 1);
    CUcontext other;
    use(1);
    enable(1, 0);
    MUST(cuCtxCreate_v2(&other, 0, 1));
    MUST(cuCtxEnablePeerAccess(ctx[0], 0));
    MUST(cuCtxDisablePeerAccess(ctx[0]));
    reaches(1, p, 20 * MIB, 1);
    MUST(cuCtxSetCurrent(other));
    MUST(cuCtxEnablePeerAccess(ctx[0], 0));
    MUST(cuCtxDestroy_v2(other));
    reaches(1, p, 20 * MIB, 2);
    disable(1, 0);
    does_not_reach(1, p);
}

/* Ends the context that had access, and the context with the memory. */
static void reset(void) {
    CUdeviceptr p = take(0, 20 * MIB, 1);
    use(1);
    enable(1, 0);
    reaches(1, p, 20 * MIB, 1);
    MUST(cuDevicePrimaryCtxReset_v2(1));
    MUST(cuDevicePrimaryCtxRelease_v2(1));
    ctx[1] = NULL;
    use(1);
    enable(1, 0);
    reaches(1, p, 20 * MIB, 2);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    ctx[0] = NULL;
    p = take(0, 20 * MIB, 6);
    enable(1, 0);
    reaches(1, p, 20 * MIB, 6);
    MUST(cuDevicePrimaryCtxReset_v2(1));
    MUST(cuDevicePrimaryCtxRelease_v2(1));
    ctx[1] = NULL;
    use(1);
    does_not_reach(1, p);
}

/* The program disables access on pages while a kernel uses it. The pages lose it after the
 * kernel. */
static void in_use(void) {
    CUdeviceptr p = take(0, BYTES, 1);
    unsigned seen;
    use(1);
    enable(1, 0);
    launch(1, p);
    disable(1, 0);
    GIVES(cuCtxSynchronize(), CUDA_SUCCESS);
    MUST(cuMemcpyDtoH_v2(&seen, p, 4));
    EXPECT(seen == 2);
    use(2);
    enable(2, 0);
    does_not_reach(1, p);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"never", never},
                 {"existing_and_future", existing_and_future},
                 {"disabled", disabled},
                 {"disabled_for_the_future", disabled_for_the_future},
                 {"enabled_again", enabled_again},
                 {"three", three},
                 {"two_contexts", two_contexts},
                 {"reset", reset},
                 {"in_use", in_use}};
    for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            MUST(cuInit(0));
            cases[i].run();
            _Exit(simcuda_race_reports() ? TEST_WRONG : TEST_GOOD);
        }
    return TEST_USAGE;
}
