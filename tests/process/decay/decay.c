/* A program that frees and then only waits: its memory goes back by itself.  The setting comes
 * from the environment; the case says what to expect. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "accelcache.h"
#include "driver.h"

static int need(int good, const char *what) {
    if (!good)
        fprintf(stderr, "decay: %s\n", what);
    return good;
}

static long long reserved(void) {
    accel_device_stats_t stats = {.size = sizeof stats};
    if (!need(accel_get_device_stats(0, &stats) == ACCEL_OK, "statistics"))
        return -1;
    return (long long)stats.reserved_bytes.all.current;
}

/* The test's limit ends it where that never comes. */
static void wait_until_reserved_is(long long bytes) {
    while (reserved() != bytes)
        sched_yield();
}

/* Enough for a few looks of the library's thread, on most machines. */
static void pass_some_time(void) {
    for (int i = 0; i < 400; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int main(int argc, char **argv) {
    enum { MIB = 1 << 20 };
    CUcontext context;
    CUstream stream;
    CUdeviceptr kept, block, during;
    CUgraph graph;
    if (!need(argc == 2 && cuInit(0) == CUDA_SUCCESS &&
                  cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
                  cuCtxSetCurrent(context) == CUDA_SUCCESS &&
                  cuStreamCreate(&stream, 1) == CUDA_SUCCESS &&
                  cuMemAlloc_v2(&kept, 40 * MIB) == CUDA_SUCCESS &&
                  cuMemAlloc_v2(&block, 200 * MIB) == CUDA_SUCCESS,
              "start"))
        return 1;
    long long before = reserved();
    /* Work is pending on the block when it is freed; no call asks about it afterwards. */
    if (!need(cuMemsetD8Async(block, 1, 200 * MIB, stream) == CUDA_SUCCESS &&
                  cuMemFree_v2(block) == CUDA_SUCCESS,
              "free"))
        return 1;
    if (!strcmp(argv[1], "goes"))
        wait_until_reserved_is(before - 200 * MIB);
    /* What a cache holds that is switched off meanwhile goes as well. */
    if (!strcmp(argv[1], "goes_off")) {
        if (!need(accel_set_allocator_settings("enabled:false", NULL, 0) == ACCEL_OK, "off"))
            return 1;
        wait_until_reserved_is(before - 200 * MIB);
        return 0;
    }
    if (!strcmp(argv[1], "stays")) {
        pass_some_time();
        if (!need(reserved() == before, "memory went back"))
            return 1;
    }
    /* While a stream captures nothing moves, and the capture is whole. */
    if (!strcmp(argv[1], "captures")) {
        if (!need(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS,
                  "begin of the capture"))
            return 1;
        pass_some_time();
        if (!need(cuMemsetD8Async(kept, 2, 512, stream) == CUDA_SUCCESS &&
                      cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS,
                  "end of the capture"))
            return 1;
        wait_until_reserved_is(before - 200 * MIB);
    }
    return !need(cuMemAlloc_v2(&during, 200 * MIB) == CUDA_SUCCESS && reserved() == before &&
                     cuMemFree_v2(during) == CUDA_SUCCESS && cuMemFree_v2(kept) == CUDA_SUCCESS,
                 "the same again");
}
