/* Threads that come and go, and CUDA in places where the loader's lock is held. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "program.h"

static void *ten_pairs(void *arg) {
    program_device();
    program_use(10);
    return arg;
}

/* 1,000 threads, 100 at a time: more than there are counter rows. */
static int many_at_once(void) {
    for (int round = 0; round < 10; round++) {
        pthread_t threads[100];
        for (int i = 0; i < 100; i++)
            NEED(!pthread_create(&threads[i], NULL, ten_pairs, NULL));
        for (int i = 0; i < 100; i++)
            pthread_join(threads[i], NULL);
    }
    return 0;
}

/* The same without a race for the first use: those that lose it are served by the driver. */
static int many(void) {
    program_device();
    return many_at_once();
}

/* Destructors of thread-specific data free memory: keys made before the library's, and after. */
static pthread_key_t keys[8];

static void free_value(void *value) {
    program_free((CUdeviceptr)(size_t)value);
}

static void *leave_blocks(void *arg) {
    program_device();
    for (int i = 0; i < 8; i++)
        pthread_setspecific(keys[i], (void *)(size_t)program_alloc());
    return arg;
}

static int destructors(void) {
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        NEED(!pthread_key_create(&keys[i], free_value));
    program_device();
    for (int i = 4; i < 8; i++)
        NEED(!pthread_key_create(&keys[i], free_value));
    for (int i = 0; i < 100; i++) {
        NEED(!pthread_create(&thread, NULL, leave_blocks, NULL));
        pthread_join(thread, NULL);
    }
    return 0;
}

static _Atomic int stop;

static void *until_stopped(void *arg) {
    program_device();
    while (!atomic_load(&stop))
        program_use(1);
    return arg;
}

/* A library whose constructor uses CUDA first, or together with another thread. */
static int constructor(void) {
    const char *path = getenv("PROCESS_PLUGIN");
    NEED(path != NULL);
    NEED(dlopen(path, RTLD_NOW) != NULL);
    return 0;
}

static int constructor_beside(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        NEED(!pthread_create(&threads[i], NULL, until_stopped, NULL));
    int status = constructor();
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return status;
}

/* How many threads there are before CUDA, after it, and how many of them stay. */
static int count_threads(void) {
    char line[256];
    int count = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "Threads: %d", &count);
    if (status)
        fclose(status);
    return count;
}

static int counted(void) {
    int before = count_threads();
    CUdevice device;
    cuDeviceGet(&device, 0); /* fails: nothing is initialised */
    int asked = count_threads();
    program_device();
    program_use(1);
    printf("%d %d %d\n", before, asked, count_threads());
    return 0;
}

/* The library opened by the program, and closed again while its key and handlers are in use. */
static int closed(void) {
    void *library = dlopen(getenv("PROCESS_LIBRARY"), RTLD_NOW);
    NEED(library != NULL);
    union {
        void *address;
        cuMemAlloc_v2_fn *alloc;
        cuMemFree_v2_fn *release;
    } a = {dlsym(library, "cuMemAlloc_v2")}, f = {dlsym(library, "cuMemFree_v2")};
    CUdeviceptr block;
    program_device();
    NEED(a.address && a.alloc(&block, 4096) == CUDA_SUCCESS);
    NEED(f.address && f.release(block) == CUDA_SUCCESS);
    NEED(dlclose(library) == 0);
    MUST(a.alloc(&block, 4096));
    MUST(f.release(block));
    return 0;
}

/* Threads that end with full caches, one after another: what they kept is found again. */
static void *fill_cache(void *arg) {
    enum { BLOCKS = 64 };
    CUdeviceptr block[BLOCKS];
    program_device();
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemAlloc_v2(&block[i], (size_t)64 << 10));
    for (int i = 0; i < BLOCKS; i++)
        program_free(block[i]);
    return arg;
}

