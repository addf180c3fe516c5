/* Stands in for libaccelcache.so where only its loading matters: says so on stderr when the
 * variable COMMAND_TEST is set, with the environment that the program was given. */
#include <stdio.h>
#include <stdlib.h>

int cuMemAlloc_v2(void);
int cuMemAlloc_v2(void) {
    return 0;
}

__attribute__((constructor)) static void loaded(void) {
    static const char *const names[] = {"LD_PRELOAD", "ACCEL_ALLOC_CONF", "ACCEL_SIM",
                                        "LD_LIBRARY_PATH"};
    if (!getenv("COMMAND_TEST"))
        return;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        fprintf(stderr, "%s=%s\n", names[i], value ? value : "(unset)");
    }
}
