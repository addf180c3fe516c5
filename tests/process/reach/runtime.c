/* A program of the runtime API: linked with a shared or a static cudart, the stand-in or the
 * real one.  RUNTIME_EXPECTED is what its calls return: 0, or the error of a real cudart on the
 * simulated driver, which lacks private tables that it wants.  RUNTIME_PLUGIN makes it a plugin
 * for host.c, whose runtime no other object can see. */
#include "reach.h"

int cudaSetDevice(int device);
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);

#ifdef RUNTIME_ENTRY_POINTS
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                            unsigned *status);
int cudaGetDriverEntryPoint_ptsz(const char *name, void **function, unsigned long long flags,
                                 unsigned *status);
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                     unsigned long long flags, unsigned *status);
int cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **function, unsigned version,
                                          unsigned long long flags, unsigned *status);

static void entry_points(void) {
    static const char *const names[] = {"cuMemAlloc",       "cuMemAllocAsync",  "cuLaunchKernel",
                                        "cuDeviceGetCount", "cuGetProcAddress", "cuNothing"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (unsigned flags = 0; flags < 3; flags++) {
            void *found[4] = {NULL, NULL, NULL, NULL};
            unsigned status[4] = {9, 9, 9, 9};
            printf("%s flags %u:", names[i], flags);
            printf(" %d", cudaGetDriverEntryPoint(names[i], &found[0], flags, &status[0]));
            printf(" %d", cudaGetDriverEntryPoint_ptsz(names[i], &found[1], flags, &status[1]));
            printf(" %d", cudaGetDriverEntryPointByVersion(names[i], &found[2], 12000, flags,
                                                           &status[2]));
            printf(" %d\n", cudaGetDriverEntryPointByVersion_ptsz(names[i], &found[3], 11030,
                                                                  flags, &status[3]));
            for (unsigned j = 0; j < 4; j++) {
                printf("  status %u\n", status[j]);
                say("  entry", found[j]);
            }
        }
    }
    void *found = NULL;
    printf("NULL status %d\n", cudaGetDriverEntryPoint("cuMemFree", &found, 0, NULL));
    say("cuMemFree", found);
}
#endif

#ifdef RUNTIME_PLUGIN
void plugin_lookups(void);
int plugin_dependency(void);
int plugin_use(void);
void plugin_lookups(void) {
}
int plugin_dependency(void) {
    return 0;
}
int plugin_use(void) {
#else
int main(void) {
#endif
    void *a = NULL, *b = NULL;
    int results[] = {cudaSetDevice(0), cudaMalloc(&a, 1 << 20), cudaMalloc(&b, 1000), cudaFree(a),
                     cudaFree(b)};
    int failed = 0;
    for (unsigned i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        printf("call %u: %d\n", i, results[i]);
        failed |= results[i] != RUNTIME_EXPECTED && i < 3;
    }
#ifdef RUNTIME_ENTRY_POINTS
    entry_points();
#endif
    if (RUNTIME_EXPECTED) { /* it gave up early: use CUDA, so that there is a dump */
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        cuInit_fn *init = FUNCTION(cuInit_fn, look("at last", driver, "cuInit", dlsym));
        failed |= !init || init(0);
    }
    return failed;
}