static int full_caches(void) {
    program_device();
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        NEED(!pthread_create(&thread, NULL, fill_cache, NULL));
        pthread_join(thread, NULL);
    }
    printf("%llu\n", simcuda_used_memory(0) >> 20);
    /* All of it in one piece. */
    CUdeviceptr all;
    size_t available, total;
    MUST(cuMemGetInfo_v2(&available, &total));
    MUST(cuMemAlloc_v2(&all, total - (8 << 20)));
    program_free(all);
    return 0;
}

/* A plugin that uses CUDA comes and goes, with memory that outlives it. */
static int unloaded(void) {
    const char *path = getenv("PROCESS_PLUGIN");
    program_device();
    program_use(1);
    for (int i = 0; i < 5; i++) {
        void *plugin = dlopen(path, RTLD_NOW);
        NEED(plugin != NULL);
        NEED(dlclose(plugin) == 0);
        program_use(1);
    }
    return 0;
}

/* The same with the runtime itself, which may come back elsewhere. */
static int runtime_unloaded(void) {
    enum { TIMES = 20 }; /* more than there are records of runtimes */
    void *padding[TIMES];
    for (int i = 0; i < TIMES; i++) {
        void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
        NEED(runtime != NULL);
        union {
            void *address;
            int (*alloc)(void **, size_t);
            int (*release)(void *);
        } a = {dlsym(runtime, "cudaMalloc")}, f = {dlsym(runtime, "cudaFree")};
        void *block[3];
        NEED(a.address && f.address);
        for (int j = 0; j < 3; j++)
            NEED(a.alloc(&block[j], 1 << 20) == 0);
        for (int j = 0; j < 2; j++)
            NEED(f.release(block[j]) == 0);
        NEED(dlclose(runtime) == 0);
        program_device();
        program_free((CUdeviceptr)(size_t)block[2]); /* by the driver: the runtime has gone */
        padding[i] = mmap(NULL, 64 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(padding[i] != MAP_FAILED); /* it will not come to lie where it was */
    }
    return 0;
}

static void free_held(void *held) {
    if (*(CUdeviceptr *)held)
        program_free(*(CUdeviceptr *)held);
}

/* Holds at most one block, which it frees when it is cancelled: in a call of CUDA, or between. */
static void *until_cancelled(void *seed) {
    enum { LEAST = 512, MOST = 3 << 20 };
    unsigned *const state = seed;
    CUdeviceptr held = 0, block;
    program_device();
    pthread_cleanup_push(free_held, &held);
    for (;;) {
        *state = *state * 1664525 + 1013904223;
        MUST(cuMemAlloc_v2(&block, LEAST + (*state >> 8) % MOST));
        held = block;
        pthread_testcancel();
        MUST(cuMemsetD8Async(held, 1, LEAST, NULL));
        if (*state >> 29 == 0)
            MUST(cuStreamSynchronize(NULL));
        held = 0;
        MUST(cuMemFree_v2(block));
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static int cancelled(void) {
    enum { ROUNDS = 60, BESIDE = 4 };
    program_device();
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t threads[BESIDE];
        unsigned seeds[BESIDE];
        void *result;
        for (unsigned i = 0; i < BESIDE; i++) {
            seeds[i] = round * BESIDE + i;
            NEED(!pthread_create(&threads[i], NULL, until_cancelled, &seeds[i]));
        }
        usleep(round * 37 % 900);
        for (int i = 0; i < BESIDE; i++)
            NEED(!pthread_cancel(threads[i]));
        for (int i = 0; i < BESIDE; i++)
            NEED(!pthread_join(threads[i], &result) && result == PTHREAD_CANCELED);
    }
    program_use(10);
    return 0;
}

int main(int argc, char **argv) {
    static const program_case_t cases[] = {
        {"many", many},
        {"many_at_once", many_at_once},
        {"destructors", destructors},
        {"constructor", constructor},
        {"constructor_beside", constructor_beside},
        {"counted", counted},
        {"closed", closed},
        {"full_caches", full_caches},
        {"unloaded", unloaded},
        {"runtime_unloaded", runtime_unloaded},
        {"cancelled", cancelled},
    };
    return program_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
