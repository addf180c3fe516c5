/* Programs that tests record. Each prints a line for each of its operations, in order;
 * programs.py compares these with the trace.
 *
 *   a ADDRESS BYTES STREAM   allocation; STREAM is the handle in hexadecimal, 0 for none
 *   m ADDRESS BYTES STREAM   allocation of managed memory
 *   x BYTES ERROR            failed request
 *   f ADDRESS                free
 *   s                        synchronisation of the context
 *   w STREAM                 synchronisation of a stream
 *   e EVENT                  synchronisation of an event */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

#include "../../../tools/simcuda/cudart/cuda_runtime_min.h"

static void say_alloc(char kind, uint64_t address, size_t bytes, const void *stream) {
    printf("%c %llx %zu %llx\n", kind, (unsigned long long)address, bytes,
           (unsigned long long)(uintptr_t)stream);
}

static void say_free(uint64_t address) {
    printf("f %llx\n", (unsigned long long)address);
}

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr block;
    MUST(cuMemAlloc_v2(&block, bytes));
    say_alloc('a', block, bytes, NULL);
    return block;
}

static void give(CUdeviceptr block) {
    say_free(block);
    program_free(block);
}

static CUdeviceptr take_on(size_t bytes, CUstream stream, const void *named) {
    CUdeviceptr block;
    MUST(cuMemAllocAsync(&block, bytes, stream));
    say_alloc('a', block, bytes, named);
    return block;
}

static void *const legacy = (void *)1;

/* Makes each driver call that has a kind of event, with valid and invalid arguments. */
static int driver_calls(void) {
    CUdeviceptr block[8], refused = 0;
    size_t pitch;
    CUstream stream, other;
    CUevent event;
    program_device();
    MUST(cuStreamCreate(&stream, 0));
    MUST(cuStreamCreate(&other, 0));
    MUST(cuEventCreate(&event, 0));
    block[0] = take(1);
    block[1] = take(3 << 20);
    give(block[0]);
    block[0] = take(1);
    MUST(cuMemAllocPitch_v2(&block[2], &pitch, 1000, 7, 4));
    say_alloc('a', block[2], pitch * 7, NULL);
    MUST(cuMemAllocManaged(&block[3], 12345, 1));
    say_alloc('m', block[3], 12345, NULL);
    block[4] = take_on(70000, stream, stream);
    block[5] = take_on(70001, other, other);
    block[6] = take_on(70002, NULL, legacy);
    CUresult result = cuMemAlloc_v2(&refused, (size_t)1 << 45);
    GIVES(result, CUDA_ERROR_OUT_OF_MEMORY);
    printf("x %zu %d\n", (size_t)1 << 45, (int)result);
    GIVES(cuMemFree_v2(block[1] + 512), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemFree_v2(0x1234500), CUDA_ERROR_INVALID_VALUE);
    MUST(cuMemFree_v2(0));
    MUST(cuCtxSynchronize());
    printf("s\n");
    MUST(cuStreamSynchronize(stream));
    printf("w %llx\n", (unsigned long long)(uintptr_t)stream);
    MUST(cuStreamQuery(stream));
    MUST(cuEventRecord(event, stream));
    MUST(cuEventSynchronize(event));
    printf("e %llx\n", (unsigned long long)(uintptr_t)event);
    say_free(block[4]);
    MUST(cuMemFreeAsync(block[4], stream));
    say_free(block[5]);
    MUST(cuMemFreeAsync(block[5], stream));
    give(block[6]);
    give(block[3]);
    give(block[2]);
    give(block[1]);
    return 0; /* one block stays allocated */
}

/* Makes runtime calls, some of which the fast path serves. */
static int runtime_calls(void) {
    enum { ROUNDS = 2000 };
    void *block, *managed, *refused = NULL;
    cudaStream_t stream;
    MUST(cudaMalloc(&block, 1 << 16));
    say_alloc('a', (uintptr_t)block, 1 << 16, NULL);
    MUST(cudaStreamCreate(&stream));
    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes = (size_t)(i % 7 + 1) * 1000;
        void *fresh;
        if (i % 3) {
            MUST(cudaMalloc(&fresh, bytes));
            say_alloc('a', (uintptr_t)fresh, bytes, NULL);
        } else {
            MUST(cudaMallocAsync(&fresh, bytes, stream));
            say_alloc('a', (uintptr_t)fresh, bytes, stream);
        }
        say_free((uintptr_t)block);
        MUST((i % 5 ? cudaFree(block) : cudaFreeAsync(block, stream)));
        block = fresh;
    }
    MUST(cudaMallocManaged(&managed, 777, 1));
    say_alloc('m', (uintptr_t)managed, 777, NULL);
    say_free((uintptr_t)managed);
    MUST(cudaFree(managed));
    GIVES(cudaMalloc(&refused, (size_t)1 << 45), cudaErrorMemoryAllocation);
    printf("x %zu %d\n", (size_t)1 << 45, (int)CUDA_ERROR_OUT_OF_MEMORY);
    cudaGetLastError();
    NEED(cudaFree((char *)block + 512) != cudaSuccess);
    cudaGetLastError();
    MUST(cudaDeviceSynchronize());
    printf("s\n");
    say_free((uintptr_t)block);
    MUST(cudaFree(block));
    return 0;
}

