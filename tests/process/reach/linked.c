/* A program linked with the driver.  Built plain, with -z now and with -fno-plt, with
 * sanitizers, and copied for the setuid test. */
#include "reach.h"

cuInit_fn cuInit;
cuDevicePrimaryCtxRetain_fn cuDevicePrimaryCtxRetain;
cuCtxSetCurrent_fn cuCtxSetCurrent;
cuMemAlloc_v2_fn cuMemAlloc_v2;
cuMemFree_v2_fn cuMemFree_v2;

int main(void) {
    static const driver_t driver = {cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent,
                                    cuMemAlloc_v2, cuMemFree_v2};
    CUdeviceptr p = 0;
    unsigned result = cuMemAlloc_v2(&p, 1); /* before cuInit: an error from any driver */
    printf("before cuInit: %u\n", result);
    return exercise(&driver);
}
