/* Programs that come to a library with such variables.
 * usage: named_host [LIBRARY FUNCTION]...   opened, with a "+" before its name by dlmopen; calls FUNCTION, or with "-" what the library's constructor left
 *        named_host LIBRARY LIBRARY          opened and closed by a thread for each, at the same time
 *        named_linked                        linked (NAMED_LINKED)
 *        named_copied                        linked, with copies of the variables (NAMED_COPIED) */
#include <pthread.h>
#include <stdbool.h>

#include "named.h"

#if defined(NAMED_COPIED)
NAMED(extern, )
int named_use(void);
int main(void) {
    NAMED_SAY("program");
    if (named_load())
        return 1;
    NAMED_SAY("program loaded");
    driver_t driver = NAMED_DRIVER;
    return exercise(&driver) | named_use();
}
#elif defined(NAMED_LINKED)
int named_use(void), named_use_elsewhere(void);
int main(void) {
    return named_use() | named_use_elsewhere();
}
#else
int (*named_registered)(void);

/* Returns NULL if the library finds its own variable each time. */
static void *open_and_close(void *path) {
    for (int turn = 0; turn < 3000; turn++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        int (*load)(void) = NULL;
        *(void **)&load = library ? dlsym(library, "named_load") : NULL;
        if (!load || load())
            return path;
        cuMemFree_v2_fn **variable = dlsym(library, "cuMemFree_v2");
        CUresult (*missing)(CUdeviceptr) = NULL;
        *(void **)&missing = dlsym(library, "named_missing");
        if (!variable || !missing || *variable == missing || dlclose(library))
            return path;
    }
    return NULL;
}

static int open_at_once(char **paths) {
    enum { THREADS = 2 };
    pthread_t threads[THREADS];
    void *failed[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, open_and_close, paths[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], &failed[i]);
    return failed[0] || failed[1];
}

int main(int argc, char **argv) {
    int failed = argc < 3;
    if (!failed && strchr(argv[1], '/') && strchr(argv[2], '/'))
        return open_at_once(argv + 1);
    for (int i = 1; i + 1 < argc; i += 2) {
        bool spaced = argv[i][0] == '+';
        void *library = spaced ? dlmopen(LM_ID_BASE, argv[i] + 1, RTLD_NOW | RTLD_LOCAL)
                               : dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        const char *error = dlerror();
        if (error)
            printf("dlerror: %s\n", error);
        int (*use)(void) = named_registered;
        if (library && strcmp(argv[i + 1], "-") != 0)
            *(void **)&use = dlsym(library, argv[i + 1]);
        failed |= use ? use() : 2;
    }
    return failed;
}
#endif
