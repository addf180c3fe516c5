/* A program that looks for a driver by itself and does without one: `probe` tells what it found
 * on stdout, status 21 without a driver, 22 without a device. */
#include <dlfcn.h>
#include <stdio.h>

#include "device/cuda_abi.h"

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        puts("no driver: the slow way");
        return 21;
    }
    union {
        void *address;
        cuInit_fn *init;
        cuMemAlloc_v2_fn *alloc;
        cuMemFree_v2_fn *release;
    } init = {dlsym(driver, "cuInit")}, alloc = {dlsym(driver, "cuMemAlloc_v2")},
      release = {dlsym(driver, "cuMemFree_v2")};
    CUresult result = init.init(0);
    if (result != CUDA_SUCCESS) {
        printf("no device: %d\n", (int)result);
        return 22;
    }
    CUdeviceptr block = 0;
    result = alloc.alloc(&block, 4096);
    printf("a driver: %d", (int)result);
    if (result == CUDA_SUCCESS)
        printf(" %d", (int)release.release(block));
    puts("");
    return 0;
}
