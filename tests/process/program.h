/* What the programs of this folder share: the device, counted allocations, plain failure. */
#ifndef PROCESS_PROGRAM_H
#define PROCESS_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

typedef struct {
    const char *name;
    int (*run)(void); /* its result is the exit status, where it returns */
} program_case_t;

static inline void program_need(int good, const char *what) {
    if (good)
        return;
    fprintf(stderr, "program: %s\n", what);
    _exit(99); /* no exit handlers: a dump of a failed run would only confuse */
}

/* The primary context of device 0, current in the calling thread. */
static inline void program_device(void) {
    CUcontext context;
    program_need(cuInit(0) == CUDA_SUCCESS, "cuInit");
    program_need(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "retain");
    program_need(cuCtxSetCurrent(context) == CUDA_SUCCESS, "set current");
}

static inline CUdeviceptr program_alloc(void) {
    CUdeviceptr block;
    program_need(cuMemAlloc_v2(&block, 1 << 20) == CUDA_SUCCESS, "alloc");
    return block;
}

static inline void program_free(CUdeviceptr block) {
    program_need(cuMemFree_v2(block) == CUDA_SUCCESS, "free");
}

/* `pairs` allocations, each freed. */
static inline void program_use(int pairs) {
    for (int i = 0; i < pairs; i++)
        program_free(program_alloc());
}

static inline int program_main(int argc, char **argv, const program_case_t *cases, size_t count) {
    for (size_t i = 0; argc > 1 && i < count; i++)
        if (!strcmp(argv[1], cases[i].name))
            return cases[i].run();
    fprintf(stderr, "program: no such case\n");
    return 98;
}

#endif
