/* right_cublas: multiplies matrices of several sizes on two streams, and allocates and frees their
 * memory in between. */
#include <stdio.h>

#include "right.h"

typedef struct cublas_handle *handle_t;
static int (*create)(handle_t *);
static int (*destroy)(handle_t);
static int (*set_stream)(handle_t, CUstream);
static int (*gemm)(handle_t, int, int, int, int, int, const float *, const float *, int,
                   const float *, int, const float *, float *, int);

static float *pointer(CUdeviceptr at) {
    return (float *)(uintptr_t)at;
}

int main(void) {
    static const char *const sonames[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                          NULL};
    enum { ROUNDS = 12 };
    const float one = 1.0f, half = 0.5f;
    handle_t handle;
    void *library = right_library("cuBLAS", sonames);
    right_find(library, "cublasCreate_v2", &create);
    right_find(library, "cublasDestroy_v2", &destroy);
    right_find(library, "cublasSetStream_v2", &set_stream);
    right_find(library, "cublasSgemm_v2", &gemm);
    right_open();
    CUstream streams[2] = {right_stream(), right_stream()};
    LIBRARY_MUST(create(&handle));
    for (int round = 0; round < ROUNDS; round++) {
        int n = 96 + 71 * round;
        size_t count = (size_t)n * (size_t)n;
        CUdeviceptr a = right_floats(count, 1), b = right_floats(count, 2),
                    c = right_floats(count, 3);
        LIBRARY_MUST(set_stream(handle, streams[round % 2]));
        for (int i = 0; i < 3; i++)
            LIBRARY_MUST(gemm(handle, 0, i % 2, n, n, n, &half, pointer(a), n, pointer(b), n,
                              &one, pointer(c), n));
        MUST(cu.cuMemFree_v2(a));
        MUST(cu.cuMemFree_v2(b));
        printf("%d: %016llx\n", n, right_floats_end(c, count));
    }
    LIBRARY_MUST(destroy(handle));
    return 0;
}
