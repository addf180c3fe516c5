/* Opens a CUDA library of NVIDIA's, which carries a static cudart, and makes its first call.
 * usage: libraries cublas|nccl PATH */
#include "reach.h"

typedef int create_fn(void **handle);
typedef int count_fn(int *value);

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("not opened: %s\n", dlerror());
        return 77;
    }
    void *handle = NULL;
    if (!strcmp(argv[1], "cublas")) {
        create_fn *create = FUNCTION(create_fn, dlsym(library, "cublasCreate_v2"));
        printf("cublasCreate: %d\n", create ? create(&handle) : -1);
        return !create;
    }
    /* ncclCommInitAll(&comm, 1, NULL) */
    int (*init)(void **, int, const int *) = NULL;
    *(void **)&init = dlsym(library, "ncclCommInitAll");
    printf("ncclCommInitAll: %d\n", init ? init(&handle, 1, NULL) : -1);
    return !init;
}