/* Destroys a context while it has memory. Another context stays. */
static int contexts(void) {
    CUcontext created;
    program_device();
    CUdeviceptr kept = take(4096);
    MUST(cuCtxCreate_v2(&created, 0, 0));
    take(8192);
    take(3 << 20);
    MUST(cuCtxDestroy_v2(created));
    printf("gone\n");
    program_device();
    take(100);
    give(kept);
    return 0;
}

/* --- threads: blocks pass between threads; the thread that finds one frees it --- */

enum { THREADS = 6, SLOTS = 16, OPERATIONS = 4000 };
static _Atomic CUdeviceptr slot[SLOTS];

static void *exchange(void *arg) {
    uint32_t random = (uint32_t)(uintptr_t)arg * 2654435761u + 1;
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (int i = 0; i < OPERATIONS; i++) {
        CUdeviceptr block = 0;
        random = random * 1664525 + 1013904223;
        MUST(cuMemAlloc_v2(&block, (random >> 8) % 50000 + 1));
        block = atomic_exchange(&slot[(random >> 4) % SLOTS], block);
        if (block)
            program_free(block);
    }
    return NULL;
}

static int threads(void) {
    pthread_t thread[THREADS];
    program_device();
    for (uintptr_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&thread[i], NULL, exchange, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < SLOTS; i++)
        if (slot[i])
            program_free(slot[i]);
    return 0;
}

/* Allocates and frees in two threads until a signal kills the process. */
static int endless(void) {
    pthread_t thread;
    program_device();
    program_use(100);
    printf("going\n");
    fflush(stdout);
    pthread_create(&thread, NULL, exchange, (void *)1);
    while (exchange((void *)2) == NULL) {
    }
    return 1;
}

/* Allocates and frees for a short time, then waits for the end of its input. */
static int busy(void) {
    program_device();
    program_use(100);
    printf("going\n");
    fflush(stdout);
    for (int i = 0; i < 10; i++)
        exchange((void *)2);
    return getchar() == EOF ? 0 : 1;
}

/* --- ends --- */

static CUdeviceptr last_block;

static void free_late(void) {
    program_free(last_block);
}

/* Uses CUDA and leaves one block allocated for the end of the program. */
static void start(void) {
    program_device();
    program_use(3);
    last_block = take(1000);
    fflush(stdout);
}

static int ends_exit(void) {
    start();
    atexit(free_late);
    exit(0);
}

static int ends_exit_now(void) {
    start();
    _exit(0);
}

static int ends_quick(void) {
    start();
    quick_exit(0);
}

static int ends_kill(void) {
    start();
    return raise(SIGKILL);
}

/* --- other processes --- */

static void wait_well(pid_t child) {
    int status;
    NEED(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static int use_some(void) {
    program_device();
    program_use(5);
    return 0;
}

/* Forks before and after the first use of CUDA, and executes itself in a child and in place. */
static int family(void) {
    extern char **environ;
    static char self[] = "/proc/self/exe", some[] = "use_some";
    char *command[] = {self, some, NULL};
    pid_t child = fork();
    if (child == 0)
        exit(use_some());
    wait_well(child);
    program_device();
    program_use(3);
    child = fork();
    if (child == 0) {
        CUdeviceptr block;
        GIVES(cuMemAlloc_v2(&block, 4096), CUDA_ERROR_NOT_INITIALIZED);
        exit(0);
    }
    wait_well(child);
    child = fork();
    if (child == 0)
        execve(self, command, environ);
    wait_well(child);
    execve(self, command, environ);
    return 1;
}

enum { UNIT = 65536 };

/* Makes a child without fork handlers, which has a copy of all of its parent's state. */
static int cloned(void) {
    program_device();
    CUdeviceptr kept = take(UNIT);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        program_use(20000); /* several chunks of a trace */
        _exit(0);
    }
    wait_well(child);
    for (int i = 0; i < 10; i++)
        give(take(UNIT));
    give(kept);
    return 0;
}

int main(int argc, char **argv) {
    static const program_case_t cases[] = {
        {"driver_calls", driver_calls},
        {"runtime_calls", runtime_calls},
        {"contexts", contexts},
        {"threads", threads},
        {"endless", endless},
        {"busy", busy},
        {"exit", ends_exit},
        {"_exit", ends_exit_now},
        {"quick_exit", ends_quick},
        {"kill", ends_kill},
        {"use_some", use_some},
        {"family", family},
        {"cloned", cloned},
    };
    return program_main(argc, argv, cases, sizeof cases / sizeof *cases);
}
