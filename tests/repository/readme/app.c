/* The program `./app` of the pages. It allocates and frees in a loop, and holds no memory at its
 * end. With "stay" it holds a block, prints its address, and continues to allocate until stdin
 * ends. If APP_GREEDY is set, it requests more memory than the device has. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static CUdeviceptr take(size_t bytes) {
    CUdeviceptr block;
    MUST(cuMemAlloc_v2(&block, bytes));
    return block;
}

static void work(unsigned rounds) {
    enum { BLOCKS = 8 };
    CUdeviceptr block[BLOCKS];
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < BLOCKS; i++)
            block[i] = take((size_t)(i + 1 + round % 3) << 18);
        for (unsigned i = 0; i < BLOCKS; i++)
            MUST(cuMemFree_v2(block[i]));
    }
}

static int stay(void) {
    struct pollfd in = {.fd = 0, .events = POLLIN};
    CUdeviceptr held = take(4 << 20);
    printf("%#llx\n", (unsigned long long)held);
    fflush(stdout);
    while (poll(&in, 1, 20) == 0)
        work(1);
    MUST(cuMemFree_v2(held));
    return 0;
}

int main(int argc, char **argv) {
    CUdeviceptr block;
    test_device(0);
    if (argc > 1 && !strcmp(argv[1], "stay"))
        return stay();
    work(200);
    if (getenv("APP_GREEDY")) {
        CUdeviceptr most = take((size_t)12 << 30);
        if (cuMemAlloc_v2(&block, (size_t)8 << 30) == CUDA_SUCCESS)
            return 1;
        MUST(cuMemFree_v2(most));
    }
    puts("done");
    return 0;
}
