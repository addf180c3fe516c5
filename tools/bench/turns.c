/* turns OTHER own|other plain|async COUNT: frees of blocks that hits take back, for callgrind; see turns.py.
 *
 *   own     all blocks are the program's.
 *   other   every second block belongs to another module: the library OTHER, also built from this file.
 *   async   the calls are cudaMallocAsync and cudaFreeAsync. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Functions of the runtime, declared here. */
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMallocAsync(void **pointer, size_t bytes, void *stream);
int cudaFreeAsync(void *pointer, void *stream);

int other_take(void **pointer, size_t bytes, int async);

#ifdef TURNS_OTHER
int other_take(void **pointer, size_t bytes, int async) {
    int result = async ? cudaMallocAsync(pointer, bytes, NULL) : cudaMalloc(pointer, bytes);
    __asm__ volatile("" : : : "memory"); /* no tail call: the caller must be this library */
    return result;
}
#else
enum { BLOCKS = 8, BYTES = 4096 };

/* Has a name of its own, for callgrind. */
void turns_free(void *block[BLOCKS], int async);
__attribute__((noinline, noclone)) void turns_free(void *block[BLOCKS], int async) {
    for (int i = 0; i < BLOCKS; i++)
        if ((async ? cudaFreeAsync(block[i], NULL) : cudaFree(block[i])) != 0)
            abort();
}

static int own_take(void **pointer, size_t bytes, int async) {
    int result = async ? cudaMallocAsync(pointer, bytes, NULL) : cudaMalloc(pointer, bytes);
    __asm__ volatile("" : : : "memory");
    return result;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 64;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *found = NULL, *block[BLOCKS];
    if (library)
        found = dlsym(library, "other_take");
    int (*take)(void **, size_t, int), async = !strcmp(argv[3], "async");
    memcpy(&take, &found, sizeof take);
    if (!take) {
        fprintf(stderr, "turns: no other_take in %s\n", argv[1]);
        return 1;
    }
    if (!strcmp(argv[2], "own"))
        take = own_take;
    for (int left = atoi(argv[4]); left; left--) {
        for (int i = 0; i < BLOCKS; i++)
            if ((i % 2 ? take : own_take)(&block[i], BYTES, async) != 0)
                return 1;
        turns_free(block, async);
    }
    return 0;
}
#endif
