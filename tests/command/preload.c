/* Stand-in for libaccelcache.so in tests that only check that a library was loaded. If the
 * variable COMMAND_TEST is set, it prints the environment of the program to stderr.
 * COMMAND_TEST_BARRIER is the time in ms by which each thread is late at a barrier, as on a busy
 * machine. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

int pthread_barrier_wait(pthread_barrier_t *barrier) {
    int (*real)(pthread_barrier_t *);
    void *found = dlsym(RTLD_NEXT, "pthread_barrier_wait");
    const char *late = getenv("COMMAND_TEST_BARRIER");
    memcpy(&real, &found, sizeof real);
    long ms = late ? strtol(late, NULL, 10) : 0;
    if (ms)
        nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    return real(barrier);
}
