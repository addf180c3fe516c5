/* The device for checks: driver lookup, kernels, contexts, waiting (gpu.h). */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


gpu_driver_t cu;
gpu_t gpu;

enum { SLOW_MS = 20, QUICK_NS = 2000, TRIES = 5, MOST_CLOCK_KHZ = 3000000 };

static unsigned long long (*simulated_now)(void);
static void (*simulated_advance)(unsigned long long);
static __typeof__(&simcuda_host) host_of;

static void find(void *library, const char *name, void *slot) {
    void *found = dlsym(library, name);
    memcpy(slot, &found, sizeof found);
}

const char *gpu_error(CUresult result) {
    static _Thread_local char number[16];
    const char *name = NULL;
    if (cu.cuGetErrorName && !cu.cuGetErrorName(result, &name) && name) {
        if (!strncmp(name, "CUDA_ERROR_", 11))
            return name + 11;
        return !strncmp(name, "CUDA_", 5) ? name + 5 : name;
    }
    snprintf(number, sizeof number, "%u", result);
    return number;
}

double gpu_clock(void) {
    struct timespec now;
    if (simulated_now)
        return (double)simulated_now() / 1e6;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void gpu_rest(void) {
    struct timespec moment = {0, 20000};
    nanosleep(&moment, NULL); /* a pause between two polls; its length does not matter */
}

void gpu_pause(void) {
    if (simulated_advance)
        simulated_advance(20000);
    gpu_rest();
}

/* ---------------------------------------------------------------- kernels */

/* PTX text of kernel(from, to, clocks).  With `release` a programmatic launch after it may begin at
 * once.  This needs sm_90, so it is a separate text. */
#define KERNEL(head, name, release)                                                              \
    head ".address_size 64\n"                                                                    \
         ".visible .entry " name "(.param .u64 from, .param .u64 to, .param .u64 clocks) {\n"    \
         " .reg .pred %p; .reg .u32 %v; .reg .u64 %a, %b, %n, %s, %t;\n" release                 \
         " ld.param.u64 %a, [from]; ld.param.u64 %b, [to]; ld.param.u64 %n, [clocks];\n"         \
         " cvta.to.global.u64 %a, %a; cvta.to.global.u64 %b, %b;\n"                              \
         " ld.volatile.global.u32 %v, [%a]; add.u32 %v, %v, 1; mov.u64 %s, %clock64;\n"          \
         "AGAIN: mov.u64 %t, %clock64; sub.u64 %t, %t, %s; setp.lt.u64 %p, %t, %n;\n"            \
         " @%p bra AGAIN; st.volatile.global.u32 [%b], %v; membar.sys; ret; }\n"
#define OLD ".version 6.0\n.target sm_50\n"
#define NEW ".version 7.8\n.target sm_90\n"

static const char *const texts[2][2] = {
    {KERNEL(OLD, "gpu_quick", ""), KERNEL(OLD, "gpu_slow", "")},
    {KERNEL(NEW, "gpu_quick", " griddepcontrol.launch_dependents;\n"),
     KERNEL(NEW, "gpu_slow", " griddepcontrol.launch_dependents;\n")}};

const char *gpu_text(unsigned n) {
    return n < 4 ? texts[n / 2][n % 2] : "";
}

static void simulated_body(const simcuda_launch_t *launch) {
    CUdeviceptr from, to;
    memcpy(&from, launch->params[0], sizeof from);
    memcpy(&to, launch->params[1], sizeof to);
    const uint32_t *source = host_of(from);
    uint32_t *target = host_of(to);
    if (source && target)
        *target = *source + 1;
}

static void register_simulated(void) {
    __typeof__(&simcuda_register_kernel) enter;
    static const unsigned short sizes[] = {8, 8, 8};
    static const simcuda_access_t access[] = {{0, -1, sizeof(uint32_t), 0},
                                              {1, -1, sizeof(uint32_t), 1}};
    simcuda_kernel_t kernel = {"gpu_quick", simulated_body, QUICK_NS, 3, sizes, 2, access};
    find(RTLD_DEFAULT, "simcuda_register_kernel", &enter);
    find(RTLD_DEFAULT, "simcuda_host", &host_of);
    if (!enter)
        return;
    gpu.simulated = true;
    find(RTLD_DEFAULT, "simcuda_now", &simulated_now);
    find(RTLD_DEFAULT, "simcuda_advance", &simulated_advance);
    enter(&kernel);
    kernel.name = "gpu_slow";
    kernel.duration_ns = SLOW_MS * 1000000;
    enter(&kernel);
}

static unsigned long long slow_clocks(void) {
    int khz = 0;
    if (cu.cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, gpu.device) || khz <= 0 ||
        khz > MOST_CLOCK_KHZ)
        khz = MOST_CLOCK_KHZ;
    return (unsigned long long)khz * SLOW_MS;
}

