/* right_contexts: resets, releases and retains the primary context with memory in it.  Creates and
 * destroys other contexts with pending work and memory. */
#include <stdio.h>

#include "right.h"

enum { ROUNDS = 6, BLOCKS = 12, WORDS = 30000 };

static unsigned long long use(CUfunction mix, unsigned round) {
    CUdeviceptr blocks[BLOCKS];
    unsigned long long sum = 0;
    CUstream streams[2] = {right_stream(), right_stream()};
    for (unsigned i = 0; i < BLOCKS; i++) {
        right_lane_t lane = RIGHT_LANE(streams[i % 2]);
        unsigned words = WORDS * (i + 1) / 3 + 1;
        blocks[i] = right_alloc(words * sizeof(uint32_t));
        MUST(cu.cuMemsetD32Async(blocks[i], round + i, words, lane.handle));
        right_mix_by(mix, blocks[i], words, i, lane);
        sum = sum * 31 + right_sum(blocks[i], words, lane);
        if (i % 3 == 0)
            MUST(cu.cuMemFree_v2(blocks[i])); /* the context's end frees the others */
    }
    return sum;
}

static void own_context(unsigned round) {
    CUcontext context;
    CUfunction mix;
    bool made = GPU_HAS(cuCtxCreate_v2) && !cu.cuCtxCreate_v2(&context, 0, gpu.device);
    if (!made)
        MUST(cu.cuCtxCreate_v4(&context, NULL, 0, gpu.device));
    right_kernel(&mix);
    printf("round %u, a context of its own: %016llx\n", round, use(mix, round));
    MUST(cu.cuCtxDestroy_v2(context));
}

int main(void) {
    CUfunction mix;
    CUdeviceptr gone = 0;
    right_open();
    mix = right_mix_function;
    for (unsigned round = 0; round < ROUNDS; round++) {
        printf("round %u, primary: %016llx\n", round, use(mix, round));
        gone = right_alloc(1 << 20);
        own_context(round);
        MUST(cu.cuCtxSetCurrent(gpu.primary));
        if (round % 2) {
            MUST(cu.cuDevicePrimaryCtxRelease_v2(gpu.device));
        } else {
            MUST(cu.cuDevicePrimaryCtxReset_v2(gpu.device));
        }
        MUST(cu.cuDevicePrimaryCtxRetain(&gpu.primary, gpu.device));
        MUST(cu.cuCtxSetCurrent(gpu.primary));
        right_kernel(&mix);
        printf("round %u, memory of before: %s\n", round, gpu_error(cu.cuMemFree_v2(gone)));
    }
    return 0;
}
