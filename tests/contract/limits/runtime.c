/* Answers of the runtime about a device of 1 GiB with a limit of 256
 * MiB. */
#include "harness.h"

#define MIB ((size_t)1 << 20)

typedef struct {
    char name[256], uuid[16], luid[8];
    unsigned mask;
    size_t totalGlobalMem;
    char rest[4096];
} properties_t;

int cudaSetDevice(int device);
int cudaMalloc(void **pointer, size_t bytes);
int cudaMemGetInfo(size_t *available, size_t *total);
int cudaGetDeviceProperties(properties_t *properties, int device);

int main(void) {
    static properties_t properties;
    size_t available, total;
    void *p;
    MUST(cudaSetDevice(0));
    MUST(cudaGetDeviceProperties(&properties, 0));
    EXPECT(properties.totalGlobalMem == 256 * MIB);
    MUST(cudaMalloc(&p, 100 * MIB));
    MUST(cudaMemGetInfo(&available, &total));
    EXPECT(available == 156 * MIB && total == 256 * MIB);
    return 0;
}
