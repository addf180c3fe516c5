/* Work that runs past the end of a block, or uses it after its free, for the key `guard`.
 *
 * usage: guard CASE ARGUMENTS
 *   past WAY BYTES COUNT   a kernel writes COUNT bytes past the end of a block of BYTES, and the
 *                          block is freed where that did not fault
 *   after WAY BYTES        a kernel reads the block's first byte after its free
 *   many WAY BYTES COUNT   COUNT blocks of BYTES are held at once, then freed
 *   pairs WAY BYTES COUNT  COUNT times a block is taken and freed
 *   sizes WAY BYTES COUNT  the same, of 2,000 sizes up from BYTES in turn
 *   captured               blocks asked for and freed while a stream captures
 *   beside BLOCK           two are freed in stream order; block BLOCK is read after a synchronisation
 *                          with the context that comes while the library's thread takes their pages away
 *   hold BYTES             one block is held and one was freed until a letter comes
 * WAY: plain, pitch, async, pool, runtime (cudaMalloc).  What it prints is for guard.py. */
#include "program.h"

#include "simcuda.h"

/* Of the runtime. */
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);

static CUstream stream;
static CUfunction kernel;
static char way;

static void sweep(const simcuda_launch_t *launch) {
    CUdeviceptr address;
    unsigned long long bytes;
    memcpy(&address, launch->params[0], sizeof address);
    memcpy(&bytes, launch->params[1], sizeof bytes);
    volatile unsigned char *at = simcuda_host(address);
    for (unsigned long long i = 0; i < bytes; i++)
        at[i] = (unsigned char)(at[i] + 1);
}

static CUresult use(CUdeviceptr address, unsigned long long bytes) {
    void *params[] = {&address, &bytes};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    return cuStreamSynchronize(stream);
}

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr block;
    CUmemoryPool pool;
    size_t pitch;
    if (way == 'a') {
        MUST(cuMemAllocAsync(&block, bytes, stream));
    } else if (way == 'o') {
        MUST(cuDeviceGetDefaultMemPool(&pool, 0));
        MUST(cuMemAllocFromPoolAsync(&block, bytes, pool, stream));
    } else if (way == 'r') {
        void *pointer;
        NEED(cudaMalloc(&pointer, bytes) == 0);
        block = (CUdeviceptr)(uintptr_t)pointer;
    } else if (way == 'i') {
        MUST(cuMemAllocPitch_v2(&block, &pitch, bytes, 3, 4));
    } else {
        MUST(cuMemAlloc_v2(&block, bytes));
    }
    return block;
}

static void give(CUdeviceptr block) {
    if (way == 'a' || way == 'o') {
        MUST(cuMemFreeAsync(block, stream));
        MUST(cuStreamSynchronize(stream));
    } else if (way == 'r') {
        NEED(cudaFree((void *)(uintptr_t)block) == 0);
    } else {
        MUST(cuMemFree_v2(block));
    }
}

static void show(CUdeviceptr block, CUresult result) {
    printf("%llu %d %llu\n", (unsigned long long)block, (int)result, simcuda_fault_address());
}

static unsigned long long number(const char *text) {
    return strtoull(text, NULL, 10);
}

static void past(const char *bytes, const char *count) {
    size_t held = number(bytes), whole = way == 'i' ? (held + 511) / 512 * 512 * 3 : held;
    CUdeviceptr block = take(held);
    MUST(use(block, whole));
    CUresult result = use(block + whole, number(count));
    show(block + whole, result);
    if (result == CUDA_SUCCESS)
        give(block);
}

static void after(const char *bytes) {
    CUdeviceptr block = take(number(bytes));
    MUST(use(block, 1));
    give(block);
    show(block, use(block, 1));
}

static void many(const char *bytes, const char *count) {
    static CUdeviceptr block[4096];
    int blocks = atoi(count);
    for (int i = 0; i < blocks; i++)
        block[i] = take(number(bytes));
    for (int i = 0; i < blocks; i++)
        give(block[i]);
}

static void pairs(const char *bytes, const char *count) {
    for (int i = atoi(count); i; i--)
        give(take(number(bytes)));
}

static void in_turn(const char *bytes, const char *count) {
    for (int i = atoi(count); i; i--)
        give(take(number(bytes) + (size_t)i % 2000 * 512));
}

static void captured(void) {
    CUgraph graph;
    CUdeviceptr before = take(1000), block;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    block = take(1000);
    MUST(cuMemsetD8Async(block, 1, 1000, stream));
    give(before);
    GIVES(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    MUST(cuGraphDestroy(graph));
    give(block);
    MUST(cuCtxSynchronize());
    show(before, use(before, 1));
}

static void beside(const char *which) {
    CUdeviceptr block[2], flag;
    CUstream writer;
    way = 'a';
    MUST(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    flag = take(4);
    MUST(cuMemsetD32Async(flag, 0, 1, stream));
    for (int i = 0; i < 2; i++)
        MUST(use(block[i] = take(1000), 1));
    unsigned long long unmapped = simcuda_calls("cuMemUnmap");
    MUST(cuStreamWaitValue32_v2(stream, flag, 1, 0)); /* no free finds the device idle */
    for (int i = 0; i < 2; i++)
        MUST(cuMemFreeAsync(block[i], stream));
    NEED(simcuda_calls("cuMemUnmap") == unmapped);
    MUST(cuStreamWriteValue32_v2(writer, flag, 1, 0));
    while (simcuda_calls("cuMemUnmap") == unmapped)
        usleep(100);
    MUST(cuCtxSynchronize());
    int n = atoi(which);
    show(block[n], use(block[n], 1));
}

static void hold(const char *bytes) {
    char letter;
    CUdeviceptr held = take(number(bytes)), freed = take(number(bytes));
    give(freed);
    printf("%llu %llu\n", (unsigned long long)held, (unsigned long long)freed);
    fflush(stdout);
    NEED(read(0, &letter, 1) == 1);
}

int main(int argc, char **argv) {
    static const unsigned short sizes[] = {8, 8};
    static const simcuda_kernel_t registered = {.name = "sweep",
                                                .fn = sweep,
                                                .duration_ns = 1000,
                                                .param_count = 2,
                                                .param_bytes = sizes};
    CUmodule module;
    NEED(argc > 1);
    program_device();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(simcuda_register_kernel(&registered) == 0);
    MUST(cuModuleLoadData(&module, "stand-in"));
    MUST(cuModuleGetFunction(&kernel, module, "sweep"));
    if (!strcmp(argv[1], "captured")) {
        captured();
        return 0;
    }
    if (!strcmp(argv[1], "beside")) {
        beside(argv[2]);
        return 0;
    }
    if (!strcmp(argv[1], "hold")) {
        hold(argv[2]);
        return 0;
    }
    NEED(argc > 3);
    way = argv[2][0] == 'p' ? argv[2][1] : argv[2][0]; /* plain: l, pitch: i, pool: o */
    if (!strcmp(argv[1], "past"))
        past(argv[3], argv[4]);
    else if (!strcmp(argv[1], "after"))
        after(argv[3]);
    else if (!strcmp(argv[1], "many"))
        many(argv[3], argv[4]);
    else if (!strcmp(argv[1], "sizes"))
        in_turn(argv[3], argv[4]);
    else
        pairs(argv[3], argv[4]);
    return 0;
}