void gpu_kernels(gpu_kernel_t *quick, gpu_kernel_t *slow) {
    CUmodule module;
    const char *const *text = texts[gpu.major >= 9];
    MUST(cu.cuModuleLoadData(&module, text[0]));
    MUST(cu.cuModuleGetFunction(&quick->function, module, "gpu_quick"));
    MUST(cu.cuModuleLoadData(&module, text[1]));
    MUST(cu.cuModuleGetFunction(&slow->function, module, "gpu_slow"));
    quick->clocks = 0;
    slow->clocks = slow_clocks();
}

CUdeviceptr gpu_word(unsigned i) {
    return (CUdeviceptr)(uintptr_t)(gpu.words + i);
}

static CUresult launch(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to,
                       bool early) {
    void *params[] = {&from, &to, &kernel.clocks};
    if (!early)
        return cu.cuLaunchKernel(kernel.function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, &attribute, 1};
    return cu.cuLaunchKernelEx(&config, kernel.function, params, NULL);
}

CUresult gpu_try(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to) {
    return launch(kernel, stream, from, to, false);
}

void gpu_launch(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from, CUdeviceptr to) {
    MUST(launch(kernel, stream, from, to, false));
}

CUresult gpu_launch_early(gpu_kernel_t kernel, CUstream stream, CUdeviceptr from,
                          CUdeviceptr to) {
    return launch(kernel, stream, from, to, true);
}

/* ---------------------------------------------------------------- driver and device */

bool gpu_load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return false;
#define CU_FN(symbol, name, since, mode, params, args) find(library, #symbol, &cu.symbol);
#include "device/cuda_functions.def"
#undef CU_FN
    test_result_name = gpu_error;
    register_simulated();
    return GPU_HAS(cuInit) && GPU_HAS(cuDeviceGetCount);
}

bool gpu_open(void) {
    void *pinned;
    if (!gpu_load() || cu.cuInit(0) || cu.cuDeviceGetCount(&gpu.devices) || !gpu.devices)
        return false;
    MUST(cu.cuDriverGetVersion(&gpu.version));
    MUST(cu.cuDeviceGet(&gpu.device, 0));
    MUST(cu.cuDeviceGetAttribute(&gpu.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                 gpu.device));
    MUST(cu.cuDevicePrimaryCtxRetain(&gpu.primary, gpu.device));
    MUST(cu.cuCtxSetCurrent(gpu.primary));
    MUST(cu.cuMemHostAlloc(&pinned, GPU_WORDS * sizeof(uint32_t), CU_MEMHOSTALLOC_PORTABLE));
    memset(pinned, 0, GPU_WORDS * sizeof(uint32_t));
    gpu.words = pinned;
    gpu.slow_ms = SLOW_MS;
    gpu_kernels(&gpu.quick, &gpu.slow);
    /* The first launch loads the kernel; later launches must not include this time. */
    gpu_launch(gpu.quick, NULL, gpu_word(0), gpu_word(1));
    gpu_launch(gpu.slow, NULL, gpu_word(0), gpu_word(1));
    MUST(cu.cuCtxSynchronize());
    return true;
}

