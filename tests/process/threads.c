/* Threads that come and go, and CUDA in places where the loader's lock is held. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

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

int main(int argc, char **argv) {
    static const program_case_t cases[] = {
        {"many", many},
        {"many_at_once", many_at_once},
        {"destructors", destructors},
        {"constructor", constructor},
        {"constructor_beside", constructor_beside},
        {"counted", counted},
        {"closed", closed},
    };
    return program_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
