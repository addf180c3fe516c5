/* The driver and the kernels of stream_stress.
 *
 * libcuda.so.1 is opened at run time, so that the program starts without a driver.  Functions are
 * looked up in the whole process, so that a preloaded library comes first.  The kernels are PTX
 * text; the simulated device gets host functions with the same effect. */
#include "stress.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 128, WORDS_PER_BLOCK = 1024, MOST_BLOCKS = 32 };
enum { RESULT, DELAY, COUNT, FIRST, PARAMS = FIRST + 3 * BATCH }; /* FIRST: at, words, owner */

stress_driver_t cu;
bool stress_async, stress_graphs;
CUcontext stress_context;

static CUfunction kernels[KERNELS];
static CUdeviceptr result_at;
static bool programmatic; /* the device and the driver support programmatic launches */

/* ---------------------------------------------------------------- kernels as PTX */

/* Word i of owner o holds o * 2654435761 + i * 2246822519: see `word` below.  Registers: %a, %n and
 * %o are the buffer that ctaid.y picks; %r is the result; %i and %d are index and step; %q and %v
 * are the word's address and correct value. */
#define EACH_BUFFER(row) row(0) row(1) row(2) row(3) row(4) row(5) row(6) row(7)

#define PARAMETERS(k) ", .param .u64 a" #k ", .param .u32 n" #k ", .param .u32 o" #k
#define HEAD(name)                                                                               \
    ".version 6.0\n.target sm_50\n.address_size 64\n"                                            \
    ".visible .entry " name "(.param .u64 result, .param .u32 delay, .param .u32 count"

#define REGISTERS                                                                                \
    ") {\n"                                                                                      \
    " .reg .pred %p; .reg .u32 %e, %n, %o, %i, %d, %t, %b, %v, %f, %w;\n"                        \
    " .reg .u64 %a, %r, %q, %c, %s, %y;\n"

#define SPIN                                                                                     \
    " ld.param.u32 %w, [delay]; cvt.u64.u32 %y, %w; mov.u64 %s, %clock64;\n"                     \
    "SPIN: mov.u64 %q, %clock64; sub.u64 %q, %q, %s; setp.lt.u64 %p, %q, %y; @%p bra SPIN;\n"

#define PICK(k)                                                                                  \
    " setp.eq.u32 %p, %e, " #k "; @%p ld.param.u64 %a, [a" #k "];\n"                             \
    " @%p ld.param.u32 %n, [n" #k "]; @%p ld.param.u32 %o, [o" #k "];\n"
#define PICK_ONE " mov.u64 %a, 0; mov.u32 %n, 0; mov.u32 %o, 0; mov.u32 %e, %ctaid.y;\n"

#define PLACE                                                                                    \
    " ld.param.u64 %r, [result]; cvta.to.global.u64 %r, %r; cvta.to.global.u64 %a, %a;\n"        \
    " mov.u32 %b, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %i, %tid.x;\n"                          \
    " mad.lo.u32 %i, %b, %t, %i; mov.u32 %d, %nctaid.x; mul.lo.u32 %d, %d, %t;\n"

#define LOOP(each)                                                                               \
    "LOOP: setp.ge.u32 %p, %i, %n; @%p bra END;\n"                                               \
    " mul.wide.u32 %q, %i, 4; add.u64 %q, %q, %a;\n"                                             \
    " mul.lo.u32 %v, %o, 2654435761; mad.lo.u32 %v, %i, 2246822519, %v;\n" each                  \
    "NEXT: add.u32 %i, %i, %d; bra LOOP;\n"                                                      \
    "END: ret; }\n"

#define KERNEL(name, before, each)                                                               \
    HEAD(name)                                                                                   \
    EACH_BUFFER(PARAMETERS) REGISTERS SPIN PICK_ONE EACH_BUFFER(PICK)                            \
    PLACE before LOOP(each)

#define FILL_EACH    " st.global.u32 [%q], %v;\n"
#define CHECK_BEFORE " setp.ne.u32 %p, %i, 0; @%p bra LOOP; atom.global.add.u64 %c, [%r+8], 1;\n"
#define CHECK_EACH                                                                               \
    " ld.global.u32 %f, [%q]; setp.eq.u32 %p, %f, %v; @%p bra NEXT;\n"                           \
    " atom.global.add.u64 %c, [%r], 1; setp.ge.u64 %p, %c, 16; @%p bra NEXT;\n"                  \
    " shl.b64 %c, %c, 4; add.u64 %c, %c, %r; st.global.u32 [%c+16], %o;\n"                       \
    " st.global.u32 [%c+20], %i; st.global.u32 [%c+24], %f;\n"

