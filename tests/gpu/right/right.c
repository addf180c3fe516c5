/* Kernel, buffers and sums for the programs of this folder (right.h). */
#include "right.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda.h"

enum { THREADS = 128, MOST_BLOCKS = 64, MULTIPLIER = 1664525, LAST_KERNELS = 10 };

CUfunction right_mix_function;

void right_skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(77);
}

static const char text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry right_mix(.param .u64 at, .param .u32 words, .param .u32 add) {\n"
    " .reg .pred %p; .reg .u32 %i, %n, %d, %t, %v, %c; .reg .u64 %a, %q;\n"
    " ld.param.u64 %a, [at]; cvta.to.global.u64 %a, %a; ld.param.u32 %n, [words];\n"
    " ld.param.u32 %c, [add]; mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %d, %tid.x;\n"
    " mad.lo.u32 %i, %i, %t, %d; mov.u32 %d, %nctaid.x; mul.lo.u32 %d, %d, %t;\n"
    "LOOP: setp.ge.u32 %p, %i, %n; @%p bra END; mul.wide.u32 %q, %i, 4; add.u64 %q, %q, %a;\n"
    " ld.global.u32 %v, [%q]; mad.lo.u32 %v, %v, 1664525, %c; add.u32 %v, %v, %i;\n"
    " st.global.u32 [%q], %v; add.u32 %i, %i, %d; bra LOOP;\n"
    "END: ret; }\n";

static __typeof__(&simcuda_host) host_of;

static void simulated_mix(const simcuda_launch_t *launch) {
    CUdeviceptr at;
    unsigned words, add;
    memcpy(&at, launch->params[0], sizeof at);
    memcpy(&words, launch->params[1], sizeof words);
    memcpy(&add, launch->params[2], sizeof add);
    uint32_t *memory = host_of(at);
    for (unsigned i = 0; memory && i < words; i++)
        memory[i] = memory[i] * MULTIPLIER + add + i;
}

static void register_simulated(void) {
    static const unsigned short sizes[] = {8, 4, 4};
    static const simcuda_access_t access = {0, 1, sizeof(uint32_t), 1};
    simcuda_kernel_t kernel = {"right_mix", simulated_mix, 20000, 3, sizes, 1, &access};
    __typeof__(&simcuda_register_kernel) enter;
    void *found = dlsym(RTLD_DEFAULT, "simcuda_register_kernel");
    memcpy(&enter, &found, sizeof found);
    found = dlsym(RTLD_DEFAULT, "simcuda_host");
    memcpy(&host_of, &found, sizeof found);
    if (enter)
        enter(&kernel);
}

void right_kernel(CUfunction *mix) {
    CUmodule module;
    MUST(cu.cuModuleLoadData(&module, text));
    MUST(cu.cuModuleGetFunction(mix, module, "right_mix"));
}

void right_open(void) {
    if (!gpu_open())
        right_skip("no CUDA driver, or no device");
    register_simulated();
    right_kernel(&right_mix_function);
}

CUstream right_stream(void) {
    CUstream stream;
    MUST(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

void right_mix_by(CUfunction mix, CUdeviceptr at, unsigned words, unsigned add,
                  right_lane_t lane) {
    void *params[] = {&at, &words, &add};
    unsigned blocks = (words + THREADS - 1) / THREADS;
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    if (lane.ptsz)
        MUST(cu.cuLaunchKernel_ptsz(mix, blocks, 1, 1, THREADS, 1, 1, 0, lane.handle, params,
                                    NULL));
    else
        MUST(cu.cuLaunchKernel(mix, blocks, 1, 1, THREADS, 1, 1, 0, lane.handle, params, NULL));
}

void right_mix(CUdeviceptr at, unsigned words, unsigned add, right_lane_t lane) {
    right_mix_by(right_mix_function, at, words, add, lane);
}

void right_last_work(CUdeviceptr at, unsigned words, right_lane_t lane) {
    for (unsigned i = 0; i < LAST_KERNELS; i++)
        right_mix(at, words, i, lane);
}

unsigned long long right_host_sum(const void *memory, size_t bytes) {
    const unsigned char *byte = memory;
    unsigned long long sum = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ byte[i]) * 1099511628211u;
    return sum;
}

unsigned long long right_sum(CUdeviceptr at, unsigned words, right_lane_t lane) {
    uint32_t *copy = malloc((size_t)words * sizeof *copy);
    if (!copy)
        exit(1);
    if (lane.ptsz) {
        MUST(cu.cuMemcpyDtoHAsync_v2_ptsz(copy, at, (size_t)words * sizeof *copy, lane.handle));
        MUST(cu.cuStreamSynchronize_ptsz(lane.handle));
    } else {
        MUST(cu.cuMemcpyDtoHAsync_v2(copy, at, (size_t)words * sizeof *copy, lane.handle));
        MUST(cu.cuStreamSynchronize(lane.handle));
    }
    unsigned long long sum = right_host_sum(copy, (size_t)words * sizeof *copy);
    free(copy);
    return sum;
}

CUdeviceptr right_alloc(size_t bytes) {
    CUdeviceptr memory;
    MUST(cu.cuMemAlloc_v2(&memory, bytes));
    return memory;
}

unsigned right_below(unsigned long long *seed, unsigned n) {
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(*seed >> 33) % n;
}
