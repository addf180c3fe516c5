/* turns OTHER own|other COUNT: frees of blocks that hits take back, for callgrind; see turns.py.
 *
 *   own     all blocks are the program's
 *   other   each second one is another module's: the library OTHER, made of this file, too */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the runtime. */
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);

int other_take(void **pointer, size_t bytes);

#ifdef TURNS_OTHER
int other_take(void **pointer, size_t bytes) {
    int result = cudaMalloc(pointer, bytes);
    __asm__ volatile("" : : : "memory"); /* no jump: its caller is this library */
    return result;
}
#else
enum { BLOCKS = 8, BYTES = 4096 };

/* By name, for callgrind. */
void turns_free(void *block[BLOCKS]);
__attribute__((noinline, noclone)) void turns_free(void *block[BLOCKS]) {
    for (int i = 0; i < BLOCKS; i++)
        if (cudaFree(block[i]) != 0)
            abort();
}

static int own_take(void **pointer, size_t bytes) {
    int result = cudaMalloc(pointer, bytes);
    __asm__ volatile("" : : : "memory");
    return result;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 64;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *found = NULL, *block[BLOCKS];
    if (library)
        found = dlsym(library, "other_take");
    int (*take)(void **, size_t);
    memcpy(&take, &found, sizeof take);
    if (!take) {
        fprintf(stderr, "turns: no other_take in %s\n", argv[1]);
        return 1;
    }
    if (!strcmp(argv[2], "own"))
        take = own_take;
    for (int left = atoi(argv[3]); left; left--) {
        for (int i = 0; i < BLOCKS; i++)
            if ((i % 2 ? take : own_take)(&block[i], BYTES) != 0)
                return 1;
        turns_free(block);
    }
    return 0;
}
#endif
