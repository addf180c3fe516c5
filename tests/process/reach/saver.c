/* A preload library that has to see each request and free of the runtime, as memory savers do: counts them
 * and passes them on.  It says the counts on stderr when the process ends. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#define SEEN(symbol, params, args)                                                               \
    static int calls_of_##symbol;                                                                \
    int symbol params;                                                                           \
    int symbol params {                                                                          \
        int(*next) params;                                                                       \
        *(void **)&next = dlsym(RTLD_NEXT, #symbol);                                             \
        __atomic_fetch_add(&calls_of_##symbol, 1, __ATOMIC_RELAXED);                             \
        return next ? next args : 500;                                                           \
    }
SEEN(cudaMalloc, (void **pointer, size_t bytes), (pointer, bytes))
SEEN(cudaFree, (void *pointer), (pointer))
SEEN(cudaMallocAsync, (void **pointer, size_t bytes, void *stream), (pointer, bytes, stream))
SEEN(cudaFreeAsync, (void *pointer, void *stream), (pointer, stream))
SEEN(cudaMallocHost, (void **pointer, size_t bytes), (pointer, bytes))
SEEN(cudaFreeHost, (void *pointer), (pointer))

__attribute__((destructor)) static void report(void) {
    char text[128];
    int length = snprintf(text, sizeof text, "saver: %d %d, in order %d %d, host %d %d\n",
                          calls_of_cudaMalloc, calls_of_cudaFree, calls_of_cudaMallocAsync,
                          calls_of_cudaFreeAsync, calls_of_cudaMallocHost, calls_of_cudaFreeHost);
    if (write(STDERR_FILENO, text, (size_t)length) != length)
        _exit(97);
}
