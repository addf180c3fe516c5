/* Contract 9: the library adds no waits. The program frees memory behind work that ends by
 * itself. Then a kernel runs that ends only when the program has done something more. No call in
 * between, and no work on another stream, may wait for that kernel, because the driver's own free
 * came before it.
 *
 * usage: questions [early]
 *
 * With `early` the kernel comes before the free, and a free of the driver would wait for it.
 * Memory is handed out again meanwhile, and the program holds none of it. Then work on another
 * stream goes ahead, and gets memory that the kernel's stream does not use.
 *
 * The kernel takes a thousand seconds. With virtual time it must not have ended after the call;
 * with real time an alarm ends the case. */
#include <pthread.h>
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

/* Frees blocks behind work on the home stream, and reuses each; then launches the kernel. */
static void held_home(unsigned frees) {
    for (unsigned i = 0; i < frees; i++) {
        CUdeviceptr block;
        MUST(cuMemAlloc_v2(&block, MIB));
        launch(busy, home);
        MUST(cuMemFree_v2(block));
    }
    MUST(cuMemFree_v2(kept));
    MUST(cuMemAlloc_v2(&kept, MIB)); /* handed out early, and kept from then on */
    launch(polls, home);
}

/* --- the program's next calls --- */

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

/* --- the kernel comes before the free --- */

enum { BLOCKS = 40 };
static CUdeviceptr block[BLOCKS];

static void take(unsigned blocks, size_t bytes) {
    for (unsigned i = 0; i < blocks; i++)
        MUST(cuMemAlloc_v2(&block[i], bytes));
}

static void use(unsigned blocks, size_t bytes, CUstream stream) {
    for (unsigned i = 0; i < blocks; i++)
        MUST(cuMemsetD8Async(block[i], 1, bytes, stream));
}

static void give(unsigned blocks) {
    for (unsigned i = 0; i < blocks; i++)
        MUST(cuMemFree_v2(block[i]));
}

static void end_well(void) {
    if (simcuda_race_reports())
        _exit(4);
}

/* Frees blocks behind work that waits for the kernel, and goes ahead on another stream. */
static void go_ahead(unsigned blocks, size_t bytes) {
    give(blocks);
    second_copy();
    take(blocks, bytes);
    use(blocks, bytes, second);
    MUST(cuStreamSynchronize(second));
    end_well();
}

static void held_before(unsigned blocks, size_t bytes) {
    take(blocks, bytes);
    launch(polls, home);
    use(blocks, bytes, home);
}

static void large_blocks(void) {
    held_before(3, 3 * MIB);
    go_ahead(3, 3 * MIB);
}

static void small_blocks(void) {
    held_before(BLOCKS, 16384);
    go_ahead(BLOCKS, 16384);
}

/* The blocks are slots of slabs with other slots in use. */
static void slots(void) {
    CUdeviceptr stay;
    MUST(cuMemAlloc_v2(&stay, 512));
    held_before(BLOCKS, 512);
    go_ahead(BLOCKS, 512);
    MUST(cuMemFree_v2(stay));
}

static void handed_out_in_between(void) {
    held_before(2, MIB);
    for (unsigned i = 0; i < 5; i++) {
        give(2);
        take(2, MIB);
        use(2, MIB, home);
    }
    go_ahead(2, MIB);
}

static void *give_some(void *unused) {
    MUST(cuCtxSetCurrent(first));
    give(4);
    return unused;
}

static void freed_by_another_thread(void) {
    pthread_t thread;
    held_before(4, 65536);
    if (pthread_create(&thread, NULL, give_some, NULL))
        _exit(3);
    pthread_join(thread, NULL);
    take(4, 65536);
    use(4, 65536, home);
    go_ahead(4, 65536);
}

/* Streams are made and destroyed, and the single-stream rule begins and ends with them. */
static void once_more(void) {
    CUstream third;
    held_before(2, MIB);
    go_ahead(2, MIB);
    MUST(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING));
    use(2, MIB, third);
    give(2);
    take(2, MIB);
    MUST(cuStreamSynchronize(third));
    MUST(cuStreamDestroy_v2(third));
    end_well();
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

static const struct {
    const char *name;
    void (*go)(void);
} early[] = {CASE(large_blocks),
             CASE(small_blocks),
             CASE(slots),
             CASE(handed_out_in_between),
             CASE(freed_by_another_thread),
             CASE(once_more)};

/* Runs a case in a child process. With `frees` 0 the case itself frees and launches. */
static bool passes(void (*ask)(void), unsigned frees) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        start();
        if (frees)
            held_home(frees);
        ask();
        if (!real_time() && simcuda_now() >= HELD_NS)
            _exit(1);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
    static const unsigned frees[] = {1, 2, 3, 5, 6, 7, 100, 200};
    unsigned failed = 0, run = 0;
    bool before = argc > 1 && strcmp(argv[1], "early") == 0;
    for (size_t i = 0; before && i < sizeof early / sizeof *early; i++) {
        run++;
        if (!passes(early[i].go, 0)) {
            fprintf(stderr, "%s: did not go ahead\n", early[i].name);
            failed++;
        }
    }
    for (size_t i = 0; !before && i < sizeof cases / sizeof *cases; i++)
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
