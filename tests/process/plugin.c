/* A plugin whose constructor uses CUDA, with threads that use it too, while dlopen holds the
 * loader's lock.  It waits for them: a thread that needed that lock would never come. */
#include <pthread.h>

#include "program.h"

static void *beside(void *arg) {
    program_device();
    program_use(10);
    return arg;
}

__attribute__((constructor)) static void start(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        NEED(!pthread_create(&threads[i], NULL, beside, NULL));
    program_device();
    program_use(10);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}
