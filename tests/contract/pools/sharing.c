/* A pool that other processes open, and its memory there. */
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pools.h"

extern char **environ;

enum { BYTES = 3 << 20, POSIX = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };

/* Opens the exporter's memory. The environment has the descriptor of the pool and the 64 bytes of
 * a pointer. */
static void importer(void) {
    const char *text = getenv("POOL_POINTER");
    int descriptor = atoi(getenv("POOL_DESCRIPTOR"));
    CUmemPoolPtrExportData data, wrong = {{1}};
    CUmemoryPool pool;
    CUdeviceptr memory, other;
    CUstream stream = test_stream();
    unsigned word = 0;
    for (size_t i = 0; i < sizeof data; i++) {
        unsigned byte = 0;
        NEED(sscanf(text + 2 * i, "%2x", &byte) == 1);
        data.reserved[i] = (unsigned char)byte;
    }
    GIVES(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)STDIN_FILENO, POSIX, 0),
          CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor, POSIX, 0));
    GIVES(cuMemPoolImportPointer(&memory, pool, &wrong), CUDA_ERROR_INVALID_VALUE);
    CUmemoryPool own = pool_with(POSIX, 0, 0, 0);
    other = take(MIB, own, stream);
    MUST(cuMemPoolExportPointer(&wrong, other));
    GIVES(cuMemPoolImportPointer(&memory, pool, &wrong), CUDA_ERROR_INVALID_VALUE);
    give(other, stream);
    MUST(cuMemPoolDestroy(own));
    PASSED("exportable", 1);
    MUST(cuMemPoolImportPointer(&memory, pool, &data));
    EXPECT(pool_of(memory) == pool);
    MUST(cuMemcpyDtoH_v2(&word, memory + BYTES - 4, 4));
    EXPECT(word == 41);
    MUST(cuMemsetD32Async(memory, 42, 16, stream));
    GIVES(cuMemAllocFromPoolAsync(&other, MIB, pool, stream), CUDA_ERROR_INVALID_VALUE);
    PASSED("exportable", 1);
    GIVES(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
    give(take(MIB, NULL, stream), stream);
    PASSED(NULL, 0);
    unsigned long long pools = simcuda_live("pools");
    MUST(cuMemPoolDestroy(pool));
    EXPECT(pool_plain() != pool); /* the pool exists until its memory is closed */
    give(memory, stream);
    GIVES(cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
    MUST(cuStreamSynchronize(stream));
    EXPECT(simcuda_live("pools") == pools); /* the imported pool is gone, and the plain one
                                               exists */
}

static void shared(void) {
    CUstream stream = test_stream();
    CUmemoryPool pool = pool_with(POSIX, 0, 0, 0);
    CUdeviceptr memory = take(BYTES, pool, stream);
    CUmemPoolPtrExportData data;
    char text[2 * sizeof data + 1], number[16];
    char *arguments[] = {(char[]){"pools_program"}, (char[]){"importer"}, NULL};
    unsigned word = 0;
    int descriptor, open, status = -1;
    pid_t child;
    MUST(cuMemsetD32Async(memory, 41, BYTES / 4, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemPoolExportToShareableHandle(&descriptor, pool, POSIX, 0));
    MUST(cuMemPoolExportPointer(&data, memory));
    open = dup(descriptor); /* a descriptor that the other process inherits */
    for (size_t i = 0; i < sizeof data; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned)data.reserved[i]);
    snprintf(number, sizeof number, "%d", open);
    NEED(!setenv("POOL_POINTER", text, 1) && !setenv("POOL_DESCRIPTOR", number, 1));
    NEED(!posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ));
    NEED(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == TEST_GOOD);
    MUST(cuMemcpyDtoH_v2(&word, memory, 4));
    EXPECT(word == 42);
    give(memory, stream);
    PASSED("exportable", 1);
}

const case_t sharing[] = {{"shared", shared}, {"importer", importer}};
const size_t sharing_count = sizeof sharing / sizeof *sharing;
