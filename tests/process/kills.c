/* A program that is killed at any moment: threads that ask for memory, free it and give work to
 * streams, without an end.  With an argument: one that holds nothing, and has waited for all of it. */
#include <pthread.h>
#include <unistd.h>

#include "program.h"

enum { THREADS = 3, BLOCKS = 64 };

static CUcontext context;

static void *work(void *arg) {
    uint64_t random = (uintptr_t)arg + 1;
    CUdeviceptr block[BLOCKS] = {0};
    CUstream stream;
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (;;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (unsigned)(random >> 33) % BLOCKS;
        size_t bytes = (size_t)512 << (random >> 50) % 13;
        if (block[i]) {
            MUST(random >> 63 ? cuMemFree_v2(block[i]) : cuMemFreeAsync(block[i], stream));
            block[i] = 0;
            continue;
        }
        MUST(random >> 62 & 1 ? cuMemAlloc_v2(&block[i], bytes)
                              : cuMemAllocAsync(&block[i], bytes, stream));
        if (random >> 61 & 1)
            MUST(cuMemsetD8Async(block[i], 1, bytes, stream));
    }
    return NULL;
}

static void hold_nothing(void) {
    CUdeviceptr block[BLOCKS];
    CUstream stream[2];
    for (int i = 0; i < 2; i++)
        MUST(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++) {
        MUST(cuMemAllocAsync(&block[i], 65536, stream[0]));
        MUST(cuMemsetD8Async(block[i], 1, 65536, stream[i % 4 < 2]));
    }
    MUST(cuStreamSynchronize(stream[1])); /* before the other one frees */
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemFreeAsync(block[i], stream[0]));
    MUST(cuCtxSynchronize());
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    pthread_t thread;
    CUdeviceptr first; /* before it is ready: the device has figures */
    context = test_device(0);
    (void)argv;
    if (argc > 1)
        hold_nothing();
    MUST(cuMemAlloc_v2(&first, 512));
    for (uintptr_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&thread, NULL, work, (void *)i) == 0);
    puts("ready");
    fflush(stdout);
    NEED(pthread_join(thread, NULL) == 0);
    return 1;
}
