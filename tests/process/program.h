/* What the programs of this folder share: the device, counted allocations. */
#ifndef PROCESS_PROGRAM_H
#define PROCESS_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

typedef struct {
    const char *name;
    int (*run)(void); /* its result is the exit status, where it returns */
} program_case_t;

/* The primary context of device 0, current in the calling thread. */
static inline void program_device(void) {
    test_device(0);
}

static inline CUdeviceptr program_alloc(void) {
    CUdeviceptr block;
    MUST(cuMemAlloc_v2(&block, 1 << 20));
    return block;
}

static inline void program_free(CUdeviceptr block) {
    MUST(cuMemFree_v2(block));
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
    return TEST_USAGE;
}

#endif