/* Each kernel is a module of its own, because C11 limits the length of string literals. */
static const struct {
    const char *name, *ptx;
    long long simulated_ns;
} kernel_rows[KERNELS] = {
    [FILL] = {"stress_fill", KERNEL("stress_fill", "", FILL_EACH), 2000},
    [FILL_EARLY] = {"stress_fill_early", KERNEL("stress_fill_early", "", FILL_EACH), 2000},
    [CHECK] = {"stress_check", KERNEL("stress_check", CHECK_BEFORE, CHECK_EACH), 4000},
    [CHECK_SLOW] = {"stress_check_slow", KERNEL("stress_check_slow", CHECK_BEFORE, CHECK_EACH),
                    150000},
    [CHECK_STUCK] = {"stress_check_stuck", KERNEL("stress_check_stuck", CHECK_BEFORE, CHECK_EACH),
                     1500000},
};

_Static_assert(offsetof(stress_result_t, checked) == 8 &&
                   offsetof(stress_result_t, first) == 16 &&
                   sizeof(((stress_result_t *)0)->first[0]) == 16 && LOGGED == 16,
               "the kernels write the result by these offsets");

/* ---------------------------------------------------------------- kernels for the simulator */

static __typeof__(&simcuda_host) host_of;

static uint32_t word(uint32_t owner, uint32_t index) {
    return owner * 2654435761u + index * 2246822519u;
}

static void mismatch(stress_result_t *result, uint32_t owner, uint32_t index, uint32_t found) {
    uint64_t at = __atomic_fetch_add(&result->mismatches, 1, __ATOMIC_RELAXED);
    if (at < LOGGED) {
        result->first[at].owner = owner;
        result->first[at].word = index;
        result->first[at].found = found;
    }
}

static void visit(const simcuda_launch_t *launch, bool check) {
    CUdeviceptr at;
    unsigned count;
    memcpy(&at, launch->params[RESULT], sizeof at);
    stress_result_t *result = host_of(at);
    memcpy(&count, launch->params[COUNT], sizeof count);
    for (unsigned k = 0; k < count; k++) {
        uint32_t words, owner;
        memcpy(&at, launch->params[FIRST + 3 * k], sizeof at);
        memcpy(&words, launch->params[FIRST + 3 * k + 1], sizeof words);
        memcpy(&owner, launch->params[FIRST + 3 * k + 2], sizeof owner);
        uint32_t *memory = host_of(at);
        if (!memory) {
            mismatch(result, owner, 0, 0);
            continue;
        }
        for (uint32_t i = 0; i < words; i++)
            if (!check)
                memory[i] = word(owner, i);
            else if (memory[i] != word(owner, i))
                mismatch(result, owner, i, memory[i]);
        if (check)
            __atomic_fetch_add(&result->checked, 1, __ATOMIC_RELAXED);
    }
}

static void fill(const simcuda_launch_t *launch) {
    visit(launch, false);
}

static void check(const simcuda_launch_t *launch) {
    visit(launch, true);
}

static void find(const char *name, void *slot) {
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(slot, &found, sizeof found);
}

static void register_simulated(void) {
    __typeof__(&simcuda_register_kernel) register_kernel;
    unsigned short sizes[PARAMS] = {8, 4, 4};
    simcuda_access_t access[BATCH + 1];
    find("simcuda_register_kernel", &register_kernel);
    find("simcuda_host", &host_of);
    if (!register_kernel)
        return;
    for (int k = 0; k < BATCH; k++) {
        sizes[FIRST + 3 * k] = 8;
        sizes[FIRST + 3 * k + 1] = sizes[FIRST + 3 * k + 2] = 4;
    }
    for (stress_kernel_t kernel = 0; kernel < KERNELS; kernel++) {
        for (int k = 0; k < BATCH; k++)
            access[k] = (simcuda_access_t){(unsigned)(FIRST + 3 * k), FIRST + 3 * k + 1,
                                           sizeof(uint32_t), kernel <= FILL_EARLY};
        access[BATCH] = (simcuda_access_t){RESULT, -1, sizeof(stress_result_t), true};
        simcuda_kernel_t row = {.name = kernel_rows[kernel].name,
                                .fn = kernel <= FILL_EARLY ? fill : check,
                                .duration_ns = kernel_rows[kernel].simulated_ns,
                                .param_count = PARAMS,
                                .param_bytes = sizes,
                                .access_count = kernel <= FILL_EARLY ? BATCH : BATCH + 1,
                                .access = access};
        register_kernel(&row);
    }
}

