/* Requests and frees of the runtime, all but the first ones of which a cache can serve.  By itself, in another thread
 * as well. */
#include <pthread.h>
#include <stdio.h>

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMallocAsync(void **pointer, size_t bytes, void *stream);
int cudaFreeAsync(void *pointer, void *stream);
int cudaMallocHost(void **pointer, size_t bytes);
int cudaFreeHost(void *pointer);

enum { ROUNDS = 10, BYTES = 1 << 20 };

static void *work(void *failed) {
    for (int i = 0; i < ROUNDS; i++) {
        void *plain, *ordered, *host;
        if (cudaMalloc(&plain, BYTES) || cudaMallocAsync(&ordered, BYTES, NULL) ||
            cudaMallocHost(&host, BYTES) || cudaFree(plain) || cudaFreeAsync(ordered, NULL) ||
            cudaFreeHost(host))
            *(int *)failed = 1;
    }
    return NULL;
}

int main(void) {
    int failed = 0;
    pthread_t thread;
    work(&failed);
    if (pthread_create(&thread, NULL, work, &failed) || pthread_join(thread, NULL))
        failed = 1;
    puts(failed ? "failed" : "done");
    return failed;
}
