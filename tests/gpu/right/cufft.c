/* right_cufft: transforms data forward and back.  Creates and destroys plans, which allocate
 * memory, in between. */
#include <stdio.h>

#include "right.h"

static int (*plan_1d)(int *, int, int, int);
static int (*set_stream)(int, CUstream);
static int (*transform)(int, void *, void *, int);
static int (*destroy)(int);

int main(void) {
    static const char *const sonames[] = {"libcufft.so.12", "libcufft.so.11", "libcufft.so.10",
                                          NULL};
    enum { ROUNDS = 10, COMPLEX_TO_COMPLEX = 0x29, FORWARD = -1, INVERSE = 1 };
    void *library = right_library("cuFFT", sonames);
    right_find(library, "cufftPlan1d", &plan_1d);
    right_find(library, "cufftSetStream", &set_stream);
    right_find(library, "cufftExecC2C", &transform);
    right_find(library, "cufftDestroy", &destroy);
    right_open();
    CUstream streams[2] = {right_stream(), right_stream()};
    for (int round = 0; round < ROUNDS; round++) {
        int plan, n = round % 2 ? 1 << (8 + round) : 1000 + 337 * round, batch = 3;
        size_t count = (size_t)n * (size_t)batch * 2;
        CUdeviceptr from = right_floats(count, (unsigned)round), to = right_floats(count, 9);
        LIBRARY_MUST(plan_1d(&plan, n, COMPLEX_TO_COMPLEX, batch));
        LIBRARY_MUST(set_stream(plan, streams[round % 2]));
        void *in = (void *)(uintptr_t)from, *out = (void *)(uintptr_t)to;
        LIBRARY_MUST(transform(plan, in, out, FORWARD));
        LIBRARY_MUST(transform(plan, out, in, INVERSE));
        MUST(cu.cuStreamSynchronize(streams[round % 2]));
        LIBRARY_MUST(destroy(plan));
        printf("%d: %016llx", n, right_floats_end(from, count));
        printf(" %016llx\n", right_floats_end(to, count));
    }
    return 0;
}
