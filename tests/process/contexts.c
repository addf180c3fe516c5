/* Contexts that come and go, thousands of them: what stays of each in host memory, and that a record
 * that served before serves as a new one does.  contexts.py holds the settings and the bounds. */
#include <malloc.h>
#include <pthread.h>

#include "program.h"

enum { WARM = 200, TURNS = 2000, KIB = 1 << 10, MIB = 1 << 20 };

static CUcontext begin_created(int device) {
    CUcontext context;
    MUST(cuCtxCreate_v2(&context, 0, device));
    return context;
}

static void end_created(CUcontext context) {
    MUST(cuCtxDestroy_v2(context));
}

static CUcontext begin_primary(int device) {
    return test_device(device);
}

static void end_released(CUcontext context) {
    (void)context;
    MUST(cuDevicePrimaryCtxRelease_v2(0));
}

static void end_reset(CUcontext context) {
    MUST(cuDevicePrimaryCtxReset_v2(0));
    end_released(context);
}

typedef struct {
    CUcontext (*begin)(int device);
    void (*end)(CUcontext context);
} way_t;

/* What a program does in a context: blocks of all sizes, some of which stay, on two streams, with
 * work behind frees, in the order of a stream, and in a capture. */
static void use(unsigned char value) {
    CUstream stream = test_stream();
    CUdeviceptr block[8], on_stream;
    CUgraph graph;
    unsigned char seen = 0;
    for (int i = 0; i < 8; i++) {
        MUST(cuMemAlloc_v2(&block[i], (size_t)512 << 2 * i));
        MUST(cuMemsetD8Async(block[i], value, 512, i % 2 ? stream : NULL));
    }
    for (int i = 0; i < 8; i += 2)
        MUST(cuMemFree_v2(block[i]));
    MUST(cuMemAllocAsync(&on_stream, 64 * KIB, stream));
    MUST(cuMemsetD8Async(on_stream, value, 64 * KIB, stream));
    MUST(cuMemcpyDtoHAsync_v2(&seen, on_stream + 64 * KIB - 1, 1, stream));
    MUST(cuMemFreeAsync(on_stream, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(seen == value);
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD8Async(block[1], value, 512, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphDestroy(graph));
    MUST(cuMemcpyDtoH_v2(&seen, block[7] + 511, 1));
    EXPECT(seen == value);
    MUST(cuMemsetD8Async(block[1], 0, 512, stream)); /* under way when the context ends */
}

static void turn(const way_t *way, unsigned number) {
    CUcontext context = way->begin(0);
    use((unsigned char)(number % 255 + 1));
    way->end(context);
}

static void *turn_in_thread(void *arg) {
    turn(arg, 7);
    return NULL;
}

/* A thread for each turn: its cache of blocks of the context goes with both. */
static void threaded(const way_t *way, unsigned number) {
    pthread_t thread;
    (void)number;
    NEED(!pthread_create(&thread, NULL, turn_in_thread, (void *)way));
    NEED(!pthread_join(thread, NULL));
}

static long resident(void) {
    long pages = 0, all;
    FILE *file = fopen("/proc/self/statm", "re");
    NEED(file && fscanf(file, "%ld %ld", &all, &pages) == 2);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Prints how many bytes of the process's memory TURNS of them have cost, and of what the C library
 * handed out. */
static int grown(const way_t *way, void (*once)(const way_t *, unsigned)) {
    MUST(cuInit(0));
    for (unsigned i = 0; i < WARM; i++)
        once(way, i);
    long before = resident(), held = (long)mallinfo2().uordblks;
    for (unsigned i = 0; i < TURNS; i++)
        once(way, i);
    printf("%ld %ld\n", resident() - before, (long)mallinfo2().uordblks - held);
    return 0;
}

static const way_t created = {begin_created, end_created};
static const way_t released = {begin_primary, end_released};
static const way_t with_reset = {begin_primary, end_reset};

static int of_created(void) {
    return grown(&created, turn);
}
static int of_released(void) {
    return grown(&released, turn);
}
static int of_reset(void) {
    return grown(&with_reset, turn);
}
static int of_threads(void) {
    return grown(&created, threaded);
}

/* Threads that make contexts of two devices beside each other, while one context stays: no block is
 * another's, and none of a context that has gone. */
static CUcontext stays;

static void *beside(void *arg) {
    unsigned seed = (unsigned)(size_t)arg;
    for (unsigned i = 0; i < 150; i++) {
        CUcontext context = begin_created((int)(i + seed) % 2);
        use((unsigned char)(seed * 50 + i % 50 + 1));
        if (i % 3 == 0) { /* and go on in the one that stays */
            CUcontext popped;
            MUST(cuCtxPushCurrent_v2(stays));
            program_use(3);
            MUST(cuCtxPopCurrent_v2(&popped));
        }
        end_created(context);
    }
    return NULL;
}

static int side_by_side(void) {
    pthread_t threads[4];
    program_device();
    MUST(cuCtxGetCurrent(&stays));
    for (size_t i = 0; i < 4; i++)
        NEED(!pthread_create(&threads[i], NULL, beside, (void *)i));
    for (int i = 0; i < 4; i++)
        NEED(!pthread_join(threads[i], NULL));
    program_use(5);
    EXPECT(simcuda_race_reports() == 0);
    return 0;
}

int main(int argc, char **argv) {
    static const program_case_t cases[] = {
        {"created", of_created}, {"released", of_released},      {"reset", of_reset},
        {"threads", of_threads}, {"side_by_side", side_by_side},
    };
    return program_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
