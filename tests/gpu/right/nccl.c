/* right_nccl: computes sums over up to four devices of this process, one rank per device.
 * Allocates and frees buffers in between. */
#include <stdio.h>

#include "right.h"

typedef struct nccl_comm *comm_t;
static int (*init)(comm_t *, int, const int *);
static int (*destroy)(comm_t);
static int (*begin)(void), (*end)(void);
static int (*sum_all)(const void *, void *, size_t, int, int, comm_t, CUstream);

enum { MOST = 4, ROUNDS = 6, FLOAT = 7, SUM = 0 };

static CUcontext contexts[MOST];
static CUstream streams[MOST];

int main(void) {
    static const char *const sonames[] = {"libnccl.so.2", NULL};
    static const int ordinals[MOST] = {0, 1, 2, 3};
    comm_t comms[MOST];
    void *library = right_library("NCCL", sonames);
    right_find(library, "ncclCommInitAll", &init);
    right_find(library, "ncclCommDestroy", &destroy);
    right_find(library, "ncclGroupStart", &begin);
    right_find(library, "ncclGroupEnd", &end);
    right_find(library, "ncclAllReduce", &sum_all);
    right_open();
    int ranks = gpu.devices < MOST ? gpu.devices : MOST;
    LIBRARY_MUST(init(comms, ranks, ordinals));
    for (int i = 0; i < ranks; i++) {
        MUST(cu.cuDevicePrimaryCtxRetain(&contexts[i], i));
        MUST(cu.cuCtxSetCurrent(contexts[i]));
        streams[i] = right_stream();
    }
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr from[MOST], to[MOST];
        size_t count = 1000 + 90001 * (size_t)round;
        for (int i = 0; i < ranks; i++) {
            MUST(cu.cuCtxSetCurrent(contexts[i]));
            from[i] = right_floats(count, (unsigned)i);
            to[i] = right_floats(count, 99);
        }
        LIBRARY_MUST(begin());
        for (int i = 0; i < ranks; i++)
            LIBRARY_MUST(sum_all((void *)(uintptr_t)from[i], (void *)(uintptr_t)to[i], count,
                                 FLOAT, SUM, comms[i], streams[i]));
        LIBRARY_MUST(end());
        for (int i = 0; i < ranks; i++) {
            MUST(cu.cuCtxSetCurrent(contexts[i]));
            MUST(cu.cuMemFree_v2(from[i]));
            printf("%zu, rank %d: %016llx\n", count, i, right_floats_end(to[i], count));
        }
    }
    for (int i = 0; i < ranks; i++)
        LIBRARY_MUST(destroy(comms[i]));
    return 0;
}
