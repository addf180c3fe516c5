/* What memory holds when it is handed out and after it was freed, for the key `fill`.
 *
 * usage: fill CASE, one line each: the first and the last word of what a case looks at. */
#include <time.h>

#include "program.h"

enum { BYTES = 100002, KIB = 1 << 10 };

static void show(const char *what, CUdeviceptr block, size_t bytes) {
    unsigned char byte[BYTES];
    MUST(cuMemcpyDtoH_v2(byte, block, bytes));
    size_t odd = 0;
    for (size_t i = 4; i < bytes; i++)
        odd += byte[i] != byte[i - 4];
    printf("%s %02x%02x%02x%02x%s\n", what, byte[3], byte[2], byte[1], byte[0],
           odd ? ", and other" : "");
}

/* Every way to ask, and what is left after the free. */
static void ways(void) {
    CUdeviceptr block;
    CUstream stream;
    CUmemoryPool pool;
    size_t pitch;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    for (int round = 0; round < 3; round++) {
        MUST(cuMemAlloc_v2(&block, BYTES));
        show("plain", block, BYTES);
        MUST(cuMemsetD8_v2(block, 0x11, BYTES));
        MUST(cuMemFree_v2(block));
        show("freed", block, BYTES);
        MUST(cuMemAlloc_v2(&block, 700));
        show("small", block, 700);
        MUST(cuMemFree_v2(block));
        MUST(cuMemAllocPitch_v2(&block, &pitch, 1000, 4, 4));
        show("pitch", block, pitch * 4);
        MUST(cuMemFree_v2(block));
        MUST(round < 2 ? cuMemAllocAsync(&block, BYTES, stream)
                       : cuMemAllocFromPoolAsync(&block, BYTES, pool, stream));
        MUST(cuStreamSynchronize(stream));
        show("async", block, BYTES);
        MUST(cuMemsetD8Async(block, 0x22, BYTES, stream));
        MUST(cuMemFreeAsync(block, stream));
        MUST(cuStreamSynchronize(stream));
        show("freed", block, BYTES);
    }
}

/* Work that comes before a free has what was there; copies take their time. */
static void earlier_work(void) {
    CUdeviceptr block, copy;
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&copy, BYTES));
    for (int async = 0; async < 2; async++) {
        for (int round = 0; round < 3; round++) {
            MUST(async ? cuMemAllocAsync(&block, BYTES, stream) : cuMemAlloc_v2(&block, BYTES));
            MUST(cuMemsetD8Async(block, (unsigned char)(0x30 + round), BYTES, stream));
            MUST(cuMemcpyDtoDAsync_v2(copy, block, BYTES, stream));
            MUST(async ? cuMemFreeAsync(block, stream) : cuMemFree_v2(block));
            MUST(cuStreamSynchronize(stream));
            show("copied", copy, BYTES);
        }
    }
}

/* A capture stays good, and what it asks for is left as it is. */
static void captured(void) {
    CUdeviceptr block, kept;
    CUstream stream;
    CUgraph graph;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&kept, KIB));
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuMemsetD8_v2(block, 0x44, BYTES));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(kept, 0x55, KIB, stream));
    MUST(cuMemFree_v2(block));
    GIVES(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    show("freed", block, BYTES);
    show("kept", kept, KIB);
}

/* A free that is refused fills nothing. */
static void refused(void) {
    CUdeviceptr block;
    MUST(cuMemAlloc_v2(&block, BYTES));
    MUST(cuMemsetD8_v2(block, 0x66, BYTES));
    EXPECT(cuMemFree_v2(block + 512) != CUDA_SUCCESS);
    EXPECT(cuMemFreeAsync(block + 1024, NULL) != CUDA_SUCCESS);
    show("held", block, BYTES);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* A device on which patterns are late: requests and frees go on after a second, and no pattern comes over
 * what was handed out meanwhile. */
static void late(void) {
    int (*configure)(const char *);
    CUdeviceptr block, other;
    enum { LATE = 2 };
    NEED(test_find("simcuda_configure", &configure));
    MUST(cuMemAlloc_v2(&block, BYTES));
    for (int freed = 0; freed < 2; freed++) {
        MUST(configure("fill_us:700000")); /* words, and two bytes: three fills */
        double begin = now();
        MUST(freed ? cuMemFree_v2(block) : cuMemAlloc_v2(&other, BYTES));
        EXPECT(now() - begin < LATE - 0.1);
        MUST(configure("fill_us:0"));
        if (freed)
            MUST(cuMemAlloc_v2(&block, BYTES));
        EXPECT(block != other);
        MUST(cuMemsetD8_v2(block, 0x77, BYTES));
        MUST(cuMemsetD8_v2(other, 0x88, BYTES));
        EXPECT(now() - begin < LATE); /* or nothing is shown */
        MUST(cuCtxSynchronize());
        EXPECT(now() - begin >= LATE);
        show("kept", block, BYTES);
        show("kept", other, BYTES);
    }
    MUST(cuMemFree_v2(block));
    MUST(cuMemFree_v2(other));
    MUST(cuMemAlloc_v2(&block, BYTES)); /* the late one is over: there are patterns again */
    show("plain", block, BYTES);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"ways", ways},
                 {"earlier_work", earlier_work},
                 {"captured", captured},
                 {"refused", refused},
                 {"late", late}};
    test_device(0);
    for (unsigned i = 0; argc == 2 && i < sizeof cases / sizeof cases[0]; i++)
        if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    return TEST_USAGE;
}
