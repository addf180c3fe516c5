/* Programs that come to a library with such variables.
 * usage: named_host [LIBRARY FUNCTION]...   opened; calls FUNCTION, or with "-" what the library's constructor left
 *        named_linked                        linked (NAMED_LINKED)
 *        named_copied                        linked, with copies of the variables (NAMED_COPIED) */
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
int main(int argc, char **argv) {
    int failed = argc < 3;
    for (int i = 1; i + 1 < argc; i += 2) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
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
