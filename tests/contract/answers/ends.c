/* A context ends while work of another context runs that the program releases only afterwards
 * (contract 9). A driver does not wait for that work, because its frees were over before the work
 * was submitted.
 *
 * usage: ends */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "answers.h"

static CUcontext ends, other;
static CUstream held, free_stream;
static CUdeviceptr word;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Frees memory of the context that ends, while the other context works. Then holds the other
 * context's work. */
static void prepare(CUcontext context) {
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr memory;
    unsigned zero = 0;
    ends = context;
    MUST(cuCtxCreate_v2(&other, 0, 0));
    MUST(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&word, 4));
    MUST(cuMemcpyHtoD_v2(word, &zero, 4));
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&kernel, module, "kernel"));
    MUST(cuCtxSetCurrent(ends));
    MUST(cuMemAlloc_v2(&memory, 4 * MIB));
    MUST(cuCtxSetCurrent(other));
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, held, NULL, NULL));
    MUST(cuMemFree_v2(memory));
    MUST(cuStreamWaitValue32_v2(held, word, 1, 0));
}

static void let_go(void) {
    MUST(cuCtxSetCurrent(other));
    MUST(cuStreamWriteValue32_v2(free_stream, word, 1, 0));
    MUST(cuStreamSynchronize(held));
}

static CUcontext primary(unsigned times) {
    CUcontext context = NULL;
    MUST(cuInit(0));
    for (unsigned i = 0; i < times; i++)
        MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    return context;
}

static void judge(const char *what, double begin, double most) {
    double took = seconds() - begin;
    if (took > most)
        printf("not so: %s took %.1f s\n", what, took);
    let_go();
    fflush(stdout);
    exit(took > most);
}

static void release_of_two(const void *unused) {
    (void)unused;
    prepare(primary(2));
    double begin = seconds();
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    judge("a release that is not the last", begin, 0.5);
}

static void last_release(const void *unused) {
    (void)unused;
    prepare(primary(1));
    double begin = seconds();
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    judge("the last release", begin, 5);
}

/* A call that fails leaves the count unchanged. */
static void release_after_a_failure(const void *unused) {
    (void)unused;
    if (cuInit(0) || !cuDevicePrimaryCtxRelease_v2(0))
        exit(1);
    last_release(NULL);
}

static void reset(const void *unused) {
    (void)unused;
    prepare(primary(1));
    double begin = seconds();
    MUST(cuDevicePrimaryCtxReset_v2(0));
    judge("a reset", begin, 5);
}

static void destroy(const void *unused) {
    CUcontext context;
    (void)unused;
    primary(1);
    MUST(cuCtxCreate_v2(&context, 0, 0));
    prepare(context);
    double begin = seconds();
    MUST(cuCtxDestroy_v2(ends));
    judge("the end of a context", begin, 5);
}

int main(void) {
    static const struct {
        const char *name;
        void (*body)(const void *);
    } cases[] = {{"release of two", release_of_two},
                 {"last release", last_release},
                 {"release after a failure", release_after_a_failure},
                 {"reset", reset},
                 {"destroy", destroy}};
    bool failed = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed |= in_child(cases[i].name, cases[i].body, NULL) != 0;
    return failed;
}
