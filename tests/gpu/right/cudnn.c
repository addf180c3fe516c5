/* right_cudnn: computes convolutions with deterministic algorithms, and allocates and frees work
 * space in between. */
#include <stdio.h>

#include "right.h"

typedef struct cudnn_object *object_t;
static int (*create)(object_t *), (*destroy)(object_t);
static int (*set_stream)(object_t, CUstream);
static int (*tensor)(object_t *), (*filter)(object_t *), (*convolution)(object_t *);
static int (*tensor_is)(object_t, int, int, int, int, int, int);
static int (*filter_is)(object_t, int, int, int, int, int, int);
static int (*convolution_is)(object_t, int, int, int, int, int, int, int, int);
static int (*room)(object_t, object_t, object_t, object_t, object_t, int, size_t *);
static int (*forward)(object_t, const float *, object_t, const void *, object_t, const void *,
                      object_t, int, void *, size_t, const float *, object_t, void *);

static void *pointer(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

static void find_all(void) {
    static const char *const sonames[] = {"libcudnn.so.9", "libcudnn.so.8", NULL};
    void *library = right_library("cuDNN", sonames);
    right_find(library, "cudnnCreate", &create);
    right_find(library, "cudnnDestroy", &destroy);
    right_find(library, "cudnnSetStream", &set_stream);
    right_find(library, "cudnnCreateTensorDescriptor", &tensor);
    right_find(library, "cudnnCreateFilterDescriptor", &filter);
    right_find(library, "cudnnCreateConvolutionDescriptor", &convolution);
    right_find(library, "cudnnSetTensor4dDescriptor", &tensor_is);
    right_find(library, "cudnnSetFilter4dDescriptor", &filter_is);
    right_find(library, "cudnnSetConvolution2dDescriptor", &convolution_is);
    right_find(library, "cudnnGetConvolutionForwardWorkspaceSize", &room);
    right_find(library, "cudnnConvolutionForward", &forward);
}

int main(void) {
    /* Layout NCHW, floats, cross-correlation; implicit and precomputed implicit products. */
    enum { NCHW = 0, FLOAT = 0, CROSS = 1, ALGORITHMS = 2, ROUNDS = 6, CHANNELS = 8, OUT = 12 };
    const float one = 1.0f, zero = 0.0f;
    object_t handle, x, y, w, conv;
    find_all();
    right_open();
    CUstream stream = right_stream();
    LIBRARY_MUST(create(&handle));
    LIBRARY_MUST(set_stream(handle, stream));
    LIBRARY_MUST(tensor(&x));
    LIBRARY_MUST(tensor(&y));
    LIBRARY_MUST(filter(&w));
    LIBRARY_MUST(convolution(&conv));
    LIBRARY_MUST(filter_is(w, FLOAT, NCHW, OUT, CHANNELS, 3, 3));
    LIBRARY_MUST(convolution_is(conv, 1, 1, 1, 1, 1, 1, CROSS, FLOAT));
    for (int round = 0; round < ROUNDS; round++) {
        int side = 16 + 9 * round, algorithm = round % ALGORITHMS;
        size_t pixels = (size_t)side * (size_t)side, bytes = 0;
        LIBRARY_MUST(tensor_is(x, NCHW, FLOAT, 4, CHANNELS, side, side));
        LIBRARY_MUST(tensor_is(y, NCHW, FLOAT, 4, OUT, side, side));
        LIBRARY_MUST(room(handle, x, w, conv, y, algorithm, &bytes));
        CUdeviceptr in = right_floats(4 * CHANNELS * pixels, (unsigned)round);
        CUdeviceptr weights = right_floats((size_t)OUT * CHANNELS * 9, 5);
        CUdeviceptr out = right_floats(4 * OUT * pixels, 6), work = right_alloc(bytes + 1);
        LIBRARY_MUST(forward(handle, &one, x, pointer(in), w, pointer(weights), conv, algorithm,
                             pointer(work), bytes, &zero, y, pointer(out)));
        MUST(cu.cuMemFree_v2(work));
        MUST(cu.cuMemFree_v2(in));
        MUST(cu.cuMemFree_v2(weights));
        printf("%d: %016llx\n", side, right_floats_end(out, 4 * OUT * pixels));
    }
    LIBRARY_MUST(destroy(handle));
    return 0;
}
