/* Lookups without a library's handle, from the executable.  Built twice: linked with the
 * driver (SCOPES_LINKED), and without any CUDA. */
#include "reach.h"

static const char *const names[] = {
    "cuMemAlloc_v2",    "cuMemFree_v2", "cuInit",     "cuLaunchKernel", "cuGetProcAddress_v2",
    "cuDeviceGetCount", "cuNothing",    "cudaMalloc", "cudaSetDevice",  "cublasCreate_v2"};

static void everywhere(const char *when) {
    void *main_program = dlopen(NULL, RTLD_LAZY);
    printf("%s\n", when);
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        look("default", RTLD_DEFAULT, names[i], dlsym);
        look("next", RTLD_NEXT, names[i], dlsym);
        look("main", main_program, names[i], dlsym);
    }
}

#ifdef SCOPES_LINKED
cuInit_fn cuInit;

int main(void) {
    everywhere("linked");
    say("linked cuInit", ADDRESS(cuInit));
    return 0;
}
#else
int main(int argc, char **argv) {
    everywhere("before");
    if (argc < 2)
        return 0;
    void *local = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!local)
        return 1;
    everywhere("loaded for itself");
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        look("handle", local, names[i], dlsym);
    void *global = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!global)
        return 1;
    everywhere("loaded for all");
    dlclose(global);
    dlclose(local);
    return 0;
}
#endif