const gpu_beside_t *gpu_beside(void) {
    static gpu_beside_t made;
    if (made.context)
        return &made;
    bool done = GPU_HAS(cuCtxCreate_v2) && !cu.cuCtxCreate_v2(&made.context, 0, gpu.device);
    if (!done && GPU_HAS(cuCtxCreate_v4))
        done = !cu.cuCtxCreate_v4(&made.context, NULL, 0, gpu.device);
    if (!done)
        return NULL;
    MUST(cu.cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING));
    gpu_kernels(&made.quick, &made.slow);
    gpu_launch(made.quick, made.stream, gpu_word(0), gpu_word(1));
    gpu_launch(made.slow, made.stream, gpu_word(0), gpu_word(1));
    MUST(cu.cuCtxSynchronize());
    MUST(cu.cuCtxPopCurrent_v2(NULL)); /* leaves one context on the stack, as it was */
    return &made;
}

const gpu_green_t *gpu_green(void) {
    enum { PROCESSORS = 1 };
    static gpu_green_t made;
    unsigned long long resource[64] = {0}; /* larger than in the ABI */
    CUdevResource *processors = (CUdevResource *)(void *)resource;
    CUdevResourceDesc desc;
    if (made.stream)
        return &made;
    bool done = GPU_HAS(cuGreenCtxCreate) && GPU_HAS(cuGreenCtxStreamCreate) &&
                !cu.cuDeviceGetDevResource(gpu.device, processors, PROCESSORS) &&
                !cu.cuDevResourceGenerateDesc(&desc, processors, 1) &&
                !cu.cuGreenCtxCreate(&made.green, desc, gpu.device, 1) &&
                !cu.cuCtxFromGreenCtx(&made.view, made.green) &&
                !cu.cuGreenCtxStreamCreate(&made.stream, made.green, CU_STREAM_NON_BLOCKING, 0);
    return done ? &made : NULL;
}

bool gpu_has_pages(void) {
    int supported = 0;
    return GPU_HAS(cuMemCreate) && GPU_HAS(cuMemMap) && GPU_HAS(cuMemSetAccess) &&
           !cu.cuDeviceGetAttribute(
               &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, gpu.device) &&
           supported;
}

/* ---------------------------------------------------------------- waiting */

/* Asks once whether `call` waits for a slow kernel.  The kernel must be running before the call,
 * and is over after a call that waited.  An event behind the kernel shows both, without the
 * host's clock. */
static gpu_wait_t ask_once(CUstream stream, gpu_kernel_t slow, CUcontext other, gpu_call_t *call,
                           void *arg) {
    gpu_wait_t seen = {GPU_UNCLEAR, CUDA_SUCCESS, 0, 0};
    CUcontext own;
    CUevent behind;
    MUST(cu.cuCtxGetCurrent(&own));
    MUST(cu.cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
    double launched = gpu_clock();
    gpu_launch(slow, stream, gpu_word(2), gpu_word(3));
    MUST(cu.cuEventRecord(behind, stream));
    bool running = cu.cuEventQuery(behind) == CUDA_ERROR_NOT_READY;
    if (other)
        MUST(cu.cuCtxSetCurrent(other));
    double before = gpu_clock();
    seen.result = call(arg);
    double after = gpu_clock();
    if (other)
        MUST(cu.cuCtxSetCurrent(own));
    CUresult then = cu.cuEventQuery(behind);
    MUST(cu.cuEventSynchronize(behind));
    MUST(cu.cuEventDestroy_v2(behind));
    seen.call_ms = after - before;
    seen.kernel_ms = (then ? gpu_clock() : after) - launched;
    if (then == CUDA_ERROR_NOT_READY)
        seen.answer = GPU_DID_NOT;
    else if (running && !then && seen.call_ms > gpu.slow_ms / 4)
        seen.answer = GPU_WAITED;
    return seen;
}

gpu_wait_t gpu_does_wait(CUstream stream, gpu_kernel_t slow, CUcontext other, gpu_call_t *call,
                         void *arg) {
    gpu_wait_t seen = {0};
    for (int i = 0; i < TRIES && seen.answer == GPU_UNCLEAR; i++)
        seen = ask_once(stream, slow, other, call, arg);
    return seen;
}
