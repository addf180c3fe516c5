/* right_cusolver: factorises matrices, and allocates and frees their work space in between. */
#include <stdio.h>

#include "right.h"

typedef struct cusolver_handle *handle_t;
static int (*create)(handle_t *);
static int (*destroy)(handle_t);
static int (*set_stream)(handle_t, CUstream);
static int (*room)(handle_t, int, int, float *, int, int *);
static int (*factorise)(handle_t, int, int, float *, int, float *, int *, int *);

static void *pointer(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

int main(void) {
    static const char *const sonames[] = {"libcusolver.so.12", "libcusolver.so.11",
                                          "libcusolver.so.10", NULL};
    enum { ROUNDS = 8 };
    handle_t handle;
    void *library = right_library("cuSOLVER", sonames);
    right_find(library, "cusolverDnCreate", &create);
    right_find(library, "cusolverDnDestroy", &destroy);
    right_find(library, "cusolverDnSetStream", &set_stream);
    right_find(library, "cusolverDnSgetrf_bufferSize", &room);
    right_find(library, "cusolverDnSgetrf", &factorise);
    right_open();
    CUstream stream = right_stream();
    LIBRARY_MUST(create(&handle));
    LIBRARY_MUST(set_stream(handle, stream));
    for (int round = 0; round < ROUNDS; round++) {
        int n = 64 + 97 * round, words;
        size_t count = (size_t)n * (size_t)n;
        CUdeviceptr matrix = right_floats(count, (unsigned)round);
        LIBRARY_MUST(room(handle, n, n, pointer(matrix), n, &words));
        CUdeviceptr work = right_alloc((size_t)words * sizeof(float) + 1);
        CUdeviceptr pivots = right_alloc((size_t)n * sizeof(int)),
                    info = right_alloc(sizeof(int));
        LIBRARY_MUST(factorise(handle, n, n, pointer(matrix), n, pointer(work), pointer(pivots),
                               pointer(info)));
        MUST(cu.cuMemFree_v2(work));
        printf("%d: %016llx", n, right_floats_end(matrix, count));
        printf(" %016llx %016llx\n", right_floats_end(pivots, (size_t)n),
               right_floats_end(info, 1));
    }
    LIBRARY_MUST(destroy(handle));
    return 0;
}