/* ---------------------------------------------------------------- driver and device */

static bool load_driver(void) {
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return false;
    bool complete = true;
#define DRIVER(symbol, optional)                                                                 \
    find(#symbol, &cu.symbol);                                                                   \
    if (!cu.symbol && !(optional)) {                                                             \
        fprintf(stderr, "stream_stress: the driver has no %s\n", #symbol);                       \
        complete = false;                                                                        \
    }
#include "stress_driver.def"
#undef DRIVER
    return complete;
}

static void load_kernels(void) {
    CUmodule module;
    register_simulated();
    for (stress_kernel_t kernel = 0; kernel < KERNELS; kernel++) {
        MUST(cu.cuModuleLoadData(&module, kernel_rows[kernel].ptx));
        MUST(cu.cuModuleGetFunction(&kernels[kernel], module, kernel_rows[kernel].name));
    }
}

bool stress_device_open(char *name, size_t room) {
    CUdevice device;
    int count = 0, pools = 0, major = 0;
    if (!load_driver() || cu.cuInit(0) || cu.cuDeviceGetCount(&count) || !count)
        return false;
    MUST(cu.cuDeviceGet(&device, 0));
    MUST(cu.cuDeviceGetName(name, (int)room, device));
    MUST(cu.cuDevicePrimaryCtxRetain(&stress_context, device));
    MUST(cu.cuCtxSetCurrent(stress_context));
    load_kernels();
    if (cu.cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device))
        pools = 0;
    if (cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
        major = 0;
    programmatic = major >= 9 && cu.cuLaunchKernelEx && cu.cuLaunchKernelEx_ptsz;
    stress_async = pools && cu.cuMemAllocAsync && cu.cuMemAllocAsync_ptsz && cu.cuMemFreeAsync &&
                   cu.cuMemFreeAsync_ptsz;
    stress_graphs = cu.cuStreamBeginCapture_v2 && cu.cuStreamEndCapture && cu.cuGraphLaunch &&
                    cu.cuGraphLaunch_ptsz && cu.cuGraphInstantiateWithFlags &&
                    cu.cuGraphExecDestroy && cu.cuGraphDestroy;
    MUST(cu.cuMemAlloc_v2(&result_at, sizeof(stress_result_t)));
    MUST(cu.cuMemsetD8_v2(result_at, 0, sizeof(stress_result_t)));
    MUST(cu.cuCtxSynchronize());
    return true;
}

void stress_launch(stress_kernel_t kernel, const stress_buffers_t *buffers, unsigned delay,
                   stress_lane_t lane) {
    stress_buffers_t copy = *buffers;
    unsigned most = 0;
    void *params[PARAMS] = {&result_at, &delay, &copy.count};
    for (unsigned k = 0; k < BATCH; k++) {
        unsigned from = k < copy.count ? k : 0; /* the simulator checks all addresses */
        params[FIRST + 3 * k] = &copy.at[from];
        params[FIRST + 3 * k + 1] = &copy.words[from];
        params[FIRST + 3 * k + 2] = &copy.owner[from];
        most = copy.words[from] > most ? copy.words[from] : most;
    }
    unsigned blocks = (most + WORDS_PER_BLOCK - 1) / WORDS_PER_BLOCK;
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    early.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {blocks, copy.count, 1, THREADS, 1, 1, 0, lane.handle, &early, 1};
    if (kernel == FILL_EARLY && programmatic)
        MUST(ON_LANE(lane, cuLaunchKernelEx, &config, kernels[kernel], params, NULL));
    else
        MUST(ON_LANE(lane, cuLaunchKernel, kernels[kernel], blocks, copy.count, 1, THREADS, 1, 1,
                     0, lane.handle, params, NULL));
}

void stress_result(stress_result_t *result) {
    MUST(cu.cuMemcpyDtoH_v2(result, result_at, sizeof *result));
}
