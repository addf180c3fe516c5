/* The smallest program that uses the C API: a process that has not used CUDA yet. */
#include <accelcache.h>
#include <stdio.h>

int main(void) {
    int initialized = accel_initialized() != 0;
    printf("initialized: %d\n", initialized);
    return initialized;
}
